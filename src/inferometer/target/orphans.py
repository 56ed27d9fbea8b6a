"""Servers left running because we were killed: each one is written down before it starts, and looked for
at the next start. A process is signalled only where its number, its birth or its mark says that it is the one."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from inferometer.errors import StoreError
from inferometer.record.files import write_text
from inferometer.target.lock import state_folder
from inferometer.target.process import belonging, birth, end_all, machine

GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class RegisteredServer:
    """What is known of a started server; the owner is the process of ours that started it."""

    token: str
    name: str
    command: str
    machine: str
    owner: int
    owner_birth: str | None
    since: str
    pid: int | None = None
    birth: str | None = None
    engine: str | None = None  # what runs its container
    container: str | None = None

    @property
    def owner_lives(self) -> bool:
        return birth(self.owner) == self.owner_birth


class Registration:
    """The entry of a server that is being started or runs."""

    def __init__(self, token: str, name: str, command: str, engine: str | None = None) -> None:
        self._path = _folder() / f"{token}.json"
        since = datetime.now(UTC).isoformat(timespec="seconds")
        self._entry = RegisteredServer(
            token, name, command, machine(), os.getpid(), birth(os.getpid()), since, engine=engine
        )
        self._write()

    def runs_as(self, pid: int) -> None:
        self._entry = replace(self._entry, pid=pid, birth=birth(pid))
        self._write()

    def runs_in(self, container: str) -> None:
        self._entry = replace(self._entry, container=container)
        self._write()

    def over(self) -> None:
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        with suppress(StoreError):  # without it only the cleaning up after a kill is lost
            write_text(self._path, orjson.dumps(asdict(self._entry)).decode())


@contextmanager
def registered(token: str, name: str, command: str, engine: str | None = None) -> Iterator[Registration]:
    """Written down for as long as the context lasts."""
    registration = Registration(token, name, command, engine)
    try:
        yield registration
    finally:
        registration.over()


def end_orphans(notify: Callable[[str], None]) -> None:
    """End every server whose owner was killed, and report it."""
    for path in sorted(_folder().glob("*.json")):
        entry = _read(path)
        if entry is None or entry.machine != machine() or entry.owner_lives:
            continue
        ended = [*_end_processes(entry), *_end_container(entry)]
        path.unlink(missing_ok=True)
        if ended:
            notify(f"stopped {entry.name}, left running since {entry.since} by a killed run ({', '.join(ended)})")


def _end_processes(entry: RegisteredServer) -> list[str]:
    """The leader's session counts only while the leader itself is there: its number may be another's by now."""
    leader = entry.pid if entry.pid and entry.birth and birth(entry.pid) == entry.birth else None
    processes = belonging(entry.token, leader)
    if processes:
        end_all(lambda: belonging(entry.token, leader), GRACE_S)
    return [f"pid {seen.pid}" for seen in processes]


def _end_container(entry: RegisteredServer) -> list[str]:
    if entry.engine is None:
        return []
    from inferometer.target.container import ContainerEngine

    engine = ContainerEngine(entry.engine)
    containers = engine.labelled(entry.token) or ([entry.container] if entry.container else [])
    return [f"container {container[:12]}" for container in containers if engine.remove(container, GRACE_S)]


def _folder() -> Path:
    folder = state_folder() / "servers"
    folder.mkdir(exist_ok=True)
    return folder


def _read(path: Path) -> RegisteredServer | None:
    try:
        content: dict[str, Any] = orjson.loads(path.read_bytes())
        return RegisteredServer(**content)
    except (OSError, orjson.JSONDecodeError, TypeError):  # being written, or of another version
        return None
