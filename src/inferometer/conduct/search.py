"""The conductor of a search: runs at one load after another, each kept like any other, until the most load within the
plan's limits is known."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

from inferometer.conduct.run import Notes, run
from inferometer.errors import InferometerError, LostError, PlanError, TargetError, Terminated
from inferometer.judge.ending import ended_by, losses
from inferometer.judge.search import Bounds, Found, Step, Try, attained_of, find, result
from inferometer.measure.values import quantities
from inferometer.measure.verdict import OURS
from inferometer.plan.load import Load, Stop
from inferometer.plan.model import Plan
from inferometer.plan.short import RATE_TYPES
from inferometer.plan.writing import to_mapping
from inferometer.record.run import Run
from inferometer.store.experiments import ExperimentFolder, new_experiment
from inferometer.store.store import Place, Store, open_store
from inferometer.target.server import StartedServer, running

Axis = Literal["rate", "concurrency"]

STEP_S = 60.0
FAILED = ("failed_requests", "nothing_answered", "ended_early")  # too many: such a step is broken, not invalid
CURVE = (
    *("request_rate", "output_rate", "concurrency", "goodput", "failure_rate"),
    *("ttft_scheduled.p50", "ttft_scheduled.p99", "ttft.p50", "ttft.p99"),
    *("tpot.p50", "tpot.p90", "tpot.p99", "e2e.p50", "e2e.p99"),
)


@dataclass(frozen=True)
class Searched:
    """What a search found, the steps on the way, and the experiment that keeps them."""

    axis: Axis
    found: Found
    steps: list[Step]
    experiment: str
    limits: list[str]
    interrupted: bool = False
    terminated: bool = False  # by TERM, not by Ctrl-C

    def document(self) -> dict[str, Any]:
        steps = [asdict(step) | {"word": step.word, "meets": step.guess} for step in self.steps]
        about = {"id": self.experiment, "interrupted": self.interrupted}
        return {"axis": self.axis, "limits": self.limits, **asdict(self.found), "steps": steps, **about}


def search(
    plan: Plan,
    bounds: Bounds,
    *,
    axis: Axis = "rate",
    step_s: float = STEP_S,
    store: Place = None,
    notes: Notes | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Searched:
    """The most load that keeps the plan's limits. One server serves all steps. Ctrl-C ends it with what is known."""
    limits = _limits(plan)
    kept_in = open_store(store)
    asked = {"axis": axis, "bounds": asdict(bounds), "step_s": step_s, "plan": to_mapping(plan)}
    kept = new_experiment(kept_in.home, "search", plan.name, asked)
    steps: list[Step] = []

    def searched(interrupted: bool) -> Searched:
        done = Searched(axis, result(steps, bounds), steps, kept.id, limits, interrupted)
        kept.finish(done.document())
        return done

    def tried(step: Step) -> None:
        steps.append(step)
        if on_step is not None:
            on_step(step)

    try:
        with ExitStack() as stack:
            server = stack.enter_context(_running(plan, kept.path, notes)) if plan.server else None
            trial = _Trial(plan, axis, step_s, kept_in, kept, notes, server)
            find(trial, bounds, tried)
    except KeyboardInterrupt as ended:
        return replace(searched(interrupted=True), terminated=isinstance(ended, Terminated))
    except InferometerError as error:
        searched(interrupted=False)
        if steps and isinstance(error, TargetError):  # it was there before
            raise LostError(error.message, error.hint) from error
        raise
    return searched(interrupted=False)


def _limits(plan: Plan) -> list[str]:
    limits = [str(limit) for each in plan.classes for limit in each.limits]
    if not limits:
        raise PlanError("a search needs a limit to keep", "add one: --limit 'ttft p99 < 500ms'")
    if len(plan.classes) > 1:
        raise PlanError("a search varies the load of one traffic class, got several", "leave one of them")
    return limits


@dataclass(frozen=True)
class _Trial:
    """One load after another on the same target, each a run of the experiment with a seed of its own: with the same
    arrivals at every load, their luck would be in all steps."""

    plan: Plan
    axis: Axis
    step_s: float
    store: Store
    kept: ExperimentFolder
    notes: Notes | None
    server: StartedServer | None
    numbers: Iterator[int] = field(default_factory=count)

    def __call__(self, wanted: Try) -> Step:
        began = time.monotonic()
        seeded = self.plan.model_copy(update={"seed": self.plan.seed + next(self.numbers)})
        at_load = plan_at(seeded, self.axis, wanted, self.step_s)
        made = run(at_load, store=self.store, notes=self.notes, server=self.server)
        name = f"{self.axis} {wanted.load:g}"
        self.store.set_case(made.id, self.kept.id, name)
        self.kept.add({"name": name, "parameters": {self.axis: wanted.load}, "run": made.id})
        if made.state == "interrupted":  # a piece of a step tells nothing of its load
            raise Terminated if ended_by(made) == signal.SIGTERM else KeyboardInterrupt
        if lost := losses(made):
            raise LostError(" ".join(lost), f"the run is kept: inferometer show {made.id}")
        return step_of(made, wanted, time.monotonic() - began)


def plan_at(plan: Plan, axis: Axis, wanted: Try, step_s: float) -> Plan:
    """The plan at a load, ended early where a limit is lost already."""
    stop = Stop(duration=step_s * wanted.longer, errors=plan.stop.errors, drain=plan.stop.drain, lost=True)
    return plan.model_copy(update={"load": _load_at(plan.load, axis, wanted.load), "stop": stop})


def _load_at(load: Load, axis: Axis, value: float) -> Load:
    """A rate keeps the process that the plan names, and its cap."""
    if axis == "concurrency":
        return Load(type="concurrency", concurrency=int(value))
    kind = load.type if load.type in RATE_TYPES else "poisson"
    cap = load.max_concurrency if load.open_loop else None
    return Load(type=kind, rate=value, cv=load.cv if kind == "gamma" else 1.0, max_concurrency=cap)


def step_of(made: Run, wanted: Try, took_s: float = 0.0) -> Step:
    """What a run says of its load. One that ended because a limit was lost has missed it."""
    known = quantities(made.summary)
    return Step(
        load=wanted.load,
        attained=attained_of(made.summary),
        length_s=made.summary.window.run_s or 0.0,
        run=made.id,
        ended=made.summary.goal.why if made.summary.goal else None,
        broken=any(reason.status == "invalid" and reason.code in FAILED for reason in made.doubts),
        valid=not any(reason.status == "invalid" and reason.code in OURS for reason in made.doubts),
        values={key: known[key].value for key in CURVE if key in known},
        took_s=took_s,
    )


def _running(plan: Plan, folder: Path, notes: Notes | None) -> AbstractContextManager[StartedServer]:
    assert plan.server is not None
    say = notes or (lambda _text: None)
    return running(plan.server, folder, target=plan.target, say=say, holder=folder.name, shared=True)
