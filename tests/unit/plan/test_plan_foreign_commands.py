"""Other tools' command lines: their documented examples give the plan that a person would write."""

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.errors import PlanError
from inferometer.exchange.exporting.tables import COLUMNS, write_folder
from inferometer.plan.foreign import aiperf, genai_bench, guidellm_flags, inferx, ray_bench, sglang, vllm_bench
from inferometer.plan.foreign.common import Foreign
from inferometer.plan.foreign.recognise import from_command
from inferometer.plan.opening import open_plan
from inferometer.plan.reading import plan_from
from inferometer.plan.text import to_mapping
from inferometer.simulator.virtual import simulated_run

ONLINE = (
    "vllm bench serve --backend vllm --model meta-llama/Llama-3.1-8B-Instruct --endpoint /v1/completions "
    "--dataset-name random --random-input-len 300 --random-output-len 100 --num-prompts 2250 --request-rate 12.5 "
    "--save-result --disable-tqdm --result-filename in_300_out_100.json --metric-percentiles 25,50,75,90,99,99.9"
)
RAY = (
    "python conduct/benchmark.py --backend vllm --model Qwen/Qwen2.5-1.5B-Instruct --host localhost --port 8000 "
    "--dataset-name sharegpt --dataset-link https://host/sharegpt.json --output-file benchmark_results.jsonl "
    "--min-output-len 10 --max-output-len 200 --max-concurrency 40 --request-rate 100 --with-warmup {warm} "
    "--disable-ignore-eos false --disable-stream false --max-conversations 10000 --num-prompts 1000"
)


def read(line: str) -> Foreign:
    found = from_command(shlex.split(line))
    plan = plan_from(found.plan)
    assert plan_from(to_mapping(plan)) == plan
    return found


def mistakes(line: str) -> list[str]:
    with pytest.raises(PlanError) as caught:
        from_command(shlex.split(line))
    return caught.value.mistakes


def test_the_online_job_of_a_ci() -> None:
    assert read(ONLINE).plan == {
        "target": {"url": "http://127.0.0.1:8000", "model": "meta-llama/Llama-3.1-8B-Instruct"},
        "workload": {"input_tokens": 300, "output_tokens": 100},
        "load": {"type": "poisson", "rate": 12.5},
        "sampling": {"extra": {"repetition_penalty": 1.0}},
        "stop": {"requests": 2250},
        "outputs": [{"format": "vllm", "path": "in_300_out_100.json"}],
    }


@pytest.mark.parametrize(
    ("flags", "load"),
    [
        ("", {"type": "concurrency", "concurrency": 1000}),
        ("--request-rate inf --num-prompts 64", {"type": "concurrency", "concurrency": 64}),
        ("--max-concurrency 8", {"type": "concurrency", "concurrency": 8}),
        ("--request-rate=2 --max_concurrency=8", {"type": "poisson", "rate": 2, "max_concurrency": 8}),
        ("--request-rate 2 --burstiness 4", {"type": "gamma", "rate": 2, "cv": 0.5}),
        ("--request-rate 2 --burstiness inf", {"type": "constant", "rate": 2}),
        (
            "--ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 3 --num-prompts 100",
            {"type": "stages", "stages": [{"rate": 1, "to": 3, "duration": 50}]},
        ),
    ],
)
def test_when_vllm_sends(flags: str, load):
    assert read(f"vllm bench serve {flags}").plan["load"] == load


