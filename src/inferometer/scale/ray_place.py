"""The place `ray`: one actor per shard, spread over the nodes of a cluster. Actors are neither restarted nor retried:
what a lost one delivered is kept, and the others go on.

The driver hears all shards through streaming generators, appends their logs to files of its own, reads the clocks of
their hosts, and forwards the common start, interrupts and reached goals.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from inferometer import __version__, errors
from inferometer.load.progress import Progress
from inferometer.load.shard import ShardJob
from inferometer.plan.model import Plan
from inferometer.plan.place import RaySettings
from inferometer.record.environment import host_of, is_loopback
from inferometer.record.files import translated_errors
from inferometer.scale.child import signal_for
from inferometer.scale.clocks import PERIOD_S, TRIES, TRIES_DURING, ClockLog
from inferometer.scale.frames import (
    Frame,
    ShardError,
    ShardFunction,
    Start,
    Unpacker,
    Watch,
    job_and_report_types,
    name_of,
)
from inferometer.scale.place import Job, LostShard, Report, ShardsEnd
from inferometer.scale.ray_cluster import open_ray, room_for
from inferometer.scale.ray_worker import Identity, Parcel, RemoteShard
from inferometer.vocabulary import duration_text
from inferometer.wire.reactor import now

WAIT_S = 0.05  # for the next parcels, between two looks at signals and goals
LEAD_NS = 150_000_000  # from the last shard's `ready` to the common start
LEAD_PER_WORKER_NS = 500_000  # which the driver takes to tell each of them
PAUSE_S = 0.25  # between two parcels of a shard
PARCELS_PER_S = 200  # that the driver opens in all: with many shards each sends fewer and larger ones
UNOPENED = 16  # parcels of a shard that may wait for the driver; then the shard's actor waits, never the load
CLOCKS_AT_ONCE = 8  # hosts: more would wait for each other here, and their round trips would be longer
INSTALL_S = 300.0  # more for nodes that install our wheel and all that it depends on
KILLED_AFTER_S = 5.0  # after a second interrupt
FORGOTTEN_S = 5.0  # for nodes to remove the logs that the driver has


def run_shards(
    function: Callable[[Job, Watch, Start], Report],
    jobs: Sequence[Job],
    watch: Watch,
    plan: Plan | None = None,
) -> ShardsEnd[Report]:
    """Run one shard per job to its end, on the cluster that the plan names. Jobs are `ShardJob`s: their log is the
    driver's copy of what the shard writes on its node."""
    shard_jobs = [job for job in jobs if isinstance(job, ShardJob)]
    if len(shard_jobs) < len(jobs):
        raise TypeError("the place ray takes jobs of the type ShardJob")
    settings = RaySettings() if plan is None else plan.ray
    ray = open_ray(settings, len(jobs))
    return _Crew(ray, function, shard_jobs, watch, settings).run()


class _Worker:
    """One shard, as the driver knows it."""

    def __init__(self, shard: int, job: ShardJob, actor: Any) -> None:
        self.shard, self.job, self.actor = shard, job, actor
        self.identity: Identity | None = None  # once it came
        self.stream: Any = None
        self.unpacker = Unpacker()
        self.ready = self.ended = self.whole = False
        self.report: msgspec.Raw | None = None
        self.error: ShardError | None = None
        self.why = ""
        self.received = 0

    @property
    def host(self) -> str | None:
        return self.identity.clock.host if self.identity else None

    def lose(self, why: str) -> None:
        self.ended, self.why = True, self.why or why

    def keep(self, piece: bytes) -> None:
        """The next piece of its log, where the run has it."""
        with translated_errors(Path(self.job.log)), Path(self.job.log).open("ab") as log:
            log.write(piece)
        self.received += len(piece)


