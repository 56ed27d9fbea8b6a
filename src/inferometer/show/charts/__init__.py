"""Charts: one definition each, for page and picture alike. Data comes in as runs, records and results, and is
aggregated before it enters a chart."""

from inferometer.show.charts.chart import Absent, Cannot, Chart, Spec
from inferometer.show.charts.registry import (
    CHARTS,
    charts_of,
    charts_of_runs,
    draw,
    gallery,
    has_charts,
    render_png,
    render_svg,
    vega_bundle,
)

__all__ = [
    "CHARTS",
    "Absent",
    "Cannot",
    "Chart",
    "Spec",
    "charts_of",
    "charts_of_runs",
    "draw",
    "gallery",
    "has_charts",
    "render_png",
    "render_svg",
    "vega_bundle",
]
