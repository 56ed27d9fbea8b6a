"""`inferometer fit` and `inferometer validate`: a model of a measured server, and how wrong it is."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.errors import print_message
from inferometer.cli.options import Command, json_option, quiet_option, store_of, store_option

if TYPE_CHECKING:
    from inferometer.record.run import Run
    from inferometer.show.charts.chart import Chart
    from inferometer.simulator.presets import Accelerator, ModelShape

FIT_EXAMPLES = """\b
Examples:
  inferometer fit 20261116-0026 20261116-0031 20261116-0040 -o h200-8b.yaml
      a model of the server that gave these three runs
  inferometer fit sweep/* --server-log server.log -o h200-8b.yaml
      run folders; the engine's limits are read from its log
  inferometer fit --gpu h100 --shape llama-3.1-70b --gpus 4 -o guess.yaml
      no run at hand: a model from the data sheet alone
"""
VALIDATE_EXAMPLES = """\b
Examples:
  inferometer validate h200-8b.yaml latest
      predicted beside measured
  inferometer validate h200-8b.yaml sweep/* --leave-one-out
      fit again without each run, and predict that one
  inferometer validate h200-8b.yaml latest --aiconfigurator meta-llama/Meta-Llama-3.1-8B
      aiconfigurator's estimates beside ours, where it is installed
"""


def _chart_option(shows: str) -> Callable[[Command], Command]:
    return click.option(
        "--chart", type=click.Path(path_type=Path), metavar="FILE", help=f"Draw {shows}: .png, .svg or .json."
    )


def _draw(chart: "Chart", path: Path) -> None:
    from inferometer.cli.reports import write_chart

    write_chart(chart, path, "light")
    print_message("note", f"wrote {path}")


def _runs(names: tuple[str, ...], store: Path | None) -> "list[Run]":
    place = store_of(store)
    return [place.load(name) for name in names]


def _limits(
    runs: "list[Run]", log: Path | None, cache: int | None, sequences: int | None, budget: int | None
) -> dict[str, int]:
    """Limits of the engine: flags, else its log (one given, or `server.log` in or above a run's folder)."""
    from inferometer.simulator.fitting.server_model import limits_in_log

    logs = (
        [log] if log else [one / "server.log" for run in runs if run.folder for one in (run.folder, run.folder.parent)]
    )
    text = next((path.read_text("utf-8", "replace") for path in logs if path.is_file()), "")
    if log and not text:
        raise click.UsageError(f"--server-log: {log} cannot be read or is empty")
    limits = limits_in_log(text)
    flags = {"cache_tokens": cache, "max_sequences": sequences, "max_batched_tokens": budget}
    return limits | {name: value for name, value in flags.items() if value is not None}


def _physics(gpu: str | None, shape: str | None) -> "tuple[Accelerator, ModelShape] | None":
    from inferometer.simulator.fitting.physics import accelerator_named, shape_named

    if (gpu is None) != (shape is None):
        raise click.UsageError("--gpu and --shape go together")
    return None if gpu is None or shape is None else (accelerator_named(gpu), shape_named(shape))


@click.command(epilog=FIT_EXAMPLES)
@click.argument("runs", nargs=-1)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to write the model.")
@click.option("--name", metavar="TEXT", help="Name of the model. [default: that of the file]")
@click.option(
    "--server-log", type=click.Path(path_type=Path), metavar="FILE", help="Log of the server's start: its limits."
)
@click.option("--kv-tokens", type=click.IntRange(min=1024), metavar="N", help="Tokens in the KV cache.")
@click.option("--max-sequences", type=click.IntRange(min=1), metavar="N", help="Most sequences in one step.")
@click.option("--token-budget", type=click.IntRange(min=1), metavar="N", help="Most tokens in one step.")
@click.option("--gpu", metavar="GPU", help="With --shape: begin with the arithmetic of h100, h200, l4, ...")
@click.option("--shape", metavar="MODEL", help="llama-3.1-8b, qwen3-32b, ...")
@click.option("--gpus", type=click.IntRange(min=1), default=1, metavar="N", help="Without runs: number of GPUs.")
@click.option("--leave-one-out", is_flag=True, help="State errors on runs that the fit did not see; takes longer.")
@_chart_option("measured and modelled steps of the runs")
@json_option
@quiet_option
@store_option
def fit(
    runs: tuple[str, ...],
    output: Path | None,
    name: str | None,
    server_log: Path | None,
    kv_tokens: int | None,
    max_sequences: int | None,
    token_budget: int | None,
    gpu: str | None,
    shape: str | None,
    gpus: int,
    leave_one_out: bool,
    chart: Path | None,
    as_json: bool,
    quiet: bool,
    store: Path | None,
) -> None:
    """Learn a model of a server from the records of RUNS, for `predict`.

    Three runs of one server at different loads are enough. RUNS are ids, folders, tags or `latest`.
    """
    from inferometer.cli.printing import print_json
    from inferometer.conduct.predict import fit as fit_model
    from inferometer.conduct.predict import preset
    from inferometer.show.console import console
    from inferometer.show.prediction import print_model
    from inferometer.show.progress import ProgressLine
    from inferometer.simulator.fitting.server_model import model_document

    physics = _physics(gpu, shape)
    if not runs and physics is None:
        raise click.UsageError("name at least one run, or --gpu and --shape")
    label = name or (output.stem if output else "server")
    loaded: list[Run] = []
    if not runs and physics is not None:
        model = preset(*physics, gpus)
    else:
        loaded, line = _runs(runs, store), ProgressLine()
        limits = _limits(loaded, server_log, kv_tokens, max_sequences, token_budget)
        try:
            progress = None if quiet else line.message
            model = fit_model(loaded, label, limits, physics=physics, leave_one_out=leave_one_out, progress=progress)
        finally:
            line.clear()
    if output is not None:
        output.write_text(model_document(model), "utf-8")
    if chart is not None:
        if not loaded:
            raise click.UsageError("--chart shows the steps of measured runs: name at least one")
        from inferometer.conduct.predict import steps_beside
        from inferometer.show.charts.prediction import steps_chart

        _draw(steps_chart(steps_beside(model, loaded)), chart)
    if as_json:
        print_json(model.model_dump(mode="json", by_alias=True))
        return
    print_model(model, console())
    if output is None:
        print_message("note", "the model was not written; add -o MODEL.yaml")
    else:
        print_message("note", f"written to {output}; use it: inferometer predict --model-file {output} --rate 10")


@click.command(epilog=VALIDATE_EXAMPLES)
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("runs", nargs=-1, required=True)
@click.option("--leave-one-out", is_flag=True, help="Fit again without each run, and predict that one.")
@click.option(
    "--aiconfigurator",
    metavar="MODEL",
    help="The model's name on Hugging Face, if the runs have another: for aiconfigurator's estimates, which are shown "
    "beside ours where that program is installed.",
)
@_chart_option("how far every prediction is off")
@json_option
@quiet_option
@store_option
def validate(
    model: Path,
    runs: tuple[str, ...],
    leave_one_out: bool,
    aiconfigurator: str | None,
    chart: Path | None,
    as_json: bool,
    quiet: bool,
    store: Path | None,
) -> None:
    """Hold the predictions of MODEL against measured RUNS."""
    from inferometer.cli.printing import print_json
    from inferometer.conduct.predict import left_out, usable
    from inferometer.conduct.predict import validate as hold_against
    from inferometer.show.charts.prediction import errors_chart
    from inferometer.show.console import console, emit
    from inferometer.show.prediction import MEASURE_TEXTS, errors_table, print_validation
    from inferometer.show.progress import ProgressLine
    from inferometer.simulator.fitting.aiconfigurator import command
    from inferometer.simulator.fitting.server_model import read_model

    server, loaded, line = read_model(model), _runs(runs, store), ProgressLine()
    progress = None if quiet else line.message
    try:
        if leave_one_out:
            chosen, notes = usable(loaded)
            errors = dict(left_out(chosen, server.simulator(), progress=progress))
        else:
            executable = command()
            if aiconfigurator is not None and executable is None:
                raise click.UsageError("--aiconfigurator: that program is not installed (pip install aiconfigurator)")
            rows, notes = hold_against(server, loaded, progress, aiconfigurator=executable, known_as=aiconfigurator)
            errors = {row.name: row.errors for row in rows}
    finally:
        line.clear()
    if chart is not None:
        _draw(errors_chart(errors, MEASURE_TEXTS), chart)
    if leave_one_out:
        print_json(errors) if as_json else emit(errors_table(errors), console())
        for note in notes:
            print_message("note", note)
        return
    if as_json:
        listed = [asdict(row) | {"errors": row.errors, "inside": row.inside} for row in rows]
        print_json({"model": server.name, "runs": listed, "notes": notes})
        return
    print_validation(rows, console())
    for note in notes:
        print_message("note", note)
