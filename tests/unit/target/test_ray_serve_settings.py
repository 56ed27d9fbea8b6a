"""The settings of a plan's Ray Serve application, and its errors, before Ray is used."""

import json
import socket
import threading
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import yaml

from inferometer.errors import PlanError, TargetError
from inferometer.plan.model import Server
from inferometer.plan.reading import plan_from
from inferometer.plan.text import to_yaml
from inferometer.target.launch import LaunchPlace, launch_of, model_of
from inferometer.target.ray_serve import notes
from inferometer.target.ray_serve.__main__ import check_version
from inferometer.target.ray_serve.notes import TreeCalls
from inferometer.target.ray_serve.settings import RayServeSettings, check_address, settings_of, vllm_config

PLACE = LaunchPlace("127.0.0.1", 8123)


def app(**changes: Any) -> Server:
    server = plan_from({"server": {"type": "ray-serve", "replicas": 2, **changes}}).server
    assert server is not None
    return server


def test_the_driver_is_told_everything_and_ray_exports_its_metrics_where_we_look() -> None:
    launch = launch_of(app(args={"metrics_port": 9123}, router="power_of_two"), PLACE)
    assert launch.metrics == ("http://127.0.0.1:9123/metrics",)
    assert launch.first_query and launch.held_by_stdin
    assert launch.argv[launch.argv.index("--metrics-port") + 1] == "9123"
    told = msgspec.json.decode(launch.argv[-1], type=RayServeSettings)
    assert (told.engine, told.replicas, told.policy, told.router_kwargs) == ("simulator", 2, "power_of_two", {})
    assert told.args.metrics_interval_ms == 100 and told.max_in_flight == 1_000_000


def test_a_ray_that_runs_is_asked_at_the_address_of_the_plan() -> None:
    launch = launch_of(app(args={"address": "auto"}, command="/opt/ray/bin/python"), PLACE)
    assert launch.metrics == () and "--metrics-port" not in launch.argv
    assert launch.argv[:4] == ["/opt/ray/bin/python", "-P", "-m", "inferometer.target.ray_serve"]


def test_settings_of_the_policy_go_to_ray_under_its_names() -> None:
    original = {"policy": "prefix_aware", "settings": {"defaults": "original", "eviction_interval_s": 3}}
    assert settings_of(app(router=original), None).router_kwargs == {
        "imbalanced_threshold": 10,
        "match_rate_threshold": 0.1,
        "do_eviction": True,
        "eviction_threshold_chars": 400_000,
        "eviction_target_chars": 360_000,
        "eviction_interval_secs": 3,
    }
    current = settings_of(app(router="prefix_aware"), None).router_kwargs
    assert "imbalanced_threshold" not in current, "infinite, which JSON has not and Ray has by itself"
    assert current["do_eviction"] is False
    json.dumps(current, allow_nan=False)


@pytest.mark.parametrize("router", [None, {}, "power_of_two", "prefix_aware", {"settings": {}}])
@pytest.mark.parametrize("full", [False, True])
def test_a_plan_that_was_written_down_has_the_same_policy(router: Any, full: bool) -> None:
    plan = plan_from({"server": {"type": "ray-serve", "replicas": 2, "router": router}})
    again = plan_from(yaml.safe_load(to_yaml(plan, full)))
    assert plan.server is not None and again.server is not None
    assert settings_of(again.server, None) == settings_of(plan.server, None)
    assert again.server.policy == settings_of(plan.server, None).policy


def test_vllm_is_configured_as_rays_own_application() -> None:
    of = {"type": "vllm", "model": "Qwen/Qwen2.5-1.5B-Instruct", "args": {"max-model-len": 8192}}
    router = {"policy": "prefix_aware", "max_in_flight": 20}
    config = vllm_config(settings_of(app(of=of, router=router, args={"accelerator_type": "L4"}), None))
    assert config["model_loading_config"] == dict.fromkeys(("model_id", "model_source"), of["model"])
    assert config["deployment_config"]["num_replicas"] == 2
    assert config["deployment_config"]["max_ongoing_requests"] == 20
    assert config["deployment_config"]["request_router_config"]["request_router_class"].startswith("ray.llm.")
    assert config["engine_kwargs"] == {"max_model_len": 8192} and config["accelerator_type"] == "L4"


@pytest.mark.parametrize(
    ("of", "model", "served", "source"),
    [
        ({"model": "/models/a"}, None, "/models/a", "/models/a"),
        ({"model": "/models/a"}, "asked-for", "/models/a", "/models/a"),
        ({"model": "/models/a", "args": {"served-model-name": "a"}}, None, "a", "/models/a"),
        ({}, "of-the-target", "of-the-target", "of-the-target"),
    ],
)
def test_the_model_of_a_replica_is_what_ray_loads(
    of: dict[str, Any], model: str | None, served: str, source: str
) -> None:
    plan = plan_from(
        {
            "target": {"model": model},
            "server": {"type": "ray-serve", "replicas": 2, "of": {"type": "vllm", **of}},
        }
    )
    assert plan.server is not None
    launch = launch_of(plan.server, replace(PLACE, model=model_of(plan.server, plan.target)))
    assert launch.names == [served] and launch.health == ("/v1/models",)
    config = vllm_config(msgspec.json.decode(launch.argv[-1], type=RayServeSettings))
    assert config["model_loading_config"] == {"model_id": served, "model_source": source}
    assert config["engine_kwargs"] == {}


