"""nm-vllm's unmodified configs: every combination is a case with its plan."""

import json
import math
from pathlib import Path

import pytest

from inferometer.errors import PlanError
from inferometer.plan.cases import cases_of
from inferometer.plan.experiment import experiment_from
from inferometer.plan.foreign.nm_vllm import Known, from_mapping, is_it
from inferometer.plan.foreign.recognise import foreign_experiment, open_experiment
from inferometer.plan.offline import ThroughputPlan


def serving(**changes):
    config = {
        "description": "VLLM Serving - Dense",
        "models": ["teknium/OpenHermes-2.5-Mistral-7B", "NousResearch/Llama-2-7b-chat-hf"],
        "use_all_available_gpus": "",
        "max_model_lens": [4096],
        "sparsity": [],
        "script_name": "benchmark_serving",
        "script_args": {"nr-qps-pair_": ["150,0.5", "300,1", "100,inf"], "dataset": ["sharegpt"]},
    }
    whole = {**config, **changes}
    return {"configs": [{name: value for name, value in whole.items() if value is not None}]}


def throughput(**args):
    script_args = {"dataset": ["sharegpt"], "output-len": [128], "num-prompts": [1000], "use-all-available-gpus_": []}
    return {
        "configs": [
            {
                "description": "VLLM Engine throughput - Dense (with dataset)",
                "models": ["m/a"],
                "max_model_lens": [4096],
                "script_name": "benchmark_throughput",
                "script_args": {name: value for name, value in {**script_args, **args}.items() if value is not None},
            }
        ]
    }


def cases(said, known=None):
    return cases_of(experiment_from(from_mapping(said, "c.json", known).experiment))


def test_the_documents_serving_example() -> None:
    found = cases(serving(), Known(gpus=4))
    assert [case.label for case in found] == [
        f"{model} nr-qps-pair={pair}"
        for model in ("OpenHermes-2.5-Mistral-7B", "Llama-2-7b-chat-hf")
        for pair in ("150,0.5", "300,1", "100,inf")
    ]
    plan = found[0].plan
    assert plan.server.type == "vllm" and plan.server.model == plan.target.model == "teknium/OpenHermes-2.5-Mistral-7B"
    assert plan.server.args == {"max-model-len": 4096, "tensor-parallel-size": 4}
    assert (plan.load.type, plan.load.rate, plan.stop.requests) == ("poisson", 0.5, 150)
    assert plan.workload.type == "table" and plan.workload.columns["prompt"] == "conversations.0.value"
    assert (plan.workload.min_tokens, plan.workload.min_output_tokens, plan.workload.max_total_tokens) == (4, 4, 2048)
    assert plan.sampling.ignore_eos and plan.sampling.temperature == 1
    assert (found[2].plan.load.type, found[2].plan.load.concurrency) == ("concurrency", 100)


def test_a_table_of_cases_has_a_column_for_what_varies() -> None:
    parameters = cases(serving())[1].parameters
    assert parameters["load.rate"] == 1 and parameters["stop.requests"] == 300
    assert parameters["server.model"] == "teknium/OpenHermes-2.5-Mistral-7B" and "target.model" not in parameters
    assert "workload.type" not in parameters


def test_every_combination_has_a_fresh_server() -> None:
    assert experiment_from(from_mapping(serving(), "c.json").experiment).server.restart == "each-case"


def test_models_sparsities_and_lengths_multiply_and_lists_are_a_product_in_key_order() -> None:
    args = {"num-prompts_": [10, 20], "request-rate_": [1, 2], "num-input-tokens": [8], "num-output-tokens": [4, 5]}
    said = serving(sparsity=["sparse_w16a16", None], max_model_lens=[1024, 2048], script_args=args)
    found = cases(said)
    assert len(found) == 2 * 2 * 2 * (2 * 2 * 2)
    first = [
        (case.plan.stop.requests, case.plan.load.rate, case.plan.workload.output_tokens.mean_value) for case in found
    ]
    assert first[:8] == [(n, rate, out) for n in (10, 20) for rate in (1, 2) for out in (4, 5)]
    assert found[0].plan.server.args["sparsity"] == "sparse_w16a16"
    assert "sparsity" not in found[16].plan.server.args


