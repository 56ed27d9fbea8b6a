"""Servers that we start: waited for, watched, and stopped with all their children, however they behave."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from small_engines import alive, engine, eventually, running_with

from inferometer.errors import PlanError, TargetError
from inferometer.plan.model import Server, Target
from inferometer.target.probe import probe
from inferometer.target.server import running

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INFEROMETER_LOCKS", str(tmp_path / "locks"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path / "state"


def pids(log, word="child"):
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith(f"{word} ")]


def logged(log):
    """The children it told of; what it prints is written by a process of its own, a moment later."""
    assert eventually(lambda: pids(log))
    return pids(log)


def refused(server, folder, **more):
    with pytest.raises(TargetError) as caught, running(server, folder, **more):
        pass
    return caught.value


def test_the_simulator_is_started_measured_and_ended(tmp_path: Path) -> None:
    with running(Server(type="simulator", args={"model": "tiny"}), tmp_path) as server:
        assert probe(Target(url=server.url)).model == "tiny"
        server.check()
        assert alive(server.pid)
        facts = server.facts
    assert not alive(server.pid)
    assert '"port"' in (tmp_path / "server.log").read_text()
    assert (facts.type, facts.model, facts.pid) == ("simulator", "tiny", server.pid)
    assert 0 < facts.ready_s < 60
    assert facts.version


def test_any_command_gets_its_port_environment_folder_and_flags(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("WEIGHTS", "/models/7b")
    home = tmp_path / "work"
    home.mkdir()
    server = engine(env={"PLACE": "${WEIGHTS}", "AT": "{port}", "N": 3}, folder=str(home), args={"--model": "mine"})
    with running(server, tmp_path) as started:
        with urllib.request.urlopen(f"{started.url}/environment") as answer:
            seen = json.load(answer)
        assert started.model is None  # none was asked for: whatever is served
        assert started.facts.version == "9.8.7"
        assert started.facts.argv[-2:] == ["--model", "mine"]
    assert (seen["PLACE"], seen["N"], seen["cwd"]) == ("/models/7b", "3", str(home))
    assert started.url.endswith(f":{seen['AT']}")


def test_it_ends_when_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), running(engine(), tmp_path) as server:
        raise RuntimeError
    assert not alive(server.pid)
    assert "goodbye" in (tmp_path / "server.log").read_text()  # by INT, so that it could


def test_one_that_exits_at_once(tmp_path: Path) -> None:
    error = refused(engine("exits"), tmp_path)
    assert error.message.startswith("python")
    assert " ended with exit status 1 before it was ready, the end of its log:\n" in error.message
    assert error.message.endswith("\n  no GPU here")
    assert error.hint == f"the whole log: {tmp_path / 'server.log'}"


def test_one_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    error = refused(engine("never-ready", str(tmp_path), ready="500ms"), tmp_path)
    assert "was not ready within 500 ms (" in error.message
    assert not running_with(str(tmp_path))


def unready(url, folder):
    """What is told of a server that runs already, so that how fast it starts does not matter."""
    return refused(Server(type="external", url=url, ready="500ms"), folder)


def test_why_one_is_not_ready(tmp_path: Path) -> None:
    with running(engine("never-ready", ready={"path": "/ready"}), tmp_path) as server:
        error = unready(server.url, tmp_path)
    assert error.message.endswith("was not ready within 500 ms (/health answered with status 503)")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = unready(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
    assert "accepted the connection but did not answer" in error.message


def test_one_that_serves_another_model_is_an_error_that_names_both(tmp_path: Path) -> None:
    error = refused(engine("--model", "other", model="mine"), tmp_path)
    assert "but serves 'other' and not 'mine'" in error.message


def test_one_that_wants_a_key(tmp_path: Path, monkeypatch):
    assert "it needs an API key" in refused(engine("wants-key"), tmp_path).message
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    with running(engine("wants-key"), tmp_path) as server:
        assert server.ended() is None


def test_health_or_models_may_be_missing_but_not_both(tmp_path: Path) -> None:
    with running(engine("no-health"), tmp_path):
        pass
    with running(engine("silent-paths", ready={"path": "/ready"}), tmp_path) as server:
        error = unready(server.url, tmp_path)
    assert "neither /health nor /v1/models exists" in error.message
    assert "server.ready.path" in error.hint


def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    with running(engine(), tmp_path) as server:
        port = int(server.url.rpartition(":")[2])
        error = refused(engine(port=port), tmp_path)
    assert error.message == f"port {port} of 127.0.0.1 is already in use"


def test_one_that_ignores_signals_is_killed(tmp_path: Path) -> None:
    with running(engine("ignores-signals", grace="1s"), tmp_path) as server:
        pass
    assert not alive(server.pid)
    assert (tmp_path / "server.log").read_text().count("not yet") >= 1  # it was asked before


@pytest.mark.parametrize("habit", ["leaks-children", "leaks-session"])
def test_children_are_ended_too(tmp_path: Path, habit: str) -> None:
    with running(engine(habit), tmp_path):
        (child,) = logged(tmp_path / "server.log")
        assert alive(child)
    assert eventually(lambda: not alive(child))


def written(pid):
    return int(Path(f"/proc/{pid}/io").read_text().split()[3])


def test_a_flood_of_log_is_capped(tmp_path: Path) -> None:
    with running(engine("floods", log_limit="1M"), tmp_path) as server:
        log = tmp_path / "server.log"
        assert eventually(lambda: written(server.pid) > 8_000_000)
        assert alive(server.pid)
    text = log.read_text()
    assert 1_000_000 <= len(text) < 1_001_000
    assert "bytes left out ..." in text
    assert text.startswith("engine ")


def test_one_that_dies_later_is_noticed_and_explained(tmp_path: Path) -> None:
    with running(engine("dies-after-health"), tmp_path) as server:
        assert eventually(lambda: server.ended() is not None)
        with pytest.raises(
            TargetError, match=r"ended with exit status 7, the end of its log:\n(.*\n)*  CUDA out of"
        ) as told:
            server.check()
    assert "too little GPU memory" in told.value.hint


def test_wrong_settings_are_mistakes_of_the_plan(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught, running(Server(args={"blocks": -1, "speed": "x"}), tmp_path):
        pass
    first, second = caught.value.mistakes
    assert first.startswith("server.args.blocks must be ") and first.endswith(", got -1")
    assert second.startswith("server.args.speed must be ")


def test_a_program_that_is_not_here(tmp_path: Path) -> None:
    error = refused(Server(type="vllm", model="m", command=str(tmp_path / "vllm") + " serve"), tmp_path)
    assert error.message == f"vLLM could not be started: {tmp_path / 'vllm'} was not found"
    assert error.hint.startswith("pip install vllm")


def test_prepare_runs_before_it_and_hands_environment_on(tmp_path: Path) -> None:
    steps = [
        {"run": "echo one; echo FORMAT=tensorizer >> $INFEROMETER_ENV", "name": "pick a format"},
        [sys.executable, "-c", "import os; print('two', os.environ['FORMAT'], os.environ['MORE'])"],
    ]
    said: list[Any] = []
    server = engine(prepare=[steps[0], {"run": steps[1]}], env={"MORE": "x"})
    with (
        running(server, tmp_path, notify=said.append) as started,
        urllib.request.urlopen(f"{started.url}/environment") as answer,
    ):
        assert json.load(answer)["FORMAT"] == "tensorizer"
    assert (tmp_path / "prepare-1.log").read_text() == "one\n"
    assert (tmp_path / "prepare-2.log").read_text() == "two tensorizer x\n"
    assert said[0] == "prepare 1/2: pick a format"


def test_prepare_that_fails_or_takes_too_long(tmp_path: Path) -> None:
    error = refused(engine(prepare="echo no disk; exit 3"), tmp_path)
    told = "prepare: echo no disk; exit 3 ended with exit status 3, the end of its log:\n  no disk"
    assert error.message == told
    assert error.hint == f"the whole log: {tmp_path / 'prepare-1.log'}"
    error = refused(engine(prepare="echo export HF_TOKEN=hf_verysecretindeed0123456789; false"), tmp_path)
    assert "HF_TOKEN" in error.message and "verysecret" not in error.message
    forever = f"600.{os.getpid()}"
    slow = engine(prepare={"run": f"sleep {forever} & wait", "timeout": "500ms"})
    assert "took longer than 500 ms and was stopped" in refused(slow, tmp_path).message
    assert not running_with(forever)


PARENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from small_engines import engine
from inferometer.target.server import running
with running(engine(*sys.argv[3:]), Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""


def started_by_another(folder, *habits):
    """A process of ours that holds a server, and the server's number."""
    folder.mkdir()
    command = [sys.executable, "-c", PARENT, str(folder), str(HERE), *habits]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return parent, int(parent.stdout.readline())


