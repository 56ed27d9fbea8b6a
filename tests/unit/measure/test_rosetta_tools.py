"""Each tool's definitions on records small enough to check by hand."""

import math
from typing import Any

import numpy as np
import pytest
from made_runs import made_run
from measure_rows import failure, many, row

from inferometer.errors import PlanError, StoreError
from inferometer.measure.rosetta import (
    TOOLS,
    CountedRequests,
    SeenRequests,
    WeightedValues,
    by_index,
    by_weight,
    fields,
    linear,
    our_statistic,
    tool_named,
    translated,
)
from inferometer.measure.values import quantities
from inferometer.show.console import console
from inferometer.show.imported import print_rosetta, rosetta, rosetta_document

MS = 1_000_000


def two_answers(**second):
    """One token a read at 100, 110, 120, 130 ms; and two reads of 2 and 3 tokens at 200 and 230 ms, sent at 50."""
    return many(
        [
            row(0, reads=[100, 110, 120, 130], ended=140, input_tokens=10, requested_output=4, events=6),
            row(
                50,
                reads=[200, 230],
                tokens=[2, 3],
                ended=250,
                input_tokens=20,
                requested_output=9,
                **{"events": 3} | second,
            ),
        ]
    )


def told(name, records, api="completions"):
    return fields(tool_named(name), SeenRequests.of(records, api))


def test_every_tool_is_there_and_explains_itself() -> None:
    assert list(TOOLS) == ["vllm", "sglang", "guidellm", "inference-perf", "aiperf", "mlperf"]
    for name in TOOLS:
        tool = tool_named(name)
        assert tool.name == name
        assert "/" in tool.source
        each: Any
        for each in (*tool.spreads, *tool.figures):
            assert each.definition and each.why, each.name
            assert "\n" not in each.definition + each.why


def test_a_tool_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(PlanError) as caught:
        tool_named("wrk")
    assert "'wrk'" in caught.value.message
    assert "mlperf" in caught.value.hint


def test_vllm_divides_by_n_minus_1_whatever_came_first() -> None:
    said = told("vllm", two_answers())
    # (130 - 100) / 3 and (230 - 200) / 4; ours would divide the second by the 3 tokens after the first read
    assert said["mean_tpot_ms"] == pytest.approx((10 + 7.5) / 2)
    assert said["mean_ttft_ms"] == pytest.approx((100 + 150) / 2)
    assert said["mean_e2el_ms"] == pytest.approx((130 + 180) / 2)


def test_vllm_counts_a_message_as_a_token() -> None:
    bundled = told("vllm", two_answers())  # 3 events cannot be 5 messages: two messages, one gap of 30
    assert bundled["mean_itl_ms"] == pytest.approx((10 + 10 + 10 + 30) / 4)
    apart = told("vllm", two_answers(events=6))  # a message each: three of them share a read with another
    assert apart["mean_itl_ms"] == pytest.approx((10 + 10 + 10 + 30) / 7)
    assert apart["max_output_tokens_per_s"] == 9


def test_vllm_waits_for_the_usage_in_a_chat() -> None:
    assert told("vllm", two_answers(), "chat")["mean_e2el_ms"] == pytest.approx((140 + 200) / 2)


def test_vllm_takes_the_whole_run_for_rates_and_counts_connecting() -> None:
    records = many([row(0, sent=5, reads=[105, 115], connect_ns=3 * MS, tls_ns=MS, ended=200, input_tokens=8)])
    said = told("vllm", records)
    assert said["mean_ttft_ms"] == pytest.approx(104)
    assert said["request_throughput"] == pytest.approx(1 / 0.2)
    assert said["output_throughput"] == pytest.approx(2 / 0.2)
    assert said["total_token_throughput"] == pytest.approx(10 / 0.2)


