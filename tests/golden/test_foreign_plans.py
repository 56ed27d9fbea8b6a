"""Plans of other tools from real use: the translated plan matches what their results say was sent."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

from inferometer.errors import PlanError
from inferometer.plan.experiment import values_between
from inferometer.plan.foreign import guidellm, vllm_bench
from inferometer.plan.foreign.recognise import open_experiment
from inferometer.plan.opening import open_plan
from inferometer.plan.reading import plan_from

pytestmark = pytest.mark.golden
RUNS = {"300_100_5": (300, 100, 5.0), "1000_200_8": (1000, 200, 8.0), "2000_400_inf": (2000, 400, None)}


def flags_in(log: str) -> list[str]:
    """The command line that a log of `vllm bench serve` shows as the namespace it was parsed into."""
    said = re.search(r"^Namespace\((.*)\)$", log, re.MULTILINE)[1]
    said = re.sub(r"dispatch_function=<[^>]*>, ", "", said)
    call = ast.parse(f"f({said})", mode="eval").body
    words = []
    for keyword in call.keywords:  # type: ignore[attr-defined]
        if keyword.arg in ("subparser", "bench_type"):
            continue
        text = ast.unparse(keyword.value)
        value = text if isinstance(keyword.value, ast.Dict) or text == "inf" else ast.literal_eval(keyword.value)
        if value is True:
            words.append(f"--{keyword.arg}")
        elif value not in (None, False):
            words += [f"--{keyword.arg}", str(value)]
    return words


@pytest.mark.parametrize("name", RUNS)
def test_every_flag_of_a_real_vllm_run_is_known_and_means_what_was_sent(data: Path, name):
    log = (data / f"vllm-0.24-h200/bench_serve_{name}.log").read_text()
    result = json.loads((data / f"vllm-0.24-h200/vllm_bench_serve_{name}.json").read_text())
    plan = plan_from(vllm_bench.from_argv(flags_in(log)).plan)
    inputs, outputs, rate = RUNS[name]
    assert (plan.workload.input_tokens.value, plan.workload.output_tokens.value) == (inputs, outputs)
    assert set(result["output_lens"]) == {outputs}
    assert plan.stop.requests == result["num_prompts"] == len(result["input_lens"])
    assert result["request_rate"] == ("inf" if rate is None else rate)
    if rate is None:
        assert (plan.load.type, plan.load.concurrency) == ("concurrency", 80)
    else:
        assert (plan.load.type, plan.load.rate) == ("poisson", rate)
    assert plan.target.model == "llama-8b-dummy"
    assert plan.outputs[0].path == f"results/vllm_bench_serve_{name}.json"


def test_a_real_inference_perf_configuration(data: Path) -> None:
    """Its sweep is an experiment, whose levels are the rates that its results have; stages of them are a plan."""
    path = str(data / "results/inference_perf/config.yaml")
    with pytest.raises(PlanError, match="an experiment and not a plan") as caught:
        open_plan([path])
    assert shlex.split(caught.value.hint) == ["inferometer", "sweep", path]
    levels = open_experiment(path).experiment.levels
    results = [data / f"results/inference_perf/vllm/stage_{number}_lifecycle_metrics.json" for number in range(7)]
    asked = [json.loads(result.read_text())["load_summary"]["requested_rate"] for result in results]
    assert values_between(1, asked[-1], levels) == pytest.approx(asked, abs=0.011)
    assert levels.high["stop"] == {"requests": 2000, "drain": "175s"}  # type: ignore[index]
    assert levels.set["stop.duration"] == "60s"
    stages = "load={type: constant, stages: [{rate: 2.5, duration: 60}, {rate: 5, duration: 60}]}"
    opened = open_plan([path], changes=[stages])
    workload = opened.plan.workload
    assert (workload.prefix.tokens.value, workload.prefix.suffix_tokens.value) == (128, 64)
    assert (workload.prefix.groups, workload.prefix.prompts, workload.output_tokens.value) == (10, 10, 64)
    assert [stage.rate for stage in opened.plan.load.stages] == [2.5, 5]
    assert opened.plan.target.model == "meta-llama/Meta-Llama-3-8B-Instruct"
    assert "<your-hf-token>" not in str(opened.plan)


def test_the_configuration_of_a_real_guidellm_report(data: Path) -> None:
    report = json.loads((data / "results/guidellm/guidellm_report_v2.json").read_text())
    found = guidellm.from_mapping(report["config"])
    assert found.experiment["axes"] == {"load.rate": [1, 2]}  # each a run of its own, of 2 turns
    plan = plan_from(found.plan)
    assert [(stage.rate, stage.duration) for stage in plan.load.stages] == [(1, 1), (2, 0.5)]  # of 2 turns
    assert str(plan.workload.prefix.suffix_tokens) == "normal ~32"
    assert (plan.workload.turns.value, plan.workload.prefix.groups, plan.workload.output_tokens.value) == (2, 4, 8)
    assert (plan.target.api, plan.seed) == ("chat", 42)
