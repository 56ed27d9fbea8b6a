"""A fleet: replicas of one server, started in parallel, and a router in front of them. For a run it is one server whose
replicas each report their own metrics."""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from inferometer.errors import TargetError
from inferometer.plan.model import Server, Target
from inferometer.plan.server import OWN, ROUTERS, Router
from inferometer.record.environment import ReplicaStart, ServerStart
from inferometer.target.ask import Reset, reset_prefix_cache
from inferometer.target.launch import Launch, LaunchPlace, launch_of, model_of, variables_of
from inferometer.target.lock import Claim, gpu_claims, reserved_port
from inferometer.target.process import not_started
from inferometer.target.routers import RouterEngine
from inferometer.target.server import Notify, StartedServer, started
from inferometer.vocabulary import attribute_at, duration_text


class FleetServer(StartedServer):
    """The router, and the replicas behind it. It has ended when any of them has ended: the error then names that
    one."""

    replicas: tuple[StartedServer, ...] = ()

    @property
    def engine_url(self) -> str:
        return self.replicas[0].url

    @property
    def metrics_urls(self) -> list[str]:
        """The metrics addresses of all replicas: a run pools them."""
        return [f"{replica.url}/metrics" for replica in self.replicas]

    @property
    def logs(self) -> list[Path]:
        return [self.log, *(replica.log for replica in self.replicas)]

    @property
    def facts(self) -> ServerStart:
        return structs.replace(super().facts, replicas=[_replica_facts(replica) for replica in self.replicas])

    def await_ready(self) -> None:
        """Takes the model name from the replicas: some routers report none, or another one."""
        super().await_ready()
        first = self.replicas[0]
        self.model, self.version = first.model, first.version
        self.ready_s = time.monotonic() - self._began

    def ended(self) -> str | None:
        dead = self._dead()
        return dead.ended() if dead is not None else super().ended()

    def failure(self, what: str, hint: str | None = None) -> TargetError:
        dead = self._dead()
        return dead.failure(what, hint) if dead is not None else super().failure(what, hint)

    def end(self) -> list[Any]:
        """Ends all at the same time: every replica may take its full time."""
        left = super().end()
        with ThreadPoolExecutor(max(len(self.replicas), 1)) as pool:
            return left + [process for gone in pool.map(StartedServer.end, self.replicas) for process in gone]

    def _dead(self) -> StartedServer | None:
        if self._over:
            return None
        return next((replica for replica in self.replicas if replica.ended()), None)

    def _reset_cache(self) -> Reset:
        """Our router forwards the reset to all replicas and clears its own state; with another router each replica is
        called directly."""
        if self.launch.resets:
            return reset_prefix_cache(self.launch, self.target)
        resets = [reset_prefix_cache(replica.launch, self.target) for replica in self.replicas]
        return next((reset for reset in resets if not reset.done), resets[0])


@contextmanager
def running_fleet(
    server: Server, folder: Path, log: Path, target: Target, holder: str, notify: Notify, echo: bool
) -> Iterator[FleetServer]:
    """The replicas, started in parallel, and the router when all are ready. A mistake in the router's settings, or a
    router that is not installed, is reported before anything is started: replicas may take minutes."""
    of, count = _replica_server(server), server.replicas or 1
    router = server.router or Router()
    with ExitStack() as stack:
        ports = [
            stack.enter_context(reserved_port(of.host, _port(of, at), holder, "server.of.port")) for at in range(count)
        ]
        port = stack.enter_context(reserved_port(server.host, server.port, holder))
        places = [LaunchPlace(of.host, port, model_of(of, target), at) for at, port in enumerate(ports)]
        urls = [place.url for place in places]
        _check_installed(_router_launch(router, LaunchPlace(server.host, port), urls, folder))
        began = time.monotonic()
        replicas = [
            stack.enter_context(_replica(of, place, target, folder, log, notify, echo, count)) for place in places
        ]
        _await_all(replicas)
        ready_s = duration_text(time.monotonic() - began)
        notify(f"started {count} replicas ({launch_of(of, places[0]).name}), ready after {ready_s}")
        launch = _router_launch(router, LaunchPlace(server.host, port, replicas[0].model), urls, folder)
        launch = replace(launch, name=f"the fleet of {count} behind {launch.name}", names=[])
        if router.type == OWN:
            launch = replace(launch, resets=replicas[0].launch.resets, reset_hint=replicas[0].launch.reset_hint)
        fleet = stack.enter_context(started(server, launch, target, folder, log, notify, echo, FleetServer))
        assert isinstance(fleet, FleetServer)
        fleet.replicas = tuple(replicas)
        fleet.since(began)
        fleet.await_ready()
        try:
            yield fleet
        finally:
            for left in fleet.end():
                notify(f"process {left.pid} of the fleet could not be stopped")


