"""Reading growing logs step by step gives the same result as reading them as a whole."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferometer.load.facts import facts_of
from inferometer.measure.inputs import Answers, sums_of_reads
from inferometer.measure.steadiness import decided
from inferometer.measure.summary import goal_summary, summarize
from inferometer.plan.reading import plan_from
from inferometer.record.gather import GrowingLogs, read_logs
from inferometer.scale.rehearsal import rehearse_shards


@pytest.mark.parametrize(
    "sections",
    [
        {"load": {"rate": 60}, "limits": ["ttft p90 < 20ms", "itl p99 < 9ms"]},
        {"load": {"concurrency": 9}, "limits": ["e2e p50 < 1s", "session_time p50 < 1s"]},
    ],
    ids=["open loop", "closed loop"],
)
@pytest.mark.parametrize("ahead_ns", [0, 5_000_000_000])
def test_looks_at_growing_logs_are_looks_at_all(tmp_path: Path, sections: dict[str, Any], ahead_ns: int) -> None:
    stop = {"at_most": "8s", "precision": "tpot mean within 1%"}
    workload = {"input_tokens": 16, "output_tokens": {"mean": 8, "std": 4, "min": 1}, "turns": 2, "think": "20ms"}
    plan = plan_from({"workload": workload, "stop": stop, "workers": 3, **sections})
    (tmp_path / "whole").mkdir()
    logs = rehearse_shards(plan, 3, tmp_path / "whole", "nonce", lambda shard: shard * ahead_ns)
    growing = tmp_path / "growing"
    growing.mkdir()
    watcher = GrowingLogs(growing, sums_of_reads)
    for share in (0.001, 0.3, 0.3, 0.71, 1.0):  # cut anywhere, also within an entry
        for log in logs:
            data = log.read_bytes()
            copy = growing / log.name
            copy.write_bytes(data if log.name == "log-clocks.bin" else data[: round(share * len(data))])
        seen = decided(watcher.look())
        all_at_once, gathered = read_logs(sorted(growing.glob("*.bin")))
        whole = decided(all_at_once)
        ours, theirs = Answers.of(seen), Answers.of(whole)
        assert len(ours) == len(theirs)
        for field in fields(Answers):
            if field.name != "records":
                assert np.array_equal(getattr(ours, field.name), getattr(theirs, field.name)), field.name
        facts, notes = facts_of(plan, whole, gathered.notes), watcher.gathered.notes
        assert {(note.what, note.at) for note in notes} == {(note.what, note.at) for note in gathered.notes}
        if not len(whole):
            continue
        needed, full = goal_summary(ours, plan, facts, "default"), summarize(whole, plan, facts)
        assert needed.precision == full.precision
        assert (needed.window.requests, needed.window.steady) == (full.window.requests, full.window.steady)
        assert needed.window.backlog == full.window.backlog
        assert needed.sessions in (None, full.sessions)
        assert needed.measures and {*needed.measures} < {*full.measures}
        for name, measured in needed.measures.items():
            assert measured.count == full.measures[name].count
            assert measured["p90"] == pytest.approx(full.measures[name]["p90"], rel=1e-12)
            assert measured.intervals["p90"] == full.measures[name].intervals["p90"]
    assert len(ours) > 200
