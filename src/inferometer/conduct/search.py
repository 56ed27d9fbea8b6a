"""Conducts a search: a short probe, then runs at one load after another, each stored as usual, until the highest load
within the plan's limits is known or the budget is used up."""

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Literal

from msgspec import structs

from inferometer.conduct.run import Notes, run
from inferometer.errors import InferometerError, LostError, PlanError, TargetError, Terminated
from inferometer.judge.limits import ended_by, invalid_codes, losses
from inferometer.judge.search import (
    PROBE,
    Probe,
    SearchBounds,
    SearchResult,
    SearchStep,
    StepPace,
    Try,
    around_s,
    attained_of,
    find,
    first_load,
    length_s,
    levels_of,
    requests_for,
    result,
    spent_s,
)
from inferometer.measure.values import quantities
from inferometer.measure.verdict import CLIENT_CODES
from inferometer.plan.load import Load, Stage, Stop, Warmup
from inferometer.plan.model import Plan
from inferometer.plan.short import RATE_TYPES
from inferometer.plan.text import to_mapping
from inferometer.record.run import Run
from inferometer.store.experiments import ExperimentFolder, SearchDefinition, SearchOutcome, new_experiment
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import Place, Store, open_store
from inferometer.target.server import StartedServer, running

Axis = Literal["rate", "concurrency"]

START: dict[Axis, float] = {"rate": 1.0, "concurrency": 8.0}  # if neither the probe nor the plan has a better one
PROBE_DRAIN = 0.1  # of the budget: how long the probe waits at most for its last answers
LEAST_DRAIN_S = 1.0
UNFINISHED = 0.10  # share of requests not over at the end: more arrived than were completed
FAILED = ("failed_requests", "nothing_answered", "ended_early")  # too many failures: such a step is broken, not invalid
CURVE = (
    *("request_rate", "output_rate", "concurrency", "goodput", "failure_rate"),
    *("ttft_scheduled.p50", "ttft_scheduled.p99", "ttft.p50", "ttft.p99"),
    *("tpot.p50", "tpot.p90", "tpot.p99", "e2e.p50", "e2e.p99"),
)


@dataclass(frozen=True)
class Searched:
    """The result of a search, its steps, and the experiment that stores them."""

    axis: Axis
    result: SearchResult
    steps: list[SearchStep]
    experiment: str
    limits: list[str]
    probe: Probe | None = None
    interrupted: bool = False
    terminated: bool = False  # by TERM, not by Ctrl-C

    @property
    def outcome(self) -> SearchOutcome:
        """The outcome as it is stored and printed."""
        return SearchOutcome(
            axis=self.axis,
            limits=tuple(self.limits),
            **structs.asdict(self.result),
            steps=tuple(self.steps),
            probe=self.probe,
            id=self.experiment,
            interrupted=self.interrupted,
        )


def search(
    plan: Plan,
    bounds: SearchBounds,
    *,
    axis: Axis = "rate",
    step_s: float | None = None,
    store: Place = None,
    notes: Notes | None = None,
    on_probe: Callable[[Probe], None] | None = None,
    on_step: Callable[[SearchStep], None] | None = None,
) -> Searched:
    """Find the highest load that meets the plan's limits. Without a start in `bounds` a probe of two seconds chooses
    it. One server serves all steps; its startup does not count towards the budget. Ctrl-C ends the search with the
    result so far."""
    limits = _limits(plan)
    kept_in = open_store(store)
    requested = SearchDefinition(axis=axis, bounds=asdict(bounds), step_s=step_s, plan=to_mapping(plan))
    kept = new_experiment(kept_in.home, "search", plan.name, requested)
    steps: list[SearchStep] = []
    probe: Probe | None = None

    def searched(interrupted: bool) -> Searched:
        done = Searched(axis, result(steps, bounds), steps, kept.id, limits, probe, interrupted)
        kept.finish(done.outcome)
        return done

    def tried(step: SearchStep) -> None:
        steps.append(step)
        if on_step is not None:
            on_step(step)

    try:
        with ExitStack() as stack:
            server = stack.enter_context(_running(plan, kept.path, notes)) if plan.server else None
            series = _Series(plan, axis, kept_in, kept, notes, server)
            if bounds.start is None:
                probe = series.probe(bounds)
                if on_probe is not None:
                    on_probe(probe)
            bounds, pace = _prepared(plan, bounds, axis, step_s, probe)
            find(lambda wanted: series.step(wanted, steps, bounds, pace), bounds, tried)
    except KeyboardInterrupt as ended:
        return replace(searched(interrupted=True), terminated=isinstance(ended, Terminated))
    except InferometerError as error:
        searched(interrupted=False)
        if (steps or probe) and isinstance(error, TargetError):  # the target was reachable before
            raise LostError(error.message, error.hint) from error
        raise
    return searched(interrupted=False)


