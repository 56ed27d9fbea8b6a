"""The frame of every page: style, light and dark, charts that draw themselves. Self-contained, and safe for whatever
names and labels contain: text is escaped by the template, data inside of scripts here."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from inferometer.record.sanitize import harmless, json_text
from inferometer.show.charts.chart import Chart, config
from inferometer.show.charts.registry import embeddable, vega_bundle

LARGE = 300  # pixels of height

# Nothing is loaded from anywhere and nothing is sent; Vega interprets its expressions, so that no eval is needed.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)


def page(title: str, body: str, scripts: Sequence[str] = (), policy: str = POLICY) -> str:
    """A whole document. `body` is HTML of templates that escape; `scripts` are JavaScript and stand at its end."""
    return (
        templates()
        .get_template("page.html")
        .render(
            title=harmless(title),
            body=Markup(harmless(body)),
            policy=policy,
            style=Markup(asset("style.css")),
            theme=Markup(asset("theme.js")),
            scripts=[Markup(script) for script in scripts],
        )
    )


def chart_scripts() -> list[str]:
    """What a page with figures needs at its end: Vega and ours."""
    return [vega_bundle(), asset("charts.js")]


def chart_themes() -> Markup:
    """The colours that the script draws in; once in a page with figures."""
    return json_script({theme: config(theme) for theme in ("light", "dark")}, id_="chart-themes")


def figure(chart: Chart, wide: bool = False) -> Markup:
    """A chart as an element of a page: it is drawn when it is seen."""
    return Markup(
        templates()
        .get_template("figure.html")
        .render(chart=chart, wide=wide or _is_large(chart), spec=json_script(compact(chart.spec)))
    )


def _is_large(chart: Chart) -> bool:
    """Several panels, or many lanes: needs the full width."""
    return "vconcat" in chart.spec or chart.spec.get("height", 0) > LARGE


def json_script(content: object, id_: str | None = None) -> Markup:
    """Data for scripts. `<`, `>` and `&` are written as escapes, so that no text in it can end the element."""
    text = json_text(content, orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    name = Markup(' id="{}"').format(id_) if id_ else ""
    return Markup('<script type="application/json"{}>{}</script>').format(name, Markup(text))


def compact(value: Any) -> Any:
    """Numbers with five significant digits: more cannot be seen in a chart, and would be most of the page."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: compact(child) for name, child in value.items()}
    if isinstance(value, list):
        return [compact(child) for child in value]
    return value


@cache
def asset(name: str) -> str:
    """A file next to this one."""
    text = files("inferometer.show.report").joinpath(name).read_text(encoding="utf-8")
    return embeddable(text) if name.endswith(".js") else text


@cache
def templates() -> Environment:
    return Environment(
        loader=PackageLoader("inferometer.show.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
