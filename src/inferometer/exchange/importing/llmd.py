"""llm-d's benchmark report, versions 0.1, 0.2 and 0.2.1, as YAML or JSON, where every number has its unit; and its
`treatment_comparison.csv`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.errors import DataError
from inferometer.exchange.importing import fields as sayings
from inferometer.exchange.importing.fields import each_row
from inferometer.exchange.importing.inference_perf import RATES as OLD_RATES
from inferometer.exchange.importing.inference_perf import TIMES
from inferometer.exchange.importing.source import Format, Found, ImportedRun, Source
from inferometer.exchange.importing.units import (
    COUNTS,
    SECONDS,
    factor,
    known_rates,
    measure,
    nearest_unit,
    number,
    statistics,
    told,
    value,
    whole,
)
from inferometer.record.summary import MeasureSummary, Rate, Value

# -- llmd report -----------------------------------------------------------------------------------------------------

LENGTHS = {"input_tokens": "input_length", "output_tokens": "output_length"}
RATES = {
    "request_rate": "request_rate",
    "input_rate": "input_token_rate",
    "output_rate": "output_token_rate",
    "total_rate": "total_token_rate",
}
MISLABELLED = ("inference-perf", "fmperf")  # whose seconds reports of version 0.1 call milliseconds
_DURATION = re.compile(r"PT(?:(?P<h>[\d.]+)H)?(?:(?P<m>[\d.]+)M)?(?:(?P<s>[\d.]+)S)?")


def _fits_report(source: Source) -> bool:
    said = source.mapping()
    old = "metrics" in said and "latency" in (said.get("metrics") or {})
    new = "request_performance" in (said.get("results") or {}) or "session_performance" in (said.get("results") or {})
    return "version" in said and "scenario" in said and (old or new)


def _read_report(source: Source) -> Found:
    said = source.mapping()
    version = str(said["version"])
    if version not in ("0.1", "0.2", "0.2.1"):
        raise DataError(f"a benchmark report of version {version}; known are 0.1, 0.2 and 0.2.1")
    return Found([_old(said) if version == "0.1" else _new(said)])


def _old(said: Mapping[str, Any]) -> ImportedRun:
    scenario, metrics = said["scenario"], said["metrics"]
    load = scenario.get("load") or {}
    requests, time = metrics.get("requests") or {}, metrics.get("time") or {}
    count, failed = whole(requests.get("total")), whole(requests.get("failures"))
    units, notes = _units(metrics["latency"], str(load.get("name")))
    return ImportedRun(
        started=sayings.instant(time.get("start")),
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


def _units(latency: Mapping[str, Any], tool: str) -> tuple[dict[str, str], list[str]]:
    """The unit of each time: its label, unless that is one of those that are known to be wrong."""
    labels = {name: str(each.get("units")) for name, key in TIMES.items() if (each := latency.get(key))}
    means = {name: number(latency[TIMES[name]].get("mean")) for name in labels}
    if tool in MISLABELLED:
        wrong = [name for name, label in labels.items() if label.startswith("ms")]
        pace = next(((name, mean) for name in ("tpot", "ntpot", "itl", "ttft") if (mean := means.get(name))), None)
        wrong = wrong if pace is not None and nearest_unit(*pace, ("ms", "s")) == "s" else []
    else:
        wrong = ["e2e"] if _ends_too_early(labels, means) else []
    if not wrong:
        return labels, []
    words = ", ".join(TIMES[name] for name in wrong)
    note = f"labelled as milliseconds, read as seconds: {words} (reports of version 0.1 from {tool} have that wrong)"
    return labels | dict.fromkeys(wrong, "s"), [note]


def _ends_too_early(labels: Mapping[str, str], means: Mapping[str, float | None]) -> bool:
    """Whether answers end before their first token, as the labels have it: guidellm's request_latency is in seconds."""
    first, last = means.get("ttft"), means.get("e2e")
    if first is None or last is None or labels["e2e"] != "ms":
        return False
    return last * SECONDS["ms"] < first * factor(labels["ttft"], SECONDS)


def _measures(
    latency: Mapping[str, Any], units: Mapping[str, str], requests: Mapping[str, Any], count: int | None
) -> dict[str, MeasureSummary]:
    found: dict[str, MeasureSummary] = {}
    for name, key in TIMES.items():
        if name in units:
            found |= measure(name, statistics(latency.get(key), factor(units[name], SECONDS)), count)
    for name, key in LENGTHS.items():
        said = requests.get(key) or {}
        found |= measure(name, statistics(said, factor(str(said.get("units", "count")), COUNTS)), count)
    return found


