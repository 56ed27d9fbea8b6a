"""Parsing and formatting of durations, counts and shares, and the names of the measures."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer import vocabulary
from inferometer.vocabulary import MEASURES, MeasureName, attribute_at, seconds


@pytest.mark.parametrize(
    ("text", "value_s"),
    [
        ("90", 90),
        (1.5, 1.5),
        ("1.5s", 1.5),
        ("500ms", 0.5),
        ("250us", 250e-6),
        ("250µs", 250e-6),
        ("5min", 300),
        ("5m", 300),
        ("1h30m", 5400),
        ("1 h 30 m", 5400),
        (" 60s ", 60),
        ("1e3", 1000),
        ("-5s", -5),
        ("2d", 172800),
    ],
)
def test_seconds(text: str | float, value_s: float) -> None:
    assert vocabulary.seconds(text) == value_s


@pytest.mark.parametrize("text", ["", "-", "s", "5 parsecs", "5k", "1h30", "nan", "inf", "5s!", math.inf, math.nan])
def test_not_a_duration(text: str | float) -> None:
    with pytest.raises(ValueError, match="not a"):
        vocabulary.seconds(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("300", 300), (300, 300), (300.0, 300), ("2k", 2000), ("1.5M", 1_500_000), ("4Ki", 4096)],
        *[("4KiB", 4096), ("1e3", 1000), ("1_000", 1000), ("-2", -2), ("2G", 2 * 10**9)],
    ],
)
def test_count(text: str | float, value: int) -> None:
    assert vocabulary.count(text) == value


@pytest.mark.parametrize("text", ["", "2.5", 2.5, "2s", "k", "1e300", math.nan, math.inf, "two"])
def test_not_a_count(text: str | float) -> None:
    with pytest.raises(ValueError, match="not a"):
        vocabulary.count(text)


@pytest.mark.parametrize(
    ("value_s", "text"),
    [(60, "60s"), (0.5, "500ms"), (600, "10min"), (7200, "2h"), (90, "90s"), (0, "0s"), (1e-7, "100ns")],
)
def test_duration_written(value_s: float, text: str) -> None:
    assert vocabulary.duration_written(value_s) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_duration_reads_back_exactly(value_s: float) -> None:
    assert vocabulary.seconds(vocabulary.duration_written(value_s)) == value_s


@given(st.floats(0, 1))
def test_a_written_percentage_reads_back_exactly(share: float) -> None:
    assert vocabulary.percent(vocabulary.percent_written(share)) == share


@pytest.mark.parametrize("text", ["1", "%", "1k%", "one%"])
def test_not_a_percentage(text: str) -> None:
    with pytest.raises(ValueError, match="not a percentage"):
        vocabulary.percent(text)


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "∞"),
        (0, "0 s"),
        (850e-6, "850 µs"),
        (0.0123, "12.3 ms"),
        (0.99996, "1.00 s"),
        (1.24, "1.24 s"),
        (119.7, "2m 00s"),
        (179.7, "3m 00s"),
        (3725, "62m 05s"),
        (7199.9, "2h 00m"),
        (-185, "-3m 05s"),
    ],
)
def test_duration_text(value_s: float | None, text: str) -> None:
    assert vocabulary.duration_text(value_s) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(None, "-"), (1234567, "1,234,567"), (12.34, "12.3"), (1.234, "1.23"), (0.00123, "0.00123")],
        *[(0, "0"), (9.999, "10.0"), (99.99, "100"), (math.inf, "∞"), (-math.inf, "-∞")],
    ],
)
def test_number_text(value: float | None, text: str) -> None:
    assert vocabulary.number_text(value) == text


@pytest.mark.parametrize("text", ["1e400", "1e400k", "1e99999", "1e99999999999999999999"])
def test_a_number_too_large_to_keep_is_none(text: str) -> None:
    for read in (vocabulary.number, vocabulary.count, vocabulary.seconds):
        with pytest.raises(ValueError, match="not a"):
            read(text)
    with pytest.raises(ValueError, match="not a"):
        vocabulary.seconds(f"{text}s")
    with pytest.raises(ValueError, match="not a"):
        vocabulary.percent(f"{text}%")


@given(st.floats())
def test_every_number_can_be_shown(value: float) -> None:
    assert vocabulary.number_text(value)
    assert vocabulary.duration_text(value)


def test_measures_know_their_name_unit_and_direction() -> None:
    assert all(name == measure.name for name, measure in MEASURES.items())
    assert len({measure.title for measure in MEASURES.values()}) == len(MEASURES)
    assert MEASURES["ttft"].unit == "s" and MEASURES["ttft"].direction == "lower"
    assert MEASURES["goodput"].scalar and MEASURES["goodput"].direction == "higher"
    assert {measure.unit for measure in MEASURES.values()} <= {"s", "1/s", "tokens", "tokens/s", "share"} | {
        "requests",
        "turns",
    }


def test_importing_the_words_stays_light() -> None:
    heavy = (
        "import sys, inferometer.vocabulary, inferometer.errors; print({'pydantic', 'numpy', 'yaml'} & {*sys.modules})"
    )
    printed = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "set()"


def test_an_attribute_is_imported_by_its_place() -> None:
    assert attribute_at("inferometer.vocabulary:seconds") is seconds
    assert attribute_at("inferometer.vocabulary:MeasureName.name") is MeasureName.name  # type: ignore[misc]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("inferometer.vocabulary", "'inferometer.vocabulary' must be written module:attribute"),
        (":seconds", "':seconds' must be written module:attribute"),
        ("inferometer.nowhere:seconds", "No module named 'inferometer.nowhere'"),
        ("inferometer.vocabulary:nothing", "inferometer.vocabulary:nothing: module .* has no attribute 'nothing'"),
    ],
)
def test_a_place_without_an_attribute_says_so(place: str, text: str) -> None:
    with pytest.raises(ImportError, match=text):
        attribute_at(place)
