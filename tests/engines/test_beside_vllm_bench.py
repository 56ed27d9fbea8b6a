"""Our numbers compared with those of `vllm bench`, in alternating runs. `-s` shows the tables."""

import json
from pathlib import Path

import pytest
from beside import HEADING, INFEROMETER, Batch, Load, called, latency, serving

pytestmark = pytest.mark.engines

pytest.importorskip("vllm")

WITHIN = 0.05
TURNS = {"open": 30, "closed": 20}  # of each side: five to fifteen minutes
STARTS = 8  # of each side, where each starts an engine


def check(rows, *names):
    """Within 5%, as far as turns on this machine can tell: what they differ by chance is added."""
    print("\n" + "\n".join([HEADING, *(row.row() for row in rows)]))
    for row in rows:
        if row.name in names:
            assert abs(row.in_pairs) <= WITHIN + row.noise, row.row()


@pytest.mark.parametrize("load", ["open", "closed"])
def test_a_server_under_load(small_vllm_server, small_model, tmp_path: Path, load: str):
    rows = serving(small_vllm_server.launch.url, small_model, Load(load), TURNS[load], tmp_path)
    check(rows, "median_ttft_ms", "median_tpot_ms", "output_throughput", "ttft_over_server", "tpot_over_server")
    means = next(row for row in rows if row.name == "mean_tpot_over_server")
    assert abs(means.difference) <= 0.01, means.row()
    for file in sorted(tmp_path.glob("*.json"))[:5]:
        assert_read_back(file, tmp_path / f"imported-{file.stem}")  # each its own: "latest" goes by when a run was made


def assert_read_back(file, store):
    """What we read from its file and count by its definitions is what it says itself."""
    said = json.loads(file.read_text())
    called([*INFEROMETER, "import", str(file), "-q", "--store", str(store)])
    found = json.loads(called([*INFEROMETER, "export", "latest", "--as", "vllm", "-o", "-", "--store", str(store)]))
    for name in ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "median_itl_ms", "output_throughput"):
        assert found[name] == pytest.approx(said[name], rel=1e-5), name


@pytest.mark.parametrize("batch", [1, 4])
def test_batches_in_the_engine(model, tmp_path: Path, batch: int):
    check(latency(model, Batch(batch), STARTS, tmp_path), "avg_latency", "p50")
