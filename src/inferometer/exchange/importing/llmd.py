"""llm-d's benchmark report, versions 0.1, 0.2 and 0.2.1, as YAML or JSON, where every number has its unit; and its
`treatment_comparison.csv`."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from inferometer.documents.document import JsonValue
from inferometer.errors import DataError
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.fields import run_per_row
from inferometer.exchange.importing.inference_perf import RATES as OLD_RATES
from inferometer.exchange.importing.inference_perf import TIMES
from inferometer.exchange.importing.source import ImportedPlan, ImportedRun, ImportFormat, ParsedFile, Source
from inferometer.exchange.importing.units import (
    COUNTS,
    SECONDS,
    factor,
    known_rates,
    measure,
    nearest_unit,
    number,
    statistics,
    value,
    whole,
    without_none,
)
from inferometer.exchange.llmd_report import (
    Report01,
    Report02,
    ReportAccelerator,
    ReportEngine,
    ReportLoad01,
    ReportModel,
    ReportPart,
    ReportRequests,
    ReportResults,
    ReportRun,
    ReportScenario,
    ReportScenario01,
    StandardLoad,
    UnitStatistics,
)
from inferometer.record.environment import Environment
from inferometer.record.summary import MeasureSummary, Rate, Value

# -- llmd report -----------------------------------------------------------------------------------------------------

ReportLengthKey = Literal["input_length", "output_length"]
LENGTHS: dict[str, ReportLengthKey] = {"input_tokens": "input_length", "output_tokens": "output_length"}
RATES = {
    "request_rate": "request_rate",
    "input_rate": "input_token_rate",
    "output_rate": "output_token_rate",
    "total_rate": "total_token_rate",
}
MISLABELLED = ("inference-perf", "fmperf")  # whose seconds reports of version 0.1 call milliseconds
_DURATION = re.compile(r"PT(?:(?P<h>[\d.]+)H)?(?:(?P<m>[\d.]+)M)?(?:(?P<s>[\d.]+)S)?")


def _fits_report(source: Source) -> bool:
    old, new = source.typed(Report01), source.typed(Report02)
    is_old = "metrics" in old and "latency" in (old.get("metrics") or {})
    results = new.get("results") or {}
    is_new = "request_performance" in results or "session_performance" in results
    return "version" in old and "scenario" in old and (is_old or is_new)


def _read_report(source: Source) -> ParsedFile:
    version = str(source.mapping()["version"])
    if version not in ("0.1", "0.2", "0.2.1"):
        raise DataError(f"a benchmark report of version {version}; known are 0.1, 0.2 and 0.2.1")
    return ParsedFile([_old(source.typed(Report01)) if version == "0.1" else _new(source.typed(Report02))])


def _old(report: Report01) -> ImportedRun:
    scenario, metrics = report["scenario"], report["metrics"]
    load = scenario.get("load") or {}
    requests, time = metrics.get("requests") or {}, metrics.get("time") or {}
    count, failed = whole(requests.get("total")), whole(requests.get("failures"))
    units, notes = _units(metrics["latency"], str(load.get("name")))
    return ImportedRun(
        started=fields.instant(time.get("start")),
        plan=_old_plan(scenario, load),
        environment=_old_environment(scenario),
        measures=_measures(metrics["latency"], units, requests, count),
        rates=known_rates({name: number(metrics["throughput"].get(key)) for name, key in OLD_RATES.items()}),
        answered=count - (failed or 0) if count is not None else None,
        failed=failed,
        unfinished=whole(requests.get("incomplete")),
        duration_s=number(time.get("duration")),
        definitions=_definitions(load.get("name")),
        notes=tuple(notes),
    )


def _units(latency: Mapping[str, UnitStatistics | None], tool: str) -> tuple[dict[str, str], list[str]]:
    """The unit of each time: its label, unless that is one of those that are known to be wrong."""
    labels = {name: str(metric.get("units")) for name, key in TIMES.items() if (metric := latency.get(key))}
    means = {name: number((latency.get(TIMES[name]) or {}).get("mean")) for name in labels}
    if tool in MISLABELLED:
        wrong = [name for name, label in labels.items() if label.startswith("ms")]
        pace = next(((name, mean) for name in ("tpot", "ntpot", "itl", "ttft") if (mean := means.get(name))), None)
        wrong = wrong if pace is not None and nearest_unit(*pace, ("ms", "s")) == "s" else []
    else:
        wrong = ["e2e"] if _ends_too_early(labels, means) else []
    if not wrong:
        return labels, []
    text = ", ".join(TIMES[name] for name in wrong)
    note = f"labelled as milliseconds, read as seconds: {text} (a known error in version 0.1 reports from {tool})"
    return labels | dict.fromkeys(wrong, "s"), [note]


def _ends_too_early(labels: Mapping[str, str], means: Mapping[str, float | None]) -> bool:
    """Whether answers end before their first token, as the labels have it: guidellm's request_latency is in seconds."""
    first, last = means.get("ttft"), means.get("e2e")
    if first is None or last is None or labels["e2e"] != "ms":
        return False
    return last * SECONDS["ms"] < first * factor(labels["ttft"], SECONDS)


