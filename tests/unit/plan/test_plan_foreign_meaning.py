"""Translated plans send the same: later turns, rates, numbers of requests; and differences are noted."""

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from inferometer.cli.group import group
from inferometer.errors import PlanError
from inferometer.load.transport import Encoder
from inferometer.plan.draft import WorkloadDraft
from inferometer.plan.experiment import experiment_from
from inferometer.plan.foreign import fmperf, guidellm, inference_perf, llmd
from inferometer.plan.foreign.common import Account, Foreign, Settings
from inferometer.plan.foreign.explain import REQUIRED, Read, Variant, explained
from inferometer.plan.foreign.recognise import from_command
from inferometer.plan.foreign.shapes import together
from inferometer.plan.opening import find_profile, open_plan
from inferometer.plan.reading import plan_from, read_plan
from inferometer.workload.session import WorkloadContext, workload_of

NOWHERE = {"XDG_CONFIG_HOME": "/nowhere"}
FMPERF = {
    "scenarios": "long-input",
    "qps_values": "1 2",
    "num_rounds": 5,
    "num_users": 3,
    "system_prompt": 256,
    "chat_history": 1024,
    "answer_len": 32,
    "test_duration": 60,
}


def read(line: str) -> Foreign:
    return from_command(shlex.split(line))


def turns_of(found: Foreign, session: int = 0) -> list[int | None]:
    tape = workload_of(plan_from(found.plan).workload, 0, 0, "")
    return [turn.input_tokens for turn in tape(session).turns]


def perf(load=None, **data) -> Foreign:
    stages = {"stages": [{"rate": 6, "duration": 5}]}
    return inference_perf.from_mapping({"data": data, "load": load or stages, "api": {"type": "chat"}})


# -- turns -----------------------------------------------------------------------------------------------------


def test_users_of_inference_perf_repeat_system_prompt_and_question() -> None:
    """Its requests in the order of a run of version 0.7 have 151 tokens, then 352, with 100, 50 and an answer of 50."""
    shared = {"num_groups": 2, "num_prompts_per_group": 3, "system_prompt_len": 100, "question_len": 10}
    found = perf(type="shared_prefix", shared_prefix={**shared, "output_len": 5, "enable_multi_turn_chat": True})
    assert turns_of(found) == [110, 225, 340, 455, 570]  # 30 requests of 6 users
    assert found.plan["load"]["rate"] == 6
    assert found.plan["stop"] == {"sessions": 6, "requests": 30, "whole_sessions": False}
    assert found.plan["workload"]["turn_interval"] == "1s"  # all six have had their turn


@pytest.mark.parametrize("data", ["shared_prefix", "conversation_replay"])
def test_conversations_of_inference_perf_take_turns_and_a_tool_keeps_the_slot(data: str) -> None:
    shared = {"num_groups": 2, "num_prompts_per_group": 3, "system_prompt_len": 100, "question_len": 10}
    own = {
        "shared_prefix": {**shared, "output_len": 5, "enable_multi_turn_chat": True},
        "conversation_replay": {
            **REPLAY,
            "num_conversations": 6,
            "tool_call_latency_sec": {"type": "fixed", "mean": 9},
        },
    }
    stage = {"num_requests": 15, "concurrency_level": 2}
    found = perf({"type": "concurrent", "stages": [stage]}, type=data, **{data: own[data]})
    load = {"type": "concurrency", "concurrency": 2, "sessions_at_once": 6, "in_turn": True}
    assert found.plan["load"] == load
    assert found.plan["stop"] == {"requests": 15, "whole_sessions": False}
    if data == "shared_prefix":
        assert turns_of(found) == [110, 225, 340]
    several = perf(
        {"type": "concurrent", "stages": [stage, {**stage, "concurrency_level": 3}]}, type=data, **{data: own[data]}
    )
    varied = several.experiment
    assert varied["zip"]["load.concurrency"] == [2, 3]
    assert varied["set"]["load.in_turn"] is True and varied["set"]["stop.whole_sessions"] is False
    experiment_from(varied, (), "inference-perf")


def test_media_of_inference_perf_are_of_one_color_and_silent() -> None:
    one = {"count": {"type": "fixed", "mean": 1}, "insertion_point": 1.0}
    media = {"image": {**one, "resolutions": "720p"}, "audio": {"count": one["count"], "durations": 2}}
    assert not {"images", "audio"} & perf(type="random", multimodal=media).plan["workload"].keys()
    found = perf(type="synthetic", multimodal={**media, "video": {"profiles": []}})
    assert found.plan["workload"]["output_tokens"] == 30 and "videos" not in found.plan["workload"]
    images, audio = found.plan["workload"]["images"], found.plan["workload"]["audio"]
    assert (images["content"], images["position"]) == ("solid", 1.0)
    assert (audio["content"], audio["position"]) == ("silence", 0.5)
    assert any("draws the place" in note for note in found.notes)


def test_sessions_of_aiperf_keep_their_slots_and_rates_are_of_requests() -> None:
    flags = "aiperf profile --model m --url h:1 --endpoint-type chat --isl 50 --osl 5 --session-turns-mean 4"
    closed = read(f"{flags} --session-turn-delay-mean 500 --concurrency 3 --request-count 10").plan
    assert closed["load"] == {"type": "concurrency", "concurrency": 3, "sessions_at_once": 3}
    assert closed["stop"] == {"requests": 10, "whole_sessions": False}
    assert closed["workload"]["count"] == 10  # of its own conversations, as many as requests
    rate = read(f"{flags} --request-rate 8 --concurrency 3 --num-sessions 5").plan
    assert (rate["load"]["rate"], rate["load"]["sessions_at_once"], rate["workload"]["count"]) == (2, 3, 5)