@pytest.mark.parametrize(
    ("flags", "workload"),
    [
        ("", {"input_tokens": 1024, "output_tokens": 128}),
        ("--input-len 5 --output-len 6", {"input_tokens": 5, "output_tokens": 6}),
        ("--random-input-len 100 --random-range-ratio 0.5", {"input_tokens": "50-150", "output_tokens": "64-192"}),
        (
            "--random-range-ratio '{\"input\": 0.5}' --random-input-len 10",
            {"input_tokens": "5-15", "output_tokens": 128},
        ),
        (
            "--random-prefix-len 20 --random-input-len 10",
            {"prefix": {"tokens": 20, "suffix_tokens": 10}, "output_tokens": 128},
        ),
        (
            "--dataset-name prefix_repetition --num-prompts 100",
            {
                "prefix": {"tokens": 256, "suffix_tokens": 256, "groups": 10, "prompts": 10},
                "output_tokens": 128,
            },
        ),
        (
            "--dataset-name sharegpt --dataset-path a.json --sharegpt-output-len 9",
            {
                "type": "table",
                "path": "a.json",
                "columns": {"prompt": "conversations.0.value", "answer": "conversations.1.value"},
                "min_tokens": 4,
                "max_tokens": 1024,
                "max_total_tokens": 2048,
                "output_tokens": 9,
            },
        ),
        (
            "--dataset-name sonnet --dataset-path sonnet.txt --sonnet-input-len 8192",
            {
                "type": "sonnet",
                "path": "sonnet.txt",
                "input_tokens": 8192,
                "output_tokens": 150,
                "prefix_tokens": 200,
            },
        ),
        (
            "--dataset-name custom --dataset-path a.jsonl --disable-shuffle",
            {
                "type": "table",
                "path": "a.jsonl",
                "shuffle": False,
                "columns": {"prompt": "prompt"},
                "output_tokens": 256,
            },
        ),
        (
            "--dataset-name hf --dataset-path openai/gsm8k --hf-split test --hf-output-len 7",
            {"type": "huggingface", "repo": "openai/gsm8k", "split": "test", "output_tokens": 7},
        ),
        ("--lora-modules a b --tokenizer t", {"models": {"a": 1, "b": 1}, "tokenizer": "t"}),
        (
            "--backend openai-chat --dataset-name random-mm --random-mm-base-items-per-request 2 "
            "--random-mm-bucket-config '{(720, 1280, 1): 0.9, (256, 256, 1): 0.1}'",
            {
                "images": {
                    "count": 2,
                    "format": "jpeg",
                    "content": "noise",
                    "position": 1,
                    "sizes": [
                        {"width": 1280, "height": 720, "weight": 0.9},
                        {"width": 256, "height": 256, "weight": 0.1},
                    ],
                }
            },
        ),
    ],
)
def test_what_vllm_sends(flags: str, workload):
    found = read(f"vllm bench serve {flags}").plan["workload"]
    assert workload.items() <= found.items()


def test_the_rest_of_vllms_flags() -> None:
    plan = read(
        "vllm bench serve --backend openai-chat --base-url https://h:1/v1/ --endpoint /v1/chat/completions --seed 5 "
        "--header X-A=b X-C=d --insecure --served-model-name short --model long --num-warmups 3 --label nightly "
        "--temperature 0 --top-p 0.9 --top-k 20 --extra-body '{\"a\": 1}' --goodput ttft:500 e2el:9000 --logprobs 1"
    ).plan
    assert plan["name"] == "nightly"
    assert plan["target"] == {
        "url": "https://h:1/v1",
        "model": "short",
        "api": "chat",
        "headers": {"X-A": "b", "X-C": "d"},
        "tls": {"verify": False},
    }
    extra = {"top_k": 20, "logprobs": 1, "a": 1}
    assert plan["sampling"] == {"temperature": 0, "top_p": 0.9, "extra": extra}
    assert (plan["limits"], plan["warmup"], plan["seed"]) == (["ttft < 500ms", "e2e < 9000ms"], 3, 5)
    sharegpt = read("vllm bench serve --dataset-name sharegpt --dataset-path a").plan
    assert sharegpt["sampling"] == {"ignore_eos": False, "extra": {"repetition_penalty": 1.0}}  # vLLM sends it
    script = read("python benchmarks/benchmark_serving.py --dataset-name sharegpt --dataset-path a").plan
    assert script["sampling"] == {"ignore_eos": False, "temperature": 0, "extra": {"repetition_penalty": 1.0}}


SCRIPT = "python3 benchmarks/benchmark_serving_structured_output.py --backend vllm --model m --num-prompts 1000 "


