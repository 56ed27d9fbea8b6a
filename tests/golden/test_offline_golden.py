"""Our file for a batch size equals that of `vllm bench latency` for the same latencies, field by field."""

import json
from pathlib import Path

import pytest

from inferometer.exchange.exporting.vllm import latency_document

pytestmark = pytest.mark.golden


@pytest.mark.parametrize("size", [1, 8])
def test_the_document_of_real_latencies(data: Path, size: int) -> None:
    real = json.loads((data / f"vllm-0.24-h200/vllm_bench_latency_bs{size}.json").read_text())
    ours = latency_document(real["latencies"])
    assert list(ours) == list(real)
    assert ours["latencies"] == real["latencies"]
    assert ours["avg_latency"] == pytest.approx(real["avg_latency"], rel=1e-12)
    assert list(ours["percentiles"]) == list(real["percentiles"])
    assert ours["percentiles"] == pytest.approx(real["percentiles"], rel=1e-12)