def test_vllm_waits_a_gap_before_its_first_request_and_sglang_does_not() -> None:
    """At 4 requests/s two of them begin within half a second, not within a quarter."""
    records = many([row(0, reads=[100], ended=100), row(250, reads=[350], ended=350)])
    lasted = {name: fields(tool_named(name), SeenRequests.of(records, gap_s=0.25)) for name in ("vllm", "sglang")}
    assert lasted["vllm"]["request_throughput"] == pytest.approx(2 / 0.6)
    assert lasted["vllm"]["output_throughput"] == pytest.approx(2 / 0.6)
    assert lasted["sglang"]["request_throughput"] == pytest.approx(2 / 0.35)
    assert SeenRequests.of(records, duration_s=0.6, gap_s=0.25).gap_s == 0  # it is in what its tool said


def test_vllm_counts_requests_of_a_second_as_at_once() -> None:
    records = many(
        [row(0, reads=[10], ended=10), row(500, reads=[510], ended=510), row(2500, reads=[2600], ended=2600)]
    )
    assert told("vllm", records)["max_concurrent_requests"] == 2


def test_a_single_token_has_no_tpot_anywhere() -> None:
    records = many([row(0, reads=[100])])
    assert told("vllm", records)["mean_tpot_ms"] is None
    assert told("sglang", records)["mean_tpot_ms"] is None
    assert told("inference-perf", records)["successes.latency.time_to_first_token.mean"] is None
    assert told("aiperf", records)["inter_token_latency.avg"] is None
    assert told("mlperf", records)["99.00 time to output token (ns)"] is None


def test_failures_are_left_out_but_their_time_is_in() -> None:
    records = many([row(0, reads=[100, 110]), failure(0, ended=1000)])
    said = told("vllm", records)
    assert said["mean_ttft_ms"] == pytest.approx(100)
    assert said["request_throughput"] == pytest.approx(1)


def test_sglang_believes_the_length_that_was_asked_for() -> None:
    said = told("sglang", two_answers())
    # until the last line: (140 - 100) / 3, and (250 - 200) / (9 - 1) although 5 tokens came
    assert said["mean_tpot_ms"] == pytest.approx((40 / 3 + 50 / 8) / 2)
    assert said["output_throughput"] == pytest.approx((4 + 9) / 0.25)
    assert said["output_throughput_retokenized"] == pytest.approx((4 + 5) / 0.25)
    assert said["concurrency"] == pytest.approx((0.14 + 0.2) / 0.25)


def test_guidellm_has_the_first_token_in_its_tpot_and_weighs_by_tokens() -> None:
    said = told("guidellm", two_answers())
    assert said["time_per_output_token_ms.successful.mean"] == pytest.approx((130 + 180) / 9)
    assert said["inter_token_latency_ms.successful.mean"] == pytest.approx((30 + 30) / (3 + 4))
    assert said["request_latency.successful.mean"] == pytest.approx((0.14 + 0.2) / 2)  # seconds, alone among its times
    assert said["output_tokens_per_second.successful.mean"] == pytest.approx(9 / 0.13)
    assert said["requests_per_second.successful.mean"] == pytest.approx(2 / 0.25)


def test_guidellm_does_not_count_connecting() -> None:
    records = many([row(0, sent=5, reads=[105, 115], connect_ns=3 * MS)])
    assert told("guidellm", records)["time_to_first_token_ms.successful.mean"] == pytest.approx(100)


def test_inference_perf_gives_all_tokens_of_a_chunk_one_time() -> None:
    said = told("inference-perf", two_answers())
    assert said["successes.latency.inter_token_latency.mean"] == pytest.approx((0.03 + 0.03) / 7)
    assert said["successes.latency.inter_token_latency.min"] == 0.0  # 3 of 7 are nothing
    assert said["successes.latency.inter_token_latency.median"] == pytest.approx(0.01)
    assert said["successes.latency.time_per_output_token.mean"] == pytest.approx((0.01 + 0.0075) / 2)
    assert said["successes.latency.normalized_time_per_output_token.mean"] == pytest.approx((0.14 / 4 + 0.2 / 5) / 2)
    assert said["successes.latency.request_latency.mean"] == pytest.approx((0.14 + 0.2) / 2)
    assert said["successes.throughput.total_tokens_per_sec"] == pytest.approx(39 / 0.25)


