"""Predicts a run or the highest load with a model of a server, and measures it for comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import print_message
from inferometer.cli.work.plans import plan_of
from inferometer.conduct.predict import at_rate, capacity, prediction_document, validate, with_settings
from inferometer.conduct.predict import predict as predict_run
from inferometer.plan.model import Plan
from inferometer.record.run import document
from inferometer.show.console import console, print_json
from inferometer.show.prediction import print_capacities, print_prediction, print_validation
from inferometer.show.progress import ProgressLine
from inferometer.simulator.fitting.server_model import Capacity, ServerModel, read_model
from inferometer.vocabulary import number_text


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
    refuse_json_with(confirm, as_json)
    if model_file is None:
        raise click.UsageError("Missing option '--model-file': make a model with inferometer fit")
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
    """All combinations of the engine settings to try; an empty one if there are none."""
    names = {"max_sequences": numbers(max_sequences), "max_batched_tokens": numbers(token_budget)}
    tried = {name: values for name, values in names.items() if values}
    return [dict(zip(tried, values, strict=True)) for values in product(*tried.values())]


def confirmed(
    plan: Plan, server: ServerModel, first: Capacity, confirm: str | None, quiet: bool, store: Path | None
) -> int:
    """Measures the predicted capacity on a real server, if one is given, and prints both."""
    if confirm is None or first.rate is None:
        return 0

    share = first.rate / first.replicas
    changed = ", ".join(f"{name} {value:,}" for name, value in first.settings.items())
    needs = f"; the server must be started with {changed}" if changed else ""
    print_message("note", f"measuring {number_text(share)} req/s: the share of one replica in the first row{needs}")
    return _predict_one(at_rate(plan, share), with_settings(server, first.settings), confirm, False, quiet, store)


def print_capacity(
    plan: Plan,
    server: ServerModel,
    replicas: Sequence[int] = (1,),
    variants: Sequence[Mapping[str, int]] = ({},),
    price: float | None = None,
    *,
    as_json: bool,
    quiet: bool,
) -> list[Capacity]:
    """The highest request rate within the plan's limits, found in virtual time and printed."""
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
    plan: Plan, server: ServerModel, confirm: str | None, as_json: bool, quiet: bool, store: Path | None
) -> int:
    prediction = predict_run(plan, server, lambda text: print_message("note", text))
    if as_json and confirm is None:
        print_json({**document(prediction.run), "prediction": prediction_document(prediction)})
    elif not as_json:
        print_prediction(prediction, console())
    broken = any(limit.met is False for limit in prediction.run.summary.limits)
    if confirm is None:
        return 1 if broken else 0
    from inferometer.cli.work.running import conduct  # only with --confirm
    from inferometer.cli.work.stores import store_of

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
