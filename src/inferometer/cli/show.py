"""`inferometer show`: a kept run again."""

from pathlib import Path

import click

from inferometer.cli.options import json_option, run_argument, slowest_option, store_of, store_option


@click.command()
@run_argument(required=False)
@click.option("--partial", is_flag=True, help="Compute what the logs of a killed or running run hold so far.")
@click.option("--measures", is_flag=True, help="Every measure with every statistic and interval.")
@click.option("--slices", is_flag=True, help="How it went over time.")
@click.option(
    "--as",
    "tool",
    metavar="TOOL",
    help="The records as vllm, sglang, guidellm, inference-perf, aiperf or mlperf would count them, beside ours.",
)
@slowest_option
@json_option
@store_option
def show(
    run: str | None,
    partial: bool,
    measures: bool,
    slices: bool,
    tool: str | None,
    slowest: int,
    as_json: bool,
    store: Path | None,
) -> None:
    """Show RUN; the latest without an id.

    RUN is an id, the beginning of one, a folder, `latest`, `latest~1`, a tag or a baseline.
    """
    from inferometer.cli.printing import print_run
    from inferometer.errors import StoreError
    from inferometer.record.run import STATES

    kept_in = store_of(store)
    kept = kept_in.load(run or "latest")
    if partial:
        from inferometer.conduct.run import partial_run

        kept = partial_run(kept, kept_in)
    elif kept.verdict is None:
        hint = f"inferometer show {kept.id} --partial computes what its logs hold"
        raise StoreError(f"{kept.id}: {STATES[kept.state]}", hint)
    if tool is not None:
        from inferometer.cli.printing import print_rosetta

        print_rosetta(kept, tool, as_json=as_json)
        return
    print_run(kept, as_json=as_json, slowest=slowest, measures=measures, slices=slices)