def gone(parent):
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()


def test_after_we_were_killed_the_next_start_ends_what_is_left(tmp_path: Path, state: Path) -> None:
    parent, pid = started_by_another(tmp_path / "first", "leaks-session")
    (child,) = logged(tmp_path / "first" / "server.log")
    said: list[Any] = []
    with running(engine(), tmp_path, notify=said.append):
        assert alive(pid)  # its owner lives: it is none of our business
    parent.kill()
    gone(parent)
    assert alive(pid) and alive(child)
    with running(engine(), tmp_path, notify=said.append):
        assert not alive(pid) and not alive(child)
    (note,) = said
    assert note.startswith("stopped python") and f"pid {pid}" in note
    assert not list(state.rglob("servers/*.json"))


def test_a_number_that_is_somebody_elses_by_now_is_left_alone(tmp_path: Path, state: Path) -> None:
    parent, pid = started_by_another(tmp_path / "first")
    (entry,) = state.rglob("servers/*.json")
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    parent.kill()
    gone(parent)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not alive(pid))  # else it is found by its mark
    kept = json.loads(entry.read_text())
    entry.write_text(json.dumps(kept | {"pid": bystander.pid}))  # as if the number had been given away again
    said: list[Any] = []
    with running(engine(), tmp_path, notify=said.append):
        assert bystander.poll() is None
    assert said == []
    bystander.communicate()


