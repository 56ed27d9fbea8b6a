"""Specifications as pictures, one or several on a sheet, and as scripts of a page: all from the installed package vl-
convert, without a browser and without the network."""

import copy
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from inferometer.errors import MissingExtra
from inferometer.record.files import write_text
from inferometer.show.charts.chart import INK, Chart, Spec, Theme, config
from inferometer.workload.cache import cached_path

# -- rendering -------------------------------------------------------------------------------------------------------

VEGA_LITE = "6.4"
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name: nothing is fetched from there
PIXELS = 2.0  # of the picture for one of the chart: sharp on today's screens


def render_png(spec: Spec, theme: Theme = "light", scale: float = PIXELS) -> bytes:
    made: bytes = _converter().vegalite_to_png(_dressed(spec, theme), vl_version=VEGA_LITE, scale=scale)
    return made


def render_svg(spec: Spec, theme: Theme = "light") -> str:
    made: str = _converter().vegalite_to_svg(_dressed(spec, theme), vl_version=VEGA_LITE)
    return made


def svg_as_png(picture: str, scale: float = PIXELS) -> bytes:
    made: bytes = _converter().svg_to_png(picture, scale=scale)
    return made


def _dressed(spec: Spec, theme: Theme) -> Spec:
    """With the theme's colours; a picture has a background, as nobody knows where it will be pasted."""
    looks = config(theme) | {"background": INK[theme]["page"], "padding": 12}
    return {"$schema": SCHEMA, **copy.deepcopy(spec), "config": looks}


def vega_bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script that puts `vegaEmbed` on the window. Making it takes seconds, so it
    is kept in the cache folder, once for each version."""
    converter = _converter()
    versions = (converter.__version__, VEGA_LITE)
    kept = cached_path("charts", "vega.js", *versions)
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    bundle = embeddable(converter.javascript_bundle(vl_version=VEGA_LITE))
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, bundle)
    except Exception:  # a cache that cannot be written costs seconds, not the page
        return bundle
    return bundle


def embeddable(script: str) -> str:
    """A script that may stand inside of a page: nothing in it ends or opens a script element."""
    return script.replace("</script", "<\\/script").replace("<script", "\\x3cscript").replace("<!--", "\\x3c!--")


def has_charts() -> bool:
    """Whether the extra is installed."""
    try:
        _converter()
    except MissingExtra:
        return False
    return True


def _converter() -> Any:
    try:
        return import_module("vl_convert")
    except ImportError:
        raise MissingExtra("a chart", "charts") from None


# -- sheet -----------------------------------------------------------------------------------------------------------

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
    size = dict(_SIZE.findall(opening[0])) if opening else {}
    return float(size.get("width", 0)), float(size.get("height", 0))


def _with_own_ids(picture: str, at: int) -> str:
    """Clip paths of all charts have the same names."""
    return _IDS.sub(rf"\g<1>c{at}-", picture)
