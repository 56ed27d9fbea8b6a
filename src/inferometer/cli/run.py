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
    plan_argument,
    plan_of,
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
  inferometer run -- vllm bench serve --random-input-len 1000 --num-prompts 500
      what another tool's command line means
  inferometer run plan.yaml --dry-run
      the plan as it would be run, and its first request as curl
"""


@click.command(epilog=EXAMPLES)
@plan_argument
@all_flags
@click.option("--dry-run", is_flag=True, help="Print the plan and its first request as curl; send nothing.")
@wait_option
@slowest_option
@notify_option
@json_option
@quiet_option
@store_option
def run(
    plan_words: tuple[str, ...],
    dry_run: bool,
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
    wait_s, channels = wait_of(wait_for_target), channels_of(notify)
    asked = plan_of(plan_words, quiet=quiet, **flags)
    plan = aimed(asked)
    if dry_run:
        from inferometer.cli.running import print_dry_run

        print_dry_run(plan)
        return 0
    from inferometer.cli.running import conduct

    if plan is not asked and not quiet:
        say("note", "no --url and no --server: measuring the built-in simulator")
    return conduct(plan, store_of(store), as_json=as_json, slowest=slowest, quiet=quiet, wait_s=wait_s, notify=channels)
