"""Other tools' files: inference-perf's YAML, llm-d's templates with their variables and `-o`."""

import os
import shlex
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from inferometer.cli.group import group
from inferometer.documents.document import Document
from inferometer.errors import PlanError
from inferometer.plan.foreign import fmperf, guidellm, inference_perf, llmd
from inferometer.plan.foreign.recognise import from_command, is_foreign, open_experiment
from inferometer.plan.foreign.templates import changed, rendered
from inferometer.plan.foreign.vllm_offline import from_suite
from inferometer.plan.opening import find_profile, open_plan
from inferometer.plan.reading import plan_from, read_plan
from inferometer.plan.text import to_mapping

SANITY = """\
load:
  type: constant
  stages:
  - rate: 1
    duration: 30
api:
  type: completion
  streaming: true
server:
  type: vllm
  model_name: REPLACE_ENV_LLMDBENCH_DEPLOY_CURRENT_MODEL
  base_url: REPLACE_ENV_LLMDBENCH_HARNESS_STACK_ENDPOINT_URL
  ignore_eos: true
tokenizer:
  pretrained_model_name_or_path: REPLACE_ENV_LLMDBENCH_DEPLOY_CURRENT_MODEL
data:
  type: random
  input_distribution:
    min: 10             # min length of the prompts
    max: 100
    mean: 50
    std: 10
    total_count: 100
  output_distribution:
    min: 10
    max: 100
    mean: 50
    std: 10
    total_count: 100
report:
  request_lifecycle: {summary: true, per_stage: true, per_request: true}
storage:
  local_storage:
    path: /workspace
"""
STACK = {
    "LLMDBENCH_DEPLOY_CURRENT_MODEL": "meta-llama/Llama-3.2-1B-Instruct",
    "LLMDBENCH_HARNESS_STACK_ENDPOINT_URL": "http://stack:80",
}
LENGTHS = {"min": 10, "max": 100, "mean": 50, "std": 10}


@pytest.fixture
def template(tmp_path: Path) -> str:
    path = tmp_path / "sanity_random.yaml.in"
    path.write_text(SANITY)
    return str(path)


def test_the_example_profile_of_llmd(template: str) -> None:
    opened = open_plan([template], environ=STACK)
    assert opened.tool == "inference-perf"
    assert to_mapping(opened.plan) == {
        "target": {"url": "http://stack:80", "model": "meta-llama/Llama-3.2-1B-Instruct"},
        "workload": {"input_tokens": LENGTHS, "output_tokens": LENGTHS},
        "load": {"type": "poisson", "rate": 1},
        "stop": {"duration": "30s"},
    }
    ours = read_plan(find_profile("inference-perf/sanity_random", {}).path)
    assert (opened.plan.workload, opened.plan.load, opened.plan.stop) == (ours.workload, ours.load, ours.stop)


def test_overrides_by_bare_key_and_by_path_are_shown(template: str) -> None:
    opened = open_plan([template], changes=["min=20,total_count=200", "load.stages.0.rate=5"], environ=STACK)
    workload = opened.plan.workload
    assert (workload.input_tokens.min, workload.output_tokens.min, workload.count) == (20, 20, None)
    assert opened.plan.load.rate == 5
    assert opened.notes[:6] == [
        "data.input_distribution.min: 10 -> 20",
        "data.output_distribution.min: 10 -> 20",
        "-o min changed 2 settings; use a dotted path for one: data.input_distribution.min",
        "data.input_distribution.total_count: 100 -> 200",
        "data.output_distribution.total_count: 100 -> 200",
        "-o total_count changed 2 settings; use a dotted path for one: data.input_distribution.total_count",
    ]
    one = open_plan([template], changes=["data.input_distribution.min=20"], environ=STACK).plan.workload
    assert (one.input_tokens.min, one.output_tokens.min) == (20, 10)


