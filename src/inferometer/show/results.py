"""The results beside the table of measures: rates, goodput, failures, delivery, and the instrument's own error."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from inferometer.record.record import CENSORED, OUTCOMES
from inferometer.show.console import facts_table
from inferometer.show.values import percent_text, value_text
from inferometer.vocabulary import duration_text, number_text

MOST_ERRORS = 3
LONGEST_ERROR = 160


def results_table(summary: Mapping[str, Any]) -> Table:
    table = facts_table()
    for name, value in _facts(summary):
        table.add_row(name, value)
    return table


def _facts(summary: Mapping[str, Any]) -> Iterator[tuple[str, str | Text]]:
    yield "rates", _rates(summary["rates"])
    yield "in flight", _in_flight(summary["concurrency"])
    if summary.get("goodput") and summary["outcomes"].get("ok"):
        yield "goodput", _goodput(summary["goodput"])
    if text := _cached(summary["tokens"]["cached"]):
        yield "cache", text
    yield from _failures(summary)
    if summary.get("delivery"):
        yield "delivery", _delivery(summary)
        if resent := summary["delivery"].get("resent"):
            yield "", f"{resent:,} sent again: the kept-alive connection was dead"
    if summary.get("instrument"):
        yield "instrument", _instrument(summary["instrument"])


def _rates(rates: Mapping[str, Any]) -> str:
    requests, inputs, output = (rates[name] for name in ("request_rate", "input_rate", "output_rate"))
    tokens = f"{number_text(inputs['window'])} input + {number_text(output['window'])} output tokens/s"
    peak = f" (peak {number_text(output['peak_1s'])})" if output.get("peak_1s") else ""
    return f"{number_text(requests['window'])} requests/s, {tokens}{peak}"


def _in_flight(concurrency: Mapping[str, Any]) -> str:
    asked = f" of {concurrency['asked']} asked" if concurrency.get("asked") else ""
    law = concurrency.get("little")
    little = f"; by Little's law {number_text(law['x_times_r'])}" if law else ""
    return f"{number_text(concurrency['mean'])}{asked} on average, {number_text(concurrency['max'])} at most{little}"


def _goodput(goodput: Mapping[str, Any]) -> str:
    undefined = f"; {goodput['undefined']:,} could not be judged" if goodput["undefined"] else ""
    share = f"{percent_text(goodput['share'])} of the requests met {' and '.join(goodput['limits'])}"
    return f"{value_text(goodput['window'], goodput['unit'])}: {share}{undefined}"


def _cached(cached: Mapping[str, Any]) -> str | None:
    if not cached.get("reported"):
        return None
    return f"{percent_text(cached['share'])} of the input tokens came from the prefix cache"


def _failures(summary: Mapping[str, Any]) -> Iterator[tuple[str, str | Text]]:
    """How many failed and in what way, how many we ended ourselves, and what the most frequent errors say."""
    total = sum(summary["outcomes"].values())
    others = {word: n for word, n in summary["outcomes"].items() if word != "ok" and n}
    failed = {word: n for word, n in others.items() if word not in CENSORED}
    if failed:
        share = percent_text(sum(failed.values()) / total)
        parts = ", ".join(f"{n:,} {outcome_text(word)}" for word, n in failed.items())
        yield "failed", Text(f"{sum(failed.values()):,} of {total:,} requests ({share}): {parts}", style="red")
    for word in CENSORED & others.keys():
        share = percent_text(others[word] / total)
        yield word, Text(f"{others[word]:,} of {total:,} requests ({share}): {OUTCOMES[word]}", style="yellow")
    for error in summary["errors"][:MOST_ERRORS]:
        message = error["message"]
        shown = message if len(message) <= LONGEST_ERROR else f"{message[: LONGEST_ERROR - 2]}.."
        yield "", f"{error['count']:,} × {shown}"


def outcome_text(word: str) -> str:
    """`status_429` as `status 429`."""
    assert word.partition("_")[0] in OUTCOMES, word
    return word.replace("_", " ")


def _delivery(summary: Mapping[str, Any]) -> str:
    delivery, lateness = summary["delivery"], summary["delivery"]["lateness"]
    planned = f" of {delivery['planned']:,} planned" if delivery.get("planned") else ""
    sent = f"{delivery['arrivals'] if planned else delivery['sent']:,}{planned} sent"
    rate = summary["rates"]["offered_rate"]["window"]
    pace = f", {value_text(rate, '1/s')}" if summary["loop"] == "open" and rate is not None else ""
    if lateness["p99"] is None:
        return sent + pace
    return f"{sent}{pace}; late by {duration_text(lateness['p99'])} at p99, {duration_text(lateness['max'])} at most"


def _instrument(instrument: Mapping[str, Any]) -> str:
    """What we add ourselves, by the calibration of this machine at the load of this run."""
    if not instrument["calibrated"]:
        return "own error not known: inferometer calibrate measures it"
    ttft, read = instrument.get("ttft_error_p99"), instrument.get("read_error_p99")
    load = f"{number_text(instrument['streams'])} streams, {number_text(instrument['events_per_s'])} events/s"
    beyond = ", beyond the calibration" if instrument.get("extrapolated") else ""
    return f"adds ≤ {duration_text(ttft)} to TTFT, {duration_text(read)} to gaps ({load}{beyond})"
