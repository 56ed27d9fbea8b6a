"""Servers in real containers of docker and podman: what is tested with a stand-in in `make test`, once for real.

The image is empty. The simulator and the Python that it needs come from this machine, as volumes.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import inferometer
from inferometer.conduct.run import run
from inferometer.errors import TargetError
from inferometer.plan.reading import plan_from
from inferometer.target.server import running

pytestmark = pytest.mark.engines

IMAGE = "inferometer-empty:1"
HERE = Path(__file__).parent
NEEDED = ("/usr", "/lib", "/lib64", sys.base_prefix, sys.prefix, str(Path(inferometer.__file__).parents[2]))
SIMULATE = [sys.executable, "-m", "inferometer", "simulate", "--serve", "--host", "0.0.0.0", "--port", "{port}"]


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request) -> Iterator[str]:
    """One that starts containers here, with our image in it."""
    name = request.param
    if shutil.which(name) is None or subprocess.run([name, "info"], capture_output=True, check=False).returncode:
        pytest.skip(f"{name} does not run here")
    subprocess.run([name, "import", "-", IMAGE], input=empty_image(), capture_output=True, check=True)
    try:
        started = subprocess.run(alone(name), capture_output=True, text=True, check=False)
        if started.returncode:  # of its own, without us: a machine may not let it
            pytest.skip(f"{name} starts no container here: {started.stderr.strip()}")
        yield name
    finally:
        subprocess.run([name, "rmi", "--force", IMAGE], capture_output=True, check=True)


def alone(engine):
    """The smallest container that there is, by the engine's own command."""
    mounts = [word for folder in folders() for word in ("--volume", f"{folder}:{folder}:ro")]
    return [engine, "run", "--rm", "--network", "none", *mounts, IMAGE, sys.executable, "-c", ""]


def folders():
    return [folder for folder in dict.fromkeys(NEEDED) if Path(folder).is_dir()]


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INFEROMETER_LOCKS", str(tmp_path / "locks"))


def empty_image() -> bytes:
    """A file system with nothing but a folder to start in."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o777
        archive.addfile(folder)
    return packed.getvalue()


def container(engine, command=SIMULATE):
    return {
        "type": "container",
        "engine": engine,
        "image": IMAGE,
        "pull": "never",
        "gpus": "none",
        "volumes": [f"{folder}:{folder}:ro" for folder in folders()],
        "env": {"HOME": "/tmp", "MY_TOKEN": "${MY_TOKEN}"},
        "command": command,
        "ready": "60s",
        "grace": "5s",
    }


def server_of(engine, *command):
    return plan_from({"server": container(engine, list(command) or SIMULATE), "target": {}}).server


def there(engine, name):
    said = subprocess.run([engine, "ps", "--all", "--quiet", "--no-trunc"], capture_output=True, text=True, check=True)
    return name in said.stdout.split()


def test_a_run_against_one(engine: str, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "verysecret")
    plan = {"server": container(engine), "load": {"concurrency": 4}, "stop": {"requests": 20}}
    kept = run(plan_from(plan), store=tmp_path)
    assert kept.summary.outcomes == {"ok": 20}
    facts = kept.environment.server
    assert (facts.engine, facts.image) == (engine, IMAGE)
    assert facts.image_id and not there(engine, facts.container)
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "server.log").stat().st_size
    assert not [file for file in folder.rglob("*") if file.is_file() and b"verysecret" in file.read_bytes()]


def test_the_environment_reaches_it_and_its_log_reaches_us(engine: str, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "verysecret")
    says = [sys.executable, "-c", "import os, sys; sys.exit('the token is ' + os.environ['MY_TOKEN'][:4])"]
    with pytest.raises(TargetError) as caught, running(server_of(engine, *says), tmp_path):
        pass
    assert f"the container {IMAGE} ended with exit status 1 before it was ready" in caught.value.message
    assert "the token is very" in caught.value.message


def test_one_that_is_not_there(engine: str, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "x")
    wanted = plan_from({"server": container(engine) | {"image": "inferometer-absent:1"}, "target": {}}).server
    with (
        pytest.raises(TargetError, match=r"the container was not started: .*inferometer-absent"),
        running(wanted, tmp_path),
    ):
        pass


PARENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_containers import server_of
from inferometer.target.server import running
with running(server_of(sys.argv[1]), Path(sys.argv[2])) as server:
    print(server.facts.container, flush=True)
    sys.stdin.read()
"""


def test_after_we_were_killed_the_next_start_removes_it(engine: str, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "x")
    folder = tmp_path / "first"
    folder.mkdir()
    command = [sys.executable, "-c", PARENT, engine, str(folder), str(HERE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ) as parent:
        name = parent.stdout.readline().decode().strip()
        parent.kill()
    assert there(engine, name)
    said: list[Any] = []
    with running(server_of(engine), tmp_path, notify=said.append):
        assert not there(engine, name)
    assert f"container {name[:12]}" in said[0]
