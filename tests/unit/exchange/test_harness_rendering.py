"""A plan rendered for another tool is read back by our reader of that tool's plans as the same plan; what it would lose
is refused by name."""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from inferometer.conduct.harness import rendered_for
from inferometer.errors import PlanError, TargetError
from inferometer.exchange.harness import (
    HARNESSES,
    NAMES,
    Harness,
    HarnessEndpoint,
    Places,
    Rendered,
    checked,
    checked_name,
    harness_named,
)
from inferometer.exchange.harness.environments import installed
from inferometer.plan.reading import plan_from

ENDPOINT = HarnessEndpoint("http://127.0.0.1:8000", "tiny", "/models/tiny")
OTHERS = [name for name in HARNESSES if name != "fmperf"]
CLOSED = {"target": {"api": "chat"}, "load": {"concurrency": 4}, "stop": {"requests": 50}}
PLANS: dict[str, dict[str, Any]] = {
    "closed": CLOSED,
    "poisson": {"load": {"type": "poisson", "rate": 2.5}, "stop": {"requests": 100}},
    "constant": {"load": {"type": "constant", "rate": 10}, "stop": {"duration": "60s"}},
    "capped": {"load": {"type": "poisson", "rate": 10, "max_concurrency": 4}, "stop": {"requests": 50}},
    "gamma": {"load": {"type": "gamma", "rate": 10, "cv": 2}, "stop": {"requests": 50}},
    "warm-up": {**CLOSED, "warmup": 5},
    "uniform": {**CLOSED, "workload": {"input_tokens": "100-300", "output_tokens": "50-150"}},
    "two ratios": {**CLOSED, "workload": {"input_tokens": "100-300", "output_tokens": "20-21"}},
    "normal": {
        **CLOSED,
        "workload": {
            "input_tokens": {"mean": 300, "std": 30, "min": 1},
            "output_tokens": {"mean": 100, "std": 10, "min": 1},
        },
    },
    "prefixes": {
        "workload": {"prefix": {"tokens": 200, "suffix_tokens": 50, "groups": 4, "prompts": 10}, "output_tokens": 20},
        "stop": {"requests": 40},
    },
    "one prefix": {"workload": {"prefix": {"tokens": 200, "suffix_tokens": 50}, "output_tokens": 20}},
    "turns": {"workload": {"turns": 3, "input_tokens": 50}, "stop": {"requests": 30}},
    "not streamed": {"target": {"stream": False}},
    "sampling": {"sampling": {"temperature": 0.5, "top_p": 0.9, "extra": {"top_k": 5}}},
    "stops itself": {"sampling": {"ignore_eos": False}},
    "headers": {"target": {"headers": {"x-team": "blue"}}},
    "penalty": {"sampling": {"extra": {"repetition_penalty": 1.2}}},
    "errors": {"load": {"type": "poisson", "rate": 10}, "stop": {"duration": "60s", "errors": 5}},
    "many": {"load": {"type": "poisson", "rate": 10, "max_concurrency": 5000}, "stop": {"duration": "60s"}},
}
EXPRESSED = {  # by which harnesses; everything else must be refused
    "closed": OTHERS,
    "poisson": ["inference-perf", "guidellm", "vllm-benchmark", "sglang", "aiperf"],
    "constant": ["guidellm", "vllm-benchmark", "aiperf"],
    "capped": ["inference-perf", "guidellm", "vllm-benchmark", "sglang", "aiperf"],
    "gamma": ["vllm-benchmark", "aiperf"],
    "warm-up": OTHERS,
    "uniform": ["inference-perf", "guidellm", "vllm-benchmark", "sglang", "genai-bench"],
    "two ratios": ["inference-perf", "guidellm", "genai-bench"],
    "normal": ["inference-perf", "guidellm", "aiperf", "genai-bench"],
    "prefixes": ["inference-perf", "vllm-benchmark", "sglang"],
    "one prefix": ["guidellm", "vllm-benchmark", "aiperf"],
    "turns": ["guidellm", "aiperf"],
    "not streamed": ["inference-perf", "guidellm", "sglang", "aiperf"],
    "sampling": ["guidellm", "vllm-benchmark", "sglang", "aiperf"],
    "stops itself": ["inference-perf", "guidellm", "sglang", "aiperf"],
    "headers": ["inference-perf", "guidellm", "vllm-benchmark", "sglang", "aiperf"],
    "penalty": ["guidellm", "vllm-benchmark", "sglang", "aiperf"],
    "errors": ["guidellm"],
    "many": ["inference-perf", "guidellm", "vllm-benchmark", "sglang", "aiperf"],
}


def _rendered(name: str, plan: dict[str, Any]) -> tuple[Harness, Rendered, list[str]]:
    harness, whole = harness_named(name), plan_from(plan)
    rendered = harness.render(whole, ENDPOINT, Places())
    return harness, rendered, checked(harness, whole, rendered)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("plan", PLANS)
def test_is_read_back_as_the_same_plan_or_refused(name: str, plan: str) -> None:
    if name in EXPRESSED[plan]:
        _rendered(name, PLANS[plan])
        return
    with pytest.raises(PlanError) as error:
        _rendered(name, PLANS[plan])
    assert name in str(error.value)


def test_a_setting_that_would_be_lost_is_named_with_what_would_be_sent() -> None:
    with pytest.raises(PlanError, match=r"workload\.turns: vllm-benchmark cannot express 3; it would send 1"):
        _rendered("vllm-benchmark", PLANS["turns"])


