"""Measures a target with a plan, or with the plan of a stored run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import print_message
from inferometer.cli.options import (
    wait_of,
)
from inferometer.cli.work.plans import aimed, opened_plan
from inferometer.cli.work.running import conduct, print_dry_run
from inferometer.cli.work.stores import store_of
from inferometer.plan.reading import plan_from

if TYPE_CHECKING:
    from inferometer.show.notify import Channel


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
    if every and not dry_run:
        raise click.UsageError("--all needs --dry-run")
    wait_s, channels = wait_of(wait_for_target), _channels_of(notify)
    opened = opened_plan(plan_args, quiet=quiet, **flags)
    plan = aimed(opened.plan)
    if harness_timeout is not None and not harnesses:
        raise click.UsageError("--harness-timeout needs --harness")
    if dry_run and harnesses:
        from inferometer.cli.work.harness_runs import print_rendered  # only with --harness

        print_rendered(plan, harnesses)
        return 0
    if dry_run:
        print_dry_run(plan, None if every else opened.mapping)
        return 0

    if plan is not opened.plan and not quiet:
        print_message("note", "no --url and no --server: measuring the built-in simulator")
    if harnesses and harnesses != ("inferometer",):
        from inferometer.cli.work.harness_runs import conduct_harnesses  # only with --harness

        if channels:
            raise click.UsageError(
                "--notify cannot be combined with --harness; inferometer ci --notify reports a stored run"
            )
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


def rerun(
    run: str,
    overrides: tuple[str, ...],
    wait_for_target: str | None,
    slowest: int,
    as_json: bool,
    quiet: bool,
    store: Path | None,
) -> int:
    wait_s = wait_of(wait_for_target)
    place = store_of(store)
    kept = place.load(run)
    if kept.kind in ("latency", "throughput") and kept.source is None:
        from inferometer.cli.work import offline  # only for runs of this kind

        if overrides:
            raise click.UsageError(
                "--set: an offline run is repeated unchanged; use inferometer offline for other settings"
            )
        return offline.again(kept, store, wait_s, as_json=as_json, quiet=quiet)
    if kept.kind == "benchmark" and kept.source is None:
        from inferometer.cli.work import benchmark  # only for runs of this kind

        if overrides:
            raise click.UsageError(
                "--set: a benchmark is repeated unchanged; use inferometer benchmark for other settings"
            )
        return benchmark.again(kept, place, as_json=as_json, quiet=quiet)
    plan = plan_from(kept.plan, overrides, kept.id)
    if (harness := kept.environment.harness) is not None and harness.name:
        from inferometer.cli.work.harness_runs import conduct_harnesses  # only for runs of other tools

        return conduct_harnesses(plan, [harness.name], place, as_json=as_json, quiet=quiet, wait_s=wait_s)
    return conduct(plan, place, as_json=as_json, slowest=slowest, quiet=quiet, wait_s=wait_s)


def _channels_of(notify: tuple[str, ...]) -> "list[Channel]":
    if not notify:
        return []
    from inferometer.show.notify import channels_of  # only with --notify

    return channels_of(notify)
