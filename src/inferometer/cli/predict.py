"""`inferometer predict`: the run that a plan would give on a modelled server, and how much load it would take."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import print_message
from inferometer.cli.options import (
    json_option,
    model_file_option,
    plan_argument,
    plan_of,
    quiet_option,
    store_of,
    store_option,
    work_flags,
)

if TYPE_CHECKING:
    from inferometer.plan.model import Plan
    from inferometer.simulator.fitting.results import Capacity
    from inferometer.simulator.fitting.server_model import ServerModel

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
@model_file_option(required=True)
@work_flags
@click.option("--capacity", is_flag=True, help="Find the highest request rate within the limits.")
@click.option("--replicas", metavar="N,N", default="1", help="With --capacity: numbers of servers.")
@click.option("--max-sequences", metavar="N,N", help="With --capacity: settings of the engine to try.")
@click.option("--token-budget", metavar="N,N", help="With --capacity: settings of the engine to try.")
@click.option("--price", type=click.FloatRange(min=0), metavar="USD", help="With --capacity: of one replica per hour.")
@click.option("--confirm", metavar="URL", help="Measure the same plan on this server afterwards, and show both.")
@json_option
@quiet_option
@store_option
def predict(
    plan_args: tuple[str, ...],
    model_file: Path,
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

    if confirm is not None and as_json:
        raise click.UsageError("--json does not go with --confirm: validate MODEL RUN --json has both")
    plan, server = plan_of(plan_args, quiet=quiet, **flags), read_model(model_file)
    if capacity:
        from inferometer.conduct.predict import at_rate, with_settings

        names = {"max_sequences": _numbers(max_sequences), "max_batched_tokens": _numbers(token_budget)}
        tried = {name: values for name, values in names.items() if values}
        variants = [dict(zip(tried, values, strict=True)) for values in product(*tried.values())]
        rows = print_capacity(plan, server, _numbers(replicas), variants, price, as_json=as_json, quiet=quiet)
        first = rows[0]
        if confirm is None or first.rate is None:
            return 0
        share = first.rate / first.replicas
        changed = ", ".join(f"{name} {value:,}" for name, value in first.settings.items())
        needs = f"; the server needs {changed}" if changed else ""
        print_message("note", f"measuring the first row: {share:.3g} requests/s, the share of one replica{needs}")
        plan = at_rate(plan, share)
        server = with_settings(server, first.settings)
    return _predict_one(plan, server, confirm, as_json, quiet, store)


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
    from inferometer.show.console import console
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
    from inferometer.show.console import console
    from inferometer.show.prediction import print_prediction, print_validation

    prediction = predict_run(plan, server, lambda text: print_message("note", text))
    if as_json and confirm is None:
        print_json(document(prediction.run) | {"prediction": prediction_document(prediction)})
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


def _numbers(text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        numbers = [int(part.replace("_", "")) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise click.UsageError(f"expected whole numbers such as 1,2,4, got {text}")
    return numbers
