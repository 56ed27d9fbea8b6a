"""Options that several commands share, and what completes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., Any])


def _runs_of(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from inferometer.store.folder import default_store

    store = context.params.get("store") or default_store()
    runs = sorted((path.name for path in (store / "runs").glob(f"{incomplete}*")), reverse=True)
    return [CompletionItem(name) for name in runs if not name.startswith(".")]


def store_option(command: Command) -> Command:
    return click.option(
        "--store",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        help="Where runs are kept. [default: $INFEROMETER_STORE, else ~/.local/share/inferometer]",
    )(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else on stdout.")(
        command
    )


def quiet_option(command: Command) -> Command:
    return click.option("--quiet", "-q", is_flag=True, help="No progress and no notes on stderr.")(command)


def set_option(command: Command) -> Command:
    return click.option(
        "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a setting of the plan. Repeatable."
    )(command)


def slowest_option(command: Command) -> Command:
    return click.option(
        "--slowest", type=click.IntRange(min=0), default=0, metavar="N", help="Show the N slowest requests too."
    )(command)


def run_argument(*, required: bool) -> Callable[[Command], Command]:
    """A run by its id, the beginning of its id, its folder, or `latest`."""
    return click.argument("run", required=required, shell_complete=_runs_of)


def store_of(chosen: Path | None) -> Path:
    """The store that was chosen, or the usual one."""
    from inferometer.store.folder import default_store

    return chosen or default_store()
