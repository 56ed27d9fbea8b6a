"""Locks, so that two runs never share a GPU or an endpoint by accident. They are files that all users of this machine
share; the system lets go of them when their holder dies, however it dies."""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from inferometer.errors import TargetError
from inferometer.observe.environment import gpu_facts
from inferometer.observe.visible import visible_gpus
from inferometer.plan.model import Server
from inferometer.target.processes import birth
from inferometer.target.state import cannot_lock, locks_folder
from inferometer.vocabulary import duration_text

LOOK_AGAIN_S = 0.2
ALL_GPUS = "gpus"


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """What is to be held; those that share it exclude only those that do not."""

    name: str
    what: str  # as people call it
    shared: bool = False


def numbered(names: Sequence[str]) -> list[str]:
    """GPUs by their numbers, where they were named by their UUID or its beginning: one GPU has one lock."""
    if all(name.isdigit() for name in names):
        return list(names)
    known = {str(each.get("uuid")): str(each["index"]) for each in (gpu_facts() or {}).get("gpus", ())}
    found = ([number for uuid, number in known.items() if uuid.startswith(name)] for name in names)
    return [numbers[0] if len(numbers) == 1 else name for name, numbers in zip(names, found, strict=True)]


def endpoint_claims(urls: Sequence[str]) -> list[Claim]:
    """One for each host and port; the names of this machine are one."""
    return sorted({Claim(f"endpoint-{_safe(place)}", place) for place in map(_endpoint, urls)})


def gpu_claims(server: Server, environ: Mapping[str, str]) -> list[Claim]:
    """The GPUs that a server will use: those it is shown, else all of this host.

    All of them exclude each of them: whoever takes one holds `gpus` together with the others.
    """
    asked = visible_gpus(server, environ)
    if asked is None:
        return [Claim(ALL_GPUS, "all GPUs of this host")]
    each = {Claim(f"gpu-{_safe(number)}", f"GPU {number}") for number in numbered(asked)}
    return [Claim(ALL_GPUS, "all GPUs of this host", shared=True), *sorted(each)] if each else []


@contextmanager
def held(
    claims: Sequence[Claim], holder: str, wait_s: float = 0.0, say: Callable[[str], None] = lambda _text: None
) -> Iterator[None]:
    """Hold all claims; a `TargetError` names who has one of them, at once or after the wait."""
    deadline = time.monotonic() + wait_s
    with ExitStack() as stack:
        for claim in claims:
            stack.enter_context(_held_one(claim, holder, deadline, wait_s, say))
        yield


@contextmanager
def _held_one(claim: Claim, holder: str, deadline: float, wait_s: float, say: Callable[[str], None]) -> Iterator[None]:
    path = locks_folder() / f"{claim.name}.lock"
    file = _opened(path)
    told = False
    try:
        while not _taken(file, claim.shared):
            if time.monotonic() >= deadline:
                raise _refusal(claim, path, wait_s)
            if not told:
                say(f"waiting for {claim.what}: it is in use by {_who(path)}")
                told = True
            time.sleep(LOOK_AGAIN_S)
        if not claim.shared:
            _write(file, holder)
        yield
        if not claim.shared:
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def _opened(path: Path) -> int:
    """The lock's file, made for everybody where it is not there. Where it is, it is opened without O_CREAT: in a folder
    that all may write, the system would refuse that for another user's file."""
    while True:
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            with suppress(FileExistsError):
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(file, 0o666)  # whatever the umask says
                return file
        except OSError as error:
            raise cannot_lock(path, error) from error


def _taken(file: int, shared: bool) -> bool:
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refusal(claim: Claim, path: Path, wait_s: float) -> TargetError:
    waited = f", also after {duration_text(wait_s)}" if wait_s else ""
    return TargetError(
        f"{claim.what}: in use by {_who(path)}{waited}",
        "wait for it with --wait-for-target 30min; share it on purpose with "
        + ("target.exclusive=false" if claim.name.startswith("endpoint") else "server.exclusive=false"),
    )


def _who(path: Path) -> str:
    """Who holds a lock, as they wrote into it; holders of single GPUs wrote into those."""
    several = path.name == f"{ALL_GPUS}.lock"
    for each in [path, *(sorted(path.parent.glob("gpu-*.lock")) if several else [])]:
        if (said := _said(each)) and birth(int(said["pid"])) == said["birth"]:
            since = datetime.fromisoformat(said["since"]).strftime("%Y-%m-%d %H:%M:%S")
            return f"{said['holder']} (pid {said['pid']}, since {since})"
    return "another process"


def _said(path: Path) -> dict[str, Any] | None:
    try:
        said: dict[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return said


def _write(file: int, holder: str) -> None:
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    said = {"holder": holder, "pid": os.getpid(), "birth": birth(os.getpid()), "since": since}
    os.ftruncate(file, 0)
    os.pwrite(file, orjson.dumps(said), 0)


def _endpoint(url: str) -> str:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if host in ("127.0.0.1", "::1", "0.0.0.0", "::"):
        host = "localhost"
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", name)[:150]
