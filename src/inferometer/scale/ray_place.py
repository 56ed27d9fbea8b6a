"""The place `ray`: one actor per shard, spread over the nodes of a cluster. Actors are neither restarted nor retried:
what a lost one delivered is kept, and the others go on. They are heard through streaming generators."""

import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import msgspec

from inferometer import errors
from inferometer.load.shard import ShardJob
from inferometer.plan.model import Plan
from inferometer.plan.place import RaySettings
from inferometer.scale.crew import WAIT_S
from inferometer.scale.frames import ShardFunction, Start, Watch
from inferometer.scale.place import Job, Report, ShardsEnd
from inferometer.scale.ray_cluster import open_ray, room_for
from inferometer.scale.remote import PAUSE_S, RemoteCrew, RemoteWorker, needed_variables, shard_jobs
from inferometer.scale.remote_shard import Parcel, RemoteShard
from inferometer.vocabulary import duration_text

PARCELS_PER_S = 200  # that the driver opens in all: with many shards each sends fewer and larger ones
UNOPENED = 16  # parcels of a shard that may wait for the driver; then the shard's actor waits, never the load
INSTALL_S = 300.0  # more for nodes that install our wheel and all that it depends on
ANSWER_S = 5.0  # for the clock of a node, and for nodes to remove the logs that the driver has
RAYLET_S = 2.0  # for the raylet of a node to accept a connection
ACTOR_LOST = "its actor was lost"
_LOSSES = ("ActorDiedError", "ActorUnavailableError", "NodeDiedError", "OwnerDiedError", "RayActorError")


def run_shards(
    function: Callable[[Job, Watch, Start], Report],
    jobs: Sequence[Job],
    watch: Watch,
    plan: Plan | None = None,
) -> ShardsEnd[Report]:
    """Run one shard per job to its end, on the cluster that the plan names."""
    settings = RaySettings() if plan is None else plan.ray
    known = shard_jobs(jobs, "ray")
    return _Crew(open_ray(settings, len(jobs)), function, known, watch, settings).run()


class _Worker(RemoteWorker):
    """One shard, as an actor on some node."""

    def __init__(self, ray: Any, shard: int, job: ShardJob, actor: Any) -> None:
        super().__init__(shard, job)
        self._ray, self.actor = ray, actor
        self.stream: Any = None

    def start(self, at: int) -> None:
        self.actor.start.remote(at)

    def signal(self, number: signal.Signals) -> None:
        self.actor.signal.remote(int(number))

    def reached(self, goals: bytes) -> None:
        self.actor.reached.remote(goals)

    def now(self) -> int:
        return int(self._ray.get(self.actor.now.remote(), timeout=ANSWER_S))

    def open(self, pause_s: float) -> None:
        options = {"num_returns": "streaming", "_generator_backpressure_num_objects": UNOPENED}
        self.stream = self.actor.parcels.options(**options).remote(pause_s)

    def next_parcel(self) -> Parcel | None:
        """None: it was lost."""
        try:
            return msgspec.msgpack.decode(self._ray.get(next(self.stream)), type=Parcel)
        except StopIteration:
            self.lose("its actor ended early")
        except Exception as error:  # what Ray raises has many types
            self.lose(_how_lost(error))
        return None


class _Crew(RemoteCrew[_Worker]):
    """The actors, and the room that they have in the cluster."""

    def __init__(
        self, ray: Any, function: ShardFunction, jobs: Sequence[ShardJob], watch: Watch, settings: RaySettings
    ) -> None:
        super().__init__(function, jobs, watch)
        self._ray, self._settings = ray, settings
        self._room = ExitStack()
        self._nodes: dict[int, str] = {}  # by shard, where the group had its room at first: after a loss Ray moves it

    # -- before the load -------------------------------------------------------------------------------------

    def _begin(self) -> None:
        room = room_for(self._ray, len(self._jobs), self._settings.timeout, self._check_interrupts)
        group = self._room.enter_context(room)
        self._nodes = self._ray.util.placement_group_table(group).get("bundles_to_node_id", {})
        self._create(group)
        self._await_all()

    def _create(self, group: Any) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        remote, variables = self._ray.remote(RemoteShard), needed_variables(self._plan)
        for shard, job in enumerate(self._jobs):
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=shard)
            actor = remote.options(
                num_cpus=1, max_concurrency=4, max_restarts=0, max_task_retries=0, scheduling_strategy=strategy
            ).remote(self._run, shard, self._function, msgspec.json.encode(job), variables)
            self._workers.append(_Worker(self._ray, shard, job, actor))

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
                    worker.came(self._ray.get(answer))
                except Exception as error:  # what Ray raises has many types
                    worker.lose(f"it did not start: {_last_line(error)}")
        for worker in pending.values():
            worker.lose(f"it did not start within {duration_text(patience_s)}")
        if not any(worker.identity is not None for worker in self._workers):
            raise self._none_came(self._workers[0].why)

    def _none_came(self, why: str) -> errors.InferometerError:
        if "No module named 'inferometer" in why:
            return errors.PlanError("the nodes of the Ray cluster lack Inferometer", self._version_hint())
        return errors.LostError(f"no worker started on Ray: {why}")

    def _version_hint(self) -> str:
        return "install it there, or send it along: --set ray.wheel=FILE.whl"

    # -- during the load -------------------------------------------------------------------------------------

    def _open_streams(self) -> None:
        pause_s = max(PAUSE_S, len(self._workers) / PARCELS_PER_S)
        for worker in self._workers:
            if worker.lives:
                worker.open(pause_s)

    def _poll(self) -> None:
        streams = {worker.stream: worker for worker in self._workers if not worker.ended}
        arrived, _ = self._ray.wait([*streams], num_returns=len(streams), timeout=WAIT_S, fetch_local=False)
        for stream in arrived:
            parcel = streams[stream].next_parcel()
            if parcel is not None:
                self._take(streams[stream], parcel)

    # -- after it --------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        super()._measure()
        self._name_lost_nodes()

    def _forget(self, workers: list[_Worker]) -> None:
        """It is waited for, because the actors are ended after it."""
        answers = [worker.actor.forget.remote() for worker in workers]
        if answers:
            self._ray.wait(answers, num_returns=len(answers), timeout=ANSWER_S)

    def _name_lost_nodes(self) -> None:
        """Who was lost with its node. Ray takes seconds to notice, so that the nodes are tried."""
        lost = [worker for worker in self._workers if worker.why == ACTOR_LOST]
        if not lost:  # a head that is gone would be waited for in vain
            return
        alive = {
            node["NodeID"]
            for node in self._ray.nodes()
            if node["Alive"] and _listens(node["NodeManagerAddress"], node["NodeManagerPort"])
        }
        for worker in lost:
            if self._nodes.get(worker.shard) not in {None, "", *alive}:
                worker.why = "its node was lost"

    def _stop(self) -> None:
        with self._room:
            for worker in self._workers:
                self._ray.kill(worker.actor, no_restart=True)


def _listens(host: str, port: int) -> bool:
    """Whether the raylet of a node is still there."""
    with suppress(OSError), socket.create_connection((host, port), RAYLET_S):
        return True
    return False


def _how_lost(error: BaseException) -> str:
    """`ActorDiedError` and its kin, as a sentence."""
    kind = type(error).__name__
    return ACTOR_LOST if kind in _LOSSES else f"{kind}: {_last_line(error)}"


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