def _measures(
    latency: Mapping[str, UnitStatistics | None], units: Mapping[str, str], requests: ReportRequests, count: int | None
) -> dict[str, MeasureSummary]:
    measures: dict[str, MeasureSummary] = {}
    for name, key in TIMES.items():
        if name in units:
            measures |= measure(name, statistics(latency.get(key), factor(units[name], SECONDS)), count)
    for name, key in LENGTHS.items():
        length = requests.get(key) or {}
        measures |= measure(name, statistics(length, factor(str(length.get("units", "count")), COUNTS)), count)
    return measures


def _old_plan(scenario: ReportScenario01, load: ReportLoad01) -> ImportedPlan:
    args = load.get("args") or {}
    rate = args.get("request_rate", args.get("qps_values"))
    return fields.plan_of(
        name=load.get("type"),
        model=(scenario.get("model") or {}).get("name"),
        load=fields.load(rate, args.get("max_concurrency"), None),
        workload=fields.lengths(args.get("random-input-len"), args.get("random-output-len")),
    )


def _old_environment(scenario: ReportScenario01) -> Environment:
    host, engines = scenario.get("host") or {}, (scenario.get("platform") or {}).get("engine") or []
    cards = host.get("accelerator") or []
    first: ReportEngine = engines[0] if engines else {}
    roles = host.get("type") or []
    stack: dict[str, JsonValue] = {"roles": roles if len(roles) > 1 else None, "parallelism": _parallelism(cards)}
    stack |= {"quantization": (scenario.get("model") or {}).get("quantization"), "args": first.get("args")}
    return fields.environment_of(
        engine=first.get("name"), version=first.get("version"), gpus=_gpus(cards), stack=without_none(stack)
    )


def _gpus(cards: Sequence[ReportAccelerator]) -> list[str] | None:
    return [name for card in cards for name in fields.gpus(str(card.get("model")), card.get("count"))] or None


def _parallelism(cards: Sequence[ReportAccelerator]) -> Sequence[JsonValue] | None:
    parallelism = [card.get("parallelism") for card in cards if card.get("parallelism")]
    return parallelism or None


def _new(report: Report02) -> ImportedRun:
    scenario, results, about = report["scenario"], report["results"], report.get("run") or {}
    load = (scenario.get("load") or {}).get("standardized") or {}
    whole_run = (results.get("request_performance") or {}).get("aggregate") or {}
    requests, latency = whole_run.get("requests") or {}, whole_run.get("latency") or {}
    count, failed = whole(requests.get("total")), whole(requests.get("failures"))
    labels = {name: str(metric.get("units")) for name, key in TIMES.items() if (metric := latency.get(key))}
    time = about.get("time") or {}
    return ImportedRun(
        started=fields.instant(time.get("start")),
        plan=_new_plan(scenario, load, about),
        environment=_new_environment(scenario),
        measures=_measures(latency, labels, requests, count) | _sessions(results),
        rates=_new_rates(whole_run.get("throughput") or {}),
        values=_components(results),
        answered=count - (failed or 0) if count is not None else None,
        failed=failed,
        unfinished=whole(requests.get("incomplete")),
        duration_s=_duration_s(time.get("duration")),
        definitions=_definitions(load.get("tool")),
    )