def test_aiperf_calls_the_tpot_itl_and_the_gaps_icl() -> None:
    said = told("aiperf", two_answers())
    assert said["inter_token_latency.avg"] == pytest.approx((10 + 7.5) / 2)
    assert said["inter_chunk_latency.avg"] == pytest.approx(60 / 4)
    assert said["time_to_second_token.avg"] == pytest.approx((10 + 30) / 2)
    assert said["output_token_throughput_per_user.avg"] == pytest.approx((100 + 1000 / 7.5) / 2)
    assert said["request_throughput.avg"] == pytest.approx(2 / 0.23)  # until the last token


def test_mlperf_counts_from_the_schedule() -> None:
    records = many([row(0, sent=20, reads=[100, 130], ended=140), row(1000, reads=[1100, 1200], ended=1250)])
    said = told("mlperf", records)
    assert said["mean first token latency (ns)"] == pytest.approx(100 * MS)
    assert said["mean latency (ns)"] == pytest.approx((140 + 250) / 2 * MS)
    assert said["mean time to output token (ns)"] == pytest.approx((40 + 150) / 2 * MS)
    assert said["Completed samples per second"] == pytest.approx(1 / 1.25)
    assert said["Scheduled samples per second"] == pytest.approx(1.0)


def test_the_three_ways_to_take_a_percentile() -> None:
    series = WeightedValues(np.array([4.0, 1.0, 3.0, 2.0]))
    assert linear(series, 0.5) == 2.5
    assert by_weight(series, 0.5) == 2.0
    assert by_index(series, 0.5) == 3.0  # index 4 * 0.5
    assert by_weight(WeightedValues(series.values, np.array([1.0, 97.0, 1.0, 1.0])), 0.9) == 1.0


def test_words_of_other_tools_in_ours() -> None:
    assert [our_statistic(word) for word in ("median", "avg", "std_dev", "99.00", "99.90", "p95")] == [
        *("p50", "mean", "std", "p99", "p99.9", "p95")
    ]


@pytest.mark.parametrize("name", TOOLS)
def test_nothing_that_was_answered_is_none_and_never_nan(name):
    records = many([failure(0), failure(10)])
    said = told(name, records)
    assert all(value is None or math.isfinite(value) for value in said.values())
    assert all(value in (None, 0.0) or "cheduled" in field or "delay" in field for field, value in said.items())
    assert told(name, many([])) is not None


@pytest.mark.parametrize("name", TOOLS)
def test_ours_stands_beside_theirs(name):
    run = made_run(400)
    said = rosetta(run, name)
    ours = quantities(run.summary)
    first = next(each for each in said.measures if each.our_measure in ("ttft", "ttft_scheduled"))
    word = next(iter(first.theirs))
    assert first.ours[word] == ours[f"{first.our_measure}.mean"].value
    assert rosetta_document(run, said)["run"] == run.id


def test_the_warm_up_is_left_out() -> None:
    with_warmup = made_run(400, warmup={"requests": 100})
    assert rosetta(with_warmup, "vllm").requests == CountedRequests(successful=300, all=300)


def test_a_run_without_records_says_so() -> None:
    run = made_run(50)
    bare = type(run)(**{**{name: getattr(run, name) for name in run.__dataclass_fields__}, "read_records": None})
    with pytest.raises(StoreError, match="no records"):
        rosetta(bare, "vllm")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", TOOLS)
def test_it_fits_the_terminal(name, width: int, capsys):
    print_rosetta(rosetta(made_run(400, failed=0.05), name), console(width=width))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.lstrip().startswith("ours: ") for line in lines)
    assert not any("…" in line for line in lines)


def test_its_document_is_plain_data() -> None:
    import orjson

    run = made_run(100)
    document = rosetta_document(run, translated(tool_named("guidellm"), SeenRequests.of(run.records), run.summary))
    assert orjson.loads(orjson.dumps(document)) == document
