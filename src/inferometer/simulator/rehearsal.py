"""A whole plan on virtual time: the same drive loop, workload and pace, against the simulated engine."""

from collections.abc import Callable
from datetime import UTC, datetime

from inferometer.judge.limits import judge_plan
from inferometer.load.drive import Drive, is_failure, why_give_up
from inferometer.load.facts import facts_of
from inferometer.load.pace import pace_of
from inferometer.load.prime import Primer, primes_of
from inferometer.load.virtual import VirtualClock
from inferometer.measure.facts import Facts
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.plan.model import Plan
from inferometer.plan.secrets import redacted
from inferometer.record.columns import Records
from inferometer.record.log import Note
from inferometer.record.record import Record
from inferometer.record.run import Run
from inferometer.simulator.faults import HEADER
from inferometer.simulator.settings import SimulatorSettings, settings_from
from inferometer.simulator.virtual import VirtualTransport
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.context import NOWHERE, WorkloadContext
from inferometer.workload.registry import new_nonce, workload_of
from inferometer.workload.session import Workload

START_AT = NANOSECONDS  # not 0, so that no instant can be mistaken for a missing one


def simulated_run(plan: Plan, note: Callable[[str], None] = NOWHERE.note) -> Run:
    """A run that was never sent: measured and judged like any other, not kept. A target's address is left out; `note`
    is told what a person should know of the workload."""
    started = datetime.now(UTC)
    plan = plan.model_copy(update={"target": plan.target.model_copy(update={"url": [], "model": None})})
    settings = settings_of(plan)
    if plan.target.timeout.idle is not None and settings.faults.shares:
        note("target.timeout.idle is not watched in virtual time; target.timeout.request is, for faulty answers")
    records, facts = rehearse(plan, settings, note)
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
        state="complete" if facts.gave_up is None else "failed",
        read_records=lambda: records,
    )


def rehearse(
    plan: Plan, settings: SimulatorSettings | None = None, note: Callable[[str], None] = NOWHERE.note
) -> tuple[Records, Facts]:
    """Every record of the plan as the simulator would answer it, and what is known beside them."""
    records: list[Record] = []
    settings = settings or settings_of(plan)
    clock = VirtualClock(START_AT)
    transport = VirtualTransport(clock, settings, _asked_faults(plan), plan.target.timeout.request)
    workloads = _workloads(plan, settings, note)
    for traffic, workload in zip(plan.classes, workloads, strict=True):
        _prime(traffic.name, workload, clock, transport)
    start_at = clock.now()
    notes = [Note("start", start_at)]
    drives: list[Drive] = []

    def keep(record: Record) -> None:
        records.append(record)
        if len(notes) == 1 and is_failure(record) and (why := why_give_up(drives, plan.classes)):
            notes.append(Note("gave up", clock.now(), {"why": why}))
            for drive in drives:
                drive.cut("cancelled")

    drives += _drives(plan, workloads, clock, transport, keep)
    for drive in drives:
        drive.start(start_at)
    _run(clock, drives, max(each.stop.drain for each in plan.classes))
    made = Records.of(records)
    notes.append(Note("ended", clock.now(), {"stamps": "kernel"}))
    return made, facts_of(plan, made, notes)


def _asked_faults(plan: Plan) -> dict[str, str]:
    """What the requests of each class ask to go wrong, by their headers."""
    headers = {each.name: {**plan.target.headers, **each.headers} for each in plan.classes}
    return {name: text for name, own in headers.items() for header, text in own.items() if header.lower() == HEADER}


def settings_of(plan: Plan) -> SimulatorSettings:
    """What the plan sets on its server, where that is the simulator."""
    return settings_from(plan.server.args if plan.server and plan.server.type == "simulator" else {})


def _workloads(plan: Plan, settings: SimulatorSettings, note: Callable[[str], None]) -> list[Workload]:
    nonce, room = new_nonce(), settings.max_model_len
    context = WorkloadContext(settings.model, api=plan.target.api, max_model_len=room, note=note, keep_words=True)
    return [workload_of(each.workload, plan.seed, each.draw, nonce, context) for each in plan.classes]


def _prime(traffic: str, workload: Workload, clock: VirtualClock, transport: VirtualTransport) -> None:
    """What is sent before the load takes virtual time too."""
    primer = Primer(traffic, primes_of(workload, 1), clock, transport, clock.stop)
    primer.start()
    if not primer.over:
        clock.run()


def _drives(
    plan: Plan,
    workloads: list[Workload],
    clock: VirtualClock,
    transport: VirtualTransport,
    keep: Callable[[Record], None],
) -> list[Drive]:
    return [
        Drive(
            traffic.name,
            workloads[number],
            pace_of(plan, number),
            clock,
            transport,
            keep,
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