def _old_plan(scenario: Mapping[str, Any], load: Mapping[str, Any]) -> dict[str, Any]:
    args = load.get("args") or {}
    rate = args.get("request_rate", args.get("qps_values"))
    return sayings.plan_of(
        name=load.get("type"),
        model=(scenario.get("model") or {}).get("name"),
        load=sayings.load(rate, args.get("max_concurrency"), None),
        workload=sayings.lengths(args.get("random-input-len"), args.get("random-output-len")),
    )


def _old_environment(scenario: Mapping[str, Any]) -> dict[str, Any]:
    host, engines = scenario.get("host") or {}, (scenario.get("platform") or {}).get("engine") or []
    cards = host.get("accelerator") or []
    first = engines[0] if engines else {}
    roles = host.get("type") or []
    stack = {"roles": roles if len(roles) > 1 else None, "parallelism": _parallelism(cards)}
    stack |= {"quantization": (scenario.get("model") or {}).get("quantization"), "args": first.get("args")}
    return sayings.environment_of(
        engine=first.get("name"), version=first.get("version"), gpus=_gpus(cards), stack=told(stack)
    )


def _gpus(cards: Sequence[Mapping[str, Any]]) -> list[str] | None:
    return [name for card in cards for name in sayings.gpus(str(card.get("model")), card.get("count"))] or None


def _parallelism(cards: Sequence[Mapping[str, Any]]) -> list[Any] | None:
    found = [card.get("parallelism") for card in cards if card.get("parallelism")]
    return found or None


