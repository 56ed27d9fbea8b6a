"""The list of charts: a name, what it shows, what it is made of and where its code is. A chart is added here and in no
other place."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from inferometer.errors import PlanError
from inferometer.record.run import Run
from inferometer.show.charts.chart import Absent, Cannot, Chart, Spec
from inferometer.show.charts.rendering import render_png
from inferometer.show.charts.subject import Subject
from inferometer.vocabulary import attribute_at

# -- registry --------------------------------------------------------------------------------------------------------

Of = Literal["run", "runs", "comparison", "history", "experiment"]


class Definition(NamedTuple):
    """`where` is a function from what the chart is made of to a specification; it raises `Cannot` where that lacks
    something."""

    where: str
    title: str
    of: Of
    needs: str


_HERE = "inferometer.show.charts"
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}


def _of_run(module: str, title: str, needs: str = "records") -> Definition:
    return Definition(f"{_HERE}.{module}", title, "run", needs)


def _of_runs(module: str, title: str, needs: str = "two runs or more") -> Definition:
    return Definition(f"{_HERE}.{module}", title, "runs", needs)


CHARTS: dict[str, Definition] = {
    **{
        f"{name}_cdf": _of_run(f"distributions:{name}_cdf", f"{word}: share of requests that were at least this fast")
        for name, word in _LATENCIES.items()
        if name != "itl"
    },
    "itl_cdf": _of_run("distributions:itl_cdf", "ITL: share of tokens that came at least this fast"),
    **{
        f"{name}_histogram": _of_run(f"distributions:{name}_histogram", f"{word}: how often it took how long")
        for name, word in _LATENCIES.items()
    },
    "ttft_by_input": _of_run("distributions:ttft_by_input", "TTFT against the length of the input"),
    "e2e_by_output": _of_run("distributions:e2e_by_output", "E2E against the length of the output"),
    "throughput_latency": _of_run("timelines:throughput_latency", "TTFT against requests completed per second"),
    "latency_over_time": _of_run("timelines:latency_over_time", "TTFT over the time of the run"),
    "tokens_over_time": _of_run("timelines:tokens_over_time", "Tokens per second over the time of the run"),
    "in_flight": _of_run("timelines:in_flight", "Requests in flight and waiting over the time of the run"),
    "requests": _of_run("lanes:requests", "Requests side by side: waiting, first token, last token"),
    "under_one_clock": _of_run("timelines:under_one_clock", "Load, server and GPU under the same clock", "samples"),
    "startup_phases": _of_run("startup:startup_phases", "What the start took its time for", "startup phases"),
    "batch_latency": _of_run("batches:batch_latency", "Latency of a batch against its size", "batch sizes"),
    "latency_by_rate": _of_runs("trade_offs:latency_by_rate", "TTFT against the rate that was offered"),
    "throughput_by_user_speed": _of_runs(
        "trade_offs:throughput_by_user_speed", "Tokens per second and GPU against the speed of one user"
    ),
    "cost_by_user_speed": _of_runs(
        "trade_offs:cost_by_user_speed", "Cost of a million tokens against the speed of one user", "runs with a price"
    ),
    "pareto": _of_runs("trade_offs:pareto", "Pareto front: no other run is better in both"),
    "ttft_cdfs": _of_runs("distributions:ttft_cdfs", "TTFT of several runs, one over the other", "records of two runs"),
    "e2e_cdfs": _of_runs("distributions:e2e_cdfs", "E2E of several runs, one over the other", "records of two runs"),
    "startups": _of_runs("startup:startups", "Phases of several starts, side by side", "two runs with startup phases"),
    "comparison": Definition(
        f"{_HERE}.differences:comparison", "What changed, with its interval", "comparison", "a comparison"
    ),
    "history": Definition(f"{_HERE}.history:history", "A measure over time, with where it changed", "history", "runs"),
    "experiment_curves": Definition(
        f"{_HERE}.experiments:experiment_curves", "A measure against what was varied", "experiment", "a numeric axis"
    ),
    "experiment_grid": Definition(
        f"{_HERE}.experiments:experiment_grid", "A measure over two things that were varied", "experiment", "two axes"
    ),
}


def charts_of(run: Run) -> list[Chart]:
    """Every chart that this run can give."""
    return gallery("run", Subject(run))[0]


def charts_of_runs(runs: Sequence[Run]) -> list[Chart]:
    """Every chart that shows these runs together."""
    return gallery("runs", list(runs))[0]


def gallery(of: Of, thing: Any) -> tuple[list[Chart], list[Absent]]:
    """All charts of a kind of thing, and those that it cannot give, with why."""
    made: list[Chart] = []
    absent: list[Absent] = []
    for name, definition in CHARTS.items():
        if definition.of != of:
            continue
        try:
            made.append(draw(name, thing))
        except Cannot as lacking:
            absent.append(Absent(name, definition.title, str(lacking)))
    return made, absent


def draw(name: str, thing: Any) -> Chart:
    """One chart by its name; of a run, of several, of a comparison, history or experiment, as its definition says."""
    definition = definition_of(name)
    thing = Subject(thing) if isinstance(thing, Run) else thing
    spec = _function(definition.where)(thing)
    title = spec["title"]["text"]
    return Chart(name, title, spec)


def definition_of(name: str) -> Definition:
    if name not in CHARTS:
        raise PlanError(f"no chart {name!r}", f"there are {', '.join(CHARTS)}")
    return CHARTS[name]


def _function(where: str) -> Callable[[Any], Spec]:
    function: Callable[[Any], Spec] = attribute_at(where)
    return function


# -- pictures --------------------------------------------------------------------------------------------------------


def throughput_latency_png(run: Run) -> bytes | None:
    """None where no request was answered: there is nothing to draw."""
    try:
        return render_png(draw("throughput_latency", run).spec)
    except Cannot:
        return None
