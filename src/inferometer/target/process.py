"""A started process with all its children: its output goes to a log, and it is ended together with all processes it
started, by signals to those processes and to no others."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from inferometer.errors import TargetError
from inferometer.plan.redactor import Redactor, environment_redactor
from inferometer.record.files import translated_errors
from inferometer.target import logkeeper

# -- processes -------------------------------------------------------------------------------------------------------

MARK = "INFEROMETER_SERVER"
POLL_S = 0.02
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ListedProcess:
    """A process as listed by the system. The combination of number and start time is unique."""

    pid: int
    group: int
    session: int
    birth: str


def living() -> Iterator[ListedProcess]:
    """Every process that has not ended."""
    if not _has_proc():
        yield from _listed_by_ps()
        return
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (seen := _read(int(entry.name))) is not None:
            yield seen


def birth(pid: int) -> str | None:
    """The start time of a process, as the system states it; None if there is no such process, or only a zombie."""
    if _has_proc():
        seen = _read(pid)
        return seen.birth if seen else None
    return next((seen.birth for seen in _listed_by_ps() if seen.pid == pid), None)


def machine() -> str:
    """The scope in which a process number is unique: this boot, and this container's process namespace."""
    boot, namespace = "", ""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        namespace = str((_PROC / "self/ns/pid").readlink())
    return f"{boot} {namespace}".strip()


def belonging(token: str, leader: int | None) -> list[ListedProcess]:
    """The living processes of a server: those of its leader's session or group, if that is safe to determine, and all
    that carry the mark."""
    processes = {}
    for seen in living():
        if seen.pid == os.getpid():
            continue
        if (leader is not None and leader in (seen.session, seen.group)) or _is_marked(seen.pid, token):
            processes[seen.pid] = seen
    return list(processes.values())


def send(number: signal.Signals, to: Collection[ListedProcess]) -> None:
    """Signal processes, each only if it is still the same process."""
    for seen in to:
        if birth(seen.pid) == seen.birth:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(seen.pid, number)


def end_all(members: Callable[[], list[ListedProcess]], grace_s: float) -> list[ListedProcess]:
    """Sends INT, TERM, KILL, each after the grace period of the previous one; returns the processes that are left after
    all of them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        left = members()
        awaited = {seen for seen in left if _heeds(seen.pid, number)}
        send(number, left)
        _wait_for(awaited, members, grace_s)
    deadline = time.monotonic() + max(grace_s, 1.0)
    while (left := members()) and time.monotonic() < deadline:
        send(signal.SIGKILL, left)
        time.sleep(POLL_S)
    return left


def _wait_for(awaited: set[ListedProcess], members: Callable[[], list[ListedProcess]], within_s: float) -> None:
    """Wait until they have ended; children that they end themselves are not signalled in between."""
    deadline = time.monotonic() + within_s
    while awaited.intersection(members()) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _heeds(pid: int, number: signal.Signals) -> bool:
    """Whether a process reacts to a signal: if it ignores it, waiting is useless."""
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return not _has_proc()
    ignored = next((line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")), "0")
    return not int(ignored, 16) >> (number - 1) & 1


def _has_proc() -> bool:
    return (_PROC / "self/stat").exists()


def _read(pid: int) -> ListedProcess | None:
    """Parses `PID (NAME) STATE PPID GROUP SESSION ... STARTTIME`; the name may contain anything, including brackets."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":  # ended, but not yet reaped by its parent
        return None
    return ListedProcess(pid, int(fields[2]), int(fields[3]), fields[19])


def _is_marked(pid: int, token: str) -> bool:
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # another user's
        return False
    return f"{MARK}={token}".encode() in variables.split(b"\0")


def _listed_by_ps() -> Iterator[ListedProcess]:
    """For systems without /proc, where the session is not available; the group is enough."""
    command = ["ps", "-axo", "pid=,pgid=,state=,lstart="]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    for line in done.stdout.splitlines():
        pid, group, state, *began = line.split()
        if not state.startswith("Z"):
            yield ListedProcess(int(pid), int(group), int(group), " ".join(began))