def own_start(plan: Plan, axis: Axis) -> float | None:
    """The plan's load, if it is of this kind."""
    named = plan.load.rate if axis == "rate" else plan.load.concurrency
    return None if named is None else float(named)


def _prepared(
    plan: Plan, bounds: SearchBounds, axis: Axis, step_s: float | None, probe: Probe | None
) -> tuple[SearchBounds, StepPace]:
    """The bounds and pace after the probe, and the budget it left. If the probe has no useful result, the search starts
    at the plan's own load; if nothing was answered in its whole time, at no more than one request in that time."""
    limits = [limit for traffic in plan.classes for limit in traffic.limits]
    if probe is None:
        assert bounds.start is not None
        return bounds.begun_at(bounds.start), StepPace(step_s, requests_for(limits))
    own = own_start(plan, axis) or START[axis]
    silent = probe.levels and not any(level.stay_s or level.failed for level in probe.levels)
    slow = (1.0 if axis == "concurrency" else 1 / probe.length_s) if silent and probe.length_s else math.inf
    start = probe.start if probe.start is not None else min(own, slow)
    rest = replace(bounds.begun_at(start), budget_s=bounds.budget_s - probe.took_s)
    return rest, StepPace(step_s, requests_for(limits), probe.stay_s, max(0.0, probe.took_s - probe.length_s))


def _limits(plan: Plan) -> list[str]:
    limits = [str(limit) for traffic in plan.classes for limit in traffic.limits]
    if not limits:
        raise PlanError("a search needs at least one limit", "add one: --limit 'ttft p99 < 500ms'")
    if len(plan.classes) > 1:
        raise PlanError(
            "a search varies the load of one traffic class, got several", "remove all but one traffic class"
        )
    return limits


@dataclass(frozen=True)
class _Series:
    """One load after another on the same target, each a run of the experiment with its own seed: with the same arrivals
    at every load, all steps would share the same random luck."""

    plan: Plan
    axis: Axis
    store: Store
    kept: ExperimentFolder
    notes: Notes | None
    server: StartedServer | None
    numbers: Iterator[int] = field(default_factory=count)

    def probe(self, bounds: SearchBounds) -> Probe:
        began = time.monotonic()
        plan = probe_plan(self.plan, bounds)
        made = self._run(plan, "probe", {})
        levels = levels_of(made.summary, [stage.concurrency or 1 for stage in plan.load.stages])
        start = first_load(levels, whole=bounds.whole)
        return Probe(levels, start, made.id, made.summary.window.run_s or 0.0, time.monotonic() - began)

    def step(self, wanted: Try, steps: Sequence[SearchStep], bounds: SearchBounds, pace: StepPace) -> SearchStep | None:
        """None if the budget has no room for it. Its last answers are waited for only within the budget."""
        began = time.monotonic()
        load_s = length_s(wanted, steps, bounds, pace)
        if load_s is None:
            return None
        rest_s = bounds.budget_s - spent_s(steps) - load_s - around_s(steps, pace)
        seeded = self.plan.model_copy(update={"seed": self.plan.seed + next(self.numbers)})
        at_load = plan_at(seeded, self.axis, wanted.load, load_s, max(rest_s, LEAST_DRAIN_S))
        made = self._run(at_load, f"{self.axis} {wanted.load:g}", {self.axis: wanted.load})
        return step_of(made, wanted, time.monotonic() - began)

    def _run(self, plan: Plan, name: str, parameters: dict[str, float]) -> Run:
        made = run(plan, store=self.store, notes=self.notes, server=self.server)
        self.store.set_case(made.id, self.kept.id, name)
        self.kept.add(ExperimentCase(name=name, parameters=parameters, run=made.id))
        if made.state == "interrupted":  # a partial step shows nothing about its load
            raise Terminated if ended_by(made) == signal.SIGTERM else KeyboardInterrupt
        if lost := losses(made):
            raise LostError(" ".join(lost), f"the run is stored: inferometer show {made.id}")
        return made


