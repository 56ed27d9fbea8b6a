"""Summaries of real runs are the same whether their reads are in memory or stay in the file."""

import math
from pathlib import Path

import pytest

from inferometer.measure.summary import summarize
from inferometer.plan.reading import plan_from
from inferometer.record import parquet
from inferometer.record.encoding import document_of
from inferometer.record.parquet import read_parquet
from inferometer.store.folder import load_run


def test_real_runs_have_the_same_summary(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sorted((data / "vllm-0.24-h200-sweep").rglob("records.parquet"))
    assert found
    for path in found[::4]:
        plan = plan_from(load_run(path.parent).plan, where=path.parent.name)
        held = summarize(read_parquet(path), plan)
        monkeypatch.setattr(parquet, "HELD_READS", 0)
        monkeypatch.setattr(parquet, "BATCH_READS", 10_000)
        streamed = summarize(read_parquet(path), plan)
        monkeypatch.undo()
        assert differences(document_of(held), document_of(streamed)) == []


def differences(one: object, other: object, where: str = "") -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [text for key in one for text in differences(one[key], other[key], f"{where}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [text for a, b in zip(one, other, strict=True) for text in differences(a, b, where)]
    if isinstance(one, float) and isinstance(other, float):
        return [] if math.isclose(one, other, rel_tol=1e-13) else [f"{where}: {one} {other}"]
    return [] if one == other else [f"{where}: {one} {other}"]
