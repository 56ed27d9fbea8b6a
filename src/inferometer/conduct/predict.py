"""Uses models: predicts a plan, compares predictions with measured runs, and computes how much load a number of servers
can take within limits. `conduct/fit.py` creates the models."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inferometer.conduct.fit import Notify, usable
from inferometer.documents.document import JsonObject
from inferometer.errors import PlanError
from inferometer.measure.values import Quantity, quantities
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.environment import Environment, MeasuredTarget
from inferometer.record.run import Run
from inferometer.simulator.fitting.aiconfigurator import Deployment, NoEstimate, asking, estimates
from inferometer.simulator.fitting.calibration import (
    Observed,
    at_speed,
    numbers_of,
    replayed,
    simulated_numbers,
)
from inferometer.simulator.fitting.regression import read_steps
from inferometer.simulator.fitting.server_model import (
    Capacity,
    LoadRange,
    Predicted,
    Prediction,
    RunSteps,
    ServerModel,
    Validated,
)
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.virtual import rehearse, simulated_run
from inferometer.vocabulary import number_text, percent_text

OUTSIDE_FACTOR = 2.0  # factor on errors outside the fitted range (bench/intervals.py: coverage with less)
AMPLIFIED = 2.0  # a latency that grows by this factor more than the server slows down is close to saturation
FEWEST_TO_GROW = 40  # requests required to see a queue grow
FIRST = 5  # requests that meet a server without a queue, and show how long an answer takes then
STAYS = 3  # this many of them must fit into half of the load
LAGS = 0.1  # of the load's length
GROWS = 0.2  # this share of the second half's arrivals is not started, or not answered, by its end
PREDICTED = (
    *("ttft.mean", "ttft.p50", "ttft.p90", "ttft.p99", "tpot.mean", "tpot.p90"),
    *("e2e.mean", "e2e.p90", "e2e.p99", "request_rate", "output_rate"),
)
KEYS = {  # of the measures in a validation
    "ttft": "ttft.mean",
    "ttft_p50": "ttft.p50",
    "ttft_p90": "ttft.p90",
    "tpot": "tpot.mean",
    "e2e": "e2e.mean",
    "e2e_p90": "e2e.p90",
    "output_rate": "output_rate",
}
MOST_HALVINGS = 12
CLOSE = 0.03  # accuracy of the reported capacity
FIRST_RATE = 1.0
MOST_RATE = 1e5
STEP_S = 60.0  # how long a rate is simulated if the plan has no duration
STEP_STAYS = 20  # or this many times the duration of a request: in less time, an overload's queue is a small part
LONGEST_STEP_S = 600.0


# -- predict ---------------------------------------------------------------------------------------------------------


def predict(
    plan: Plan, model: ServerModel, note: Callable[[str], None] = lambda _: None, *, intervals: bool = True
) -> Prediction:
    """The run that the plan would give on the model's server; intervals need two more simulations."""
    settings = model.simulator()
    plan = replayed(plan, settings)
    run = simulated_run(plan, note)
    target = MeasuredTarget(model=model.model, server=model.predicts, time="virtual")
    environment = Environment(model=model.model, time="virtual", target=target)
    run = replace(run, id="predicted", environment=environment)
    shown = {name: one for name, one in quantities(run.summary).items() if name in PREDICTED}
    outside = _range_notes(model, run)
    notes = [*_overload_notes(plan, run), *outside, *model.notes]
    if not intervals or (speed := speed_error(model, bool(outside))) is None:
        numbers = [Predicted(shown[name], None, None, None) for name in PREDICTED if name in shown]
        return Prediction(model, run, numbers, notes)
    slow, fast = (_at_speed(plan, settings, factor) for factor in (1 / (1 + speed), 1 + speed))
    numbers = [
        _predicted(shown[name], model, (fast.get(name), slow.get(name)), bool(outside))
        for name in PREDICTED
        if name in shown
    ]
    if (text := _saturation_note(shown, slow, speed)) is not None:
        notes.insert(0, text)
    return Prediction(model, run, numbers, notes)


def speed_error(model: ServerModel, outside: bool) -> float | None:
    """How much slower or faster than the model the server may be: 95% of its relative errors are within this bound.
    Outside the fitted range, errors count double."""
    error = model.error_of("e2e")
    return None if error is None else (OUTSIDE_FACTOR if outside else 1.0) * model.reach * error


