"""Changes in words, for sentences that go to a terminal, a CI summary or a chat."""

from datetime import datetime

from inferometer.judge.judgement import Change
from inferometer.vocabulary import duration_text, number_text

_UNITS = {"1/s": "/s", "tokens/s": " tokens/s", "": "", "share": "%", "tokens": " tokens"}


def amount_text(value: float, unit: str) -> str:
    """`412 ms`, `638 tokens/s`, `1.2%`."""
    if unit == "s":
        return duration_text(value)
    shown = number_text(100 * value if unit == "share" else value)
    return f"{shown}{_UNITS.get(unit, f' {unit}')}"


def change_text(change: float, relative: bool, unit: str) -> str:
    """`+4.9%`; of a share in points, `+1.2 pt`; of what was 0 in its unit."""
    sign = "+" if change > 0 else "−" if change < 0 else "±"
    if relative and change > 9.995:
        return f"×{number_text(1 + change)}"
    if relative:
        return f"{sign}{_percent(abs(change))}%"
    if unit == "share":
        return f"{sign}{_percent(abs(change))} pt"
    return f"{sign}{amount_text(abs(change), unit)}"


def _percent(share: float) -> str:
    percent = 100 * share
    return (
        f"{percent:.0f}"
        if percent >= 99.5 or percent == 0
        else f"{percent:.1f}"
        if percent >= 0.95
        else f"{percent:.2f}"
    )


def is_text(change: Change) -> str:
    """`TTFT p99 is 12.3% worse (412 ms to 463 ms)`."""
    span = f"{amount_text(change.before, change.unit)} to {amount_text(change.after, change.unit)}"
    size = change_text(abs(change.change), change.relative, change.unit).lstrip("+−±")
    word = change.word if change.word in ("better", "worse") else "more" if change.change > 0 else "less"
    return f"{change.title} is {size} {word} ({span})"


def day_of(started: str) -> str:
    try:
        return f"{datetime.fromisoformat(started):%Y-%m-%d}"
    except ValueError:
        return "an unknown day"
