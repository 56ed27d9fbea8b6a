"""Fleets over sockets: replicas of one server behind a router, as one target; what starts, fails and ends with them."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_engines import ENGINE, alive, eventually

from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.run import run
from inferometer.errors import PlanError, TargetError
from inferometer.exchange.exporting import ExportRequest, ray
from inferometer.measure.server import decisions_of
from inferometer.plan.reading import plan_from
from inferometer.plan.server import ROUTERS, Router
from inferometer.record.run import Run
from inferometer.target.fleet import FleetServer
from inferometer.target.launch import LaunchPlace
from inferometer.target.routers import RouterEngine, proxies
from inferometer.target.server import running
from inferometer.vocabulary import attribute_at

QUICK = {"frontend": 0, "step_time": {"base": 0.001, "prefill_token": 0, "decode_sequence": 0}}
SIMULATOR = {"type": "simulator", "args": QUICK}
WORK = {"workload": {"input_tokens": 256, "output_tokens": 2}, "stop": {"requests": 12}, "load": {"concurrency": 2}}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INFEROMETER_LOCKS", str(tmp_path / "locks"))
    keep_curve(curve_of([]), tmp_path / "store")
    return tmp_path / "store"


def fleet(replicas: int = 2, of: dict[str, Any] = SIMULATOR, **router: Any) -> dict[str, Any]:
    return {"type": "fleet", "replicas": replicas, "of": of, "router": {"policy": "round_robin", **router}}


def measured(store: Path, server: dict[str, Any], **more: Any) -> Run:
    return run(plan_from({"server": server, **WORK, **more}), store=store)


def everybody(made: Run) -> list[int]:
    assert made.environment.server is not None
    facts = made.environment.server
    return [pid for pid in (facts.pid, *(replica.pid for replica in facts.replicas)) if pid is not None]


def test_a_fleet_is_measured_as_one_server_with_its_replicas_told_apart(store: Path) -> None:
    made = measured(store, fleet(3), observe={"interval": "100ms"}, stop={"requests": 60})
    assert made.state == "complete"
    assert made.records is not None
    assert made.records.replica.counts() == {"replica-1": 20, "replica-2": 20, "replica-3": 20}
    facts = made.environment.server
    assert facts is not None
    assert facts.name == "the fleet of 3 behind the router (round_robin)"
    assert len({replica.url for replica in facts.replicas}) == 3
    assert made.folder is not None
    assert {path.name for path in made.folder.glob("*.log")} >= {"server.log", *(f"replica-{n}.log" for n in (1, 2, 3))}
    assert made.summary is not None and made.summary.server is not None
    assert sum(made.summary.server.finished.values()) == 60  # pooled over the replicas
    assert len(made.summary.server.sources) == 4  # of every replica its metrics, and the journal of the router
    assert made.samples is not None
    decisions = decisions_of(made.samples)
    assert decisions is not None and len(decisions) == 60
    assert Counter(decisions.replica) == made.records.replica.counts()
    assert set(decisions.kind) == {"round_robin"} and not decisions.knows_caches
    assert (decisions.search_s > 0).all() and (np.diff(decisions.at) >= 0).all()
    assert made.records.sent_at.min() < decisions.at[0] and decisions.at[-1] < made.records.ended_at.max()
    files = {piece.name.partition("_seed0_")[2]: piece for piece in ray.export_routing(ExportRequest([made]))}
    assert len(files) == 7
    assert len(files["prefix_match_rate.csv"].content.splitlines()) == 61
    kept = json.loads((made.folder / "environment.json").read_text())["server"]["replicas"]
    assert [replica["name"] for replica in kept] == [f"replica {number} of 3 (the simulator)" for number in (1, 2, 3)]
    assert len(everybody(made)) == 4
    assert not any(map(alive, everybody(made)))


def test_a_shared_fleet_forgets_between_runs_and_keeps_a_log_for_each(store: Path, tmp_path: Path) -> None:
    plan = plan_from({"server": fleet(2, policy="prefix_aware"), **WORK})
    assert plan.server is not None
    notes: list[str] = []
    with running(plan.server, tmp_path, shared=True) as server:
        runs = [run(plan, store=store, nonce="same", server=server, notes=notes.append) for _ in range(2)]
    assert "the prefix cache was reset (POST /reset_prefix_cache)" in notes
    for made in runs:
        assert made.folder is not None and (made.folder / "replica-2.log").exists()
    cached = [int(made.records.cached_tokens[made.records.cached_tokens > 0].sum()) for made in runs if made.records]
    assert cached[0] == cached[1]


def test_a_replica_that_dies_is_named_and_nothing_is_left(store: Path, tmp_path: Path) -> None:
    plan = plan_from({"server": fleet(3)})
    assert plan.server is not None
    with running(plan.server, tmp_path) as server:
        assert isinstance(server, FleetServer)
        pids = [replica.pid for replica in server.replicas]
        assert pids[1] is not None
        os.kill(pids[1], signal.SIGKILL)
        eventually(lambda: server.ended() is not None)
        with pytest.raises(TargetError, match=r"replica 2 of 3 \(the simulator\) ended by SIGKILL"):
            server.check()
    assert not any(alive(pid) for pid in (*pids, server.pid) if pid is not None)


def test_a_replica_that_never_gets_ready_is_named(store: Path, tmp_path: Path) -> None:
    of = {"type": "command", "command": ["sh", "-c", "echo no memory left >&2; exit 3 # {port}"]}
    plan = plan_from({"server": fleet(2, of)})
    assert plan.server is not None
    with (
        pytest.raises(
            TargetError, match=r"replica [12] of 2 \(sh\) ended with exit status 3 before it was ready(.|\n)*memory"
        ),
        running(plan.server, tmp_path),
    ):
        pass
    second = {"type": "command", "command": ["sh", "-c", "test {replica} = 1 && exit 3; exec sleep 600 # {port}"]}
    plan = plan_from({"server": fleet(3, second)})
    assert plan.server is not None
    with (  # the others would wait for five minutes
        pytest.raises(TargetError, match=r"replica 2 of 3 \(sh\) ended with exit status 3 before it was ready"),
        running(plan.server, tmp_path),
    ):
        pass
    slow = {**SIMULATOR, "ready": {"path": "/nowhere"}}
    plan = plan_from({"server": {**fleet(2, slow), "ready": {"timeout": "300ms"}}})
    assert plan.server is not None
    with (
        pytest.raises(TargetError, match=r"replica [12] of 2 .* was not ready within 300 ms"),
        running(plan.server, tmp_path),
    ):
        pass


def test_a_port_of_a_replica_that_is_taken_is_told_before_anything_starts(store: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plan = plan_from({"server": fleet(2, {**SIMULATOR, "port": port})})
        assert plan.server is not None
        with (
            pytest.raises(TargetError, match=f"port {port} of 127.0.0.1 is already in use") as error,
            running(plan.server, tmp_path),
        ):
            pass
    assert "omit server.of.port" in str(error.value.hint)
    assert not list(tmp_path.glob("replica-*.log"))


def test_replicas_of_any_type_get_their_number(store: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ENGINE), "--port", "{port}"]
    of = {"type": "command", "command": command, "env": {"CUDA_VISIBLE_DEVICES": "{replica}"}}
    plan = plan_from({"server": fleet(2, of)})
    assert plan.server is not None
    with running(plan.server, tmp_path) as server:
        assert isinstance(server, FleetServer)
        shown = []
        for replica in server.replicas:
            variables = Path(f"/proc/{replica.pid}/environ").read_bytes().split(b"\0")
            shown += [text for text in variables if text.startswith(b"CUDA_VISIBLE_DEVICES=")]
        assert shown == [b"CUDA_VISIBLE_DEVICES=0", b"CUDA_VISIBLE_DEVICES=1"]


@pytest.mark.parametrize(
    ("router", "mistake"),
    [
        ({"policy": "prefix"}, "policy must be one of random, round_robin"),
        ({"policy": "prefix_aware", "settings": {"x": 1}}, "prefix_aware has no setting x"),
        ({"args": {"retries": -1}}, "retries of the router must be at least 0, got -1"),
        ({"type": "nginx", "policy": "prefix_aware"}, "server.router.policy of nginx must be one of round_robin"),
    ],
)
def test_a_mistake_of_the_router_is_found_before_anything_starts(
    store: Path, tmp_path: Path, router: dict[str, Any], mistake: str
) -> None:
    plan = plan_from({"server": fleet(2, **router)})
    assert plan.server is not None
    with pytest.raises(PlanError, match=mistake), running(plan.server, tmp_path):
        pass
    assert not list(tmp_path.glob("replica-*.log"))


def test_mistakes_of_the_plan() -> None:
    for server, mistake in [
        ({"type": "fleet", "replicas": 2, "of": "vllm"}, "server.of.model is missing: vllm needs a model to serve"),
        ({"type": "fleet"}, "server.replicas is missing"),
        ({**fleet(), "router": {"type": "traefik"}}, "server.router.type must be one of inferometer, nginx"),
        ({**fleet(), "router": {"flags": "-x"}}, "server.router.flags belongs to the routers of others"),
        (
            {**fleet(), "router": {"type": "nginx", "max_in_flight": 2}},
            "server.router.max_in_flight belongs to type infer",
        ),
        ({**fleet(), "args": {"a": 1}}, "server.args belongs to type"),
    ]:
        with pytest.raises(PlanError, match=mistake):
            plan_from({"server": server})


def installed(kind: str) -> list[str]:
    program = shutil.which(kind, path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        assert "INFEROMETER_ROUTERS" not in os.environ, f"{kind} is not installed: make test-routers tests it"
        pytest.skip(f"{kind} is not installed")
    return [program]


@pytest.mark.parametrize("kind", ["nginx", "haproxy"])
def test_routers_of_the_system(store: Path, kind: str) -> None:
    made = measured(store, fleet(2, type=kind, policy="least_loaded", command=installed(kind)))
    assert made.state == "complete"
    assert made.summary is not None and made.summary.server is not None
    assert sum(made.summary.server.finished.values()) == 12  # the replicas' own metrics, not the router's
    assert len(made.summary.server.sources) == 2
    assert not any(map(alive, everybody(made)))


@pytest.mark.parametrize(("kind", "check"), [("nginx", "-t"), ("haproxy", "-c")])
def test_their_configuration_is_right_for_every_policy(tmp_path: Path, kind: str, check: str) -> None:
    engine: RouterEngine = attribute_at(ROUTERS[kind].place)
    for policy in ("round_robin", "least_loaded", "power_of_two", "random", "session_affinity"):
        router = Router(type=kind, policy=policy, command=installed(kind), flags=[check])
        launch = engine.launch(router, LaunchPlace("127.0.0.1", 8000), ["http://127.0.0.1:8001"] * 2, tmp_path)
        tried = subprocess.run(launch.argv, capture_output=True, text=True, check=False)
        assert tried.returncode == 0, tried.stderr


def test_another_router_that_is_not_installed(store: Path, tmp_path: Path) -> None:
    plan = plan_from({"server": fleet(1, type="vllm-router", command=["no-such-router"])})
    assert plan.server is not None
    with pytest.raises(TargetError, match="no-such-router") as error, running(plan.server, tmp_path):
        pass
    assert "pip install vllm-router in an environment of its own" in str(error.value.hint)
    assert not list(tmp_path.glob("replica-*.log")), "told before the replicas are started"


def test_nginx_is_found_where_debian_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's PATH there has no sbin."""
    system = tmp_path / "sbin"
    system.mkdir()
    (system / "nginx").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(proxies, "SYSTEM_PATH", str(system))
    launch = proxies.NGINX.launch(
        Router(type="nginx"), LaunchPlace("127.0.0.1", 8000), ["http://127.0.0.1:8001"], tmp_path
    )
    assert launch.argv[0] == str(system / "nginx")