def test_recordings_of_weka_from_the_hub_are_a_hundred_with_gaps_of_a_minute() -> None:
    load = {"type": "trace_session_replay", "stages": [{"concurrent_sessions": 5}]}
    hub = perf(load, type="weka_trace_replay", weka_trace_replay={"hf_dataset_path": "a/b"}).plan["workload"]
    assert (hub["limit"], hub["max_gap"]) == (100, "60s")
    own = {"trace_directory": "t", "num_dataset_entries": 3}
    assert "limit" not in perf(load, type="weka_trace_replay", weka_trace_replay=own).plan["workload"]


def test_turns_of_guidellm_behind_a_prefix() -> None:
    data = "prompt_tokens=10,output_tokens=5,turns=2,prefix_tokens=100"
    found = read(f"guidellm benchmark --target http://h --data {data} --profile constant --rate 3,6 --max-seconds 9")
    assert turns_of(found) == [110, 125]
    assert [(stage["rate"], stage["duration"]) for stage in found.plan["load"]["stages"]] == [(1.5, 9), (3, 9)]


def test_rounds_of_fmperf_are_short_questions() -> None:
    found = fmperf.from_mapping(FMPERF, {})
    assert turns_of(found) == [1280, 1332, 1384, 1436, 1488]
    assert [stage["rate"] for stage in found.plan["load"]["stages"]] == [0.2, 0.4]


def test_variables_of_fmperf_win_over_its_profile() -> None:
    environ = {"LLMDBENCH_FMPERF_NUM_ROUNDS": "2", "LLMDBENCH_FMPERF_JOB_ID": "x", "LLMDBENCH_FMPERF_ANSWER_LEN": "7"}
    found = fmperf.from_mapping(FMPERF, environ)
    workload = found.plan["workload"]
    assert (workload["turns"], workload["output_tokens"]) == (2, 7)
    assert found.notes[:3] == [
        "LLMDBENCH_FMPERF_ANSWER_LEN: answer_len 32 -> 7",
        "LLMDBENCH_FMPERF_JOB_ID: has no counterpart in a plan",
        "LLMDBENCH_FMPERF_NUM_ROUNDS: num_rounds 5 -> 2",
    ]
    assert llmd.from_mapping(FMPERF, "x", environ).plan == found.plan


REPLAY = {
    "num_conversations": 9,
    "shared_system_prompt_len": 1000,
    "input_tokens_per_turn": {"type": "fixed", "mean": 20},
    "output_tokens_per_turn": {"type": "fixed", "mean": 5},
    "turns_per_conversation": {"type": "fixed", "mean": 3},
}


@pytest.mark.parametrize(
    ("dynamic", "turns"),
    [(None, [1020, 1045, 1070]), ({"type": "fixed", "mean": 300}, [1320, 1345, 1370]), (300, [1320, 1345, 1370])],
)
def test_conversations_of_inference_perf_keep_the_length_of_each_turn(dynamic, turns):
    found = perf(type="conversation_replay", conversation_replay={**REPLAY, "dynamic_system_prompt_len": dynamic})
    assert turns_of(found) == turns


def test_two_parts_drawn_together() -> None:
    assert together(10, 20) == 30
    assert together({"mean": 30, "std": 3, "min": 20, "max": 40}, {"mean": 40, "std": 4, "min": 35, "max": 60}) == {
        "mean": 70,
        "std": 5,
        "min": 55,
        "max": 100,
    }
    assert together("10-22", 8)["std"] == pytest.approx(12 / 12**0.5, abs=1e-3)


# -- how many, how many at once ------------------------------------------------------------------------------------


def test_all_of_generated_prefixes_are_sent() -> None:
    found = read(
        "conduct/benchmark.py --dataset-name generated-shared-prefix --gen-num-groups 8 --gen-prompts-per-group 4"
    )
    assert (found.plan["stop"], found.plan["load"]["concurrency"]) == ({"requests": 32}, 32)
    told = read("bench_serving --dataset-name generated-shared-prefix --num-prompts 10")
    assert told.plan["stop"] == {"requests": 1024}
    assert "--num-prompts: all of the groups x prompts are sent, 1024, as sglang does" in told.notes


def test_prefixes_of_vllm_are_repeated_equally_often() -> None:
    line = "vllm bench serve --dataset-name prefix_repetition --prefix-repetition-num-prefixes 30 --num-prompts 100"
    found = read(line)
    assert (found.plan["stop"], found.plan["workload"]["prefix"]["prompts"]) == ({"requests": 90}, 3)


def test_guidellm_sends_no_more_at_once_than_all() -> None:
    line = "guidellm benchmark --target http://h --data prompt_tokens=5,output_tokens=5 --profile throughput"
    assert read(f"{line} --max-requests 5").plan["load"]["concurrency"] == 5
    assert read(f"{line} --max-requests 5000").plan["load"]["concurrency"] == 512


