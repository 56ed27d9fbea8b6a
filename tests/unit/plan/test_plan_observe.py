"""`observe` in a plan: switches as YAML reads them, URLs and indexes alone or in lists, errors by name."""

from pathlib import Path

import pytest

from inferometer.errors import PlanError
from inferometer.observe.observer import is_here, job_of
from inferometer.plan.reading import plan_from
from inferometer.plan.text import to_mapping, to_yaml


def observe(value):
    return plan_from({"target": "http://localhost:8000", "observe": value}).observe


@pytest.mark.parametrize(
    ("said", "gpu", "metrics", "host"),
    [
        ({}, "auto", "auto", True),
        ("off", "off", "off", False),
        (False, "off", "off", False),
        ({"gpu": True, "metrics": False}, "on", "off", True),
        ({"gpu": 1}, [1], "auto", True),
        ({"gpu": [0, 2], "metrics": "http://a/metrics"}, [0, 2], ["http://a/metrics"], True),
    ],
)
def test_what_can_be_said(said, gpu, metrics, host: bool):
    found = observe(said)
    assert (found.gpu, found.metrics, found.host) == (gpu, metrics, host)
    assert found.nothing == (said in ("off", False))


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"gpu": "maybe"}, "observe.gpu"),
        ({"gpu": [-1]}, "observe.gpu"),
        ({"gpu": []}, "observe.gpu"),
        ({"metrics": ["localhost:8000"]}, "observe.metrics"),
        ({"interval": "1ms"}, "observe.interval"),
        ({"power": True}, "observe"),
    ],
)
def test_mistakes_are_named(said, path: str):
    with pytest.raises(PlanError) as error:
        observe(said)
    assert path in error.value.mistakes[0]


def test_it_is_written_back_without_secrets() -> None:
    plan = plan_from({"target": "http://h:1", "observe": {"metrics": ["http://me:pass@h:2/metrics"], "interval": "2s"}})
    assert to_mapping(plan)["observe"] == {"metrics": ["http://***@h:2/metrics"], "interval": "2s"}
    assert "observe" not in to_mapping(plan_from({"target": "http://h:1"}))
    off = plan_from({"target": "http://h:1", "observe": "off"})
    import yaml

    assert plan_from(yaml.safe_load(to_yaml(off))).observe == off.observe


def test_the_job_asks_each_replica_and_keeps_keys_at_home(tmp_path: Path) -> None:
    plan = plan_from({"target": ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]})
    job = job_of(plan, plan.target.url, {"Authorization": "Bearer k"}, tmp_path / "log")
    assert [place.url for place in job.metrics] == [f"{url}/metrics" for url in plan.target.url]
    assert all(place.ours and place.headers for place in job.metrics)
    assert not job.gpu  # its GPUs are elsewhere
    other = plan_from(
        {"target": "http://h:1", "observe": {"metrics": ["http://h:1/metrics", "http://ray:5001/metrics"]}}
    )
    places = job_of(other, other.target.url, {"Authorization": "Bearer k"}, tmp_path / "log").metrics
    assert [bool(place.headers) for place in places] == [True, False]
    assert job_of(plan_from({"target": "http://h:1", "observe": "off"}), ["http://h:1"], {}, tmp_path) is None


def test_gpus_are_watched_by_themselves_only_where_they_can_serve(tmp_path: Path) -> None:
    def watched(**plan):
        made = plan_from({"target": "http://localhost:8000"} | plan)
        return job_of(made, made.target.url, {}, tmp_path).gpu

    assert watched()
    assert not watched(server="simulator")
    assert watched(server="simulator", observe={"gpu": "on"})
    assert not watched(observe={"gpu": "off"})
    none = {"type": "vllm", "model": "m", "env": {"CUDA_VISIBLE_DEVICES": ""}}
    assert not watched(server=none)
    assert is_here("http://127.0.0.1:8000") and is_here("https://[::1]:1") and not is_here("http://example.org")


def test_of_a_server_of_ours_only_the_gpus_it_is_shown(tmp_path: Path, monkeypatch):
    """Energy per token is that of the GPUs watched: seven idle ones beside the one that works would double it."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def gpus(observe="auto", **server):
        made = plan_from({"server": {"model": "m", **server}, "observe": {"gpu": observe}})
        return job_of(made, ["http://127.0.0.1:8000"], {}, tmp_path).gpus

    assert gpus(type="vllm") is None
    assert gpus(type="vllm", env={"CUDA_VISIBLE_DEVICES": "2,3"}) == [2, 3]
    assert gpus(type="vllm", env={"CUDA_VISIBLE_DEVICES": "GPU-8a7b"}) is None  # a name, whose number is not known
    assert gpus(type="container", image="x", gpus="1") == [1]
    assert gpus("on", type="container", image="x", gpus="1") is None
    assert gpus([0], type="container", image="x", gpus="1") == [0]
