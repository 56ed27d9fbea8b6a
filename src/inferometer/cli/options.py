"""Options that several commands share, what completes them, and the flags that make a plan."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from inferometer.cli.errors import say

# -- options ---------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from inferometer.store.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])
_RECORDS = "inferometer.records"


def _runs_of(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from inferometer.store.store import open_store

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
    from inferometer.cli.errors import say
    from inferometer.store.store import open_store

    context = click.get_current_context(silent=True)
    store = open_store(chosen, context.meta.get(_RECORDS) if context else None)
    while store.warnings:
        say("warning", store.warnings.pop())
    return store


# -- flags -----------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from inferometer.plan.model import Plan


change_option = click.option(
    "-o", "changes", multiple=True, metavar="KEY=VALUE", help="In another tool's file: by its own keys. Repeatable."
)
_TARGET = (
    click.option("--url", multiple=True, metavar="URL", help="Server to measure; several take turns."),
    click.option("--server", metavar="KIND", help="Start a server for the run: simulator, vllm, sglang, ..."),
    click.option("--model", metavar="NAME", help="Model to ask for. [default: what the server offers]"),
    click.option(
        "--api",
        metavar="API",
        help="completions, chat, responses, embeddings, rerank, anthropic, tgi, template. [default: completions]",
    ),
)
_WORK = (
    click.option("--rate", metavar="N", help="Open loop: requests per second, Poisson arrivals."),
    click.option("--concurrency", metavar="N", help="Closed loop: requests in flight; with --rate: a cap."),
    click.option("--requests", metavar="N", help="Send so many."),
    click.option("--duration", metavar="TIME", help="Send for so long: 60s, 5min."),
    click.option("--warmup", metavar="N|TIME", help="Leave out the first requests or seconds."),
    click.option("--input-tokens", metavar="N", help="Length of each prompt."),
    click.option("--output-tokens", metavar="N", help="Length of each answer."),
    click.option("--seed", metavar="N", help="The same seed sends the same requests at the same times."),
    click.option("--limit", multiple=True, metavar="LIMIT", help="Fail unless met: 'ttft p99 < 500ms'. Repeatable."),
    click.option(
        "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Any setting of the plan. Repeatable."
    ),
    change_option,
)
_SENDING = (
    click.option("--workers", metavar="N", help="Processes that share the load."),
    click.option("--save-prompts", is_flag=True, help="Keep what was sent."),
    click.option("--save-answers", is_flag=True, help="Keep what came back."),
)

plan_argument = click.argument("plan_words", metavar="[PLAN]", nargs=-1, type=click.Path())


def work_flags(command: Command) -> Command:
    """What is sent, and when."""
    return _with(command, _WORK)


def all_flags(command: Command) -> Command:
    """What is sent, when, and where to."""
    return _with(command, (*_TARGET, *_WORK, *_SENDING))


def _with(command: Command, options: Iterable[Callable[[Command], Command]]) -> Command:
    for option in reversed(list(options)):
        command = option(command)
    return command


def plan_of(
    plan_words: tuple[str, ...],
    overrides: tuple[str, ...],
    changes: tuple[str, ...] = (),
    quiet: bool = False,
    warmup: str | None = None,
    save_prompts: bool = False,
    save_answers: bool = False,
    **flags: Any,
) -> "Plan":
    """The plan that a command line means: what it names, changed by flags, then by `--set`."""
    from inferometer.plan.opening import open_plan
    from inferometer.plan.overrides import Flags

    more = [f"warmup={warmup}"] if warmup is not None else []
    more += ["save.prompts=true"] if save_prompts else []
    more += ["save.answers=true"] if save_answers else []
    opened = open_plan(plan_words, [*more, *overrides], Flags(**flags), changes)
    for note in opened.notes if not quiet else ():
        say("note", note)
    return opened.plan


def aimed(plan: "Plan") -> "Plan":
    """With neither URL nor server, the simulator is what is measured."""
    from inferometer.plan.model import Server

    if plan.target.url or plan.server is not None:
        return plan
    return plan.model_copy(update={"server": Server(type="simulator")})