def _at_speed(plan: Plan, settings: SimulatorSettings, factor: float) -> dict[str, float]:
    faster = at_speed(settings, factor)
    run = simulated_run(replayed(plan, faster))
    return {name: one.value for name, one in quantities(run.summary).items() if name in PREDICTED}


def _saturation_note(shown: Mapping[str, Quantity], slow: Mapping[str, float], speed: float) -> str | None:
    """A note on the effect of a small error of the model, if the effect is large."""
    name = "e2e.mean"
    if name not in shown or name not in slow:
        return None
    times = slow[name] / shown[name].value
    if math.log(times) <= AMPLIFIED * math.log1p(speed):
        return None
    return (
        f"close to saturation: if the server is {percent_text(round(speed, 2))} slower, as the errors allow, "
        f"E2E is {number_text(times)} times as long; measure it (--confirm URL)"
    )


def _overload_notes(plan: Plan, run: Run) -> list[str]:
    """Notes if more was sent than the modelled server can handle: latencies are then those of a queue that grows during
    the whole run."""
    if not _overloaded(plan, run):
        return []
    served = quantities(run.summary).get("request_rate")
    takes = f": it answers {number_text(served.value)} req/s" if served else ""
    return [
        f"over saturation{takes}, the queue grows for as long as the load lasts, and latencies with it; predictions "
        "are least certain here: measure it (--confirm URL)"
    ]


def _overloaded(plan: Plan, run: Run) -> bool:
    """Whether a queue grows: by the verdict, which must be certain after one run; or because a large share of the
    arrivals in the second half of the load was not started, or not answered, within it."""
    if any(doubt.code == "unbounded_queue" for doubt in run.doubts):
        return True
    records = run.records
    open_loop = all(traffic.load.open_loop for traffic in plan.classes)
    return open_loop and records is not None and len(records) >= FEWEST_TO_GROW and _grows(records)


def _grows(records: Records) -> bool:
    sent, ended = records.sent_at, records.ended_at
    last, load = sent.max(), sent.max() - sent.min()
    half = load // 2
    if not half:
        return False  # all at once: there is no lasting load
    came = int((sent > last - half).sum())
    answered = records.read_counts() > 0
    begun = np.where(answered, records.read_at[np.where(answered, records.read_offsets[:-1], 0)], ended)
    if (begun > last).sum() > GROWS * came:
        return True
    alone = np.median((ended - sent)[np.argsort(sent, kind="stable")[:FIRST]])
    lag = ended.max() - last - alone  # time the server spends on work it could not do in time
    more = came - int(((ended > last - half) & (ended <= last)).sum())
    return bool(half >= STAYS * alone and lag > LAGS * load and more > GROWS * came)


def _range_notes(model: ServerModel, run: Run) -> list[str]:
    if model.origin == "physics":
        return []
    records = run.records
    if model.range is None or records is None or not records.outcome.mask("ok").any():
        return []
    return [f"outside of the fitted range: {text}" for text in model.range.outside(LoadRange.of([records]))]


def _predicted(
    quantity: Quantity, model: ServerModel, at_speeds: tuple[float | None, float | None], outside: bool
) -> Predicted:
    """Predictions with their intervals: the model's error in this measure, or the effect of its speed error here,
    whichever is larger, and the sampling error."""
    error = model.error_of(_error_name(quantity))
    if error is None or quantity.value <= 0:
        return Predicted(quantity, error, None, None)
    error *= OUTSIDE_FACTOR if outside else 1.0
    low, high = quantity.interval or (None, None)
    sampling = math.log(high / low) / 2 if low and high and high > low > 0 else 0.0
    reaches = []
    for value in at_speeds:
        if value is None:  # a server so much slower answers nothing in time
            return Predicted(quantity, error, None, None)
        moved = abs(math.log(value / quantity.value)) if value > 0 else 0.0
        reaches.append(max(model.reach * error, moved))
    down, up = reaches if quantity.direction == "lower" else reversed(reaches)
    return Predicted(
        quantity,
        error,
        quantity.value * math.exp(-math.hypot(down, sampling)),
        quantity.value * math.exp(math.hypot(up, sampling)),
    )


