"""The real logs of vLLM 0.24 on an H200: every phase with the number that a person reads in the log."""

from pathlib import Path

import pytest

from inferometer.target.startup import read_startup

GIB = 2**30
SERVER = {  # read by eye, with the number of the line that says it
    ("platform", "APIServer"): (0.0, [1, 12]),
    ("platform", "EngineCore"): (0.0, [56, 67]),
    ("imports", "APIServer"): (22.0, [12, 15]),
    ("imports", "EngineCore"): (15.0, [67, 74]),
    ("arguments", "APIServer"): (0.0, [15, 21]),
    ("config", "APIServer"): (21.0, [25, 42]),
    ("engine_process", "EngineCore"): (19.0, [42, 70]),
    ("worker_init", "EngineCore"): (2.0, [70, 101]),
    ("weights", "EngineCore"): (1.855644, [110]),
    ("engine_init", "EngineCore"): (51.59, [669]),
    ("profiling", "EngineCore"): (27.0, [501]),
    ("compile", "EngineCore"): (24.11, [496]),
    ("dynamo", "EngineCore"): (6.93, [350]),
    ("inductor", "EngineCore"): (10.91, [493]),
    ("compile_save", "EngineCore"): (5.0, [494, 496]),
    ("first_run", "EngineCore"): (0.56, [497]),
    ("graph_capture", "EngineCore"): (6.0, [663]),
    ("api_start", "APIServer"): (0.0, [673, 718]),
    ("chat_template", "APIServer"): (0.22, [683]),
}
COLD = {
    "imports": 17.0,
    "config": 0.0,
    "engine_process": 21.0,
    "worker_init": 3.0,
    "weights": 2.003742,
    "engine_init": 53.94,
    "profiling": 28.36,
    "compile": 24.99,
    "dynamo": 8.31,
    "inductor": 9.84,
    "first_run": 0.88,
    "graph_capture": 7.0,
}
WARM = {
    "imports": 20.0,
    "config": 0.0,
    "engine_process": 20.0,
    "worker_init": 2.0,
    "weights": 2.161938,
    "engine_init": 30.1,
    "profiling": 8.62,
    "compile": 5.85,
    "dynamo": 3.47,
    "compile_cache": 1.94,
    "first_run": 0.13,
    "graph_capture": 5.0,
}
pytestmark = pytest.mark.golden


def test_a_server(data: Path) -> None:
    report = read_startup(data / "vllm-0.24-h200/vllm_server.log").report
    startup, values = report.startup, report.values
    found = {(phase.name, phase.process): (phase.seconds, phase.lines) for phase in startup.phases}
    assert found == SERVER
    assert startup.unmatched == [] and startup.not_run == []
    assert (startup.version, startup.platform, startup.cache) == ("0.24.0", "cuda", "miss")
    assert (startup.model, startup.load_format) == ("models/llama-8b-dummy", "dummy")
    assert startup.arguments["gpu_memory_utilization"] == 0.9
    assert [(each.name, each.pid) for each in startup.processes] == [("APIServer", 558), ("EngineCore", 780)]
    assert startup.started_at[5:] == "11-15T01:14:00" and startup.ready_at[5:] == "11-15T01:15:58"
    assert values["time_to_ready"].value == 118.0 and values["time_to_ready"].interval == (117.0, 119.0)
    assert values["imports_time"].value == 22.0  # of the slower process
    assert values["weights_size"].value == pytest.approx(13.5 * GIB)
    assert values["weights_rate"].value == pytest.approx(13.5 * GIB / 1.855644)
    assert values["kv_cache_size"].value == pytest.approx(111.17 * GIB)
    assert values["kv_cache_tokens"].value == 910_656
    assert values["graph_size"].value == pytest.approx(0.98 * GIB)
    assert values["free_before"].value == pytest.approx(139.29 * GIB)
    assert values["free_after"].value == pytest.approx(125.31 * GIB)
    assert startup.unexplained_s == pytest.approx(19, abs=1)  # between graph capture and the end of the engine's start


@pytest.mark.parametrize(
    ("file", "ready", "phases", "cache", "tokens"),
    [
        ("bench_latency_bs1.log", 98.0, COLD, "miss", 926_656),
        ("bench_latency_bs8.log", 76.0, WARM, "hit", 927_136),
    ],
)
def test_an_engine_without_a_server(data: Path, file: str, ready: float, phases, cache: str, tokens: int):
    report = read_startup(data / f"vllm-0.24-h200/{file}").report
    startup, values = report.startup, report.values
    assert values["time_to_ready"].value == ready
    assert {name: values[f"{name}_time"].value for name in phases} == phases
    assert ("inductor_time" in values) == (cache == "miss") and ("compile_cache_time" in values) == (cache == "hit")
    assert (startup.cache, startup.serves, startup.not_run) == (cache, False, ["api_start"])
    assert values["kv_cache_tokens"].value == tokens
    assert startup.unmatched == [] and startup.state == "complete"
    assert [each.name for each in startup.processes] == ["main", "EngineCore"]


def test_the_client_of_a_benchmark_is_no_start(data: Path) -> None:
    startup = read_startup(data / "vllm-0.24-h200/bench_serve_300_100_5.log").report.startup
    assert startup.state == "partial"
    assert {"weights", "compile", "graph_capture"} <= {each.name for each in startup.unmatched}
