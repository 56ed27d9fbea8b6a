"""`inferometer compare` and `inferometer check`: compare two groups of runs, or a run with its history, measure by
measure."""

import click

from inferometer.cli.options import (
    json_option,
    notify_option,
    quiet_option,
    run_argument,
    spread_option,
    store_option,
    work_in,
)

COMPARE_EXAMPLES = """\b
Examples:
  inferometer compare latest~1 latest
      the last two runs; without earlier runs a run-to-run variation of 5% (p90 and above: 10%) is assumed
  inferometer compare a1,a2,a3,a4,a5 b1,b2,b3,b4,b5
      groups of repeats: needed to detect a change of a few percent
  inferometer compare before-upgrade after-upgrade
      two tags: all runs with one against all runs with the other
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
@click.option("--all", "every", is_flag=True, help="Compare every measure for which higher or lower is better.")
@click.option(
    "--with-repeats",
    "repeats",
    is_flag=True,
    help="Add to each side all runs of the same workload, stack, hardware, versions and commit.",
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0, max=100, min_open=True),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Report a change as the same if it is certainly smaller than this.",
)
@click.option("--force", is_flag=True, help="Compare even if a run is invalid or on both sides.")
@spread_option
@click.option("--fail-on-worse", is_flag=True, help="Exit with 1 if any measure is worse.")
@click.option("--strict", is_flag=True, help="With --fail-on-worse: exit with 4 if the result is unclear.")
@json_option
@store_option
@work_in("inferometer.cli.work.compare:compare")
def compare() -> None:
    """Compare runs: is each measure better, worse, the same or unclear in AFTER compared with BEFORE?

    A side is a run (an id or its prefix, a folder, `latest`), a comma-separated list of runs, a tag (all runs with that
    tag), or `baseline:NAME`.
    """


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
@work_in("inferometer.cli.work.compare:check")
def check() -> None:
    """Check whether RUN is a regression against earlier runs. Default: the latest run.

    Exit code 1 if it is worse, 0 if not; 4 if the run is not valid as a measurement, or with --strict if the result is
    unclear.
    """
