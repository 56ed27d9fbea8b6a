"""`inferometer fit`, `validate`, `predict` and `simulate`: a model of a measured server, its error, and runs in
virtual time instead of on a server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import print_message
from inferometer.cli.options import (
    Command,
    capacity_flags,
    json_option,
    model_file_option,
    plan_argument,
    plan_of,
    quiet_option,
    slowest_option,
    store_of,
    store_option,
    work_flags,
)
from inferometer.show.console import console, emit
from inferometer.vocabulary import number_text

if TYPE_CHECKING:
    from inferometer.plan.model import Plan
    from inferometer.record.run import Run
    from inferometer.show.charts.chart import Chart
    from inferometer.simulator.fitting.server_model import Capacity, ServerModel
    from inferometer.simulator.settings import Accelerator, ModelShape


EXAMPLES = """\b
Examples:
  inferometer predict --model-file h200-8b.yaml --rate 20 --duration 60s
      what this load would give
  inferometer predict chat --model-file h200-8b.yaml --capacity --limit 'ttft p99 < 500ms' --replicas 1,2,4 --price 3.5
      the highest request rate within the limit, and what a million output tokens would cost
  inferometer predict --model-file h200-8b.yaml --capacity --limit 'ttft p90 < 300ms' --token-budget 2048,8192
      the same for two settings of the engine
  inferometer predict --model-file h200-8b.yaml --rate 20 --confirm http://localhost:8000
      predict, then measure it and show both
"""


@click.command(epilog=EXAMPLES)
@plan_argument
@model_file_option("--model")
@work_flags
@click.option("--capacity", is_flag=True, help="Find the highest request rate within the limits.")
@capacity_flags("--capacity")
@click.option("--confirm", metavar="URL", help="Measure the same plan on this server afterwards, and show both.")
@json_option
@quiet_option
@store_option
def predict(
    plan_args: tuple[str, ...],
    model_file: Path | None,
    capacity: bool,
    replicas: str,
    max_sequences: str | None,
    token_budget: str | None,
    price: float | None,
    confirm: str | None,
    as_json: bool,
    quiet: bool,
    store: Path | None,
    **flags: Any,
) -> int:
    """Predict the run that PLAN would give on the server of a model: no server, no network, seconds of work."""
    from inferometer.simulator.fitting.server_model import read_model

    refuse_json_with(confirm, as_json)
    if model_file is None:
        raise click.UsageError("Missing option '--model-file': a model is made by inferometer fit")
    plan, server = plan_of(plan_args, quiet=quiet, **flags), read_model(model_file)
    if capacity:
        tried = variants(max_sequences, token_budget)
        rows = print_capacity(plan, server, numbers(replicas), tried, price, as_json=as_json, quiet=quiet)
        return confirmed(plan, server, rows[0], confirm, quiet, store)
    return _predict_one(plan, server, confirm, as_json, quiet, store)


def refuse_json_with(confirm: str | None, as_json: bool) -> None:
    if confirm is not None and as_json:
        raise click.UsageError("--json cannot be combined with --confirm: validate MODEL RUN --json has both")


def variants(max_sequences: str | None, token_budget: str | None) -> list[dict[str, int]]:
    """The settings of the engine to try, each with each; one of no change where there are none."""
    names = {"max_sequences": numbers(max_sequences), "max_batched_tokens": numbers(token_budget)}
    tried = {name: values for name, values in names.items() if values}
    return [dict(zip(tried, values, strict=True)) for values in product(*tried.values())]


def confirmed(
    plan: "Plan", server: "ServerModel", first: "Capacity", confirm: str | None, quiet: bool, store: Path | None
) -> int:
    """Measures a capacity on a real server, if one is given, and prints predicted and measured."""
    if confirm is None or first.rate is None:
        return 0
    from inferometer.conduct.predict import at_rate, with_settings

    share = first.rate / first.replicas
    changed = ", ".join(f"{name} {value:,}" for name, value in first.settings.items())
    needs = f"; the server needs {changed}" if changed else ""
    print_message("note", f"measuring the first row: {number_text(share)} req/s, the share of one replica{needs}")
    return _predict_one(at_rate(plan, share), with_settings(server, first.settings), confirm, False, quiet, store)


def print_capacity(
    plan: "Plan",
    server: "ServerModel",
    replicas: Sequence[int] = (1,),
    variants: Sequence[Mapping[str, int]] = ({},),
    price: float | None = None,
    *,
    as_json: bool,
    quiet: bool,
) -> "list[Capacity]":
    """The highest request rate within the plan's limits, found in virtual time and printed."""
    from inferometer.cli.printing import print_json
    from inferometer.conduct.predict import capacity
    from inferometer.show.prediction import print_capacities
    from inferometer.show.progress import ProgressLine

    line = ProgressLine()
    progress = None if quiet else line.message
    try:
        rows = capacity(plan, server, replicas=replicas, variants=variants, price_per_hour=price, progress=progress)
    finally:
        line.clear()
    if as_json:
        print_json({"model": server.name, "capacities": [asdict(row) for row in rows]})
    else:
        print_capacities(rows, [str(limit) for limit in plan.limits], console())
    return rows


