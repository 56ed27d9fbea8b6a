"""The subject of a run: the same description and identity wherever it is shown."""

from typing import Any

import pytest
from exported_runs import latency_run, open_run

from inferometer.record.encoding import environment_from
from inferometer.record.environment import Environment
from inferometer.record.run import Subject, subject_of


def of(plan: dict[str, Any], environment: dict[str, Any] | None = None, is_own: bool = False) -> Subject:
    return subject_of(plan, environment_from(environment or {}), is_own=is_own)


def test_one_line_tells_it() -> None:
    assert open_run().subject.line == "m · vLLM 0.24.0 · 1 x H200 · 256 in, 64 out · 10 req/s Poisson"
    assert latency_run().subject.line == "m · batch sizes 8, 1"
    assert of({}).line == ""
    assert of({"target": {"model": "meta-llama/Llama-3.1-8B"}}).line == "Llama-3.1-8B"


@pytest.mark.parametrize(
    ("plan", "workload", "load"),
    [
        ({}, "256 in, 64 out", "8 in flight"),
        ({"load": {"rate": 3, "max_concurrency": 9}}, "256 in, 64 out", "3 req/s Poisson, at most 9 in flight"),
        ({"workload": {"input_tokens": "10-20", "output_tokens": None}}, "10-20 in", "8 in flight"),
        ({"workload": {"pairs": ["300:100", "500:200"]}}, "300:100, 500:200 in:out", "8 in flight"),
        ({"target": {"api": "embeddings"}}, "256 in", "8 in flight"),
        (
            {"traffic": [{"name": "chat", "load": {"rate": 1}}, {"name": "batch", "load": {"concurrency": 2}}]},
            "chat: 256 in, 64 out + batch: 256 in, 64 out",
            "1 req/s Poisson + 2 in flight",
        ),
    ],
)
def test_a_plan_of_ours_is_told_with_its_defaults(plan: dict[str, Any], workload: str, load: str) -> None:
    subject = of(plan, is_own=True)
    assert (subject.workload, subject.load) == (workload, load)


@pytest.mark.parametrize(
    ("plan", "workload", "load"),
    [
        ({}, "", ""),
        ({"workload": {"input_tokens": 2000}}, "2,000 in", ""),
        ({"workload": {"output_tokens": {"mean": 1000, "std": 100}}}, "1,000 ± 100 out", ""),
        ({"workload": {"prefix": {"tokens": 128, "suffix_tokens": 64}}}, "128 shared + 64 in", ""),
        ({"workload": {"type": "prompts", "path": "chats"}, "load": {"concurrency": 4}}, "chats", "4 in flight"),
        ({"workload": {"input_tokens": "many"}, "load": {"rate": "fast"}}, "many in", ""),
        ({"num_prompts": 1000}, "", "1,000 prompts"),
    ],
)
def test_of_another_tools_plan_only_what_it_tells(plan: dict[str, Any], workload: str, load: str) -> None:
    subject = of(plan)
    assert (subject.workload, subject.load) == (workload, load)


def test_what_showed_itself_goes_before_what_was_planned() -> None:
    planned = {"engine": {"type": "vllm"}, "server": {"type": "container"}, "target": {"url": "http://a:1"}}
    assert of(planned).engine == "vllm"
    shown = of(planned, {"target": {"server": "vLLM", "urls": ["http://b:1", "http://localhost:2"]}})
    assert (shown.engine, shown.address, shown.hosts_elsewhere) == ("vLLM", "http://b:1", ["b"])
    assert subject_of({"server": {"type": "sglang"}}, Environment()).engine == "sglang"


def test_accelerators_are_counted() -> None:
    mixed = of({}, {"gpus": ["H200", {"name": "L4"}, "H200"]})
    assert mixed.accelerators_text == "2 x H200, 1 x L4"
