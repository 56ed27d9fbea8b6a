"""Fits all terms of a server's model. Terms that steps show start at their estimates, others (the frontend) at typical
values; then the runs are simulated and the terms are adjusted until latencies and throughput agree. An engine may
launch steps ahead or one after the other: both are fitted, and the better fit is the model.

It is a least-squares fit in the logarithm of the terms, with the first estimates as prior: terms that the runs do not
determine stay at their prior, and are named. Gauss-Newton is implemented in thirty lines, without scipy."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from inferometer.errors import InferometerError
from inferometer.plan.model import Plan, Server
from inferometer.record.columns import Records
from inferometer.simulator.fitting.regression import (
    DECODE_TERMS,
    Floats,
    Ints,
    Steps,
    compute_term,
    decode_terms,
    launch_terms,
    prefill_terms,
    read_steps,
)
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.virtual import rehearse

TermSource = Literal["steps", "physics", "typical"]

ITERATIONS = 3
STEP = 0.05  # relative change of a term for derivatives: the effect of smaller changes is lost in the jumps of queues
FARTHEST = 1.0  # maximum change of a term per iteration, in prior spreads
IDENTIFIED = 0.7  # of the prior spread: a term with a larger spread after the fit was not identified
KNOWN = 0.1  # relative error: a decode term that the steps determine this well is fixed
TYPICAL = {  # of vLLM with its frontend in Python, which launches steps ahead; seconds
    "base": 5e-3,
    "decode_sequence": 10e-6,
    "context_token": 30e-9,
    "compute_token": 25e-6,
    "throttle_token": 4e-6,
    "launch_graph": 10e-3,
    "launch_eager": 25e-3,
    "launch_sequence": 20e-6,
    "tail": 2e-3,
    "frontend": 3e-3,
    "frontend_request": 3e-3,
    "frontend_token": 2.5e-6,
    "frontend_output": 75e-6,
}
TYPICAL_IN_TURN = {  # of an engine that schedules a step after the previous one has ended
    "base": 5e-3,
    "decode_sequence": 10e-6,
    "context_token": 30e-9,
    "prefill_token": 25e-6,
    "mixed_sequence": 10e-6,
    "frontend": 4e-3,
}
SPREAD: dict[TermSource, dict[str, float]] = {  # prior spread of the logarithm, by source of the first estimate
    "steps": {"compute_token": 0.07, "prefill_token": 0.1, "launch_graph": 0.1, "launch_eager": 0.1}
    | {"mixed_sequence": 0.5},
    "physics": {"base": 0.15, "context_token": 0.2, "compute_token": 0.2, "launch_graph": 0.4, "launch_eager": 0.4}
    | {"prefill_token": 0.2},
    "typical": {"base": 1.0, "decode_sequence": 0.7, "context_token": 0.7, "compute_token": 1.0}
    | {"throttle_token": 0.7, "prefill_token": 1.0, "mixed_sequence": 1.0}
    | {"launch_graph": 0.5, "launch_eager": 0.5, "launch_sequence": 0.7, "tail": 0.4, "frontend": 0.3}
    | {"frontend_request": 0.3, "frontend_token": 0.3, "frontend_output": 0.2},
}
WEIGHTS = {  # relative errors that count as one: means matter more than tails, which are noisy
    "ttft": 0.04,
    "tpot": 0.03,
    "e2e": 0.03,
    "output_rate": 0.03,
    "ttft_p50": 0.08,
    "ttft_p90": 0.10,
    "e2e_p90": 0.08,
}
CLIP = 2.0
HOPELESS = 4.0  # times the misfit of the other structure after one iteration: such a fit is given up
MERGED = 1.03  # tokens per read / tokens per event above which the frontend could not keep up
SATURATED = 0.25  # weight of such a run: near saturation a small error of a term becomes a large error of a latency
DEFAULT_JITTER = 0.2
SLOWER = 1.05  # factor by which the server's speed is changed, to find its effect on a latency


@dataclass(slots=True, frozen=True)
class Observed:
    """A measured run: its plan and its results."""

    name: str
    plan: Plan
    records: Records


@dataclass(slots=True, frozen=True)
class Term:
    """One term of the model in seconds; `spread` is the standard error of its logarithm."""

    value: float
    spread: float
    source: TermSource
    identified: bool = True


@dataclass(slots=True, frozen=True)
class Calibrated:
    terms: dict[str, Term]
    settings: SimulatorSettings  # with these terms
    errors: dict[str, dict[str, float]]  # simulated against measured, by run and measure: 0.05 is 5% too much
    amplified: dict[str, float]  # by run (`amplification`)
    steps: int


def numbers_of(records: Records) -> dict[str, float]:
    """The numbers by which a model is judged, over all answered requests: milliseconds, and output tokens/s."""
    good = np.flatnonzero(records.outcome.mask("ok") & (records.read_counts() > 0))
    if not len(good):
        raise InferometerError("no request was answered")
    some = records.take(good)
    first_reads, last_reads = some.read_offsets[:-1], some.read_offsets[1:] - 1
    first, last = some.read_at[first_reads], some.read_at[last_reads]
    tokens = np.add.reduceat(some.read_tokens, first_reads)
    ttft, e2e = (first - some.sent_at) / 1e6, (last - some.sent_at) / 1e6
    later = tokens - some.read_tokens[first_reads]
    tpot = ((last - first) / 1e6)[later > 0] / later[later > 0]
    return {
        "ttft": float(ttft.mean()),
        "tpot": float(tpot.mean()) if len(tpot) else float("nan"),
        "e2e": float(e2e.mean()),
        "output_rate": float(tokens.sum() / ((last.max() - some.sent_at.min()) / 1e9)),
        "ttft_p50": float(np.median(ttft)),
        "ttft_p90": float(np.quantile(ttft, 0.9)),
        "e2e_p90": float(np.quantile(e2e, 0.9)),
    }


def simulated_numbers(plan: Plan, settings: SimulatorSettings) -> dict[str, float]:
    """The same numbers for the plan simulated with a model."""
    records, _ = rehearse(replayed(plan, settings), settings)
    return numbers_of(records)


def replayed(plan: Plan, settings: SimulatorSettings) -> Plan:
    """The plan for the simulator, whose tokens are words, so prompts have the planned length without the model's
    tokenizer."""
    traffic = [
        one.model_copy(update={"workload": one.workload.model_copy(update={"tokenizer": None})})
        if getattr(one.workload, "tokenizer", None)
        else one
        for one in plan.traffic
    ]
    workload = plan.workload
    if getattr(workload, "tokenizer", None):
        workload = workload.model_copy(update={"tokenizer": None})
    target = plan.target.model_copy(update={"url": [], "model": None})
    server = Server(type="simulator", args=settings.model_dump(mode="json", exclude_defaults=True))
    return plan.model_copy(update={"target": target, "server": server, "workload": workload, "traffic": traffic})


def with_terms(settings: SimulatorSettings, terms: Mapping[str, float], launch_jitter: float) -> SimulatorSettings:
    """The engine with these terms; without a pipeline it runs one step after the other."""
    names = DECODE_TERMS if settings.pipeline is not None else [name for name in terms if name != "frontend"]
    in_steps = settings.step_time.model_copy(update={name: terms[name] for name in names})
    update = {"frontend": terms["frontend"], "step_time": in_steps}
    if settings.pipeline is not None:
        ahead = {name: value for name, value in terms.items() if name not in DECODE_TERMS and name != "frontend"}
        update["pipeline"] = settings.pipeline.model_copy(update=ahead | {"launch_jitter": launch_jitter})
    return settings.model_copy(update=update)


def first_estimates(
    runs: Sequence[Steps], settings: SimulatorSettings, physics: Mapping[str, float]
) -> tuple[dict[str, Term], float]:
    """First estimates of the terms: from steps if possible, else from arithmetic, else typical; and launch jitter."""
    typical = TYPICAL_IN_TURN if settings.pipeline is None else TYPICAL
    priors = {name: _first(name, {}, physics, typical) for name in typical}
    known = decode_terms(runs, {name: (term.value, term.spread) for name, term in priors.items()})
    decode = {name: value for name, (value, _) in known.items()}
    shown: dict[str, float] = {}
    if decode and settings.pipeline is None:
        shown = prefill_terms(runs, decode)
    elif decode and settings.pipeline is not None:
        shown = launch_terms(runs, decode, settings.pipeline.graph_tokens)
        launch_s = shown.get("launch_eager") or physics.get("launch_eager") or TYPICAL["launch_eager"]
        shown |= compute_term(runs, decode, launch_s, settings.pipeline.attention_tokens)
    jitter = shown.pop("launch_jitter", DEFAULT_JITTER)
    terms = {name: _first(name, shown, physics, typical) for name in typical}
    for name, (value, spread) in known.items():
        identified = spread < IDENTIFIED * priors[name].spread
        terms[name] = Term(value, spread, "steps" if identified else priors[name].source, identified)
    return terms, jitter


def _first(name: str, shown: Mapping[str, float], physics: Mapping[str, float], typical: Mapping[str, float]) -> Term:
    choices: tuple[tuple[TermSource, Mapping[str, float]], ...] = (("steps", shown), ("physics", physics))
    for source, values in choices:
        if values.get(name, 0.0) > 0:
            return Term(values[name], SPREAD[source][name], source)
    return Term(typical[name], SPREAD["typical"][name], "typical")


def calibrate(
    observed: Sequence[Observed],
    settings: SimulatorSettings,
    physics: Mapping[str, float] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Calibrated:
    """The terms of the server of these runs, for the structure that fits better; `settings` has its
    limits."""
    if (size := tokens_per_event(observed)) > 1:
        chunks = settings.faults.model_copy(update={"shares": {f"tokens-per-chunk={size}": 1.0}})
        settings = settings.model_copy(update={"faults": chunks})
    steps = [read_steps(run.records, settings.max_batched_tokens) for run in observed]
    measured = [numbers_of(run.records) for run in observed]
    in_turn = settings.model_copy(update={"pipeline": None})
    priors = dict(physics or {})
    fits = [
        _Fit(observed, measured, steps, settings, priors),
        _Fit(observed, measured, steps, in_turn, priors | _of_prompts(priors)),
    ]
    total = sum(fit.simulations for fit in fits)
    done = 0
    best: tuple[float, dict[str, Term], SimulatorSettings] | None = None

    def report() -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(min(done, total), total)

    for fit in fits:
        solved = fit.solved(report, HOPELESS * best[0] if best else math.inf)
        best = solved if best is None or solved[0] < best[0] else best
    assert best is not None
    _, terms, final = best
    errors = {
        run.name: {name: number / one[name] - 1 for name, number in simulated_numbers(run.plan, final).items()}
        for run, one in zip(observed, measured, strict=True)
    }
    amplified = {run.name: amplification(run.plan, final) for run in observed}
    return Calibrated(terms, final, errors, amplified, sum(len(one) for one in steps))


def _of_prompts(physics: Mapping[str, float]) -> dict[str, float]:
    return {"prefill_token": physics["compute_token"]} if "compute_token" in physics else {}


def tokens_per_event(observed: Sequence[Observed]) -> int:
    """The number of tokens per event: that of most reads, without the last one of each answer."""
    counts = np.bincount(np.concatenate([_full_reads(run.records) for run in observed] or [np.ones(1, np.int64)]))
    return max(1, int(counts.argmax()))


def _full_reads(records: Records) -> Ints:
    inner = np.ones(len(records.read_tokens), bool)
    inner[records.read_offsets[1:][records.read_counts() > 0] - 1] = False
    return records.read_tokens[inner]


class _Fit:
    """The fit of one structure's terms, from their first estimates to the best agreement with the runs."""

    def __init__(
        self,
        observed: Sequence[Observed],
        measured: Sequence[Mapping[str, float]],
        steps: Sequence[Steps],
        settings: SimulatorSettings,
        physics: Mapping[str, float],
    ) -> None:
        self._observed, self._measured, self._settings = observed, measured, settings
        size = tokens_per_event(observed)
        self._weights = [_weight(run.records, size) for run in observed]
        self._terms, self._jitter = first_estimates(steps, settings, physics)
        self._fixed = {name: term.value for name, term in self._terms.items()}
        self._moved = [name for name, term in self._terms.items() if name not in DECODE_TERMS or term.spread > KNOWN]
        self._begin = np.log([self._fixed[name] for name in self._moved])
        self._prior = np.array([self._terms[name].spread for name in self._moved])

    @property
    def simulations(self) -> int:
        """The maximum number of times that all runs are simulated."""
        return 1 + ITERATIONS * (len(self._moved) + 3)

    def solved(self, report: Callable[[], None], give_up: float) -> tuple[float, dict[str, Term], SimulatorSettings]:
        """The remaining sum of squares, the terms, and the server with these terms. If more than `give_up` remains
        after one iteration, the fit ends."""

        def misfit(at: Floats) -> Floats:
            report()
            return self._misfit(at)

        at, covariance, left = _least_squares(misfit, self._begin, self._prior, give_up)
        spreads = np.sqrt(np.diag(covariance))
        terms = dict(self._terms)
        for name, value, spread, before in zip(
            self._moved, np.exp(at).tolist(), spreads.tolist(), self._prior, strict=True
        ):
            identified = terms[name].source == "steps" or bool(spread < IDENTIFIED * before)
            terms[name] = replace(terms[name], value=value, spread=spread, identified=identified)
        return left, terms, self._settings_at(at)

    def _settings_at(self, at: Floats) -> SimulatorSettings:
        moved = dict(zip(self._moved, np.exp(at).tolist(), strict=True))
        return with_terms(self._settings, self._fixed | moved, self._jitter)

    def _misfit(self, at: Floats) -> Floats:
        settings = self._settings_at(at)
        simulated = [simulated_numbers(run.plan, settings) for run in self._observed]
        pairs = zip(simulated, self._measured, self._weights, strict=True)
        errors = [weight * _scaled(one, other) for one, other, weight in pairs]
        return np.concatenate([*errors, (at - self._begin) / self._prior])


