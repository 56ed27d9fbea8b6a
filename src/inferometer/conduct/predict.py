"""The conductors of models: fit one to measured runs, predict what a plan would give, compare the two, and find how
much load a number of servers would take within limits."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferometer import __version__
from inferometer.errors import PlanError
from inferometer.measure.values import Quantity, quantities
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.columns import Records
from inferometer.record.environment import Environment, MeasuredTarget
from inferometer.record.run import Run
from inferometer.simulator.fitting.calibration import (
    DEFAULT_JITTER,
    TYPICAL,
    WEIGHTS,
    Observed,
    calibrate,
    numbers_of,
    replayed,
    simulated_numbers,
    with_terms,
)
from inferometer.simulator.fitting.physics import attention_tokens, physical_limits, physical_terms
from inferometer.simulator.fitting.results import Capacity, Predicted, Prediction, RunSteps, Validated
from inferometer.simulator.fitting.server_model import (
    Z95,
    LoadRange,
    ServerModel,
    limited_settings,
    new_model,
    runs_of_file,
    terms_of_file,
)
from inferometer.simulator.fitting.steps import read_steps
from inferometer.simulator.presets import Accelerator, ModelShape
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.virtual import rehearse, simulated_run

Progress = Callable[[str], None]

ENOUGH = 3  # runs of different load; with fewer, much stays at what is typical
FAILED = 0.05  # share of requests that failed: such a run shows the failures, not the engine
PREDICTED = (
    *("ttft.mean", "ttft.p50", "ttft.p90", "ttft.p99", "tpot.mean", "tpot.p90"),
    *("e2e.mean", "e2e.p90", "e2e.p99", "request_rate", "output_rate"),
)
FEWEST_TOKENS = 1024  # of a KV cache that can serve anything
MOST_HALVINGS = 12
CLOSE = 0.03  # how near the capacity is told
FIRST_RATE = 1.0
MOST_RATE = 1e5


# -- fit -------------------------------------------------------------------------------------------------------------


def fit(
    runs: Sequence[Run],
    name: str,
    limits: Mapping[str, int],
    *,
    physics: tuple[Accelerator, ModelShape] | None = None,
    leave_one_out: bool = False,
    progress: Progress | None = None,
) -> ServerModel:
    """A model of the server that gave these runs. `limits` are those of its engine (`limits_in_log`)."""
    observed, notes = usable(runs)
    settings = _with_shape(limited_settings(limits), physics)
    prior = physical_terms(*physics) if physics else None

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(f"fitting: {done} of {total} simulations")

    fitted = calibrate(observed, settings, prior, tell)
    terms = {term: one.value for term, one in fitted.terms.items()}
    errors = fitted.errors
    if leave_one_out:
        errors = dict(left_out(observed, settings, prior, progress))
    unknown = [term for term, one in fitted.terms.items() if not one.identified]
    if unknown:
        notes.append(f"the runs do not tell {', '.join(unknown)}: these stay near their first estimates")
    if "cache_tokens" not in limits:
        notes.append("the size of the KV cache is not known: the default of the simulator is used")
    subject = runs[0].subject
    return new_model(
        name,
        "fitted",
        with_terms(settings, terms, fitted.launch_jitter),
        engine=subject.engine_text,
        model=subject.model,
        accelerators=list(subject.accelerators),
        fitted_by=__version__,
        runs=runs_of_file(observed, errors),
        errors_are="leave-one-out" if leave_one_out else "in sample",
        range=LoadRange.of([run.records for run in observed]),
        steps=fitted.steps,
        notes=notes,
        terms=terms_of_file(fitted.terms),
    )


def left_out(
    observed: Sequence[Observed],
    settings: SimulatorSettings,
    physics: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[str, dict[str, float]]]:
    """How far a model that never saw a run is off there, for every run."""
    if len(observed) < 2:
        raise PlanError("leave-one-out needs at least two runs, got 1")
    for number, run in enumerate(observed):
        if progress is not None:
            progress(f"leave-one-out: {number + 1} of {len(observed)}, {run.name}")
        others = [one for one in observed if one is not run]
        fitted = calibrate(others, settings, physics)
        terms = {term: one.value for term, one in fitted.terms.items()}
        yield run.name, errors_of(run, with_terms(settings, terms, fitted.launch_jitter))


def errors_of(run: Observed, settings: SimulatorSettings) -> dict[str, float]:
    """Predicted against measured: 0.05 is 5% too much."""
    measured, predicted = numbers_of(run.records), simulated_numbers(run.plan, settings)
    return {name: predicted[name] / measured[name] - 1 for name in WEIGHTS}


def usable(runs: Sequence[Run]) -> tuple[list[Observed], list[str]]:
    """The runs that a model can be fitted to, and what is to know of them; refused are those of several servers."""
    if not runs:
        raise PlanError("a model needs at least one run", "measure one: inferometer run --url http://localhost:8000")
    _refuse_mixed(runs)
    observed, notes = [], []
    for run in runs:
        records = run.records
        label = run.subject.name or run.id
        if (why := _unusable(run, records)) is not None:
            notes.append(f"{label} is left out: {why}")
            continue
        assert records is not None
        observed.append(Observed(label, plan_from(run.plan, (), run.id), records))
        steady = run.summary.window.steady
        if steady is not None and steady.status == "drifting":
            notes.append(f"{label} was not steady")
    if not observed:
        raise PlanError(["no run can be used", *notes], "a model is fitted to runs of our own, with their records")
    if len(observed) < ENOUGH:
        notes.append(f"fitted on {len(observed)} runs: {ENOUGH} of different load tell more")
    return observed, notes


def _refuse_mixed(runs: Sequence[Run]) -> None:
    about = {(run.subject.model, run.subject.engine_text, run.subject.accelerators) for run in runs}
    if len(about) > 1:
        listed = [" · ".join(filter(None, (model, engine, *gpus))) for model, engine, gpus in sorted(about, key=str)]
        raise PlanError(["these runs are of different servers:", *listed], "fit one model for each server")


def _unusable(run: Run, records: Records | None) -> str | None:
    """Why a run tells nothing of an engine's steps."""
    if run.kind != "serving" or records is None or run.source is not None:
        return "it has no records of ours, so no instants of tokens"
    if not len(records) or not records.read_counts().any():
        return "no token was received"
    failed = 1 - float(records.outcome.mask("ok").mean())
    if failed > FAILED:
        return f"{failed:.0%} of its requests failed"
    if len(set(records.replica.counts()) - {None}) > 1:
        return "several servers answered, and their steps cannot be told apart"
    return None


