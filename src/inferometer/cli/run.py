"""`inferometer run`: drive a plan at a target and keep the run."""

from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import say
from inferometer.cli.notify import channels_of
from inferometer.cli.options import (
    aimed,
    all_flags,
    json_option,
    notify_option,
    opened_plan,
    plan_argument,
    quiet_option,
    slowest_option,
    store_of,
    store_option,
    wait_of,
    wait_option,
)

EXAMPLES = """\b
Examples:
  inferometer run
      measures the built-in simulator: nothing else is needed
  inferometer run --url http://localhost:8000 --rate 10 --duration 60s
      open loop: Poisson arrivals, whatever the server does
  inferometer run --url http://localhost:8000 --concurrency 32 --requests 1k
      closed loop: the next request when one is answered
  inferometer run plan.yaml --set load.rate=20 --limit 'ttft p99 < 500ms'
      a plan, changed; exit code 1 when the limit fails
  inferometer run chat --url http://localhost:8000
      a ready plan by its name; inferometer profiles lists them
  inferometer run --url localhost:8000 --dataset sharegpt.json --tag nightly --output result.json
      prompts from a file; the run gets a tag, and a copy of its numbers
  inferometer run -- vllm bench serve --random-input-len 1000 --num-prompts 500
      what another tool's command line means
  inferometer run plan.yaml --dry-run
      what is set, and the first request as curl; --dry-run --all shows every setting
\b
Environment, where neither the plan nor a flag says it:
  INFEROMETER_URL      the server to measure; several with spaces between them
  INFEROMETER_MODEL    the model to ask for
  INFEROMETER_KEY_ENV  the variable that holds the API key  [default: OPENAI_API_KEY]
  INFEROMETER_STORE    where runs are kept
  INFEROMETER_RECORDS  where run folders go, if not into the store
  INFEROMETER_NOTIFY   whom to tell of failures
"""


@click.command(epilog=EXAMPLES)
@plan_argument
@all_flags
@click.option(
    "--output",
    multiple=True,
    metavar="[FORMAT=]FILE",
    help="Write the run to a file too: .json, .csv, .parquet, or vllm=FILE and other formats of export. Repeatable.",
)
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="Tag the kept run. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Print what is set and the first request as curl; send nothing.")
@click.option("--all", "every", is_flag=True, help="With --dry-run: every setting, also the defaults.")
@wait_option
@slowest_option
@notify_option
@json_option
@quiet_option
@store_option
def run(
    plan_words: tuple[str, ...],
    tags: tuple[str, ...],
    dry_run: bool,
    every: bool,
    wait_for_target: str | None,
    slowest: int,
    notify: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    store: Path | None,
    **flags: Any,
) -> int:
    """Measure a server: drive PLAN at it and keep the run.

    PLAN is a YAML file (`-` for stdin), a profile's name, another tool's file, or after `--` its command line.
    Without --url and --server the built-in simulator is started and measured.
    """
    if every and not dry_run:
        raise click.UsageError("--all belongs to --dry-run")
    wait_s, channels = wait_of(wait_for_target), channels_of(notify)
    opened = opened_plan(plan_words, quiet=quiet, **flags)
    plan = aimed(opened.plan)
    if dry_run:
        from inferometer.cli.running import print_dry_run

        print_dry_run(plan, None if every else opened.said)
        return 0
    from inferometer.cli.running import conduct

    if plan is not opened.plan and not quiet:
        say("note", "no --url and no --server: measuring the built-in simulator")
    return conduct(
        plan,
        store_of(store),
        as_json=as_json,
        slowest=slowest,
        quiet=quiet,
        wait_s=wait_s,
        notify=channels,
        tags=tags,
    )