def _predict_one(
    plan: "Plan", server: "ServerModel", confirm: str | None, as_json: bool, quiet: bool, store: Path | None
) -> int:
    from inferometer.cli.printing import print_json
    from inferometer.conduct.predict import predict as predict_run
    from inferometer.conduct.predict import prediction_document, validate
    from inferometer.record.run import document
    from inferometer.show.prediction import print_prediction, print_validation

    prediction = predict_run(plan, server, lambda text: print_message("note", text))
    if as_json and confirm is None:
        print_json({**document(prediction.run), "prediction": prediction_document(prediction)})
    elif not as_json:
        print_prediction(prediction, console())
    broken = any(limit.met is False for limit in prediction.run.summary.limits)
    if confirm is None:
        return 1 if broken else 0
    from inferometer.cli.running import conduct

    place = store_of(store)
    aimed = plan.model_copy(update={"target": plan.target.model_copy(update={"url": [confirm]}), "server": None})
    code = conduct(aimed, place, as_json=False, slowest=0, quiet=quiet)
    rows, notes = validate(server, [place.load("latest")])
    print_validation(rows, console())
    for note in notes:
        print_message("note", note)
    return code


def numbers(text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        listed = [int(part.replace("_", "")) for part in text.split(",") if part.strip()]
    except ValueError:
        listed = []
    if not listed or min(listed) < 1:
        raise click.UsageError(f"expected whole numbers from 1 on, such as 1,2,4, got {text}")
    return listed


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
      predicted and measured, with the intervals of the prediction
  inferometer validate h200-8b.yaml sweep/* --leave-one-out
      the error on each run when the model is fitted without it
  inferometer validate h200-8b.yaml latest --aiconfigurator meta-llama/Meta-Llama-3.1-8B
      with aiconfigurator's estimates, if that program is installed
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
    from inferometer.simulator.fitting.aiconfigurator import accelerator_named, shape_named

    if (gpu is None) != (shape is None):
        raise click.UsageError("--gpu and --shape go together")
    return None if gpu is None or shape is None else (accelerator_named(gpu), shape_named(shape))


@click.command(epilog=FIT_EXAMPLES)
@click.argument("runs", nargs=-1)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="File to write the model to.")
@click.option("--name", metavar="TEXT", help="Name of the model. [default: that of the file]")
@click.option(
    "--server-log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Log of the server's start, which has its limits.",
)
@click.option("--kv-tokens", type=click.IntRange(min=1024), metavar="N", help="Tokens in the KV cache.")
@click.option(
    "--max-sequences", type=click.IntRange(min=1), metavar="N", help="Maximum number of sequences in one step."
)
@click.option("--token-budget", type=click.IntRange(min=1), metavar="N", help="Maximum number of tokens in one step.")
@click.option("--gpu", metavar="GPU", help="With --shape: start from the data sheet of h100, h200, l4, ...")
@click.option("--shape", metavar="MODEL", help="With --gpu: shape of the model: llama-3.1-8b, qwen3-32b, ...")
@click.option("--gpus", type=click.IntRange(min=1), default=1, metavar="N", help="Without runs: number of GPUs.")
@click.option(
    "--leave-one-out", is_flag=True, help="State the errors on runs left out of the fit; takes one more fit per run."
)
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
    from inferometer.conduct.fit import fit as fit_model
    from inferometer.conduct.fit import preset
    from inferometer.show.prediction import print_model
    from inferometer.show.progress import ProgressLine
    from inferometer.simulator.fitting.server_model import model_document

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
        from inferometer.conduct.predict import compared_steps
        from inferometer.show.charts.engine import steps_chart

        _draw(steps_chart(compared_steps(model, loaded)), chart)
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
@click.option("--leave-one-out", is_flag=True, help="Fit again without each run, and show the error on that run.")
@click.option(
    "--aiconfigurator",
    metavar="MODEL",
    help="Name of the model on Hugging Face, for aiconfigurator's estimates, if the runs have another name. They are "
    "shown if aiconfigurator is installed.",
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
    """Compare the predictions of MODEL with measured RUNS.

    For each run: what was measured, what the model predicts for the same plan, and the 95% interval of that.
    """
    from inferometer.cli.printing import print_json
    from inferometer.conduct.fit import left_out, usable
    from inferometer.conduct.predict import validate as hold_against
    from inferometer.show.charts.engine import errors_chart
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


SIMULATE_EXAMPLES = """\b
Examples:
  inferometer simulate --rate 10 --duration 1h
      simulate an hour of load in seconds
  inferometer simulate --rate 10 --set server.args.max_sequences=64
      change the simulated engine; its settings are under server.args
  inferometer simulate --rate 10 --set "server={type: fleet, replicas: 4, router: prefix_aware}"
      a fleet of simulated engines behind a routing policy
  inferometer simulate --rate 10 --model-file h200-8b.yaml
      a server whose model was fitted to measured runs
  inferometer simulate --serve --port 8000
      a server for trying things out: http://127.0.0.1:8000/v1
"""


@click.command(epilog=SIMULATE_EXAMPLES)
@plan_argument
@work_flags
@click.option("--serve", is_flag=True, help="Run the simulator as a real server in the foreground until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --serve: address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="With --serve: port to listen on; 0 means any free port.",
)
@model_file_option("--model")
@click.option("--more", is_flag=True, help="Also show the plan, delivery and all notes.")
@slowest_option
@json_option
def simulate(
    plan_args: tuple[str, ...],
    serve: bool,
    host: str,
    port: int,
    model_file: Path | None,
    more: bool,
    slowest: int,
    as_json: bool,
    **flags: Any,
) -> int:
    """Run PLAN against the simulator in virtual time: no server, no network, an hour takes seconds.

    The summary is the same as that of a run; nothing is stored.
    """
    plan = plan_of(plan_args, **flags)
    if serve:
        if model_file is not None:
            raise click.UsageError("--model-file predicts in virtual time only: it cannot be combined with --serve")
        from inferometer.simulator.server import run_server
        from inferometer.simulator.virtual import settings_of

        run_server(settings_of(plan), host, port, on_ready=lambda server: _print_ready(host, server.port))
        return 0
    from inferometer.cli.printing import exit_code, print_run
    from inferometer.conduct import run as conductor

    if plan.target.url:
        print_message("note", f"{', '.join(plan.target.url)} is not contacted: this is a simulation")
    if model_file is None:
        run = conductor.simulate(plan, _note)
    else:
        from inferometer.conduct.predict import predict
        from inferometer.simulator.fitting.server_model import read_model

        prediction = predict(plan, read_model(model_file), _note, intervals=False)
        for text in prediction.notes:
            _note(text)
        run = prediction.run
    print_run(run, as_json=as_json, slowest=slowest, more=more)
    return exit_code(run, shown=not as_json)


def _note(text: str) -> None:
    print_message("note", text)


def _print_ready(host: str, port: int) -> None:
    print_message("note", f"the simulator listens on http://{host}:{port}; Ctrl-C stops it")
    print_message("hint", f"inferometer run --url http://{host}:{port}")