def test_requests_that_aiperf_cancels() -> None:
    line = "aiperf profile -m m --concurrency 4 --request-count 8 --isl 10 --osl 10 --request-cancellation-rate 20"
    found = read(f"{line} --request-cancellation-delay 0.5")
    assert found.plan["load"]["cancel"] == {"share": 0.2, "after": 0.5}
    assert plan_from(found.plan).load.cancel is not None
    at_once = read(line)
    assert at_once.plan["load"]["cancel"]["after"] == "1ms" and any("at once" in note for note in at_once.notes)


def test_a_trace_of_aiperf_is_replayed_although_nobody_asks_for_it() -> None:
    line = "aiperf profile -m m --input-file t.jsonl --custom-dataset-type mooncake_trace"
    found = read(f"{line} --concurrency 8 --fixed-schedule-start-offset 2000 --fixed-schedule-end-offset 4000")
    assert found.plan["load"] == {"type": "replay", "max_concurrency": 8} and "stop" not in found.plan
    assert found.plan["workload"]["window"] == {"start": "2000ms", "end": "4000ms"}
    plain = read(f"{line} --no-fixed-schedule --concurrency 8")
    assert plain.plan["load"] == {"type": "concurrency", "concurrency": 8}
    assert plain.plan["stop"] == {"requests": 10}  # aiperf's default, whatever the concurrency
    with pytest.raises(PlanError, match="request-rate contradicts the times of the trace"):
        read(f"{line} --request-rate 3")


def test_goodput_of_aiperf_is_one_text_or_words() -> None:
    line = "aiperf profile -m m --request-count 8 --isl 10 --osl 10 --goodput"
    limits = ["ttft < 100ms", "tpot < 3.4ms"]
    assert read(f"{line} 'time_to_first_token:100 inter_token_latency:3.4'").plan["limits"] == limits
    assert read(f"{line} time_to_first_token:100 inter_token_latency:3.4").plan["limits"] == limits


def test_pictures_and_videos_of_guidellm_beside_its_text() -> None:
    line = (
        "guidellm run --backend kind=openai_http,target=http://h --profile kind=synchronous --data kind=synthetic_text"
    )
    found = read(
        f"{line},prompt_tokens=20 --data kind=synthetic_image,resolution=480p,aspect_ratio=4:3,output_tokens=9"
    )
    workload = found.plan["workload"]
    assert (workload["input_tokens"], workload["output_tokens"]) == (20, 9)
    assert (workload["images"]["width"], workload["images"]["height"]) == (640, 480)
    video = read(f"{line},prompt_tokens=20 --data kind=synthetic_video,width=854,height=481,frames=6").plan["workload"]
    assert video["videos"]["height"] == 480 and video["videos"]["frames_per_second"] == 1  # even, and its default
    with pytest.raises(PlanError, match="output_tokens is in two sources"):
        read(f"{line},prompt_tokens=2,output_tokens=2 --data kind=synthetic_image,resolution=480p,output_tokens=9")
    with pytest.raises(PlanError, match="must be one source, with images and videos"):
        read(f"{line},prompt_tokens=2 --data kind=synthetic_text,prompt_tokens=3")


def test_a_warmup_share_of_no_end_measures_everything() -> None:
    line = "guidellm run --backend kind=openai_http,target=http://h --data kind=synthetic_text,prompt_tokens=2"
    found = read(f"{line} --profile kind=concurrent,streams=16,warmup=0.1")
    assert "warmup" not in found.plan and any("measures everything" in note for note in found.notes)


def test_inference_perf_by_flags_alone() -> None:
    stages = '\'[{"rate": 10, "duration": 60}]\''
    line = f"inference-perf --server.base_url http://h --data.type random --load.type constant --load.stages {stages}"
    assert read(f"{line} --api.streaming true").plan["load"]["rate"] == 10
    with pytest.raises(PlanError, match=r"data\.speling is not understood"):
        read(f"{line} --data.speling 3")


def test_flags_of_another_dataset_have_no_effect_in_sglang() -> None:
    found = read("python -m sglang.bench_serving --backend sglang-oai-chat --random-input-len 512 --num-prompts 5")
    assert found.plan["workload"]["columns"]["prompt"] == "conversations.0.value"
    assert any("not used by the dataset sharegpt" in note for note in found.notes)


def test_rates_of_genai_bench() -> None:
    line = "genai-bench benchmark --api-base http://h --api-model-name m --traffic-scenario 'U(1,512)/(0,512)'"
    found = read(f"{line} --execution-engine async --qps-level 0.5 --qps-level 2 --distribution constant")
    cases = found.experiment["cases"]
    assert [case["name"] for case in cases] == ["U(1,512)/(0,512) qps=0.5", "U(1,512)/(0,512) qps=2"]
    assert cases[0]["plan"]["load"] == {"type": "constant", "rate": 0.5}
    assert cases[0]["plan"]["workload"]["output_tokens"] == "2-512"  # it draws no shorter answer
    up_to = read(line.replace("U(1,512)/(0,512)", "U(500,100)")).experiment["cases"][0]["plan"]["workload"]
    assert (up_to["input_tokens"], up_to["output_tokens"]) == ("1-500", "2-100")
    with pytest.raises(PlanError, match="qps-level needs --execution-engine async"):
        read(f"{line} --qps-level 2")


