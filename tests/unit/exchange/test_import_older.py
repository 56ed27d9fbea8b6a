"""Results of older and newer tool versions: files without timestamps, compressed ones, broken ones, pairs and
folders."""

import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from inferometer.cli.group import group
from inferometer.errors import DataError
from inferometer.exchange.importing.explain import explain_result
from inferometer.exchange.importing.importer import import_file, read_result
from inferometer.plan.reading import plan_from
from inferometer.show.imported import rosetta
from inferometer.show.summary import verdict_table

VLLM: dict[str, Any] = {
    "date": "20240801-101010",
    "backend": "sgl",
    "model_id": "m",
    "tokenizer_id": "m",
    "num_prompts": 4,
    "request_rate": "inf",
    "duration": 2.0,
    "completed": 3,
    "total_input_tokens": 30,
    "total_output_tokens": 9,
    "request_throughput": 1.5,
    "output_throughput": 4.5,
    "mean_ttft_ms": 100.0,
    "max_num_seqs": 64,
    "gpu": "L4",
}
DETAILED = {
    **VLLM,
    "ttfts": [0.1, 0.1, 0.1, 0.0],
    "itls": [[0.1, 0.1], [0.1, 0.1], [0.2, 0.2], []],
    "input_lens": [10, 10, 10, 10],
    "output_lens": [3, 3, 3, 0],
    "errors": ["", "", "", "refused"],
}


