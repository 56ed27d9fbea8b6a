"""A comparison as dots with whiskers: how much each measure changed, and how sure that is."""

from typing import Any

from inferometer.judge.compare import Comparison
from inferometer.judge.effect import Change
from inferometer.show.charts.chart import GREY, STATUS_COLOURS, Cannot, Spec, meanings, tip, titled, tooltip, view, x
from inferometer.show.comparison_view import NOT_DECIDED, ChangeRow, comparison_rows
from inferometer.vocabulary import percent_text

_LINE = 26


def comparison(comparison: Comparison) -> Spec:
    """Measures of which less is better and of which more is: the colour tells, not the side."""
    rows = [_row(change, text) for change, text in zip(comparison.changes, comparison_rows(comparison), strict=True)]
    if not rows:
        raise Cannot("the two sides have no measure in common")
    across = x("change", "change (%)", axis={"format": "+,.2~f"})
    rank = {"field": "measure", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 240}}
    colour = meanings(
        "status", {NOT_DECIDED: GREY} if comparison.refused else STATUS_COLOURS, {row["status"] for row in rows}
    )
    tips = [
        tip("measure", "measure", "nominal"),
        tip("label", "change", "nominal"),
        tip("interval", "interval", "nominal"),
        tip("status", "result", "nominal"),
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
        {
            "mark": {"type": "point", "size": 90},
            "encoding": {"x": across, "y": rank, "color": colour, "tooltip": tooltip(*tips)},
        },
    ]
    noise = any(change.within_only for change in comparison.changes)
    subtitle = (
        "whiskers show noise within the runs only"
        if noise
        else f"whiskers are {percent_text(1 - comparison.alpha)} confidence intervals, corrected for all measures"
    )
    title = "Not decided: the sides cannot be compared" if comparison.refused else "Changes with confidence intervals"
    return view(titled(title, subtitle), rows, layers, height=_LINE * len(rows) + 20)


def _row(change: Change, texts: ChangeRow) -> dict[str, Any]:
    """In percent; of a share, which is a percentage itself, in points."""
    low, high = (None, None) if change.interval is None else (100 * end for end in change.interval)
    return {
        "measure": change.title if change.relative else f"{change.title} (points)",
        "change": 100 * change.change,
        "low": low,
        "high": high,
        "status": texts.status,
        "label": texts.change,
        "interval": texts.interval,
    }
