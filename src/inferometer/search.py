"""The conductor of a search: runs at one load after another, each kept like any other, until the most load within the
plan's limits is known."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from inferometer.errors import PlanError
from inferometer.judge.search import Bounds, Found, Step, Try, attained_of, find
from inferometer.measure.values import quantities
from inferometer.plan.load import Load, Stop
from inferometer.plan.model import Plan
from inferometer.plan.short import RATE_TYPES
from inferometer.plan.writing import to_mapping
from inferometer.record.run import Run
from inferometer.run import Notes, run
from inferometer.store.experiments import new_experiment
from inferometer.store.opening import Place, open_store
from inferometer.target.server import StartedServer, running

Axis = Literal["rate", "concurrency"]

STEP_S = 60.0
OURS = ("late_sends", "shortfall", "own_error")  # findings that say nothing of the target: a limit may be missed by us
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

    def document(self) -> dict[str, Any]:
        steps = [asdict(step) | {"word": step.word, "meets": step.guess} for step in self.steps]
        return {"axis": self.axis, "limits": self.limits, **asdict(self.found), "steps": steps, "id": self.experiment}


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
    """The most load that keeps the plan's limits. One server serves all steps."""
    limits = [str(limit) for each in plan.classes for limit in each.limits]
    if not limits:
        raise PlanError("a search needs a limit to keep", "add one: --limit 'ttft p99 < 500ms'")
    if len(plan.classes) > 1:
        raise PlanError("a search varies the load of one traffic class, got several", "leave one of them")
    kept_in = open_store(store)
    asked = {"axis": axis, "bounds": asdict(bounds), "step_s": step_s, "plan": to_mapping(plan)}
    kept = new_experiment(kept_in.home, "search", plan.name, asked)
    with ExitStack() as stack:
        server = stack.enter_context(_running(plan, kept.path, notes)) if plan.server else None

        def try_load(wanted: Try) -> Step:
            made = run(plan_at(plan, axis, wanted, step_s), store=kept_in, notes=notes, server=server)
            kept_in.set_case(made.id, kept.id, f"{axis} {wanted.load:g}")
            kept.add({"name": f"{axis} {wanted.load:g}", "parameters": {axis: wanted.load}, "run": made.id})
            return step_of(made, wanted)

        steps, found = find(try_load, bounds, on_step)
    searched = Searched(axis, found, steps, kept.id, limits)
    kept.finish(searched.document())
    return searched


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


def step_of(made: Run, wanted: Try) -> Step:
    """What a run says of its load. One that ended because a limit was lost has missed it."""
    known = quantities(made.summary)
    goal = made.summary.get("goal") or {}
    return Step(
        load=wanted.load,
        attained=attained_of(made.summary),
        length_s=made.summary["window"]["run_s"],
        run=made.id,
        ended=goal.get("why"),
        valid=not any(each["word"] == "invalid" and each["code"] in OURS for each in made.verdict["reasons"]),
        values={key: known[key].value for key in CURVE if key in known},
    )


def _running(plan: Plan, folder: Path, notes: Notes | None) -> AbstractContextManager[StartedServer]:
    assert plan.server is not None
    return running(plan.server, folder, target=plan.target, say=notes or (lambda _text: None), holder=folder.name)
