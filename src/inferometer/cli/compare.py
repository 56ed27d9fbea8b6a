"""`inferometer compare` and `inferometer check`: compare two groups of runs, or a run with its history, measure by
measure."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.errors import INVALID, LIMIT_FAILED, WRONG_USE, echo, print_message
from inferometer.cli.notify import channels_of, notify_check
from inferometer.cli.options import (
    json_option,
    notify_option,
    quiet_option,
    run_argument,
    spread_option,
    store_of,
    store_option,
)
from inferometer.show.console import console

if TYPE_CHECKING:
    from inferometer.conduct.compare import MeasurePlan
    from inferometer.judge.check_result import CheckResult
    from inferometer.plan.model import Plan
    from inferometer.record.run import Run
    from inferometer.store.store import Store


COMPARE_EXAMPLES = """\b
Examples:
  inferometer compare latest~1 latest
      the last two runs; without earlier runs a run-to-run variation of 5% (p90 and above: 10%) is assumed
  inferometer compare a1,a2,a3,a4,a5 b1,b2,b3,b4,b5
      groups of repeats: needed to detect a change of a few percent
  inferometer compare before-upgrade after-upgrade
      all runs with these tags
  inferometer compare baseline:main latest --measure ttft.p99,tpot.p50,output_rate
      a named baseline, and only three measures: fewer comparisons detect smaller changes
"""


@click.command(epilog=COMPARE_EXAMPLES)
@run_argument("before", required=True)
@run_argument("after", required=True)
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="NAMES",
    help="Compare only these measures: ttft.p99,output_rate. Repeatable.",
)
@click.option("--all", "every", is_flag=True, help="Compare every measure that has a better direction.")
@click.option(
    "--with-repeats",
    "repeats",
    is_flag=True,
    help="Add to each side all runs with the same identity, versions and commit.",
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0, max=100, min_open=True),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Call a change the same if it is certainly smaller than this.",
)
@click.option("--force", is_flag=True, help="Compare even if runs are invalid or are on both sides.")
@spread_option
@click.option("--fail-on-worse", is_flag=True, help="Exit with 1 if any measure is worse.")
@click.option("--strict", is_flag=True, help="With --fail-on-worse: exit with 4 if the result is unclear.")
@json_option
@store_option
def compare(
    before: str,
    after: str,
    measures: tuple[str, ...],
    every: bool,
    repeats: bool,
    margin: float,
    force: bool,
    assume_spread: float | None,
    fail_on_worse: bool,
    strict: bool,
    as_json: bool,
    store: Path | None,
) -> int:
    """Compare runs: is each measure better, worse, the same or unclear in AFTER compared with BEFORE?

    A side is a run (an id or its prefix, a folder, `latest`), a comma-separated list of runs, a tag (all runs with that
    tag), or `baseline:NAME`.
    """
    from inferometer.cli.printing import print_json
    from inferometer.conduct.compare import compare_runs
    from inferometer.show.comparison import print_comparison

    comparison = compare_runs(
        before,
        after,
        store_of(store),
        measures=measures,
        every=every,
        repeats=repeats,
        margin=margin / 100,
        assume_spread=None if assume_spread is None else assume_spread / 100,
    )
    if comparison.refused and (not force or not comparison.changes):
        for objection in comparison.objections:
            if objection.severity == "refuse":
                print_message("error", objection.text)
        print_message(
            "hint", "--force compares them anyway" if comparison.changes else "these runs have no measures in common"
        )
        return WRONG_USE
    if as_json:
        print_json(comparison.document())
    else:
        print_comparison(comparison, console())
    if not fail_on_worse:
        return 0
    if comparison.status == "unclear":
        print_message(
            "warning",
            "unclear whether any measure is worse" + ("" if strict else "; --strict exits with 4 in this case"),
        )
        return INVALID if strict else 0
    return LIMIT_FAILED if comparison.status == "worse" else 0


CHECK_EXAMPLES = """\b
Examples:
  inferometer check
      compare the latest run with earlier runs of the same workload, stack and hardware
  inferometer check latest --confirm
      in CI: repeat a run that looks worse; it is a regression only if both are worse
  inferometer check latest --against baseline:main
      compare with the run that is pinned as baseline main
  inferometer check latest --accept
      accept the change: the baseline starts at this run