def _with_shape(settings: SimulatorSettings, physics: tuple[Accelerator, ModelShape] | None) -> SimulatorSettings:
    if physics is None or settings.pipeline is None:
        return settings
    ahead = settings.pipeline.model_copy(update={"attention_tokens": attention_tokens(physics[1])})
    return settings.model_copy(update={"pipeline": ahead})


def preset(accelerator: Accelerator, shape: ModelShape, count: int = 1) -> ServerModel:
    """A model from arithmetic alone, for a server that nobody has measured; `count` accelerators share the work without
    loss, which real links do not."""
    together = accelerator.times(count)
    limits = physical_limits(together, shape)
    if limits["cache_tokens"] < FEWEST_TOKENS:
        raise PlanError(
            f"{shape.name} does not fit on {count} x {accelerator.name}: no memory is left for the KV cache"
        )
    settings = _with_shape(limited_settings(limits), (together, shape))
    terms = TYPICAL | physical_terms(together, shape)
    return new_model(
        f"{count} x {accelerator.name}, {shape.name}",
        "physics",
        with_terms(settings, terms, DEFAULT_JITTER),
        engine="vLLM",
        model=shape.name,
        accelerators=[accelerator.name] * count,
        fitted_by=__version__,
        notes=["from the data sheet alone: fit a model to measured runs for numbers to act on"],
    )


# -- predict ---------------------------------------------------------------------------------------------------------


def predict(plan: Plan, model: ServerModel, note: Callable[[str], None] = lambda _: None) -> Prediction:
    """The run that the plan would give on the model's server."""
    settings = model.simulator()
    plan = replayed(plan, settings)
    run = simulated_run(plan, note)
    target = MeasuredTarget(model=model.model, server=model.predicts, time="virtual")
    environment = Environment(model=model.model, time="virtual", target=target)
    run = replace(run, id="predicted", environment=environment)
    shown = quantities(run.summary)
    numbers = [_predicted(shown[name], model) for name in PREDICTED if name in shown]
    return Prediction(model, run, numbers, [*_range_notes(model, run), *model.notes])


def _range_notes(model: ServerModel, run: Run) -> list[str]:
    if model.origin == "physics":
        return []
    records = run.records
    if model.range is None or records is None or not records.outcome.mask("ok").any():
        return []
    return [f"outside of the fitted range: {text}" for text in model.range.outside(LoadRange.of([records]))]


def _predicted(quantity: Quantity, model: ServerModel) -> Predicted:
    error = model.error_of(_error_name(quantity))
    if error is None:
        return Predicted(quantity, None, None, None)
    low, high = quantity.interval or (None, None)
    sampling = 0.0
    if low and high and quantity.value > 0:
        sampling = math.log(high / low) / (2 * Z95) if high > low > 0 else 0.0
    reach = Z95 * math.hypot(error, sampling)
    return Predicted(quantity, error, quantity.value * math.exp(-reach), quantity.value * math.exp(reach))


def _error_name(quantity: Quantity) -> str:
    """The error by which a number is judged: tails by those of p90."""
    if quantity.name in ("request_rate", "output_rate"):
        return "output_rate"
    if quantity.statistic in ("mean", None) or quantity.name == "tpot":
        return quantity.name
    if quantity.statistic == "p50":
        return "ttft_p50" if quantity.name == "ttft" else "e2e"
    return f"{quantity.name}_p90"


# -- validate --------------------------------------------------------------------------------------------------------