def test_terminated_from_outside_it_ends_its_server(tmp_path: Path) -> None:
    parent, pid = started_by_another(tmp_path / "first")
    parent.terminate()
    gone(parent)
    assert parent.returncode == 128 + signal.SIGTERM
    assert not alive(pid)


def test_the_simulator_ends_when_we_are_killed(tmp_path: Path) -> None:
    script = PARENT.replace("running(engine(*sys.argv[3:])", "running(Server()").replace(
        "from small_engines import engine", "from inferometer.plan.model import Server"
    )
    command = [sys.executable, "-c", script, str(tmp_path), str(HERE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    assert eventually(lambda: not alive(pid))


def test_it_can_be_started_from_another_thread(tmp_path: Path) -> None:
    ended = []

    def work() -> None:
        with running(engine(), tmp_path) as server:
            ended.append(server.ended())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == [None]


def test_an_external_server_is_awaited_checked_and_left_running(tmp_path: Path) -> None:
    with running(engine(), tmp_path) as inner:
        with running(Server(type="external", url=inner.url, model="tiny", reset_cache=True), tmp_path) as outer:
            assert (outer.url, outer.facts.type, outer.facts.pid) == (inner.url, "external", None)
            assert list(outer.serve_run()) == ["the prefix cache was reset (POST /flush_cache)"]
        assert inner.ended() is None
        error = refused(Server(type="external", url=inner.url, model="big"), tmp_path)
        assert "but serves 'tiny' and not 'big'" in error.message
    error = refused(Server(type="external", url=inner.url, ready="200ms"), tmp_path)
    assert "was not ready within 200 ms" in error.message and "refused the connection" in error.message


def test_the_prefix_cache_is_reset_between_runs(tmp_path: Path) -> None:
    with running(engine(keep="shared"), tmp_path) as server:
        assert list(server.serve_run()) == []  # it is fresh
        assert list(server.serve_run()) == ["the prefix cache was reset (POST /flush_cache)"]
        assert server.facts.prefix_cache_reset is True
    with running(engine("refuses-reset", reset_cache=True), tmp_path) as server:
        (note,) = server.serve_run()
        refusal = "POST /reset_prefix_cache answered 404, POST /flush_cache answered 400"
        assert note == f"the prefix cache was not reset: {refusal}"
        assert server.facts.prefix_cache_reset is False
