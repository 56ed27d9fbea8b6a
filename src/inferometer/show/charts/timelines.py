"""The course of a run: tokens, requests in flight, latency of each second, and samples on the same time axis."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypedDict

import numpy as np

from inferometer.measure.registry import request_values
from inferometer.measure.telemetry import GPU, HOST
from inferometer.measure.window import InFlight
from inferometer.record.columns import Floats, Ints, Records, known
from inferometer.show.charts.chart import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    WIDTH,
    Cannot,
    ChartedRun,
    ChartRow,
    Spec,
    Tip,
    colours,
    meanings,
    rules,
    scale_of,
    tip,
    titled,
    toggled,
    tooltip,
    view,
    with_unit,
    x,
    y,
)
from inferometer.show.charts.distributions import thinned
from inferometer.vocabulary import MEASURES, NANOSECONDS, duration_text

# -- timelines -------------------------------------------------------------------------------------------------------

PIECES = 300


def tokens_over_time(subject: ChartedRun) -> Spec:
    """Output tokens as they arrived; a prompt counts when its first token arrives."""
    records, edges = subject.answers.records, subject.edges(PIECES)
    if not records.read_offsets[-1]:
        raise Cannot("no read carried a token: the answers were not streamed")
    series = {"output": output_per_second(records, edges)}
    first, prompt = subject.answers.first_at, records.input_tokens
    both = known(first) & known(prompt)
    if both.any():
        series["input"] = per_second(first[both], prompt[both], edges)
    title = titled("Tokens per second over time", f"means of {piece_text(edges)}")
    return over_time(subject, title, series, edges, "tokens per second")


def in_flight(subject: ChartedRun) -> Spec:
    series, edges = flight_of(subject)
    title = titled("Requests in flight and waiting over time", f"means of {piece_text(edges)}")
    return over_time(subject, title, series, edges, "requests")


def flight_of(subject: ChartedRun) -> tuple[dict[str, Floats], Ints]:
    """In flight: sent and not over. Waiting: due and not yet sent."""
    records, edges = subject.answers.records, subject.edges(PIECES)
    waiting = InFlight.of(records.scheduled_at, np.where(known(records.sent_at), records.sent_at, records.ended_at))
    flight = InFlight.of(records.sent_at, records.ended_at)
    return {"in flight": flight.mean(edges), "waiting to be sent": waiting.mean(edges)}, edges


def output_per_second(records: Records, edges: Ints) -> Floats:
    batches = records.read_batches(None, ("read_at", "read_tokens"))
    return _per_second(((reads.at, reads.tokens) for reads in batches), edges)


def per_second(at: Ints, amounts: Ints, edges: Ints) -> Floats:
    return _per_second([(at, amounts)], edges)


def _per_second(pieces: Iterable[tuple[Ints, Ints]], edges: Ints) -> Floats:
    sums = np.zeros(len(edges) - 1)
    for at, amounts in pieces:
        sums += np.histogram(at, edges, weights=amounts.astype(np.float64))[0]
    return sums / (np.diff(edges) / NANOSECONDS)


def piece_text(edges: Ints) -> str:
    length = float(edges[1] - edges[0]) / NANOSECONDS
    return f"{duration_text(length)} each"


def over_time(subject: ChartedRun, title: Spec, series: dict[str, Floats], edges: Ints, axis: str) -> Spec:
    """Lines on the run's time axis, with the measured window marked."""
    middles = subject.seconds((edges[:-1] + edges[1:]) // 2)
    rows = [
        {"at": at, "series": name, "value": value}
        for name, values in series.items()
        for at, value in zip(middles.tolist(), values.tolist(), strict=True)
    ]
    params, opacity = toggled("series")
    line = {
        "params": params,
        "mark": {"type": "line"},
        "encoding": {
            "x": x("at", "time since the start (s)", scale={"nice": False}),
            "y": y("value", axis),
            "color": colours("series", [*series]),
            "opacity": opacity,
            "tooltip": tooltip(tip("at", "time (s)"), tip("series", "series", "nominal"), tip("value", axis)),
        },
    }
    return view(title, rows, [line, *window_marks(subject)])


class WindowMark(TypedDict):
    """An edge of the window: its instant, its label and the side of the line, its share of the run."""

    at: float
    label: str
    share: float
    left: bool


def window_marks(subject: ChartedRun) -> list[Spec]:
    """Marks at the start and end of the measured window, unless it is the whole run."""
    window, whole = subject.window, max(1, subject.end_at - subject.start_at)
    places = [("window begins", window.start_at), ("window ends", window.end_at)]
    inner: list[WindowMark] = [
        {
            "at": float(subject.seconds(np.array([at]))[0]),
            "label": label,
            "share": (at - subject.start_at) / whole,
            "left": False,
        }
        for label, at in places
        if 0.01 * whole < at - subject.start_at < 0.99 * whole
    ]
    return rules("at", _shifted_labels(inner), "label") if inner else []


BOTH_LABELS = 0.55  # share of the narrowest plot, on a phone, that the two labels need next to each other


def _shifted_labels(marks: Sequence[WindowMark]) -> list[WindowMark]:
    """Labels inside the window. A window too short for both labels has one, on the side with room."""
    if len(marks) == 1:
        return [{**marks[0], "left": marks[0]["share"] > 0.5}]
    begins, ends = marks
    if ends["share"] - begins["share"] >= BOTH_LABELS:
        return [{**begins, "left": False}, {**ends, "left": True}]
    named, other = (begins, ends) if begins["share"] < 0.5 else (ends, begins)
    return [{**named, "label": "measured window", "left": named is ends}, {**other, "label": "", "left": False}]


# -- series ----------------------------------------------------------------------------------------------------------

MOST_SERIES = 8  # of a panel
MOST_POINTS = 2000
PANEL = 84


class PlottedLine(NamedTuple):
    name: str
    at: Ints
    values: Floats


class Panel(NamedTuple):
    title: str
    unit: str
    lines: list[PlottedLine]


# Title, unit, and the samples that are shown together with their labels.
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


def under_one_clock(subject: ChartedRun) -> Spec:
    """Panels above one another with a shared time axis; the load's own come first."""
    sampled = [panel for panel in _sampled(subject) if panel.lines]
    if not sampled:
        raise Cannot("neither the server nor the GPUs nor the host were sampled")
    panels = [*_load(subject), *sampled]
    start_at, end_at = _span(subject, panels)
    pixels = MOST_POINTS // (2 * sum(len(panel.lines) for panel in panels))
    views = [_view(panel, start_at, end_at, pixels, panel is panels[-1]) for panel in panels]
    title = titled("Load, server and GPU on one time axis", "client measurements and samples on one time axis")
    return {"title": title, "vconcat": views, "spacing": 14, "resolve": {"scale": {"color": "independent"}}}


def _load(subject: ChartedRun) -> Iterator[Panel]:
    try:
        series, edges = flight_of(subject)
    except Cannot:
        return
    middles = (edges[:-1] + edges[1:]) // 2
    yield Panel("Requests", "requests", [PlottedLine(name, middles, values) for name, values in series.items()])
    records = subject.answers.records
    if records.read_offsets[-1]:
        output = output_per_second(records, edges)
        yield Panel("Output tokens per second", "", [PlottedLine("output tokens", middles, output)])


def _sampled(subject: ChartedRun) -> Iterator[Panel]:
    sources = [label for label in subject.samples.source.categories if label in subject.samples.source.counts()]
    servers = [label for label in sources if "://" in label]
    gpus = sorted(label for label in sources if label.startswith(GPU))
    for title, unit, names in _SERVER:
        pairs = [(source, name, label) for name, label in names.items() for source in servers]
        several = len(servers) > 1
        yield _panel(subject, title, unit, [(s, n, f"{w}, {_host(s)}" if several else w) for s, n, w in pairs])
    for title, unit, name in _GPUS:
        yield _panel(subject, title, unit, [(source, name, source.replace(GPU, "GPU ")) for source in gpus])
    yield _panel(subject, "This machine", "share", [(HOST, name, label) for name, label in _HOST.items()])


def _panel(subject: ChartedRun, title: str, unit: str, series: list[tuple[str, str, str]]) -> Panel:
    candidates = [PlottedLine(label, *_summed(*subject.samples.series(name, source))) for source, name, label in series]
    lines = [line for line in candidates if len(line.at) > 1]
    more = f" (the first {MOST_SERIES} of {len(lines)})" if len(lines) > MOST_SERIES else ""
    return Panel(title + more, unit, lines[:MOST_SERIES])


def _summed(at: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Several engines behind one endpoint are scraped at the same instant: their sum."""
    instants, place = np.unique(at, return_inverse=True)
    sums = np.zeros(len(instants))
    np.add.at(sums, place, values)
    return instants, sums


def _host(source: str) -> str:
    return source.split("//", 1)[1].split("/", 1)[0]


def _span(subject: ChartedRun, panels: list[Panel]) -> tuple[int, int]:
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
            "tooltip": tooltip(tip("at", "time (s)"), tip("series", "series", "nominal"), tip("value", panel.title)),
        },
    }


def _rows(line: PlottedLine, start_at: int, pixels: int, factor: float) -> list[ChartRow]:
    at, values = thinned(line.at, line.values, max(pixels, 20))
    return [
        {"at": (moment - start_at) / NANOSECONDS, "series": line.name, "value": value * factor}
        for moment, value in zip(at.tolist(), values.tolist(), strict=True)
    ]


# -- seconds ---------------------------------------------------------------------------------------------------------

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
MOST = 600  # points of a series


class PieceQuantile(TypedDict):
    """A quantile of the requests in one piece of the run."""

    piece: int
    count: int
    quantile: str
    value: float


def throughput_latency(subject: ChartedRun) -> Spec:
    """A point for each second and quantile: requests completed in it, and their TTFT."""
    answers = subject.answers
    ended = answers.records.ended_at
    second, pieces = _cut(subject, ended, 1.0)
    rows = _quantile_rows(second, request_values(subject.headlined("ttft"), answers), answers.ok & known(ended), pieces)
    if not rows:
        raise Cannot("no request was answered")
    rates = [row["count"] / pieces[1] for row in rows]
    length = duration_text(pieces[1]) if pieces[1] != 1 else "second"
    title = titled("TTFT by request throughput", f"one point per {length} and quantile")
    across = Across("rate", rates, x("rate", "requests completed (1/s)"), tip("rate", "requests/s"))
    return _quantile_view(subject, title, rows, across, "point")


def latency_over_time(subject: ChartedRun) -> Spec:
    answers = subject.answers
    sent = answers.records.scheduled_at
    length = max(1.0, (subject.end_at - subject.start_at) / NANOSECONDS / 120)
    piece, pieces = _cut(subject, sent, length)
    rows = _quantile_rows(piece, request_values(subject.headlined("ttft"), answers), answers.ok & known(sent), pieces)
    if not rows:
        raise Cannot("no request was answered")
    middles = [(row["piece"] + 0.5) * pieces[1] for row in rows]
    title = titled("TTFT over time", f"quantiles of the requests due in each {duration_text(pieces[1])}")
    across = Across("at", middles, x("at", "time since the start (s)"), tip("at", "time (s)"))
    return _quantile_view(subject, title, rows, across, "line")


def _cut(subject: ChartedRun, at: Ints, length_s: float) -> tuple[Ints, tuple[int, float]]:
    """The interval of the run that each instant belongs to, the number of intervals, and their length."""
    whole_s = max((subject.end_at - subject.start_at) / NANOSECONDS, 1e-9)
    length_s = max(length_s, float(np.ceil(whole_s / MOST)))
    count = max(1, int(np.ceil(whole_s / length_s)))
    piece = np.where(known(at), (at - subject.start_at) // round(length_s * NANOSECONDS), -1)
    return np.minimum(piece, count - 1), (count, length_s)


def _quantile_rows(piece: Ints, values: Floats, fine: Any, pieces: tuple[int, float]) -> list[PieceQuantile]:
    fine = fine & ~np.isnan(values) & (piece >= 0)
    order = np.argsort(piece[fine], kind="stable")
    places, ordered = piece[fine][order], values[fine][order]
    rows: list[PieceQuantile] = []
    edges = np.searchsorted(places, np.arange(pieces[0] + 1))
    for place, (start, end) in enumerate(pairwise(edges.tolist())):
        if end > start:
            quantiles = np.quantile(ordered[start:end], list(QUANTILES.values()))
            rows += [
                {"piece": place, "count": int(end - start), "quantile": quantile, "value": float(value)}
                for quantile, value in zip(QUANTILES, quantiles, strict=True)
            ]
    return rows


class Across(NamedTuple):
    """The horizontal axis: its field, the value of each row, its encoding and its line of the tooltip."""

    field: str
    values: list[float]
    encoding: Spec
    tip: Tip


def _quantile_view(
    subject: ChartedRun, title: Spec, quantiles: Sequence[PieceQuantile], across: Across, mark: str
) -> Spec:
    scale = scale_of("s", [row["value"] for row in quantiles])
    rows: list[ChartRow] = [
        {"quantile": row["quantile"], "value": scale.shown(row["value"]), across.field: value}
        for row, value in zip(quantiles, across.values, strict=True)
    ]
    params, opacity = toggled("quantile")
    looks: Spec = {"type": "point", "size": 30} if mark == "point" else {"type": "line", "point": {"size": 14}}
    axis = with_unit(MEASURES[subject.headlined("ttft")].title, scale.unit)
    layer = {
        "params": params,
        "mark": looks,
        "encoding": {
            "x": across.encoding,
            "y": y("value", axis),
            "color": colours("quantile", [*QUANTILES]),
            "opacity": opacity,
            "tooltip": tooltip(across.tip, tip("quantile", "quantile", "nominal"), tip("value", axis)),
        },
    }
    return view(title, rows, [layer])


LANES = 160
PARTS = {"waiting to be sent": GREY, "until the first token": BLUE, "until the last token": GREEN, "failed": ORANGE}


def requests(subject: ChartedRun) -> Spec:
    """Requests adjacent in time, around the middle of the window: all requests of a long run would be too thin to
    see."""
    answers = subject.answers
    sent = np.flatnonzero(known(answers.records.sent_at))
    if not len(sent):
        raise Cannot("no request was sent")
    chosen = _around_middle(subject, sent)
    rows = [part for lane, at in enumerate(chosen.tolist()) for part in _parts(subject, lane, at)]
    parts = {str(row["part"]) for row in rows}
    note = "" if len(chosen) == len(sent) else f"{len(chosen)} of {len(sent):,}, around the middle of the window"
    title = titled("Timeline of requests: waiting, first token, last token", note)
    bars = {
        "mark": {"type": "bar", "height": {"band": 0.75}, "clip": True},
        "encoding": {
            "x": x("from", "time since the start (s)", scale={"zero": False, "nice": False}),
            "x2": {"field": "to"},
            "y": {"field": "lane", "type": "ordinal", "axis": None, "title": None},
            "color": meanings("part", PARTS, parts),
            "tooltip": tooltip(
                tip("request", "session.turn", "nominal"),
                tip("part", "part", "nominal"),
                tip("took", "took (s)"),
                tip("from", "from (s)"),
                tip("tokens", "output tokens"),
            ),
        },
    }
    return view(title, rows, [bars], height=int(np.clip(3 * len(chosen), 120, 420)))


def _around_middle(subject: ChartedRun, sent: Ints) -> Ints:
    at = subject.answers.records.sent_at[sent]
    order = np.argsort(at, kind="stable")
    middle_at = (subject.window.start_at + subject.window.end_at) // 2
    middle = int(np.searchsorted(at[order], middle_at))
    start = max(0, min(middle - LANES // 2, len(sent) - LANES))
    chosen: Ints = sent[order[start : start + LANES]]
    return chosen


def _parts(subject: ChartedRun, lane: int, at: int) -> list[ChartRow]:
    answers, records = subject.answers, subject.answers.records
    due, sent, first, last, ended = (
        int(column[at])
        for column in (records.scheduled_at, records.sent_at, answers.first_at, answers.last_at, records.ended_at)
    )
    tokens = int(answers.output_tokens[at]) if known(answers.output_tokens)[at] else None
    name = f"{records.session[at]}.{records.turn[at]}"
    end = ended if known(np.array([ended]))[0] else subject.end_at
    if not answers.ok[at]:
        spans = [("waiting to be sent", due, sent), ("failed", sent, end)]
    elif not known(np.array([first]))[0]:
        spans = [("waiting to be sent", due, sent), ("until the last token", sent, end)]
    else:
        spans = [("waiting to be sent", due, sent), ("until the first token", sent, first)]
        spans += [("until the last token", first, max(last, first))]
    return [
        {
            "lane": lane,
            "request": name,
            "part": part,
            "from": (start - subject.start_at) / NANOSECONDS,
            "to": (stop - subject.start_at) / NANOSECONDS,
            "took": (stop - start) / NANOSECONDS,
            "tokens": tokens,
        }
        for part, start, stop in spans
        if stop > start
    ]
