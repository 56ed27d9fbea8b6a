"""Numbers and verdict of offline runs, on known latencies."""

from pathlib import Path

import numpy as np
import pytest

from inferometer.exchange.exporting.vllm import latency_document, throughput_document, write_latency_files
from inferometer.measure.offline import (
    MeasuredCase,
    latency_summary,
    latency_verdict,
    throughput_summary,
    throughput_verdict,
)
from inferometer.measure.values import quantities
from inferometer.record.summary import Pass
from inferometer.record.verdict import Verdict


def case(size=8, latencies=(), **more):
    return MeasuredCase(size, 512, 128, 30, f"latency_bs{size}", list(latencies), output_tokens=size * 128, **more)


def steady(n, level=0.6):
    return [level + 0.001 * ((7 * at) % 5) for at in range(n)]


def codes(summary):
    return [reason.code for reason in latency_verdict(summary).doubts]


def test_each_size_is_a_measure_with_every_number_under_one_name() -> None:
    found = quantities(latency_summary([case(1, steady(30)), case(8, steady(30, 0.8))]))
    mean = found["latency_bs8.mean"]
    assert mean.value == pytest.approx(np.mean(steady(30, 0.8)))
    assert (mean.unit, mean.direction, mean.title) == ("s", "lower", "Latency, batch size 8, 512 in, 128 out")
    assert mean.interval[0] < mean.value < mean.interval[1]
    assert "latency_bs1.p50" in found


def test_a_quantile_of_so_few_iterations_is_weak() -> None:
    measure = latency_summary([case(8, steady(30))]).measures["latency_bs8"]
    assert measure["p50"] is not None
    assert measure["p99"] is not None and measure.interval("p99")[1] is None
    assert measure.weak["p99"] >= 368
    many = latency_summary([case(8, steady(400))]).measures["latency_bs8"]
    assert many["p99"] == pytest.approx(0.604) and not many.weak.get("p99")


def test_output_tokens_per_second_of_a_case() -> None:
    (said,) = latency_summary([case(8, [0.5] * 10)]).cases
    assert said.output_rate == pytest.approx(8 * 128 / 0.5)


def test_equal_latencies_have_no_spread() -> None:
    measure = latency_summary([case(8, [0.1 + 0.2] * 30)]).measures["latency_bs8"]
    assert measure.interval("mean") == (0.1 + 0.2, 0.1 + 0.2)
    assert measure["mean"] == 0.1 + 0.2


def test_a_sound_run_is_valid() -> None:
    assert latency_verdict(latency_summary([case(1, steady(30)), case(8, steady(30))])) == Verdict(status="valid")


def test_a_failed_case_is_a_result_and_no_measure() -> None:
    failed = case(64, [0.7, 0.8], error="OutOfMemoryError: no room", state="failed")
    summary = latency_summary([case(1, steady(30)), failed])
    assert list(summary.measures) == ["latency_bs1"]
    assert summary.cases[1].error == "OutOfMemoryError: no room"
    assert summary.cases[1].output_rate is None
    assert codes(summary) == ["case_failed"]
    assert latency_verdict(summary).status == "doubtful"
    assert latency_verdict(latency_summary([failed])).status == "invalid"


def test_what_was_interrupted_counts() -> None:
    cut = case(4, steady(7), error="interrupted after 7 of 30 iterations", state="interrupted")
    assert latency_summary([cut]).measures["latency_bs4"].count == 7


def test_doubts() -> None:
    assert codes(latency_summary([case(8, [2.0, *steady(29)])])) == ["cold_start"]
    assert codes(latency_summary([case(8, [0.5 + 0.01 * at for at in range(30)])])) == ["drifting"]
    assert codes(latency_summary([case(8, steady(30))], starts=2)) == ["engine_restarted"]
    short = case(8, steady(30))
    short.output_tokens = 1000
    assert latency_verdict(latency_summary([short])).status == "invalid"


def one_pass(elapsed_s):
    return Pass(elapsed_s=elapsed_s, requests=10, input_tokens=1000, output_tokens=500)


def test_throughput_is_over_the_elapsed_time() -> None:
    summary = throughput_summary([one_pass(2.0), one_pass(3.0)])
    rates = {name: rate.window for name, rate in summary.rates.items()}
    assert rates == {"request_rate": 4.0, "input_rate": 400.0, "output_rate": 200.0, "total_rate": 600.0}
    low, high = summary.rates["output_rate"].interval
    assert low < 200 < high
    assert quantities(summary)["output_rate"].value == 200.0
    assert throughput_verdict(summary, 1000).status == "valid"
    assert throughput_verdict(summary, 1001).status == "invalid"


def test_one_pass_has_no_interval() -> None:
    assert throughput_summary([one_pass(2.0)]).rates["request_rate"].interval == (None, None)


def test_no_pass_is_no_measurement() -> None:
    summary = throughput_summary([])
    assert summary.rates["request_rate"].window is None
    assert throughput_verdict(summary, 0).status == "invalid"


def test_files_as_vllm_writes_them(tmp_path: Path) -> None:
    cases = [case(1, steady(5)), case(2, steady(5)), case(4, [1.0], state="failed", error="x")]
    files = write_latency_files(latency_summary(cases), str(tmp_path / "results" / "latency_bs"))
    assert [file.name for file in files] == ["latency_bs1.json", "latency_bs2.json"]


def test_the_throughput_document() -> None:
    summary = throughput_summary([one_pass(2.0)])
    assert throughput_document(summary) == {
        "elapsed_time": 2.0,
        "num_requests": 10,
        "total_num_tokens": 1500,
        "requests_per_second": 5.0,
        "tokens_per_second": 750.0,
    }


def test_percentiles_interpolate_as_numpy_does() -> None:
    document = latency_document([1.0, 2.0, 3.0, 4.0])
    assert document["avg_latency"] == 2.5
    assert document["percentiles"]["50"] == 2.5
    assert document["percentiles"]["90"] == pytest.approx(3.7)
