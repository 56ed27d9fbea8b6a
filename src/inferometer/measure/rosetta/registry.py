"""The tools by name, and a run's records under one of them as plain data, beside our own numbers."""

from collections.abc import Mapping
from typing import Any

from inferometer.errors import PlanError
from inferometer.measure.rosetta.definition import Figure, Seen, Some, Spread, Tool, statistic
from inferometer.measure.tally import Tally
from inferometer.measure.values import Quantity, quantities
from inferometer.record.summary import Summary
from inferometer.vocabulary import attribute_at

_HERE = "inferometer.measure.rosetta"
TOOLS: dict[str, str] = {
    "vllm": f"{_HERE}.vllm:TOOL",
    "sglang": f"{_HERE}.sglang:TOOL",
    "guidellm": f"{_HERE}.guidellm:TOOL",
    "inference-perf": f"{_HERE}.inference_perf:TOOL",
    "aiperf": f"{_HERE}.aiperf:TOOL",
    "mlperf": f"{_HERE}.mlperf:TOOL",
}
_OUR_WORDS = {"median": "p50", "avg": "mean", "std_dev": "std"}


def tool_named(name: str) -> Tool:
    if name not in TOOLS:
        raise PlanError(f"no tool {name!r} whose definitions we know", f"there are {', '.join(TOOLS)}")
    tool: Tool = attribute_at(TOOLS[name])
    return tool


def translated(tool: Tool, seen: Seen, summary: Summary) -> dict[str, Any]:
    """Every number of the tool with ours beside it, in seconds; missing is None."""
    ours = quantities(summary)
    return {
        "tool": tool.name,
        "title": tool.title,
        "source": tool.source,
        "remark": tool.remark,
        "requests": {"successful": len(seen.good), "all": len(seen.every)},
        "duration_s": seen.duration_s,
        "measures": [_spread(tool, each, seen, ours) for each in tool.spreads],
        "values": [_figure(each, seen, ours) for each in tool.figures],
    }


def statistics(tool: Tool, spread: Spread, seen: Seen) -> dict[str, float | None]:
    """By the tool's own words, in seconds."""
    return _statistics(tool, spread.series(seen))


def _statistics(tool: Tool, series: Some) -> dict[str, float | None]:
    return {word: statistic(series, word, share, tool.quantile) for word, share in tool.statistics.items()}


def fields(tool: Tool, seen: Seen) -> dict[str, float | None]:
    """Under the names and in the units of the tool's own result."""
    found: dict[str, float | None] = {}
    for spread in tool.spreads:
        for word, value in statistics(tool, spread, seen).items():
            found[spread.field.format(word)] = None if value is None else value * spread.scale
    return found | {figure.field: figure.value(seen) for figure in tool.figures}


def our_word(word: str) -> str:
    """`median` is our `p50`, `99.00` our `p99`."""
    if word[0].isdigit():
        return f"p{float(word):g}"
    return _OUR_WORDS.get(word, word)


def _spread(tool: Tool, spread: Spread, seen: Seen, ours: Mapping[str, Quantity]) -> dict[str, Any]:
    series = spread.series(seen)
    theirs = _statistics(tool, series)
    beside = {word: _value(ours, f"{spread.ours}.{our_word(word)}") for word in theirs} if spread.ours else {}
    return {
        **_said(spread),
        "count": series.weight if isinstance(series, Tally) else len(series),
        "theirs": theirs,
        "ours": beside or None,
    }


def _figure(figure: Figure, seen: Seen, ours: Mapping[str, Quantity]) -> dict[str, Any]:
    return {**_said(figure), "theirs": figure.value(seen), "ours": _value(ours, figure.ours or "")}


def _said(each: Spread | Figure) -> dict[str, Any]:
    about = {"name": each.name, "field": each.field, "unit": each.unit, "our_measure": each.ours}
    return about | {"definition": each.definition, "why": each.why}


def _value(ours: Mapping[str, Quantity], key: str) -> float | None:
    found = ours.get(key)
    return None if found is None else found.value
