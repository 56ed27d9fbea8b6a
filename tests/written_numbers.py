"""A table of values and how they are written: what Python writes, pages and charts have to write too."""

import random

from inferometer.vocabulary import change_text, interval_text, value_text

UNITS = ("s", "share", "bytes", "bytes/s", "1/s", "/s", "tokens/s", "tokens", "count", "", "W", "$")
_EDGES = (
    *(0, 1, -1, 0.5, 2.5, -2.5, 12.25, 12.35, 100.5, 101.5, 1.125, 1.135, 0.03125),  # halves, and what looks like one
    *(0.09996, 9.995, 99.949, 99.95, 0.99949, 0.9995, 1e-6, 9.9996e-7, 1.5e-7, 1e-5),  # where the digits change
    *(0.07, 0.9825, 0.99999, 0.9995, 0.00002, 0.999),  # shares
    *(59.9, 119.4, 119.5, 185, 3725, 7199.4, 7199.5, 90061),  # seconds
    *(1023, 1024, 123456789, 2**33, 1e15),
)


def values() -> list[float]:
    draw = random.Random(16)
    drawn = [draw.choice((-1, 1)) * 10 ** draw.uniform(-8, 8) for _ in range(500)]
    return [*_EDGES, *drawn, *(draw.randint(-8000, 80000) / draw.choice((4, 8, 40, 200)) for _ in range(500))]


def written(value: float) -> list[str]:
    """As Python writes it: in every unit, as a change, and as an interval."""
    changes = [change_text(value), change_text(value, False, "share"), change_text(value, False, "s")]
    intervals = [interval_text((value, 1.1 * value), unit) for unit in ("s", "1/s", "share")]
    return [*(value_text(value, unit) for unit in UNITS), *changes, *intervals]


# The same in JavaScript: a function of the values.
IN_PAGES = """(values, units) => {
  const text = globalThis.inferometer.text;
  return values.map(value => units.map(unit => text.value(value, unit)).concat(
    [text.change(value, true), text.change(value, false, "share"), text.change(value, false, "s")],
    ["s", "1/s", "share"].map(unit => text.interval(value, 1.1 * value, unit))));
}"""
