"""Colours of charts, in light and in dark. The series are Okabe and Ito's, whom all kinds of eyes can tell apart;
those too pale for white or too dark for black are shifted in lightness, not in hue. The last four are for charts of
more lines than that: no two lines of a chart have one colour."""

from typing import Any, Literal

Theme = Literal["light", "dark"]

SERIES: dict[Theme, list[str]] = {
    "light": [
        *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07a00", "#3a9fd8", "#5b5b5b", "#7a4f9e"),
        *("#a3232f", "#5f7300", "#00474f", "#ff5c8a"),
    ],
    "dark": [
        *("#56a9e8", "#ff8d3c", "#2bc79a", "#e39ac4", "#e6b422", "#8fd0f7", "#b5b5b5", "#b893d8"),
        *("#f2707c", "#bccf45", "#5fd8e0", "#ff5c8a"),
    ],
}
INK: dict[Theme, dict[str, str]] = {
    "light": {"text": "#1c2128", "muted": "#57606a", "grid": "#e3e6ea", "page": "#ffffff"},
    "dark": {"text": "#e6e8eb", "muted": "#9aa4af", "grid": "#30363d", "page": "#14171a"},
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"

# By meaning, the same in all charts: names of the first six series colours.
BLUE, ORANGE, GREEN, PINK, AMBER, SKY, GREY = range(7)
WORDS = {"better": GREEN, "worse": ORANGE, "same": BLUE, "changed": PINK, "unclear": GREY}


def config(theme: Theme = "light") -> dict[str, Any]:
    """What Vega-Lite calls `config`: everything about looks, nothing about data."""
    ink, series = INK[theme], SERIES[theme]
    words = {"labelColor": ink["muted"], "titleColor": ink["text"]}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **words,
            "gridColor": ink["grid"],
            "domainColor": ink["grid"],
            "tickColor": ink["grid"],
            "titleFontWeight": 500,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titlePadding": 8,
        },
        "legend": {
            **words,
            "orient": "top",
            "title": None,
            "labelFontSize": 12,
            "labelLimit": 300,
            "symbolStrokeWidth": 3,
        },
        "title": {
            "color": ink["text"],
            "subtitleColor": ink["muted"],
            "anchor": "start",
            "frame": "group",
            "fontSize": 15,
            "subtitleFontSize": 12,
            "subtitlePadding": 4,
            "offset": 12,
        },
        "header": {"labelColor": ink["text"], "titleColor": ink["text"]},
        "range": {"category": series, "ramp": {"scheme": "viridis"}, "heatmap": {"scheme": "viridis"}},
        "mark": {"color": series[BLUE]},
        "rule": {"color": ink["muted"]},
        "text": {"color": ink["text"]},
        "line": {"strokeWidth": 2},
        "point": {"filled": True, "size": 36, "opacity": 1},
    }
