"""`inferometer run` and `inferometer rerun`: measure a target with a plan, or with the plan of a stored run."""

import click

from inferometer.cli.options import (
    all_flags,
    json_option,
    notify_option,
    plan_argument,
    quiet_option,
    run_argument,
    set_option,
    slowest_option,
    store_option,
    wait_option,
    work_in,
)

EXAMPLES = """\b
Examples:
  inferometer run
      measure the built-in simulator: nothing else is needed
  inferometer run --url http://localhost:8000 --rate 10 --duration 60s
      open loop: Poisson arrivals at this rate, however slow the server is
  inferometer run --url http://localhost:8000 --concurrency 32 --requests 1k
      closed loop: send the next request when one is answered
  inferometer run plan.yaml --set load.rate=20 --limit 'ttft p99 < 500ms'
      change a setting of a plan; exit code 1 if the limit is not met
  inferometer run chat --url http://localhost:8000
      a built-in plan by its name; inferometer profiles lists them
  inferometer run --url localhost:8000 --dataset sharegpt.json --tag nightly --output result.json
      prompts from a file; tag the run and write its results to a file
  inferometer run -- vllm bench serve --random-input-len 1000 --num-prompts 500
      run another tool's command line
  inferometer run --harness inferometer --harness guidellm --harness aiperf plan.yaml
      the same plan with several tools, and a table of what each of them reports
  inferometer run plan.yaml --dry-run
      show the settings and the first request as curl; --dry-run --all shows every setting
\b
Environment variables, used if neither the plan nor a flag sets the value:
  INFEROMETER_URL      URL of the server to measure; several are separated by spaces
  INFEROMETER_MODEL    model to request
  INFEROMETER_KEY_ENV  name of the variable with the API key  [default: OPENAI_API_KEY]
  INFEROMETER_STORE    store of the runs
  INFEROMETER_RECORDS  location of run folders, if not in the store
  INFEROMETER_NOTIFY   channels for notifications
"""


@click.command(epilog=EXAMPLES)
@plan_argument
@all_flags
@click.option(
    "--output",
    multiple=True,
    metavar="[FORMAT=]FILE",
    help="Also write the run to a file: .json, .csv, .parquet, or vllm=FILE and other export formats. Repeatable.",
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag the run. Repeatable.")
@click.option(
    "--harness",
    "harnesses",
    multiple=True,
    metavar="NAME",
    help="Let another tool send the load: guidellm, aiperf, ...; inferometer harnesses lists them. Repeatable: one run "
    "per tool, and a table of what each of them reports.",
)
@click.option("--harness-timeout", metavar="TIME", help="With --harness: stop a tool that takes longer.  [default: 1h]")
@click.option("--dry-run", is_flag=True, help="Print the settings and the first request as curl; send nothing.")
@click.option("--all", "every", is_flag=True, help="With --dry-run: show every setting, including defaults.")
@wait_option
@slowest_option
@notify_option
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.run:run")
def run() -> None:
    """Measure a server: send the load of PLAN and store the run.

    PLAN is a YAML file (`-` for stdin), a profile's name, another tool's file, or after `--` its command line.
    Without --url and --server, the built-in simulator is started and measured.
    """


@click.command()
@run_argument(required=True)
@set_option
@wait_option
@slowest_option
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.run:rerun")
def rerun() -> None:
    """Repeat RUN with the same plan and seed, stored as a new run.

    RUN is an id or its prefix, a folder, `latest`, a tag or a baseline.
    """
