"""The truth test: what our client recorded against what the metronome logged, over loopback, light and saturated.

The bounds are generous for a busy CI machine, yet a stamp taken after parsing, tokens given to the wrong read or a
slack that is too small fails: the sends of a read's tokens must lie inside the uncertainty that it states.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from inferometer.conduct.instrument import ALLOWANCE_NS, FIRST_S, CalibrationLoad, drive
from inferometer.load.shard import ShardJob, run_shard
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.gather import read_logs
from inferometer.simulator.bursts import running_bursts
from inferometer.simulator.metronome_process import ReadErrors, Truth, compare, running_metronome
from inferometer.wire.compiled import compiled
from inferometer.wire.sockets import kernel_stamps

LIGHT = CalibrationLoad(streams=8, interval_s=0.01, tokens=60, rounds=2)
SATURATED = CalibrationLoad(
    streams=400, interval_s=0.002, tokens=100, rounds=1
)  # 200,000 events/s asked of two busy cores


Burst = tuple[Records, ReadErrors]


@dataclass(frozen=True)
class Measured:
    records: Records
    truth: Truth
    compared: ReadErrors
    waited_ns: int  # by client and metronome together, for a core that others had

    def host_ns(self, point: CalibrationLoad) -> float:
        """What the host may add to a median. A wait delays at most one read of every stream, so the delays of all reads
        sum up to `streams * waited_ns`, and no median is above twice the mean."""
        return 2 * point.streams * self.waited_ns / len(self.records.read_at)


def waited_ns(pids: Iterable[int]) -> int:
    """Of processes that could have run, and of this machine as a whole where it is a guest; only Linux tells."""
    if not sys.platform.startswith("linux"):
        return 0
    queued = sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in pids)
    stolen = int(Path("/proc/stat").read_text().split()[8])
    return queued + round(stolen * 1e9 / os.sysconf("SC_CLK_TCK"))


def measured(point: CalibrationLoad, folder: Path) -> Measured:
    with running_metronome(FIRST_S, point.interval_s) as metronome:
        before = waited_ns((os.getpid(), *metronome.pids))
        _, records = drive(point, metronome, folder / "run.log")
        waited = waited_ns((os.getpid(), *metronome.pids)) - before
        truth = metronome.truth()
    return Measured(records, truth, compare(records, truth), waited)


@pytest.fixture(params=["kernel", "read"])
def stamps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of stamps: the kernel's, and our own where there are none."""
    if request.param == "kernel" and not kernel_stamps():
        pytest.skip("no kernel receive stamps on this machine")
    if request.param == "read":
        for place in ("inferometer.wire.sockets", "inferometer.load.shard"):
            monkeypatch.setattr(f"{place}.kernel_stamps", lambda: False)
    return str(request.param)


@pytest.mark.parametrize("point", [LIGHT, SATURATED], ids=["light", "saturated"])
def test_client_instants_are_true(point: CalibrationLoad, stamps: str, tmp_path: Path) -> None:
    found = measured(point, tmp_path)
    records, truth, compared = found.records, found.truth, found.compared

    assert records.outcome.counts() == {"ok": point.streams * point.rounds}
    assert compared.unmatched == 0
    assert int(records.read_tokens.sum()) == len(truth.sent_at) == point.streams * point.rounds * point.tokens

    inside = compared.inside(ALLOWANCE_NS)
    worst = np.argmax(compared.oldest - compared.slack)
    # The metronome logs an instant before it writes: where it loses its core in between, a token seems to come late.
    # `test_bursts_...` knows the span of every write.
    least = 0.999 if point is LIGHT else 0.98
    assert inside.mean() >= least, f"worst: sent {compared.oldest[worst]} ns before, slack {compared.slack[worst]} ns"
    if stamps == "kernel" or point is LIGHT:
        ours_ns = 100_000 if stamps == "kernel" else 2_000_000
        assert np.median(np.abs(compared.read_error)) < ours_ns + found.host_ns(point)


def test_requests_are_stamped_before_the_server_has_them(tmp_path: Path) -> None:
    found = measured(LIGHT, tmp_path)
    records, truth, compared = found.records, found.truth, found.compared
    received = dict(zip(truth.ids, truth.received_at.tolist(), strict=True))
    way = np.array([received[answer_id] for answer_id in records.request_id]) - records.sent_at
    assert way.min() >= 0
    # of 16 requests, which all may have waited: the mean of the waits says nothing about their median
    assert np.median(way) < 5_000_000 + found.waited_ns
    assert np.median(compared.request_ttft - compared.request_true_ttft) < 5_000_000 + found.waited_ns