@pytest.mark.parametrize("name", ["json", "grammar", "regex", "choice"])
def test_vllms_script_for_structured_output(name: str) -> None:
    plan = read(f"{SCRIPT} --dataset {name} --structured-output-ratio 1.0 --request-rate 10").plan
    assert plan["load"] == {"type": "poisson", "rate": 10} and plan["stop"] == {"requests": 1000}
    sampling = plan["sampling"]
    assert (sampling["temperature"], sampling["ignore_eos"]) == (0, False)  # as the script sends
    form = "json_schema" if name == "json" else name
    assert set(sampling["structured"]) == {form, "syntax"}
    assert set(plan_from(plan).sampling.structured.fields("completions")) == {"structured_outputs"}


def test_a_share_of_structured_output_is_two_classes_of_poisson_arrivals() -> None:
    plan = plan_from(read(f"{SCRIPT} --structured-output-ratio 0.25 --request-rate 8").plan)
    assert [(each.load.rate, each.stop.requests) for each in plan.classes] == [(2, 250), (6, 750)]
    assert [each.sampling.structured is None for each in plan.classes] == [False, True]
    assert plan_from(read(f"{SCRIPT} --no-structured-output").plan).sampling.structured is None
    for flags in ("--structured-output-ratio 0.5", "--dataset xgrammar_bench", "--random-prefix-len 5"):
        (mistake,) = mistakes(SCRIPT + flags)
        assert flags.split()[0] in mistake


def test_vllms_script_for_conversations(tmp_path: Path) -> None:
    script = f"python benchmark_serving_multi_turn.py -m /models/x --served-model-name x -i {tmp_path}/in.json"
    fixed = {"distribution": "constant", "value": 40}
    settings = {"filetype": "generate_conversations", "num_conversations": 6, "prompt_output": {"num_tokens": fixed}}
    settings["prompt_input"] = {"num_turns": fixed, "num_tokens": fixed}
    (tmp_path / "in.json").write_text(json.dumps(settings))
    plan = plan_from(read(f"{script} -p 2 -n 9 --max-turns 5 --header 'X-A: b' --no-stream").plan)
    assert (plan.load.concurrency, plan.load.sessions_at_once, plan.stop.requests, plan.stop.sessions) == (2, 2, 8, 6)
    assert (plan.workload.turns.value, plan.target.headers, plan.target.stream) == (3, {"X-A": "b"}, False)
    assert plan.sampling.ignore_eos is False  # it sends max_tokens and nothing else
    for flags in (
        "-p 2 -k 6",
        "--warmup-step",
        "--send-conversation-id",
        "--max-retries 2",
        "--warmup-percentages 10%",
    ):
        assert len(mistakes(f"{script} {flags}")) == 1, flags
    (tmp_path / "in.json").write_text(json.dumps(settings | {"new": 1}))
    assert any("new" in mistake for mistake in mistakes(script))
    (tmp_path / "in.json").write_text(json.dumps([{"id": "a", "messages": [{"role": "user", "content": "x"}]}]))
    workload = read(f"{script} --limit-min-tokens 5 --limit-max-tokens 9 --request-rate 4").plan["workload"]
    assert workload["think"] == {"type": "exponential", "mean": 0.25} and workload["output_tokens"] == 9
    assert (workload["type"], workload["answers"], workload["once"]) == ("messages", "live", True)


def test_every_mistake_of_a_command_line_at_once() -> None:
    found = mistakes(
        "vllm bench serve --modle m --num-prompts many --backend magic --dataset-name dreams --goodput speed:1 --host"
    )
    assert found[0] == "vllm bench serve: --modle is not a known flag; did you mean --model?"
    assert "vllm bench serve: --host needs a value" in found
    assert "vllm bench serve: --num-prompts must be a whole number, got many" in found
    assert any("--backend has no counterpart" in each for each in found)
    assert any("--dataset-name has no counterpart; there are random" in each for each in found)
    assert any("--goodput must be about ttft, tpot, e2el" in each for each in found)