def _error_name(quantity: Quantity) -> str:
    """The error by which a number is judged: that of p90 for tails."""
    if quantity.name in ("request_rate", "output_rate"):
        return "output_rate"
    if quantity.statistic in ("mean", None) or quantity.name == "tpot":
        return quantity.name
    if quantity.statistic == "p50":
        return "ttft_p50" if quantity.name == "ttft" else "e2e"
    return f"{quantity.name}_p90"


# -- validate --------------------------------------------------------------------------------------------------------


def validate(
    model: ServerModel,
    runs: Sequence[Run],
    progress: Notify | None = None,
    *,
    aiconfigurator: str | None = None,
    known_as: str | None = None,
) -> tuple[list[Validated], list[str]]:
    """Predictions for measured runs, and notes on them. `aiconfigurator` is the command of that program, whose
    estimates are compared with ours; `known_as` is the model's name there."""
    observed, notes = usable(runs, imported=True)
    notes = [note for note in notes if " is left out: " in note or " was measured by " in note]
    if (text := _another_server(model, runs[0])) is not None:
        notes.insert(0, text)
    settings = model.simulator()
    rows = []
    for number, run in enumerate(observed):
        if progress is not None:
            progress(f"predicting: {number + 1} of {len(observed)}, {run.name}")
        rows.append(_validated(model, run, settings))
    if aiconfigurator is not None:
        subject = runs[0].subject
        try:
            engine = subject.engine_text if subject.engine_version else model.engine or subject.engine_text
            accelerators = tuple(subject.accelerators) or tuple(model.accelerators)
            deployment = Deployment.of(known_as or subject.model, engine, accelerators)
            ask = asking(deployment, aiconfigurator)
            for number, run in enumerate(observed):
                if progress is not None:
                    progress(f"asking aiconfigurator: {number + 1} of {len(observed)}, {run.name}")
                rows[number] = replace(rows[number], aiconfigurator=estimates(run, ask))
        except NoEstimate as error:
            notes.append(f"aiconfigurator is not in the table: {error}")
    return rows, notes


def _validated(model: ServerModel, run: Observed, settings: SimulatorSettings) -> Validated:
    predicted = simulated_numbers(run.plan, settings)
    by_key = {one.quantity.key: one for one in predict(run.plan, model).numbers}
    intervals = {}
    for name, key in KEYS.items():
        one = by_key.get(key)
        if one is not None and one.low is not None and one.high is not None:
            low, high = one.low / one.quantity.value, one.high / one.quantity.value
            intervals[name] = (predicted[name] * low, predicted[name] * high)
    outside = model.range.outside(LoadRange.of([run.records])) if model.range else []
    return Validated(run.name, numbers_of(run.records), predicted, outside, intervals)


def _another_server(model: ServerModel, run: Run) -> str | None:
    """A model is valid only for its own server; a difference is reported if both are known."""
    about = [(model.model, run.subject.model), (model.engine, run.subject.engine_text)]
    if model.origin == "physics":
        return None
    differ = [f"{theirs}, the model of {ours}" for ours, theirs in about if ours and theirs and ours != theirs]
    return f"the runs are of another server: {'; '.join(differ)}" if differ else None


def compared_steps(model: ServerModel, runs: Sequence[Run]) -> list[RunSteps]:
    """The steps of measured runs, and those of their plans on the model, derived from the records in the same way."""
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
    progress: Notify | None = None,
) -> list[Capacity]:
    """The capacity for every number of replicas and every variant of the engine's settings. Requests are distributed at
    random over the replicas: each gets an equal share of the rate, so n replicas handle n times the load of one."""
    if not plan.limits:
        raise PlanError("a capacity needs at least one limit", "add one: --limit 'ttft p99 < 500ms'")
    if plan.traffic:
        raise PlanError("the capacity of several traffic classes is not defined", "use a plan with one workload")
    rows = []
    for variant in variants:
        settings = model.simulator().model_copy(update=dict(variant))
        one = _capacity_of_one(plan, replace_settings(model, settings), progress, _label(variant))
        sure = None
        if one.rate is not None and (speed := speed_error(model, bool(variant or one.outside))) is not None:
            slower = replace_settings(model, at_speed(settings, 1 / (1 + speed)))
            aimed = at_rate(plan, one.rate / (1 + speed), one.step_s)
            sure = _capacity_of_one(
                aimed, slower, progress, f"{_label(variant)}, {percent_text(round(speed, 2))} slower"
            ).rate
        rows += [_of_replicas(one, sure, count, variant, price_per_hour) for count in replicas]
    return rows


