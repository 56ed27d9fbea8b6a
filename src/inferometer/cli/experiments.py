"""`inferometer search`, `sweep` and `ab`: commands that make several runs and store them as an experiment."""

import click

from inferometer.cli.options import (
    all_flags,
    capacity_flags,
    change_option,
    json_option,
    model_file_option,
    notify_option,
    plan_argument,
    quiet_option,
    store_option,
    work_flags,
    work_in,
)

# -- search ------------------------------------------------------------------------------------------------------------

SEARCH_EXAMPLES = """\b
Examples:
  inferometer search --url http://localhost:8000 --limit 'ttft p99 < 500ms' --limit 'tpot p90 < 50ms'
      the highest request rate within both limits
  inferometer search chat --url http://localhost:8000 --concurrency 32 --over concurrency
      a built-in plan with its limits; varies the number of requests in flight, starting at 32
  inferometer search --limit 'ttft p90 < 200ms' --limit 'tpot p90 < 10ms' --budget 2min
      stop after two minutes and report the result so far; on the built-in simulator
  inferometer search --limit 'ttft p90 < 200ms' --model-file h200-8b.yaml
      predict it in seconds, with a model that `inferometer fit` made
  inferometer search --limit 'ttft p90 < 200ms' --model-file h200-8b.yaml --replicas 1,2,4 --price 3.5
      for several numbers of replicas, with the cost per million output tokens
  inferometer search --limit 'ttft p90 < 200ms' --model-file h200-8b.yaml --confirm http://localhost:8000
      predict the rate, then measure it and show both
"""


@click.command(epilog=SEARCH_EXAMPLES)
@plan_argument
@all_flags
@click.option(
    "--over",
    type=click.Choice(["rate", "concurrency"]),
    default="rate",
    show_default=True,
    help="Load parameter to vary.",
)
@click.option(
    "--step",
    metavar="TIME",
    help="Duration of each step. [default: long enough to decide the limits, as far as the budget allows, at most 60s]",
)
@click.option(
    "--within",
    metavar="SHARE",
    help="Precision of the result. [default: 3%; with --budget: as precise as the time allows]",
)
@click.option(
    "--steps", type=click.IntRange(min=1), default=12, show_default=True, metavar="N", help="Maximum number of steps."
)
@click.option(
    "--budget",
    metavar="TIME",
    help="Time limit of the whole search, not counting the start of a server; then the result so far is reported.",
)
@click.option(
    "--least", metavar="N", help="Lowest load to try. [default: a thousandth of the first load, or 1 request]"
)
@click.option("--most", metavar="N", help="Highest load to try. [default: a thousand times the first load]")
@model_file_option()
@capacity_flags("--model-file")
@click.option(
    "--confirm", metavar="URL", help="With --model-file: measure the predicted load on this server, and show both."
)
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.search:search")
def search() -> None:
    """Find the highest load that meets the limits of PLAN.

    The load is doubled until a limit is missed, then the range is halved until it is narrow enough. Each load is stored
    as a run. The first load comes from a two-second probe, or from --rate (--concurrency).
    """


# -- sweep -------------------------------------------------------------------------------------------------------------

SWEEP_EXAMPLES = """\b
Examples:
  inferometer sweep experiment.yaml --dry-run
      show the cases in order and the expected duration
  inferometer sweep experiment.yaml --csv results.csv
      run all cases and write one CSV line per case
  inferometer sweep experiment.yaml --resume
      continue after Ctrl-C, a kill or a full disk; finished cases are not repeated
  inferometer sweep experiment.yaml --set repeats=3 --set order=abba --set stop.duration=30s
      change settings of the experiment or of its plan
  inferometer sweep --switch-off examples/mixed-classes.yaml
      measure how each traffic class of a plan affects the others
  inferometer sweep routing --set repeats=10
      a built-in experiment: routing strategies on a fleet in virtual time, as in Ray's prefix-aware sweep
  inferometer sweep experiment.yaml --model-file h200-8b.yaml
      predict all cases in virtual time, with a model that `inferometer fit` made
  inferometer sweep config.yml
      an inference-perf file with load.sweep: a burst, then rates up to the throughput of the burst
  inferometer sweep -- guidellm benchmark run --target http://host:8000 --rate-type sweep --data prompt_tokens=256
      another tool's command line; guidellm's sweep works the same way
"""


