"""The image of deploy/Dockerfile, started as a pod starts it: without root, with a read-only root file system, without
capabilities. Only with INFEROMETER_IMAGES, the folder of deploy/build-image.sh: `make test-image`."""

import json
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import inferometer
from inferometer.store.folder import load_run

FOLDER = os.environ.get("INFEROMETER_IMAGES", "")
DEPLOY = Path(__file__).parents[2] / "deploy"
USER = 1000
LOAD = {"load": {"concurrency": 2}, "stop": {"requests": 20}, "workload": {"input_tokens": 20, "output_tokens": 5}}
AS_A_POD = ("--rm", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges")

pytestmark = pytest.mark.skipif(not FOLDER, reason="INFEROMETER_IMAGES is not set: needs the image")


def started(*words: str, options: tuple[str, ...] = ()) -> list[str]:
    """A command that starts a container in the network of this machine."""
    limits = [f"--ulimit={name}={_allowed(name)}" for name in ("nofile", "nproc")]  # podman's own may be above ours
    return ["podman", "run", *AS_A_POD, "--network", "host", *limits, *options, "localhost/inferometer", *words]


def _allowed(name: str) -> str:
    most = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
    most = 4096 if most == resource.RLIM_INFINITY else min(most, 4096)
    return f"{most}:{most}"


def settings() -> dict[str, str]:
    names = {"STORAGE": "storage", "REGISTRIES": "registries"}
    known = {f"CONTAINERS_{name}_CONF": f"{FOLDER}/{file}.conf" for name, file in names.items()}
    return {**os.environ, **known, "CONTAINERS_CONF": f"{FOLDER}/containers.conf"}


def ended(*words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(started(*words, options=options), env=settings(), capture_output=True, text=True, timeout=300)


def in_shell(script: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return ended("-c", script, options=("--entrypoint", "sh", *options))


@pytest.fixture(scope="module")
def simulator() -> Iterator[str]:
    """The address of one that the image serves, as `k8s up --server simulator` starts it."""
    words = ("-m", "inferometer.simulator", "--host", "127.0.0.1", "--port", "0", "--settings", '{"speed": 20}')
    command = started(*words, options=("--entrypoint", "python"))
    with subprocess.Popen(command, env=settings(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """What belongs to the user of the pod, as with its fsGroup."""
    folder = tmp_path / "volume"
    folder.mkdir()
    os.chown(folder, USER, USER)
    return folder


def test_it_says_its_version_and_help() -> None:
    assert ended("--version").stdout.strip().endswith(inferometer.__version__)
    assert "inferometer worker" in ended("worker", "--help").stdout


def test_it_has_no_root_and_writes_nowhere_but_to_its_volumes() -> None:
    told = in_shell(
        "id -u; touch /opt/here /usr/here; touch /data/here /tmp/here && echo kept; grep CapEff /proc/1/status"
    )
    assert told.stdout.split() == [str(USER), "kept", "CapEff:", "0" * 16]
    assert told.stderr.count("Read-only file system") == 2


def test_it_reads_streams_with_the_compiled_reader() -> None:
    told = in_shell("python -c 'from inferometer.wire import _reader; print(_reader.__file__)'")
    assert told.stdout.strip().endswith(".so"), told.stderr


def test_a_worker_measures_and_keeps_its_run(simulator: str, volume: Path, tmp_path: Path) -> None:
    folder = planned(tmp_path, simulator)
    mounts = ("-v", f"{folder}:/workspace/profiles/inference-perf:ro", "-v", f"{volume}:/requests", "-e", "HOME=/tmp")
    words = ("worker", "--plan", "/workspace/profiles/inference-perf/plan.yaml", "--results", "/requests/first")
    told = ended(*words, options=mounts)
    assert told.returncode == 0, told.stderr
    kept = next(volume.glob("first/store/runs/*-*"))
    run = load_run(kept)
    assert (run.state, run.summary.outcomes["ok"]) == ("complete", 20)
    assert kept.stat().st_uid == USER


def test_the_script_of_the_nightly_job(simulator: str, volume: Path, tmp_path: Path) -> None:
    folders = {planned(tmp_path, simulator): "/plan:ro", DEPLOY / "kustomize/base": "/script:ro", volume: "/data"}
    mounts = tuple(word for folder, place in folders.items() for word in ("-v", f"{folder}:{place}"))
    told = ended("/script/benchmark.sh", options=(*mounts, "-e", "JOB=nightly", "--entrypoint", "sh"))
    assert told.returncode in (0, 1, 4), told.stderr  # 4: busy cores
    assert "TTFT" in told.stdout
    assert [load_run(folder).state for folder in volume.glob("runs/*-*")] == ["complete"]


def planned(folder: Path, url: str) -> Path:
    made = folder / "plan"
    made.mkdir()
    plan: dict[str, Any] = {**LOAD, "target": {"url": url}, "observe": {"host": False}}
    (made / "plan.yaml").write_text(yaml.safe_dump(plan))
    return made
