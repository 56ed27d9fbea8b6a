"""Runs on servers that they start or share, with the locks that exclude other runs; and `inferometer serve`."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_engines import ENGINE, alive, engine, eventually

from inferometer.conduct.ab import Design, ab
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.run import run
from inferometer.conduct.search import search
from inferometer.errors import TargetError
from inferometer.judge.search import SearchBounds
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.target.lock import endpoint_claims, held
from inferometer.target.server import running

QUICK = {"frontend": 0, "step_time": {"base": 0.001, "prefill_token": 0, "decode_sequence": 0}}
SERVER = {"type": "simulator", "args": QUICK}
WORK = {"workload": {"input_tokens": 256, "output_tokens": 2}, "stop": {"requests": 6}, "load": {"concurrency": 2}}


@pytest.fixture
def store(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INFEROMETER_LOCKS", str(tmp_path / "locks"))
    keep_curve(curve_of([]), tmp_path / "store")
    return tmp_path / "store"


def cached(made):
    tokens = made.records.cached_tokens
    return int(tokens[tokens > 0].sum())  # a missing count is negative


def test_a_run_keeps_what_it_started(store: Path) -> None:
    said: list[Any] = []
    made = run(plan_from({"server": SERVER, "target": {"api": "chat"}, **WORK}), store=store, notes=said.append)
    facts = made.environment.server
    assert made.state == "complete"
    assert (facts.type, facts.model, facts.ended) == ("simulator", "simulated-8b", None)
    assert facts.ready_s > 0 and not alive(facts.pid)
    assert facts.log == str(made.folder / "server.log")
    assert any(note.startswith("started the simulator at http://127.0.0.1:") for note in said)


def test_one_server_for_many_runs_forgets_between_them(store: Path, tmp_path: Path) -> None:
    plan = plan_from({"server": {**SERVER, "keep": "shared"}, **WORK})
    said: list[Any] = []
    with running(plan.server, tmp_path) as server:
        runs = [run(plan, store=store, nonce="same", server=server, notes=said.append) for _ in range(2)]
        assert server.ended() is None
    assert [cached(each) for each in runs] == [0, 0]
    assert [each.environment.server.prefix_cache_reset for each in runs] == [None, True]
    assert [each.environment.server.run_number for each in runs] == [1, 2]
    assert said == ["the prefix cache was reset (POST /reset_prefix_cache)"]
    assert all((each.folder / "server.log").exists() for each in runs)


def test_without_the_reset_the_second_run_would_be_warm(store: Path, tmp_path: Path) -> None:
    plan = plan_from({"server": {**SERVER, "keep": "shared", "reset_cache": False}, **WORK})
    with running(plan.server, tmp_path) as server:
        first, second = (run(plan, store=store, nonce="same", server=server) for _ in range(2))
    assert cached(first) == 0 < cached(second)


VLLM = """
import os, sys
print("dev mode", os.environ.get("VLLM_SERVER_DEV_MODE"), flush=True)
port = sys.argv[sys.argv.index("--port") + 1]
os.execv(sys.executable, [sys.executable, "-m", "inferometer", "simulate", "--serve", "--port", port])
"""


@pytest.fixture
def vllm_plan(tmp_path: Path) -> Plan:
    """A plan whose server is called as vLLM is, tells whether it could reset its cache, and is the simulator."""
    (tmp_path / "vllm.py").write_text(VLLM)
    command = [sys.executable, str(tmp_path / "vllm.py")]
    server = {"type": "vllm", "model": "simulated-8b", "command": command, "exclusive": False}
    plan = {"server": server, "target": {"model": "simulated-8b"}, "limits": ["ttft p50 < 10s"]}
    return plan_from({**plan, **WORK, "load": {"rate": 30}, "observe": "off"})


def test_a_server_for_many_runs_is_started_with_a_way_to_reset_its_cache(
    vllm_plan: Plan, store: Path, tmp_path: Path
) -> None:
    search(vllm_plan, SearchBounds(start=30, least=30, most=30), step_s=0.3, store=store)
    ab(vllm_plan, vllm_plan, Design(blocks=3, block_s=0.2), store=store)
    logs = [log.read_text() for log in (store / "experiments").glob("*/*.log")]
    assert len(logs) == 3 and all("dev mode 1" in log for log in logs)
    with running(vllm_plan.server, tmp_path, target=vllm_plan.target):
        assert "dev mode None" in (tmp_path / "server.log").read_text()


def test_a_warm_up_does_not_prime_the_prefix_cache(store: Path) -> None:
    plan = plan_from({"server": SERVER, "warmup": 10, **WORK})
    made = run(plan, store=store)
    assert len(made.records) == 16
    assert cached(made) == 0


def test_two_runs_do_not_share_an_endpoint_by_accident(store: Path, tmp_path: Path) -> None:
    with running(engine(), tmp_path) as server:
        plan = plan_from({"target": server.url, **WORK})
        with held(endpoint_claims([server.url]), "run 20260101-000000-abc"):
            with pytest.raises(TargetError, match=r"in use by run 20260101-000000-abc \(pid"):
                run(plan, store=store)
            with pytest.raises(TargetError, match="still after 10 ms"):
                run(plan, store=store, wait_for_target_s=0.01)
    assert not list((store / "runs").glob("2*"))


def test_a_server_that_dies_during_the_load_fails_the_run(store: Path) -> None:
    code = "import sys; sys.argv[0] = 'x'; from inferometer.simulator.__main__ import main; main()"
    killer = (
        "import os, threading\n"
        "from inferometer.simulator import server as module\n"
        "join = module.SimulatorServer._join\n"
        "def dying(self, answer):\n"
        "    if self._number > 5:\n"
        "        print('RuntimeError: CUDA error: an illegal memory access', flush=True)\n"
        "        os._exit(3)\n"
        "    join(self, answer)\n"
        "module.SimulatorServer._join = dying\n"
    )
    command = [sys.executable, "-c", killer + code, "--port", "{port}", "--settings", json.dumps(QUICK)]
    plan = plan_from({"server": {"type": "command", "command": command}, **WORK, "stop": {"requests": 50}})
    made = run(plan, store=store)
    assert made.state == "failed"
    assert made.environment.server.ended == "with exit status 3"
    [reason, *_] = made.doubts  # with a verdict of its own it is named also where no notes are wanted
    assert (made.status, reason.code) == ("invalid", "server_lost")
    assert "ended with exit status 3 during the load" in reason.text and "illegal memory access" in reason.text
    assert len(made.records) > 5  # what was answered is kept


@pytest.fixture
def serve(tmp_path: Path):
    started = []

    def start(*words, **more):
        environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}
        command = [sys.executable, "-m", "inferometer", "serve", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=environ, cwd=tmp_path, **pipes, **more))  # type: ignore[call-overload]
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_serve_prints_the_url_and_ends_with_ctrl_c(serve, tmp_path: Path):
    process = serve(
        "command", "--log", "engine.log", "--", sys.executable, str(ENGINE), "--port", "{port}", "leaks-session"
    )
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    log = tmp_path / "engine.log"
    assert eventually(lambda: "child" in log.read_text())
    pids = [int(line.split()[1]) for line in log.read_text().splitlines()]
    process.send_signal(signal.SIGINT)
    rest, told = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "")
    assert "hint: inferometer run --url http://127.0.0.1:" in told and "stopped command" in told
    assert not any(map(alive, pids))


def test_serve_says_what_is_ready_as_json_and_shows_the_log(serve):
    process = serve("simulator", "--model", "toy", "--json", "--set", "server.args.speed=2")
    document = ""
    while not document.endswith("}\n"):
        document += process.stdout.readline()
    facts = json.loads(document)
    assert (facts["model"], facts["type"]) == ("toy", "simulator")
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert '"port"' in told  # what it printed
    assert not alive(facts["pid"])


def test_serve_tells_what_went_wrong(serve):
    process = serve("command", "--", sys.executable, str(ENGINE), "--port", "{port}", "exits")
    out, told = process.communicate(timeout=30)
    assert (process.returncode, out) == (3, "")
    assert "ended with exit status 1 before it was ready" in told
    log = Path(told.rpartition("the whole log: ")[2].strip())
    assert "no GPU here" in log.read_text()  # it is still there when the error is read
    shutil.rmtree(log.parent)
    process = serve("vllm")
    assert "serve: server.model is missing" in process.communicate(timeout=30)[1]
    assert process.returncode == 2
