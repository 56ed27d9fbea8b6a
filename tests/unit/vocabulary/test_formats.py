"""Readable numbers: the same text for the same value in Python, pages and charts."""

import html
import json
import re
import shutil
import subprocess
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.show.charts.chart import number_in_vega, share_in_vega
from inferometer.show.charts.registry import render_svg
from inferometer.vocabulary import (
    change_interval_text,
    change_text,
    count_text,
    interval_text,
    number_text,
    percent_text,
    size_text,
    spread_text,
    value_text,
)
from written_numbers import IN_PAGES, UNITS, values, written


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.412, "s", "412 ms"),
        (9.98, "1/s", "9.98 req/s"),
        (9.98, "/s", "9.98/s"),
        (638.0, "tokens/s", "638 tok/s"),
        (0.9825, "share", "98.3%"),
        (256.0, "tokens", "256"),
        (None, "s", "-"),
        (None, "1/s", "-"),
        (None, "share", "-"),
    ],
)
def test_value_in_its_unit(value: float | None, unit: str, text: str) -> None:
    assert value_text(value, unit) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (1, "100%"), (0.5, "50%"), (0.99999, "99.999%"), (0.00002, "0.002%"), (0.027, "2.7%"), (0.07, "7%")],
)
def test_a_share_is_never_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert percent_text(share) == text


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (0.412, (0.403, 0.421), "±9.0"),  # milliseconds, as the value
        (0.412, (0.411, 0.452), "±40"),  # the farther end
        (0.010, (0.0099999, 0.010001), "±0.01"),  # rounded up, not away
        (12.0, (11.0, 14.5), "±2.5"),
        (211.0, (180.0, 400.0), "+3m 09s −31 s"),
        (0.0051, (0.005, 0.044), "+39 −0.10"),  # one sign would mislead
        (0.412, (None, 0.5), ""),
        (0.412, None, ""),
        (None, (0.1, 0.2), ""),
    ],
)
def test_spread_in_the_unit_of_the_value(
    value: float | None, interval: tuple[float | None, float | None] | None, text: str
) -> None:
    assert spread_text(value, interval, "s") == text


def test_intervals_name_their_unit_once() -> None:
    assert interval_text((0.403, 0.421), "s") == "403..421 ms"
    assert interval_text((0.9, 1.2), "s") == "900 ms..1.20 s"
    assert interval_text((130.0, 190.0), "s") == "2m 10s..3m 10s"
    assert interval_text((None, 0.421), "s") == "≤421 ms" and interval_text((0.403, None), "s") == "≥403 ms"
    assert interval_text((None, None), "s") == ""


@given(st.integers(0, 10**9))
def test_counts_stay_short(count: int) -> None:
    assert len(count_text(count)) <= 7


@given(st.floats(1e-7, 1e5), st.floats(0, 10))
def test_a_spread_is_never_shown_as_nothing(value: float, half: float) -> None:
    text = spread_text(value, (value - half, value + half), "s")
    assert text.startswith("±")
    assert (text in ("±0", "±0 s")) == (value + half == value and value - half == value)


@pytest.mark.parametrize(
    ("change", "relative", "unit", "text"),
    [
        (0.049, True, "s", "+4.9%"),
        (-0.25, True, "s", "−25.0%"),
        (0.0043, True, "s", "+0.43%"),
        (1.16, True, "s", "+116%"),
        (11.4, True, "s", "×12.4"),
        (0.012, False, "share", "+1.2 pt"),
        (0.0, False, "share", "±0 pt"),
        (0.005, False, "s", "+5 ms"),
        (None, True, "s", "-"),
    ],
)
def test_a_change(change: float | None, relative: bool, unit: str, text: str) -> None:
    assert change_text(change, relative, unit) == text


def test_the_interval_of_a_change_names_its_unit_once() -> None:
    assert change_interval_text((-0.024, 0.308), True, "s") == "−2.4..+30.8%"
    assert change_interval_text((-0.012, 0.049), False, "share") == "−1.2..+4.9 pt"
    assert change_interval_text((0.0, 0.0), True, "s") == change_interval_text(None, True, "s") == "-"


def test_a_size_in_the_units_of_memory() -> None:
    sizes = [size_text(size) for size in (0, 512, 2048, 14.5 * 2**30, None)]
    assert sizes == ["0 B", "512 B", "2 KiB", "14.5 GiB", "-"]


def test_halves_are_rounded_away_from_zero_as_browsers_do() -> None:
    assert [number_text(value) for value in (12.25, -12.25, 100.5, 1.125)] == ["12.3", "-12.3", "101", "1.13"]


@pytest.mark.skipif(shutil.which("node") is None, reason="no node; tests/browser compares them in Chromium")
def test_pages_write_numbers_as_python_does() -> None:
    script = files("inferometer.show.dashboard").joinpath("web", "formats.js").read_text(encoding="utf-8")
    shown = json.loads(_by_node(f"{script}\nconst asked = {json.dumps([values(), UNITS])};", f"({IN_PAGES})(...asked)"))
    assert shown == [written(value) for value in values()]


def _by_node(script: str, expression: str) -> str:
    whole = f"{script}\nconsole.log(JSON.stringify({expression}));"
    return subprocess.run(["node", "-"], input=whole, capture_output=True, text=True, check=True, timeout=60).stdout


def test_charts_write_numbers_as_python_does() -> None:
    pytest.importorskip("vl_convert")
    shown = _by_vega(values(), number_in_vega("datum.value"))
    assert shown == [number_text(value) for value in values()]
    shares = [value for value in values() if 0 <= value <= 1]
    assert _by_vega(shares, share_in_vega("datum.value")) == [percent_text(share) for share in shares]


def _by_vega(numbers: list[float], expression: str) -> list[str]:
    """Every number as a line of a drawing."""
    spec = {
        "data": {"values": [{"at": at, "value": number} for at, number in enumerate(numbers)]},
        "mark": "text",
        "encoding": {
            "y": {"field": "at", "type": "quantitative"},
            "text": {"value": {"expr": f"'<' + {expression} + '>'"}},
        },
    }
    return [html.unescape(text) for text in re.findall(r"&lt;(.*?)&gt;", render_svg(spec))]
