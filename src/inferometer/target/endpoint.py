"""The target of a run: the plan's address, a server that the run starts, or a running one; locked during the run."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from inferometer.documents.document import JsonValue
from inferometer.errors import TargetError
from inferometer.plan.model import Plan
from inferometer.record.environment import Environment
from inferometer.record.files import translated_errors
from inferometer.record.summary import Startup
from inferometer.target.ask import TargetClient
from inferometer.target.lock import endpoint_claims, held
from inferometer.target.probe import TargetFacts, base_url, probe
from inferometer.vocabulary import duration_text

if TYPE_CHECKING:
    from inferometer.target.server import StartedServer

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Aim:
    """The plan with an address to measure, and the server behind it if it is known."""

    plan: Plan
    server: "StartedServer | None" = None

    def known_in(self, environment: Environment) -> Environment:
        """The environment with the server, and with the startup of a server that we started."""
        if self.server is None:
            return environment
        return structs.replace(environment, server=self.server.facts, startup=_startup(self.server))

    def probed(self) -> TargetFacts:
        """Detects the target. For a fleet a replica is queried: a router may list no model, or its own name."""
        target = self.plan.target
        if self.server is None or self.server.engine_url == self.server.url:
            facts = probe(target)
            return facts if self.server is None else replace(facts, server=self.server.launch.engine or facts.server)
        facts = probe(target.model_copy(update={"url": [self.server.engine_url]}))
        return replace(facts, urls=[base_url(url) for url in target.url])

    def death(self) -> str | None:
        """The error message for a server that stopped before the load ended."""
        how = self.server.ended() if self.server else None
        return self.server.failure(f"ended {how} during the load").message if self.server and how else None

    def lost(self, seems_gone: bool) -> str | None:
        """The evidence that the server stopped before the load ended: its process ended or, if connections broke
        (`seems_gone`) and the process is not ours to watch, it refuses new connections."""
        if death := self.death():
            return death
        for url in self.plan.target.url if seems_gone else ():
            try:
                TargetClient(self.plan.target, url).connect()
            except TargetError as error:
                return f"{error.message} after the load, and connections broke during it"
        return None


def _startup(server: "StartedServer") -> Startup | None:
    """The startup, for engines whose log shows its phases."""
    if server.ready_s is None or server.server.type in ("simulator", "fleet", "ray-serve"):
        return None
    from inferometer.target.startup import startup_of  # only for servers that we start

    startup = startup_of(server.log, server.ready_s).startup
    return startup if startup.phases else None


@contextmanager
def aiming(
    plan: Plan, folder: Path, notify: Notify, server: "StartedServer | None" = None, wait_s: float = 0.0
) -> Iterator[Aim]:
    """The plan's target for the duration of one run. A server that is passed in keeps running afterwards."""
    holder = f"run {folder.name}"
    with ExitStack() as stack:
        if server is not None:
            stack.enter_context(_log_of_run(server, folder))
        elif plan.server is not None:
            from inferometer.target.server import running  # not for a target that is running already

            server = stack.enter_context(
                running(plan.server, folder, target=plan.target, notify=notify, holder=holder, wait_s=wait_s)
            )
            notify(_announced(server))
        aimed = plan if server is None else _aimed(plan, server)
        if plan.target.exclusive:
            stack.enter_context(held(endpoint_claims(aimed.target.url), holder, wait_s, notify))
        for note in server.serve_run() if server else ():
            notify(note)
        yield Aim(aimed, server)


def _announced(server: "StartedServer") -> str:
    if server.ready_s is None:
        return f"{server.name} at {server.url} is ready"
    return f"started {server.name} at {server.url}, ready after {duration_text(server.ready_s)}"


def _aimed(plan: Plan, server: "StartedServer") -> Plan:
    changes: dict[str, JsonValue] = {"url": [server.url]}
    if server.model is not None and (plan.target.model is not None or server.engine_url != server.url):
        changes["model"] = server.model  # the served name: a file may be served under another name
    aimed = plan.model_copy(update={"target": plan.target.model_copy(update=changes)})
    if server.metrics_urls and plan.observe.metrics == "auto":
        observe = plan.observe.model_copy(update={"metrics": server.metrics_urls})
        aimed = aimed.model_copy(update={"observe": observe})
    return aimed


@contextmanager
def _log_of_run(server: "StartedServer", folder: Path) -> Iterator[None]:
    """For a server with many runs, extracts its output during this run; its complete log is elsewhere. A fleet has the
    log of its router and one for each replica."""
    from inferometer.target.server import LOG  # not for a target that is running already

    whole = [log for log in server.logs if log.exists() and log.parent != folder]
    before = [log.stat().st_size for log in whole]
    names = [LOG, *(f"replica-{number}.log" for number in range(1, len(server.logs)))]
    own = [folder / name for log, name in zip(server.logs, names, strict=True) if log in whole]
    try:
        yield
    finally:
        for log, size, part in zip(whole, before, own, strict=True):
            with translated_errors(part), log.open("rb") as source, part.open("wb") as kept:
                source.seek(size)
                shutil.copyfileobj(source, kept)