def test_what_is_only_done_differently_is_noted_by_its_setting() -> None:
    _, _, notes = _rendered("vllm-benchmark", PLANS["constant"])
    assert notes == [
        "stop: vllm-benchmark ends by requests: 60 s at 10 per second are 600",
        "sampling.extra.repetition_penalty: it always sends 1: no penalty, whatever the model's own default is",
    ]
    _, _, notes = _rendered("vllm-benchmark", PLANS["penalty"])
    assert not notes
    with pytest.raises(PlanError, match="its constant has exponential gaps"):
        _rendered("inference-perf", PLANS["constant"])
    _, rendered, notes = _rendered("inference-perf", PLANS["errors"] | {"stop": {"duration": "60s"}})
    assert "load.max_concurrency: it always has a cap: 2,500 requests in flight" in notes
    assert "worker_max_concurrency: 2500" in rendered.files["inference-perf.yaml"]
    _, rendered, _ = _rendered("inference-perf", PLANS["many"])
    assert "worker_max_tcp_connections: 5000" in rendered.files["inference-perf.yaml"]
    _, _, notes = _rendered("inference-perf", PLANS["warm-up"])
    assert "warmup: not supported: all requests are measured" in notes


def test_limits_are_not_judged_on_numbers_with_other_definitions() -> None:
    plan = plan_from({"limits": ["ttft p99 < 1s"]})
    _, notes = rendered_for(plan, "guidellm")
    assert notes == ["limits: are not judged, because the tool defines its numbers in its own way"]


def test_fmperf_is_rendered_for_its_image_alone() -> None:
    load = {"type": "poisson", "rate": 0.5, "sessions_at_once": 4}
    plan = {"load": load, "stop": {"duration": "30s"}, "workload": {"turns": 4, "input_tokens": 50}}
    harness, rendered, notes = _rendered("fmperf", plan)
    assert harness.by_image and "qps_values" in rendered.files["fmperf.yaml"]
    assert rendered.argv[-5:] == ["tiny", "http://127.0.0.1:8000", "results/LMBench", "long-input", "2"]
    told = {"NUM_USERS": "4", "NUM_ROUNDS": "4", "TEST_DURATION": "30", "CHAT_HISTORY": "50", "SYSTEM_PROMPT": "0"}
    assert told.items() <= rendered.env.items()
    assert any("arrivals are not Poisson" in note for note in notes)
    assert any("ignore_eos" in note for note in notes)
    with pytest.raises(TargetError, match="runs only as an image") as error:
        installed(harness)
    assert "k8s run -l fmperf" in str(error.value.hint)


def test_what_fmperf_does_with_a_rate_of_users_who_send_once_is_noted() -> None:
    """They join ten times a second."""
    _, _, notes = _rendered("fmperf", {"load": {"type": "poisson", "rate": 2}, "stop": {"duration": "30s"}})
    assert any("whatever the rate is" in note for note in notes)


def test_the_python_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/harnesses.md").read_text(encoding="utf-8")
    block = guide.partition("In Python:\n")[2].partition("\nA harness of your own")[0]
    result = {"date": "20250904-232830", "backend": "vllm", "model_id": "tiny", "num_prompts": 2, "completed": 2}
    result |= {"duration": 2.0, "request_throughput": 1.0, "output_throughput": 8.0, "total_token_throughput": 9.0}
    result |= {"total_input_tokens": 2, "total_output_tokens": 16, "mean_ttft_ms": 12.0, "request_rate": "inf"}
    (tmp_path / "copied-back").mkdir()
    (tmp_path / "copied-back" / "vllm.json").write_text(json.dumps(result))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"plan": plan_from(CLOSED), "store": tmp_path / "store"}
    exec(textwrap.dedent(block).replace("guidellm", "vllm-benchmark"), namespace)
    assert namespace["rendered"].argv[:2] == ["vllm", "bench"] and namespace["harness"].image
    assert namespace["run"].summary.measures["ttft"].mean == 0.012


def test_folders_are_those_that_the_command_sees() -> None:
    harness = harness_named("inference-perf")
    rendered = harness.render(plan_from(CLOSED), ENDPOINT, Places("/profiles", "/requests/run"))
    assert rendered.argv == ["inference-perf", "--config_file", "/profiles/inference-perf.yaml"]
    assert "path: /requests/run" in rendered.files["inference-perf.yaml"]


@pytest.mark.parametrize("name", ["inferencemax", "lm-eval", "eval-containers", "priority-mix"])
def test_harnesses_that_measure_something_else_are_refused_by_name(name: str) -> None:
    with pytest.raises(PlanError, match=f"--harness {name}: is not supported: "):
        checked_name(name)


def test_an_unknown_harness_lists_those_there_are() -> None:
    with pytest.raises(PlanError, match="did you mean vllm-benchmark") as error:
        checked_name("vllm")
    assert error.value.hint == f"there are {', '.join(NAMES)}"


@pytest.mark.parametrize("plan", [{"workload": {"type": "sharegpt", "path": "x.json"}}, {"traffic": [{"name": "a"}]}])
def test_other_workloads_and_traffic_classes_are_refused(plan: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="guidellm"):
        _rendered("guidellm", plan)


def test_rates_of_aiperf_are_of_requests_and_its_sessions_keep_their_slots() -> None:
    plan = {"workload": {"turns": 3, "input_tokens": 50}, "load": {"rate": 2}, "stop": {"sessions": 30}}
    argv = _rendered("aiperf", plan)[1].argv
    assert argv[argv.index("--request-rate") + 1] == "6"
    thinking = {**PLANS["turns"], "workload": {"turns": 3, "input_tokens": 50, "think": "1s"}}
    with pytest.raises(PlanError, match="sessions_at_once"):
        _rendered("aiperf", thinking)