def test_an_empty_list_is_a_flag() -> None:
    args = {"nr-qps-pair_": ["10,1"], "num-input-tokens": [8], "num-output-tokens": [4], "use-beam-search": []}
    sampling = cases(serving(script_args=args))[0].plan.sampling
    assert sampling.extra == {"use_beam_search": True} and sampling.temperature == 0


@pytest.mark.parametrize(
    "changes, wanted",
    [
        ({"use_all_available_gpus": None}, None),
        ({"use_all_available_gpus": None, "tensor_parallel_size": 2}, 2),
        ({"use_all_available_gpus": None, "tensor_parallel_size": "2"}, 2),
        ({}, 8),
    ],
)
def test_gpus(changes, wanted: int | None):
    assert cases(serving(**changes), Known(gpus=8))[0].plan.server.args.get("tensor-parallel-size") == wanted


def test_unknown_gpus_are_said_and_left_to_the_engine() -> None:
    found = from_mapping(serving(), "c.json")
    assert any("use_all_available_gpus: no GPU was found" in note for note in found.notes)


def test_lengths_are_clipped_to_what_the_model_supports_and_done_once() -> None:
    found = from_mapping(
        serving(models=["m/a"], max_model_lens=[1024, 4096, 8192]), "c.json", Known(context=lambda _: 2048)
    )
    lengths = [each["plan"]["server"]["args"]["max-model-len"] for each in found.experiment["cases"]]
    assert lengths == [1024] * 3 + [2048] * 3
    assert any("4096 is more than m/a supports, 2048 is used" in note for note in found.notes)


def test_throughput_is_an_offline_case() -> None:
    case = cases(throughput(), Known(gpus=2))[0]
    assert isinstance(case.plan, ThroughputPlan)
    assert case.plan.on.engine == "vllm" and case.plan.on.args == {"max_model_len": 4096, "tensor_parallel_size": 2}
    assert (case.plan.num_prompts, case.plan.warmup, case.plan.workload["output_tokens"]) == (1000, 1000, 128)


def test_ultrachat_and_a_file() -> None:
    assert cases(throughput(dataset=["ultrachat"]))[0].plan.workload["repo"] == "HuggingFaceH4/ultrachat_200k"
    assert cases(throughput(dataset=["mine.json"]))[0].plan.workload["path"] == "mine.json"


@pytest.mark.parametrize(
    "said, told",
    [
        (serving(tensor_parallel_size=1), "tensor_parallel_size and use_all_available_gpus exclude each other"),
        (serving(sparsity=None), "sparsity is missing: [] means none"),
        (serving(models=[]), "models is missing"),
        (serving(script_name="benchmark_latency"), "script_name must be benchmark_serving or benchmark_throughput"),
        (serving(nonsense=1), "nonsense is not one of its settings"),
        (serving(script_args={"nr-qps-pair_": "150,0.5"}), "script_args.nr-qps-pair_ must be a list, got 150,0.5"),
        (serving(script_args={"nr-qps-pair_": ["150"], "dataset": ["sharegpt"]}), 'must be "requests,rate"'),
        (serving(script_args={"nr-qps-pair_": ["0,1"], "dataset": ["sharegpt"]}), 'must be "requests,rate"'),
        (serving(script_args={"num-prompts_": [5], "dataset": ["sharegpt"]}), "request-rate_ missing"),
        (
            serving(script_args={"nr-qps-pair_": ["1,1"], "request-rate_": [2], "dataset": ["sharegpt"]}),
            "cannot be combined with num-prompts_ and request-rate_",
        ),
        (serving(script_args={"nr-qps-pair_": ["1,1"], "dataset": ["alpaca"]}), "got alpaca"),
        (serving(script_args={"nr-qps-pair_": ["1,1"]}), "num-input-tokens is missing"),
        (
            serving(script_args={"nr-qps-pair_": ["1,1"], "dataset": ["sharegpt"], "nope": [1]}),
            "script_args.nope is not",
        ),
        (serving(max_model_lens=["long"]), "max_model_lens must be whole numbers, got long"),
        (throughput(**{"tensor-parallel-size_": [2]}), "one of tensor-parallel-size_ and use-all-available-gpus_"),
        (throughput(**{"use-all-available-gpus_": None}), "one of tensor-parallel-size_ and use-all-available-gpus_"),
        (throughput(**{"input-len": [5]}), "cannot be combined with a dataset"),
        (throughput(**{"use-beam-search": []}), "use-beam-search"),
    ],
)
def test_what_has_no_counterpart_is_named(said, told: str):
    with pytest.raises(PlanError) as error:
        from_mapping(said, "c.json")
    assert told in str(error.value) and "c.json: configs[0]" in str(error.value)


