"""The whole load on worker processes with the simulator: the shards together send what one worker would send."""

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from inferometer.errors import PlanError
from inferometer.load.arrivals import Arrivals
from inferometer.load.shard import ShardJob
from inferometer.plan.model import Load, Plan, Server
from inferometer.record.log import LogReader, clock_here
from inferometer.record.record import Record, Sample
from inferometer.scale.place import place_named
from inferometer.scale.processes import run_shards
from inferometer.scale.worker import observed_shard
from inferometer.target.server import running


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    with running(Server(args={"speed": 20}), tmp_path_factory.mktemp("server")) as server:
        yield server.url


def jobs(url, folder, shards, **sections):
    plan = Plan.model_validate(
        {"target": {"url": url}, "workload": {"input_tokens": 16, "output_tokens": 4}} | sections
    )
    document = plan.model_dump(mode="json")
    return [
        ShardJob(document, str(folder / f"{shards}-{shard}.log"), "nonce", "simulated-8b", shard, shards)
        for shard in range(shards)
    ]


def entries(jobs):
    return [entry for job in jobs for entry in LogReader(Path(job.log))]


@pytest.mark.parametrize("shards", [1, 2])
def test_shards_send_what_one_would(url: str, tmp_path: Path, shards: int) -> None:
    errands = jobs(url, tmp_path, shards, load={"type": "poisson", "rate": 75}, stop={"requests": 60})
    phases = []
    end = run_shards(observed_shard, errands, lambda progress: phases.append(progress.phase))
    assert [report.shard for report in end.reports] == list(range(shards))
    assert len({report.start_at for report in end.reports}) == 1
    assert end.lost == []
    records = [entry for entry in entries(errands) if isinstance(entry, Record)]
    assert sorted(record.session for record in records) == list(range(60))
    assert {record.outcome for record in records} == {"ok"}
    start_at = end.reports[0].start_at
    assert sorted(record.scheduled_at - start_at for record in records) == expected()
    assert {entry.name for entry in entries(errands) if isinstance(entry, Sample)} >= {"cpu_share"}
    assert "done" in phases


def expected():
    return [at for _, at, _ in islice(Arrivals(Load(type="poisson", rate=75), 0), 60)]


def test_a_job_may_name_the_start(url: str, tmp_path: Path) -> None:
    start_at = time.time_ns() + 3_000_000_000  # without a name they would begin 50 ms after the last is ready
    errands = [
        msgspec.structs.replace(job, start_at=start_at)
        for job in jobs(url, tmp_path, 2, load={"type": "constant", "rate": 50}, stop={"requests": 10})
    ]
    end = place_named("local")(observed_shard, errands, lambda _: None)
    expected_at = start_at - clock_here().real_minus_monotonic_ns
    # The real-time clock may be slewed meanwhile: some milliseconds in a busy minute.
    assert [report.start_at for report in end.reports] == [pytest.approx(expected_at, abs=100_000_000)] * 2


def test_an_unknown_place_lists_those_there_are() -> None:
    with pytest.raises(PlanError, match="unknown place for shards: 'moon'") as error:
        place_named("moon")
    assert error.value.hint == "there are local, ray, kubernetes"
