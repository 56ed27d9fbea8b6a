"""The metronome as child processes: started, asked for their truth, and ended with the one who started them."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from inferometer.errors import TargetError
from inferometer.simulator.metronome_truth import Truth
from inferometer.wire.child import python_command

PATIENCE_S = 60.0  # to answer, and to end


CORES_TO_SHARE = 4  # from as many on, two metronomes share the port; with fewer they would take the client's


@dataclass(frozen=True, slots=True)
class RunningMetronome:
    """Where it listens. Ask for the truth when the load is over: writing it out takes its time."""

    port: int
    pids: tuple[int, ...]
    own_ports: tuple[int, ...]  # of each process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def truth(self) -> Truth:
        return Truth.together([Truth.read(answer) for answer in self._ask_each("GET")])

    def forget(self) -> None:
        """Begin a new truth."""
        self._ask_each("DELETE")

    def _ask_each(self, method: str) -> list[bytes]:
        return [_asked(port, method, "/truth") for port in self.own_ports]


def _asked(port: int, method: str, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        return connection.getresponse().read()
    finally:
        connection.close()


def processes_for(service_s: float | None) -> int:
    """Two where there are cores for them and Linux deals clients out; a queue for one server cannot be shared."""
    linux = sys.platform.startswith("linux")
    return 2 if linux and service_s is None and (os.cpu_count() or 1) >= CORES_TO_SHARE else 1


@contextmanager
def running_metronome(
    first_s: float = 0.05, interval_s: float = 0.0054, service_s: float | None = None, processes: int | None = None
) -> Iterator[RunningMetronome]:
    """A metronome of our own on a free port; of so many processes, or as many as the machine has room for."""
    count = processes_for(service_s) if processes is None else processes
    words = ["--first", f"{first_s!r}s", "--interval", f"{interval_s!r}s"]
    words += [] if service_s is None else ["--service", f"{service_s!r}s"]
    with ExitStack() as stack:
        port, started = 0, []
        for number in range(count):
            started.append(stack.enter_context(_process([*words, "--port", str(port), "--number", str(number)])))
            port = started[0]["port"]
        yield RunningMetronome(
            port, tuple(each["pid"] for each in started), tuple(each["own_port"] for each in started)
        )


@contextmanager
def _process(words: list[str]) -> Iterator[dict[str, int]]:
    """One of them, and what it says of itself; it ends when nobody holds the other end of its stdin."""
    command = python_command("inferometer.simulator.metronome", *words)
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    try:
        line = child.stdout.readline()
        if not line:
            raise TargetError(f"the metronome did not start, exit code {child.wait(PATIENCE_S)}")
        yield json.loads(line)
    finally:
        child.stdin.close()
        child.stdout.close()
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
