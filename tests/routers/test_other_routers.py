"""Each router of others in front of the same fleet of simulators: it starts, spreads or keeps together what its policy
says, and leaves nothing."""

import os
from pathlib import Path
from typing import Any

import pytest

from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.run import run
from inferometer.plan.reading import plan_from
from inferometer.record.run import Run

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
    """The same tape by chance and by prefix: the second finds more in the caches."""

    def hit_rate(policy: str) -> float:
        router = {"type": name, "command": [program(name)], "policy": policy}
        made = measured(store, router, 60, workload={"prefix": PREFIX, "output_tokens": 4})
        assert made.summary is not None and made.summary.server is not None
        assert made.summary.server.prefix_hit_rate is not None
        return made.summary.server.prefix_hit_rate

    assert hit_rate("cache_aware") > hit_rate("random")
