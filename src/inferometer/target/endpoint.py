"""What a run is aimed at: the plan's address, a server it starts, or one that runs already; under a lock meanwhile."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferometer.errors import TargetError
from inferometer.plan.model import Plan
from inferometer.record.encoding import document_of
from inferometer.record.files import told
from inferometer.target.ask import Asker
from inferometer.target.lock import endpoint_claims, held
from inferometer.target.server import LOG, StartedServer, running
from inferometer.target.startup import startup_of
from inferometer.vocabulary import duration_text

Notes = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Aim:
    """The plan with an address to measure, and the server behind it where that is known."""

    plan: Plan
    server: StartedServer | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """For a run's environment: the server, and of one that we started how its start went."""
        if self.server is None:
            return {}
        return {"server": self.server.facts} | _startup(self.server)

    def death(self) -> str | None:
        """What to say when the server did not outlive the load."""
        how = self.server.ended() if self.server else None
        return self.server.failure(f"ended {how} during the load").message if self.server and how else None

    def lost(self, seems_gone: bool) -> str | None:
        """How it is known that the server did not outlive the load: its process ended or, where connections broke
        (`seems_gone`) and it is not ours to watch, it takes none any more."""
        if death := self.death():
            return death
        for url in self.plan.target.url if seems_gone else ():
            try:
                Asker(self.plan.target, url).connect()
            except TargetError as error:
                return f"{error.message} after the load, and connections broke during it"
        return None


def _startup(server: StartedServer) -> dict[str, Any]:
    """Of engines that say in their log what they do while they start."""
    if server.ready_s is None or server.server.type == "simulator":
        return {}
    startup = startup_of(server.log, server.ready_s).startup
    return {"startup": document_of(startup)} if startup.phases else {}


@contextmanager
def aiming(
    plan: Plan, folder: Path, say: Notes, server: StartedServer | None = None, wait_s: float = 0.0
) -> Iterator[Aim]:
    """The plan's target, for as long as one run lasts. A server that is handed in stays when the run is over."""
    holder = f"run {folder.name}"
    with ExitStack() as stack:
        if server is not None:
            stack.enter_context(_log_of_run(server, folder))
        elif plan.server is not None:
            server = stack.enter_context(
                running(plan.server, folder, target=plan.target, say=say, holder=holder, wait_s=wait_s)
            )
            say(_announced(server))
        aimed = plan if server is None else _aimed(plan, server)
        if plan.target.exclusive:
            stack.enter_context(held(endpoint_claims(aimed.target.url), holder, wait_s, say))
        for note in server.serve_run() if server else ():
            say(note)
        yield Aim(aimed, server)


def _announced(server: StartedServer) -> str:
    if server.ready_s is None:
        return f"{server.name} at {server.url} is ready"
    return f"started {server.name} at {server.url}, ready after {duration_text(server.ready_s)}"


def _aimed(plan: Plan, server: StartedServer) -> Plan:
    changes: dict[str, Any] = {"url": [server.url]}
    if plan.target.model is not None and server.model is not None:
        changes["model"] = server.model  # as it is served: a file may be served under another name
    return plan.model_copy(update={"target": plan.target.model_copy(update=changes)})


@contextmanager
def _log_of_run(server: StartedServer, folder: Path) -> Iterator[None]:
    """Of a server that serves many runs, what it printed during this one; its whole log is elsewhere."""
    own = folder / LOG
    if server.log == own or not server.log.exists():
        yield
        return
    before = server.log.stat().st_size
    try:
        yield
    finally:
        with told(own), server.log.open("rb") as whole, own.open("wb") as part:
            whole.seek(before)
            shutil.copyfileobj(whole, part)