def test_what_has_no_place_is_said_and_not_dropped() -> None:
    assert [note.partition(":")[0] for note in read(ONLINE).notes] == [*("--disable-tqdm", "--metric-percentiles")]


def test_rays_benchmark_as_documented() -> None:
    found = read(RAY.format(warm="false"))
    assert found.plan == {
        "target": {"url": "http://localhost:8000", "model": "Qwen/Qwen2.5-1.5B-Instruct"},
        "workload": {
            "type": "sharegpt",
            "url": "https://host/sharegpt.json",
            "turns": "pieces",
            "conversations": 10000,
            "min_messages": 5,
            "min_tokens": 1500,
            "max_tokens": 8192,
            "limit": 1000,
            "output_tokens": "10-200",
            "prefix_header": "X-Prefix-ID",
        },
        "load": {"type": "poisson", "rate": 100, "max_concurrency": 40},
        "stop": {"requests": 1000},
        "outputs": [{"format": "json", "path": "benchmark_results.jsonl"}],
    }
    for warm in ("true", "True", "1"):  # the script itself knows only True
        assert read(RAY.format(warm=warm)).plan["warmup"] == {"tape": True}


@pytest.mark.parametrize(
    ("flags", "part", "expected"),
    [
        ("--disable-ignore-eos --disable-stream", "sampling", {"ignore_eos": False}),
        ("--disable-ignore-eos --disable-stream", "target", {"url": "http://127.0.0.1:30000", "stream": False}),
        (
            "--dataset-name generated-shared-prefix --gen-num-prefixes 1000 --gen-suffixes-per-prefix 2 "
            "--gen-prefix-len 1000 --gen-suffix-len 1000 --max-output-len 9",
            "workload",
            {
                "prefix": {
                    "tokens": 1000,
                    "suffix_tokens": 1000,
                    "groups": 1000,
                    "prompts": 2,
                    "header": "X-Prefix-ID",
                },
                "output_tokens": 9,
            },
        ),
        (
            "--dataset-name generated-shared-prefix",
            "workload",
            {
                "prefix": {
                    "tokens": 2048,
                    "suffix_tokens": 128,
                    "groups": 64,
                    "prompts": 16,
                    "header": "X-Prefix-ID",
                },
                "output_tokens": 256,
            },
        ),
        (
            "--dataset-name random --random-input-len 100 --random-output-len 10 --random-range-ratio 1",
            "workload",
            {"input_tokens": 100, "output_tokens": 10},
        ),
        (
            "--multi --request-rate-range 2,8,2 --num-prompts 48 --max-concurrency 5",
            "load",
            {
                "type": "stages",
                "stages": [{"rate": 2, "duration": 24}, {"rate": 4, "duration": 12}, {"rate": 6, "duration": 8}],
                "max_concurrency": 5,
            },
        ),
    ],
)
def test_the_rest_of_rays_flags(flags: str, part: str, expected):
    data = "" if "--dataset-name" in flags else "--dataset-path a.json"
    assert dict(read(f"python3 scripts/benchmark.py {data} {flags}").plan)[part] == expected


INFERX = "python inferx_benchmark_framework.py --endpoint http://h:1/generate"


@pytest.mark.parametrize(
    ("flags", "workload"),
    [
        ("", {"input_tokens": "8-128", "output_tokens": None}),
        (
            "--prompt-dist zipf --min-tokens 4",
            {"input_tokens": {"type": "zipf", "alpha": 2, "min": 4, "max": 128}, "output_tokens": None},
        ),
        ("--prompt-dist choices", {"input_tokens": [32, 64, 128], "output_tokens": None}),
        ("--prompt-dist choices --choices-tokens 5,6", {"input_tokens": [5, 6], "output_tokens": None}),
        ("--sample-prompts-file p.txt", {"type": "prompts", "path": "p.txt"}),
    ],
)
def test_what_inferx_sends(flags: str, workload):
    assert read(f"{INFERX} {flags}").plan["workload"] == workload


