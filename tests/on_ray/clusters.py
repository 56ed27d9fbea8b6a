"""Ray clusters to start, processes to look for, and commands to run against both."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

SHIFT_S = 5000  # by which the monotonic clock of a shifted node runs ahead


def may_shift_clocks() -> bool:
    """Whether this user may make a time namespace: a node in one has a monotonic clock of its own."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "--time", "--fork", "--monotonic", "1", "true"], capture_output=True)
    return tried.returncode == 0


@dataclass
class Nodes:
    """A head, and nodes that were started by the command line, each of which can be killed on its own."""

    address: str
    head: Any
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add(self, *, shifted: bool = False, environ: Mapping[str, str] | None = None, cores: int = 2) -> Any:
        """Ray gives a raylet 30 s to start, and ends it if that was not enough."""
        before = alive_nodes(self.address)
        for _ in range(3):
            process = self._start(shifted, environ, cores)
            came = eventually(lambda: alive_nodes(self.address) > before or process.poll() is not None, 180)  # noqa: B023
            if came and process.poll() is None:
                return process
        raise AssertionError("the node did not start")

    def _start(self, shifted: bool, environ: Mapping[str, str] | None, cores: int) -> "subprocess.Popen[bytes]":
        time_ns = ["unshare", "--time", "--fork", "--kill-child", "--monotonic", str(SHIFT_S), "--boottime", "1"]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--address", self.address, "--block"]
        process = subprocess.Popen(
            [*(time_ns if shifted else []), *ray, "--num-cpus", str(cores), "--disable-usage-stats"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environ or {})},
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def end(self, process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
        for pid in [*descendants(process.pid), process.pid]:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def alive_nodes(address: str) -> int:
    raylet: Any = import_module("ray._raylet")
    nodes = raylet.GcsClient(address=address).get_all_node_info().values()
    return sum(1 for node in nodes if node.state == 0)


@contextmanager
def cluster(cores: int = 2) -> Iterator[Nodes]:
    head = started_head(cores)
    nodes = Nodes(head.address, head)
    try:
        yield nodes
    finally:
        import ray

        ray.shutdown()
        for process in nodes.started:
            nodes.end(process)
        head.shutdown()


def started_head(cores: int) -> Any:
    """Ray gives a raylet 30 s to start, which a busy machine may not make at the first try."""
    from ray.cluster_utils import Cluster

    others = {*descendants(os.getpid())}
    for _ in range(3):
        head = Cluster()
        try:
            head.add_node(num_cpus=cores, include_dashboard=False)
        except Exception as error:  # a plain one
            head.shutdown()
            for pid in {*descendants(os.getpid())} - others:  # of a node that did not come as far as to be known
                os.kill(pid, signal.SIGKILL)
            why = error
        else:
            return head
    raise AssertionError("no cluster") from why


def eventually(holds: Callable[[], bool], within_s: float = 20.0) -> bool:
    end_at = time.monotonic() + within_s
    while time.monotonic() < end_at:
        if holds():
            return True
        time.sleep(0.05)
    return holds()


# -- processes -------------------------------------------------------------------------------------------------------


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    children = [child for child, parent in _parents().items() if parent == pid]
    return [*(below for child in children for below in descendants(child)), *children]


def _parents() -> dict[int, int]:
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    return parents


def workers() -> dict[int, list[str]]:
    """The load processes of this environment, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "inferometer.scale.worker" in command and command[0] == sys.executable and is_alive(int(folder.name)):
            found[int(folder.name)] = command
    return found


def actor_of(worker: int) -> int:
    """The process of the actor that started a load process."""
    return _parents()[worker]


def raylet_of(worker: int) -> int:
    return _parents()[actor_of(worker)]


# -- commands --------------------------------------------------------------------------------------------------------


def inferometer(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "inferometer", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
