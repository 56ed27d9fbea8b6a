"""Real runs of an 8B and a 32B model on an H200, measured again from their records: what was shown of them before, and
what is shown today. And a result of `vllm bench serve` on the same machine."""

import json
import shutil
from pathlib import Path

import pytest

from inferometer.conduct.run import measured_again, remeasure
from inferometer.exchange.importing.importer import import_file
from inferometer.record.summary import Summary
from inferometer.store.folder import load_run
from inferometer.store.manifest import faults
from inferometer.store.store import open_store

# The status when they were made, and by today's rules from the same records. All of the doubts were for too few samples
# but that of e-1000-200-c16, which holds: its records still have the wide uncertainty of reads of their time.
STATUS = {
    "32b/j-512-128-r4": ("doubtful", "valid"),
    "32b/k-2000-200-r2": ("doubtful", "valid"),
    "32b/l-1000-200-c1": ("doubtful", "valid"),
    "32b/l-1000-200-c16": ("doubtful", "valid"),
    "8b/a-512-128-r20": ("valid", "valid"),
    "8b/a-512-128-r40": ("doubtful", "valid"),
    "8b/a-512-128-r5": ("doubtful", "valid"),
    "8b/b-2000-200-r2": ("doubtful", "valid"),
    "8b/b-2000-200-r6": ("valid", "valid"),
    "8b/c-128-512-r15": ("doubtful", "valid"),
    "8b/c-128-512-r5": ("doubtful", "valid"),
    "8b/e-1000-200-c1": ("doubtful", "valid"),
    "8b/e-1000-200-c16": ("doubtful", "doubtful"),
    "8b/e-1000-200-c64": ("doubtful", "valid"),
}


def hidden(summary: Summary) -> list[str]:
    """Percentiles of the headline that have values and are not shown."""
    return [
        f"{name} {stat}"
        for name in summary.headline
        for stat in ("p50", "p90", "p99")
        if summary.measures[name].count and summary.measures[name][stat] is None
    ]


def test_all_runs_of_the_sweep_are_here(data: Path) -> None:
    runs = (data / "vllm-0.24-h200-sweep").rglob("records.parquet")
    assert {f"{path.parent.parent.name}/{path.parent.name}" for path in runs} == set(STATUS)


@pytest.mark.parametrize("name", STATUS)
def test_a_run_of_the_sweep_from_its_records(name: str, data: Path) -> None:
    before = load_run(data / "vllm-0.24-h200-sweep" / name)
    after = measured_again(before)
    assert (before.status, after.status) == STATUS[name], [doubt.text for doubt in after.doubts]
    assert hidden(before.summary) and not hidden(after.summary)
    assert before.by_older_rules and not after.by_older_rules
    assert all(doubt.moves for doubt in after.doubts)


def test_a_store_of_older_runs_is_measured_again(data: Path, tmp_path: Path) -> None:
    """What lists, pages and histories show of them is by the present rules; the first numbers stay in their folders."""
    names = {"20261116-000001-one": "8b/e-1000-200-c1", "20261116-000002-two": "32b/l-1000-200-c1"}
    for id_, name in names.items():
        shutil.copytree(data / "vllm-0.24-h200-sweep" / name, tmp_path / "runs" / id_)
    store = open_store(tmp_path)
    assert {entry.verdict for entry in store.runs()} == {"doubtful"}
    done = list(remeasure(store))
    assert {(each.id, each.before, each.after) for each in done} == {(id_, "doubtful", "valid") for id_ in names}
    for entry in store.runs():
        run = store.load(entry.id)
        assert entry.verdict == run.status == "valid" and not run.is_outdated and not hidden(run.summary)
        assert entry.folder is not None and not list(faults(entry.folder))
        first = json.loads((entry.folder / "older-verdict.json").read_text())
        assert first["word"] == "doubtful" and (entry.folder / "older-summary.json").exists()
    assert list(remeasure(store)) == []
    [again] = remeasure(store, ["20261116-000001-one"])
    assert again.after == "valid"
    assert (
        json.loads((tmp_path / "runs" / "20261116-000001-one" / "older-verdict.json").read_text())["word"] == "doubtful"
    )


def test_an_imported_burst_headlines_what_its_file_says(data: Path, tmp_path: Path) -> None:
    """Its window, in which the last of the burst was sent, saw 0.785 requests/s: that was shown."""
    file = data / "vllm-0.24-h200" / "vllm_bench_serve_2000_400_inf.json"
    [run] = import_file(file, tmp_path).runs
    rate = run.summary.rates["request_rate"]
    assert rate.window == pytest.approx(0.785, abs=0.001)
    assert rate.value == json.loads(file.read_text())["request_throughput"] == pytest.approx(12.42, abs=0.01)
    assert rate.span == pytest.approx(rate.value, rel=0.01)
