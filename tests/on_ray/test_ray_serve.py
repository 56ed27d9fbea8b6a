"""Applications on Ray Serve: our simulator behind Ray's own request routers, measured like any server; what Ray
decided, held against our implementation of the same policy; and nothing left when it is over."""

import csv
import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clusters import cluster, eventually

from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.prepare import begin, prepare
from inferometer.conduct.run import run
from inferometer.conduct.sweep import sweep
from inferometer.errors import TargetError
from inferometer.exchange.exporting import ExportRequest
from inferometer.measure.server import decisions_of, load_by_replica, router_series
from inferometer.plan.reading import plan_from
from inferometer.record.run import Run
from inferometer.router.journal import read_events, replay
from inferometer.router.policy import policy_named
from inferometer.show.charts.registry import draw
from inferometer.store.store import open_store
from inferometer.target.process import MARK, belonging, living
from inferometer.target.ray_serve.__main__ import FOLDER
from inferometer.target.ray_serve.settings import settings_of, vllm_config
from inferometer.target.server import running

QUICK = {"frontend": 0, "step_time": {"base": 0.002, "prefill_token": 0, "decode_sequence": 0}}
# Small enough for every branch: the load is uneven now and then, and the tree is cut back every two seconds.
SETTINGS = {
    "defaults": "original",
    "imbalanced_threshold": 2,
    "eviction_threshold_chars": 2000,
    "eviction_target_chars": 1500,
    "eviction_interval_s": 2,
}
REQUESTS = 120