def test_an_override_that_hits_nothing_is_a_mistake(template: str) -> None:
    with pytest.raises(PlanError) as caught:
        open_plan([template], changes=["total_cuont=5", "load.stages.3.rate=1", "nonsense"], environ=STACK)
    assert caught.value.mistakes == ["-o nonsense: must be key=value, such as min=20 or load.stages.0.rate=5"]
    with pytest.raises(PlanError) as caught:
        open_plan([template], changes=["total_cuont=5", "load.stages.3.rate=1"], environ=STACK)
    first, second = caught.value.mistakes
    assert first.startswith("-o total_cuont: ") and "did you mean data.input_distribution.total_count?" in first
    assert "load.stages.3.rate" in second and "no such setting" in second


def test_overrides_from_the_environment(template: str) -> None:
    environ = {**STACK, "LLMDBENCH_HARNESS_EXPERIMENT_PROFILE_OVERRIDES": "rate=3,duration=60"}
    plan = open_plan([template], environ=environ).plan
    assert (plan.load.rate, plan.stop.duration) == (3, 60)


def test_variables_that_our_flags_say_may_be_missing(template: str) -> None:
    opened = open_plan([template], environ={})
    assert (opened.plan.target.url, opened.plan.target.model) == ([], None)
    assert "LLMDBENCH_HARNESS_STACK_ENDPOINT_URL is not set: use --url" in opened.notes
    listed = open_plan([template], environ={"LLMDBENCH_DEPLOY_MODEL_LIST": "a/b,c/d"})
    assert listed.plan.target.model == "a/b"


def test_variables_with_and_without_a_default() -> None:
    text = 'a: REPLACE_ENV_LLMDBENCH_A++++default=5\nb: "REPLACE_ENV_LLMDBENCH_B"\nc: x/REPLACE_ENV_LLMDBENCH_C/y # REM'
    said, notes = rendered(text, {"LLMDBENCH_B": "7", "LLMDBENCH_C": "z"}, "t")
    assert (said, notes) == ({"a": 5, "b": 7, "c": "x/z/y"}, [])
    told = {"LLMDBENCH_A": "6", "LLMDBENCH_B": "7", "LLMDBENCH_C": "q"}
    assert rendered(text, told, "t")[0]["a"] == 6
    with pytest.raises(PlanError) as caught:
        rendered(text, {}, "t")
    assert caught.value.mistakes == [
        "t: LLMDBENCH_B is not set, and REPLACE_ENV_LLMDBENCH_B has no default",
        "t: LLMDBENCH_C is not set, and REPLACE_ENV_LLMDBENCH_C has no default",
    ]


@given(st.dictionaries(st.sampled_from("abc"), st.integers() | st.dictionaries(st.sampled_from("abc"), st.integers())))
def test_a_bare_key_changes_every_setting_of_its_name_and_no_other(said):
    def count(value: Any) -> int:
        return sum(1 if name == "a" else count(each) for name, each in value.items()) if isinstance(value, dict) else 0

    try:
        after, notes = changed(said, ["a=99"], "x")
    except PlanError:
        assert count(said) == 0
        return
    differences = [note for note in notes if " -> " in note]
    assert len(differences) == count(said) > 0
    assert str(after).count("99") >= 1


def test_our_own_plan_takes_no_overrides_of_others(tmp_path: Path) -> None:
    own = tmp_path / "plan.yaml"
    own.write_text("load: {rate: 1}\n")
    with pytest.raises(PlanError, match="changes another tool's file") as caught:
        open_plan([str(own)], changes=["rate=5"])
    assert caught.value.hint == "--set changes a plan"


def test_a_plan_may_come_from_a_pipe(tmp_path: Path) -> None:
    """As of `inferometer run <(make-plan)`."""
    pipe = tmp_path / "plan"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("load: {rate: 3}\n",))
    writer.start()
    assert open_plan([str(pipe)]).plan.load.rate == 3
    writer.join()