def test_the_rest_of_inferxs_flags() -> None:
    body = '{"input":"{prompt}","max_new_tokens":128}'
    found = read(
        f"{INFERX} --duration 5 --rate 20 --concurrency 4 --request-body-template '{body}' --outdir trials/run1 "
        "--gpu-monitor --gpu-poll-interval 0.5 --json-field text"
    )
    assert found.plan["target"] == {
        "url": "http://h:1/generate",
        "api": "template",
        "body": body,
        "key_env": "LLM_API_KEY",
        "timeout": {"request": 60},
    }
    assert found.plan["load"] == {"type": "poisson", "rate": 20, "max_concurrency": 4}
    assert found.plan["outputs"] == [{"format": "inferx", "path": "trials/run1"}]
    assert found.plan["observe"] == {"gpu": "on", "interval": 0.5}
    assert {note.partition(":")[0] for note in found.notes} == {"--json-field", "throughput_latency.png"}
    assert mistakes("inferx_benchmark_framework.py") == ["inferx_benchmark_framework.py: --endpoint is missing"]


def test_inferxs_folder_has_its_columns(tmp_path: Path) -> None:
    run = simulated_run(plan_from({"load": {"rate": 10}, "stop": 20, "workload": {"output_tokens": 4}}))
    write_folder(run, tmp_path / "run1")
    rows = list(csv.DictReader((tmp_path / "run1" / "metrics.csv").open()))
    assert tuple(rows[0]) == COLUMNS
    assert len(COLUMNS) == 12
    assert len(rows) == 20
    for row in rows:
        times = [float(row[name]) for name in ("enqueue_time", "send_time", "first_byte_time", "end_time")]
        assert times == sorted(times)
        assert float(row["ttft"]) == pytest.approx(times[2] - times[1], abs=2e-6)
        assert (row["resp_tokens"], row["status"], row["error"]) == ("4", "200", "")


TEXT = "prompt|instruction|question|input|context|content|conversation|turn|text"  # columns that guidellm tries
GUIDE = "guidellm benchmark --target http://h:1 --data prompt_tokens=256,output_tokens=128"


@pytest.mark.parametrize(
    ("flags", "load", "stop"),
    [
        ("--rate-type synchronous --max-requests 5", {"type": "concurrency", "concurrency": 1}, {"requests": 5}),
        (
            "--rate-type concurrent --rate 2 --max-seconds 30",
            {"type": "concurrency", "concurrency": 2},
            {"duration": 30},
        ),
        ("--profile throughput --max-seconds 9", {"type": "concurrency", "concurrency": 512}, {"duration": 9}),
        ("--profile poisson --rate 3 --max-errors 4", {"type": "poisson", "rate": 3}, {"errors": 4}),
        (
            "--profile constant --rate 1,2 --max-seconds 30",
            {
                "type": "stages",
                "stages": [
                    {"rate": 1, "process": "constant", "duration": 30},
                    {"rate": 2, "process": "constant", "duration": 30},
                ],
            },
            None,
        ),
        (
            "--profile constant --rate 1 --rate 2 --max-requests 30",
            {
                "type": "stages",
                "stages": [
                    {"rate": 1, "process": "constant", "duration": 30},
                    {"rate": 2, "process": "constant", "duration": 15},
                ],
            },
            None,
        ),
        (
            "--rate-type concurrent --rate 2 --max-seconds 100 --warmup-percent 0.1",
            {"type": "concurrency", "concurrency": 2},
            {"duration": 90},
        ),
    ],
)
def test_when_guidellm_sends(flags: str, load, stop):
    found = read(f"{GUIDE} {flags}").plan
    assert found["load"] == load
    assert found.get("stop") == stop
    assert found["workload"] == {"input_tokens": 256, "output_tokens": 128}