def test_genai_bench_asks_vllm_and_sglang_alone_for_full_answers() -> None:
    line = (
        "genai-bench benchmark --api-base http://h --api-model-name m --traffic-scenario D(100,50) --num-concurrency 2"
    )
    plans = [read(f"{line} --api-backend {kind}").experiment["cases"][0]["plan"] for kind in ("openai", "vllm")]
    assert [plan["sampling"]["ignore_eos"] for plan in plans] == [False, True]
    assert plans[0]["sampling"]["temperature"] == 0
    warm = read(line + """ --additional-request-params '{"temperature": 0.7, "top_k": 5}'""")
    assert warm.experiment["cases"][0]["plan"]["sampling"] == {
        "temperature": 0.7,
        "ignore_eos": False,
        "extra": {"top_k": 5},
    }
    for task in ("text-to-embeddings", "image-text-to-text"):
        with pytest.raises(PlanError, match="--task has no counterpart"):
            read(f"{line} --task {task}")


@pytest.mark.parametrize(
    ("scenario", "flags", "rest"),
    [
        ("D(100,50)", "--prefix-len 64", 36),
        ("D(100,50)", "--prefix-ratio 0.4", 60),
        ("U(100,200)/(10,20)", "--prefix-len 64", "36-136"),
        ("N(480,40)/(300,150)", "--prefix-len 64", {"mean": 416, "std": 40, "min": 1}),
    ],
)
def test_prefixes_of_genai_bench_are_part_of_the_prompt(scenario: str, flags: str, rest: object) -> None:
    found = read(f"genai-bench benchmark --api-base http://h --traffic-scenario {scenario} --num-concurrency 1 {flags}")
    assert found.experiment["cases"][0]["plan"]["workload"]["prefix"]["suffix_tokens"] == rest


AIPERF = "aiperf profile --model m --url h:1 --endpoint-type chat --concurrency 2 --request-count 9"


def test_media_warm_up_and_profiler_of_aiperf() -> None:
    found = read(
        f"{AIPERF} --prompt-input-tokens-mean 100 --prompt-output-tokens-mean 50 --warmup-duration 5"
        " --audio-length-mean 3 --batch-size-audio 2 --video-width 320 --video-height 240 --video-fps 8"
        " --server-profiler --shared-system-prompt-length 60 --wandb-project x --log-level INFO"
    )
    workload = found.plan["workload"]
    assert workload["audio"] == {"duration": "3s", "count": 2, "sampling": 16000, "position": 1}
    assert (workload["videos"]["frames"], workload["videos"]["frames_per_second"]) == (40, 8)
    assert workload["prefix"] == {"tokens": 60, "suffix_tokens": 100, "groups": 1}
    assert found.plan["warmup"] == {"duration": "5s"} and found.plan["observe"] == {"profiler": True}
    assert plan_from(found.plan, (), "aiperf").workload.output_tokens is not None


def test_a_prefix_of_aiperf_needs_a_pool_and_a_prompt_needs_text() -> None:
    plain = read(f"{AIPERF} --isl 100 --prefix-prompt-length 64")
    assert "prefix" not in plain.plan["workload"]
    assert any("needs --prefix-prompt-pool-size" in note for note in plain.notes)
    pooled = read(f"{AIPERF} --isl 100 --prefix-prompt-length 64 --prefix-prompt-pool-size 3")
    assert pooled.plan["workload"]["prefix"] == {"tokens": 64, "suffix_tokens": 100, "groups": 3}
    for flags in ("--isl 0", "--user-centric-rate 3", "--prefill-concurrency 2"):
        with pytest.raises(PlanError, match=flags.split()[0]):
            read(f"{AIPERF} {flags}")


def test_traces_of_guidellm_have_seconds_and_blocks() -> None:
    line = "guidellm run --backend kind=openai_http,target=http://h --profile kind=replay --data"
    plain = read(f"{line} kind=mooncake,path=t.jsonl,hash_id_block_size=64").plan
    assert (plain["workload"]["unit"], plain["workload"]["block_tokens"]) == ("s", 64)
    assert plain["workload"]["columns"]["hash_ids"] == "hash_ids"
    nested = read(f"""{line} '{{"kind": "mooncake", "source": {{"kind": "json_file", "path": "t.jsonl"}}}}'""").plan
    assert nested["workload"]["path"] == "t.jsonl" and nested["load"]["type"] == "replay"
    with pytest.raises(PlanError, match=r"data\.0\.max_wait is not understood"):
        read(f"{line} kind=mooncake,path=t.jsonl,max_wait=3")


def test_llmdbenchmark_run_as_it_is_today(tmp_path: Path) -> None:
    (tmp_path / "p.yaml.in").write_text(
        "load:\n  type: constant\n  stages:\n  - rate: 1\n    duration: 5\ndata:\n  type: random\n"
    )
    more = "--endpoint-url http://h -p ns --monitoring --analyze"
    found = read(f"llmdbenchmark --spec x.j2 run --model a/m {more} -l inference-perf -w {tmp_path}/p.yaml.in")
    assert found.plan["load"]["rate"] == 1
    (tmp_path / "e.yaml").write_text(
        "treatments:\n- name: a\n  load.stages.0.rate: 3\n- name: b\n  load.stages.0.rate: 4\n"
    )
    swept = read(f"llmdbenchmark run -l inference-perf -w {tmp_path}/p.yaml.in -U http://h -m a/m -e {tmp_path}/e.yaml")
    assert [case["name"] for case in swept.experiment["cases"]] == ["a", "b"]
    with pytest.raises(PlanError, match="--config has no counterpart"):
        read("llmdbenchmark run -c run.yaml")
    with pytest.raises(PlanError, match="--parallelism has no counterpart"):
        read(f"llmdbenchmark run -l inference-perf -w {tmp_path}/p.yaml.in -U http://h -j 2")


