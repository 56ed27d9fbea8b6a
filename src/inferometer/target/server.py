"""Starts the server that a plan asks for, awaits it, and ends it with all its children, whatever happens."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO

from inferometer.errors import PlanError, TargetError
from inferometer.plan.model import Server
from inferometer.record.files import told
from inferometer.vocabulary import duration_text

READY_S = 60.0
ENDING_S = 5.0
TAIL_LINES = 10

SERVERS = {  # from a section of the plan to how it is launched
    "simulator": "inferometer.target.simulator:launch",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server, and how its output says that it is ready: the URL, once a line says so."""

    name: str
    argv: list[str]
    ready: Callable[[bytes], str | None]


class StartedServer:
    """A running server. Its output goes to the log; its group is its own, so that Ctrl-C here does not reach it."""

    def __init__(self, launch: Launch, log: Path) -> None:
        self.name, self.log = launch.name, log
        self.url = ""
        self._settled = threading.Event()  # ready, or ended before it was
        with told(log):
            self._file = log.open("ab", buffering=0)
        self._process = self._spawn(launch)
        self._pump = threading.Thread(target=self._read, args=(launch.ready,), daemon=True)
        self._pump.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self, deadline_s: float = READY_S) -> None:
        """Wait until it can be asked; a `TargetError` with the end of its log when that does not come."""
        if not self._settled.wait(deadline_s):
            raise self._failure(f"was not ready within {duration_text(deadline_s)}")
        if not self.url:
            raise self._failure(f"ended {self._how_it_ended()} before it was ready")

    def check(self) -> None:
        """A `TargetError` if it is not running any more."""
        if self._process.poll() is not None:
            raise self._failure(f"ended {self._how_it_ended()}")

    def end(self) -> None:
        """Ask it to end, then make it; its children too."""
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._pump.join(ENDING_S)
        self._file.close()

    def _spawn(self, launch: Launch) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                launch.argv,
                stdin=subprocess.PIPE,  # a server of ours ends when this closes, even if we are killed
                stdout=subprocess.PIPE,
                stderr=self._file,
                start_new_session=True,
            )
        except OSError as error:
            self._file.close()
            raise TargetError(f"{self.name} could not be started: {error.strerror}: {launch.argv[0]}") from None

    def _read(self, ready: Callable[[bytes], str | None]) -> None:
        """Copy the output to the log, for ever: a full pipe would stop the server."""
        output: IO[bytes] | None = self._process.stdout
        assert output is not None
        with output:
            for line in output:
                with suppress(OSError, ValueError):  # a full disk must not stop it either
                    self._file.write(line)
                if not self.url and (url := ready(line)):
                    self.url = url
                    self._settled.set()
        self._settled.set()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _how_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)  # its output ended: so will it
        code = self._process.returncode
        if code is None:
            return "its output"
        return f"with exit status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"

    def _failure(self, what: str) -> TargetError:
        end = "".join(f"\n  {line}" for line in tail(self.log))
        said = f", the end of its log:{end}" if end else ", its log is empty"
        return TargetError(f"{self.name} {what}{said}", f"the whole log: {self.log}")


@contextmanager
def started(server: Server, folder: Path, deadline_s: float = READY_S) -> Iterator[StartedServer]:
    """The plan's server, ready to be asked, for as long as the context lasts; its log is kept in the folder."""
    running = StartedServer(launch_of(server), folder / "server.log")
    try:
        running.await_ready(deadline_s)
        yield running
    finally:
        running.end()


def launch_of(server: Server) -> Launch:
    """How the kind of server that a plan names is launched."""
    place = SERVERS.get(server.type)
    if place is None:
        raise PlanError(f"server.type must be one of {', '.join(SERVERS)}, got {server.type}")
    module, _, attribute = place.partition(":")
    made: Callable[[Server], Launch] = getattr(import_module(module), attribute)
    return made(server)


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours in this Python."""
    return [sys.executable, "-m", module, *arguments]


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log."""
    try:
        text = log.read_bytes()[-64 * 1024 :].decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip()[:300] for line in text.splitlines() if line.strip()][-lines:]
