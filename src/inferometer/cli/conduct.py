"""Drives a plan with progress on the terminal, prints the run, tells who is to be told, and gives its exit code."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inferometer.cli.mistakes import say
from inferometer.cli.notifying import watched
from inferometer.cli.printing import exit_code, print_run
from inferometer.plan.model import Plan
from inferometer.plan.secrets import redacted
from inferometer.plan.writing import to_mapping
from inferometer.record.run import Run
from inferometer.run import run
from inferometer.show.progress import ProgressLine
from inferometer.store.opening import Place

if TYPE_CHECKING:
    from inferometer.show.notify.channels import Channel


def conduct(
    plan: Plan,
    store: Place,
    *,
    as_json: bool,
    slowest: int,
    quiet: bool,
    wait_s: float = 0.0,
    notify: "Sequence[Channel]" = (),
) -> int:
    """The run is kept before anything is printed; progress and notes go to stderr."""

    def measured() -> tuple[Run, int]:
        made = _run(plan, store, quiet, wait_s)
        print_run(made, as_json=as_json, slowest=slowest)
        return made, exit_code(made, shown=not as_json)

    return watched(measured, to_mapping(redacted(plan)), store, notify, quiet=quiet)[1]


def _run(plan: Plan, store: Place, quiet: bool, wait_s: float) -> Run:
    line = ProgressLine()

    def note(text: str) -> None:
        line.clear()
        say("note", text)

    try:
        return run(
            plan,
            store=store,
            watch=None if quiet else line,
            notes=None if quiet else note,
            wait_for_target_s=wait_s,
        )
    finally:
        line.clear()
