"""`inferometer compare`: two sides of runs, measure by measure."""

from pathlib import Path

import click

from inferometer.cli.options import json_option, run_argument, store_of, store_option

EXAMPLES = """\b
Examples:
  inferometer compare latest~1 latest
      the last two runs; says unclear unless earlier runs tell how much runs differ
  inferometer compare a1,a2,a3,a4,a5 b1,b2,b3,b4,b5
      groups of repeats: what this needs to tell a change of a few percent
  inferometer compare before-upgrade after-upgrade
      all runs with these tags
  inferometer compare baseline:main latest --measure ttft.p99,tpot.p50,output_rate
      a baseline by its name, and three measures only: fewer are easier to tell
"""


@click.command(epilog=EXAMPLES)
@run_argument("before", required=True)
@run_argument("after", required=True)
@click.option(
    "--measure", "measures", multiple=True, metavar="NAMES", help="Only these: ttft.p99,output_rate. Repeatable."
)
@click.option("--all", "every", is_flag=True, help="Every measure that can be better or worse.")
@click.option(
    "--with-repeats", "repeats", is_flag=True, help="Each side with all runs of its identity, versions and commit."
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0, max=100, min_open=True),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="A change that is surely smaller is called same.",
)
@click.option("--force", is_flag=True, help="Compare even runs that are invalid or on both sides.")
@click.option("--fail-on-worse", is_flag=True, help="Exit with 1 where a measure is worse.")
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
    fail_on_worse: bool,
    as_json: bool,
    store: Path | None,
) -> int:
    """Compare runs: what is better, worse, the same or unclear AFTER than BEFORE.

    A side is a run (an id, the beginning of one, a folder, `latest`), several with commas between them, a tag (all runs
    that have it), or `baseline:NAME`.
    """
    from inferometer.cli.errors import LIMIT_FAILED, WRONG_USE, say
    from inferometer.cli.printing import print_json
    from inferometer.conduct.compare import compare_runs
    from inferometer.show.comparison import print_comparison
    from inferometer.show.console import console

    found = compare_runs(
        before, after, store_of(store), measures=measures, every=every, repeats=repeats, margin=margin / 100
    )
    if found.refused and (not force or not found.changes):
        for each in found.objections:
            if each.word == "refuse":
                say("error", each.text)
        say("hint", "--force compares them nevertheless" if found.changes else "such runs have no common measures")
        return WRONG_USE
    if as_json:
        print_json(found.document())
    else:
        print_comparison(found, console())
    return LIMIT_FAILED if fail_on_worse and found.word == "worse" else 0
