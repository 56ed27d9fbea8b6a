"""Locks of GPUs and endpoints: what excludes what, and the message for the second run."""

import os
import stat
import threading
from pathlib import Path

import pytest

from inferometer.errors import InferometerError, TargetError
from inferometer.plan.model import Server
from inferometer.record.environment import GpuDevice, GpuDriver
from inferometer.target.lock import endpoint_claims, gpu_claims, held, reserved_port


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("INFEROMETER_LOCKS", str(tmp_path / "locks"))


def names(server, **environ):
    return [claim.name for claim in gpu_claims(Server(**server), environ)]


def refusal(claims):
    with pytest.raises(TargetError) as caught, held(claims, "another"):
        pass
    return caught.value


def test_which_gpus_a_server_uses() -> None:
    engine = {"type": "vllm", "model": "m"}
    assert names(engine) == ["gpus"]
    assert names(engine, CUDA_VISIBLE_DEVICES="1,0") == ["gpus", "gpu-0", "gpu-1"]
    assert names(engine, CUDA_VISIBLE_DEVICES="-1") == names(engine, CUDA_VISIBLE_DEVICES="") == []
    assert names({"type": "simulator"}) == names({"type": "external", "url": "http://h"}) == []
    assert names({"type": "container", "image": "x", "gpus": "2"}) == ["gpus", "gpu-2"]
    assert names({"type": "container", "image": "x", "gpus": "none"}) == []


def test_all_gpus_exclude_each_and_two_different_ones_get_along() -> None:
    every = gpu_claims(Server(type="vllm", model="m"), {})
    first, second = (gpu_claims(Server(type="vllm", model="m"), {"CUDA_VISIBLE_DEVICES": n}) for n in "01")
    with held(first, "run one"), held(second, "run two"):
        with (
            pytest.raises(TargetError, match=r"GPU 0: in use by run one \(pid \d+, since [-\d]+ [:\d]+\)"),
            held(first, "x"),
        ):
            pass
        with pytest.raises(TargetError, match=r"all GPUs of this host: in use by run one"), held(every, "x"):
            pass
    with held(every, "run all"):
        refused = refusal(first)
    assert refused.message.startswith("all GPUs of this host: in use by run all")
    assert "--wait-for-target" in refused.hint and "server.exclusive=false" in refused.hint


def test_a_gpu_is_one_whether_by_number_or_by_uuid(monkeypatch):
    gpus = [GpuDevice(index=number, uuid=f"GPU-{number}f00-{number}bad") for number in range(2)]
    monkeypatch.setattr("inferometer.target.lock.gpu_facts", lambda: GpuDriver(gpus=gpus))
    engine = {"type": "vllm", "model": "m"}
    assert names(engine, CUDA_VISIBLE_DEVICES="GPU-1f00-1bad,0") == ["gpus", "gpu-0", "gpu-1"]
    assert names(engine, CUDA_VISIBLE_DEVICES="GPU-0f") == ["gpus", "gpu-0"]  # the beginning is enough
    assert names(engine, CUDA_VISIBLE_DEVICES="GPU-") == ["gpus", "gpu-GPU-"]  # unless it fits several
    monkeypatch.setattr("inferometer.target.lock.gpu_facts", lambda: None)
    assert names(engine, CUDA_VISIBLE_DEVICES="GPU-0f") == ["gpus", "gpu-GPU-0f"]


def test_locks_are_for_all_users_of_a_machine(tmp_path: Path, monkeypatch):
    """Whatever the umask: another user has to be able to take them, and must not be able to delete them."""
    folder = tmp_path / "shared"
    monkeypatch.setenv("INFEROMETER_LOCKS", str(folder))
    before = os.umask(0o077)
    try:
        with held(endpoint_claims(["http://h:1"]), "run one"):
            (file,) = folder.iterdir()
            assert stat.S_IMODE(file.stat().st_mode) == 0o666
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InferometerError, match="locking is not possible"), held(endpoint_claims(["http://h:1"]), "x"):
        pass
    assert not (tmp_path / "elsewhere").exists()
    monkeypatch.setenv("INFEROMETER_LOCKS", str(tmp_path / "none" / "below"))
    with (
        pytest.raises(InferometerError, match="locking is not possible") as refused,
        reserved_port("127.0.0.1", None, "x"),
    ):
        pass
    assert "INFEROMETER_LOCKS=FOLDER" in refused.value.hint


def test_an_endpoint_is_one_whatever_it_is_called() -> None:
    (one,) = endpoint_claims(["http://127.0.0.1:8000/v1", "http://localhost:8000"])
    (other,) = endpoint_claims(["https://Api.example.com/x"])
    assert (one.what, other.what) == ("localhost:8000", "api.example.com:443")
    with held([one], "run one"), held([other], "run two"):
        refused = refusal([one])
    assert refused.message.startswith("localhost:8000: in use by run one")
    with held([one], "again"):
        pass


def test_a_wait_ends_when_the_holder_lets_go() -> None:
    claims = endpoint_claims(["http://h:1"])
    said, let_go, has = [], threading.Event(), threading.Event()

    def hold() -> None:
        with held(claims, "run one"):
            has.set()
            let_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has.wait()

    def heard(text):
        said.append(text)
        let_go.set()

    with held(claims, "run two", wait_s=30, notify=heard):
        pass
    thread.join()
    assert said[0].startswith("waiting for h:1: it is in use by run one")


def test_a_wait_that_is_too_short() -> None:
    claims = endpoint_claims(["http://h:1"])
    with held(claims, "run one"), pytest.raises(TargetError, match="still after 50 ms"), held(claims, "x", wait_s=0.05):
        pass


def test_free_ports_are_different_and_not_those_of_connections() -> None:
    with reserved_port("127.0.0.1", None, "a") as one, reserved_port("127.0.0.1", None, "b") as two:
        assert one != two
        assert min(one, two) >= 10_000 and max(one, two) < 32_768