def test_several_prefix_buckets_are_a_mistake() -> None:
    bucket = {"prefix_count": 1, "prefix_tokens": 8}
    said = {"target": "http://h", "profile": "synchronous", "max-requests": 1}
    one: dict[str, Any] = {**said, "data": {"prompt_tokens": 5, "output_tokens": 5, "prefix_buckets": [bucket]}}
    assert guidellm.from_mapping(one).plan["workload"]["prefix"]["tokens"] == 8
    with pytest.raises(PlanError, match=r"prefix_buckets must be one"):
        guidellm.from_mapping({**said, "data": {**one["data"], "prefix_buckets": [bucket, bucket]}})


# -- what is different is said -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("vllm bench serve --save-result --model a/m", "--save-result: written to openai-infqps-m.json"),
        ("conduct/benchmark.py --dataset-path a --output-file x.jsonl", "--output-file: the file has"),
        ("conduct/benchmark.py --dataset-path a", "lengths are estimated"),
        ("inferx_benchmark_framework.py --endpoint http://h", "throughput_latency.png: drawn if"),
        (
            "guidellm benchmark --target http://h --data prompt_tokens=5 --profile synchronous --outputs json",
            "--outputs.0.path: has Inferometer's schema",
        ),
    ],
)
def test_differences_are_notes(line: str, note: str) -> None:
    assert any(each.startswith(note) for each in read(line).notes)


def test_lengths_by_a_tokenizer_that_is_not_here_are_said_to_be_estimated() -> None:
    said = {
        "data": {"type": "mock"},
        "load": {"stages": [{"rate": 1, "duration": 1}]},
        "server": {"model_name": "m"},
        "tokenizer": {"pretrained_model_name_or_path": "m"},
    }
    assert any(each.startswith("lengths are estimated") for each in inference_perf.from_mapping(said).notes)
    assert not any(
        each.startswith("lengths are estimated")
        for each in read("conduct/benchmark.py --dataset-path a --tokenizer t").notes
    )


def test_workers_of_inference_perf_limit_the_requests_in_flight() -> None:
    stages = {"stages": [{"rate": 6, "duration": 5}]}
    both = perf({**stages, "num_workers": 2, "worker_max_concurrency": 10}, type="mock")
    assert both.plan["load"] == {"type": "poisson", "rate": 6, "max_concurrency": 20}
    assert perf({**stages, "num_workers": 2}, type="mock").plan["load"]["max_concurrency"] == 200
    per_cpu = perf({**stages, "worker_max_concurrency": 10}, type="mock")
    assert "max_concurrency" not in per_cpu.plan["load"]
    assert any("not applied: it is per worker" in note for note in per_cpu.notes)
    two = perf({"stages": stages["stages"] * 2, "num_workers": 1}, type="mock")
    assert two.plan["load"]["max_concurrency"] == two.experiment["set"]["load.max_concurrency"] == 100
    swept = perf({"sweep": {"type": "linear"}, "num_workers": 2, "worker_max_concurrency": 10}, type="mock")
    levels = swept.experiment["levels"]
    assert levels["high"]["load"]["max_concurrency"] == levels["set"]["load"]["max_concurrency"] == 20
    closed = {"type": "concurrent", "stages": [{"concurrency_level": 4, "num_requests": 9}], "num_workers": 1}
    assert "max_concurrency" not in perf(closed, type="mock").plan["load"]


def test_constant_of_inference_perf_is_poisson() -> None:
    """Its ConstantLoadTimer draws exponential gaps and scales them to the duration."""
    stages = {"stages": [{"rate": 6, "duration": 5}]}
    for load in (stages, {"type": "constant", **stages}):
        found = perf(load, type="mock")
        assert found.plan["load"]["type"] == "poisson"
        assert any("constant of inference-perf has exponential gaps" in note for note in found.notes)
    assert not any("exponential" in note for note in perf({"type": "poisson", **stages}, type="mock").notes)


def test_a_skew_normal_has_its_own_mean() -> None:
    """Azzalini's with location 200, scale 80, skew 2.5: 200 + 80 * 0.9285 * 0.7979 = 259.3, not 200."""
    skewed = {"type": "skew_normal", "mean": 200, "std_dev": 80, "skew": 2.5, "min": 10, "max": 2000}
    found = perf({"stages": [{"rate": 1, "duration": 1}]}, type="shared_prefix", shared_prefix={"question_len": skewed})
    suffix = found.plan["workload"]["prefix"]["suffix_tokens"]
    assert suffix == {"type": "lognormal", "mean": 259.265, "std": 53.737, "min": 10, "max": 2000}
    draws = np.random.default_rng(1).standard_normal((2, 200_000))
    lean = 2.5 / math.sqrt(1 + 2.5**2)
    drawn = 200 + 80 * (lean * np.abs(draws[0]) + math.sqrt(1 - lean**2) * draws[1])
    assert suffix["mean"] == pytest.approx(drawn.mean(), rel=0.005)
    assert suffix["std"] == pytest.approx(drawn.std(), rel=0.01)
    left = perf(
        {"stages": [{"rate": 1, "duration": 1}]},
        type="shared_prefix",
        shared_prefix={"question_len": {**skewed, "skew": -2.5}},
    )
    assert left.plan["workload"]["prefix"]["suffix_tokens"] == {"mean": 140.735, "std": 53.737, "min": 10, "max": 2000}


