"""Reads that stay in their file give the same results as reads in memory: columns, order, numbers and exports."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferometer.exchange.exporting import (
    FORMATS,
    DocumentRows,
    ExportRequest,
    json_piece,
    long_json_piece,
    pieces,
    vllm,
)
from inferometer.judge.evidence import draws, evidence, statistic
from inferometer.measure import quantiles
from inferometer.measure.registry import REGISTRY
from inferometer.measure.rosetta import WeightedValues, linear, mean, population_std
from inferometer.measure.summary import slowest, summarize
from inferometer.measure.tally import Tally, Values, condensed
from inferometer.measure.values import quantities
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.plan.stored import StoredPlan
from inferometer.record import columns, gather, parquet
from inferometer.record.columns import READS, Records
from inferometer.record.encoding import document_of
from inferometer.record.environment import Environment
from inferometer.record.gather import read_logs
from inferometer.record.log import LogWriter
from inferometer.record.parquet import read_parquet, write_batches
from inferometer.record.record import Record
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.record.verdict import Verdict
from inferometer.show.charts.chart import ChartedRun

ROUNDING = 1e-11


def packed(values: Any) -> bytes:
    return np.asarray(values, "<i8").tobytes()


def record(
    session: int, scheduled_at: int, gaps: list[int], tokens: list[int], slack: list[int], **more: Any
) -> Record:
    at = scheduled_at + 1000 + np.cumsum(np.array(gaps, np.int64))
    ended_at = int(at[-1]) + 10 if len(at) else scheduled_at + 2000
    reads: dict[str, Any] = {"read_at": packed(at), "read_tokens": packed(tokens), "read_slack": packed(slack)}
    return Record(
        session=session, scheduled_at=scheduled_at, ready_at=scheduled_at, sent_at=scheduled_at + 500,
        ended_at=ended_at, events=len(gaps), input_tokens=7, request_id=f"r{session}", **reads, **more,
    )  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """In the order in which they might end: not that of their schedule."""
    n = draw(st.integers(1, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    tokens_up_to = draw(st.sampled_from((1, 1, 3, 9)))
    least = draw(st.sampled_from((0, 1)))
    made = []
    for session in random.permutation(n).tolist():
        count = int(random.integers(0, 30))
        gaps = random.choice([0, 1, 999, 20_000_000, 20_000_001, 3_000_000_000], count)
        gaps = gaps + random.integers(0, 1_000_000, count) * (random.random() < 0.7)
        tokens = random.integers(min(least, tokens_up_to), tokens_up_to + 1, count)
        slack = random.integers(0, 5, count) * int(random.choice([0, 1, 30_000_000]))
        outcome = "ok" if random.random() < 0.9 else "cut"
        made.append(
            record(session, session * 40_000_000, gaps.tolist(), tokens.tolist(), slack.tolist(), outcome=outcome)
        )
    return made


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (columns, parquet, gather):
        monkeypatch.setattr(module, "BATCH_READS", 50)


def streamed(made: list[Record], folder: Path, patch: pytest.MonkeyPatch) -> tuple[Records, Records, Records]:
    """The same records in memory, in a Parquet file of several row groups, and in two logs."""
    half = len(made) // 2
    parts = [part for part in (made[:half], made[half:]) if part]
    paths = []
    for number, part in enumerate(parts):
        path = folder / f"log-{number}.bin"
        path.unlink(missing_ok=True)
        with LogWriter(path, number) as log:
            for each in part:
                log.append(each)
        paths.append(path)
    write_batches(map(Records.of, parts), folder / "records.parquet")
    with patch.context() as few:
        few.setattr(parquet, "HELD_READS", -1)
        few.setattr(gather, "HELD_READS", -1)
        in_file, in_logs = read_parquet(folder / "records.parquet"), read_logs(paths)[0]
    return Records.concat([Records.of(made)]), in_file, in_logs


anything = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@anything
@given(made=records(), seed=st.integers(0, 2**32))
def test_records_are_the_same(
    made: list[Record], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_batches: None
) -> None:
    held, *others = streamed(made, tmp_path, monkeypatch)
    chosen = np.random.default_rng(seed).random(len(held)) < 0.5
    for other in others:
        assert not other.held or not held.read_offsets[-1]
        for mine, theirs in ((held, other), (held.take(chosen), other.take(chosen))):
            assert [theirs.record(i) for i in range(len(theirs))] == [mine.record(i) for i in range(len(mine))]
            assert theirs.last_read_at() == mine.last_read_at()
            for name in READS:
                assert getattr(theirs, name).tolist() == getattr(mine, name).tolist()
        in_order = [*other.reads_in_order(chosen)]
        assert (
            np.concatenate([part.owner for part in in_order] or [np.empty(0, np.int64)]).tolist()
            == np.flatnonzero(chosen).tolist()
        )
        flat = np.concatenate([part.at for part in in_order] or [np.empty(0, np.int64)])
        assert flat.tolist() == held.take(chosen).read_at.tolist()
        mixed = {int(i): part for part in other.read_batches(chosen) for i in part.owner}
        assert sorted(mixed) == np.flatnonzero(chosen).tolist()


def plans() -> Iterator[Plan]:
    limits = ["itl p99 < 30ms", "icl p95 < 1s", "stall < 2s"]
    yield plan_from({"target": {"url": "http://x:1"}, "load": {"rate": 25}, "limits": limits}, where="test")
    yield plan_from({"target": {"url": "http://x:1"}, "load": {"concurrency": 3}}, where="test")


@anything
@given(made=records())
def test_a_summary_is_the_same(
    made: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_batches: None
) -> None:
    held, *others = streamed(made, tmp_path, monkeypatch)
    for plan in plans():
        expected = summarize(held, plan)
        for other in others:
            assert alike(document_of(summarize(other, plan)), document_of(expected)), "differs by more than rounding"
    assert [slowest(other, 3) for other in others] == [slowest(held, 3)] * 2


@anything
@given(made=records())
def test_what_a_comparison_draws_is_the_same(
    made: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_batches: None
) -> None:
    held, *others = streamed(made, tmp_path, monkeypatch)
    summary = summarize(held, next(plans()))
    first, *streamed_sides = [evidence(measured_run(records, summary)) for records in (held, *others)]
    assert first is not None
    for quantity in (quantity for quantity in quantities(summary).values() if quantity.name in REGISTRY):
        expected = statistic(first, quantity)
        for side in streamed_sides:
            assert side is not None
            drawn = statistic(side, quantity)
            assert (drawn is None) == (expected is None)
            if drawn is not None and expected is not None:
                np.testing.assert_allclose(drawn(draws(side.blocks)), expected(draws(first.blocks)), rtol=ROUNDING)


def measured_run(records: Records, summary: Summary) -> Run:
    return Run(
        id="r",
        started_at="2026-01-01T00:00:00+00:00",
        plan=StoredPlan(next(plans()).model_dump(mode="json")),
        environment=Environment(),
        summary=summary,
        verdict=Verdict(status="valid"),
        read_records=lambda: records,
    )


@settings(parent=anything, max_examples=2)
@given(made=records())
@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("json", "parquet", "inferx", "ray-routing")])
def test_an_export_is_the_same(
    name: str, made: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_batches: None
) -> None:
    held, in_file, _ = streamed(made, tmp_path, monkeypatch)
    run = measured_run(held, summarize(held, next(plans())))
    ours = made_files(name, run)
    theirs = made_files(name, replace(run, read_records=lambda: in_file))
    assert theirs.keys() == ours.keys()
    for file, content in ours.items():
        if file.endswith(".json"):
            assert alike(orjson.loads(theirs[file]), orjson.loads(content))
        else:
            assert theirs[file] == content


def made_files(name: str, run: Run) -> dict[str, bytes]:
    return {piece.name: piece.content for piece in pieces(name, ExportRequest([run], detailed=True, suffix=".json"))}


@anything
@given(made=records())
def test_details_are_the_same_bytes_as_the_whole_document(
    made: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_batches: None
) -> None:
    held, in_file, _ = streamed(made, tmp_path, monkeypatch)
    for found in (held, in_file):
        run = Run(
            "r",
            "2026-01-01T00:00:00+00:00",
            StoredPlan({}),
            Environment(),
            Summary(),
            read_records=lambda found=found: found,  # type: ignore[misc]
        )
        (piece,) = vllm.export(ExportRequest([run], detailed=True))
        assert piece.content == json_piece("", vllm.serve_document(run, detailed=True)).content
        assert piece.content.count(b"\n") > len(made)


nested = st.recursive(
    st.none() | st.floats(allow_nan=False) | st.text(max_size=3), lambda each: st.lists(each, max_size=3)
)


@given(st.dictionaries(st.text(min_size=1), st.lists(st.lists(nested, max_size=4), max_size=4), min_size=1))
def test_rows_are_written_as_one_list(document: dict[str, list[list[Any]]]) -> None:
    whole = {key: [row for rows in batches for row in rows] for key, batches in document.items()}
    in_rows = {key: DocumentRows(lambda batches=batches: batches) for key, batches in document.items()}  # type: ignore[misc]
    assert long_json_piece("x", in_rows).content == json_piece("x", whole).content


@st.composite
def weighed(draw: st.DrawFn) -> tuple[Any, Any, Any, int]:
    """Values of any spread with whole weights at instants, and into how many pieces they are cut."""
    n = draw(st.integers(1, 400))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.sampled_from(("equal", "few", "narrow", "wide", "zero", "negative")))
    values = {
        "equal": np.full(n, 0.02),
        "few": random.choice([0.01, 0.02, 0.5], n),
        "narrow": random.integers(20_000_000, 20_000_040, n) / 1e9,
        "wide": 10.0 ** random.uniform(-12, 6, n),
        "zero": random.choice([0.0, 1e-9, 1.0], n),
        "negative": random.normal(0, 1, n),
    }[shape]
    heaviest = draw(st.sampled_from((None, 1, 2, 40)))
    weights = None if heaviest is None else random.integers(1, heaviest + 1, n)
    return values, weights, random.integers(0, draw(st.sampled_from((1, 10**3, 10**12))), n), draw(st.integers(1, 5))


@settings(max_examples=60, deadline=None)
@given(weighed(), st.sampled_from((0.8, 0.95)))
def test_a_tally_is_a_sample(given_: tuple[Any, Any, Any, int], confidence: float) -> None:
    values, weights, at, cuts = given_
    expected = quantiles.sample(values, None if weights is None else weights.astype(np.float64), at)
    tally = Tally(lambda: batches_of(values, weights, at, cuts))
    shares = (0.01, 0.5, 0.9, 0.95, 0.99, 0.999)
    tally.prepare(shares, confidence)
    assert (len(tally), tally.total, tally.least, tally.largest) == (
        len(expected), expected.total, expected.least, expected.largest,
    )  # fmt: skip
    for share in shares:
        assert quantiles.estimate(tally, share, confidence) == quantiles.estimate(expected, share, confidence)
    assert near(quantiles.mean(tally), quantiles.mean(expected), float(abs(values).max()))
    assert near(quantiles.std(tally), quantiles.std(expected), float(abs(values).max()))


@settings(max_examples=40, deadline=None)
@given(weighed())
def test_a_tally_has_the_percentiles_of_numpy(given_: tuple[Any, Any, Any, int]) -> None:
    values, _, at, cuts = given_
    tally = Tally(lambda: batches_of(values, None, at, cuts))
    for share in (0.0, 0.25, 0.5, 0.9, 0.99):
        assert linear(tally, share) == linear(WeightedValues(values), share)
    for ours in (mean, population_std):
        assert near(ours(tally), ours(WeightedValues(values)), float(abs(values).max()))


def batches_of(values: Any, weights: Any, at: Any, cuts: int) -> Iterator[Values]:
    for part in np.array_split(np.arange(len(values)), cuts):
        yield Values(values[part], None if weights is None else weights[part], at[part])


def test_what_is_kept_of_equal_values_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    from inferometer.measure import tally as module

    monkeypatch.setattr(module, "_MOST_KEPT", 1000)
    values = np.tile(np.arange(20_000_000, 20_000_100) / 1e9, 100)
    tally = Tally(lambda: (Values(values) for _ in range(30)))
    tally.prepare((0.5,), 0.95)
    assert tally.value_at(0.5) == np.sort(values)[len(values) // 2 - 1]
    assert sum(len(kept.values) for kept in tally._kept.values()) <= 100


def test_a_chart_of_a_long_run_is_right_to_a_part_in_eight_thousand() -> None:
    values = np.random.default_rng(1).gamma(8, 0.0025, 10_000)
    middles, counts = condensed([Values(values[:5000]), Values(values[5000:], np.full(5000, 2))])
    assert counts.sum() == 15_000
    found = np.repeat(middles, counts.astype(np.int64))
    expected = np.sort(np.concatenate((values, values[5000:])))
    assert np.abs(found / expected - 1).max() < 2**-13


@anything
@given(made=records())
def test_a_chart_has_the_same_requests(
    made: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_batches: None
) -> None:
    held, in_file, _ = streamed(made, tmp_path, monkeypatch)
    subjects = [
        ChartedRun(Run("r", "", StoredPlan({}), Environment(), Summary(), read_records=lambda each=each: each))  # type: ignore[misc]
        for each in (held, in_file)
    ]
    assert subjects[0].end_at == subjects[1].end_at
    if (subjects[0].answers.records.read_counts()[subjects[0].chosen] > 1).any():
        weight = [subject.values("icl") for subject in subjects]
        assert len(weight[0][0]) == weight[1][1].sum()


def near(one: float | None, other: float | None, scale: float) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12 * scale)


def alike(one: Any, other: Any) -> bool:
    """Equal, floats within rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=1e-15) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)