def test_two_metronomes_that_share_a_port_are_one(tmp_path: Path) -> None:
    """Whichever of them a client was dealt to, its answers are in the truth."""
    with running_metronome(FIRST_S, LIGHT.interval_s, processes=2) as metronome:
        _, records = drive(LIGHT, metronome, tmp_path / "run.log")
        truth = metronome.truth()
        metronome.forget()
        assert not metronome.truth().ids
    assert len(set(metronome.pids)) == len(set(metronome.own_ports)) == 2
    assert len(set(truth.ids)) == len(truth.ids) == LIGHT.streams * LIGHT.rounds
    assert compare(records, truth).unmatched == 0
    assert int(records.read_tokens.sum()) == len(truth.sent_at)


def test_light_load_has_a_read_per_token(tmp_path: Path) -> None:
    """Merged reads would hide the pace; at 800 events/s there is no reason for any but the odd one, and
    for those of a moment in which the host took the processor."""
    found = measured(LIGHT, tmp_path)
    merged = (found.records.read_tokens > 1).sum()
    came_meanwhile = found.waited_ns * 1e-9 * LIGHT.streams / LIGHT.interval_s  # while we or the metronome had no core
    assert merged < 0.25 * len(found.records.read_tokens) + came_meanwhile


# -- bursts: several tokens in a read --------------------------------------------------------------------------------


@pytest.fixture(params=["compiled", "python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both readers of the client."""
    if request.param == "python":
        monkeypatch.setenv("INFEROMETER_READER", "python")
    compiled.cache_clear()
    if request.param == "compiled" and compiled() is None:
        pytest.skip("the compiled reader was not built here")
    yield str(request.param)
    monkeypatch.undo()
    compiled.cache_clear()


def read_bursts(folder: Path, streams: int, tokens: int, pause_s: float, tls: tuple[Path, Path] | None = None) -> Burst:
    """One answer on every stream, from a server that writes in bursts; over TLS with a certificate and its key."""
    with running_bursts(pause_s, tls=tls) as bursts:
        plan = {
            "target": {"url": bursts.url, "model": "bursts", "tls": {"verify": False}},
            "workload": {"type": "synthetic", "input_tokens": 16, "output_tokens": tokens, "nonce_tokens": 0},
            "load": {"type": "concurrency", "concurrency": streams},
            "stop": {"requests": streams},
        }
        job = Plan.model_validate(plan).model_dump(mode="json")
        run_shard(ShardJob(plan=job, log=str(folder / "run.log"), nonce="", model="bursts"))
        records, truth = read_logs([folder / "run.log"])[0], bursts.truth()
    assert records.outcome.counts() == {"ok": streams}
    assert len(truth.sent_at) == streams * tokens
    return records, compare(records, truth)


def check_bursts(records: Records, compared: ReadErrors) -> None:
    """Whatever was read together arrived within what is stated."""
    inside = compared.inside(ALLOWANCE_NS)
    worst = np.argmax(compared.oldest - compared.slack)
    assert compared.unmatched == 0
    assert inside.mean() >= 0.999, f"worst: sent {compared.oldest[worst]} ns before, slack {compared.slack[worst]} ns"
    assert (records.read_tokens > 1).any(), "the bursts came one by one: nothing was tried"


def check_polls(records: Records) -> None:
    """It is a poll that bounds the uncertainty of most reads: tokens come at least 20 ms after the sending."""
    first = records.read_offsets[:-1]
    ttft, slack = records.read_at[first] - records.sent_at, records.read_slack[first]
    assert (slack < ttft / 2).mean() > 0.5, "first tokens are uncertain back to the sending"


@pytest.mark.usefixtures("reader", "stamps")
def test_bursts_arrived_within_the_stated_uncertainty(tmp_path: Path) -> None:
    records, compared = read_bursts(tmp_path, streams=12, tokens=80, pause_s=0.006)
    check_bursts(records, compared)
    check_polls(records)


@pytest.mark.usefixtures("reader", "stamps")
def test_bursts_on_a_busy_machine(tmp_path: Path) -> None:
    check_bursts(*read_bursts(tmp_path, streams=100, tokens=60, pause_s=0.0001))


@pytest.mark.usefixtures("reader", "stamps")
def test_bursts_over_tls(tmp_path: Path, certificates: Path) -> None:
    tls = certificates / "server.pem", certificates / "server.key"
    check_bursts(*read_bursts(tmp_path, streams=12, tokens=80, pause_s=0.006, tls=tls))
