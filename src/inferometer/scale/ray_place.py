"""The place `ray`: one actor per shard, spread over the nodes of a cluster. Actors are neither restarted nor retried:
records that a lost actor has delivered are kept, and the others continue. Messages arrive through streaming
generators."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from inferometer import errors
from inferometer.errors import MissingExtra, PlanError, TargetError
from inferometer.load.shard import ShardJob
from inferometer.plan.model import Plan, RaySettings
from inferometer.scale.crew import WAIT_S
from inferometer.scale.frames import ShardFunction, Start, Watch
from inferometer.scale.place import Job, Report, ShardsEnd
from inferometer.scale.remote import PAUSE_S, RemoteCrew, RemoteWorker, needed_variables, shard_jobs
from inferometer.scale.remote_shard import Parcel, RemoteShard
from inferometer.target.ray_serve.settings import check_address
from inferometer.vocabulary import duration_text

_connected: tuple[str, str | None] | None = None  # address and wheel: kept for all runs of this process


def open_ray(settings: RaySettings, workers: int) -> Any:
    """The connected `ray` module. All runs of one process share the connection; it ends with the process, together with
    a cluster that we started."""
    global _connected
    wanted = settings.address or os.environ.get("RAY_ADDRESS") or "local", settings.wheel
    ray = _imported()
    if ray.is_initialized():
        if _connected is not None and _connected != wanted:
            ray.shutdown()
        elif _connected is None or wanted[0] != "local" or _cores(ray) >= workers:
            return ray
        else:
            ray.shutdown()  # our own cluster, of a run with fewer workers
    if wanted[0] not in ("local", "auto"):
        check_address(wanted[0], ray.util.get_node_ip_address())
    with _own_signals():
        _connect(ray, wanted[0], workers, _runtime_environment(settings.wheel))
    _connected = wanted
    return ray


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtra("running workers on Ray", "ray") from None
    return ray


def _connect(ray: Any, address: str, workers: int, environment: dict[str, list[str]]) -> None:
    with suppress(AttributeError):  # it prints raylets' output on stdout, which breaks JSON; we report losses ourselves
        ray._private.worker.print_to_stdstream = lambda *_arguments, **_settings: None
    quiet = {"logging_level": logging.CRITICAL, "log_to_driver": False, "configure_logging": True}
    own = {"num_cpus": max(workers, os.cpu_count() or 1), "include_dashboard": False} if address == "local" else {}
    try:
        with chdir(os.sep):  # Ray puts the working folder first on its workers' import path
            ray.init(address=address, runtime_env=environment or None, namespace="inferometer", **quiet, **own)
    except Exception as error:  # Ray raises many exception types
        with suppress(Exception):
            ray.shutdown()  # after a late failure Ray considers itself connected, and so would the next run
        raise connection_error(address, error) from error


def connection_error(address: str, error: BaseException) -> PlanError | TargetError:
    """The error, with a hint of what to do."""
    text = " ".join(str(error).split())
    causes = " ".join(str(cause) for cause in _chain(error))
    where = "Ray" if address == "local" else f"Ray at {address}"
    if "ersion mismatch" in text:
        return PlanError(f"{where}: {text}", "install the cluster's versions of Ray and Python here")
    if "InvalidAuthToken" in causes:
        hint = "export RAY_AUTH_MODE=token, with the cluster's token in ~/.ray/auth_token or RAY_AUTH_TOKEN"
        return TargetError(f"{where} wants a token", hint)
    hint = "run inferometer on a node of the cluster (ray start --address=...)"
    if isinstance(error, ConnectionError) or "connect" in text.lower() or "node" in text.lower():
        return TargetError(f"{where} could not be used from here: {text[:300]}", hint)
    return TargetError(f"{where}: {type(error).__name__}: {text[:300]}", hint)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _runtime_environment(wheel: str | None) -> dict[str, list[str]]:
    if wheel is None:
        return {}
    path = Path(wheel).expanduser()
    if not path.is_file():
        raise PlanError(f"ray.wheel: there is no file {wheel}", "build it: python -m build --wheel")
    return {"py_modules": [str(path.resolve())]}


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore our SIGTERM handler, which Ray replaces when it connects."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _cores(ray: Any) -> float:
    return float(ray.cluster_resources().get("CPU", 0.0))


@contextmanager
def room_for(ray: Any, workers: int, timeout_s: float, check: Callable[[], None]) -> Iterator[Any]:
    """A placement group of one core per worker, spread over the nodes. `check` is called while waiting."""
    group = ray.util.placement_group([{"CPU": 1}] * workers, strategy="SPREAD", name="inferometer")
    try:
        give_up_at = time.monotonic() + timeout_s
        while not group.wait(0.1):  # a group that never fits would block forever
            check()
            if time.monotonic() > give_up_at:
                raise _no_room(ray, workers, timeout_s)
        yield group
    finally:
        ray.util.remove_placement_group(group)


def _no_room(ray: Any, workers: int, timeout_s: float) -> PlanError:
    free, all_ = ray.available_resources().get("CPU", 0.0), _cores(ray)
    text = f"the Ray cluster had no room for {workers} workers within {duration_text(timeout_s)}:"
    text += f" each needs a core, and {free:g} of {all_:g} are free"
    return PlanError(text, f"--workers {max(1, int(free))}, a larger cluster, or a longer --set ray.timeout=...")


PARCELS_PER_S = 200  # in total at the driver: with many shards each sends fewer and larger ones
BUFFERED_PARCELS = 16  # buffered parcels of a shard; beyond it the shard's actor waits, never the load
INSTALL_S = 300.0  # additional time for nodes that install our wheel and its dependencies
ANSWER_S = 5.0  # to read the clock of a node, and to remove logs that the driver has
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
    """One shard in an actor on some node."""

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
        options = {"num_returns": "streaming", "_generator_backpressure_num_objects": BUFFERED_PARCELS}
        self.stream = self.actor.parcels.options(**options).remote(pause_s)

    def next_parcel(self) -> Parcel | None:
        """The next parcel; None if the actor was lost."""
        try:
            return msgspec.msgpack.decode(self._ray.get(next(self.stream)), type=Parcel)
        except StopIteration:
            self.lose("its actor ended early")
        except Exception as error:  # Ray raises many exception types
            self.lose(_how_lost(error))
        return None


class _Crew(RemoteCrew[_Worker]):
    """The actors, and their placement group."""

    def __init__(
        self, ray: Any, function: ShardFunction, jobs: Sequence[ShardJob], watch: Watch, settings: RaySettings
    ) -> None:
        super().__init__(function, jobs, watch)
        self._ray, self._settings = ray, settings
        self._room = ExitStack()
        self._nodes: dict[int, str] = {}  # original node by shard: after a loss Ray moves the bundle

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
        hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in self._ray.nodes()}
        for shard, job in enumerate(self._jobs):
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=shard)
            actor = remote.options(
                num_cpus=1, max_concurrency=4, max_restarts=0, max_task_retries=0, scheduling_strategy=strategy
            ).remote(self._run, shard, self._function, msgspec.json.encode(job), variables)
            self._workers.append(_Worker(self._ray, shard, job, actor))
            self._workers[-1].host = hosts.get(self._nodes.get(shard, ""))  # also for an actor that never starts

    def _await_all(self) -> None:
        """Wait until every actor has started, or for the timeout: the others begin without the missing ones."""
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
                except Exception as error:  # Ray raises many exception types
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
        """Remove the logs, and wait for it, because the actors are ended afterwards."""
        answers = [worker.actor.forget.remote() for worker in workers]
        if answers:
            self._ray.wait(answers, num_returns=len(answers), timeout=ANSWER_S)

    def _name_lost_nodes(self) -> None:
        """Find workers that were lost with their node. Ray takes seconds to notice, so we connect to the nodes."""
        lost = [worker for worker in self._workers if worker.why == ACTOR_LOST]
        if not lost:  # do not wait for a head that may be lost
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
    """Whether the raylet of a node accepts connections."""
    with suppress(OSError), socket.create_connection((host, port), RAYLET_S):
        return True
    return False


def _how_lost(error: BaseException) -> str:
    """`ActorDiedError` and similar errors, as a sentence."""
    kind = type(error).__name__
    return ACTOR_LOST if kind in _LOSSES else f"{kind}: {_last_line(error)}"


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
