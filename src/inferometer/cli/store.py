"""`inferometer list`, `show` and `store`: list the stored runs, show one, and maintain the store."""

import click

from inferometer.cli.options import json_option, run_argument, slowest_option, store_option, work_in

PRUNE_EXAMPLES = """\b
Examples:
  inferometer store prune --older-than 90d --dry-run
  inferometer store prune --older-than 90d --keep-last 1000
      older than 90 days and not among the newest 1000
  inferometer store prune --older-than 7d --where kind=startup
"""


SLIM_EXAMPLES = """\b
Examples:
  inferometer store slim latest
  inferometer store slim --all                before committing runs to a git branch
"""


REMEASURE_EXAMPLES = """\b
Examples:
  inferometer store remeasure                 all runs that an older version measured
  inferometer store remeasure latest
  inferometer show latest --again             the same for one run, without storing it
"""


BASELINE_EXAMPLES = """\b
Examples:
  inferometer store baseline                  list the baselines
  inferometer store baseline main latest      make the latest run the baseline `main`
  inferometer store baseline main --remove
"""


@click.group()
def store() -> None:
    """Manage the stored runs: tags, baselines, retention, the index."""


@store.command()
@json_option
@store_option
@work_in("inferometer.cli.work.store:info")
def info() -> None:
    """Show where runs are stored, how many there are, and any problems."""


@store.command()
@store_option
@work_in("inferometer.cli.work.store:reindex")
def reindex() -> None:
    """Rebuild the index from the run folders; upload finished runs that are pending."""


@store.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@store_option
@work_in("inferometer.cli.work.store:verify")
def verify() -> None:
    """Verify the checksum of every file of each RUN. Default: all runs.

    Exit code 1 if a run is damaged or was changed.
    """


@store.command(epilog=SLIM_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "all_runs", is_flag=True, help="Apply to all runs.")
@store_option
@work_in("inferometer.cli.work.store:slim")
def slim() -> None:
    """Delete the records, samples and logs of each RUN and keep its summary.

    New limits and everything else that needs single requests are no longer possible; comparisons, checks and charts of
    summary numbers still work.
    """


@store.command(epilog=REMEASURE_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@store_option
@work_in("inferometer.cli.work.store:remeasure")
def remeasure() -> None:
    """Recompute the numbers and the verdict of each RUN from its records, with the current definitions. Default: all
    runs that an older version measured.

    The original numbers stay in the run folder, as older-summary.json and older-verdict.json.
    """


@store.command()
@run_argument(required=True)
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@store_option
@work_in("inferometer.cli.work.store:tag")
def tag() -> None:
    """Add tags to RUN, to find it with `inferometer list --where tag=nightly`, `inferometer show nightly`."""


@store.command()
@run_argument(required=True)
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@store_option
@work_in("inferometer.cli.work.store:untag")
def untag() -> None:
    """Remove tags from RUN."""


@store.command(epilog=BASELINE_EXAMPLES)
@click.argument("name", required=False)
@run_argument(required=False)
@click.option("--remove", is_flag=True, help="Remove the baseline name; the run is kept.")
@store_option
@work_in("inferometer.cli.work.store:baseline")
def baseline() -> None:
    """Make RUN the baseline NAME for comparisons and checks; without arguments, list the baselines."""


@store.command(epilog=PRUNE_EXAMPLES)
@click.option("--older-than", metavar="TIME", help="Delete runs older than this: 90d, 12h.")
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep the newest N runs, regardless of age.")
@click.option("--keep-tagged/--no-keep-tagged", default=True, show_default=True, help="Keep tagged runs.")
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION", help="Delete only matching runs; see list --help."
)
@click.option("--dry-run", is_flag=True, help="Show which runs would be deleted; delete nothing.")
@store_option
@work_in("inferometer.cli.work.store:prune")
def prune() -> None:
    """Delete old runs. Baselines are never deleted."""


EXAMPLES = """\b
Examples:
  inferometer list --where model=~llama --where 'ttft p99 < 500ms'
      both conditions must hold; =~ matches a regular expression anywhere, ignoring case
  inferometer list --where plan.load.rate=10 --sort -output_rate
      filter by a setting of the plan, highest token throughput first
  inferometer list --where tag=nightly --where 'started>2026-11-01'
  inferometer list --columns id,model,ttft.p99,output_rate,plan.load.rate --csv > runs.csv
"""


@click.command("list", epilog=EXAMPLES)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Show only matching runs: NAME, then one of = != < <= > >= =~ !~, then a value. Repeatable.",
)
@click.option(
    "--sort", metavar="NAME", help="Sort by any name; -NAME sorts in descending order. [default: newest first]"
)
@click.option("--columns", metavar="NAME,...", help="Columns to show instead of the default ones.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Maximum number of runs."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, in seconds and per second.")
@json_option
@store_option
@work_in("inferometer.cli.work.runs:list_runs")
def list_runs() -> None:
    """List the stored runs, newest first.

    A NAME is a column (id, started, state, kind, source, verdict, name, model, target, engine, engine_version, commit,
    hardware, requests, tag, baseline, experiment, case), a measure with its statistic (ttft.p99, output_rate), or a
    setting of the plan (plan.load.rate).
    """


@click.command()
@run_argument(required=False)
@click.option("--partial", is_flag=True, help="Compute partial results from the logs of a killed or running run.")
@click.option("--again", is_flag=True, help="Recompute the numbers and the verdict from the records; store nothing.")
@click.option("--more", is_flag=True, help="Also show the plan, delivery, server, GPUs and all notes.")
@click.option("--measures", is_flag=True, help="Show every measure with all statistics and confidence intervals.")
@click.option("--slices", is_flag=True, help="Show the numbers over time.")
@click.option(
    "--as",
    "tool",
    metavar="TOOL",
    help="Also compute the numbers as vllm, sglang, guidellm, inference-perf, aiperf or mlperf define them.",
)
@slowest_option
@json_option
@store_option
@work_in("inferometer.cli.work.runs:show")
def show() -> None:
    """Show RUN. Default: the latest run.

    RUN is an id or its prefix, a folder, `latest`, `latest~1`, a tag or a baseline. The id of a search, a sweep or an
    A/B test shows its answer.
    """
