"""Fits a model to measured runs of a server, and compares its predictions with measured runs."""

from dataclasses import asdict
from pathlib import Path

import click

from inferometer.cli.errors import print_message
from inferometer.cli.work.chart import write_chart
from inferometer.cli.work.stores import store_of
from inferometer.conduct.fit import fit as fit_model
from inferometer.conduct.fit import left_out, preset, usable
from inferometer.conduct.predict import compared_steps
from inferometer.conduct.predict import validate as hold_against
from inferometer.record.run import Run
from inferometer.show.charts.chart import Chart
from inferometer.show.charts.engine import errors_chart, steps_chart
from inferometer.show.console import console, emit, print_json
from inferometer.show.prediction import MEASURE_TEXTS, errors_table, print_model, print_validation
from inferometer.show.progress import ProgressLine
from inferometer.simulator.fitting.aiconfigurator import accelerator_named, command, shape_named
from inferometer.simulator.fitting.server_model import limits_in_log, model_document, read_model
from inferometer.simulator.settings import Accelerator, ModelShape


def _draw(chart: Chart, path: Path) -> None:
    write_chart(chart, path, "light")
    print_message("note", f"wrote {path}")


def _runs(names: tuple[str, ...], store: Path | None) -> list[Run]:
    place = store_of(store)
    return [place.load(name) for name in names]


def _limits(
    runs: list[Run], log: Path | None, cache: int | None, sequences: int | None, budget: int | None
) -> dict[str, int]:
    """Limits of the engine: flags, else its log (one given, or `server.log` in or above a run's folder)."""
    logs = (
        [log] if log else [one / "server.log" for run in runs if run.folder for one in (run.folder, run.folder.parent)]
    )
    text = next((path.read_text("utf-8", "replace") for path in logs if path.is_file()), "")
    if log and not text:
        raise click.UsageError(f"--server-log: {log} cannot be read or is empty")
    limits = limits_in_log(text)
    flags = {"cache_tokens": cache, "max_sequences": sequences, "max_batched_tokens": budget}
    return limits | {name: value for name, value in flags.items() if value is not None}


def _physics(gpu: str | None, shape: str | None) -> tuple[Accelerator, ModelShape] | None:
    if (gpu is None) != (shape is None):
        raise click.UsageError("--gpu and --shape go together")
    return None if gpu is None or shape is None else (accelerator_named(gpu), shape_named(shape))


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
    physics = _physics(gpu, shape)
    if output is not None and not output.absolute().parent.is_dir():
        raise click.UsageError(f"-o {output}: there is no folder {output.parent}")
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
        _draw(steps_chart(compared_steps(model, loaded)), chart)
    if as_json:
        print_json(model.model_dump(mode="json", by_alias=True))
        return
    print_model(model, console())
    if output is None:
        print_message("note", "the model was not written; add -o MODEL.yaml")
    else:
        print_message("note", f"written to {output}; use it: inferometer predict --model-file {output} --rate 10")


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