def fleet_claims(server: Server, environ: Mapping[str, str]) -> list[Claim]:
    """The GPUs of all replicas together."""
    of = _replica_server(server)
    places = [LaunchPlace(of.host, of.port or 0, None, at) for at in range(server.replicas or 1)]
    return sorted({claim for place in places for claim in gpu_claims(of, {**environ, **variables_of(of, place)})})


def _replica_server(server: Server) -> Server:
    """The replica's server with the settings of the fleet: how it is kept, and how long it may take to be ready."""
    of = server.of or Server()
    shared: dict[str, Any] = {}
    if server.keep == "shared":
        shared = {"keep": server.keep, "reset_cache": server.reset_cache}
    if server.ready.timeout is not None and of.ready.timeout is None:
        shared["ready"] = of.ready.model_copy(update={"timeout": server.ready.timeout})
    return of.model_copy(update=shared) if shared else of


def _port(of: Server, at: int) -> int | None:
    return None if of.port is None else of.port + at


def _router_launch(router: Router, place: LaunchPlace, urls: Sequence[str], folder: Path) -> Launch:
    engine: RouterEngine = attribute_at(ROUTERS[router.type].place)
    return engine.launch(router, place, urls, folder)


def _check_installed(launch: Launch) -> None:
    program = launch.argv[0]
    if shutil.which(program, path=launch.env.get("PATH")) is None and not Path(program).exists():
        raise not_started(launch.name, launch.argv, FileNotFoundError(), launch.missing)


@contextmanager
def _replica(
    of: Server, place: LaunchPlace, target: Target, folder: Path, log: Path, notify: Notify, echo: bool, count: int
) -> Iterator[StartedServer]:
    """One started replica, not yet ready; its log is next to the router's."""
    number = place.replica + 1
    own_log = log.with_name(f"{log.stem.replace('server', 'replica', 1)}-{number}{log.suffix}")
    own_folder = folder / f"replica-{number}" if of.prepare else folder
    own_folder.mkdir(exist_ok=True)
    launch = launch_of(of, place)
    launch = replace(launch, name=f"replica {number} of {count} ({launch.name})")
    with started(of, launch, target, own_folder, own_log, notify, echo, StartedServer, place) as replica:
        yield replica


def _await_all(replicas: Sequence[StartedServer]) -> None:
    """Waits for all at once. The first failure ends the wait for the others, which will be stopped anyway."""
    with ThreadPoolExecutor(len(replicas)) as pool:
        waits = [pool.submit(replica.await_ready) for replica in replicas]
        try:
            for ended in as_completed(waits):
                ended.result()
        except BaseException:
            for replica in replicas:
                replica.end()
            raise


def _replica_facts(replica: StartedServer) -> ReplicaStart:
    facts = replica.facts
    return ReplicaStart(
        name=facts.name,
        url=facts.url,
        argv=facts.argv,
        version=facts.version,
        pid=facts.pid,
        ready_s=facts.ready_s,
        log=facts.log,
        ended=facts.ended,
    )