@pytest.mark.parametrize(
    ("data", "workload"),
    [
        (
            "prompt_tokens=50,prompt_tokens_stdev=10,prompt_tokens_min=10,prompt_tokens_max=100,output_tokens=5",
            {"input_tokens": {"mean": 50, "std": 10, "min": 10, "max": 100}, "output_tokens": 5},
        ),
        (
            '\'{"prompt_tokens": 128, "output_tokens": 64, "turns": 5, "prefix_tokens": 1000, "prefix_count": 8}\'',
            {
                "prefix": {"tokens": 1000, "suffix_tokens": 128, "groups": 8},
                "output_tokens": 64,
                "turns": 5,
            },
        ),
        ("prompts.txt", {"type": "prompts", "path": "prompts.txt", "shuffle": False}),
        ("rows.csv", {"type": "table", "path": "rows.csv", "shuffle": False, "columns": {"prompt": TEXT}}),
        ("owner/name", {"type": "huggingface", "repo": "owner/name", "shuffle": False, "columns": {"prompt": TEXT}}),
    ],
)
def test_what_guidellm_sends(data: str, workload):
    line = f"guidellm benchmark run --target http://h --rate-type poisson --rate 1 --data {data}"
    assert read(line).plan["workload"] == workload


def test_a_rate_is_not_guessed() -> None:
    assert any("--rate is missing" in each for each in mistakes(f"{GUIDE} --profile poisson"))


@pytest.mark.parametrize(
    "line",
    [
        "vllm bench serve --num-prompts 5",
        "X=1 python3 -m vllm.benchmarks.benchmark_serving --num-prompts 5",
        "python /opt/benchmarks/benchmark_serving.py --num-prompts 5",
        "uv run vllm bench serve --num-prompts=5",
    ],
)
def test_a_tool_is_known_however_it_is_started(line: str) -> None:
    assert read(line).plan["stop"] == {"requests": 5}


def test_an_unknown_command_names_the_known_ones() -> None:
    with pytest.raises(PlanError) as caught:
        from_command(["ab", "-n", "5"])
    assert "vllm bench serve" in (caught.value.hint or "")


def test_a_command_line_is_changed_by_our_flags() -> None:
    opened = open_plan(["vllm", "bench", "serve", "--num-prompts", "5"], ["stop.requests=7"])
    assert (opened.plan.stop.requests, opened.tool) == (7, "vllm bench serve")


TABLES = [vllm_bench, guidellm_flags, ray_bench, inferx, sglang, aiperf, genai_bench]


@pytest.mark.parametrize("module", TABLES, ids=lambda module: module.TOOL)
def test_every_flag_of_a_tool_is_read_or_its_mistake_said(module: Any) -> None:
    for name, flag in module.FLAGS.items():
        words = [f"--{name}"] if flag.takes in ("none", "maybe") else [f"--{name}", "1"]
        try:
            module.from_argv(words)
        except PlanError as error:
            assert not any("not a known flag" in each for each in error.mistakes), name


@given(st.sampled_from(TABLES), st.lists(st.text(max_size=6) | st.sampled_from(["--rate", "--data", "--backend"])))
def test_any_words_are_a_plan_or_mistakes(module: Any, words: list[str]) -> None:
    try:
        module.from_argv(words)
    except PlanError as error:
        assert error.mistakes


@pytest.mark.parametrize(
    "argv",
    [
        ["--rate", "INF"],
        ["--rate", "nan"],
        ["--rate", "0,1"],
        ["--rate", "2", "--data", "prompt_tokens=1,turns=inf"],
        ["--rate", "2", "--data", '{"prompt_tokens": 1e400}'],
        ["--rate", "2", "--data", '{"prompt_tokens": 1, "prefix_buckets": 7}'],
        ["--rate", "2", "--data", "prompt_tokens=1,prompt_tokens_min=1,prompt_tokens_max=inf"],
    ],
)
@pytest.mark.parametrize("profile", ["constant", "concurrent", "throughput", "sweep"])
def test_guidellm_numbers_that_are_none_are_mistakes(profile: str, argv: list[str]) -> None:
    data = [] if "--data" in argv else ["--data", "prompt_tokens=1"]
    with pytest.raises(PlanError, match="must"):
        guidellm_flags.from_argv(["--target", "http://x:1", "--profile", profile, "--max-seconds", "5", *argv, *data])