@pytest.mark.parametrize("opened", [open_plan, open_experiment])
def test_a_command_line_takes_none_either(opened):
    with pytest.raises(PlanError, match=r"-o rate=5: changes a file of inference-perf.*, not a command line"):
        opened(["vllm", "bench", "serve", "--model", "m"], changes=["rate=5"])


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("list.txt", "a.json\n", "a list of configs"),
        ("nm.json", '{"script_name": "x", "script_args": {}}', "a config of nm-vllm"),
    ],
)
def test_nor_do_experiments_without_keys_of_their_own(tmp_path: Path, name: str, text: str, what: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(PlanError, match=rf"-o rate=5: .* not {what}"):
        open_experiment(str(file), changes=["rate=5"])


@pytest.mark.parametrize(
    ("data", "workload"),
    [
        ({"type": "random"}, {"input_tokens": {"mean": 512, "std": 200, "min": 10, "max": 1024}}),
        (
            {"type": "random", "input_distribution": {"type": "uniform", "min": 5, "max": 9}},
            {"input_tokens": "5-9"},
        ),
        (
            {"type": "synthetic", "input_distribution": {"type": "lognormal", "mean": 150, "std_dev": 60}},
            {"input_tokens": {"type": "lognormal", "mean": 150, "std": 60, "min": 10, "max": 1024}},
        ),
        (
            {"type": "shared_prefix", "shared_prefix": {"num_groups": 32, "system_prompt_len": 2048, "output_len": 9}},
            {
                "prefix": {"tokens": 2048, "suffix_tokens": 50, "groups": 32, "prompts": 10},
                "output_tokens": 9,
            },
        ),
        (
            {
                "type": "shared_prefix",
                "shared_prefix": {
                    "num_unique_system_prompts": 1,
                    "num_users_per_system_prompt": 20,
                    "enable_multi_turn_chat": True,
                    "question_len": {"type": "fixed", "mean": 200},
                },
            },
            {"prefix": {"tokens": 100, "suffix_tokens": 200, "groups": 1, "prompts": 20}, "turns": 1},
        ),
        (
            {"type": "shareGPT", "path": "a.json", "input_distribution": {"min": 10, "max": 1024}},
            {"type": "sharegpt", "path": "a.json", "turns": "whole", "output_tokens": 30},
        ),
        ({"type": "mock"}, {"type": "text", "text": "1 2 3 {index}", "output_tokens": 30}),
    ],
)
def test_what_inference_perf_sends(data, workload):
    said = {"data": data, "load": {"stages": [{"rate": 1, "duration": 5}]}, "api": {"type": "chat", "streaming": True}}
    found = inference_perf.from_mapping(said)
    assert workload.items() <= found.plan["workload"].items()
    assert plan_from(found.plan).target.api == "chat"


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (
            {"type": "poisson", "stages": [{"rate": 2, "duration": 5}], "base_seed": 7},
            {"load": {"type": "poisson", "rate": 2}, "stop": {"duration": "5s"}, "seed": 7},
        ),
        (
            {"stages": [{"rate": 1, "duration": 5}, {"rate": 2, "duration": 6}]},
            {
                "load": {
                    "type": "stages",
                    "stages": [
                        {"rate": 1, "duration": "5s", "process": "poisson"},
                        {"rate": 2, "duration": "6s", "process": "poisson"},
                    ],
                }
            },
        ),
        (
            {"type": "concurrent", "stages": [{"concurrency_level": 3, "num_requests": 40}]},
            {"load": {"type": "concurrency", "concurrency": 3}, "stop": {"requests": 40}},
        ),
    ],
)
def test_when_inference_perf_sends(load, expected):
    plan = inference_perf.from_mapping({"data": {"type": "mock"}, "load": load}).plan
    assert {name: plan.get(name) for name in expected} == expected
    assert plan["target"] == {"stream": False}
    plan_from(plan)


def test_what_inference_perf_has_and_we_have_not_is_a_mistake() -> None:
    with pytest.raises(PlanError) as caught:
        inference_perf.from_mapping(
            {
                "data": {"type": "tracelab_trace_replay"},
                "load": {"type": "concurrent", "sweep": {"type": "linear"}},
                "api": {"type": "audio"},
            }
        )
    data, api, sweep = caught.value.mistakes
    assert "api.type must be one of completion, chat, anthropic_messages, got audio" in api
    assert "data.type has no counterpart" in data and "got tracelab_trace_replay" in data
    assert "load.type must be constant or poisson with load.sweep, got concurrent" in sweep


