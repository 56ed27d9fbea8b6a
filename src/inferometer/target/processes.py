"""Processes of this machine: who belongs to a server that was started, and signals to them and to nobody else.

A server's processes are its session, and on Linux all that carry its mark in their environment: children that left
the session are found by that.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "INFEROMETER_SERVER"
LOOK_AGAIN_S = 0.02
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as the system lists it. Number and birth together are never used twice."""

    pid: int
    group: int
    session: int
    birth: str


def living() -> Iterator[Seen]:
    """Every process that is not over."""
    if not _has_proc():
        yield from _listed_by_ps()
        return
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (seen := _read(int(entry.name))) is not None:
            yield seen


def birth(pid: int) -> str | None:
    """When a process began, in the system's own words; None where there is none of that number, or only its remains."""
    if _has_proc():
        seen = _read(pid)
        return seen.birth if seen else None
    return next((seen.birth for seen in _listed_by_ps() if seen.pid == pid), None)


def machine() -> str:
    """Within what a process number means something: this boot, and this container's view of processes."""
    boot, namespace = "", ""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        namespace = str((_PROC / "self/ns/pid").readlink())
    return f"{boot} {namespace}".strip()


def belonging(token: str, leader: int | None) -> list[Seen]:
    """The living processes of a server: of its leader's session or group, where that is safe to say, and all marked."""
    found = {}
    for seen in living():
        if seen.pid == os.getpid():
            continue
        if (leader is not None and leader in (seen.session, seen.group)) or _is_marked(seen.pid, token):
            found[seen.pid] = seen
    return list(found.values())


def send(number: signal.Signals, to: Collection[Seen]) -> None:
    """Signal processes, each only while it is still the one that was seen."""
    for seen in to:
        if birth(seen.pid) == seen.birth:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(seen.pid, number)


def end_all(members: Callable[[], list[Seen]], grace_s: float) -> list[Seen]:
    """INT, TERM, KILL, each after the grace of the one before; returns who is left after all of them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        left = members()
        awaited = {seen for seen in left if _heeds(seen.pid, number)}
        send(number, left)
        _wait_for(awaited, members, grace_s)
    deadline = time.monotonic() + max(grace_s, 1.0)
    while (left := members()) and time.monotonic() < deadline:
        send(signal.SIGKILL, left)
        time.sleep(LOOK_AGAIN_S)
    return left


def _wait_for(awaited: set[Seen], members: Callable[[], list[Seen]], within_s: float) -> None:
    """Until they are over; children that they end themselves are not signalled in between."""
    deadline = time.monotonic() + within_s
    while awaited.intersection(members()) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_S)


def _heeds(pid: int, number: signal.Signals) -> bool:
    """Whether a signal means anything to a process: one that it ignores is not waited for."""
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return not _has_proc()
    ignored = next((line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")), "0")
    return not int(ignored, 16) >> (number - 1) & 1


def _has_proc() -> bool:
    return (_PROC / "self/stat").exists()


def _read(pid: int) -> Seen | None:
    """From `PID (NAME) STATE PPID GROUP SESSION ... STARTTIME`; the name may hold anything, brackets too."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":  # over, but its parent has not looked yet
        return None
    return Seen(pid, int(fields[2]), int(fields[3]), fields[19])


def _is_marked(pid: int, token: str) -> bool:
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # somebody else's
        return False
    return f"{MARK}={token}".encode() in variables.split(b"\0")


def _listed_by_ps() -> Iterator[Seen]:
    """Where there is no /proc; there a session is not told, a group is enough."""
    command = ["ps", "-axo", "pid=,pgid=,state=,lstart="]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    for line in done.stdout.splitlines():
        pid, group, state, *began = line.split()
        if not state.startswith("Z"):
            yield Seen(int(pid), int(group), int(group), " ".join(began))
