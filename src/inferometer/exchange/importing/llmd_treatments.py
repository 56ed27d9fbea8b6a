"""llm-d's `treatment_comparison.csv`: one treatment a line. Its columns end in `_s`, but their numbers are copied from
reports without a look at the unit: those of vllm-benchmark, inferencemax and guidellm are milliseconds.

Columns: llm-d/llm-d-benchmark, llmdbenchmark/analysis/cross_treatment.py.
"""

from collections.abc import Mapping
from typing import Any

from inferometer.exchange.importing import sayings
from inferometer.exchange.importing.found import Format, Found, ImportedRun, Source
from inferometer.exchange.importing.rows import each_row
from inferometer.exchange.importing.units import SECONDS, measure, nearest_unit, number, statistics, told, whole

TIMES = ("ttft", "tpot", "itl", "e2e")
STATISTICS = ("mean", "p50", "p99")
WRITTEN_IN: dict[str, dict[str, str]] = {  # what converters of each tool write into reports of version 0.2
    "vllm-benchmark": dict.fromkeys(TIMES, "ms"),
    "inferencemax": dict.fromkeys(TIMES, "ms"),
    "guidellm": {**dict.fromkeys(TIMES, "ms"), "e2e": "s"},
    "inference-perf": dict.fromkeys(TIMES, "s"),
    "aiperf": dict.fromkeys(TIMES, "s"),
}
RATES = {"request_rate": "request_qps", "output_rate": "output_tps", "total_rate": "total_tps"}


def _fits(source: Source) -> bool:
    return {"treatment", "ttft_mean_s", "output_tps"} <= set(source.columns())


def _read(source: Source) -> Found:
    return each_row(source, lambda row: _imported(row.said))


def _imported(said: Mapping[str, Any]) -> ImportedRun:
    total, failed = whole(said.get("total_requests")), whole(said.get("failures"))
    answered = None if total is None else total - (failed or 0)
    units = {name: _unit(name, said) for name in TIMES}
    found: dict[str, dict[str, Any]] = {}
    for name in TIMES:
        found |= measure(name, _of(name, said, SECONDS[units[name]]), answered)
    for name, column in (("input_tokens", "input_len_mean"), ("output_tokens", "output_len_mean")):
        found |= measure(name, statistics({"mean": said.get(column)}), answered)
    wrong = [name for name in TIMES if units[name] == "ms" and name in found]
    note = f"columns {', '.join(f'{name}_*_s' for name in wrong)} hold milliseconds of {said.get('tool')}, read as such"
    return ImportedRun(
        plan=sayings.plan_of(
            name=said.get("treatment"),
            workload=sayings.lengths(said.get("input_len_mean"), said.get("output_len_mean")),
            load=sayings.load(said.get("rate_qps"), None, None),
        ),
        measures=found,
        rates=told({name: number(said.get(column)) for name, column in RATES.items()}),
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


TABLE = Format("llm-d's comparison of treatments", _fits, _read)
