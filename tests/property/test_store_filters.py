"""Filters and orders in SQL equal those in Python, on any runs."""

import math
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.record.environment import Environment
from inferometer.record.summary import MeasureSummary, Summary
from inferometer.record.verdict import Verdict
from inferometer.store.entry import number_of
from inferometer.store.query import condition
from inferometer.store.save import keep
from inferometer.store.store import open_store

VALUES = st.one_of(st.none(), st.floats(0, 100, allow_nan=False), st.sampled_from([0.25, 0.5, 1.0]))
COMPARE = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@settings(max_examples=15, deadline=None)
@given(
    values=st.lists(VALUES, min_size=1, max_size=6),
    operator=st.sampled_from([*COMPARE]),
    limit=st.sampled_from([0.5, 1.0, 50.0]),
)
def test_a_filter_and_an_order_by_a_measure(values: list[float | None], operator: str, limit: float) -> None:
    with tempfile.TemporaryDirectory() as place:
        store = open_store(Path(place))
        ids = {}
        for second, value in enumerate(values):
            started = datetime(2026, 11, 15, 0, 0, second, tzinfo=UTC)
            summary = Summary(measures={"ttft": MeasureSummary(statistics={"p50": value})})
            run = keep(
                store,
                kind="serving",
                source="x",
                started=started,
                plan={},
                environment=Environment(),
                summary=summary,
                verdict=Verdict(status="valid"),
            )
            ids[run.id] = value
        found = {entry.id for entry in store.runs(where=[f"ttft.p50 {operator} {limit}"])}
        assert found == {id_ for id_, value in ids.items() if value is not None and COMPARE[operator](value, limit)}
        order = [ids[entry.id] for entry in store.runs(sort="-ttft.p50")]
        assert order == sorted(values, key=lambda value: math.inf if value is None else -value)
        store.close()


@given(st.text(max_size=30), st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "=~"]), st.integers(0, 10**6))
def test_a_condition_is_read_as_it_is_written(name: str, operator: str, value: int) -> None:
    word = "x" + "".join(letter for letter in name if letter.isalnum() or letter in "._ ").strip()
    read = condition(f"{word} {operator} {value}")
    assert (read.name, read.operator, read.number) == (word, operator, float(value))


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_is_not(text: str) -> None:
    found = number_of(text)
    assert found is None or math.isfinite(found)