def _new(said: Mapping[str, Any]) -> ImportedRun:
    scenario, results, about = said["scenario"], said["results"], said.get("run") or {}
    load = (scenario.get("load") or {}).get("standardized") or {}
    whole_run = (results.get("request_performance") or {}).get("aggregate") or {}
    requests, latency = whole_run.get("requests") or {}, whole_run.get("latency") or {}
    count, failed = whole(requests.get("total")), whole(requests.get("failures"))
    labels = {name: str(each.get("units")) for name, key in TIMES.items() if (each := latency.get(key))}
    time = about.get("time") or {}
    return ImportedRun(
        started=sayings.instant(time.get("start")),
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


def _new_rates(throughput: Mapping[str, Any]) -> dict[str, Rate]:
    """Rates are distributions over time; their mean is the run's rate."""
    means = {}
    for name, key in RATES.items():
        said = throughput.get(key) or {}
        means[name] = statistics(said, factor(str(said.get("units", "")), COUNTS)).get("mean")
    return known_rates(means)


def _sessions(results: Mapping[str, Any]) -> dict[str, MeasureSummary]:
    said = (results.get("session_performance") or {}).get("sessions") or {}
    time = said.get("session_duration") or {}
    found = measure(
        "session_time", statistics(time, factor(str(time.get("units", "s")), SECONDS)), whole(said.get("total"))
    )
    return found | measure("session_turns", statistics(said.get("events_per_session")), whole(said.get("total")))


def _components(results: Mapping[str, Any]) -> dict[str, Value]:
    """Means of what was observed of each component, as shares and bytes."""
    found = {}
    for component in (results.get("observability") or {}).get("components") or []:
        for name, said in (component.get("aggregate") or {}).items():
            mean, unit = statistics(said).get("mean"), str((said or {}).get("units", ""))
            if mean is None:
                continue
            label = component.get("component_label", "component")
            ours = {"percent": "share", "GiB": "bytes", "MiB": "bytes", "GB": "bytes"}.get(unit, unit)
            scaled = mean * factor(unit) if ours in ("share", "bytes") else mean
            found[f"{label}.{name}"] = value(scaled, ours, None, f"{name.replace('_', ' ')} of {label}")
    return told(found)


def _new_plan(scenario: Mapping[str, Any], load: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    inputs, outputs = load.get("input_seq_len") or {}, load.get("output_seq_len") or {}
    engine = _engines(scenario)
    models = [each.get("model", {}).get("name") for each in engine]
    return sayings.plan_of(
        name=about.get("description"),
        model=next((model for model in models if model), None),
        workload=sayings.lengths(
            inputs.get("value"), outputs.get("value"), inputs.get("std_dev"), outputs.get("std_dev")
        ),
        load=sayings.load(load.get("rate_qps"), load.get("concurrency"), None)
        if load.get("rate_qps")
        else sayings.closed(load.get("concurrency")),
    )


def _engines(scenario: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = [each.get("standardized") or {} for each in scenario.get("stack") or []]
    return [part for part in parts if part.get("kind") == "inference_engine"]


def _new_environment(scenario: Mapping[str, Any]) -> dict[str, Any]:
    engines = _engines(scenario)
    first = engines[0] if engines else {}
    cards = [{**(each.get("accelerator") or {}), "count": _cards(each)} for each in engines if each.get("accelerator")]
    stack = {"parallelism": _parallelism([each.get("accelerator") or {} for each in engines])}
    stack |= {"replicas": [each.get("replicas") for each in engines] or None}
    labels = [(each.get("metadata") or {}).get("label") for each in scenario.get("stack") or []]
    return sayings.environment_of(
        engine=first.get("tool"),
        version=first.get("tool_version"),
        gpus=_gpus(cards),
        stack=told(stack | {"components": labels or None}),
    )


def _cards(engine: Mapping[str, Any]) -> int:
    return (whole((engine.get("accelerator") or {}).get("count")) or 1) * (whole(engine.get("replicas")) or 1)


def _duration_s(said: Any) -> float | None:
    """`PT49.97S`, as ISO 8601 has it, or seconds."""
    match = _DURATION.fullmatch(said) if isinstance(said, str) else None
    if match is None:
        return number(said)
    hours, minutes, seconds = (float(match[name] or 0) for name in ("h", "m", "s"))
    return 3600 * hours + 60 * minutes + seconds


def _definitions(tool: Any) -> dict[str, str]:
    """Its numbers are those of the tool it was converted from."""
    return dict.fromkeys(("ttft", "tpot", "itl", "e2e", "output_rate"), f"as {tool} defines it") if tool else {}


REPORT = Format("an llm-d benchmark report", _fits_report, _read_report)

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


def _read_treatments(source: Source) -> Found:
    return each_row(source, lambda row: _imported(row.said))


def _imported(said: Mapping[str, Any]) -> ImportedRun:
    total, failed = whole(said.get("total_requests")), whole(said.get("failures"))
    answered = None if total is None else total - (failed or 0)
    units = {name: _unit(name, said) for name in TREATMENT_TIMES}
    found: dict[str, MeasureSummary] = {}
    for name in TREATMENT_TIMES:
        found |= measure(name, _of(name, said, SECONDS[units[name]]), answered)
    for name, column in (("input_tokens", "input_len_mean"), ("output_tokens", "output_len_mean")):
        found |= measure(name, statistics({"mean": said.get(column)}), answered)
    wrong = [name for name in TREATMENT_TIMES if units[name] == "ms" and name in found]
    note = f"columns {', '.join(f'{name}_*_s' for name in wrong)} hold milliseconds of {said.get('tool')}, read as such"
    return ImportedRun(
        plan=sayings.plan_of(
            name=said.get("treatment"),
            workload=sayings.lengths(said.get("input_len_mean"), said.get("output_len_mean")),
            load=sayings.load(said.get("rate_qps"), None, None),
        ),
        measures=found,
        rates=known_rates({name: number(said.get(column)) for name, column in TREATMENT_RATES.items()}),
        answered=answered,
        failed=failed,
        definitions={name: f"as {said.get('tool')} defines it" for name in found} if said.get("tool") else {},
        notes=(note,) if wrong else (),
    )


def _of(name: str, said: Mapping[str, Any], scale: float) -> dict[str, float]:
    return statistics({each: said.get(f"{name}_{each}_s") for each in STATISTICS}, scale)


def _unit(name: str, said: Mapping[str, Any]) -> str:
    """By the tool that it comes from; of a tool that is not known, by which is usual."""
    known = WRITTEN_IN.get(str(said.get("tool")))
    mean = next((found for each in STATISTICS if (found := number(said.get(f"{name}_{each}_s")))), None)
    if known is not None:
        return known[name]
    return "s" if mean is None else nearest_unit(name, mean, ("s", "ms"))


TABLE = Format("llm-d's comparison of treatments", _fits_treatments, _read_treatments)
