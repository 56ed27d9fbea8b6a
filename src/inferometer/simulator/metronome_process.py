"""The metronome as a child process: started, asked for its truth, and ended with the one who started it."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from inferometer.errors import TargetError
from inferometer.simulator.metronome_truth import Truth

PATIENCE_S = 60.0  # to answer, and to end


@dataclass(frozen=True, slots=True)
class RunningMetronome:
    """Where it listens. Ask for the truth when the load is over: writing it out takes its time."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def truth(self) -> Truth:
        return Truth.read(self._ask("GET", "/truth"))

    def forget(self) -> None:
        """Begin a new truth."""
        self._ask("DELETE", "/truth")

    def _ask(self, method: str, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path)
            return connection.getresponse().read()
        finally:
            connection.close()


@contextmanager
def running_metronome(
    first_s: float = 0.05, interval_s: float = 0.0054, service_s: float | None = None
) -> Iterator[RunningMetronome]:
    """A metronome of our own on a free port."""
    command = [sys.executable, "-m", "inferometer.simulator.metronome", "--port", "0"]
    command += ["--first", f"{first_s!r}s", "--interval", f"{interval_s!r}s"]
    command += [] if service_s is None else ["--service", f"{service_s!r}s"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    try:
        line = child.stdout.readline()
        if not line:
            raise TargetError(f"the metronome did not start, exit code {child.wait(PATIENCE_S)}")
        yield RunningMetronome(json.loads(line)["port"], child.pid)
    finally:
        child.stdin.close()  # it ends when nobody holds the other end
        child.stdout.close()
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
