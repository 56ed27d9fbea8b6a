"""Real metrics of vLLM 0.24 around three runs of `vllm bench serve`: client and server numbers must agree."""

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inferometer.measure.observed import TOLERATED, WIRE_S, WIRE_SHARE
from inferometer.measure.server import server_summary
from inferometer.observe.prometheus import KEPT_LABELS, MEANINGS, read_exposition
from inferometer.record.log import Note
from inferometer.record.record import Samples

pytestmark = pytest.mark.golden
BENCHES = ("1000_200_8", "2000_400_inf", "300_100_5")
URL = "http://localhost:8000/metrics"


@pytest.fixture(scope="module")
def folder(data: Path) -> Path:
    return data / "vllm-0.24-h200"


@pytest.fixture(scope="module")
def server(folder: Path):
    texts = [(folder / f"metrics_{when}.txt").read_text() for when in ("before", "after")]
    samples = [sample for at, text in enumerate(texts) for sample in read_exposition(text).samples(URL, at)]
    return server_summary(Samples.of(samples), [Note("found", 0, {"source": URL, "engine": "vLLM"})], 0, 1)


@pytest.fixture(scope="module")
def client(folder: Path):
    return [json.loads((folder / f"vllm_bench_serve_{name}.json").read_text()) for name in BENCHES]


@pytest.mark.parametrize("when", ["before", "after"])
def test_it_is_read_as_prometheus_client_reads_it(folder: Path, when: str) -> None:
    text = (folder / f"metrics_{when}.txt").read_text()
    expected: dict[Any, Any] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for meaning in MEANINGS.get(sample.name, ()):
                kept = tuple(sorted(item for item in sample.labels.items() if item[0] in KEPT_LABELS))
                key = (meaning.sample_name, kept)
                expected[key] = expected.get(key, 0.0) + sample.value
    found = read_exposition(text)
    assert found.values == expected and found.lies == []
    assert found.config["num_gpu_blocks"] == "56916"


def test_requests_and_tokens_are_conserved_exactly(server, client):
    grown = {name: counter.grown for name, counter in server.counters.items()}
    assert grown["requests_ok"] == sum(each["completed"] for each in client) == 240
    assert grown["prompt_tokens"] == sum(each["total_input_tokens"] for each in client) == 264006
    assert grown["generation_tokens"] == sum(each["total_output_tokens"] for each in client) == 56000
    assert server.finished == {"length": 240} and not server.restarted and TOLERATED < 0.05


def test_the_clients_ttft_is_the_servers_and_the_wires_share(server, client):
    """Measured: 472 ms by the client, 443 ms by the server; 29 ms, 6.5%, lie between."""
    ours = sum(sum(each["ttfts"]) for each in client) / 240
    theirs = server.histograms["ttft"].mean
    assert 0 < ours - theirs < max(WIRE_S, WIRE_SHARE * theirs)
    assert theirs == pytest.approx(0.4435, abs=1e-3)


def test_quantiles_lie_in_the_buckets_where_the_client_saw_them(server, client):
    """The client sees a first token later, so its quantile may lie a little above the bucket."""
    ttfts = sorted(ttft for each in client for ttft in each["ttfts"])
    for word, share in (("p50", 0.5), ("p90", 0.9)):
        low, high = server.histograms["ttft"].buckets[word]
        assert low <= getattr(server.histograms["ttft"], word) <= high
        assert low <= ttfts[int(share * len(ttfts))] <= high * 1.1
    assert server.histograms["tpot"].mean * 1e3 == pytest.approx(
        sum(each["mean_tpot_ms"] for each in client) / 3, rel=0.02
    )


def test_prefill_and_decode_make_the_inference_and_queue_the_rest(server):
    mean = {name: histogram.mean for name, histogram in server.histograms.items()}
    assert mean["prefill_time"] + mean["decode_time"] == pytest.approx(mean["inference_time"], rel=1e-6)
    assert mean["queue_time"] + mean["inference_time"] < mean["e2e"]
    assert server.prefix_hit_rate == pytest.approx(102400 / 264006)
