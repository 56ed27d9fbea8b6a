"""What makes runs comparable: workload, stack and hardware count, versions and addresses do not."""

from copy import deepcopy
from typing import Any

from made_runs import made_run

from inferometer.judge.identity import Identity, differences, identity
from inferometer.judge.identity import identity_of as of_parts
from inferometer.record.encoding import environment_from


def identity_of(plan: dict[str, Any], environment: dict[str, Any], kind: str = "serving") -> Identity:
    return of_parts(plan, environment_from(environment), kind)


PLAN: dict[str, Any] = {
    "name": "nightly",
    "target": {"url": ["http://127.0.0.1:8000"], "api": "chat"},
    "workload": {"type": "synthetic", "input_tokens": 256},
    "load": {"type": "poisson", "rate": 10.0},
    "server": {"type": "vllm", "image": "registry:5000/vllm/vllm-openai:v0.24.0", "args": {"tensor_parallel_size": 2}},
}
ENVIRONMENT: dict[str, Any] = {
    "inferometer": "0.1.0",
    "machine": {"architecture": "x86_64", "cpu": "Xeon", "cores": 8, "load_1min": 0.3},
    "target": {"urls": ["http://127.0.0.1:8000"], "model": "m", "server": "vLLM", "version": "0.24.0"},
    "git": {"commit": "a" * 40},
    "gpus": [{"name": "H200", "uuid": "GPU-1"}],
}


def changed(of: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made = deepcopy(of)
    *above, last = path.split(".")
    section = made
    for name in above:
        section = section.setdefault(name, {})
    section[last] = value
    return made


def test_versions_commits_names_seeds_and_ports_do_not_count() -> None:
    same = identity_of(PLAN, ENVIRONMENT).key
    for path, value in (
        ("name", "other"),
        ("seed", 7),
        ("limits", ["ttft p99 < 1s"]),
        ("workers", 4),
        ("target.url", ["http://127.0.0.1:9000"]),
        ("server.image", "registry:5000/vllm/vllm-openai@sha256:0123"),
        ("server.port", 8123),
        ("server.ready", {"timeout": "20min"}),
        ("server.grace", "30s"),
        ("observe", {"interval": "5s"}),
        ("load.rate", 10),
    ):
        assert identity_of(changed(PLAN, path, value), ENVIRONMENT).key == same, path
    for path, value in (  # type: ignore[assignment]
        ("target.version", "0.25.0"),
        ("git.commit", "b" * 40),
        ("inferometer", "0.2.0"),
        ("machine.load_1min", 4.0),
        ("gpus", [{"name": "H200", "uuid": "GPU-2"}]),
    ):
        assert identity_of(PLAN, changed(ENVIRONMENT, path, value)).key == same, path


def test_what_is_asked_what_answers_and_where_it_runs_count() -> None:
    kept = identity_of(PLAN, ENVIRONMENT)
    for part, path, value in (
        ("workload", "load.rate", 11),
        ("workload", "workload.input_tokens", 512),
        ("workload", "target.api", "completions"),
        ("workload", "something_new", 1),
        ("stack", "server.args", {"tensor_parallel_size": 4}),
        ("stack", "server.image", "sglang/sglang:v0.24.0"),
        ("stack", "target.model", "other"),
    ):
        assert list(differences(kept, identity_of(changed(PLAN, path, value), ENVIRONMENT))) == [part], path
    for part, path, value in (  # type: ignore[assignment]
        ("hardware", "gpus", [{"name": "H200"}, {"name": "H200"}]),
        ("hardware", "machine.cores", 16),
        ("stack", "target.server", "SGLang"),
    ):
        assert list(differences(kept, identity_of(PLAN, changed(ENVIRONMENT, path, value)))) == [part], path


def test_a_server_elsewhere_is_told_by_its_host_and_not_by_our_machine() -> None:
    away = changed(ENVIRONMENT, "target.urls", ["http://gpu-7:8000"])
    assert identity_of(PLAN, away).parts["hardware"] == {"hosts": ["gpu-7"], "gpus": ["H200"]}
    assert identity_of(PLAN, changed(away, "machine.cpu", "other")).hardware == identity_of(PLAN, away).hardware


def test_versions_are_axes() -> None:
    axes = identity_of(PLAN, ENVIRONMENT).axes
    assert axes == {"engine_version": "0.24.0", "commit": "a" * 40, "inferometer": "0.1.0"}
    assert identity_of({}, {}).axes == {"engine_version": None, "commit": None, "inferometer": None}


def test_own_benchmarks_are_told_apart_by_their_name() -> None:
    assert identity_of({"name": "a"}, {}, "benchmark").workload != identity_of({"name": "b"}, {}, "benchmark").workload
    assert identity_of({"name": "a"}, {}).workload == identity_of({"name": "b"}, {}).workload
    assert identity_of({}, {}, "latency").workload != identity_of({}, {}, "throughput").workload


def test_differences_are_said_in_words() -> None:
    other = identity_of(changed(PLAN, "load.rate", 20), ENVIRONMENT)
    assert differences(identity_of(PLAN, ENVIRONMENT), other) == {"workload": ["load.rate: 10.0 vs 20"]}
    assert identity(made_run(requests=10)).workload == identity(made_run(requests=10, name="x", seed=3)).workload


def test_the_gpus_of_this_machine_count_where_the_target_is_here() -> None:
    """As `observe.environment` tells of them."""

    def seen(name: str, url: str, server: str = "vLLM") -> dict[str, Any]:
        target = {"urls": [url], "server": server}
        gpu = {"driver": "580", "gpus": [{"index": 0, "name": name}]}
        return {"machine": {"host": "vm", "cpu": "Xeon"}, "target": target, "gpu": gpu}

    def of(*said: str) -> str:
        return identity_of({}, seen(*said)).hardware

    assert of("H100", "http://localhost:1") != of("H200", "http://localhost:1")
    assert of("H100", "http://vm:1") != of("H200", "http://vm:1")
    assert of("H100", "http://elsewhere:1") == of("H200", "http://elsewhere:1")
    assert of("H100", "http://localhost:1", "inferometer") == of("H200", "http://localhost:1", "inferometer")
