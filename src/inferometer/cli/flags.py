"""The flags that `run` and `simulate` share. Values are taken as written: the plan checks them all at once."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from inferometer.cli.mistakes import say

if TYPE_CHECKING:
    from inferometer.plan.model import Plan

Command = TypeVar("Command", bound=Callable[..., Any])

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
    from inferometer.plan.flags import Flags
    from inferometer.plan.opening import open_plan

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
