"""The tools by name, and a run's records under one of them, next to our own numbers."""

from collections.abc import Mapping

import msgspec

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
_OUR_STATISTICS = {"median": "p50", "avg": "mean", "std_dev": "std"}


class TranslatedNumber(msgspec.Struct, frozen=True):
    """What a number of the tool is, and why ours is another."""

    name: str  # as the tool's users call it
    field: str
    unit: str
    our_measure: str | None
    definition: str
    why: str


class TranslatedMeasure(TranslatedNumber, frozen=True):
    count: int
    theirs: dict[str, float | None]  # by the tool's own words
    ours: dict[str, float | None] | None


class TranslatedValue(TranslatedNumber, frozen=True):
    theirs: float | None
    ours: float | None


class CountedRequests(msgspec.Struct, frozen=True):
    successful: int
    all: int


class Translation(msgspec.Struct, frozen=True):
    """A run under another tool's definitions, in seconds; missing is None. Its JSON is that of `show --as`."""

    tool: str
    title: str
    source: str
    remark: str
    requests: CountedRequests
    duration_s: float
    measures: list[TranslatedMeasure]
    values: list[TranslatedValue]


def tool_named(name: str) -> Tool:
    if name not in TOOLS:
        raise PlanError(f"the definitions of {name!r} are not known", f"there are {', '.join(TOOLS)}")
    tool: Tool = attribute_at(TOOLS[name])
    return tool


def translated(tool: Tool, seen: Seen, summary: Summary) -> Translation:
    """Every number of the tool and ours next to it."""
    ours = quantities(summary)
    return Translation(
        tool=tool.name,
        title=tool.title,
        source=tool.source,
        remark=tool.remark,
        requests=CountedRequests(len(seen.good), len(seen.every)),
        duration_s=seen.duration_s,
        measures=[_spread(tool, number, seen, ours) for number in tool.spreads],
        values=[_figure(number, seen, ours) for number in tool.figures],
    )


def statistics(tool: Tool, spread: Spread, seen: Seen) -> dict[str, float | None]:
    """By the tool's own words, in seconds."""
    return _statistics(tool, spread.series(seen))


def _statistics(tool: Tool, series: Some) -> dict[str, float | None]:
    return {name: statistic(series, name, share, tool.quantile) for name, share in tool.statistics.items()}


def fields(tool: Tool, seen: Seen) -> dict[str, float | None]:
    """Under the names and in the units of the tool's own result."""
    values: dict[str, float | None] = {}
    for spread in tool.spreads:
        for name, value in statistics(tool, spread, seen).items():
            values[spread.field.format(name)] = None if value is None else value * spread.scale
    return values | {figure.field: figure.value(seen) for figure in tool.figures}


def our_statistic(name: str) -> str:
    """`median` is our `p50`, `99.00` our `p99`."""
    if name[0].isdigit():
        return f"p{float(name):g}"
    return _OUR_STATISTICS.get(name, name)


def _spread(tool: Tool, spread: Spread, seen: Seen, ours: Mapping[str, Quantity]) -> TranslatedMeasure:
    series = spread.series(seen)
    theirs = _statistics(tool, series)
    our_values = {name: _value(ours, f"{spread.ours}.{our_statistic(name)}") for name in theirs} if spread.ours else {}
    count = series.weight if isinstance(series, Tally) else len(series)
    return TranslatedMeasure(*_definition(spread), count, theirs, our_values or None)


def _figure(figure: Figure, seen: Seen, ours: Mapping[str, Quantity]) -> TranslatedValue:
    return TranslatedValue(*_definition(figure), figure.value(seen), _value(ours, figure.ours or ""))


def _definition(number: Spread | Figure) -> tuple[str, str, str, str | None, str, str]:
    return number.name, number.field, number.unit, number.ours, number.definition, number.why


def _value(ours: Mapping[str, Quantity], key: str) -> float | None:
    quantity = ours.get(key)
    return None if quantity is None else quantity.value
