"""`sglang.bench_serving --output-file`: one JSON object a line, appended by each run; its relatives write the same.

Fields: sgl-project/sglang, python/sglang/bench_serving.py. Times of the summary are milliseconds, those of
`--output-details` seconds. Where the server volunteers no usage the output length is the one that was *asked*; what
really came is in `total_output_tokens_retokenized`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from inferometer.exchange.importing import fields as sayings
from inferometer.exchange.importing.fields import each_row
from inferometer.exchange.importing.requests import NOT_CONNECTED, NOT_SCHEDULED, records_of
from inferometer.exchange.importing.source import Format, Found, ImportedRun, Source
from inferometer.exchange.importing.units import SECONDS, known_rates, measure, number, prefixed, told, value, whole
from inferometer.exchange.importing.vllm import ARRAYS, requests_of
from inferometer.record.summary import MeasureSummary, Rate, Value

TIMES = {"ttft": "_ttft_ms", "tpot": "_tpot_ms", "itl": "_itl_ms", "e2e": "_e2e_latency_ms"}
DEFINITIONS = {
    "ttft": "from just before the request is posted to the first non-empty content or reasoning",
    "tpot": "(E2E - TTFT) / (n - 1), n as asked where the server sends no usage",
    "itl": "gaps between chunks, however many tokens each brings",
    "e2e": "to the last line, [DONE] included",
    "output_rate": "tokens / time from the first send to the last answer, the drain included",
    "concurrency": "sum of E2E / duration",
    "quantiles": "linear interpolation, failed requests left out",
}
ASKED_LENGTHS = 0.01  # asked against counted: more, and numbers per token are not of what came


def is_serving(said: Mapping[str, Any]) -> bool:
    return {"completed", "duration", "mean_ttft_ms", "output_throughput"} <= said.keys() and "model_id" not in said


def _fits(source: Source) -> bool:
    return source.form != "csv" and bool(source.rows()) and is_serving(source.rows()[0].said)


def _read(source: Source) -> Found:
    return each_row(source, lambda row: imported(row.said))


def imported(said: Mapping[str, Any]) -> ImportedRun:
    answered = whole(said.get("completed"))
    detailed = all(isinstance(said.get(array), list) for array in ARRAYS)
    return ImportedRun(
        started=sayings.instant(said.get("date")),
        plan=_plan(said),
        environment=sayings.environment_of(engine=said.get("backend"), stack=_stack(said)),
        measures=measures_of(said, answered),
        rates=rates_of(said),
        values=_values(said),
        concurrency=number(said.get("concurrency")),
        answered=answered,
        duration_s=number(said.get("duration")),
        definitions=DEFINITIONS,
        records=records_of(requests_of(said)) if detailed else None,
        underivable=(*NOT_SCHEDULED, *NOT_CONNECTED),
        doubts=tuple(_asked_lengths(said)),
    )


def measures_of(said: Mapping[str, Any], count: int | None) -> dict[str, MeasureSummary]:
    found: dict[str, MeasureSummary] = {}
    for name, ending in TIMES.items():
        found |= measure(name, prefixed(said, ending, SECONDS["ms"]), count)
    for name, total in (("input_tokens", number(said.get("total_input_tokens"))), ("output_tokens", _came(said))):
        if total is not None and count:
            found |= measure(name, {"mean": total / count}, count)
    return found


def _came(said: Mapping[str, Any]) -> float | None:
    """Output tokens that came: counted again where that was done, never those that were asked."""
    again = number(said.get("total_output_tokens_retokenized"))
    return again if again else number(said.get("total_output_tokens"))


def rates_of(said: Mapping[str, Any]) -> dict[str, Rate]:
    """Rates of tokens that came: the tool's own output rate is of those that were asked."""
    duration, came = number(said.get("duration")), _came(said)
    output = came / duration if came is not None and duration else number(said.get("output_throughput"))
    inputs = number(said.get("input_throughput"))
    total = inputs + output if inputs is not None and output is not None else None
    rates = {"request_rate": number(said.get("request_throughput")), "input_rate": inputs, "output_rate": output}
    return known_rates(rates | {"total_rate": total})


def _asked_lengths(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    asked, came = number(said.get("total_output_tokens")), _came(said)
    if asked and came is not None and abs(came / asked - 1) > ASKED_LENGTHS:
        text = f"Its TPOT counts {asked:,.0f} output tokens, but {came:,.0f} were counted in the answers"
        yield "asked_lengths", f"{text}: the tool takes the length that was asked where the server reports none."


def _values(said: Mapping[str, Any]) -> dict[str, Value]:
    accepted = number(said.get("accept_length"))
    return told({"accept_length": value(accepted, "tokens", "higher", "Speculated tokens accepted per step")})


def _plan(said: Mapping[str, Any]) -> dict[str, Any]:
    name = said.get("dataset_name")
    drawn = name in sayings.MADE_UP
    lengths = sayings.lengths(said.get("random_input_len"), said.get("random_output_len")) if drawn else None
    requests = whole(said.get("num_prompts"))
    return sayings.plan_of(
        model=said.get("model") or (said.get("server_info") or {}).get("model_path"),
        workload=lengths or sayings.dataset(name),
        load=sayings.load(said.get("request_rate"), said.get("max_concurrency"), requests or whole(said["completed"])),
        requests=requests,
    )


def _stack(said: Mapping[str, Any]) -> dict[str, Any] | None:
    ratio = number(said.get("random_range_ratio"))
    return {"random_range_ratio": ratio} if ratio is not None and said.get("dataset_name") in sayings.MADE_UP else None


SERVING = Format("sglang bench_serving", _fits, _read)
