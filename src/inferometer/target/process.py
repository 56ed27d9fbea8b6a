"""One started process with all its children: its output goes to a log, and it is ended with everything it began."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from inferometer.errors import TargetError
from inferometer.plan.redactor import Redactor, environment_redactor
from inferometer.record.files import told
from inferometer.target import logkeeper
from inferometer.target.processes import MARK, Seen, belonging, end_all

LOG_END_S = 2.0  # for the log to be written to its end once the process is over
LOG_LIMIT = 64 << 20


class Process:
    """Runs in a session of its own, so that Ctrl-C here does not reach it, under a mark that its children inherit."""

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
        """How it ended; None while it runs. It is not reaped here, so that its number stays its own."""
        code = self._code()
        if code is None:
            return None
        return f"with exit status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"

    def wait(self, timeout_s: float) -> bool:
        """Whether it ends within a time."""
        deadline = time.monotonic() + timeout_s
        while self._code() is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    @property
    def failed(self) -> bool:
        return self._code() != 0

    def end(self, grace_s: float) -> list[Seen]:
        """End it and all its children. Ctrl-C meanwhile only makes it quicker. Returns who could not be ended."""
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

    def _members(self) -> list[Seen]:
        return belonging(self._token, self.pid)

    def _code(self) -> int | None:
        if self._popen.returncode is not None or not hasattr(os, "waitid"):
            return self._popen.poll()
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def _end_log(self) -> None:
        """It ends by itself when the last writer has; a child that nobody found may write on."""
        try:
            self._keeper.wait(LOG_END_S)
        except subprocess.TimeoutExpired:
            self._keeper.terminate()
            self._keeper.wait()


def _log_keeper(log: Path, limit: int, echo: bool, redactor: Redactor) -> tuple[subprocess.Popen[bytes], int]:
    """The process that writes the log, and the pipe to it."""
    command = [sys.executable, "-I", "-S", logkeeper.__file__, str(log), str(limit), *(["echo"] if echo else [])]
    with told(log):
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
    """Why a command could not even be called."""
    why = "is not here" if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()
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