def app(policy: str, replicas: int = 3, settings: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
    router = {"policy": policy, "settings": settings or {}}
    return {
        "type": "ray-serve",
        "replicas": replicas,
        "of": {"type": "simulator", "args": QUICK},
        "router": router,
        "args": args,
    }


WORK = {
    "workload": {"prefix": {"groups": 10, "prompts": 6, "tokens": 24, "suffix_tokens": 8}, "output_tokens": "2-30"},
    "load": {"concurrency": 6},
    "stop": {"requests": REQUESTS},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("ray-serve")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(path / "state"))
        patch.setenv("INFEROMETER_LOCKS", str(path / "locks"))
        keep_curve(curve_of([]), path / "store")
        patch.chdir(path)
        yield path


@dataclass(frozen=True)
class Served:
    made: Run
    recorded: bytes
    pids: set[int]  # of all processes that belonged to it
    folders: set[str]  # of Ray's files, as their command lines name them


def serve_once(home: Path, server: dict[str, Any]) -> Served:
    plan = plan_from({"server": server, **WORK, "observe": {"interval": "1s"}})
    assert plan.server is not None
    with running(plan.server, home) as started:
        made = run(plan, store=home / "store", server=started)
        with urllib.request.urlopen(f"{started.url}/router/recorded", timeout=30) as answer:
            recorded = answer.read()
        assert started.pid is not None
        pids = {seen.pid for seen in belonging(_mark(started.pid), started.pid)}
        folders = {name for pid in pids for name in re.findall(rf"/[\w/.]*/{FOLDER}\w+", _command(pid).decode())}
    return Served(made, recorded, pids, folders)


def _mark(pid: int) -> str:
    """By which everything that a server starts is known."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return next(text for text in variables if text.startswith(MARK)).partition("=")[2]


def _ray_folders() -> set[Path]:
    return set(Path("/tmp").glob(f"{FOLDER}*"))


@pytest.fixture(scope="module")
def prefix_aware(home: Path) -> Served:
    return serve_once(home, app("prefix_aware", settings=SETTINGS, record_text=True))


def test_an_application_is_measured_like_any_server(prefix_aware: Served) -> None:
    made = prefix_aware.made
    assert made.state == "complete" and made.records is not None
    counts = made.records.replica.counts()
    assert len(counts) == 3 and sum(counts.values()) == REQUESTS
    server = made.summary.server
    assert server is not None
    assert server.sources[0].engine == "vLLM on Ray", "read from Ray's own export port"
    assert sum(server.finished.values()) == REQUESTS
    assert server.conservation is not None and server.conservation.generation_tokens.agree
    assert made.environment.known_target.server == "Ray Serve"


def test_decisions_load_and_tree_of_rays_router_are_samples_of_the_run(prefix_aware: Served) -> None:
    samples = prefix_aware.made.samples
    assert samples is not None
    decisions = decisions_of(samples)
    assert decisions is not None and len(decisions) == REQUESTS
    assert set(decisions.kind) >= {"prefix_match", "smallest_tree"}
    assert set(decisions.replica) <= set(prefix_aware.made.records.replica.counts())
    assert len(load_by_replica(samples)) == 3 and len(router_series(samples, "tree_chars")) == 3
    for step in ("match", "insert"):  # read once a second, so that the last ones may be missing
        legs = [samples.series(f"{step}_{leg}_s")[1] for leg in ("there", "work", "back")]
        assert len(legs[0]) == len(legs[1]) == len(legs[2]) > REQUESTS // 4
        assert all((leg >= 0).all() for leg in legs), "one clock for all processes of a machine"
    phases = draw("routing_phases", prefix_aware.made).spec["data"]["values"]
    assert [row["phase"] for row in phases][:3] == [
        f"find the prefix: {leg}" for leg in ("way to the tree", "in the tree", "way back")
    ]


def test_our_policy_has_rays_candidates_on_rays_own_state(prefix_aware: Served) -> None:
    """The first queries, before and behind the start, are among the events: more choices than requests."""
    events = read_events(prefix_aware.recorded.splitlines())
    done = replay(events, policy_named("prefix_aware", SETTINGS))
    print(f"\n{done.decisions} decisions, {done.random} random, alike {done.share_alike:.4f}: {dict(done.kinds)}")
    print(f"the trees held the same at {done.same_tree}")
    for chosen, kind, candidates in done.differences:
        print("  Ray", chosen.kind, chosen.candidates, chosen.matched_chars, chosen.queues, "ours", kind, candidates)
    assert done.decisions >= REQUESTS and done.decisions - done.random >= REQUESTS // 2
    assert done.share_alike is not None and done.share_alike >= 0.95


def test_the_files_of_rays_scheduler_are_complete(prefix_aware: Served) -> None:
    from inferometer.exchange.exporting import ray as ray_routing

    pieces = {piece.name: piece for piece in ray_routing.export_routing(ExportRequest([prefix_aware.made]))}
    kinds = {name.partition("_seed0_")[2] for name in pieces}
    assert kinds >= {"load_distribution.json", "prefix_match_rate.csv", "scheduling_mismatches.csv", "metrics.json"}
    rates = next(piece for name, piece in pieces.items() if name.endswith("prefix_match_rate.csv"))
    assert len(list(csv.reader(rates.content.decode().splitlines()))) == REQUESTS + 1


def test_nothing_is_left_of_a_ray_that_was_started_for_a_run(prefix_aware: Served, home: Path) -> None:
    assert len(prefix_aware.pids) > 5, "the driver, Ray's daemons, the proxy, the ingress and the replicas"
    assert eventually(lambda: not prefix_aware.pids & {seen.pid for seen in living()})
    assert len(prefix_aware.folders) == 1 and not any(Path(folder).exists() for folder in prefix_aware.folders)


def test_an_application_on_a_ray_that_runs_is_taken_down_and_ray_stays(home: Path) -> None:
    with cluster() as nodes:
        served = serve_once(home, app("power_of_two", 2, address=nodes.address))
        assert served.made.state == "complete"
        decisions = decisions_of(served.made.samples)
        assert decisions is not None and set(decisions.kind) == {"power_of_two"}
        assert nodes.head.head_node.remaining_processes_alive(), "it was there before"
        assert eventually(lambda: not _serve_actors(nodes.address))


def test_of_an_application_on_a_serve_that_runs_nothing_stays(home: Path) -> None:
    """Ray's prefix tree is an actor that outlives its application."""
    import ray
    from ray import serve

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with cluster() as nodes:
        with ray.init(address=nodes.address, log_to_driver=False):
            serve.start(http_options={"host": "127.0.0.1", "port": port})
        before = _serve_actors(nodes.address)
        served = serve_once(home, app("prefix_aware", 2, address=nodes.address) | {"port": port})
        assert served.made.state == "complete"
        assert before and eventually(lambda: _serve_actors(nodes.address) == before)


def _serve_actors(address: str) -> list[str]:
    import ray

    with ray.init(address=address, namespace="serve", ignore_reinit_error=True, log_to_driver=False):
        return sorted(actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True))


