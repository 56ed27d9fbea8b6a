"""One worker's share of a run: the drives of all traffic classes on one reactor, and the log they write.

Worker i of k needs only its job and the common start: arrivals and sessions come from the plan's seed.
"""

import gc
import resource
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.load.arrivals import pace_of, replay_starts
from inferometer.load.drive import HOPELESS, Drive, is_failure, why_give_up
from inferometer.load.prime import Primed, Primer, primes_of
from inferometer.load.progress import Phase, Progress, read_goals
from inferometer.load.transport import HttpTransport
from inferometer.plan.model import Plan
from inferometer.record.log import LogWriter, Note, clock_here
from inferometer.record.record import Outcome, Record, Sample
from inferometer.vocabulary import NANOSECONDS
from inferometer.wire.reactor import Reactor, now
from inferometer.wire.sockets import ClockPair, kernel_stamps
from inferometer.workload.session import context_of, workload_of

PROGRESS_NS = NANOSECONDS // 4
HOUSEKEEPING_NS = NANOSECONDS // 2  # how much of a killed run may be lost
SAMPLE_NS_PER_SHARD = 10_000_000  # a thousand shards sample every ten seconds: all their samples are read into memory
READING_NS = NANOSECONDS  # for answers that are still unread when a run is cancelled: most runs need less
LEAD_NS = 20_000_000  # between everything being ready and the first arrival
NAP_S = 0.0003  # with kernel timestamps reads may wait this long; in a closed loop it adds up to as much send delay
MOST_PRECONNECTED = 1024
CANCEL_SIGNAL = (
    signal.SIGUSR1
)  # a second SIGINT can reach a process before it has handled the first: the kernel then merges them

Watch = Callable[[Progress], None]
Sampler = Callable[[int], list[Sample]]


class ShardJob(msgspec.Struct, frozen=True):
    """Everything a worker needs."""

    plan: dict[str, JsonValue]
    log: str
    nonce: str
    model: str | None = None
    shard: int = 0
    shards: int = 1
    max_model_len: int | None = None
    models: list[str] = []
    goals: str | None = None  # file that names the classes whose goal is reached, once there are any
    start_at: int | None = None  # on the real-time clock, which all hosts share; None: as soon as all shards are ready


class ShardReport(msgspec.Struct):
    """The outcome of a shard, in addition to its log."""

    shard: int
    start_at: int
    late_s: float = 0.0  # start delay after the agreed time
    ended_at: int = 0
    interrupted: bool = False
    broken: int = 0  # requests with a refused or broken connection: the server may be gone
    gave_up: str | None = None  # why the run was given up
    stamps: str = "read"
    clock_steps_s: list[float] = []
    cpu_s: float = 0.0
    connections: int = 0
    primed: list[Primed] = []


def run_shard(
    job: ShardJob,
    watch: Watch | None = None,
    await_start: Callable[[], int] | None = None,
    sampler: Sampler | None = None,
) -> ShardReport:
    """Run this shard's share to its end. `await_start` is called when everything is ready and returns the start time;
    if the job has a start time, that one is used: a late shard sends late, which the send delay shows."""
    shard = _Shard(job, watch or (lambda _progress: None), sampler)
    try:
        return shard.run(await_start or (lambda: now() + LEAD_NS))
    finally:
        shard.close()


