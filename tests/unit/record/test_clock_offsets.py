"""Clocks of several hosts: offsets by the least round trip, interpolated drift, unchanged durations."""

import random
from pathlib import Path

import numpy as np
import pytest

from inferometer.load.facts import facts_of
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.plan.reading import plan_from
from inferometer.record import log as log_module
from inferometer.record.gather import CLOCKS_LOG, ClockReading, OffsetLine, read_logs
from inferometer.record.log import HostClock, LogWriter, Note, clock_here
from inferometer.record.record import Record
from inferometer.scale.remote import ClockLog, read_clock
from inferometer.store.folder import gathered_of, new_run

DRIVER = HostClock("driver", "boot-0", 0)
THERE = HostClock("there", "boot-1", 0)
SECOND = 1_000_000_000


def reading(at_s: float, ahead_ns: int, error_ns: int = 300_000) -> ClockReading:
    return ClockReading(THERE, round(at_s * SECOND), ahead_ns, error_ns)


class Wire:
    """Two clocks and a way between them, in virtual time: each direction takes as long as it is told."""

    def __init__(self, ahead_ns: int, ways: list[tuple[int, int]]) -> None:
        self.at, self.ahead_ns, self.ways = 10 * SECOND, ahead_ns, iter(ways)

    def here(self) -> int:
        return self.at

    def there(self) -> int:
        to, back = next(self.ways)
        self.at += to
        answered = self.at - self.ahead_ns
        self.at += back
        return answered


def test_the_offset_is_that_of_the_shortest_round_trip() -> None:
    wire = Wire(5_000_000_000, [(900_000, 100_000), (210_000, 190_000), (3_000_000, 2_000_000)])
    read = read_clock(THERE, wire.there, 3, wire.here)
    assert read.error_ns == 200_000
    assert read.ahead_ns == 5_000_000_000 + 200_000 - 210_000
    assert abs(read.ahead_ns - wire.ahead_ns) <= read.error_ns


@pytest.mark.parametrize("seed", range(20))
def test_the_truth_is_within_half_the_round_trip_however_lopsided(seed: int) -> None:
    draw = random.Random(seed)
    ways = [(draw.randrange(1, 2_000_000), draw.randrange(1, 2_000_000)) for _ in range(40)]
    wire = Wire(draw.randrange(-(10**12), 10**12), ways)
    read = read_clock(THERE, wire.there, 40, wire.here)
    assert abs(read.ahead_ns - wire.ahead_ns) <= read.error_ns
    assert read.error_ns == (min(map(sum, ways)) + 1) // 2


def test_between_readings_the_offset_is_interpolated_and_stays_outside() -> None:
    line = OffsetLine([reading(100, 1_000_000), reading(200, 3_000_000)])
    assert line.ahead_at(150 * SECOND - 2_000_000) == pytest.approx(2_000_000, abs=100)
    assert line.ahead_at(0) == 1_000_000
    assert line.ahead_at(10**13) == 3_000_000
    assert line.drift_ppm == pytest.approx(-20.0)
    assert line.jump_ns is None


def test_a_reading_that_says_less_than_its_neighbours_is_left_out() -> None:
    """Taken while the network was busy: its round trip is long, and its middle may be far off."""
    line = OffsetLine([reading(0, 1_000_000), reading(10, 9_000_000, 12_000_000), reading(20, 1_000_000)])
    assert line.ahead_at(10 * SECOND) == 1_000_000
    assert line.error_ns == 300_000


def test_a_clock_that_jumped_is_noticed() -> None:
    line = OffsetLine([reading(0, 0), reading(10, 0), reading(20, 2_000_000_000), reading(30, 2_000_000_000)])
    assert line.jump_ns == 2_000_000_000
    assert OffsetLine([reading(0, 0), reading(10, 1_000_000)]).jump_ns is None  # 100 ppm: a poor quartz