"""


@click.command(epilog=CHECK_EXAMPLES)
@run_argument(required=False)
@click.option(
    "--against",
    default="history",
    show_default=True,
    metavar="WHAT",
    help="Compare with: history, baseline[:NAME], a run, several runs, or a tag.",
)
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="NAMES",
    help="Check only these measures: ttft.p99,output_rate. Repeatable.",
)
@click.option("--all", "every", is_flag=True, help="Also show measures that are observed but not checked.")
@click.option(
    "--p-value",
    type=click.FloatRange(min=0, max=0.5, min_open=True),
    help="False alarm rate. [default: 0.001 against history, else 0.05]",
)
@click.option(
    "--magnitude",
    type=click.FloatRange(min=0, max=100),
    default=0.0,
    show_default=True,
    metavar="PERCENT",
    help="Ignore smaller changes.",
)
@click.option(
    "--confirm", is_flag=True, help="Repeat a run that looks worse; report a regression only if both are worse."
)
@click.option(
    "--confirm-with", metavar="PLAN", help="Like --confirm, but repeat with this plan instead of the run's own."
)
@spread_option
@click.option("--strict", is_flag=True, help="Exit with 4 if the result is unclear.")
@click.option("--accept", "accepts", is_flag=True, help="Accept the change: the baseline starts at this run.")
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
    assume_spread: float | None,
    strict: bool,
    accepts: bool,
    notify: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    store: Path | None,
) -> int:
    """Check whether RUN is a regression against earlier runs. Default: the latest run.

    Exit code 1 if it is worse, 0 if not; 4 if the run is not valid as a measurement, or with --strict if the result is
    unclear.
    """
    from inferometer.conduct.compare import accept, check_run

    channels, place, wanted = channels_of(notify), store_of(store), run or "latest"
    if accepts:
        echo(f"accepted: the baseline now starts at run {accept(wanted, place)}")
        return 0
    result = check_run(
        wanted,
        place,
        against=against,
        measures=measures,
        p_value=p_value,
        magnitude=magnitude / 100,
        again=_again(place, quiet) if confirm or confirm_with else None,
        plan=_plan(confirm_with),
        assume_spread=None if assume_spread is None else assume_spread / 100,
    )
    code = _print_result(result, as_json=as_json, every=every, strict=strict)
    if channels:
        notify_check(place.load(result.run), result, place, channels, quiet=quiet)
    return code


def _plan(path: str | None) -> "Plan | None":
    if path is None:
        return None
    from inferometer.plan.reading import read_plan

    return read_plan(path)


def _again(store: "Store", quiet: bool) -> "MeasurePlan":
    """How a confirming run is made: with progress on the terminal, kept like any other."""
    from inferometer.conduct.run import run
    from inferometer.show.progress import ProgressLine

    def again(plan: "Plan") -> "Run":
        line = ProgressLine()

        def note(text: str) -> None:
            line.clear()
            print_message("note", text)

        if not quiet:
            print_message("note", "the run looks worse: repeating it for confirmation")
        try:
            return run(plan, store=store, watch=None if quiet else line, notes=None if quiet else note)
        finally:
            line.clear()

    return again


def _print_result(result: "CheckResult", *, as_json: bool, every: bool, strict: bool) -> int:
    """On stdout what was found, on stderr what a script's log should not miss."""
    from inferometer.cli.printing import print_json
    from inferometer.show.comparison import print_check

    if as_json:
        print_json(result.document())
    else:
        print_check(result, console(), every=every)
    for text in result.warnings:
        print_message("warning", text)
    if result.status == "unclear":
        print_message(
            "warning", "unclear whether this run is worse" + ("" if strict else "; --strict exits with 4 in this case")
        )
    return result.exit_code(strict)