class _Shard:
    """A shard and its parts while it runs."""

    def __init__(self, job: ShardJob, watch: Watch, sampler: Sampler | None) -> None:
        self.job = job
        self.plan = Plan.model_validate(job.plan)
        self.clocks = ClockPair()
        bounds = self.plan.target.bounds
        self.reactor = Reactor(
            nap_s=NAP_S if kernel_stamps() else 0.0, most_at_once=bounds.poll, most_held=bounds.memory
        )
        self.clock = clock_here(self.clocks.offset_ns)
        self.log = LogWriter(Path(job.log), job.shard, self.clock, in_background=True)
        self.transport = HttpTransport(self.reactor, self.plan, job.model, self.clocks)
        self.reactor.idle = self._quiet
        context = context_of(self.plan.target, job.model, job.models, job.max_model_len)
        self.workloads = [
            workload_of(traffic.workload, self.plan.seed, traffic.draw, job.nonce, context)
            for traffic in self.plan.classes
        ]
        self.drives = [self._drive(number) for number in range(len(self.plan.classes))]
        self.report = ShardReport(shard=job.shard, start_at=0)
        self._watch = watch
        self._sampler = sampler
        self._recent_ttft_s: list[float] = []
        self._phase: Phase = "connect"
        self._failure: BaseException | None = None
        self._housekeep_at = self._report_at = 0
        self._leave_at: int | None = None  # after this instant no more answers are read
        self._sample_at = 0
        self._primer: Primer | None = None
        self._reached: set[str] = set()  # classes that reached their goal
        self._undo_signals = [
            self.reactor.on_signal(number, partial(self._on_interrupt, number))
            for number in (signal.SIGINT, signal.SIGTERM)
        ]
        self._undo_signals.append(self.reactor.on_signal(CANCEL_SIGNAL, self._on_cancel))

    def run(self, await_start: Callable[[], int]) -> ShardReport:
        self._connect()
        self._prepare()
        cpu_before = _cpu_s()
        if not self.report.interrupted:  # an interrupt may have come while connections were opened
            self._load(await_start)
        if self._failure is not None:
            raise self._failure
        self._read_rest()
        self.transport.close()
        self._report_end(cpu_before)
        return self.report

    def close(self) -> None:
        for undo in self._undo_signals:
            undo()
        self.log.close()
        self.reactor.close()

    def _drive(self, number: int) -> Drive:
        job, traffic = self.job, self.plan.classes[number]
        drive = Drive(
            traffic.name,
            self.workloads[number],
            pace_of(self.plan, number, job.shard, job.shards, self.workloads[number]),
            self.reactor,
            self.transport,
            self._keep,
            job.shard,
        )
        drive.on_over = self._drive_over
        drive.on_stop = self._drive_stopped
        return drive

    def _connect(self) -> None:
        """Open connections in advance, so that no request has to wait for one."""
        wanted = sum(_expected_in_flight(self.plan, number) for number in range(len(self.drives)))
        count = min(wanted // self.job.shards, MOST_PRECONNECTED) if self.plan.target.preconnect else 0
        if count:
            self._report_progress()
            self.transport.connect(count, self.reactor.stop)
            self.reactor.run()

    def _prepare(self) -> None:
        """All preparations before the load: priming caches, creating the first sessions."""
        for number in range(len(self.drives)):
            if not self.report.interrupted:
                self._prime(number)
        for drive in self.drives:
            while drive.make_one():
                pass

    def _prime(self, number: int) -> None:
        """Fill the target's prefix caches as the workload requires."""
        name, urls = self.plan.classes[number].name, len(self.transport.clients)
        requests = primes_of(self.workloads[number], urls, self.job.shard, self.job.shards)
        primer = self._primer = Primer(name, requests, self.reactor, self.transport, self.reactor.stop)
        primer.start()
        if primer.over:
            return
        self._phase = "prime"
        self._report_progress()
        self.reactor.run()
        self.report.primed.append(primer.primed)
        self.log.add(Note("primed", now(), {"traffic": name, **msgspec.to_builtins(primer.primed)}))

    def _quiet(self) -> bool:
        """One piece of deferrable work: if few sessions are prepared, one of each kind, else answers come first."""
        for drive in self.drives:
            if drive.short and drive.make_one():
                self.transport.read_one()  # else a load that uses sessions as they are made would never read
                return True
        return self.transport.read_one() or any(drive.make_one() for drive in self.drives)

    def _load(self, await_start: Callable[[], int]) -> None:
        gc.freeze()  # without a collection before: it takes 30 ms, and would only find garbage of the imports
        gc.disable()  # this code creates no reference cycles, and a collection would delay every stream
        try:
            start_at = await_start()
            self._begin(start_at if self.job.start_at is None else self.clocks.monotonic(self.job.start_at))
            if self._phase != "done":  # a shard may have nothing to send
                self.reactor.run()
        finally:
            gc.enable()
            gc.unfreeze()

    def _read_rest(self) -> None:
        """Reads the remaining answers after the load: hundreds of megabytes take so long that users may think it hangs
        and interrupt it. The second interrupt ends it."""
        self.reactor.idle = self.transport.read_one
        while self.reactor.work_on():
            if now() >= self._report_at:
                self._report_at = now() + PROGRESS_NS
                self._report_progress()
            if self._leave_at is not None and now() > self._leave_at:
                self._leave_at = None
                self.transport.leave_unread()

    def _begin(self, start_at: int) -> None:
        self.report.start_at = start_at
        self.report.late_s = max(0, now() - start_at) / NANOSECONDS
        self._phase = "load"
        facts: JsonObject = {
            "nonce": self.job.nonce,
            "shard": self.job.shard,
            "late_s": self.report.late_s,
            "host": self.clock.host,
        }
        self.log.add(Note("start", start_at, facts))
        for drive in self.drives:
            drive.start(start_at)
        self._tick()

    # -- while it runs ---------------------------------------------------------------------------------------

    def _keep(self, record: Record) -> None:
        try:
            self.log.append(record)
        except Exception as error:  # a full disk: end the load, keep what was written
            self._fail(error)
        if record.read_at and record.sent_at is not None:
            first = int.from_bytes(record.read_at[:8], "little", signed=True)
            self._recent_ttft_s.append((first - record.sent_at) / 1e9)
        if is_failure(record):
            self.report.broken += record.outcome in ("connect", "cut")
            self._check_errors()

    def _tick(self) -> None:
        moment = now()
        if moment >= self._housekeep_at:
            self._housekeep_at = moment + HOUSEKEEPING_NS
            self._housekeep(moment)
        self._read_the_first()
        self._report_progress()
        if self._phase != "done":
            self.reactor.call_at(moment + PROGRESS_NS, self._tick)

    def _read_the_first(self) -> None:
        """Read enough answers to know whether the run is hopeless, even if there is no idle moment."""
        done = sum(drive.counts.done for drive in self.drives)
        self.transport.read_some(min(HOPELESS - done, HOPELESS // 4))

    def _housekeep(self, moment: int) -> None:
        try:
            step = self.clocks.refresh()
            if step is not None:
                self.report.clock_steps_s.append(step.by_ns / 1e9)
                self.log.add(Note("clock stepped", step.at, {"by_s": step.by_ns / 1e9, "shard": self.job.shard}))
            if self._sampler is not None and moment >= self._sample_at:
                self._sample_at = moment + self.job.shards * SAMPLE_NS_PER_SHARD
                for sample in self._sampler(moment):
                    self.log.add(sample)
            self._heed_goals(moment)
            self.log.flush()
        except Exception as error:
            self._fail(error)

    def _heed_goals(self, moment: int) -> None:
        """End the classes that reached their goal, as if their time were up."""
        reached = read_goals(self.job.goals)
        for drive in self.drives:
            if drive.name in reached and drive.name not in self._reached:
                self._reached.add(drive.name)
                self.log.add(Note("goal", moment, {"traffic": drive.name, **msgspec.to_builtins(reached[drive.name])}))
                drive.end()

    def _report_progress(self) -> None:
        counts = [drive.counts for drive in self.drives]
        ends = [drive.ends_at for drive in self.drives]
        recent, self._recent_ttft_s = self._recent_ttft_s, []
        self._watch(
            Progress(
                shard=self.job.shard,
                at=now(),
                planned=_total([drive.planned for drive in self.drives]),
                scheduled=sum(count.scheduled for count in counts),
                sent=sum(count.sent for count in counts),
                done=sum(count.done for count in counts),
                failed=sum(count.failed for count in counts),
                in_flight=sum(count.in_flight for count in counts),
                waiting=sum(drive.waiting for drive in self.drives),
                output_tokens=sum(count.output_tokens for count in counts),
                ttft_s=recent,
                ends_at=None if None in ends else max(at for at in ends if at is not None),
                phase=self._phase,
                interrupted=self.report.interrupted,
            )
        )

    def _check_errors(self) -> None:
        if why := why_give_up(self.drives, self.plan.classes):
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        if self.report.gave_up is None and self._phase == "load":
            self.report.gave_up = why
            self.log.add(Note("gave up", now(), {"why": why}))
            self._for_all_drives(lambda drive: drive.cut("cancelled"))

    # -- the end ---------------------------------------------------------------------------------------------

    def _drive_stopped(self) -> None:
        if not any(drive.sending for drive in self.drives):
            self.drain("unfinished")

    def _drive_over(self) -> None:
        if all(drive.over for drive in self.drives) and self._phase != "done":
            self._phase = "done"
            self.reactor.stop()

    def drain(self, outcome: Outcome) -> None:
        """Send nothing more, and wait for requests in flight up to the drain deadline."""
        if self._phase == "load":
            self._phase = "drain"
            patience = max(traffic.stop.drain for traffic in self.plan.classes)
            self.reactor.call_at(now() + int(patience * NANOSECONDS), lambda: self._cut(outcome))

    def _cut(self, outcome: Outcome) -> None:
        self._for_all_drives(lambda drive: drive.cut(outcome))

    def _for_all_drives(self, action: Callable[[Drive], None]) -> None:
        for drive in self.drives:
            action(drive)

    def _on_interrupt(self, number: signal.Signals) -> None:
        """The first one drains, the second cancels."""
        if self.report.interrupted:
            self._cancel()
            return
        self.report.interrupted = True
        if self._primer is not None:
            self._primer.stop()
        self.log.add(Note("interrupted", now(), {"signal": number.name, "shard": self.job.shard}))
        self.drain("cancelled")
        self._for_all_drives(lambda drive: drive.interrupt("cancelled"))
        self._report_progress()

    def _on_cancel(self) -> None:
        """Drain and cancel in one step, for a shard that may not have received the first interrupt."""
        if not self.report.interrupted:
            self._on_interrupt(signal.SIGINT)
        self._cancel()

    def _cancel(self) -> None:
        self._cut("cancelled")
        self._leave_at = now() + READING_NS

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._phase = "done"
            self.reactor.stop()

    def _report_end(self, cpu_before: float) -> None:
        report = self.report
        report.ended_at = now()
        report.stamps = self.transport.stamps if kernel_stamps() else "read"
        report.cpu_s = _cpu_s() - cpu_before
        report.connections = sum(client.opened for client in self.transport.clients)
        self._phase = "done"
        self._report_progress()
        self.log.add(Note("ended", report.ended_at, msgspec.to_builtins(report)))


def _expected_in_flight(plan: Plan, number: int) -> int:
    """How many connections a class will probably use: its concurrency, or one second of arrivals."""
    load = plan.classes[number].load
    if load.type == "stages":
        return max(int(stage.concurrency or max(stage.rate or 0, stage.to or 0)) for stage in load.stages)
    capped = load.concurrency or load.max_concurrency
    rate = max(load.rate or 0, load.to or 0, _busiest_second(plan, number))
    return min(int(rate) + 1, capped or MOST_PRECONNECTED) if rate else capped or 0


def _busiest_second(plan: Plan, number: int) -> int:
    """The most sessions that start within a second of a replay."""
    traffic = plan.classes[number]
    return int(np.bincount(replay_starts(traffic) // NANOSECONDS).max()) if traffic.load.type == "replay" else 0


def _total(parts: list[int | None]) -> int | None:
    return None if None in parts else sum(part for part in parts if part is not None)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