FLAT_GUIDE = {
    "target": "http://h:1",
    "rate-type": "concurrent",
    "rate": 2,
    "max-seconds": 30,
    "data": "prompt_tokens=256,output_tokens=128",
}
SPEC_GUIDE = {
    "spec": {
        "backend": {"kind": "openai_http", "target": "http://h:1", "request_format": "/v1/chat/completions"},
        "profile": {"kind": "concurrent", "streams": 2},
        "constraints": [{"kind": "max_duration", "seconds": 30}],
        "data": [{"kind": "synthetic_text", "prompt_tokens": 256, "output_tokens": 128}],
    }
}


@pytest.mark.parametrize("said", [FLAT_GUIDE, SPEC_GUIDE], ids=["flat", "spec"])
def test_guidellms_files(said):
    assert is_foreign(said)
    plan = plan_from(guidellm.from_mapping(said).plan)
    ours = read_plan(find_profile("guidellm/sanity_concurrent", {}).path)
    assert (plan.workload, plan.load, plan.stop) == (ours.workload, ours.load, ours.stop)


def test_vllm_benchmarks_profiles() -> None:
    said = yaml.safe_load(
        """
        executable: benchmark_serving.py
        model: m
        base-url: http://h:1
        dataset-name: random
        random-input-len: 10000
        random-output-len: 1000
        max-concurrency: 1
        num-prompts: 32
        percentile-metrics: "ttft,tpot,itl,e2el"
        ignore-eos: none
        """
    )
    plan = plan_from(llmd.from_mapping(said, "x").plan)
    ours = read_plan(find_profile("vllm-benchmark/random_concurrent", {}).path)
    assert (plan.workload, plan.load, plan.stop) == (ours.workload, ours.load, ours.stop)


def test_fmperfs_profiles() -> None:
    said = {
        "model_name": "m",
        "image": None,
        "scenarios": "long-input",
        "qps_values": "0.1 0.25 0.5 1 2 3 4 5",
        "num_users_warmup": 5,
        "num_users": 3,
        "num_rounds": 5,
        "system_prompt": 256,
        "chat_history": 1024,
        "answer_len": 32,
        "init_user_id": 1,
        "test_duration": 300,
        "use_chat_completions": True,
    }
    found = fmperf.from_mapping(said)
    plan = plan_from(found.plan)
    ours = read_plan(find_profile("fmperf/large_model_long_input", {}).path)
    assert (plan.workload, plan.load, plan.target.api) == (ours.workload, ours.load, ours.target.api)
    assert "rates are of sessions of 5 turns: request rate / 5" in found.notes


def test_our_own_plans_are_nobody_elses() -> None:
    for said in ({"load": {"rate": 1}}, {"target": "http://h", "workload": {}}, {"server": "simulator", "load": {}}):
        assert not is_foreign(said)