def test_lengths_of_zero_are_left_out() -> None:
    load = {"type": "concurrent", "interval": 9, "stages": [{"concurrency_level": 2, "num_requests": 8}]}
    per_turn = {"type": "fixed", "mean": 70}
    for nothing in ({"type": "fixed", "mean": 0, "min": 0, "max": 0}, {"mean": 0, "std_dev": 0, "min": 0, "max": 0}):
        conversations = {"dynamic_system_prompt_len": nothing, "input_tokens_per_turn": per_turn}
        found = perf(load, type="conversation_replay", conversation_replay=conversations)
        assert found.plan["workload"]["prefix"] == {"tokens": 8359, "suffix_tokens": 70}
    least = {"mean": 300, "std_dev": 100, "min": 0, "max": 600}
    found = perf(load, type="conversation_replay", conversation_replay={"input_tokens_per_turn": least})
    assert found.plan["workload"]["prefix"]["suffix_tokens"]["min"] == 1
    plan_from(found.plan)


def test_branches_of_recorded_sessions_are_sent_together() -> None:
    stages = {"stages": [{"concurrent_sessions": 5, "num_sessions": 50}]}
    replay = {"trace_directory": "t", "filter": 'lambda x: x.get("max_tokens", 0) < 28000'}
    load = {"type": "trace_session_replay", **stages, "num_workers": 4, "worker_max_concurrency": 4000}
    found = perf(load, type="otel_trace_replay", otel_trace_replay=replay)
    assert found.plan["load"] == {"type": "concurrency", "concurrency": 16000, "sessions_at_once": 5}
    assert found.plan["workload"]["below_tokens"] == 28000


def test_prompts_of_visionarena_have_an_image() -> None:
    found = perf({"stages": [{"rate": 1, "duration": 1}]}, type="visionarena", visionarena={"num_rows": 500})
    workload = plan_from({**found.plan, "target": {"url": "http://h", "api": "chat"}}).workload
    assert (workload.type, workload.repo, workload.limit) == ("huggingface", "lmarena-ai/VisionArena-Chat", 500)


def test_prompts_of_a_rerank_command_are_documents() -> None:
    found = read(
        "vllm bench serve --backend vllm-rerank --dataset-name random-rerank --endpoint /v1/rerank "
        "--random-input-len 512 --num-prompts 11 --random-batch-size 5"
    )
    assert found.plan["stop"] == {"requests": 3} and found.plan["load"]["concurrency"] == 3
    workload = {"input_tokens": 256, "documents": 5, "output_tokens": None}
    assert found.plan["workload"] == workload  # a query and a document together


def test_a_guidellm_command_without_an_end_says_so() -> None:
    line = "guidellm run --backend kind=openai_http,target=http://h:1 --data kind=synthetic_text,prompt_tokens=9"
    endless = read(f"{line} --profile kind=constant,rate=5")
    assert any(note.startswith("without max_duration or max_requests") for note in endless.notes)
    ended = read(f"{line} --profile kind=constant,rate=5 --constraint kind=max_requests,count=5")
    assert not any(note.startswith("without max_duration") for note in ended.notes)


def test_settings_that_nobody_reads_are_said() -> None:
    said = {
        "data": {"type": "random", "input_distribution": {"mena": 5, "min": 1}, "colour": "red"},
        "load": {"stages": [{"rate": 1, "duration": 1, "pause": 3}], "num_workers": 4},
        "server": {"type": "vllm", "model": "m"},
        "report": {"anything": {"at": "all"}},
    }
    with pytest.raises(PlanError) as caught:
        inference_perf.from_mapping(said)
    unknown = [mistake.split()[1] for mistake in caught.value.mistakes if "is not understood" in mistake]
    assert unknown[:4] == ["data.input_distribution.mena", "data.colour", "load.stages.0.pause", "server.model"]


