"""`inferometer run` and `inferometer rerun`: measure a target with a plan, or with the plan of a stored run."""

from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import print_message
from inferometer.cli.notify import channels_of
from inferometer.cli.options import (
    aimed,
    all_flags,
    json_option,
    notify_option,
    opened_plan,
    plan_argument,
    quiet_option,
    run_argument,
    set_option,
    slowest_option,
    store_of,
    store_option,
    wait_of,
    wait_option,
)

EXAMPLES = """\b
Examples:
  inferometer run
      measure the built-in simulator: nothing else is needed
  inferometer run --url http://localhost:8000 --rate 10 --duration 60s
      open loop: Poisson arrivals, independent of the server
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
      the same plan by several tools, and what each of them reports of the same server
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
    help="Let another tool send the load: guidellm, aiperf, ...; inferometer harnesses lists them. Repeatable: a run "
    "each, and a table of what each reports.",
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
def run(
    plan_args: tuple[str, ...],
    tags: tuple[str, ...],
    harnesses: tuple[str, ...],
    harness_timeout: str | None,
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
    """Measure a server: send the load of PLAN and store the run.

    PLAN is a YAML file (`-` for stdin), a profile's name, another tool's file, or after `--` its command line.
    Without --url and --server, the built-in simulator is started and measured.
    """
    if every and not dry_run:
        raise click.UsageError("--all needs --dry-run")
    wait_s, channels = wait_of(wait_for_target), channels_of(notify)
    opened = opened_plan(plan_args, quiet=quiet, **flags)
    plan = aimed(opened.plan)
    if harness_timeout is not None and not harnesses:
        raise click.UsageError("--harness-timeout needs --harness")
    if dry_run and harnesses:
        from inferometer.cli.harnesses import print_rendered

        print_rendered(plan, harnesses)
        return 0
    if dry_run:
        from inferometer.cli.running import print_dry_run

        print_dry_run(plan, None if every else opened.mapping)
        return 0
    from inferometer.cli.running import conduct

    if plan is not opened.plan and not quiet:
        print_message("note", "no --url and no --server: measuring the built-in simulator")
    if harnesses and harnesses != ("inferometer",):
        from inferometer.cli.harnesses import conduct_harnesses

        if channels:
            raise click.UsageError("--notify: not with --harness; inferometer notify sends a stored run")
        return conduct_harnesses(
            plan,
            harnesses,
            store_of(store),
            as_json=as_json,
            quiet=quiet,
            wait_s=wait_s,
            time_limit=harness_timeout,
            tags=tags,
        )
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


@click.command()
@run_argument(required=True)
@set_option
@wait_option
@slowest_option
@json_option
@quiet_option
@store_option
def rerun(
    run: str,
    overrides: tuple[str, ...],
    wait_for_target: str | None,
    slowest: int,
    as_json: bool,
    quiet: bool,
    store: Path | None,
) -> int:
    """Repeat RUN with the same plan and seed, stored as a new run.

    RUN is an id or its prefix, a folder, `latest`, a tag or a baseline.
    """
    from inferometer.cli.running import conduct
    from inferometer.plan.reading import plan_from

    wait_s = wait_of(wait_for_target)
    place = store_of(store)
    kept = place.load(run)
    if kept.kind in ("latency", "throughput") and kept.source is None:
        from inferometer.cli.offline import again

        if overrides:
            raise click.UsageError(
                "--set: an offline run is repeated unchanged; use inferometer offline for other settings"
            )
        return again(kept, store, wait_s, as_json=as_json, quiet=quiet)
    if kept.kind == "benchmark" and kept.source is None:
        from inferometer.cli.harnesses import conduct as once_more
        from inferometer.plan.benchmark import benchmark_from

        if overrides:
            raise click.UsageError(
                "--set: a benchmark is repeated unchanged; use inferometer benchmark for other settings"
            )
        settings = {"name": kept.plan.name, **kept.plan.benchmark}
        return once_more(benchmark_from(settings, kept.id), place, as_json=as_json, quiet=quiet)
    plan = plan_from(kept.plan, overrides, kept.id)
    if (harness := kept.environment.harness) is not None and harness.name:
        from inferometer.cli.harnesses import conduct_harnesses

        return conduct_harnesses(plan, [harness.name], place, as_json=as_json, quiet=quiet, wait_s=wait_s)
    return conduct(plan, place, as_json=as_json, slowest=slowest, quiet=quiet, wait_s=wait_s)