@click.command(epilog=SWEEP_EXAMPLES)
@click.argument("args", metavar="[FILE]", nargs=-1, type=click.Path())
@click.option("--dry-run", is_flag=True, help="Print the cases and the expected duration; run nothing.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[ID]",
    help="Resume the last experiment of this file, or the one with this id.",
)
@click.option(
    "--fresh", is_flag=True, help="Start a new experiment, without the note that an earlier one is unfinished."
)
@click.option("--force", is_flag=True, help="Resume although the file was edited; unchanged cases are not repeated.")
@click.option("--retry-failed", is_flag=True, help="When resuming, repeat failed cases.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a setting of the experiment or its plan. Repeatable.",
)
@change_option
@model_file_option()
@click.option("--most", type=click.IntRange(min=1), default=1000, show_default=True, help="Maximum number of cases.")
@click.option(
    "--switch-off", is_flag=True, help="FILE is a plan: run it with all traffic classes, then with each one left out."
)
@click.option(
    "--csv",
    "csv_file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write a CSV file with one line per case.",
)
@notify_option
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.sweep:sweep")
def sweep() -> None:
    """Run an experiment: all cases of FILE, each stored as a run.

    FILE has a plan and its variations: axes (all combinations), zipped lists, named cases, load levels between two
    measured ends, exclusions, repeats. It may be another tool's file, or after `--` another tool's command line. A
    failed case is recorded and the others continue.
    """


# -- ab ----------------------------------------------------------------------------------------------------------------

AB_EXAMPLES = """\b
Examples:
  inferometer ab --a http://gpu1:8000 --b http://gpu2:8000 --rate 4
      two running servers, 10 blocks of 20 s each
  inferometer ab chat --a http://localhost:8000 --b http://localhost:8001 --blocks 6 --block 60s
      both receive the workload of a built-in plan
  inferometer ab --a server:simulator --b 'server:{type: simulator, args: {speed: 1.3}}' --block 5s
      start two servers and run both at the same time
  inferometer ab plan.yaml --a stable.yaml --b canary.yaml --set-b server.env.CUDA_VISIBLE_DEVICES=1
      take the target and server of each side from its own plan
  inferometer ab --a http://localhost:8000 --b http://localhost:8000 --concurrency 16
      A/A test: how large differences are by noise alone, on this machine and server
"""


@click.command(epilog=AB_EXAMPLES)
@plan_argument
@click.option(
    "--a", "side_a", required=True, metavar="SIDE", help="Side A, the current version: a URL, a plan, or server:KIND."
)
@click.option(
    "--b",
    "side_b",
    required=True,
    metavar="SIDE",
    help="Side B, which is compared with A: a URL, a plan, or server:KIND.",
)
@click.option(
    "--blocks",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of blocks per side.",
)
@click.option("--block", default="20s", show_default=True, metavar="TIME", help="Duration of a block.")
@click.option("--model", metavar="NAME", help="Model to request from both. [default: the model each server serves]")
@click.option("--api", metavar="API", help="API of both targets. [default: completions]")
@click.option(
    "--set-a", "only_a", multiple=True, metavar="PATH=VALUE", help="Set a plan field for side A only. Repeatable."
)
@click.option(
    "--set-b", "only_b", multiple=True, metavar="PATH=VALUE", help="Set a plan field for side B only. Repeatable."
)
@click.option(
    "--measure", "measures", multiple=True, metavar="NAMES", help="Compare only these measures: ttft.p99,output_rate."
)
@click.option("--all", "every", is_flag=True, help="Compare every measure for which higher or lower is better.")
@click.option("--margin", default="5%", show_default=True, metavar="SHARE", help="Report a smaller change as the same.")
@click.option("--fail-on-worse", is_flag=True, help="Exit with 1 if B is worse in any measure.")
@work_flags
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.ab:ab")
def ab() -> None:
    """Compare two targets block by block in the order A B B A A B B A ...; each block is stored as a run.

    Both blocks of a pair send the same requests at the same times, so the target is the only difference, and drift
    of the machine affects both sides. The confidence intervals come from the differences within pairs.
    """
