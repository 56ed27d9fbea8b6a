"""Servers in containers, over a stand-in for docker whose containers are real processes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_engines import ENGINE, alive, eventually

from inferometer.errors import TargetError
from inferometer.plan.model import Server
from inferometer.target.server import running

HERE = Path(__file__).parent
DIGEST = "sha256:c0ffee"


@pytest.fixture(autouse=True)
def docker(tmp_path: Path, monkeypatch):
    """The folder in which the stand-in keeps its containers."""
    home, programs = tmp_path / "docker", tmp_path / "bin"
    home.mkdir()
    programs.mkdir()
    shutil.copy(HERE / "fake_docker.py", programs / "docker")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(home))
    monkeypatch.setenv("FAKE_IMAGE", str(ENGINE))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INFEROMETER_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    return home


def container(*habits, **more):
    settings = {"image": "mine/engine:1", "command": ["--port", "{port}", *habits], "ready": "15s", "grace": "1s"}
    return Server(type="container", **settings | more)


def calls(docker):
    return [json.loads(line) for line in (docker / "calls").read_text().splitlines()]


def test_one_is_started_followed_and_removed_by_its_id(tmp_path: Path, docker):
    with running(container(env={"LEVEL": "debug", "MY_TOKEN": "${HF_TOKEN}"}), tmp_path) as server:
        facts = server.facts
        (place,) = docker.glob("c*/")
        about = json.loads((place / "about").read_text())
        assert alive(about["pid"])
    assert not alive(about["pid"])
    assert not list(docker.glob("c*/"))
    assert facts.container == place.name
    assert (facts.digest, facts.image, facts.engine) == (DIGEST, "mine/engine:1", "docker")
    assert "engine " in (tmp_path / "server.log").read_text()
    assert about["env"] == {"HF_TOKEN": "hf_verysecret", "LEVEL": "debug", "MY_TOKEN": "hf_verysecret"}
    started = next(call for call in calls(docker) if call[0] == "run")
    assert "hf_verysecret" not in json.dumps(started) and "hf_verysecret" not in str(facts)
    assert {"--gpus", "--ipc", "--volume", "--publish", "--label"} <= set(started)


def test_what_preparation_hands_on_is_in_its_environment(tmp_path: Path, docker):
    step = "echo URI=/tmp/model >> $INFEROMETER_ENV"
    with running(container(prepare=step), tmp_path):
        (place,) = docker.glob("c*/")
        assert json.loads((place / "about").read_text())["env"]["URI"] == "/tmp/model"


def test_one_that_ends_says_why(tmp_path: Path, docker):
    with pytest.raises(TargetError) as caught, running(container("exits"), tmp_path):
        pass
    assert caught.value.message.startswith("the container mine/engine:1 ended with exit status 1 before it was ready")
    assert caught.value.message.endswith("  no GPU here")
    assert not list(docker.glob("c*/"))


def test_one_that_the_engine_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(TargetError) as caught, running(container(image="broken"), tmp_path):
        pass
    assert caught.value.message.startswith("the container was not started: docker: Error response from daemon: could")
    assert "nvidia container toolkit" in caught.value.hint


PARENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_serve_containers import container
from inferometer.target.server import running
with running(container(), Path(sys.argv[1])) as server:
    print(server.facts.container, flush=True)
    sys.stdin.read()
"""


def test_after_we_were_killed_the_next_start_removes_it(tmp_path: Path, docker):
    folder = tmp_path / "first"
    folder.mkdir()
    command = [sys.executable, "-c", PARENT, str(folder), str(HERE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        name = parent.stdout.readline().decode().strip()
        parent.kill()
    pid = json.loads((docker / name / "about").read_text())["pid"]
    assert alive(pid)
    said: list[Any] = []
    with running(container(), tmp_path, notify=said.append):
        assert eventually(lambda: not alive(pid))
        assert not (docker / name).exists()
    assert f"container {name[:12]}" in said[0]
