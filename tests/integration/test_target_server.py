"""Servers that we start: awaited, watched, and ended with all their children."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inferometer.errors import PlanError, TargetError
from inferometer.plan.model import Server, Target
from inferometer.target.probe import probe
from inferometer.target.server import Launch, StartedServer, launch_of, started
from inferometer.target.simulator import ready


def python(code):
    return Launch("the server", [sys.executable, "-c", code], ready)


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def eventually(condition, within_s=15.0):
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_the_simulator_is_started_measured_and_ended(tmp_path):
    with started(Server(type="simulator", args={"model": "tiny"}), tmp_path) as server:
        facts = probe(Target(url=server.url))
        assert facts.model == "tiny"
        server.check()
        assert alive(server.pid)
    assert not alive(server.pid)
    assert '"port"' in (tmp_path / "server.log").read_text()


def test_it_ends_when_the_run_fails(tmp_path):
    with pytest.raises(RuntimeError), started(Server(), tmp_path) as server:
        raise RuntimeError
    assert not alive(server.pid)


def test_wrong_settings_are_mistakes_of_the_plan(tmp_path):
    with pytest.raises(PlanError) as caught, started(Server(args={"blocks": -1, "speed": "x"}), tmp_path):
        pass
    first, second = caught.value.mistakes
    assert first.startswith("server.args.blocks must be ")
    assert first.endswith(", got -1")
    assert second.startswith("server.args.speed must be ")


def test_a_server_that_ends_at_once(tmp_path):
    server = StartedServer(python("import sys; sys.exit('no GPU here')"), tmp_path / "server.log")
    try:
        with pytest.raises(TargetError) as caught:
            server.await_ready()
    finally:
        server.end()
    told = "the server ended with exit status 1 before it was ready, the end of its log:\n  no GPU here"
    assert caught.value.message == told
    assert caught.value.hint == f"the whole log: {tmp_path / 'server.log'}"


def test_a_server_that_is_never_ready(tmp_path):
    server = StartedServer(python("print('thinking', flush=True); input()"), tmp_path / "server.log")
    try:
        with pytest.raises(TargetError, match="was not ready within 50 ms"):
            server.await_ready(0.05)
    finally:
        server.end()
    assert not alive(server.pid)


def test_a_server_that_dies_later_is_noticed(tmp_path):
    code = "print('{\"port\": 1}', flush=True); input(); print('out of memory', flush=True)"
    server = StartedServer(python(code), tmp_path / "server.log")
    try:
        server.await_ready()
        assert server.url == "http://127.0.0.1:1"
        server.check()
        server._process.stdin.write(b"go\n")
        server._process.stdin.flush()
        server._process.wait()
        server._pump.join()
        with pytest.raises(TargetError, match=r"ended with exit status 0, the end of its log:\n.*\n  out of memory"):
            server.check()
    finally:
        server.end()


def test_children_and_stubborn_servers_are_ended_too(tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.target.server.ENDING_S", 0.2)
    code = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        'print(\'{"port": 1, "url": "%d"}\' % child.pid, flush=True)\n'
        "signal.pause()"
    )
    server = StartedServer(python(code), tmp_path / "server.log")
    server.await_ready()
    child = int(server.url)
    assert alive(child)
    server.end()
    assert not alive(server.pid)
    assert eventually(lambda: not alive(child))


def test_the_simulator_ends_when_we_are_killed(tmp_path):
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from inferometer.plan.model import Server\n"
        "from inferometer.target.server import started\n"
        "with started(Server(), Path(sys.argv[1])) as server:\n"
        "    print(server.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    assert eventually(lambda: not alive(pid))


def test_a_command_that_does_not_exist(tmp_path):
    with pytest.raises(TargetError, match="could not be started"):
        StartedServer(Launch("it", [os.fspath(tmp_path / "nothing")], ready), tmp_path / "server.log")


def test_an_unknown_kind_names_the_known_ones():
    with pytest.raises(PlanError, match="one of simulator, got abacus"):
        launch_of(Server.model_construct(type="abacus"))