CONFIG = """\
data: {type: random, input_distribution: {min: 10, mean: 50}}
load: {type: constant, sweep: {type: linear}}
api: {type: chat}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return str(path)


def test_a_sweep_is_refused_by_run_with_the_command_that_does_it(config: str) -> None:
    with pytest.raises(PlanError, match="an experiment and not a plan") as caught:
        open_plan([config])
    assert caught.value.hint == f"inferometer sweep {config}"
    change = "load={stages: [{rate: 1, duration: 60}]}"
    opened = open_plan([config], changes=[change])
    assert (opened.plan.load.rate, opened.plan.stop.duration) == (1, 60)


def test_a_path_may_add_only_what_its_section_can_have(config: str) -> None:
    stages = "load={stages: [{rate: 1, duration: 5}]}"
    assert open_plan([config], changes=[stages, "data.input_distribution.max=99"]).plan.workload.input_tokens.max == 99
    with pytest.raises(PlanError, match=r"did you mean data\.input_distribution\.mean") as caught:
        open_plan([config], changes=[stages, "data.input_distribution.maen=5", "load.qsp=1"])
    assert len(caught.value.mistakes) == 2


# -- run.sh ----------------------------------------------------------------------------------------------------------


def test_the_example_of_run_sh_works_as_it_is_documented(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = read("./run.sh -c SCENARIO -l inference-perf -w sanity_random -o min=20,total_count=200")
    workload = plan_from(found.plan).workload
    assert (workload.input_tokens.min, workload.output_tokens.min, workload.count) == (20, 20, None)
    ours = read_plan(find_profile("inference-perf/sanity_random", NOWHERE).path)
    plain = plan_from(read("./run.sh -l inference-perf -w sanity_random").plan)
    assert (plain.workload, plain.load, plain.stop) == (ours.workload, ours.load, ours.stop)


def test_a_profile_without_a_template_is_our_own(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environ = {"LLMDBENCH_HARNESS_STACK_ENDPOINT_URL": "http://stack", **NOWHERE}
    found = llmd.from_argv(["-l", "guidellm", "-w", "sanity_concurrent", "-m", "a/b"], environ)
    assert found.plan["target"] == {"url": "http://stack", "model": "a/b"}
    assert plan_from(found.plan).load.concurrency == 2
    with pytest.raises(PlanError, match="for the built-in plan use --set: inferometer run guidellm/sanity_concurrent"):
        llmd.from_argv(["-l", "guidellm", "-w", "sanity_concurrent", "-o", "rate=2"], environ)


def test_a_vllm_profile_without_its_endpoint_has_no_address() -> None:
    said = {"executable": "benchmark_serving.py", "dataset-name": "random", "base-url": None}
    assert "url" not in llmd.from_mapping(said, "x").plan.get("target", {})
    assert llmd.from_mapping({**said, "base-url": "http://h"}, "x").plan["target"]["url"] == "http://h"


# -- what is shown, and hints ------------------------------------------------------------------------------------------


def test_show_says_what_the_command_line_said_also_where_it_is_our_default() -> None:
    command = "vllm bench serve --max-concurrency 8 --random-input-len 256 --random-output-len 64 --num-prompts 50"
    shown = CliRunner().invoke(group, ["plan", "show", "--", *command.split()]).stdout
    said = yaml.safe_load(shown)
    assert said["workload"] == {"input_tokens": 256, "output_tokens": 64}
    assert said["load"] == {"type": "concurrency", "concurrency": 8}
    assert plan_from(said) == open_plan(command.split()).plan
    changed = CliRunner().invoke(group, ["plan", "show", "--set", "load={rate: 3}", "--", *command.split()]).stdout
    assert yaml.safe_load(changed)["load"] == {"type": "poisson", "rate": 3}


@pytest.mark.parametrize(
    ("words", "tool"),
    [
        ("--backend vllm --dataset-link x --max-conversations 5", "benchmark.py"),
        ("--target http://h --rate-type sweep", "guidellm benchmark run"),
    ],
)
def test_flags_without_their_tool_are_told_its_name(words: str, tool: str) -> None:
    with pytest.raises(PlanError) as caught:
        open_plan(words.split())
    assert caught.value.hint.startswith(f"start with the tool's name: -- {tool} ")


def test_a_name_that_several_profiles_have_is_told_how_to_say_one() -> None:
    with pytest.raises(PlanError, match="several profiles") as caught:
        find_profile("sanity_random", NOWHERE)
    assert caught.value.hint == "name one with its folder: inferometer run inference-perf/sanity_random"


def test_without_oversampling_every_row_is_sent_once() -> None:
    flags = "--backend openai-chat --dataset-name custom_audio --dataset-path a.jsonl --no-oversample"
    plan = from_command(shlex.split(f"vllm bench serve --model m {flags}")).plan
    assert plan["workload"]["once"] is True and plan["stop"] == {"requests": 1000}


def test_a_key_without_effect_is_lost_though_another_is_required() -> None:
    def read(source: dict[str, int]) -> Read:
        def once() -> Foreign:
            account = Account("tool")
            settings = Settings(source, account)
            for name in ("needed", "forgotten"):
                settings.value(name)
            if "needed" not in source:
                settings.wrong("needed", "is missing")
            return Foreign.of(account, {"seed": source.get("needed", 0)})

        return once

    whole = {"needed": 1, "forgotten": 2}
    variants = [Variant("needed", read({"forgotten": 2})), Variant("forgotten", read({"needed": 1}), None)]
    found = explained(read(whole), iter(variants))
    assert found.lost == ["forgotten"]
    assert {entry.source: entry.where for entry in found.entries} == {"needed": (REQUIRED,), "forgotten": ()}


# -- sharegpt --------------------------------------------------------------------------------------------------


def shared_conversations(folder: Path) -> Path:
    """As in the file that everyone uses: conversations that were cut begin with an answer."""
    said = {"gpt": "an answer that a conversation begins with", "human": "a question of a few words"}
    rows = [
        [("human", said["human"]), ("gpt", "word " * 40)],
        [("gpt", said["gpt"]), ("human", "word " * 30)],
        [("human", said["human"] + " alone")],
        [("human", said["human"] + " again"), ("gpt", "ok")],
        [("human", said["human"] + " at length"), ("gpt", "word " * 2500)],
    ]
    path = folder / "conversations.json"
    path.write_text(
        json.dumps([{"conversations": [{"from": who, "value": text} for who, text in row]} for row in rows])
    )
    return path


def first_prompts(found: Foreign) -> list[str]:
    workload = {**found.plan["workload"], "shuffle": False}
    sessions: Any = workload_of(plan_from({"workload": workload}).workload, 0, 0, "")
    return [str(sessions(at).turns[0].prompt) for at in range(len(sessions))]


@pytest.mark.parametrize(
    ("command", "prompts"),
    [
        (
            "vllm bench serve --dataset-name sharegpt --dataset-path",
            ["a question of a few words", "an answer that a conversation begins with"],
        ),
        (
            "vllm bench serve --dataset-name sharegpt --sharegpt-output-len 8 --dataset-path",
            [
                *("a question of a few words", "an answer that a conversation begins with"),
                *("a question of a few words again", "a question of a few words at length"),
            ],
        ),
        (
            "sglang.bench_serving --sharegpt-context-len 1000 --dataset-path",
            ["a question of a few words", "an answer that a conversation begins with"],
        ),
        (
            "sglang.bench_serving --dataset-path",
            [
                *("a question of a few words", "an answer that a conversation begins with"),
                "a question of a few words at length",
            ],
        ),
    ],
)
def test_a_conversation_is_its_first_two_messages_whoever_wrote_them(
    command: str, prompts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))
    assert first_prompts(read(f"{command} {shared_conversations(tmp_path)}")) == prompts


def test_inference_perf_chooses_conversations_by_both_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))
    data = {"type": "shareGPT", "path": str(shared_conversations(tmp_path))}
    stages = {"stages": [{"rate": 1, "duration": 1}]}
    free = inference_perf.from_mapping({"data": data, "load": stages})
    assert len(first_prompts(free)) == 4
    bounds = {"input_distribution": {"min": 1}, "output_distribution": {"min": 20, "max": 2000}}
    assert len(first_prompts(inference_perf.from_mapping({"data": data | bounds, "load": stages}))) == 2


# -- lengths that are left to the server -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "aiperf profile --model m --url http://h:1 --isl 9 --concurrency 2 --streaming",
        "guidellm run --backend kind=openai_http,target=http://h:1,model=m --data kind=synthetic_text,prompt_tokens=9 "
        "--profile kind=constant,rate=5 --constraint kind=max_requests,count=5",
    ],
)
def test_no_length_is_requested_where_the_tool_requests_none(command: str) -> None:
    body = first_body(read(command))
    assert not {"max_tokens", "max_completion_tokens", "ignore_eos"} & set(body)


def first_body(found: Foreign, turn: int = 0) -> dict[str, Any]:
    plan = plan_from(found.plan)
    context = WorkloadContext(api=plan.target.api)
    request = workload_of(plan.classes[0].workload, 0, 0, "", context)(0).turns[turn]
    body: dict[str, Any] = json.loads(Encoder(plan, plan.classes[0], "m").body(request))
    return body


# -- tools -----------------------------------------------------------------------------------------------------

GUIDE = "guidellm run --profile kind=constant,rate=1 --constraint kind=max_requests,count=9"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_calls_of_guidellm_have_tools_and_no_length_and_other_turns_the_reverse(path: str) -> None:
    data = {"kind": "synthetic_text", "prompt_tokens": 9, "output_tokens": 40, "turns": 2, "tool_call_turns": [0]}
    backend = f"--backend kind=openai_http,target=http://h:1,request_format={path}"
    found = read(f"{GUIDE} {backend} --data {shlex.quote(json.dumps(data))}")
    call, answer, later = (first_body(found, turn) for turn in range(3))
    assert call["tool_choice"] == "required" and not {"max_tokens", "max_output_tokens", "ignore_eos"} & set(call)
    (tool,) = call["tools"]
    assert ("name" in tool) is (path == "/v1/responses") and ("function" in tool) is (path != "/v1/responses")
    for body in (answer, later):
        assert "tools" not in body and body["ignore_eos"] is True
        assert body.get("max_tokens", body.get("max_output_tokens")) == 40


def test_tools_of_all_requests_of_guidellm_may_not_be_called() -> None:
    backend = {"kind": "openai_http", "target": "http://h:1", "extras": {"body": {"tools": [{"type": "shell"}]}}}
    found = read(f"{GUIDE} --backend {shlex.quote(json.dumps(backend))} --data kind=synthetic_text,prompt_tokens=9")
    assert first_body(found)["tool_choice"] == "none"


def test_questions_of_a_tool_dataset_are_joined_as_guidellm_does(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))
    function = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    said = ("system", "be kind"), ("user", "first"), ("assistant", "ok"), ("user", "second")
    row = {"messages": [{"role": role, "content": text} for role, text in said], "tools": [function]}
    (tmp_path / "d.jsonl").write_text(json.dumps(row))
    line = (
        f"{GUIDE} --backend kind=openai_http,target=http://h:1,request_format=/v1/responses "
        "--data kind=huggingface,source=a/b --data-preprocessor kind=tool_calling_message_extractor "
        "--data-column-mapper kind=generative_column_mapper,column_mappings.text_column=messages,"
        "column_mappings.tools_column=tools"
    )
    with pytest.raises(PlanError, match="tool_call_mode: client has no counterpart"):
        read(line)
    found = read(f"{line} --data-finalizer kind=generative,tool_call_mode=server")
    place: WorkloadDraft = {"type": "messages", "path": str(tmp_path / "d.jsonl"), "turns": "questions"}
    body = first_body(replace(found, plan={**found.plan, "workload": place}))
    assert found.plan["workload"]["turns"] == "questions"
    assert [item["content"] for item in body["input"]] == ["be kind", "first second"]
    assert body["tools"] == [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    assert body["tool_choice"] == "required"