def written(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def test_requests_without_instants_are_read_and_arrivals_are_unknown(tmp_path: Path) -> None:
    (run,) = import_file(written(tmp_path, "old.json", DETAILED), tmp_path / "store").runs
    assert run.records is not None and len(run.records) == 4
    assert run.summary.measures["ttft"].mean == pytest.approx(0.1)
    assert run.summary.measures["e2e"].statistics["max"] == pytest.approx(0.5)
    assert run.summary.rates["request_rate"].value == 1.5  # the file's own
    assert run.summary.concurrency is None or run.summary.concurrency.mean is None
    assert any("not in the file" in note for note in run.summary.notes)
    window = run.summary.window  # the requests are held one after the other: that is not how long the run was
    assert (window.length_s, window.requests, window.steady, window.backlog) == (2.0, 4, None, None)
    figures = {figure.name: figure.theirs for figure in rosetta(run, "vllm").values}
    assert figures["busiest second"] is None and figures["most requests at once"] is None


def test_failures_engine_and_numbers_of_a_sweep(tmp_path: Path) -> None:
    (run,) = import_file(written(tmp_path, "r.json", VLLM), tmp_path / "store").runs
    assert run.summary.failures.failed == 1
    assert run.subject.engine == "sglang"
    assert "max_num_seqs" in str(run.environment)


def test_a_valid_result_without_intervals_is_not_said_to_hold_within_them(tmp_path: Path) -> None:
    whole = {**VLLM, "completed": 4, "num_prompts": 4}
    (run,) = import_file(written(tmp_path, "r.json", whole), tmp_path / "store").runs
    to = Console(file=io.StringIO(), width=200)
    to.print(verdict_table(run))
    text = to.file.getvalue()  # type: ignore[attr-defined]
    assert run.status == "valid" and "has no confidence intervals" in text and "hold within" not in text


def test_medians_of_sglang_are_enough(tmp_path: Path) -> None:
    result = {"completed": 3, "duration": 2.0, "output_throughput": 4.5, "median_ttft_ms": 70.0, "backend": "sglang"}
    (run,) = import_file(written(tmp_path, "r.jsonl", result), tmp_path / "store").runs
    assert run.summary.measures["ttft"].statistics["p50"] == pytest.approx(0.07)


def test_gzip_is_unpacked_and_the_format_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "r.json.gz"
    path.write_bytes(gzip.compress(json.dumps(VLLM).encode()))
    assert len(import_file(path, tmp_path / "store").runs) == 1
    with pytest.raises(DataError, match="is no result of guidellm"):
        import_file(path, tmp_path / "store", format="guidellm", again=True)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_results_in_utf_16_and_packed_in_parts_have_the_same_numbers(
    tmp_path: Path, encoding: str, packed: bool
) -> None:
    (plain,) = import_file(written(tmp_path, "r.json", VLLM), tmp_path / "store").runs
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    content = mark + json.dumps({**VLLM, "label": "µ"}, ensure_ascii=False).encode(encoding)
    path = tmp_path / ("other.json.gz" if packed else "other.json")
    path.write_bytes(gzip.compress(content[:99]) + gzip.compress(content[99:]) if packed else content)
    (run,) = import_file(path, tmp_path / "store").runs
    assert run.plan["name"] == "µ" and run.summary == plain.summary
    assert run.folder is not None and (run.folder / "source.json").read_bytes() == content


def test_a_folder_goes_on_after_a_broken_file_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    written(folder, "a/r.json", VLLM)
    written(folder, "b/r.json", {**VLLM, "duration": 3.0})
    (folder / "c.json").write_text(json.dumps({**DETAILED, "start_times": [1e999, 0, 0, 0]}))
    (folder / "d.json").write_text('{"completed": ' + "9" * 5000 + "}")
    (folder / "e.json").write_text("[" * 100_000)
    (folder / "f.md").write_text("# notes\n")
    arguments = ["import", str(folder), "--store", str(tmp_path / "store"), "--json"]
    result = CliRunner().invoke(group, arguments, standalone_mode=False)
    document = json.loads(result.stdout)
    assert result.return_value == 2
    assert len(document["files"]) == 2
    assert [Path(failed["file"]).name for failed in document["failed"]] == ["c.json", "d.json", "e.json"]
    shown = CliRunner().invoke(group, ["show", document["files"][1]["runs"][0], "--store", str(tmp_path / "store")])
    assert "b/r.json" in shown.output


def test_what_lists_others_is_not_imported_twice(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    written(folder, "run=0.json", VLLM)
    written(folder, "summary.json", [VLLM])
    result = CliRunner().invoke(group, ["import", str(folder), "--store", str(tmp_path / "store"), "--json"])
    assert [Path(each["file"]).name for each in json.loads(result.stdout)["files"]] == ["run=0.json"]


def test_negative_times_are_doubted(tmp_path: Path) -> None:
    result = {**VLLM, "mean_ttft_ms": -5.0, "num_prompts": 3}
    (run,) = import_file(written(tmp_path, "r.json", result), tmp_path / "store").runs
    assert run.verdict.status == "doubtful" and "negative" in str(run.verdict)


def test_every_field_is_accounted_for(tmp_path: Path) -> None:
    uses = {each.name: each for each in explain_result(written(tmp_path, "r.json", VLLM))}
    assert uses["mean_ttft_ms"].where == ("measures.ttft",)
    assert uses["tokenizer_id"].use == "ignored"
    assert uses["max_num_seqs"].use == "kept"
    assert uses["backend"].use == "read"  # its absence would change nothing, another value does


GUIDE = {
    "metadata": {"guidellm_version": "0.8.0"},
    "benchmarks": [
        {
            "metrics": {"request_totals": {"successful": 1, "errored": 1, "incomplete": 0}},
            "duration": 2.0,
            "requests": {
                "successful": [
                    {
                        "request_id": "a",
                        "info": {
                            "timings": {
                                "targeted_start": 99.9,
                                "request_start": 100.0,
                                "first_token_iteration": 100.2,
                                "last_token_iteration": 100.6,
                                "request_end": 100.7,
                            }
                        },
                        "input_metrics": {"text_tokens": 11},
                        "output_metrics": {"text_tokens": 5},
                    }
                ],
                "errored": [{"request_id": "b", "info": {"error": "503", "timings": {"request_start": 100.1}}}],
                "incomplete": [],
            },
        }
    ],
}


def test_requests_of_guidellm_are_read(tmp_path: Path) -> None:
    (run,) = import_file(written(tmp_path, "benchmarks.json", GUIDE), tmp_path / "store").runs
    assert run.records is not None and len(run.records) == 2
    assert run.summary.measures["ttft"].mean == pytest.approx(0.2, abs=1e-6)
    assert run.summary.measures["tpot"].mean == pytest.approx(0.1, abs=1e-6)


def test_requests_of_warm_up_and_cool_down_are_left_out_and_said(tmp_path: Path) -> None:
    def request(start: float) -> dict[str, Any]:
        times = {"targeted_start": 0.0, "request_start": start, "first_token_iteration": start + 0.1}
        return {"info": {"timings": times | {"last_token_iteration": start + 0.5, "request_end": start + 0.5}}}

    report = json.loads(json.dumps(GUIDE))
    benchmark = report["benchmarks"][0]
    benchmark["requests"] = {"successful": [request(start) for start in (0.0, 10.0, 20.0, 30.0)]}
    benchmark |= {"start_time": 5.0, "end_time": 25.0, "warmup_duration": 5.0, "cooldown_duration": 5.0}
    benchmark["config"] = {"strategy": {"type_": "synchronous"}, "constraints": {"max_requests": {"max_num": 4}}}
    report["args"] = {"model": "m", "data": ["prompt_tokens=256,output_tokens=128"]}
    (run,) = import_file(written(tmp_path, "benchmarks.json", report), tmp_path / "store").runs
    assert run.records is not None and len(run.records) == 2
    assert "ttft_scheduled" not in run.summary.measures  # a closed loop has no schedule, whatever targeted_start says
    assert "2 requests of warm-up" in run.summary.notes[0]
    assert run.plan["stop"] == {"requests": 4} and run.plan.section("workload")["input_tokens"] == 256


def test_empty_answers_that_were_completed_are_no_failures(tmp_path: Path) -> None:
    silent = {**DETAILED, "completed": 4, "errors": ["", "", "", ""]}
    (run,) = import_file(written(tmp_path, "old.json", silent), tmp_path / "store").runs
    assert run.summary.outcomes == {"ok": 4}
    assert run.summary.measures["ttft"].count == 3
    assert any("1 answers have no token" in note for note in run.summary.notes)


def test_speculation_is_read_and_written_again(tmp_path: Path) -> None:
    from inferometer.exchange.exporting.vllm import serve_document

    result = {**VLLM, "spec_decode_acceptance_rate": 72.0, "spec_decode_acceptance_length": 3.16}
    (run,) = import_file(written(tmp_path, "r.json", result), tmp_path / "store").runs
    assert run.summary.values["server_acceptance_rate"].value == pytest.approx(0.72)
    document = serve_document(run)
    assert document["spec_decode_acceptance_rate"] == pytest.approx(72.0)
    assert document["spec_decode_acceptance_length"] == pytest.approx(3.16)


def test_results_of_a_folder_are_told_apart_in_the_list(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    written(folder, "tp1/r.json", VLLM)
    written(folder, "tp2/r.json", {**VLLM, "duration": 3.0})
    place = ["--store", str(tmp_path / "store")]
    CliRunner().invoke(group, ["import", str(folder), *place])
    listed = CliRunner().invoke(group, ["list", *place]).output
    assert "tp1/r " in listed and "tp2/r " in listed  # without the ending that both have


def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are read as large ones are."""
    monkeypatch.setattr("inferometer.exchange.importing.recognise.LARGE", 300)
    monkeypatch.setattr("inferometer.documents.json_text.PARSED", 60)
    monkeypatch.setattr("inferometer.exchange.importing.requests.HELD_READS", 3)


TWO_BENCHMARKS = {**GUIDE, "benchmarks": GUIDE["benchmarks"] * 2}  # type: ignore[operator]
MANY = {
    **DETAILED,
    "label": "µ 🚀",
    "generated_texts": ["x" * 300] * 4,
    "start_times": [5.0, 5.1, 5.2, 5.3],
    "std_ttft_ms": float("nan"),
}


@pytest.mark.parametrize("result", [DETAILED, MANY, GUIDE, TWO_BENCHMARKS, [VLLM, DETAILED]])
def test_large_files_have_the_numbers_of_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: Any
) -> None:
    path = written(tmp_path, "r.json", result)
    small = import_file(path, tmp_path / "small").runs
    lowered(monkeypatch)
    large = import_file(path, tmp_path / "large").runs
    assert [run.summary for run in large] == [run.summary for run in small]
    assert [run.plan for run in large] == [run.plan for run in small]
    for one, other in zip(small, large, strict=True):
        if one.records is not None and other.records is not None:
            assert one.records.read_at.tolist() == other.records.read_at.tolist()
        files = [run.folder / "source.json" for run in (one, other) if run.folder]
        assert len({json.dumps(json.loads(file.read_text())) for file in files}) == 1
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [run.summary for run in import_file(packed, tmp_path / "packed").runs] == [run.summary for run in small]


def test_large_lines_are_read_and_broken_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.dumps(MANY), '{"cut": ', json.dumps(VLLM), "", '{"completed": 1, "completed": 2}', "[1]"]
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(lines))
    small = import_file(path, tmp_path / "small")
    lowered(monkeypatch)
    large = import_file(path, tmp_path / "large")
    assert [run.summary for run in large.runs] == [run.summary for run in small.runs] and len(large.runs) == 2
    assert [text.partition(":")[0] for text in large.broken] == [text.partition(":")[0] for text in small.broken]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("other.json", json.dumps({"rows": [{"a": 1}] * 1000}), "with the keys rows, which is not a supported result"),
        ("twice.json", json.dumps(MANY)[:-1] + ', "completed": 9}', "completed is given twice"),
        ("cut.json", json.dumps(MANY)[:-9], "is not JSON"),
        ("server.log", "INFO a line\n" * 100, "is too large"),
        ("deep.json", '{"a": ' + "[" * 5000 + "]" * 5000 + "}", "nested|recursion"),
    ],
)
def test_large_files_that_are_no_results_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, why: str
) -> None:
    lowered(monkeypatch)
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=why):
        import_file(tmp_path / name, tmp_path / "store")


def test_a_large_result_takes_memory_in_proportion_to_less_than_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 200 MB that is below 500 MB with all that is loaded (bench/imports.py); as objects it would be five times its
    size."""
    n, tokens = 1000, 200
    gaps = [0.0123456789012345] * (tokens - 1)
    arrays = {"ttfts": [0.1] * n, "itls": [gaps] * n, "input_lens": [10] * n, "output_lens": [tokens] * n}
    starts = [float(at) for at in range(n)]
    result = {
        **VLLM,
        "completed": n,
        "num_prompts": n,
        **arrays,
        "generated_texts": ["x" * 900] * n,
        "start_times": starts,
    }
    path = written(tmp_path, "r.json", result)
    monkeypatch.setattr("inferometer.exchange.importing.recognise.LARGE", 2**20)
    monkeypatch.setattr("inferometer.exchange.importing.requests.HELD_READS", 20_000)
    monkeypatch.setattr("inferometer.record.columns.BATCH_READS", 20_000)
    tracemalloc.start()
    parsed = read_result(path, "vllm-bench-serve")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert parsed.runs[0].records is not None and len(parsed.runs[0].records.read_at) == n * tokens
    assert peak < 1.5 * path.stat().st_size


def inference_perf_requests(n: int, tokens: int) -> str:
    starts = [1.7e9 + at / 10 for at in range(n)]
    times = [[round(start + 0.1 + token / 100, 7) for token in range(tokens)] for start in starts]
    counts = {"input_tokens": 10, "output_tokens": tokens}
    return json.dumps(
        [
            {"start_time": start, "end_time": each[-1], "info": {**counts, "output_token_times": each}}
            for start, each in zip(starts, times, strict=True)
        ]
    )


def aiperf_requests(n: int, tokens: int) -> str:
    gaps = {"value": [12.3456789012345 + token / 7 for token in range(tokens - 1)], "unit": "ms"}
    metrics = {"time_to_first_token": {"value": 100.0, "unit": "ms"}, "inter_chunk_latency": gaps}
    starts = [int((1.7e9 + at / 10) * 1e9) for at in range(n)]
    about = [{"request_start_ns": start, "request_end_ns": start + 8 * 10**9} for start in starts]
    return "\n".join(json.dumps({"metadata": each, "metrics": metrics, "error": None}) for each in about)


PER_REQUEST = pytest.mark.parametrize(
    ("name", "format_", "text_of"),
    [
        ("per_request_lifecycle_metrics.json", "inference-perf-requests", inference_perf_requests),
        ("profile_export.jsonl", "aiperf-requests", aiperf_requests),
    ],
)


@PER_REQUEST
def test_the_requests_of_a_large_file_have_the_numbers_of_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, format_: str, text_of: Callable[[int, int], str]
) -> None:
    path = tmp_path / name
    path.write_text(text_of(20, 9))
    (small,) = import_file(path, tmp_path / "small").runs
    lowered(monkeypatch)
    (large,) = import_file(path, tmp_path / "large").runs
    assert large.source == small.source == format_
    assert large.summary == small.summary and large.folder is not None
    assert small.records is not None and large.records is not None and len(small.records) == 20
    for column in ("read_at", "read_tokens", "sent_at", "ended_at"):
        assert getattr(large.records, column).tolist() == getattr(small.records, column).tolist()
    assert (large.folder / f"source{path.suffix}").read_bytes() == path.read_bytes()


@PER_REQUEST
def test_the_requests_of_a_large_file_take_memory_in_proportion_to_less_than_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, format_: str, text_of: Callable[[int, int], str]
) -> None:
    """Instants are arrays: 1.3 and 0.9 times the size of the file with all else, 2.9 and 2.1 as Python's numbers."""
    n, tokens = 1000, 200
    path = tmp_path / name
    path.write_text(text_of(n, tokens))
    monkeypatch.setattr("inferometer.exchange.importing.recognise.LARGE", 2**20)
    monkeypatch.setattr("inferometer.exchange.importing.requests.HELD_READS", 20_000)
    monkeypatch.setattr("inferometer.record.columns.BATCH_READS", 20_000)
    read_result(path, format_)  # what is loaded on use is no part of it
    tracemalloc.start()
    parsed = read_result(path, format_)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert parsed.runs[0].records is not None and len(parsed.runs[0].records.read_at) == n * tokens
    assert peak < 1.5 * path.stat().st_size


# -- relatives of vllm bench serve -----------------------------------------------------------------------------------


def test_times_without_a_unit_are_seconds_if_the_run_is_long_enough(tmp_path: Path) -> None:
    plain = {name: value for name, value in VLLM.items() if name != "mean_ttft_ms"}
    bare = {**plain, "median_ttft": 0.29, "p99_ttft": 1.2, "median_e2el": 1.5, "median_tpot": 0.03}
    (run,) = import_file(written(tmp_path, "r.json", bare), tmp_path / "store").runs
    assert (run.summary.measures["ttft"].p50, run.summary.measures["ttft"].p99) == (0.29, 1.2)
    assert run.summary.measures["e2e"].p50 == 1.5
    assert "median_ttft" not in run.environment.metadata
    with pytest.raises(DataError, match="longer than the whole run"):
        import_file(written(tmp_path, "ms.json", {**plain, "median_ttft": 290.0}), tmp_path / "store")


def test_latencies_before_e2el_are_those_of_requests(tmp_path: Path) -> None:
    (run,) = import_file(written(tmp_path, "r.json", {**VLLM, "p99_latency_ms": 700.0}), tmp_path / "store").runs
    assert run.summary.measures["e2e"].p99 == pytest.approx(0.7)


def test_a_mean_that_empty_answers_lower_is_not_doubted(tmp_path: Path) -> None:
    empty = {**DETAILED, "completed": 4, "errors": ["", "", "", ""], "mean_ttft_ms": 75.0}
    (run,) = import_file(written(tmp_path, "empty.json", empty), tmp_path / "store").runs
    assert run.summary.measures["ttft"].mean == pytest.approx(0.1)
    assert run.verdict.status == "valid"
    (other,) = import_file(written(tmp_path, "off.json", {**empty, "mean_ttft_ms": 60.0}), tmp_path / "store").runs
    assert other.verdict.status == "doubtful"


# -- llmperf ---------------------------------------------------------------------------------------------------------

SUMMARY = {"results_ttft_s_mean": 0.2, "results_num_completed_requests": 2, "num_concurrent_requests": 2}
RESPONSES = [{"ttft_s": ttft, "end_to_end_latency_s": 1.0, "error_code": None} for ttft in (0.1, 0.3)]


def imported_below(folder: Path) -> Any:
    arguments = ["import", str(folder), "--store", str(folder.parent / "store"), "--json"]
    return json.loads(CliRunner().invoke(group, arguments, standalone_mode=False).stdout)


def test_summaries_and_responses_in_two_folders_are_one_run(tmp_path: Path) -> None:
    written(tmp_path / "data", "summary/m.json", SUMMARY)
    written(tmp_path / "data", "individual/m.json", RESPONSES)
    written(tmp_path / "data", "individual/n.json", RESPONSES)
    files = imported_below(tmp_path / "data")["files"]
    assert [Path(each["file"]).relative_to(tmp_path / "data").as_posix() for each in files] == [
        "individual/n.json",
        "summary/m.json",
    ]


def test_summaries_under_their_concurrency_are_a_run_each(tmp_path: Path) -> None:
    several = {"1": {**SUMMARY, "num_concurrent_requests": 1}, "2": SUMMARY}
    runs = import_file(written(tmp_path, "results.json", several), tmp_path / "store").runs
    assert [plan_from(run.plan).load.concurrency for run in runs] == [1, 2]


def test_percentiles_of_responses_are_interpolated_as_llmperf_does(tmp_path: Path) -> None:
    (run,) = import_file(written(tmp_path, "responses.json", RESPONSES), tmp_path / "store").runs
    ttft = run.summary.measures["ttft"]
    assert [ttft.p50, ttft.p90] == pytest.approx([0.2, 0.28])


# -- what is no result -----------------------------------------------------------------------------------------------


def test_unreadable_files_of_other_programs_are_no_damaged_results(tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    written(folder, "r.json", VLLM)
    (folder / "tokenizer_config.json").write_text('{"model_max_length": ' + "9" * 31 + "}")
    (folder / "cut.json").write_text(json.dumps(VLLM)[:200])
    document = imported_below(folder)
    assert [Path(failed["file"]).name for failed in document["failed"]] == ["cut.json"]
    assert len(document["files"]) == 1