def test_all_mistakes_of_all_configs_at_once() -> None:
    said = {"configs": serving(sparsity=None)["configs"] + serving(models=[])["configs"]}
    with pytest.raises(PlanError) as error:
        from_mapping(said, "c.json")
    assert [each.partition(" ")[0] + each.split()[1] for each in error.value.mistakes] == [
        "c.json:configs[0]:",
        "c.json:configs[1]:",
    ]


def test_a_list_of_configs_and_the_workflows_time(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/serving.json").write_text(json.dumps(serving()))
    (tmp_path / "configs/throughput.json").write_text(json.dumps(throughput()))
    (tmp_path / "list.txt").write_text("configs/serving.json\n# and\nconfigs/throughput.json\n")
    inputs = {"label": "aws", "timeout": "180", "benchmark_config_list_file": "list.txt", "python": "3.10.12"}
    (tmp_path / "inputs.json").write_text(json.dumps(inputs))
    opened = open_experiment(tmp_path / "inputs.json")
    assert opened.tool == "nm-vllm" and opened.experiment.budget.time == 180 * 60
    assert [each.name for each in opened.experiment.cases] == [
        case.name for case in open_experiment(tmp_path / "list.txt").experiment.cases
    ]
    assert len(opened.experiment.cases) == 7
    assert open_experiment(tmp_path / "list.txt", ["budget.time=2h"]).experiment.budget.time == 7200


def test_keys_that_nm_vllm_does_not_have_are_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="new is not understood next to configs"):
        from_mapping({**serving(), "new": 1}, "c.json")
    (tmp_path / "serving.json").write_text(json.dumps(serving()))
    (tmp_path / "list.txt").write_text("serving.json\n")
    (tmp_path / "inputs.json").write_text(json.dumps({"benchmark_config_list_file": "list.txt", "new": "1"}))
    with pytest.raises(PlanError, match="new is not understood"):
        open_experiment(tmp_path / "inputs.json")


def test_a_list_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("hello\n")
    with pytest.raises(PlanError, match="must list configs"):
        foreign_experiment(tmp_path / "list.txt")
    (tmp_path / "list.txt").write_text("nowhere.json\n")
    with pytest.raises(PlanError, match="file not found"):
        foreign_experiment(tmp_path / "list.txt")


def test_two_configs_alike_have_names_of_their_own() -> None:
    twice = {"configs": serving()["configs"] + serving(description="again")["configs"] + serving()["configs"]}
    names = [each["name"] for each in from_mapping(twice, "c.json").experiment["cases"]]
    assert len({*names}) == len(names) == 18


def test_ours_are_left_alone(tmp_path: Path) -> None:
    assert not is_it({"plan": {}, "axes": {}})
    (tmp_path / "e.yaml").write_text("plan: {load: {rate: 1}}\naxes: {load.rate: [1, 2]}\n")
    assert foreign_experiment(tmp_path / "e.yaml") is None
    assert math.prod(len(values) for values in open_experiment(tmp_path / "e.yaml").experiment.axes.values()) == 2
