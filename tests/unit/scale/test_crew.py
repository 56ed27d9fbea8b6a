"""The loop of all places, with in-memory workers: each has a separate clock and answers by frames."""

import signal
from collections import deque

import msgspec
import pytest

from inferometer import errors
from inferometer.load.progress import Progress
from inferometer.load.shard import CANCEL_SIGNAL
from inferometer.scale.crew import STOPPED, Crew, Worker
from inferometer.scale.frames import ShardError, Start, Watch, packed
from inferometer.scale.place import LostShard, ShardsEnd
from inferometer.wire.reactor import now


class Count(msgspec.Struct):
    shard: int


def counted(job: int, watch: Watch, start: Start) -> Count:
    return Count(job)


class InMemory(Worker):
    """`script`: what it says, one piece at each look; None is its end. Once ready, it waits for its start."""

    def __init__(self, shard: int, script: list[bytes | None], ahead_ns: int = 0) -> None:
        super().__init__(shard)
        self.script, self.ahead_ns = deque(script), ahead_ns
        self.starts: list[int] = []
        self.signals: list[signal.Signals] = []

    def start(self, at: int) -> None:
        self.starts.append(at)

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)


class CrewInMemory(Crew[InMemory]):
    lead_ns, grace_s = 10_000_000, 0.0

    def __init__(self, workers: list[InMemory], interrupts: list[signal.Signals] | None = None) -> None:
        self.seen: list[Progress] = []
        super().__init__(counted, self.seen.append)
        self._come, self._to_come = workers, deque(interrupts or [])
        self.stopped = 0

    def _begin(self) -> None:
        self._workers.extend(self._come)

    def _poll(self) -> None:
        if all(worker.ready or worker.ended for worker in self._workers) and self._to_come:
            self._interrupts.append(self._to_come.popleft())
        for worker in self._workers:
            if worker.ended or not worker.script or (worker.ready and not worker.starts):
                continue
            data = worker.script.popleft()
            if data is None:
                worker.lose("it ended")
            else:
                self._heed(worker, data)

    def _stop(self) -> None:
        self.stopped += 1

    def _ahead_ns(self, worker: InMemory) -> int:
        return worker.ahead_ns


READY = packed("ready")


def report(shard: int) -> bytes:
    return packed("report", Count(shard))


def error(kind: str = "PlanError") -> bytes:
    return packed("error", ShardError(kind, "no such model", "name another"))


def test_all_begin_at_one_instant_each_on_its_own_clock() -> None:
    one = InMemory(0, [READY, report(0), None])
    other = InMemory(1, [b"", b"", READY, report(1), None], ahead_ns=-5_000_000_000)
    crew = CrewInMemory([one, other])
    before = now()
    assert crew.run() == ShardsEnd([Count(0), Count(1)])
    (at,), (there,) = one.starts, other.starts
    assert at >= before + crew.lead_ns
    assert there == at + 5_000_000_000
    assert crew.stopped == 1


def test_progress_is_on_the_clock_of_the_driver() -> None:
    progress = Progress(shard=0, at=1_000, sent=3, done=2, ends_at=9_000)
    crew = CrewInMemory([InMemory(0, [READY, packed("progress", progress), report(0), None], ahead_ns=500)])
    crew.run()
    assert crew.seen == [msgspec.structs.replace(progress, at=1_500, ends_at=9_500)]


def test_one_that_is_lost_is_named_and_does_not_hold_up_the_others() -> None:
    lost, other = InMemory(0, [None]), InMemory(1, [READY, report(1), None])
    lost.host = "node-7"
    assert CrewInMemory([lost, other]).run() == ShardsEnd([Count(1)], [LostShard(0, "it ended", "node-7")])
    assert not lost.starts and other.starts


def test_the_mistake_of_all_is_raised_and_that_of_one_is_a_loss() -> None:
    with pytest.raises(errors.PlanError, match="no such model"):
        CrewInMemory([InMemory(0, [error(), None]), InMemory(1, [error(), None])]).run()
    ended = CrewInMemory([InMemory(0, [error(), None]), InMemory(1, [READY, report(1), None])]).run()
    assert ended == ShardsEnd([Count(1)], [LostShard(0, "no such model")])


def test_the_first_interrupt_drains_the_second_cancels_and_then_nobody_is_waited_for() -> None:
    deaf = InMemory(0, [READY])
    crew = CrewInMemory([deaf], [signal.SIGINT, signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        crew.run()
    assert deaf.signals == [signal.SIGINT, CANCEL_SIGNAL]
    assert deaf.why == "it did not end after two interrupts"
    assert crew.stopped == 1


def test_who_waits_for_the_start_hears_an_interrupt() -> None:
    """Nothing was sent yet, so that one is enough; and a worker looks up only when it is started."""
    waiting, absent = InMemory(0, [READY, report(0), None]), InMemory(1, [b"", b"", b"", None])
    crew = CrewInMemory([waiting, absent])
    crew._interrupts.append(signal.SIGTERM)
    assert [one.shard for one in crew.run().reports] == [0]
    assert waiting.starts and absent.signals == [signal.SIGTERM]


def test_one_that_is_stopped_from_outside_is_lost_and_the_run_is_not_interrupted() -> None:
    """An interrupt of ours is for all of them; a signal that only one worker had is none of the user's."""
    stopped = packed("progress", Progress(shard=0, at=1_000, sent=3, done=2, interrupted=True))
    one, other = InMemory(0, [READY, stopped, report(0), None]), InMemory(1, [READY, report(1), None])
    crew = CrewInMemory([one, other])
    assert crew.run() == ShardsEnd([Count(1)], [LostShard(0, STOPPED)])
    assert [progress.interrupted for progress in crew.seen] == [False], "no note that the run is being finished"
    one, other = InMemory(0, [READY, stopped, report(0), None]), InMemory(1, [READY, report(1), None])
    assert CrewInMemory([one, other], [signal.SIGTERM]).run() == ShardsEnd([Count(0), Count(1)])


def test_one_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferometer.scale.crew.SILENT_S", 0.01)
    hung, slow = InMemory(0, [READY]), InMemory(1, [*[b""] * 5, READY, report(1), None])
    (lost,) = CrewInMemory([hung, slow]).run().lost
    assert lost.shard == 0 and lost.why.startswith("it hung: no message from it for")


def test_a_place_that_fails_leaves_nothing_running() -> None:
    crew = CrewInMemory([])
    crew._begin = lambda: (_ for _ in ()).throw(errors.TargetError("the cluster is gone"))  # type: ignore[method-assign]
    with pytest.raises(errors.TargetError):
        crew.run()
    assert crew.stopped == 1
