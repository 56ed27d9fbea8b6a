"""What went on over the time of a run: tokens, requests in flight, requests that waited."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from inferometer.measure.inflight import InFlight
from inferometer.measure.quantiles import Floats, Ints
from inferometer.record.columns import Records, known
from inferometer.show.charts.chart import Cannot, Spec
from inferometer.show.charts.spec import colours, rules, tip, titled, toggled, view, x, y
from inferometer.show.charts.subject import Subject
from inferometer.vocabulary import NANOSECONDS

PIECES = 300


def tokens_over_time(subject: Subject) -> Spec:
    """Output tokens as they arrived; a prompt counts when its first token comes."""
    records, edges = subject.answers.records, subject.edges(PIECES)
    if not records.read_offsets[-1]:
        raise Cannot("no read carried a token: the answers were not streamed")
    series = {"output": output_per_second(records, edges)}
    first, prompt = subject.answers.first_at, records.input_tokens
    both = known(first) & known(prompt)
    if both.any():
        series["input"] = per_second(first[both], prompt[both], edges)
    title = titled("Tokens per second over the time of the run", f"means of {piece_text(edges)}")
    return over_time(subject, title, series, edges, "tokens per second")


def in_flight(subject: Subject) -> Spec:
    series, edges = flight_of(subject)
    title = titled("Requests in flight and waiting over the time of the run", f"means of {piece_text(edges)}")
    return over_time(subject, title, series, edges, "requests")


def flight_of(subject: Subject) -> tuple[dict[str, Floats], Ints]:
    """In flight: sent and not over. Waiting: due and not sent yet."""
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
    return f"{length:.3g} s each"


def over_time(subject: Subject, title: Any, series: dict[str, Floats], edges: Ints, axis: str) -> Spec:
    """Lines under the run's clock; the window that was measured is marked."""
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
            "tooltip": [tip("at", "time (s)"), tip("series", "series", "nominal"), tip("value", axis)],
        },
    }
    return view(title, rows, [line, *window_marks(subject)])


def window_marks(subject: Subject) -> list[Spec]:
    """Where the measured window begins and ends, unless it is the run."""
    window, whole = subject.window, subject.end_at - subject.start_at
    places = [("window begins", window.start_at), ("window ends", window.end_at)]
    inner = [
        {"at": float(subject.seconds(np.array([at]))[0]), "word": word, "left": word == "window ends"}
        for word, at in places
        if 0.01 * whole < at - subject.start_at < 0.99 * whole
    ]
    return rules("at", inner, "word") if inner else []