def at_speed(settings: SimulatorSettings, factor: float) -> SimulatorSettings:
    """A server that is faster in everything by a factor."""
    return settings.model_copy(update={"speed": settings.speed * factor})


def amplification(plan: Plan, settings: SimulatorSettings) -> float:
    """The increase of E2E in percent if the server is one percent slower: about 1 below saturation, several where a
    queue builds up. It turns a small error of the model into a large error of a latency."""
    slow, fast = (simulated_numbers(plan, at_speed(settings, factor))["e2e"] for factor in (1 / SLOWER, SLOWER))
    return max(1.0, float(np.log(slow / fast) / (2 * np.log(SLOWER))))


def _weight(records: Records, tokens_per_read: int) -> float:
    """The weight of a run, lower if reads have more tokens than the server sends at once."""
    return SATURATED if records.read_tokens.sum() > MERGED * tokens_per_read * len(records.read_tokens) else 1.0


def _scaled(simulated: Mapping[str, float], measured: Mapping[str, float]) -> Floats:
    """Errors in units of their weight; beyond `CLIP` they count less, so that one odd run does not dominate."""
    errors = [np.log(simulated[name] / measured[name]) / weight for name, weight in WEIGHTS.items()]
    return np.asarray(CLIP * np.arctan(np.nan_to_num(np.array(errors)) / CLIP), float)


def _least_squares(
    misfit: Callable[[Floats], Floats], begin: Floats, prior: Floats, give_up: float
) -> tuple[Floats, Floats, float]:
    """Gauss-Newton: the minimum of the sum of squares, the covariance there, and that sum."""
    at, error = begin, misfit(begin)
    slopes = np.zeros((len(error), len(begin)))
    for _ in range(ITERATIONS):
        for number in range(len(begin)):
            neighbour = at.copy()
            neighbour[number] += STEP
            slopes[:, number] = (misfit(neighbour) - error) / STEP
        move = -np.linalg.solve(slopes.T @ slopes, slopes.T @ error)
        move = np.clip(move, -FARTHEST * prior, FARTHEST * prior)
        for _ in range(3):
            candidate = misfit(at + move)
            if candidate @ candidate < error @ error:
                at, error = at + move, candidate
                break
            move = move / 3
        else:
            break
        if error @ error > give_up:
            break
    return at, np.asarray(np.linalg.inv(slopes.T @ slopes), float), float(error @ error)
