"""A comparison as dots with whiskers: how much each measure changed, and how sure that is."""

from typing import Any

from inferometer.judge.compare import Comparison
from inferometer.judge.effect import Change
from inferometer.judge.wording import change_text
from inferometer.show.charts.chart import WORDS, Cannot, Spec, meanings, tip, titled, view, x

_LINE = 26


def comparison(found: Comparison) -> Spec:
    """Measures of which less is better and of which more is: the colour tells, not the side."""
    rows = [_row(change) for change in found.changes]
    if not rows:
        raise Cannot("there is no measure that both sides know")
    across = x("change", "change (%)", axis={"format": "+,.2~f"})
    rank = {"field": "measure", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 240}}
    colour = meanings("word", WORDS, {row["word"] for row in rows})
    tips = [
        tip("measure", "measure", "nominal"),
        tip("told", "change", "nominal"),
        tip("interval", "interval", "nominal"),
        tip("word", "so it is", "nominal"),
    ]
    whiskers = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.55},
        "encoding": {"x": x("low", "change (%)"), "x2": {"field": "high"}, "y": rank, "color": colour},
    }
    layers: list[Spec] = [
        {
            "data": {"values": [{"zero": 0}]},
            "mark": {"type": "rule"},
            "encoding": {"x": {"field": "zero", "type": "quantitative"}},
        },
        *([whiskers] if any(row["low"] is not None for row in rows) else []),
        {"mark": {"type": "point", "size": 90}, "encoding": {"x": across, "y": rank, "color": colour, "tooltip": tips}},
    ]
    noise = any(change.within_only for change in found.changes)
    said = (
        "whiskers tell of the noise within the runs only"
        if noise
        else f"whiskers are {1 - found.alpha:.0%} intervals, corrected for all measures together"
    )
    return view(titled("What changed, with its interval", said), rows, layers, height=_LINE * len(rows) + 20)


def _row(change: Change) -> dict[str, Any]:
    """In percent; of a share, which is a percentage itself, in points."""
    by = 100 * change.change
    low, high = (None, None) if change.interval is None else (100 * end for end in change.interval)
    ends = (
        "not known"
        if change.interval is None
        else " to ".join(change_text(end, change.relative, change.unit) for end in change.interval)
    )
    return {
        "measure": change.title if change.relative else f"{change.title} (points)",
        "change": by,
        "low": low,
        "high": high,
        "word": change.word,
        "told": change_text(change.change, change.relative, change.unit),
        "interval": ends,
    }