def validate(
    model: ServerModel, runs: Sequence[Run], progress: Progress | None = None
) -> tuple[list[Validated], list[str]]:
    """Predictions of measured runs, and what is to know of them."""
    observed, notes = usable(runs)
    settings = model.simulator()
    rows = []
    for number, run in enumerate(observed):
        if progress is not None:
            progress(f"predicting: {number + 1} of {len(observed)}, {run.name}")
        outside = model.range.outside(LoadRange.of([run.records])) if model.range else []
        rows.append(Validated(run.name, numbers_of(run.records), simulated_numbers(run.plan, settings), outside))
    return rows, [note for note in notes if "left out" in note]


def steps_beside(model: ServerModel, runs: Sequence[Run]) -> list[RunSteps]:
    """The steps of measured runs, and those of their plans on the model, read from the records in the same way."""
    settings = model.simulator()
    both = []
    for run in usable(runs)[0]:
        modelled, _ = rehearse(replayed(run.plan, settings), settings)
        gaps = [read_steps(one, settings.max_batched_tokens).gaps_s[1:] for one in (run.records, modelled)]
        both.append(RunSteps(run.name, *gaps))
    return both


# -- capacity --------------------------------------------------------------------------------------------------------


def capacity(
    plan: Plan,
    model: ServerModel,
    *,
    replicas: Sequence[int] = (1,),
    variants: Sequence[Mapping[str, int]] = ({},),
    price_per_hour: float | None = None,
    progress: Progress | None = None,
) -> list[Capacity]:
    """For every number of replicas and every variant of the engine's settings. Requests are spread at random over the
    replicas: each gets its share of the rate, and n replicas take n times the load of one."""
    if not plan.limits:
        raise PlanError("a capacity needs at least one limit", "add one: --limit 'ttft p99 < 500ms'")
    if plan.traffic:
        raise PlanError("the capacity of several traffic classes is not defined", "use a plan with one workload")
    rows = []
    for variant in variants:
        settings = model.simulator().model_copy(update=dict(variant))
        one = _capacity_of_one(plan, replace_settings(model, settings), progress, _label(variant))
        for count in replicas:
            rate = None if one.rate is None else one.rate * count
            output = None if one.output_rate is None else one.output_rate * count
            cost = None
            if price_per_hour is not None and output:
                cost = price_per_hour * count / (output * 3600) * 1e6
            broken = None if one.broken_at is None else one.broken_at * count
            rows.append(Capacity(count, dict(variant), rate, broken, output, cost))
    return rows


def replace_settings(model: ServerModel, settings: SimulatorSettings) -> ServerModel:
    return model.model_copy(update={"settings": settings.model_dump(mode="json", exclude_defaults=True)})


def _label(variant: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in variant.items()) or "as fitted"


@dataclass(slots=True, frozen=True)
class _RateOfOne:
    rate: float | None
    broken_at: float | None
    output_rate: float | None


def _capacity_of_one(plan: Plan, model: ServerModel, progress: Progress | None, label: str) -> _RateOfOne:
    """Doubling until a limit breaks, then halving the interval until it is narrow."""
    good, bad, output = 0.0, math.inf, None
    rate = plan.load.rate or FIRST_RATE
    for _ in range(4 * MOST_HALVINGS):
        if progress is not None:
            progress(f"{label}: {rate:.3g} requests/s")
        met, made = _holds(at_rate(plan, rate), model)
        if met:
            good, output = rate, made
        else:
            bad = rate
        if bad == math.inf:
            rate = good * 2
        elif not good:
            rate = bad / 2
        elif bad / good > 1 + CLOSE:
            rate = math.sqrt(good * bad)
        else:
            break
        if not FIRST_RATE / 1000 < rate < MOST_RATE:
            break
    return _RateOfOne(good or None, None if bad == math.inf else bad, output)


def at_rate(plan: Plan, rate: float) -> Plan:
    """The plan with another request rate; a closed loop becomes Poisson arrivals."""
    kind = plan.load.type if plan.load.rate is not None else "poisson"
    load = plan.load.model_copy(update={"rate": rate, "type": kind, "concurrency": None})
    return plan.model_copy(update={"load": load})


def _holds(plan: Plan, model: ServerModel) -> tuple[bool, float | None]:
    """Whether every limit is kept in the simulated run, and its output tokens/s. A queue that grows breaks them."""
    run = simulated_run(replayed(plan, model.simulator()))
    results = run.summary.limits
    if any(result.met is False for result in results):
        return False, None
    growing = any(doubt.code == "unbounded_queue" for doubt in run.doubts)
    output = run.summary.rates.get("output_rate")
    return not growing and all(result.met is not False for result in results), output.value if output else None


def prediction_document(prediction: Prediction) -> dict[str, Any]:
    """What `predict --json` prints beside the run."""
    return {
        "model": prediction.model.name,
        "origin": prediction.model.origin,
        "errors_are": prediction.model.errors_are,
        "notes": prediction.notes,
        "numbers": [
            {"name": one.quantity.key, "unit": one.quantity.unit, "value": one.quantity.value}
            | {"low": one.low, "high": one.high, "model_error": one.model_error}
            for one in prediction.numbers
        ],
    }
