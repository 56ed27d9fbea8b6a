"""The text of metrics endpoints: names of all engines are unified, and nonsense is not read as numbers."""

import pytest

from inferometer.measure.telemetry import PICKER, SERVER
from inferometer.observe.prometheus import MEANINGS, Unreadable, read_exposition

VLLM = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 2.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 2.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 0.106
vllm:iteration_tokens_total_sum{engine="0"} 900
vllm:iteration_tokens_total_created{engine="0"} 1.79e9
vllm:cache_config_info{block_size="16",num_gpu_blocks="56916",engine="0"} 1.0
process_start_time_seconds 1.79470523531e+09
"""


def values(text):
    return {name: value for (name, _), value in read_exposition(text).values.items()}


def test_vllms_text_is_read_under_our_names() -> None:
    found = read_exposition(VLLM)
    assert found.engines == {"vLLM"}
    assert found.values["running", (("engine", "0"),)] == 3
    assert found.values["running", (("engine", "1"),)] == 4
    assert found.values["requests_ok", (("engine", "0"), ("finished_reason", "abort"))] == 1
    assert found.values["ttft_bucket", (("engine", "0"), ("le", "+Inf"))] == 2
    assert values(VLLM)["ttft_sum"] == 0.106
    assert values(VLLM)["step_tokens_sum"] == 900
    assert values(VLLM)["process_started"] == 1.79470523531e9
    assert found.names["ttft"] == "vllm:time_to_first_token_seconds"
    assert found.config == {"block_size": "16", "num_gpu_blocks": "56916"}
    assert found.lies == []


@pytest.mark.parametrize(
    ("line", "name", "value", "engine"),
    [
        ('vllm:gpu_cache_usage_perc{model_name="m"} 0.5', "kv_usage", 0.5, "vLLM"),
        ("vllm:time_per_output_token_seconds_sum 3", "itl_sum", 3, "vLLM"),
        ("vllm:gpu_prefix_cache_hits_total 7", "prefix_hits", 7, "vLLM"),
        ('ray_vllm:prompt_tokens_total{WorkerId="a"} 5', "prompt_tokens", 5, "vLLM on Ray"),
        ('ray_vllm_request_prefill_time_seconds_count{WorkerId="a"} 5', "prefill_time_count", 5, "vLLM on Ray"),
        ('sglang:num_queue_reqs{model_name="m"} 2', "queued", 2, "SGLang"),
        ("sglang:token_usage 0.25", "kv_usage", 0.25, "SGLang"),
        ("sglang:cached_tokens_total 9", "cached_prompt_tokens", 9, "SGLang"),
        ("sglang:inter_token_latency_seconds_count 9", "itl_count", 9, "SGLang"),
        ("tgi_queue_size 4", "queued", 4, "TGI"),
        ("tgi_request_queue_duration_sum 4", "queue_time_sum", 4, "TGI"),
        ('tgi_request_success{method="generate"} 4', "requests_ok", 4, "TGI"),
        ("trtllm_kv_cache_utilization 0.1", "kv_usage", 0.1, "TensorRT-LLM"),
        ("trtllm_time_per_output_token_seconds_sum 1", "tpot_sum", 1, "TensorRT-LLM"),
        ('nv_trt_llm_request_metrics{request_type="waiting"} 6', "queued", 6, "Triton TensorRT-LLM"),
        (
            'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"} .5',
            "kv_usage",
            0.5,
            "Triton TensorRT-LLM",
        ),
        ("llamacpp:tokens_predicted_total 11", "generation_tokens", 11, "llama.cpp"),
        ("llamacpp:requests_deferred 1", "queued", 1, "llama.cpp"),
        ('inference_pool_ready_pods{name="pool"} 3', "picker_pods", 3, PICKER),
        ('inference_objective_request_total{model_name="m"} 9', "picker_requests", 9, PICKER),
        ("inference_extension_scheduler_e2e_duration_seconds_sum 2", "picker_time_sum", 2, PICKER),
        ('llm_d_inference_scheduler_disagg_decision_total{decision_type="d"} 4', "picker_disaggregated", 4, PICKER),
    ],
)
def test_the_names_of_every_engine(line: str, name: str, value: float, engine: str) -> None:
    found = read_exposition(line)
    assert [(key[0], told) for key, told in found.values.items()] == [(name, value)]
    assert found.engines == {engine}


def test_one_thing_under_two_names_counts_once() -> None:
    """As vLLM 0.10 writes what it renamed, and Ray (since 2.10) every counter a second time, as a gauge."""
    both = """
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.6
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.6
vllm:time_per_output_token_seconds_sum{engine="0"} 3.0
vllm:inter_token_latency_seconds_sum{engine="0"} 3.0
ray_vllm_prompt_tokens_total{WorkerId="a"} 100
ray_vllm_prompt_tokens_total{WorkerId="b"} 50
ray_vllm_prompt_tokens{WorkerId="a"} 100
ray_vllm_prompt_tokens{WorkerId="b"} 50
vllm:generation_tokens_total{model_name="base"} 7
vllm:generation_tokens_total{model_name="adapter"} 5
"""
    found = read_exposition(both).values
    assert found["kv_usage", (("engine", "0"),)] == 0.6
    assert found["itl_sum", (("engine", "0"),)] == 3.0
    assert [found["prompt_tokens", (("WorkerId", each),)] for each in "ab"] == [100, 50]
    assert found["generation_tokens", ()] == 12  # two models of one server are two parts of it


def test_a_name_means_one_thing() -> None:
    for raw, meanings in MEANINGS.items():
        assert len(meanings) == 1 or all(meaning.label for meaning in meanings), raw
    assert {meaning.name for meanings in MEANINGS.values() for meaning in meanings} == set(SERVER)


def test_timestamps_exemplars_and_escapes_are_passed_over() -> None:
    line = r'vllm:num_preemptions_total{engine="a\"b\\c\n",x="}"} 3.5e1 1700000000 # {id="1"} 2'
    assert read_exposition(line).values == {("preemptions", (("engine", 'a"b\\c\n'),)): 35}


@pytest.mark.parametrize("value", ["-1", "NaN", "+Inf", "-Inf", "many", ""])
def test_a_value_that_no_counter_can_have_is_told_and_left_out(value: str) -> None:
    found = read_exposition(f"vllm:num_requests_running 1\nvllm:prompt_tokens_total {value}\n")
    assert [key[0] for key in found.values] == ["running"]
    assert len(found.lies) == 1 and found.lies[0].startswith("vllm:prompt_tokens_total")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<html>hello</html>", "is not Prometheus text, it begins with '<html>"),
        ('{"error": "x"}', "is not Prometheus text"),
        ("", "is empty"),
        ("# TYPE go_gc gauge\ngo_gc 1\n", "has no metric of a known inference server"),
        ("process_start_time_seconds 1\n", "has no metric of a known inference server"),
    ],
)
def test_what_is_nothing_of_ours_is_said(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read_exposition(text)
