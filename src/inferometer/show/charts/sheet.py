"""A contact sheet: several charts in one picture."""

import re
from collections.abc import Sequence

from inferometer.show.charts.chart import Chart
from inferometer.show.charts.rendering import render_svg, svg_as_png
from inferometer.show.charts.theme import INK, Theme

COLUMNS = 2
_OPENING = re.compile(r"<svg[^>]*?>", re.DOTALL)
_SIZE = re.compile(r'\b(width|height)="([0-9.]+)')
_IDS = re.compile(r'(id="|url\(#|href="#)')


def contact_sheet(charts: Sequence[Chart], theme: Theme = "light", columns: int = COLUMNS, scale: float = 1.5) -> bytes:
    """As PNG; each chart goes where the columns are shortest."""
    pictures = [render_svg(chart.spec, theme) for chart in charts]
    sizes = [size_of(picture) for picture in pictures]
    width = max(size[0] for size in sizes)
    bottoms = [0.0] * max(1, min(columns, len(charts)))
    placed = []
    for at, (picture, (_, height)) in enumerate(zip(pictures, sizes, strict=True)):
        column = bottoms.index(min(bottoms))
        placed.append(f'<g transform="translate({column * width},{bottoms[column]})">{_with_own_ids(picture, at)}</g>')
        bottoms[column] += height
    size = f'width="{width * len(bottoms):.0f}" height="{max(bottoms):.0f}"'
    ground = f'<rect width="100%" height="100%" fill="{INK[theme]["page"]}"/>'
    return svg_as_png(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{ground}{"".join(placed)}</svg>', scale)


def size_of(picture: str) -> tuple[float, float]:
    """Width and height in pixels, as its first element says them."""
    opening = _OPENING.search(picture)
    found = dict(_SIZE.findall(opening[0])) if opening else {}
    return float(found.get("width", 0)), float(found.get("height", 0))


def _with_own_ids(picture: str, at: int) -> str:
    """Clip paths of all charts have the same names."""
    return _IDS.sub(rf"\g<1>c{at}-", picture)
