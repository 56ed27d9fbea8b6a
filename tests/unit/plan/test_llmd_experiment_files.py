"""llm-d-benchmark's experiment files, of the bash version and today: setup times run."""

import json
from pathlib import Path

import pytest

from inferometer.errors import PlanError
from inferometer.plan.cases import cases_of
from inferometer.plan.experiment import experiment_from
from inferometer.plan.foreign.llmd_experiment import from_mapping, is_it
from inferometer.plan.foreign.recognise import open_experiment

ENVIRON = {"LLMDBENCH_HARNESS_EXPERIMENT_PROFILE": "shared_prefix_synthetic.yaml"}
RUN = {
    "factors": ["question_len", "output_len"],
    "levels": {"question_len": "100,300", "output_len": "100,300"},
    "treatments": ["100,100", "100,300", "300,100"],
}
TEMPLATE = """\
load: {type: constant, stages: [{rate: 1, duration: 30}]}
api: {type: completion, streaming: true}
server: {type: vllm, model_name: REPLACE_ENV_LLMDBENCH_DEPLOY_CURRENT_MODEL, ignore_eos: true}
data:
  type: shared_prefix
  shared_prefix: {num_groups: 32, num_prompts_per_group: 32, system_prompt_len: 2048, question_len: 9, output_len: 9}
"""


def cases(said, environ=ENVIRON, where="e.yaml", **options):
    return cases_of(experiment_from(from_mapping(said, where, environ, **options).experiment))


def test_the_run_half_changes_our_own_profile_where_the_template_is_not_here() -> None:
    found = cases({"run": RUN})
    assert [case.label for case in found] == ["run_100_100", "run_100_300", "run_300_100"]
    workload = found[1].plan.workload
    assert (workload.prefix.tokens.mean_value, workload.prefix.suffix_tokens.mean_value) == (2048, 100)
    assert workload.output_tokens.mean_value == 300
    assert found[1].parameters["workload.output_tokens"] == 300


def test_a_template_is_changed_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "workload/profiles/inference-perf").mkdir(parents=True)
    (tmp_path / "workload/profiles/inference-perf/mine.yaml.in").write_text(TEMPLATE)
    (tmp_path / "experiments").mkdir()
    file = tmp_path / "experiments/e.yaml"
    said = {
        "experiment": {
            "name": "today",
            "description": "why\n it is",
            "harness": "inference-perf",
            "profile": "mine.yaml",
        },
        "design": {"type": "full_factorial"},
        "treatments": [
            {"name": "q100", "data.shared_prefix.question_len": 100},
            {"name": "rate", "load.stages.0.rate": 5, "data.shared_prefix.num_groups": 8},
        ],
    }
    file.write_text(json.dumps(said))
    opened = open_experiment(file, environ={"LLMDBENCH_DEPLOY_CURRENT_MODEL": "m"})
    assert (opened.tool, opened.experiment.name, opened.experiment.about) == ("llm-d-benchmark", "today", "why it is")
    first, second = cases_of(opened.experiment)
    assert first.plan.target.model == "m" and first.plan.workload.prefix.suffix_tokens.mean_value == 100
    assert second.plan.workload.prefix.groups == 8 and second.plan.load.rate == 5

    overridden = open_experiment(file, environ={}, changes=["num_groups=4,output_len=7"])  # -o, as with run.sh's -e
    plans = [case.plan for case in cases_of(overridden.experiment)]
    assert [plan.workload.prefix.groups for plan in plans] == [4, 4]
    assert [plan.workload.output_tokens.mean_value for plan in plans] == [7, 7]
    assert plans[0].workload.prefix.suffix_tokens.mean_value == 100
    assert "data.shared_prefix.num_groups: 8 -> 4" in overridden.notes
    with pytest.raises(PlanError, match=r"-o nowhere: .* has no such setting"):
        open_experiment(file, environ={}, changes=["nowhere=4"])


def test_a_key_that_the_template_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml.in").write_text(TEMPLATE)
    said = {"experiment": {"profile": "mine"}, "treatments": [{"name": "x", "data.shared_prefix.question_length": 1}]}
    with pytest.raises(PlanError, match=r"x: data\.shared_prefix\.question_length.*did you mean"):
        from_mapping(said, str(tmp_path / "e.yaml"), {})


