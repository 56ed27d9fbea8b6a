"""Clusters that cannot be used, and nodes that fail: a clear message, and delivered records are kept."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from clusters import Nodes, cluster, eventually, workers

from inferometer.conduct.run import run
from inferometer.errors import PlanError, TargetError
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from


@pytest.fixture(scope="module")
def small() -> Iterator[Nodes]:
    with cluster(cores=1) as nodes:
        yield nodes


def plan(url: str, address: str, workers: int = 2, timeout: str = "5min", **sections: object) -> Plan:
    usual = {
        "target": {"url": url},
        "workload": {"input_tokens": 16, "output_tokens": 4},
        "load": {"type": "poisson", "rate": 60},
        "stop": {"requests": 100},
        "observe": {"metrics": "off", "host": False},
        "place": "ray",
        "ray": {"address": address, "timeout": timeout},
        "workers": workers,
    }
    return plan_from(usual | sections)


def test_a_cluster_without_free_cores(url: str, small: Nodes, store: Path) -> None:
    with pytest.raises(PlanError, match=r"no room for 5 workers within 2 s: each needs a core") as caught:
        run(plan(url, small.address, 5, "2s"), store=store)
    assert "--workers" in (caught.value.hint or "")
    assert not workers()
    assert not list(store.glob("runs/*"))


def test_an_address_that_does_not_answer(url: str, store: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(TargetError, match=f"Ray at {address} does not answer"):
            run(plan(url, address), store=store)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"])
def test_an_address_where_something_else_listens(url: str, store: Path, answer: bytes) -> None:
    """Ray itself would try for many minutes: to somebody who says nothing, and to a web server."""
    with socket.create_server(("0.0.0.0", 0)) as listening:

        def serve() -> None:
            with suppress(OSError), listening.accept()[0] as connection:
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 10):
                    pass

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(TargetError, match=f"Ray at {address} does not answer: what listens there is no Ray"):
            run(plan(url, address), store=store)


def test_an_address_that_is_none(url: str, store: Path) -> None:
    with pytest.raises(PlanError, match=r"the address of a Ray cluster must be host:port, got nowhere"):
        run(plan(url, "nowhere"), store=store)


def test_a_ray_of_another_version(url: str, small: Nodes, store: Path) -> None:
    import ray

    ray.shutdown()
    with head_of_version(small.address, "2.1.0"), pytest.raises(PlanError, match=r"ersion mismatch.*2\.1\.0") as caught:
        run(plan(url, small.address), store=store)
    assert caught.value.hint == "install the cluster's versions of Ray and Python here"
    assert not workers() and not list(store.glob("runs/*"))


@contextmanager
def head_of_version(address: str, version: str) -> Iterator[None]:
    """What a head stored of its version when it started is changed: every driver reads it when it connects."""
    client: Any = import_module("ray._raylet").GcsClient(address=address)
    key = import_module("ray._common.usage.usage_constants").CLUSTER_METADATA_KEY
    namespace = import_module("ray._private.ray_constants").KV_NAMESPACE_CLUSTER
    stored = client.internal_kv_get(key, namespace=namespace)
    other = json.dumps(json.loads(stored) | {"ray_version": version}).encode()
    client.internal_kv_put(key, other, overwrite=True, namespace=namespace)
    try:
        yield
    finally:
        client.internal_kv_put(key, stored, overwrite=True, namespace=namespace)


def test_a_node_without_room_on_its_disk(url: str, small: Nodes, store: Path, tmp_path: Path) -> None:
    """The shard there ends with a message, the others go on, and all that was written is kept."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    node = small.add(environ={"INFEROMETER_NODE_FOLDER": str(disk)}, cores=1)
    try:
        made = run(plan(url, small.address, load={"rate": 150}, stop={"requests": 1200}), store=store)
    finally:
        small.end(node)
        subprocess.run(["umount", str(disk)], check=True)
    assert made.verdict is not None
    (doubt,) = [doubt for doubt in made.verdict.doubts if doubt.code == "worker_lost"]
    assert "no space left on device" in doubt.text
    delivery = made.summary.delivery
    assert delivery is not None
    (lost,) = [worker for worker in delivery.workers if worker.status == "lost"]
    assert lost.arrivals is not None and lost.planned is not None and 0 < lost.arrivals < lost.planned
    assert eventually(lambda: not workers())


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with Ray and all that we depend on, but without us: our own is found by a file that is read only in the
    folder of an environment."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")
    imports = "import ray, msgspec; import inferometer"
    missing = subprocess.run([folder / "bin/python", "-c", imports], capture_output=True)
    assert b"No module named 'inferometer'" in missing.stderr, missing.stderr
    return folder / "bin/python"


def test_nodes_that_lack_our_package_are_told(url: str, bare: Path, store: Path) -> None:
    with bare_cluster(bare) as address, pytest.raises(PlanError, match="lack Inferometer") as caught:
        run(plan(url, address, 1), store=store)
    assert "ray.wheel" in (caught.value.hint or "")


def test_a_cluster_that_wants_a_token(url: str, bare: Path, store: Path) -> None:
    with bare_cluster(bare, "token") as address, pytest.raises(TargetError, match="wants a token") as caught:
        run(plan(url, address, 1), store=store)
    assert "RAY_AUTH_MODE=token" in (caught.value.hint or "")


@pytest.mark.skipif(not os.environ.get("INFEROMETER_WHEEL"), reason="INFEROMETER_WHEEL names no wheel: make build")
def test_nodes_that_lack_our_package_get_it(url: str, bare: Path, store: Path) -> None:
    wheel = os.environ["INFEROMETER_WHEEL"]
    with bare_cluster(bare) as address:
        made = run(plan(url, address, 1, ray={"address": address, "wheel": wheel}), store=store)
    assert made.state == "complete"
    assert made.summary.outcomes["ok"] == 100


class bare_cluster:  # noqa: N801 - a context manager
    """A cluster of one node, started by a Python without us; what is wanted of it comes with the job."""

    def __init__(self, python: Path, auth: str = "disabled") -> None:
        self._auth = auth
        self._command = [str(python), "-m", "ray.scripts.scripts", "start", "--head", "--port", "0", "--num-cpus", "2"]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> str:
        import ray

        ray.shutdown()
        for _ in range(3):  # Ray gives a raylet 30 s to start, which a busy machine may not make at the first try
            self._process = self._started()
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if "--address=" in line:
                    return line.partition("--address='")[2].partition("'")[0]
            Nodes("", None).end(self._process)
        raise AssertionError("no address")

    def _started(self) -> "subprocess.Popen[str]":
        command = [*self._command, "--block", "--disable-usage-stats", "--include-dashboard", "false"]
        environ = {**os.environ, "RAY_AUTH_MODE": self._auth, "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environ)

    def __exit__(self, *_: object) -> None:
        import ray

        ray.shutdown()
        assert self._process is not None
        Nodes("", None).end(self._process)
