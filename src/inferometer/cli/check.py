"""`inferometer check`: is this run worse than those before it?"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.errors import echo
from inferometer.cli.notify import channels_of, tell_of_check
from inferometer.cli.options import json_option, notify_option, quiet_option, run_argument, store_of, store_option

if TYPE_CHECKING:
    from inferometer.conduct.compare import Measure
    from inferometer.judge.check_result import CheckResult
    from inferometer.plan.model import Plan
    from inferometer.record.run import Run
    from inferometer.store.store import Store

EXAMPLES = """\b
Examples:
  inferometer check
      the latest run against the earlier ones of the same workload, stack and hardware
  inferometer check latest --confirm
      in CI: a run that looks worse is made once more, and is worse only if both are
  inferometer check latest --against baseline:main
      against the run that is pinned under that name
  inferometer check latest --accept
      what changed is meant to be so: from this run on it is the baseline
"""


@click.command(epilog=EXAMPLES)
@run_argument(required=False)
@click.option(
    "--against",
    default="history",
    show_default=True,
    metavar="WHAT",
    help="history, baseline[:NAME], or a run (or several, or a tag).",
)
@click.option(
    "--measure", "measures", multiple=True, metavar="NAMES", help="Only these: ttft.p99,output_rate. Repeatable."
)
@click.option("--all", "every", is_flag=True, help="Show what is only observed too.")
@click.option(
    "--p-value",
    type=click.FloatRange(min=0, max=0.5, min_open=True),
    help="Chance of an alarm where nothing changed. [default: 0.001 against history, else 0.05]",
)
@click.option(
    "--magnitude",
    type=click.FloatRange(min=0, max=100),
    default=0.0,
    show_default=True,
    metavar="PERCENT",
    help="Smaller changes raise no alarm.",
)
@click.option("--confirm", is_flag=True, help="Make a run that looks worse once more; worse only if both are.")
@click.option("--confirm-with", metavar="PLAN", help="The same by this plan, instead of the run's own.")
@click.option("--strict", is_flag=True, help="Exit with 1 where it is unclear, too.")
@click.option("--accept", "accepts", is_flag=True, help="From this run on things are as they should be.")
@notify_option
@json_option
@quiet_option
@store_option
def check(
    run: str | None,
    against: str,
    measures: tuple[str, ...],
    every: bool,
    p_value: float | None,
    magnitude: float,
    confirm: bool,
    confirm_with: str | None,
    strict: bool,
    accepts: bool,
    notify: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    store: Path | None,
) -> int:
    """Is RUN worse than those before it? The latest without an id.

    Exit code 1 when it is worse, 0 when not; 4 when the run is not valid as a measurement.
    """
    from inferometer.conduct.compare import accept, check_run

    channels, place, wanted = channels_of(notify), store_of(store), run or "latest"
    if accepts:
        echo(f"accepted: from {accept(wanted, place)} on things are as they should be")
        return 0
    found = check_run(
        wanted,
        place,
        against=against,
        measures=measures,
        p_value=p_value,
        magnitude=magnitude / 100,
        again=_again(place, quiet) if confirm or confirm_with else None,
        plan=_plan(confirm_with),
    )
    code = _told(found, as_json=as_json, every=every, strict=strict)
    if channels:
        tell_of_check(place.load(found.run), found.document(), place, channels, quiet=quiet)
    return code


def _plan(said: str | None) -> "Plan | None":
    if said is None:
        return None
    from inferometer.plan.reading import read_plan

    return read_plan(said)


def _again(store: "Store", quiet: bool) -> "Measure":
    """How a confirming run is made: with progress on the terminal, kept like any other."""
    from inferometer.cli.errors import say
    from inferometer.conduct.run import run
    from inferometer.show.progress import ProgressLine

    def again(plan: "Plan") -> "Run":
        line = ProgressLine()
        if not quiet:
            say("note", "it looks worse: making the run once more to confirm it")
        try:
            return run(plan, store=store, watch=None if quiet else line)
        finally:
            line.clear()

    return again


def _told(found: "CheckResult", *, as_json: bool, every: bool, strict: bool) -> int:
    """On stdout what was found, on stderr what a script's log should not miss."""
    from inferometer.cli.errors import say
    from inferometer.cli.printing import print_json
    from inferometer.show.comparison import print_check
    from inferometer.show.console import console

    if as_json:
        print_json(found.document())
    else:
        print_check(found, console(), every=every)
    for text in found.warnings:
        say("warning", text)
    if found.word == "unclear":
        say("warning", "it cannot be told whether this run is worse" + ("" if strict else "; --strict fails on that"))
    return found.exit_code(strict)
