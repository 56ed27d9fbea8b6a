"""The words of Vega-Lite that our charts share: views, axes with units, lines, rules."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from inferometer.show.charts.chart import Spec

WIDTH, HEIGHT = 640, 240
LETTER, SYMBOL, LABEL_LIMIT = 6.6, 30, 300  # pixels of a legend: a letter, what is beside a name, the longest name
MOST = 2000  # rows of data in a chart


class Scale(NamedTuple):
    """How a unit of data is shown to people: seconds below one as milliseconds, shares as percent."""

    factor: float
    unit: str

    def shown(self, value: float | None) -> float | None:
        return None if value is None or value != value else float(value) * self.factor


def scale_of(unit: str, values: Iterable[float | None]) -> Scale:
    """Chosen for the largest value, so that an axis has one unit."""
    largest = max((abs(value) for value in values if value is not None and value == value), default=0.0)
    match unit:
        case "s":
            return Scale(1e6, "µs") if largest < 1e-3 else Scale(1e3, "ms") if largest < 1 else Scale(1.0, "s")
        case "share":
            return Scale(100.0, "%")
        case "bytes":
            return Scale(2.0**-30, "GiB") if largest >= 2**29 else Scale(2.0**-20, "MiB")
        case "1/s":
            return Scale(1.0, "1/s")
    return Scale(1.0, unit)


def titled(text: str, subtitle: str = "") -> dict[str, Any]:
    return {"text": text, "subtitle": subtitle} if subtitle else {"text": text}


def view(
    title: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], layers: Sequence[Spec], *, height: int = HEIGHT
) -> Spec:
    """Layers over the same data; a layer may bring data of its own."""
    return {
        "title": dict(title),
        "width": WIDTH,
        "height": height,
        "data": {"values": list(rows)},
        "layer": list(layers),
    }


def x(field: str, title: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, **more}


y = x  # an axis is an axis


def with_unit(title: str, unit: str) -> str:
    """Unless the title says it already: `Server: requests`, `Output tokens per second`."""
    said = title.lower()
    known = unit in said.split() or (unit == "tokens/s" and "tokens per second" in said)
    return title if known or not unit else f"{title} ({unit})"


def colours(field: str, names: Sequence[str]) -> Spec:
    """The theme's colours in the order of the names."""
    legend = {"columns": legend_columns(names)}
    return {"field": field, "type": "nominal", "title": None, "scale": {"domain": list(names)}, "legend": legend}


def legend_columns(names: Iterable[str]) -> int:
    """As many as fit beside each other at our width: a row that is too long would be cut off. A page that is narrower
    counts again."""
    widest = min(max((len(name) for name in names), default=1) * LETTER, LABEL_LIMIT)
    return max(1, int(WIDTH // (widest + SYMBOL)))


def meanings(field: str, place_of: Mapping[str, int], present: Iterable[str]) -> Spec:
    """Words that have the same colour in every chart: a place in the theme's range, so that it follows light and
    dark. Places between them are filled with names that nothing has."""
    domain = [f"no {place}" for place in range(max(place_of.values()) + 1)]
    for word, place in place_of.items():
        domain[place] = word
    shown = [word for word in place_of if word in set(present)]
    return {**colours(field, domain), "legend": {"values": shown, "columns": legend_columns(shown)}}


def toggled(field: str, name: str = "chosen") -> tuple[list[Spec], Spec]:
    """A click on the legend shows one series and fades the others: parameters of a layer, and its opacity."""
    params = [{"name": name, "select": {"type": "point", "fields": [field]}, "bind": "legend"}]
    return params, {"condition": {"param": name, "value": 1}, "value": 0.12}


def rules(field: str, rows: Sequence[Mapping[str, Any]], label: str | None = None) -> list[Spec]:
    """Upright lines at places, with a word beside each; on its left where the row says `left`."""
    data = {"values": list(rows)}
    lines: list[Spec] = [
        {
            "data": data,
            "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1},
            "encoding": {"x": {"field": field, "type": "quantitative"}},
        }
    ]
    if label is not None:
        lines += [
            _words(field, label, [row for row in rows if bool(row.get("left")) == left], left) for left in (False, True)
        ]
    return [line for line in lines if line["data"]["values"]]


def _words(field: str, label: str, rows: Sequence[Mapping[str, Any]], left: bool) -> Spec:
    """Above the plot, where nothing covers them: right of their lines, or left near the end of the axis."""
    side = {"align": "right", "dx": 2} if left else {"align": "left", "dx": -2}
    return {
        "data": {"values": list(rows)},
        "mark": {"type": "text", "baseline": "bottom", "fontSize": 11, **side},
        "encoding": {"x": {"field": field, "type": "quantitative"}, "y": {"value": -3}, "text": {"field": label}},
    }


def tip(field: str, title: str, kind: str = "quantitative", format_: str | None = ".4~g") -> Spec:
    """A line of a tooltip."""
    told: Spec = {"field": field, "type": kind, "title": title}
    return told | {"format": format_} if kind == "quantitative" and format_ else told