def probe_plan(plan: Plan, bounds: SearchBounds) -> Plan:
    """The plan as a closed loop of two seconds, with few requests in flight and then more: never more than the plan's
    own cap, or the search's maximum."""
    cap = min(plan.load.max_concurrency or math.inf, bounds.most if bounds.whole else math.inf)
    stages = [Stage(concurrency=at_once, duration=stage_s) for at_once, stage_s in PROBE if at_once <= max(cap, 1)]
    drain_s = min(plan.stop.drain, max(bounds.budget_s * PROBE_DRAIN, LEAST_DRAIN_S))
    stop = Stop(errors=plan.stop.errors, drain=drain_s)
    load = Load(type="stages", stages=stages)
    return plan.model_copy(update={"load": load, "stop": stop, "warmup": Warmup(), "outputs": []})


def plan_at(plan: Plan, axis: Axis, load: float, load_s: float, drain_s: float = math.inf) -> Plan:
    """The plan at a load for a duration, ended early if a limit is certainly missed."""
    stop = Stop(duration=load_s, errors=plan.stop.errors, drain=min(plan.stop.drain, drain_s), lost=True)
    return plan.model_copy(update={"load": _load_at(plan.load, axis, load), "stop": stop})


def _load_at(load: Load, axis: Axis, value: float) -> Load:
    """A rate keeps the plan's arrival process and cap."""
    if axis == "concurrency":
        return Load(type="concurrency", concurrency=int(value))
    kind = load.type if load.type in RATE_TYPES else "poisson"
    cap = load.max_concurrency if load.open_loop else None
    return Load(type=kind, rate=value, cv=load.cv if kind == "gamma" else 1.0, max_concurrency=cap)


def step_of(made: Run, wanted: Try, took_s: float = 0.0) -> SearchStep:
    """The result of a run as a step. One that ended because a limit was missed has missed it."""
    known = quantities(made.summary)
    invalid = invalid_codes(made)
    return SearchStep(
        load=wanted.load,
        attained=attained_of(made.summary),
        length_s=made.summary.window.run_s or 0.0,
        run=made.id,
        ended=made.summary.goal.why if made.summary.goal else None,
        broken=not invalid.isdisjoint(FAILED),
        valid=invalid.isdisjoint(CLIENT_CODES),
        growing="unbounded_queue" in invalid or _unfinished(made) > UNFINISHED,
        values={key: known[key].value for key in CURVE if key in known},
        took_s=took_s,
    )


def _unfinished(made: Run) -> float:
    """In an open loop, the share of the requests that were cut off at the end: these count in no attained share."""
    if made.summary.loop == "closed":
        return 0.0
    return (made.summary.failures.censored or 0) / max(made.summary.window.requests or 0, 1)


def _running(plan: Plan, folder: Path, notes: Notes | None) -> AbstractContextManager[StartedServer]:
    assert plan.server is not None
    notify = notes or (lambda _text: None)
    return running(plan.server, folder, target=plan.target, notify=notify, holder=folder.name, shared=True)