def _of_replicas(
    one: "_RateOfOne", sure: float | None, count: int, variant: Mapping[str, int], price_per_hour: float | None
) -> Capacity:
    """Requests are distributed at random: each replica gets its share of the rate."""

    def times(value: float | None) -> float | None:
        return None if value is None else value * count

    cost = None
    if price_per_hour is not None and one.output_rate:
        cost = price_per_hour / (one.output_rate * 3600) * 1e6
    return Capacity(
        count,
        dict(variant),
        times(one.rate),
        times(sure),
        times(one.broken_at),
        times(one.output_rate),
        cost,
        one.outside,
    )


def with_settings(model: ServerModel, variant: Mapping[str, int]) -> ServerModel:
    """The same server with other engine settings."""
    return replace_settings(model, model.simulator().model_copy(update=dict(variant)))


def replace_settings(model: ServerModel, settings: SimulatorSettings) -> ServerModel:
    return model.model_copy(update={"settings": settings.model_dump(mode="json", exclude_defaults=True)})


def _label(variant: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in variant.items()) or "as fitted"


@dataclass(slots=True, frozen=True)
class _RateOfOne:
    rate: float | None
    broken_at: float | None
    output_rate: float | None
    outside: list[str]
    step_s: float  # how long each rate was simulated


def _capacity_of_one(plan: Plan, model: ServerModel, progress: Notify | None, label: str) -> _RateOfOne:
    """Doubles the rate until a limit breaks, then bisects until the interval is narrow."""
    good, bad, output, outside = 0.0, math.inf, None, list[str]()
    rate, step_s = plan.load.rate or FIRST_RATE, STEP_S
    for _ in range(4 * MOST_HALVINGS):
        if progress is not None:
            progress(f"{label}: {number_text(rate)} req/s")
        run = simulated_run(replayed(at_rate(plan, rate, step_s), model.simulator()))
        if _holds(plan, run):
            needed_s = min(STEP_STAYS * _stay_s(run), LONGEST_STEP_S)
            if plan.stop.duration is None and needed_s > step_s:
                step_s = needed_s
                continue
            made = run.summary.rates.get("output_rate")
            good, output, outside = rate, made.value if made else None, _range_notes(model, run)
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
    return _RateOfOne(good or None, None if bad == math.inf else bad, output, outside, step_s)


def at_rate(plan: Plan, rate: float, step_s: float = STEP_S) -> Plan:
    """The plan with another request rate; a closed loop becomes Poisson arrivals. Without a duration it lasts `step_s`:
    a fixed number of requests ends sooner the higher the rate, before the queue of an overload can grow."""
    kind = plan.load.type if plan.load.rate is not None else "poisson"
    load = plan.load.model_copy(update={"rate": rate, "type": kind, "concurrency": None})
    if plan.stop.duration is not None:
        return plan.model_copy(update={"load": load})
    stop = plan.stop.model_copy(update={"duration": step_s, "requests": None, "minutes": None, "sessions": None})
    return plan.model_copy(update={"load": load, "stop": stop})


def _stay_s(run: Run) -> float:
    """The average duration of a request."""
    stay = quantities(run.summary).get("e2e.mean")
    return stay.value if stay is not None else 0.0


def _holds(plan: Plan, run: Run) -> bool:
    """Whether every limit is met in the simulated run. A growing queue breaks them."""
    for limit, result in zip(plan.limits, run.summary.limits, strict=True):
        met = result.met
        if met is None and result.value is not None:
            met = limit.met_by(result.value)  # undecided because of sampling: the simulated value decides
        if not met:
            return False
    return not _overloaded(plan, run)


def prediction_document(prediction: Prediction) -> JsonObject:
    """What `predict --json` prints in addition to the run."""
    return {
        "model": prediction.model.name,
        "origin": prediction.model.origin,
        "errors_are": prediction.model.errors_are,
        "notes": prediction.notes,
        "numbers": [
            {
                "name": number.quantity.key,
                "unit": number.quantity.unit,
                "value": number.quantity.value,
                "low": number.low,
                "high": number.high,
                "model_error": number.model_error,
            }
            for number in prediction.numbers
        ],
    }
