"""Runs k shards of one plan in virtual time against one simulated engine: each sends its share and writes its log, on
the clock of a separate host. Tests compare the gathered logs with the run of a single worker."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from inferometer.load.arrivals import pace_of
from inferometer.load.clock import VirtualClock
from inferometer.load.drive import Drive
from inferometer.plan.model import Plan
from inferometer.record.gather import CLOCKS_LOG, ClockReading, moved
from inferometer.record.log import HostClock, LogWriter, Note
from inferometer.record.record import Record
from inferometer.simulator.virtual import (
    START_AT,
    VirtualTransport,
    planned_faults,
    prime,
    run_drives,
    settings_of,
    workloads_of,
)
from inferometer.workload.session import NOWHERE

REFERENCE = HostClock("driver", "boot-driver", 0)


def rehearse_shards(
    plan: Plan, shards: int, folder: Path, nonce: str, ahead_ns: Callable[[int], int] = lambda _shard: 0
) -> list[Path]:
    """The logs of all shards. `ahead_ns` is the offset that converts a time of a shard's host to the driver's clock; if
    any is not 0, the logs include clock readings."""
    settings = settings_of(plan)
    clock = VirtualClock(START_AT)
    transport = VirtualTransport(clock, settings, planned_faults(plan), plan.target.timeout.request)
    workloads = workloads_of(plan, settings, NOWHERE.note, nonce)
    for traffic, workload in zip(plan.classes, workloads, strict=True):
        prime(traffic.name, workload, clock, transport)
    start_at = clock.now()
    logs = [_ShardLog(folder / f"log-{shard}.bin", shard, ahead_ns(shard)) for shard in range(shards)]
    drives = [
        [
            Drive(
                traffic.name,
                workloads[number],
                pace_of(plan, number, shard, shards),
                clock,
                transport,
                logs[shard].keep,
                shard,
            )
            for number, traffic in enumerate(plan.classes)
        ]
        for shard in range(shards)
    ]
    by_class = [drive for same in zip(*drives, strict=True) for drive in same]  # ties as with one worker
    for log in logs:
        log.note(Note("start", start_at, {"nonce": nonce, "shard": log.shard, "late_s": 0.0}))
    for drive in by_class:
        drive.start(start_at)
    run_drives(clock, by_class, max(traffic.stop.drain for traffic in plan.classes))
    for log in logs:
        log.note(Note("ended", clock.now(), {"stamps": "kernel", "shard": log.shard}))
        log.close()
    return [*(log.path for log in logs), *_clock_log(folder, logs, start_at)]


@dataclass
class _ShardLog:
    """The log of one shard, on the clock of its host."""

    path: Path
    shard: int
    ahead_ns: int
    _writer: LogWriter = field(init=False)

    def __post_init__(self) -> None:
        self.clock = HostClock(f"host-{self.shard}", f"boot-{self.shard}" if self.ahead_ns else "boot-driver", 0)
        self._writer = LogWriter(self.path, self.shard, self.clock)

    def keep(self, record: Record) -> None:
        entry = moved(record, -self.ahead_ns) if self.ahead_ns else record
        assert isinstance(entry, Record)
        self._writer.append(entry)

    def note(self, note: Note) -> None:
        entry = moved(note, -self.ahead_ns) if self.ahead_ns else note
        assert isinstance(entry, Note)
        self._writer.add(entry)

    def close(self) -> None:
        self._writer.close()


def _clock_log(folder: Path, logs: list[_ShardLog], at: int) -> list[Path]:
    if not any(log.ahead_ns for log in logs):
        return []
    with LogWriter(folder / CLOCKS_LOG, shard=-1, clock=REFERENCE) as readings:
        for log in logs:
            if log.ahead_ns:
                readings.add(ClockReading(log.clock, at, log.ahead_ns, 0).as_note())
    return [folder / CLOCKS_LOG]
