"""Drives a plan with progress on the terminal, then prints the run and gives its exit code."""

from inferometer.cli.mistakes import say
from inferometer.cli.printing import exit_code, print_run
from inferometer.plan.model import Plan
from inferometer.run import run
from inferometer.show.progress import ProgressLine
from inferometer.store.opening import Place


def conduct(plan: Plan, store: Place, *, as_json: bool, slowest: int, quiet: bool, wait_s: float = 0.0) -> int:
    """The run is kept before anything is printed; progress and notes go to stderr."""
    line = ProgressLine()

    def note(text: str) -> None:
        line.clear()
        say("note", text)

    try:
        made = run(
            plan,
            store=store,
            watch=None if quiet else line,
            notes=None if quiet else note,
            wait_for_target_s=wait_s,
        )
    finally:
        line.clear()
    print_run(made, as_json=as_json, slowest=slowest)
    return exit_code(made, shown=not as_json)
