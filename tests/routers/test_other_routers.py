"""Each router of others in front of the same fleet of simulators: it starts, spreads or keeps together what its policy
says, and leaves nothing."""

import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.run import run
from inferometer.plan.reading import plan_from
from inferometer.record.run import Run
from inferometer.target.fleet import FleetServer
from inferometer.target.server import running

QUICK = {"frontend": 0, "step_time": {"base": 0.001, "prefill_token": 0, "decode_sequence": 0}}
ROUTERS = ("vllm-router", "sglang-router", "smg", "litellm")
PREFIX = {"tokens": 1000, "suffix_tokens": 100, "groups": 6, "prompts": 10}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INFEROMETER_LOCKS", str(tmp_path / "locks"))
    keep_curve(curve_of([]), tmp_path / "store")
    return tmp_path / "store"


def program(name: str) -> str:
    return str((Path(os.environ["INFEROMETER_ROUTERS"]) / name / "bin" / name).absolute())


def measured(store: Path, router: dict[str, Any], requests: int = 40, **more: Any) -> Run:
    server = {"type": "fleet", "replicas": 2, "of": {"type": "simulator", "args": QUICK}, "router": router}
    work = {"workload": {"input_tokens": 256, "output_tokens": 4}, "load": {"concurrency": 4}} | more
    return run(
        plan_from({"server": server, "stop": {"requests": requests}, "target": {"api": "chat"}, **work}), store=store
    )


def shares(made: Run) -> list[float]:
    """Requests of every replica, by its own metrics."""
    assert made.summary is not None and made.summary.server is not None
    assert len(made.summary.server.sources) == 2
    return list(made.summary.server.finished.values())


def pids(made: Run) -> list[int]:
    facts = made.environment.server
    assert facts is not None
    return [pid for pid in (facts.pid, *(replica.pid for replica in facts.replicas)) if pid is not None]


@pytest.mark.parametrize("name", ROUTERS)
def test_it_is_measured_in_front_of_a_fleet(store: Path, name: str) -> None:
    made = measured(store, {"type": name, "command": [program(name)], "policy": "random"})
    assert made.state == "complete"
    assert made.summary is not None
    assert made.summary.outcomes == {"ok": 40}
    assert sum(shares(made)) >= 40
    assert not [pid for pid in pids(made) if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("name", ["vllm-router", "sglang-router", "smg"])
def test_cache_aware_keeps_a_prefix_where_it_is(store: Path, name: str) -> None:
    """The same tape by chance and by prefix: the second finds more in the caches. One request at a time: of several
    that come at once a router may send the second before it remembers the first."""

    def hit_rate(policy: str) -> float:
        router = {"type": name, "command": [program(name)], "policy": policy}
        made = measured(store, router, 60, workload={"prefix": PREFIX, "output_tokens": 4}, load={"concurrency": 1})
        assert made.summary is not None and made.summary.server is not None
        assert made.summary.server.prefix_hit_rate is not None
        return made.summary.server.prefix_hit_rate

    assert hit_rate("cache_aware") > hit_rate("random")


@pytest.mark.parametrize("name", ["vllm-router", "sglang-router", "inferometer"])
def test_an_uneven_load_takes_a_prefix_elsewhere_only_while_it_lasts(tmp_path: Path, name: str) -> None:
    """Where a beginning was sent first, all later ones go, although another replica had it since: our cache_aware and
    the routers that it is modelled on choose alike."""
    always = {"cache_threshold": 0.3, "balance_abs_threshold": 0, "balance_rel_threshold": 1.0}
    own = {"settings": always} if name == "inferometer" else {"args": always, "command": [program(name)]}
    slow = {"frontend": 0, "step_time": {"base": 0.01, "prefill_token": 0, "decode_sequence": 0}}
    router = {"type": name, "policy": "cache_aware", **own}
    server = {"type": "fleet", "replicas": 2, "of": {"type": "simulator", "args": slow}, "router": router}
    plan = plan_from({"server": server})
    assert plan.server is not None
    with running(plan.server, tmp_path) as fleet:
        assert isinstance(fleet, FleetServer)
        prefixes = [f"{letter} tide rises at the northern gate, " * 20 for letter in "abcdef"]
        for prefix in prefixes:
            with busy(fleet, "unrelated " * 50 + prefix[0]):
                first = served(fleet, prefix + "0")
            with busy(fleet, prefix + "1") as (at,):
                assert at == first
                assert served(fleet, prefix + "2") != first
            assert [served(fleet, prefix + text) for text in ("3", "4", "5")] == [first] * 3


def served(fleet: FleetServer, prompt: str) -> int:
    """Which replica answers."""
    before = [count(url, "vllm:request_success_total") for url in fleet.metrics_urls]
    ask(fleet, prompt, 2)
    after = [count(url, "vllm:request_success_total") for url in fleet.metrics_urls]
    (changed,) = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if new > old]
    return changed


@contextmanager
def busy(fleet: FleetServer, prompt: str) -> Iterator[list[int]]:
    """While one long request is under way, at one of the replicas. Afterwards the router has noticed its end."""
    thread = threading.Thread(target=ask, args=(fleet, prompt, 150))
    thread.start()
    yield until(lambda: [at for at, url in enumerate(fleet.metrics_urls) if count(url, "vllm:num_requests_running")])
    thread.join()


def ask(fleet: FleetServer, prompt: str, tokens: int) -> None:
    body = {"model": fleet.model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
    request = urllib.request.Request(
        f"{fleet.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def count(url: str, name: str) -> float:
    with urllib.request.urlopen(url, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def until(look: Callable[[], list[int]]) -> list[int]:
    deadline = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found
