"""Numbers as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.show.numbers import count_text, interval_text, percent_text, spread_text, value_text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.412, "s", "412 ms"),
        (9.98, "1/s", "9.98/s"),
        (638.0, "tokens/s", "638 tokens/s"),
        (0.9825, "share", "98.2%"),
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
    [(0, "0%"), (1, "100%"), (0.5, "50%"), (0.99999, "99.999%"), (0.00002, "0.002%"), (0.027, "2.7%")],
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
    assert interval_text((None, 0.421), "s") == "-..421 ms"
    assert interval_text((None, None), "s") == ""


@given(st.integers(0, 10**9))
def test_counts_stay_short(count: int) -> None:
    assert len(count_text(count)) <= 7


@given(st.floats(1e-7, 1e5), st.floats(0, 10))
def test_a_spread_is_never_shown_as_nothing(value: float, half: float) -> None:
    text = spread_text(value, (value - half, value + half), "s")
    assert text.startswith("±")
    assert (text in ("±0", "±0 s")) == (value + half == value and value - half == value)
