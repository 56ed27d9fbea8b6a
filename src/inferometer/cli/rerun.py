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
)


@click.command()
@run_argument(required=True)
@set_option
@slowest_option
@json_option
@quiet_option
@store_option
def rerun(run: str, overrides: tuple[str, ...], slowest: int, as_json: bool, quiet: bool, store: Path | None) -> int:
    """Do RUN once more: same plan, same seed, kept as a run of its own.

    RUN is an id, the beginning of one, a folder, or `latest`.
    """
    from inferometer.cli.conduct import conduct
    from inferometer.plan.reading import plan_from
    from inferometer.store.folder import load_run
    from inferometer.store.index import Index

    place = store_of(store)
    kept = load_run(Index(place).find(run))
    plan = plan_from(kept.plan, overrides, kept.id)
    return conduct(plan, place, as_json=as_json, slowest=slowest, quiet=quiet)