def test_setup_times_run() -> None:
    setup = {
        "constants": [
            {"LLMDBENCH_VLLM_COMMON_MAX_MODEL_LEN": 16000},
            {"LLMDBENCH_DEPLOY_MODEL_LIST": "Qwen/Qwen3-32B"},
        ],
        "factors": ["LLMDBENCH_DEPLOY_METHODS", "LLMDBENCH_VLLM_COMMON_TENSOR_PARALLELISM", "decode.replicas"],
        "treatments": {"small": "standalone,1,1", "large": "standalone,2,NA"},
    }
    found = cases({"setup": setup, "run": RUN})
    assert [case.label for case in found][:4] == [
        "small run_100_100",
        "small run_100_300",
        "small run_300_100",
        "large run_100_100",
    ]
    server = found[3].plan.server
    assert (server.type, server.model) == ("vllm", "Qwen/Qwen3-32B")
    assert server.args == {"max-model-len": 16000, "tensor-parallel-size": 2}
    assert len({case.stack for case in found}) == 2


def test_todays_setup_with_dotted_paths() -> None:
    setup = {
        "constants": {
            "model.name": "m",
            "model.blockSize": 64,
            "vllmCommon.kvTransfer.enabled": True,
            "vllmCommon.kvTransfer.connector": "OffloadingConnector",
            "vllmCommon.kvTransfer.role": "kv_both",
        },
        "treatments": [
            {"name": f"cpu-{n}", "vllmCommon.kvTransfer.extraConfig.num_cpu_blocks": n} for n in (500, 1000)
        ],
    }
    found = cases({"setup": setup, "run": RUN})
    assert len(found) == 6 and found[0].plan.server.args["block-size"] == 64
    assert json.loads(found[3].plan.server.args["kv-transfer-config"]) == {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"num_cpu_blocks": 1000},
    }


def test_what_only_a_cluster_has_is_named_and_can_be_left_to_a_stack_that_runs() -> None:
    factors = ["LLMDBENCH_VLLM_MODELSERVICE_GAIE_PLUGINS_CONFIGFILE", "LLMDBENCH_DEPLOY_METHODS"]
    said = {"setup": {"factors": factors, "treatments": ["inf-sche-kv.yaml,modelservice"]}, "run": RUN}
    with pytest.raises(PlanError) as error:
        from_mapping(said, "e.yaml", ENVIRON)
    assert len(error.value.mistakes) == 2 and "GAIE_PLUGINS_CONFIGFILE: inf-sche-kv.yaml has no" in str(error.value)
    assert "target.url" in error.value.hint
    found = from_mapping(said, "e.yaml", ENVIRON, run_only=True)
    assert len(found.experiment["cases"]) == 3 and any("setup: left out" in note for note in found.notes)


def test_the_runs_url_leaves_the_setup_out(tmp_path: Path) -> None:
    said = {"setup": {"factors": ["inferenceExtension.replicas"], "treatments": ["3"]}, "run": RUN}
    (tmp_path / "e.yaml").write_text(json.dumps(said))
    opened = open_experiment(tmp_path / "e.yaml", ["target.url=http://127.0.0.1:1"], environ=ENVIRON)
    assert cases_of(opened.experiment)[0].plan.target.url == ["http://127.0.0.1:1"]


def test_commas_in_values_and_settings_beside_the_halves() -> None:
    said = {"run": {**RUN, "treatments": ["100,100"]}, "treatment_stop_on_error": True, "reset_caches": True}
    found = from_mapping(said, "e.yaml", ENVIRON)
    assert found.experiment["budget"] == {"failures": 1} and any("reset_caches" in note for note in found.notes)
    odd = {"run": {"factors": ["output_len"], "treatments": ["1REPLACE_COMMA2"]}}
    assert from_mapping(odd, "e.yaml", ENVIRON).experiment["cases"][0]["plan"]["workload"]["output_tokens"] == "1,2"


@pytest.mark.parametrize(
    "said, told",
    [
        ({"run": {**RUN, "treatments": ["100"]}}, "treatment 100 has 1 values for 2 factors"),
        ({"run": RUN, "nonsense": 1}, "nonsense is not a part"),
        ({"run": {"factors": ["nope"], "treatments": ["1"]}}, "nope has no counterpart in the built-in plan"),
        (
            {"experiment": {"profile": "none_such"}, "treatments": [{"name": "a"}]},
            "none_such of inference-perf is not here",
        ),
    ],
)
def test_mistakes(said, told: str):
    with pytest.raises(PlanError, match=told):
        from_mapping(said, "e.yaml", ENVIRON)


def test_no_profile() -> None:
    with pytest.raises(PlanError, match="no profile is named"):
        from_mapping({"run": RUN}, "e.yaml", {})


def test_what_is_theirs() -> None:
    assert is_it({"run": RUN}) and is_it({"treatments": [{"name": "a"}]})
    assert not is_it({"plan": {}, "cases": []}) and not is_it({"load": {"rate": 1}})
