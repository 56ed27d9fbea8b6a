"""A whole plan on virtual time: the same drive loop, workload and pace, against the simulated engine."""

from datetime import UTC, datetime

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from inferometer.errors import PlanError
from inferometer.judge.limits import judge_plan
from inferometer.load.drive import Drive
from inferometer.load.pace import pace_of
from inferometer.load.virtual import VirtualClock
from inferometer.measure.facts import Facts
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.plan.model import Plan
from inferometer.plan.secrets import redacted
from inferometer.record.columns import Records
from inferometer.record.record import Record
from inferometer.record.run import Run
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.virtual import VirtualTransport
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.registry import new_nonce, workload_of

START_AT = NANOSECONDS  # not 0, so that no instant can be mistaken for a missing one


def simulated_run(plan: Plan) -> Run:
    """A run that was never sent: measured and judged like any other, not kept."""
    started = datetime.now(UTC)
    settings = settings_of(plan)
    records, facts = rehearse(plan, settings)
    summary = summarize(records, plan, facts)
    summary["limits"] = judge_plan(plan, summary)
    judged = verdict(summary, facts, plan)
    summary["instrument"] = None  # virtual time has none
    return Run(
        id="simulated",
        started_at=started.isoformat(timespec="milliseconds"),
        plan=redacted(plan).model_dump(mode="json"),
        environment={"model": settings.model, "time": "virtual"},
        summary=summary,
        verdict=judged,
        read_records=lambda: records,
    )


def rehearse(plan: Plan, settings: SimulatorSettings | None = None) -> tuple[Records, Facts]:
    """Every record of the plan as the simulator would answer it, and what is known beside them."""
    if plan.target.url:
        raise PlanError(
            "target.url: a simulation measures nothing but the simulator", "inferometer run measures a server"
        )
    records: list[Record] = []
    clock = VirtualClock(START_AT)
    transport = VirtualTransport(clock, settings or settings_of(plan))
    drives = _drives(plan, clock, transport, records)
    for drive in drives:
        drive.start(START_AT)
    _run(clock, drives, max(each.stop.drain for each in plan.classes))
    return Records.of(records), Facts(start_at=START_AT, stamps="kernel")


def settings_of(plan: Plan) -> SimulatorSettings:
    """What the plan sets on its server."""
    try:
        return SimulatorSettings.model_validate(plan.server.args if plan.server else {})
    except ValidationError as error:
        raise PlanError([_mistake(each) for each in error.errors()]) from None


def _mistake(error: ErrorDetails) -> str:
    where = ".".join(map(str, ("server", "args", *error["loc"])))
    if error["type"] == "extra_forbidden":
        return f"{where} is not a setting of the simulator"
    said = error["msg"].removeprefix("Value error, ").removeprefix("Input should ")
    return f"{where} {'must ' if error['msg'].startswith('Input should ') else ''}{said}, got {error['input']}"


def _drives(plan: Plan, clock: VirtualClock, transport: VirtualTransport, records: list[Record]) -> list[Drive]:
    nonce = new_nonce()
    return [
        Drive(
            traffic.name,
            workload_of(traffic.workload, plan.seed, number, nonce),
            pace_of(plan, number),
            clock,
            transport,
            records.append,
        )
        for number, traffic in enumerate(plan.classes)
    ]


def _run(clock: VirtualClock, drives: list[Drive], drain_s: float) -> None:
    """Until all is answered, or the drain deadline after the last was sent."""

    def over() -> None:
        if all(drive.over for drive in drives):
            clock.stop()

    for drive in drives:
        drive.on_over = over
    while any(drive.sending for drive in drives):
        clock.run(clock.now() + NANOSECONDS)
    clock.run(clock.now() + round(drain_s * NANOSECONDS))
    for drive in drives:
        drive.cut("unfinished")
