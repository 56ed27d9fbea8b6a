"""Which format a file has, by its content; and what a file that has none looks like."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from inferometer.errors import DataError
from inferometer.exchange.importing.found import Format, Source

_HERE = "inferometer.exchange.importing"
FORMATS: dict[str, str] = {
    "vllm-bench-serve": f"{_HERE}.vllm_bench:SERVE",
    "vllm-bench-latency": f"{_HERE}.vllm_offline:LATENCY",
    "vllm-bench-throughput": f"{_HERE}.vllm_offline:THROUGHPUT",
    "vllm-bench-startup": f"{_HERE}.vllm_offline:STARTUP",
    "sglang-bench-serving": f"{_HERE}.sglang:SERVING",
    "guidellm": f"{_HERE}.guidellm:REPORT",
    "inference-perf": f"{_HERE}.inference_perf:LIFECYCLE",
    "inference-perf-requests": f"{_HERE}.inference_perf:REQUESTS",
    "aiperf": f"{_HERE}.aiperf:AIPERF",
    "aiperf-requests": f"{_HERE}.aiperf:REQUESTS",
    "genai-perf": f"{_HERE}.aiperf:GENAI_PERF",
    "genai-bench": f"{_HERE}.genai_bench:RUN",
    "fmperf": f"{_HERE}.fmperf:TABLE",
    "llmperf": f"{_HERE}.llmperf:SUMMARY",
    "llmperf-responses": f"{_HERE}.llmperf:RESPONSES",
    "mlperf": f"{_HERE}.mlperf:SUMMARY",
    "llm-d-report": f"{_HERE}.llmd_report:REPORT",
    "llm-d-treatments": f"{_HERE}.llmd_treatments:TABLE",
    "ci-bench-latency": f"{_HERE}.ci_bench:LATENCY",
    "ci-bench-online": f"{_HERE}.ci_bench:ONLINE",
    "ci-bench-concurrency": f"{_HERE}.ci_bench:CONCURRENCY",
    "ray-serve-sweep": f"{_HERE}.ray_sweep:SERVE",
    "ray-vllm-sweep": f"{_HERE}.ray_sweep:ENGINE",
    "nm-vllm": f"{_HERE}.nm_vllm:RESULT",
    "inferx": f"{_HERE}.inferx:METRICS",
}
MOST_KEYS = 8


class BesideError(DataError):
    """The file is no result, but belongs to one."""


def format_named(name: str) -> Format:
    if name not in FORMATS:
        raise DataError(f"there is no format {name!r}", f"there are {', '.join(FORMATS)}")
    return _loaded(name)


@cache
def _loaded(name: str) -> Format:
    module, _, attribute = FORMATS[name].partition(":")
    found: Format = getattr(import_module(module), attribute)
    return found


def recognise(source: Source) -> str:
    """The name of the format; a file that has none of them is refused with what it looks like."""
    for name in FORMATS:
        if _fits(_loaded(name), source):
            return name
    what, hint = looks_like(source)
    if hint == _BESIDE:
        raise BesideError(f"{source.name}: {what}", hint)
    raise DataError(f"{source.name}: {what}, which is no result that is known here", hint)


def _fits(each: Format, source: Source) -> bool:
    """A file may hold anything: one that has other things than a format expects is not of that format."""
    try:
        return each.fits(source)
    except (ArithmeticError, AttributeError, DataError, LookupError, TypeError, ValueError):
        return False


def looks_like(source: Source) -> tuple[str, str]:
    """What a foreign file is, as far as its content tells, and what to do with it."""
    known = next(((what, hint) for fits, what, hint in _FOREIGN if fits(source)), None)
    every = f"there are {', '.join(FORMATS)}; --format names one"
    return known if known is not None else (_shape(source), every)


def _shape(source: Source) -> str:
    match source.form:
        case "csv":
            columns = source.columns()
            unread = (
                f"a table whose rows cannot be read ({source.broken[0]})" if source.broken else "a table without rows"
            )
            return f"a table with the columns {_some(columns)}" if columns else unread
        case "text":
            return f"text that begins with {source.value.strip().splitlines()[0][:60]!r}"
        case _ if isinstance(source.value, Mapping):
            return f"{source.form.upper()} with the keys {_some(source.value)}"
    rows = source.rows()
    if rows:
        return f"{source.form.upper()}, a list of objects with the keys {_some(rows[0].said)}"
    return "a list" if isinstance(source.value, list) else f"{source.form.upper()} that holds only {source.value!r:.60}"


def _some(names: Any) -> str:
    listed = [str(name) for name in names]
    rest = len(listed) - MOST_KEYS
    return ", ".join(listed[:MOST_KEYS]) + (f" and {rest} more" if rest > 0 else "")


def _keys(source: Source) -> set[str]:
    rows = source.rows()
    return set(map(str, rows[0].said)) if rows else set()


def _is_ours(source: Source) -> bool:
    return str(source.mapping().get("schema", "")).startswith("inferometer/")


def _is_prometheus(source: Source) -> bool:
    return source.form == "text" and source.value.lstrip().startswith(("# HELP", "# TYPE"))


_BESIDE = "it is read with the result beside it: give the folder, or that result"
_FOREIGN = (
    (_is_ours, "a file of an Inferometer run", "give the run's folder to inferometer show"),
    (_is_prometheus, "metrics of a server in Prometheus' text", "they are no result of a benchmark"),
    (lambda s: "conversations" in _keys(s), "conversations in ShareGPT's schema", "send them: workload.path"),
    (lambda s: {"timestamp", "input_length", "output_length"} <= _keys(s), "a trace", "replay it: workload.path"),
    (lambda s: {"TIMESTAMP", "ContextTokens"} <= _keys(s), "a trace of Azure's", "replay it: workload.path"),
    (lambda s: {"ts", "mem_used_mb"} <= _keys(s), "InferX's gpu_memory.csv", _BESIDE),
    (lambda s: "traffic_scenario" in s.mapping(), "the metadata of a genai-bench experiment", _BESIDE),
    (
        lambda s: s.mapping().get("load_summary") == {} and "successes" in s.mapping(),
        "server-side metrics of inference-perf",
        _BESIDE,
    ),
    (lambda s: {"$defs", "properties"} <= set(s.mapping()), "a JSON schema", "give a result that is written by it"),
    (lambda s: {"workload", "load"} & set(s.mapping()), "a plan", "run it: inferometer run FILE"),
    (lambda s: {"object", "data"} == set(s.mapping()), "a server's list of models", "it is no result of a benchmark"),
    (lambda s: set(s.mapping()) == {"error"}, "a server's error", "it is no result of a benchmark"),
)
