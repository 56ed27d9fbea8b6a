"""What was sampled beside the load, under the load's own clock: the server's queue and cache, GPUs, the host."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from inferometer.measure.telemetry import GPU, HOST
from inferometer.record.columns import Floats, Ints
from inferometer.show.charts.chart import Cannot, Spec
from inferometer.show.charts.spec import WIDTH, colours, scale_of, tip, titled, with_unit, x, y
from inferometer.show.charts.subject import Subject
from inferometer.show.charts.thinning import thinned
from inferometer.show.charts.timelines import flight_of, output_per_second
from inferometer.vocabulary import NANOSECONDS

MOST_SERIES = 8  # of a panel
MOST_POINTS = 2000
PANEL = 84


class Line(NamedTuple):
    name: str
    at: Ints
    values: Floats


class Panel(NamedTuple):
    title: str
    unit: str
    lines: list[Line]


# Title, unit, and the samples that are shown together under which word.
_SERVER: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Server: requests", "requests", {"running": "running", "queued": "queued"}),
    ("Server: KV cache in use", "share", {"kv_usage": "KV cache"}),
)
_GPUS: tuple[tuple[str, str, str], ...] = (
    ("GPU: busy", "share", "utilization_share"),
    ("GPU: memory in use", "bytes", "memory_used_bytes"),
    ("GPU: power", "W", "power_w"),
    ("GPU: temperature", "°C", "temperature_c"),
)
_HOST = {"cpu_share": "cores busy", "steal_share": "taken by the hypervisor"}


def under_one_clock(subject: Subject) -> Spec:
    """Panels above one another that share their time axis; the load's own come first."""
    sampled = [panel for panel in _sampled(subject) if panel.lines]
    if not sampled:
        raise Cannot("nothing of the server, the GPUs or the host was sampled")
    panels = [*_load(subject), *sampled]
    start_at, end_at = _span(subject, panels)
    pixels = MOST_POINTS // (2 * sum(len(panel.lines) for panel in panels))
    views = [_view(panel, start_at, end_at, pixels, panel is panels[-1]) for panel in panels]
    title = titled("Load, server and GPU under the same clock", "one time axis for what we saw and what was sampled")
    return {"title": title, "vconcat": views, "spacing": 14, "resolve": {"scale": {"color": "independent"}}}


def _load(subject: Subject) -> Iterator[Panel]:
    try:
        series, edges = flight_of(subject)
    except Cannot:
        return
    middles = (edges[:-1] + edges[1:]) // 2
    yield Panel("Requests", "requests", [Line(name, middles, values) for name, values in series.items()])
    records = subject.answers.records
    if records.read_offsets[-1]:
        output = output_per_second(records, edges)
        yield Panel("Output tokens per second", "", [Line("output tokens", middles, output)])


def _sampled(subject: Subject) -> Iterator[Panel]:
    sources = [word for word in subject.samples.source.words if word in subject.samples.source.counts()]
    servers = [word for word in sources if word.startswith(("http://", "https://"))]
    gpus = sorted(word for word in sources if word.startswith(GPU))
    for title, unit, names in _SERVER:
        pairs = [(source, name, word) for name, word in names.items() for source in servers]
        several = len(servers) > 1
        yield _panel(subject, title, unit, [(s, n, f"{w}, {_host(s)}" if several else w) for s, n, w in pairs])
    for title, unit, name in _GPUS:
        yield _panel(subject, title, unit, [(source, name, source.replace(GPU, "GPU ")) for source in gpus])
    yield _panel(subject, "This machine", "share", [(HOST, name, word) for name, word in _HOST.items()])


def _panel(subject: Subject, title: str, unit: str, asked: list[tuple[str, str, str]]) -> Panel:
    found = [Line(word, *_summed(*subject.samples.series(name, source))) for source, name, word in asked]
    lines = [line for line in found if len(line.at) > 1]
    more = f" (the first {MOST_SERIES} of {len(lines)})" if len(lines) > MOST_SERIES else ""
    return Panel(title + more, unit, lines[:MOST_SERIES])


def _summed(at: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Several engines behind one endpoint are read at one instant: their sum."""
    instants, place = np.unique(at, return_inverse=True)
    sums = np.zeros(len(instants))
    np.add.at(sums, place, values)
    return instants, sums


def _host(source: str) -> str:
    return source.split("//", 1)[1].split("/", 1)[0]


def _span(subject: Subject, panels: list[Panel]) -> tuple[int, int]:
    try:
        return subject.start_at, subject.end_at
    except Cannot:
        ends = [(int(line.at[0]), int(line.at[-1])) for panel in panels for line in panel.lines]
        return min(start for start, _ in ends), max(end for _, end in ends)


def _view(panel: Panel, start_at: int, end_at: int, pixels: int, last: bool) -> Spec:
    scale = scale_of(panel.unit, [float(line.values.max()) for line in panel.lines])
    rows = [row for line in panel.lines for row in _rows(line, start_at, pixels, scale.factor)]
    axis = x(
        "at",
        "time since the start (s)" if last else "",
        scale={"domain": [0, (end_at - start_at) / NANOSECONDS], "nice": False},
        axis={} if last else {"labels": False, "title": None},
    )
    names = [line.name for line in panel.lines]
    colour = colours("series", names) | ({} if len(names) > 1 else {"legend": None})
    return {
        "title": {"text": with_unit(panel.title, scale.unit), "fontSize": 12, "offset": 4},
        "width": WIDTH,
        "height": PANEL,
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 1.5, "clip": True},
        "encoding": {
            "x": axis,
            "y": y("value", "", axis={"title": None, "tickCount": 3, "minExtent": 44}),
            "color": colour,
            "tooltip": [tip("at", "time (s)"), tip("series", "series", "nominal"), tip("value", panel.title)],
        },
    }


def _rows(line: Line, start_at: int, pixels: int, factor: float) -> list[dict[str, Any]]:
    at, values = thinned(line.at, line.values, max(pixels, 20))
    return [
        {"at": (moment - start_at) / NANOSECONDS, "series": line.name, "value": value * factor}
        for moment, value in zip(at.tolist(), values.tolist(), strict=True)
    ]