def write(folder: Path, shard: int, clock: HostClock, instants: list[int]) -> Path:
    path = folder / f"log-{shard}.bin"
    with LogWriter(path, shard, clock) as log:
        log.add(Note("start", instants[0], {"shard": shard, "late_s": 0.0}))
        for number, at in enumerate(instants):
            reads = np.array([at + 10_000_000, at + 25_000_000], "<i8").tobytes()
            ones = np.ones(2, "<i8").tobytes()
            log.append(
                Record(session=number, shard=shard, scheduled_at=at, sent_at=at + 1, read_at=reads, read_tokens=ones)
            )
    return path


def test_logs_come_together_on_the_drivers_clock_and_durations_stay(tmp_path: Path) -> None:
    """The other clock runs 50 ppm slow: it is 1 ms further behind after 20 s."""
    with LogWriter(tmp_path / CLOCKS_LOG, shard=-1, clock=DRIVER) as readings:
        for at_s, ahead_ns in ((0, 7 * SECOND), (20, 7 * SECOND + 1_000_000)):
            readings.add(reading(at_s, ahead_ns).as_note())
    theirs = [0 - 7 * SECOND, 10 * SECOND - 7 * SECOND - 500_000, 20 * SECOND - 7 * SECOND - 1_000_000]
    logs = [write(tmp_path, 0, DRIVER, [0, 10 * SECOND, 20 * SECOND]), write(tmp_path, 1, THERE, theirs)]
    records, gathered = read_logs([*logs, tmp_path / CLOCKS_LOG])
    there = records.take(records.shard == 1)
    assert there.scheduled_at.tolist() == [0, 10 * SECOND, 20 * SECOND]
    assert (there.sent_at - there.scheduled_at).tolist() == [1, 1, 1]
    assert np.diff(there.read_at)[::2].tolist() == [15_000_000] * 3
    clocks = gathered.clocks
    assert clocks is not None
    assert [(host.host, host.uncertainty_s) for host in clocks.hosts] == [("driver", 0.0), ("there", 0.0003)]
    assert clocks.uncertainty_s == 0.0003
    assert clocks.hosts[1].drift_ppm == pytest.approx(-50.0)


@pytest.mark.parametrize("others", [0, 1])
def test_a_clock_that_jumped_is_a_doubt_and_no_record_is_lost(tmp_path: Path, others: int) -> None:
    """A machine that was suspended for 2 s after 10 s: its monotonic clock stood still, and its load with it."""
    with LogWriter(tmp_path / CLOCKS_LOG, shard=-1, clock=DRIVER) as readings:
        for at_s, ahead_ns in ((0, 0), (9, 0), (13, 2 * SECOND), (20, 2 * SECOND)):
            readings.add(reading(at_s, ahead_ns).as_note())
    logs = [write(tmp_path, shard, DRIVER, [at * SECOND for at in range(20)]) for shard in range(1, 1 + others)]
    logs.append(write(tmp_path, 0, THERE, [at * SECOND for at in range(18)]))
    records, gathered = read_logs([*logs, tmp_path / CLOCKS_LOG])
    there = records.take(records.shard == 0)
    assert (len(there), there.scheduled_at[0], there.scheduled_at[-1]) == (18, 0, 19 * SECOND)
    assert {*np.diff(there.read_at)[::2].tolist()} == {15_000_000}  # no latency changed
    plan = plan_from({"load": {"type": "constant", "rate": 1}, "stop": {"duration": "20s"}, "workers": 1 + others})
    facts = facts_of(plan, records, gathered.notes, clocks=gathered.clocks)
    found = verdict(summarize(records, plan, facts), facts, plan)
    (doubt,) = [doubt for doubt in found.doubts if doubt.code == "clocks_disagree"]
    assert "jumped by 2 s" in doubt.text and "there" in doubt.text


