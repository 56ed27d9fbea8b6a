"""Finds the highest load that meets the limits."""

from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import INTERRUPTED, INVALID, LIMIT_FAILED, TERMINATED, notes_once, print_message
from inferometer.cli.work.plans import aimed, plan_of
from inferometer.cli.work.stores import store_of
from inferometer.conduct.search import Searched, own_start
from inferometer.conduct.search import search as find_most
from inferometer.errors import PlanError
from inferometer.judge.search import WITHIN, SearchBounds
from inferometer.plan.model import Plan
from inferometer.record.encoding import result_document
from inferometer.show.console import console, print_json
from inferometer.show.experiment import print_probe, print_progress, print_searched
from inferometer.vocabulary import number, percent, seconds


def search(
    plan_args: tuple[str, ...],
    over: Any,
    step: str | None,
    model_file: Path | None,
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
    bounded = {name: flags.pop(name) for name in ("within", "steps", "budget", "least", "most")}
    if model_file is None and (flags.get("model") or "").endswith((".yaml", ".yml")):  # not a possible model name
        model_file = Path(flags.pop("model"))
    plan = plan_of(plan_args, quiet=quiet, **flags)
    if model_file is not None:
        engine = {"replicas": replicas, "max_sequences": max_sequences, "token_budget": token_budget}
        return _predicted(plan, model_file, over, engine, price, confirm, as_json, quiet, store)
    if confirm or price is not None or max_sequences or token_budget or replicas != "1":
        raise click.UsageError(
            "--replicas, --max-sequences, --token-budget, --price and --confirm go with --model-file"
        )

    start = None if flags.get(over) is None else own_start(plan, over)
    bounds, step_s = _bounds(start, over, step, **bounded)
    searched = find_most(
        aimed(plan),
        bounds,
        axis=over,
        step_s=step_s,
        store=store_of(store),
        notes=None if quiet else notes_once(),
        on_probe=None if quiet else (lambda probe: print_probe(probe, over)),
        on_step=None if quiet else (lambda step: print_progress(step, over)),
    )
    _print(searched, over, as_json)
    return _exit_code(searched)


def _predicted(
    plan: Plan,
    model_file: Path,
    over: str,
    engine: dict[str, str | None],
    price: float | None,
    confirm: str | None,
    as_json: bool,
    quiet: bool,
    store: Path | None,
) -> int:
    """Searches in virtual time, with a model of the server; with `--confirm`, measures the answer on a real one."""
    from inferometer.cli.work import predict  # only with --model-file
    from inferometer.simulator.fitting.server_model import read_model

    replicas = predict.numbers(engine["replicas"])
    tried = predict.variants(engine["max_sequences"], engine["token_budget"])
    if over != "rate":
        raise click.UsageError("--model-file searches over the request rate only")
    predict.refuse_json_with(confirm, as_json)
    server = read_model(model_file)
    rows = predict.print_capacity(plan, server, replicas, tried, price, as_json=as_json, quiet=quiet)
    if all(row.rate is None for row in rows):
        return LIMIT_FAILED
    return predict.confirmed(plan, server, rows[0], confirm, quiet, store)


def _bounds(
    start: float | None,
    over: str,
    step: str | None,
    *,
    within: str | None,
    steps: int,
    budget: str | None,
    least: str | None,
    most: str | None,
) -> tuple[SearchBounds, float | None]:
    """The bounds of the search, and the duration of each step."""
    try:
        bounds = SearchBounds(
            start=start,
            least=number(least) if least else 0.0,
            most=number(most) if most else float("inf"),
            within=percent(within) if within else WITHIN,
            any_width=bool(budget) and not within,
            steps=steps,
            budget_s=seconds(budget) if budget else float("inf"),
            whole=over == "concurrency",
        )
        step_s = seconds(step) if step else None
    except ValueError as error:
        raise PlanError(str(error)) from None
    if wrong := _wrong(bounds, step_s, least is not None):
        raise PlanError(wrong)
    return bounds, step_s


def _wrong(bounds: SearchBounds, step_s: float | None, has_least: bool) -> list[str]:
    """Errors in the bounds of the search."""
    least, most = f"{bounds.least:g}", f"{bounds.most:g}"
    checks = {
        "--step must be greater than 0": step_s is None or step_s > 0,
        "--budget must be greater than 0": bounds.budget_s > 0,
        "--within must be greater than 0%": bounds.within > 0,
        f"--least must be greater than 0, got {least}": bounds.least > 0 or not has_least,
        f"--least must be below --most, got {least} and {most}": bounds.least < bounds.most,
    }
    return [text for text, right in checks.items() if not right]


def _print(searched: Searched, over: Any, as_json: bool) -> None:
    if as_json:
        print_json(result_document("search", searched.outcome))
    else:
        print_searched(searched.result, searched.steps, over, searched.experiment, console())


def _exit_code(searched: Searched) -> int:
    """0 for an answer, 1 if no load meets the limits, 4 if the search ended without an answer."""
    if searched.interrupted:
        print_message("warning", f"interrupted; {len(searched.steps)} complete steps are stored")
        return TERMINATED if searched.terminated else INTERRUPTED
    return {"none meets": LIMIT_FAILED, "unresolved": INVALID}.get(searched.result.outcome, 0)