def test_more_of_rays_own_configuration_is_passed_on() -> None:
    more = {"placement_group_config": {"bundles": [{"CPU": 1}]}, "deployment_config": {"health_check_period_s": 5}}
    server = app(of={"type": "vllm", "model": "m"}, args={"llm_config": more})
    config = vllm_config(settings_of(server, "m"))
    assert config["placement_group_config"] == {"bundles": [{"CPU": 1}]}
    assert config["deployment_config"]["health_check_period_s"] == 5
    assert config["deployment_config"]["num_replicas"] == 2, "the rest stays"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"router": "cache_aware"}, "policy of ray-serve must be one of power_of_two, prefix_aware, got cache_aware"),
        ({"router": {"policy": "prefix_aware", "settings": {"x": 1}}}, "prefix_aware has no setting x"),
        ({"args": {"adress": "auto"}}, "server.args of ray-serve has no setting adress; its settings: address, app"),
        ({"args": {"metrics_port": 0}}, r"metrics_port of server.args of ray-serve must be"),
        ({"of": {"type": "simulator", "args": {"blokcs": 1}}}, "server.of.args.blokcs is not a setting"),
        ({"of": {"type": "command", "command": "a {port}"}}, "must be simulator or vllm, got command"),
        ({"replicas": None}, "server.replicas is missing"),
        ({"of": {"type": "simulator", "env": {"A": "1"}}}, "server.of.env has no effect with ray-serve"),
        ({"of": {"type": "vllm", "model": "m", "flags": "-x"}}, "server.of.flags has no effect with ray-serve"),
        ({"of": "vllm"}, "server.of.model is missing"),
    ],
)
def test_mistakes_are_found_before_anything_starts(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        launch_of(app(**changes), PLACE)


def test_calls_to_rays_tree_are_split_into_ways_and_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree works off the calls in their order; one without an answer has no way back, and no samples."""
    instants = iter([1.0, 1.5, 2.0, 3.0, 3.25, 9.0])
    monkeypatch.setattr(notes, "monotonic", lambda: next(instants))
    calls = TreeCalls()
    calls.called("match", "a")  # 1.0
    calls.returned("match", "a")  # 1.5
    calls.returned("match", "a")  # only the first time counts
    calls.called("match", "a")  # 2.0, fails
    calls.called("insert", "a")  # 3.0
    calls.returned("insert", "a")  # 3.25
    calls.called("match", "a")  # 9.0, not worked off yet
    made = calls.samples({"match": [(1.125, 1.375), (2.0, 2.5)], "insert": [(3.0, 3.125)]})
    assert {sample.name: sample.value for sample in made} == {
        "match_there_s": 0.125,
        "match_work_s": 0.25,
        "match_back_s": 0.125,
        "insert_there_s": 0.0,
        "insert_work_s": 0.125,
        "insert_back_s": 0.125,
    }
    assert [sample.at for sample in made] == [1_500_000_000] * 3 + [3_250_000_000] * 3
    assert calls.samples({"match": [], "insert": []}) == []


def test_an_answer_of_rays_tree_belongs_to_the_call_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two choices under way at once the first is answered first: it ended the second one's call."""
    instants = iter([1.0, 2.0, 3.0, 4.0])
    monkeypatch.setattr(notes, "monotonic", lambda: next(instants))
    calls = TreeCalls()
    calls.called("match", "a")  # 1.0
    calls.called("match", "b")  # 2.0
    calls.returned("match", "a")  # 3.0
    calls.returned("match", "b")  # 4.0
    made = calls.samples({"match": [(1.5, 2.5), (2.5, 3.5)], "insert": []})
    assert [sample.value for sample in made if sample.name == "match_back_s"] == [0.5, 0.5]


def test_a_ray_that_is_too_old_is_named() -> None:
    check_version("2.60.0")
    check_version("3.0.0.dev0")
    with pytest.raises(PlanError, match=r"needs Ray 2.49 or newer, got 2.9.3"):
        check_version("2.9.3")


def test_an_address_without_a_ray_is_refused_at_once() -> None:
    with pytest.raises(PlanError, match="the address of a Ray cluster must be host:port, got here"):
        check_address("here", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(TargetError, match=f"Ray at {address} does not answer: Connection refused"):
            check_address(address, "127.0.0.1")
        taken.listen()
        thread = threading.Thread(target=lambda: taken.accept()[0].close())
        thread.start()
        with pytest.raises(TargetError, match="does not answer"):
            check_address(address, "127.0.0.1")
        thread.join()
