"""Options that several commands share, and what completes them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from inferometer.store.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])
_RECORDS = "inferometer.records"


def _runs_of(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from inferometer.store.opening import open_store

    store = open_store(context.params.get("store"), context.meta.get(_RECORDS))
    runs = sorted((path.name for path in (store.home / "runs").glob(f"{incomplete}*")), reverse=True)
    return [CompletionItem(name) for name in runs if not name.startswith(".")]


def store_option(command: Command) -> Command:
    """`--store`, and `--records` beside it: `store_of` knows both."""
    records = click.option(
        "--records",
        metavar="FOLDER|URL",
        expose_value=False,
        callback=_remember_records,
        help="Where run folders go, if not into the store: a folder, s3://... or gs://... "
        "[default: $INFEROMETER_RECORDS]",
    )
    store = click.option(
        "--store",
        metavar="FOLDER|URL",
        help="Where runs are kept: a folder, or postgresql://user@host/database for a team. "
        "[default: $INFEROMETER_STORE, else ~/.local/share/inferometer]",
    )
    return store(records(command))


def _remember_records(context: click.Context, _option: click.Parameter, said: str | None) -> None:
    context.meta[_RECORDS] = said


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else on stdout.")(
        command
    )


def quiet_option(command: Command) -> Command:
    return click.option("--quiet", "-q", is_flag=True, help="No progress and no notes on stderr.")(command)


def notify_option(command: Command) -> Command:
    return click.option(
        "--notify",
        multiple=True,
        metavar="CHANNELS",
        envvar="INFEROMETER_NOTIFY",
        help="Tell people of a failure, a regression or a recovery, once: slack, teams, webhook, email. "
        "[default: $INFEROMETER_NOTIFY]",
    )(command)


def set_option(command: Command) -> Command:
    return click.option(
        "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a setting of the plan. Repeatable."
    )(command)


def wait_option(command: Command) -> Command:
    return click.option(
        "--wait-for-target", metavar="TIME", help="Wait so long where another run uses the same GPU or endpoint."
    )(command)


def wait_of(text: str | None) -> float:
    """Seconds of `--wait-for-target`; none where it was not given."""
    from inferometer import vocabulary

    try:
        return vocabulary.seconds(text) if text is not None else 0.0
    except ValueError:
        raise click.UsageError(f"--wait-for-target must be a duration such as 30s or 1h, got {text}") from None


def slowest_option(command: Command) -> Command:
    return click.option(
        "--slowest", type=click.IntRange(min=0), default=0, metavar="N", help="Show the N slowest requests too."
    )(command)


def run_argument(name: str = "run", *, required: bool) -> Callable[[Command], Command]:
    """A run by its id, the beginning of its id, its folder, or `latest`."""
    return click.argument(name, required=required, shell_complete=_runs_of)


def store_of(chosen: "str | Path | None") -> "Store":
    """The store that was chosen, or the usual one; what there is to warn of is said once."""
    from inferometer.cli.mistakes import say
    from inferometer.store.opening import open_store

    context = click.get_current_context(silent=True)
    store = open_store(chosen, context.meta.get(_RECORDS) if context else None)
    while store.warnings:
        say("warning", store.warnings.pop())
    return store