class _Crew:
    """The actors, and the loop that hears them."""

    def __init__(
        self, ray: Any, function: ShardFunction, jobs: Sequence[ShardJob], watch: Watch, settings: RaySettings
    ) -> None:
        _, self._report_type = job_and_report_types(function)
        self._ray, self._function, self._jobs = ray, name_of(function), jobs
        self._watch, self._settings = watch, settings
        self._run = Path(jobs[0].log).parent.name
        self._workers: list[_Worker] = []
        self._nodes: dict[int, str] = {}  # by shard, where the group had its room at first: after a loss Ray moves it
        self._started = False
        self._interrupts: list[signal.Signals] = []
        self._forwarded = 0
        self._kill_at: float | None = None
        self._goals = b""

    def run(self) -> ShardsEnd[Any]:
        with _noted_signals(self._interrupts):
            try:
                with room_for(self._ray, len(self._jobs), self._settings.timeout, self._check_interrupts) as group:
                    self._nodes = self._ray.util.placement_group_table(group).get("bundles_to_node_id", {})
                    self._create(group)
                    self._measure()
                    self._name_lost_nodes()
            finally:
                for worker in self._workers:
                    self._ray.kill(worker.actor, no_restart=True)
        return self._end()

    def _measure(self) -> None:
        clocks = ClockLog(Path(self._jobs[0].log).parent)
        try:
            self._await_all()
            self._check_reach()
            self._read_clocks(clocks)
            for worker in self._here():
                pause_s = max(PAUSE_S, len(self._workers) / PARCELS_PER_S)
                options = {"num_returns": "streaming", "_generator_backpressure_num_objects": UNOPENED}
                worker.stream = worker.actor.parcels.options(**options).remote(pause_s)
            with self._clocks_read_during(clocks):
                while not all(worker.ended for worker in self._workers):
                    self._hear(clocks)
            self._read_clocks(clocks)
            self._forget_logs()
        finally:
            clocks.close()

    # -- before the load -------------------------------------------------------------------------------------

    def _create(self, group: Any) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        remote = self._ray.remote(RemoteShard)
        for shard, job in enumerate(self._jobs):
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=shard)
            actor = remote.options(
                num_cpus=1, max_concurrency=4, max_restarts=0, max_task_retries=0, scheduling_strategy=strategy
            ).remote(self._run, shard, self._function, msgspec.json.encode(job), needed_variables(job.plan))
            self._workers.append(_Worker(shard, job, actor))

    def _await_all(self) -> None:
        """Until every actor has come, or the time is up: the others begin without those that did not."""
        pending = {worker.actor.identity.remote(): worker for worker in self._workers}
        patience_s = self._settings.timeout + (INSTALL_S if self._settings.wheel else 0.0)
        give_up_at = time.monotonic() + patience_s
        while pending and time.monotonic() < give_up_at:
            self._check_interrupts()
            arrived, _ = self._ray.wait([*pending], num_returns=len(pending), timeout=WAIT_S)
            for answer in arrived:
                worker = pending.pop(answer)
                try:
                    worker.identity = msgspec.msgpack.decode(self._ray.get(answer), type=Identity)
                except Exception as error:  # what Ray raises has many types
                    worker.lose(f"it did not start: {_last_line(error)}")
        for worker in pending.values():
            worker.lose(f"it did not start within {duration_text(patience_s)}")
        self._check_arrivals()

    def _check_arrivals(self) -> None:
        came = [worker for worker in self._workers if worker.identity is not None]
        wheel = "install it there, or send it along: --set ray.wheel=FILE.whl"
        if not came:
            why = self._workers[0].why
            missing = "No module named 'inferometer" in why
            text = "the nodes of the Ray cluster lack Inferometer" if missing else f"no worker started on Ray: {why}"
            raise errors.PlanError(text, wheel) if missing else errors.LostError(text)
        for worker in came:
            assert worker.identity is not None
            if worker.identity.version != __version__:
                text = f"{worker.host} has Inferometer {worker.identity.version}, this is {__version__}"
                raise errors.PlanError(text, wheel)

    def _check_reach(self) -> None:
        """A target at a loopback address is on this machine, and a worker on another one would look on its own."""
        urls = self._jobs[0].plan.get("target", {}).get("url") or []
        loopback = next((url for url in urls if is_loopback(host_of(url))), None)
        here = os.uname().nodename
        elsewhere = next((worker.host for worker in self._here() if worker.host != here), None)
        if loopback is not None and elsewhere is not None:
            text = f"a worker on {elsewhere} cannot reach {loopback}, an address of this machine"
            raise errors.PlanError(text, "give an address that all nodes reach: --url http://HOST:PORT")

    def _here(self) -> list[_Worker]:
        """Those whose actor lives."""
        return [worker for worker in self._workers if worker.identity is not None and (not worker.why or worker.whole)]

    def _read_clocks(self, clocks: ClockLog, tries: int = TRIES) -> None:
        """Of every other host, whichever of its workers is asked; several hosts at a time, for each is waited for."""
        hosts = {
            worker.identity.clock.boot or worker.identity.clock.host: worker
            for worker in self._here()
            if worker.identity is not None and not clocks.is_here(worker.identity.clock)
        }
        with ThreadPoolExecutor(CLOCKS_AT_ONCE) as pool:
            for _ in pool.map(lambda worker: self._read_clock(clocks, worker, tries), hosts.values()):
                pass

    def _read_clock(self, clocks: ClockLog, worker: _Worker, tries: int) -> None:
        assert worker.identity is not None
        actor = worker.actor
        with suppress(Exception):  # a lost actor is noticed by its stream
            clocks.read(worker.identity.clock, lambda: int(self._ray.get(actor.now.remote(), timeout=5.0)), tries)

    @contextmanager
    def _clocks_read_during(self, clocks: ClockLog) -> Iterator[None]:
        """A thread asks one worker of every host again and again."""
        over = threading.Event()

        def read() -> None:
            while not over.wait(PERIOD_S):
                self._read_clocks(clocks, TRIES_DURING)

        thread = threading.Thread(target=read, name="clocks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # -- during the load -------------------------------------------------------------------------------------

    def _hear(self, clocks: ClockLog) -> None:
        """What came since the last time, from whoever."""
        streams = {worker.stream: worker for worker in self._workers if not worker.ended}
        arrived, _ = self._ray.wait([*streams], num_returns=len(streams), timeout=WAIT_S, fetch_local=False)
        for stream in arrived:
            self._open(streams[stream], clocks)
        self._forward_interrupts(clocks)
        self._forward_goals()
        if all(worker.ready or worker.ended for worker in self._workers):
            self._start(clocks)

    def _open(self, worker: _Worker, clocks: ClockLog) -> None:
        try:
            parcel = msgspec.msgpack.decode(self._ray.get(next(worker.stream)), type=Parcel)
        except StopIteration:
            worker.lose("its actor ended early")
            return
        except Exception as error:  # what Ray raises has many types
            worker.lose(_how_lost(error))
            return
        if parcel.log:
            worker.keep(parcel.log)
        for frame in worker.unpacker.feed(parcel.frames):
            self._heed(worker, frame, clocks)
        if parcel.ended is not None:
            worker.lose(parcel.ended)
            worker.whole = worker.received == parcel.size

    def _heed(self, worker: _Worker, frame: Frame, clocks: ClockLog) -> None:
        match frame.kind:
            case "ready":
                worker.ready = True
            case "progress":
                assert worker.identity is not None
                progress = msgspec.msgpack.decode(frame.payload, type=Progress)
                self._watch(_here(progress, clocks.ahead_ns(worker.identity.clock)))
            case "report":
                worker.report = frame.payload
            case "error":
                worker.error = msgspec.msgpack.decode(frame.payload, type=ShardError)

    def _start(self, clocks: ClockLog) -> None:
        """One instant for all, on the clock of each."""
        if self._started:
            return
        self._started = True
        start_at = now() + LEAD_NS + len(self._workers) * LEAD_PER_WORKER_NS
        for worker in self._workers:
            if not worker.ended and worker.identity is not None:
                worker.actor.start.remote(start_at - clocks.ahead_ns(worker.identity.clock))

    def _check_interrupts(self) -> None:
        """Before anything was sent, one is enough."""
        if self._interrupts:
            raise errors.Terminated if self._interrupts[-1] == signal.SIGTERM else KeyboardInterrupt

    def _forward_interrupts(self, clocks: ClockLog) -> None:
        for number in self._interrupts[self._forwarded :]:
            self._forwarded += 1
            for worker in self._workers:
                if not worker.ended:
                    worker.actor.signal.remote(int(signal_for(number, self._forwarded, worker.ready)))
            self._start(clocks)  # those that wait for it would not look up before
        if self._forwarded > 1:
            self._kill_at = self._kill_at or time.monotonic() + KILLED_AFTER_S
            if time.monotonic() > self._kill_at:
                for worker in self._workers:
                    worker.lose("it did not end after two interrupts")

    def _forward_goals(self) -> None:
        """Goals that were found reached by the logs of all workers are told to all of them."""
        file = self._jobs[0].goals
        if file is None:
            return
        with suppress(OSError):
            goals = Path(file).read_bytes()
            if goals != self._goals:
                self._goals = goals
                for worker in self._workers:
                    if not worker.ended:
                        worker.actor.reached.remote(goals)

    def _forget_logs(self) -> None:
        """Nodes keep no log that is whole here. It is waited for, because the actors are ended after it."""
        answers = [worker.actor.forget.remote() for worker in self._here() if worker.whole]
        if answers:
            self._ray.wait(answers, num_returns=len(answers), timeout=FORGOTTEN_S)

    def _name_lost_nodes(self) -> None:
        """Who was lost with its node; Ray needs a moment to notice, so that late losses stay those of an actor."""
        lost = [worker for worker in self._workers if worker.why == ACTOR_LOST]
        if not lost:  # a head that is gone would be waited for in vain
            return
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        for worker in lost:
            if self._nodes.get(worker.shard) not in {None, "", *alive}:
                worker.why = "its node was lost"

    # -- the end ---------------------------------------------------------------------------------------------

    def _end(self) -> ShardsEnd[Any]:
        """Reports and losses; when nothing but one and the same mistake came back, that mistake."""
        decode = msgspec.msgpack.Decoder(self._report_type).decode
        reports = [decode(worker.report) for worker in self._workers if worker.report is not None]
        lost = [
            LostShard(worker.shard, worker.error.message if worker.error else worker.why, worker.host)
            for worker in self._workers
            if worker.report is None
        ]
        first = next((worker.error for worker in self._workers if worker.error is not None), None)
        if not reports and first is not None:
            raise first.as_exception()
        if not reports and self._interrupts:
            raise errors.Terminated if self._interrupts[-1] == signal.SIGTERM else KeyboardInterrupt
        return ShardsEnd(reports, lost)


@contextmanager
def _noted_signals(interrupts: list[signal.Signals]) -> Iterator[None]:
    """Interrupts are noted, for the loop to see. Only the main thread of a process can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda at, _frame: interrupts.append(signal.Signals(at))) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


ACTOR_LOST = "its actor was lost"
_LOSSES = ("ActorDiedError", "ActorUnavailableError", "NodeDiedError", "OwnerDiedError", "RayActorError")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def needed_variables(plan: dict[str, Any]) -> dict[str, str]:
    """The environment variables that the plan reads when requests are sent: keys that nodes do not have."""
    text = msgspec.json.encode(plan).decode()
    names = {*_VARIABLE.findall(text), plan.get("target", {}).get("key_env") or ""}
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


def _here(progress: Progress, ahead_ns: int) -> Progress:
    """With its instants on our clock."""
    ends_at = None if progress.ends_at is None else progress.ends_at + ahead_ns
    return msgspec.structs.replace(progress, at=progress.at + ahead_ns, ends_at=ends_at)


def _how_lost(error: BaseException) -> str:
    """`ActorDiedError` and its kin, as a sentence."""
    kind = type(error).__name__
    return ACTOR_LOST if kind in _LOSSES else f"{kind}: {_last_line(error)}"


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


__all__ = ["needed_variables", "run_shards"]