def test_between_two_foreign_hosts_both_uncertainties_count(tmp_path: Path) -> None:
    third = HostClock("third", "boot-2", 0)
    with LogWriter(tmp_path / CLOCKS_LOG, shard=-1, clock=DRIVER) as readings:
        readings.add(reading(1, SECOND, 200_000).as_note())
        readings.add(ClockReading(third, 2 * SECOND, 2 * SECOND, 500_000).as_note())
    logs = [write(tmp_path, 0, THERE, [0]), write(tmp_path, 1, third, [0])]
    _, gathered = read_logs([*logs, tmp_path / CLOCKS_LOG])
    assert gathered.clocks is not None and gathered.clocks.uncertainty_s == pytest.approx(0.0007)


def test_what_lies_behind_the_last_reading_or_takes_long_is_less_certain(tmp_path: Path) -> None:
    """A host that was lost 20 s after its clock was last read; a request of 10 s on a clock that runs 50 ppm fast."""
    with LogWriter(tmp_path / CLOCKS_LOG, shard=-1, clock=DRIVER) as readings:
        for at_s, ahead_ns in ((0, 0), (20, -1_000_000)):
            readings.add(reading(at_s, ahead_ns, 300_000).as_note())
    logs = [write(tmp_path, 0, DRIVER, [0]), write(tmp_path, 1, THERE, [0, 40 * SECOND + 1_000_000])]
    clocks = read_logs([*logs, tmp_path / CLOCKS_LOG])[1].clocks
    assert clocks is not None and clocks.uncertainty_s == pytest.approx(300e-6 + 20 * 100e-6)
    logs[1].unlink()
    with LogWriter(logs[1], 1, THERE) as log:
        log.append(Record(session=0, shard=1, scheduled_at=0, ended_at=10 * SECOND))
    clocks = read_logs([*logs, tmp_path / CLOCKS_LOG])[1].clocks
    assert clocks is not None and clocks.uncertainty_s == pytest.approx(300e-6 + 10 * 50e-6)


def test_hosts_whose_clocks_nobody_read_have_no_known_uncertainty(tmp_path: Path) -> None:
    logs = [write(tmp_path, 0, DRIVER, [0]), write(tmp_path, 1, THERE, [0])]
    _, gathered = read_logs(logs)
    assert gathered.clocks is not None and gathered.clocks.uncertainty_s is None


def test_one_host_has_no_clocks_to_compare(tmp_path: Path) -> None:
    _, gathered = read_logs([write(tmp_path, 0, DRIVER, [0]), write(tmp_path, 1, DRIVER, [0])])
    assert gathered.clocks is None


def test_readings_are_kept_as_they_are_taken(tmp_path: Path) -> None:
    clocks = ClockLog(tmp_path)
    assert clocks.is_here(clock_here())
    clocks.read(THERE, lambda: 0, tries=2)
    assert clocks.ahead_ns(THERE) > 0
    records, gathered = read_logs([write(tmp_path, 0, THERE, [5]), tmp_path / CLOCKS_LOG])  # not closed yet
    assert records.scheduled_at.tolist() == [5 + clocks.ahead_ns(THERE)]
    assert gathered.headers[0].clock == THERE
    clocks.close()


def test_a_time_namespace_is_a_clock_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = tmp_path / "timens_offsets"
    monkeypatch.setattr(log_module, "_TIME_OFFSETS", offsets)
    offsets.write_text("monotonic           0         0\nboottime            0         0\n")
    usual = clock_here()
    offsets.write_text("monotonic       86400         5\nboottime        86400         0\n")
    assert not clock_here().is_clock_of(usual)
    assert clock_here().boot == f"{usual.boot}+86400.5"


def test_a_stored_run_keeps_its_clocks_when_its_logs_are_gone(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "store")
    with LogWriter(folder.path / CLOCKS_LOG, shard=-1, clock=DRIVER) as readings:
        readings.add(reading(0, 7 * SECOND).as_note())
    write(folder.path, 0, DRIVER, [0])
    write(folder.path, 1, THERE, [-7 * SECOND])
    records, gathered = folder.gather()
    assert records.scheduled_at.tolist() == [0, 0]
    assert not list(folder.path.glob("log-*.bin"))
    assert gathered.clocks is not None
    assert gathered_of(folder.load()).clocks == gathered.clocks
