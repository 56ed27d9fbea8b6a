"""MLPerf LoadGen's `mlperf_log_summary.txt`. Every time has its unit, nearly always nanoseconds.

Lines: mlcommons/inference, loadgen/results.cc. All latencies count from the scheduled time, TTFT too.
"""

import re
from collections.abc import Mapping

from inferometer.exchange.importing import fields
from inferometer.exchange.importing.source import ImportedPlan, ImportedRun, ImportFormat, ParsedFile, Source
from inferometer.exchange.importing.units import SECONDS, factor, known_rates, measure, number, value, without_none
from inferometer.record.summary import Value

TIMES = {"latency": "e2e_scheduled", "first token latency": "ttft_scheduled", "time to output token": "tpot"}
DEFINITIONS = {
    "ttft_scheduled": "from the scheduled time to the first token, as the system under test reports it",
    "tpot": "(latency - TTFT) / (n - 1)",
    "e2e_scheduled": "from the scheduled time to the completion",
    "quantiles": "order statistics",
}
_LINE = re.compile(r"^\s*(?P<name>[^:]+?)\s*(?:\((?P<unit>[a-zµ]+)\))?\s*:\s*(?P<value>.*?)\s*$")
_TIME = re.compile(r"(?:(?P<share>[\d.]+) percentile|(?P<word>min|max|mean)) (?P<what>.+)", re.IGNORECASE)
_RATES = {"completed samples per second": "request_rate", "samples per second": "request_rate"}
_RATES |= {"completed tokens per second": "output_rate", "tokens per second": "output_rate"}
_RATES |= {"scheduled samples per second": "offered_rate"}


def _fits(source: Source) -> bool:
    return source.form == "text" and "MLPerf Results Summary" in source.value


def _read(source: Source) -> ParsedFile:
    lines = [match for line in source.value.splitlines() if (match := _LINE.match(line))]
    log = {match["name"].lower(): match["value"] for match in lines}
    times = _times(lines)
    measures = {
        name: summary
        for part in (measure(name, statistics) for name, statistics in times.items())
        for name, summary in part.items()
    }
    rates = {_RATES[name]: number(text) or None for name, text in log.items() if name in _RATES}
    run = ImportedRun(
        plan=_plan(log),
        environment=fields.environment_of(
            engine=log.get("sut name"), stack=without_none({"scenario": log.get("scenario")})
        ),
        measures=measures,
        rates=known_rates(rates),
        values=_values(lines),
        definitions=DEFINITIONS,
        doubts=tuple(_invalid_result(log)),
        notes=tuple([f"LoadGen reports: {log['result is']}"] if "result is" in log else []),
    )
    return ParsedFile([run])


def _times(lines: list[re.Match[str]]) -> dict[str, dict[str, float]]:
    """Every latency, converted by its unit; without a unit it is refused."""
    times: dict[str, dict[str, float]] = {}
    for line in lines:
        match = _TIME.fullmatch(line["name"].strip())
        what = match["what"].lower() if match else ""
        amount = number(line["value"])
        if match is None or what not in TIMES or amount is None:
            continue
        key = match["word"].lower() if match["word"] else f"p{float(match['share']):g}"
        times.setdefault(TIMES[what], {})[key] = amount * factor(line["unit"] or "(none)", SECONDS)
    return times


def _plan(log: Mapping[str, str]) -> ImportedPlan:
    rate = log.get("target_qps") if log.get("scenario", "").lower() == "server" else None
    shortest = number(log.get("min_duration"))
    return fields.plan_of(load=fields.load(rate, None, None), duration_s=shortest / 1000 if shortest else None)


def _values(lines: list[re.Match[str]]) -> dict[str, Value]:
    """The limits that the run had to meet."""
    titles = {"ttft_latency": "TTFT limit", "tpot_latency": "TPOT limit"}
    limits = {}
    for line in lines:
        if line["name"] in titles and (amount := number(line["value"])) and line["unit"]:
            limits[f"{line['name']}_limit"] = value(
                amount * factor(line["unit"], SECONDS), "s", None, titles[line["name"]]
            )
    return without_none(limits)


def _invalid_result(log: Mapping[str, str]) -> list[tuple[str, str]]:
    status = log.get("result is", "VALID")
    return [] if status.upper() == "VALID" else [("said_invalid", f"LoadGen reports the result as {status}.")]


SUMMARY = ImportFormat("an MLPerf LoadGen summary", _fits, _read)