def _new_rates(throughput: Mapping[str, UnitStatistics | None]) -> dict[str, Rate]:
    """Rates are distributions over time; their mean is the run's rate."""
    means = {}
    for name, key in RATES.items():
        rate = throughput.get(key) or {}
        means[name] = statistics(rate, factor(str(rate.get("units", "")), COUNTS)).get("mean")
    return known_rates(means)


def _sessions(results: ReportResults) -> dict[str, MeasureSummary]:
    sessions = (results.get("session_performance") or {}).get("sessions") or {}
    time = sessions.get("session_duration") or {}
    measures = measure(
        "session_time", statistics(time, factor(str(time.get("units", "s")), SECONDS)), whole(sessions.get("total"))
    )
    return measures | measure(
        "session_turns", statistics(sessions.get("events_per_session")), whole(sessions.get("total"))
    )


def _components(results: ReportResults) -> dict[str, Value]:
    """Means of what was observed of each component, as shares and bytes."""
    values = {}
    for component in (results.get("observability") or {}).get("components") or []:
        for name, metric in (component.get("aggregate") or {}).items():
            mean, unit = statistics(metric).get("mean"), str((metric or {}).get("units", ""))
            if mean is None:
                continue
            label = component.get("component_label", "component")
            ours = {"percent": "share", "GiB": "bytes", "MiB": "bytes", "GB": "bytes"}.get(unit, unit)
            scaled = mean * factor(unit) if ours in ("share", "bytes") else mean
            values[f"{label}.{name}"] = value(scaled, ours, None, f"{name.replace('_', ' ')} of {label}")
    return without_none(values)


def _new_plan(scenario: ReportScenario, load: StandardLoad, about: ReportRun) -> ImportedPlan:
    inputs, outputs = load.get("input_seq_len") or {}, load.get("output_seq_len") or {}
    engine = _engines(scenario)
    models = [cast(ReportModel, component.get("model", {})).get("name") for component in engine]
    return fields.plan_of(
        name=about.get("description"),
        model=next((model for model in models if model), None),
        workload=fields.lengths(
            inputs.get("value"), outputs.get("value"), inputs.get("std_dev"), outputs.get("std_dev")
        ),
        load=fields.load(load.get("rate_qps"), load.get("concurrency"), None)
        if load.get("rate_qps")
        else fields.closed(load.get("concurrency")),
    )


def _engines(scenario: ReportScenario) -> list[ReportPart]:
    parts = [component.get("standardized") or {} for component in scenario.get("stack") or []]
    return [part for part in parts if part.get("kind") == "inference_engine"]


def _new_environment(scenario: ReportScenario) -> Environment:
    engines = _engines(scenario)
    first: ReportPart = engines[0] if engines else {}
    cards: list[ReportAccelerator] = [
        {**(component.get("accelerator") or {}), "count": _cards(component)}
        for component in engines
        if component.get("accelerator")
    ]
    stack: dict[str, JsonValue] = {
        "parallelism": _parallelism([component.get("accelerator") or {} for component in engines])
    }
    stack |= {"replicas": [component.get("replicas") for component in engines] or None}
    labels = [(component.get("metadata") or {}).get("label") for component in scenario.get("stack") or []]
    return fields.environment_of(
        engine=first.get("tool"),
        version=first.get("tool_version"),
        gpus=_gpus(cards),
        stack=without_none(stack | {"components": labels or None}),
    )


def _cards(engine: ReportPart) -> int:
    return (whole((engine.get("accelerator") or {}).get("count")) or 1) * (whole(engine.get("replicas")) or 1)


