"""`inferometer show`: a kept run again."""

from pathlib import Path

import click

from inferometer.cli.options import json_option, run_argument, slowest_option, store_of, store_option


@click.command()
@run_argument(required=False)
@click.option("--partial", is_flag=True, help="Compute what the logs of a killed or running run hold so far.")
@click.option("--measures", is_flag=True, help="Every measure with every statistic and interval.")
@click.option("--slices", is_flag=True, help="How it went over time.")
@slowest_option
@json_option
@store_option
def show(
    run: str | None,
    partial: bool,
    measures: bool,
    slices: bool,
    slowest: int,
    as_json: bool,
    store: Path | None,
) -> None:
    """Show RUN; the latest without an id.

    RUN is an id, the beginning of one, a folder, `latest` or `latest~1`.
    """
    from inferometer.cli.printing import print_run
    from inferometer.errors import StoreError
    from inferometer.record.run import STATES
    from inferometer.store.folder import load_run
    from inferometer.store.index import Index

    kept = load_run(Index(store_of(store)).find(run or "latest"))
    if partial:
        from inferometer.run import partial_run

        kept = partial_run(kept, store_of(store))
    elif not kept.summary:
        hint = f"inferometer show {kept.id} --partial computes what its logs hold"
        raise StoreError(f"{kept.id}: {STATES[kept.state]}", hint)
    print_run(kept, as_json=as_json, slowest=slowest, measures=measures, slices=slices)
