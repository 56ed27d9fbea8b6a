"""`inferometer rerun`: a kept run once more."""

from pathlib import Path

import click

from inferometer.cli.options import (
    json_option,
    quiet_option,
    run_argument,
    set_option,
    slowest_option,
    store_of,
    store_option,
    wait_of,
    wait_option,
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
    """Do RUN once more: same plan, same seed, kept as a run of its own.

    RUN is an id, the beginning of one, a folder, `latest`, a tag or a baseline.
    """
    from inferometer.cli.running import conduct
    from inferometer.plan.reading import plan_from

    wait_s = wait_of(wait_for_target)
    place = store_of(store)
    kept = place.load(run)
    if kept.kind in ("latency", "throughput") and kept.source is None:
        from inferometer.cli.offline import again

        if overrides:
            raise click.UsageError("--set: an offline run is done again as it was; inferometer offline starts another")
        return again(kept, store, wait_s, as_json=as_json, quiet=quiet)
    if kept.kind == "benchmark" and kept.source is None:
        from inferometer.cli.benchmark import conduct as once_more
        from inferometer.plan.benchmark import benchmark_from

        if overrides:
            raise click.UsageError("--set: a benchmark is done again as it was; inferometer benchmark starts another")
        said = {"name": kept.plan.get("name"), **(kept.plan.get("benchmark") or {})}
        return once_more(benchmark_from(said, kept.id), place, as_json=as_json, quiet=quiet)
    plan = plan_from(kept.plan, overrides, kept.id)
    return conduct(plan, place, as_json=as_json, slowest=slowest, quiet=quiet, wait_s=wait_s)