def _duration_s(duration: JsonValue) -> float | None:
    """`PT49.97S`, as ISO 8601 has it, or seconds."""
    match = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if match is None:
        return number(duration)
    hours, minutes, seconds = (float(match[name] or 0) for name in ("h", "m", "s"))
    return 3600 * hours + 60 * minutes + seconds


def _definitions(tool: JsonValue) -> dict[str, str]:
    """Its numbers are those of the tool it was converted from."""
    return dict.fromkeys(("ttft", "tpot", "itl", "e2e", "output_rate"), f"as {tool} defines it") if tool else {}


REPORT = ImportFormat("an llm-d benchmark report", _fits_report, _read_report)

# -- llmd treatments -------------------------------------------------------------------------------------------------

TREATMENT_TIMES = ("ttft", "tpot", "itl", "e2e")
STATISTICS = ("mean", "p50", "p99")
WRITTEN_IN: dict[str, dict[str, str]] = {  # what converters of each tool write into reports of version 0.2
    "vllm-benchmark": dict.fromkeys(TREATMENT_TIMES, "ms"),
    "inferencemax": dict.fromkeys(TREATMENT_TIMES, "ms"),
    "guidellm": {**dict.fromkeys(TREATMENT_TIMES, "ms"), "e2e": "s"},
    "inference-perf": dict.fromkeys(TREATMENT_TIMES, "s"),
    "aiperf": dict.fromkeys(TREATMENT_TIMES, "s"),
}
TREATMENT_RATES = {"request_rate": "request_qps", "output_rate": "output_tps", "total_rate": "total_tps"}


def _fits_treatments(source: Source) -> bool:
    return {"treatment", "ttft_mean_s", "output_tps"} <= set(source.columns())


def _read_treatments(source: Source) -> ParsedFile:
    return run_per_row(source, lambda row: _imported(row.texts()))


def _imported(row: Mapping[str, str]) -> ImportedRun:
    total, failed = whole(row.get("total_requests")), whole(row.get("failures"))
    answered = None if total is None else total - (failed or 0)
    units = {name: _unit(name, row) for name in TREATMENT_TIMES}
    measures: dict[str, MeasureSummary] = {}
    for name in TREATMENT_TIMES:
        measures |= measure(name, _of(name, row, SECONDS[units[name]]), answered)
    for name, column in (("input_tokens", "input_len_mean"), ("output_tokens", "output_len_mean")):
        measures |= measure(name, statistics({"mean": row.get(column)}), answered)
    wrong = [name for name in TREATMENT_TIMES if units[name] == "ms" and name in measures]
    note = f"columns {', '.join(f'{name}_*_s' for name in wrong)} hold milliseconds of {row.get('tool')}, read as such"
    return ImportedRun(
        plan=fields.plan_of(
            name=row.get("treatment"),
            workload=fields.lengths(row.get("input_len_mean"), row.get("output_len_mean")),
            load=fields.load(row.get("rate_qps"), None, None),
        ),
        measures=measures,
        rates=known_rates({name: number(row.get(column)) for name, column in TREATMENT_RATES.items()}),
        answered=answered,
        failed=failed,
        definitions={name: f"as {row.get('tool')} defines it" for name in measures} if row.get("tool") else {},
        notes=(note,) if wrong else (),
    )


def _of(name: str, row: Mapping[str, str], scale: float) -> dict[str, float]:
    return statistics({stat: row.get(f"{name}_{stat}_s") for stat in STATISTICS}, scale)


def _unit(name: str, row: Mapping[str, str]) -> str:
    """By the tool that it comes from; of a tool that is not known, by which is usual."""
    known = WRITTEN_IN.get(str(row.get("tool")))
    mean = next((amount for stat in STATISTICS if (amount := number(row.get(f"{name}_{stat}_s")))), None)
    if known is not None:
        return known[name]
    return "s" if mean is None else nearest_unit(name, mean, ("s", "ms"))


TABLE = ImportFormat("llm-d's comparison of treatments", _fits_treatments, _read_treatments)