def test_run_sh_by_flags_and_by_variables(template: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLMDBENCH_DEPLOY_MODEL_LIST", "x/y")
    words = shlex.split(f"./run.sh -c scenario.sh -l inference-perf -w {template} -o min=20,total_count=200")
    found = from_command(words)
    assert found.plan["workload"]["input_tokens"]["min"] == 20
    assert any("total_count: a length is drawn for every request" in note for note in found.notes)
    assert found.plan["target"]["model"] == "x/y"
    assert any(note.startswith("--scenario: belongs to a cluster") for note in found.notes)
    (tmp_path / "inference-perf").mkdir()
    (tmp_path / "inference-perf" / "mine.yaml.in").write_text(SANITY)
    monkeypatch.setenv("INFEROMETER_PROFILES", str(tmp_path))
    monkeypatch.setenv("LLMDBENCH_HARNESS_EXPERIMENT_PROFILE", "mine.yaml")
    assert from_command(["run.sh", "-m", "a/b"]).plan["target"]["model"] == "a/b"
    with pytest.raises(PlanError, match="and no built-in plan of that name"):
        from_command(["run.sh", "-l", "fmperf", "-w", "dreams"])


def test_inference_perf_by_its_command_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    path.write_text("data: {type: mock}\nload: {stages: [{rate: 1, duration: 5}]}\nserver: {base_url: 'http://h'}\n")
    found = from_command(["inference-perf", "--config_file", str(path), "--server.base_url", "http://other"])
    assert found.plan["target"]["url"] == "http://other"
    assert found.notes[0] == "server.base_url: http://h -> http://other"
    opened = open_plan([str(path)], ["load.rate=7"], changes=["duration=9"])
    assert (opened.plan.load.rate, opened.plan.stop.duration) == (7, 9)


def test_show_prints_the_plan_a_person_would_write(template: str) -> None:
    shown = CliRunner().invoke(group, ["plan", "show", template, "-o", "min=20"], env={"COLUMNS": "200", **STACK})
    assert shown.exit_code == 0
    assert shown.output.startswith("# inference-perf, as a plan\n# data.input_distribution.min: 10 -> 20\n")
    assert (
        Document(to_mapping(plan_from(yaml.safe_load(shown.output)))).section("workload", "input_tokens")["min"] == 20
    )
    command = ["plan", "show", "--", "vllm", "bench", "serve", "--request-rate", "4"]
    assert "rate: 4\n" in CliRunner().invoke(group, command).output
    checked = CliRunner().invoke(group, ["plan", "check", template], env=STACK)
    assert checked.output == f"{template}: ok (of inference-perf)\n"


GUIDES = Path(__file__).parents[3] / "docs" / "guides"


def commands_in(page: str) -> list[list[str]]:
    text = (GUIDES / page).read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    inferometer ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.mark.parametrize("words", [*commands_in("plans-of-other-tools.md"), *commands_in("profiles.md")], ids=" ".join)
def test_what_the_guides_type_works(words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yml").write_text(
        SANITY.replace("REPLACE_ENV_", "").replace("LLMDBENCH_HARNESS_STACK_ENDPOINT_URL", "http://h")
    )
    (tmp_path / "sanity_random.yaml.in").write_text(SANITY)
    words = words[: words.index(">")] if ">" in words else words
    dry = ["--dry-run"] if words[0] == "run" else []
    ran = CliRunner().invoke(group, [words[0], *dry, *words[1:]], env={"XDG_CONFIG_HOME": "/nowhere"})
    assert ran.exit_code == 0, ran.output


def test_a_dry_run_takes_what_show_shows(template: str) -> None:
    said = CliRunner().invoke(group, ["run", template, "--dry-run", "--set", "load.rate=9"], env=STACK)
    assert said.exit_code == 0
    assert yaml.safe_load(said.stdout)["load"]["rate"] == 9


def test_the_nightly_suite_of_several_engines_starts_vllm(tmp_path: Path) -> None:
    common = {"model": "m", "tp": 2, "dataset_name": "sonnet", "dataset_path": "s.txt", "num_prompts": 50, "port": 8000}
    common |= {"sonnet_input_len": 550, "sonnet_output_len": 150, "sonnet_prefix_len": 200, "reuse_server": True}
    test = {"test_name": "a", "qps_list": [4, "inf"], "common_parameters": common}
    test |= {"vllm_server_parameters": {"disable_log_stats": ""}, "vllm_client_parameters": {}}
    test |= {"sglang_server_parameters": {"dtype": "bfloat16"}, "tgi_client_parameters": {"endpoint": "/generate"}}
    found = from_suite([test], "nightly-tests.json")
    first, last = (case["plan"] for case in found.experiment["cases"])
    assert (first["load"]["rate"], last["load"]["type"]) == (4, "concurrency")
    assert first["server"]["args"] == {"tensor-parallel-size": 2, "disable-log-stats": True}
    assert first["workload"]["type"] == "sonnet" and first.get("sampling", {}).get("ignore_eos", True)
    assert any("only vLLM is started" in note for note in found.notes)
    with pytest.raises(PlanError, match=r"common_parameters\.new is not understood"):
        from_suite([{**test, "common_parameters": {**common, "new": 1}}], "nightly-tests.json")