def test_a_replica_that_never_gets_ready_is_told_and_nothing_stays(home: Path) -> None:
    before = _ray_folders()
    server = app("power_of_two", 2, cpus_per_replica=1000) | {"ready": {"timeout": "25s"}}
    plan = plan_from({"server": server})
    with (
        pytest.raises(TargetError, match=r"Ray Serve \(power_of_two\) was not ready within 25 s"),
        running(plan.server, home),
    ):
        pass
    marked = [seen.pid for seen in living() if b"cpus_per_replica" in _command(seen.pid)]
    assert not marked and _ray_folders() <= before


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_configuration_of_vllm_is_accepted_by_rays_own_classes() -> None:
    """All but the engine, for which vLLM and a GPU are needed: the fields, the deployment, and the router it names."""
    from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
    from ray.serve.config import RequestRouterConfig
    from ray.serve.schema import DeploymentSchema

    model = "Qwen/Qwen2.5-1.5B-Instruct"
    of = {"type": "vllm", "model": model, "args": {"max-model-len": 8192}}
    server = app("prefix_aware", 4, SETTINGS, accelerator_type="L4") | {"of": of}
    plan = plan_from({"server": server})
    assert plan.server is not None
    config = LLMConfig(**vllm_config(settings_of(plan.server, model)))
    assert (config.model_id, config.accelerator_type) == (model, "L4")
    assert config.engine_kwargs == {"max_model_len": 8192}
    deployment = DeploymentSchema(name="engine", **config.deployment_config)
    assert deployment.num_replicas == 4
    router = RequestRouterConfig(**config.deployment_config["request_router_config"])
    assert router.get_request_router_class().__name__ == "PrefixCacheAffinityRouter"
    assert router.request_router_kwargs["eviction_threshold_chars"] == 2000
    assert set(config.deployment_config) <= set(DeploymentSchema.model_fields), "it ignores what it does not know"


def test_a_port_that_is_taken_is_told(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plan = plan_from({"server": app("power_of_two") | {"port": taken.getsockname()[1]}})
        with pytest.raises(TargetError, match="is already in use"), running(plan.server, home):
            pass


def test_the_sweep_of_strategies_runs_over_real_ray(home: Path) -> None:
    """A short form: two strategies, two replicas, 40 requests behind 40 of warm-up."""
    store = open_store(home / "store")
    small = ("repeats=1", "stop.requests=40", "workload.groups=14", "load.max_concurrency=8", "server.replicas=2")
    prepared = prepare("routing-ray", small)
    swept = sweep(prepared, begin(prepared, store), store=store)
    assert [row.state for row in swept.rows] == ["complete"] * 3
    client = next(home.glob("routing-results/serve_*_sweep_results.csv")).read_text().splitlines()
    engines = next(home.glob("routing-results/vllm_*_sweep_results.csv")).read_text().splitlines()
    assert len(client) == len(engines) == 4
    strategies = [row["scheduler_strategy"] for row in csv.DictReader(client)]
    assert strategies == ["power_of_two", "prefix_aware", "prefix_aware"]
    told = [float(row["ray_vllm:request_success_total"]) for row in csv.DictReader(engines)]
    assert all(count >= 40 for count in told)
    files = {path.name for path in home.glob("routing-results/per-second/*")}
    assert any("prefix_match_rate" in name for name in files)
    rates = [json.loads(path.read_text()) for path in home.glob("routing-results/per-second/*_load_distribution.json")]
    assert all(rates)