# -- process ---------------------------------------------------------------------------------------------------------

LOG_END_S = 2.0  # for writing the end of the log once the process has ended
LOG_LIMIT = 64 << 20


class StartedProcess:
    """Runs in its own session, so that Ctrl-C here does not reach it, with a mark that its children inherit."""

    def __init__(
        self,
        argv: Sequence[str],
        log: Path,
        token: str,
        *,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        limit: int = LOG_LIMIT,
        echo: bool = False,
        held_by_stdin: bool = False,
        redactor: Redactor | None = None,
    ) -> None:
        self._token = token
        self._keeper, output = _log_keeper(log, limit, echo, redactor or environment_redactor(os.environ))
        try:
            with os.fdopen(output, "wb") as pipe:
                self._popen = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.PIPE if held_by_stdin else subprocess.DEVNULL,
                    stdout=pipe,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(env or {}), MARK: token},
                    cwd=folder,
                    start_new_session=True,
                )
        except BaseException:
            self._end_log()
            raise

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ended(self) -> str | None:
        """How it ended; None while it runs. It is not reaped here, so that its number is not reused."""
        code = self._code()
        if code is None:
            return None
        return f"with exit status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"

    def wait(self, timeout_s: float) -> bool:
        """Whether it ends within the timeout."""
        deadline = time.monotonic() + timeout_s
        while self._code() is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    @property
    def failed(self) -> bool:
        return self._code() != 0

    def end(self, grace_s: float) -> list[ListedProcess]:
        """End it and all its children. Ctrl-C meanwhile only speeds it up. Returns the processes that could not be
        ended."""
        try:
            left = end_all(self._members, grace_s)
        except KeyboardInterrupt:
            end_all(self._members, 0.0)
            raise
        finally:
            self._popen.kill()
            self._popen.wait()
            if self._popen.stdin:
                with suppress(OSError):
                    self._popen.stdin.close()
            self._end_log()
        return left

    def _members(self) -> list[ListedProcess]:
        return belonging(self._token, self.pid)

    def _code(self) -> int | None:
        if self._popen.returncode is not None or not hasattr(os, "waitid"):
            return self._popen.poll()
        exit_info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if exit_info is None:
            return None
        return exit_info.si_status if exit_info.si_code == os.CLD_EXITED else -exit_info.si_status

    def _end_log(self) -> None:
        """The log ends by itself with its last writer; a child that was not found may continue to write."""
        try:
            self._keeper.wait(LOG_END_S)
        except subprocess.TimeoutExpired:
            self._keeper.terminate()
            self._keeper.wait()


def _log_keeper(log: Path, limit: int, echo: bool, redactor: Redactor) -> tuple[subprocess.Popen[bytes], int]:
    """The process that writes the log, and the pipe to it."""
    command = [sys.executable, "-I", "-S", logkeeper.__file__, str(log), str(limit), *(["echo"] if echo else [])]
    with translated_errors(log):
        log.touch()
    errors = None if echo else subprocess.DEVNULL
    hidden = " ".join(form.encode("utf-8", "surrogateescape").hex() for form in redactor.forms)
    keeper = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={**os.environ, logkeeper.HIDDEN: hidden},
        start_new_session=True,
    )
    pipe: IO[bytes] | None = keeper.stdin
    assert pipe is not None
    output = os.dup(pipe.fileno())
    pipe.close()
    return keeper, output


def not_started(name: str, argv: Sequence[str], error: OSError, hint: str) -> TargetError:
    """The error for a command that could not be started."""
    why = "was not found" if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()
    return TargetError(f"{name} could not be started: {argv[0]} {why}", hint or None)


def tail(log: Path, lines: int = 10) -> list[str]:
    """The last lines of a log, however large it is."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - (64 << 10)))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip()[:300] for line in text.splitlines() if line.strip()][-lines:]
