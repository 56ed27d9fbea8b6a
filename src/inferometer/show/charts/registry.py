"""The list of charts: a name, what it shows, its input and the location of its code; and specifications as pictures. To
add a chart, only this list needs a new line."""

import copy
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple

from inferometer.errors import MissingExtra, PlanError
from inferometer.record.files import write_text
from inferometer.record.run import Run
from inferometer.show.charts.chart import INK, Absent, Cannot, Chart, ChartedRun, Spec, Theme, config
from inferometer.vocabulary import attribute_at
from inferometer.workload.cache import cached_path

# -- rendering -------------------------------------------------------------------------------------------------------

VEGA_LITE = "6.4"
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # an identifier: nothing is fetched from there
PIXELS = 2.0  # of the picture per pixel of the chart: sharp on today's screens


def render_png(spec: Spec, theme: Theme = "light", scale: float = PIXELS) -> bytes:
    made: bytes = _converter().vegalite_to_png(_dressed(spec, theme), vl_version=VEGA_LITE, scale=scale)
    return made


def render_svg(spec: Spec, theme: Theme = "light") -> str:
    made: str = _converter().vegalite_to_svg(_dressed(spec, theme), vl_version=VEGA_LITE)
    return made


def svg_as_png(picture: str, scale: float = PIXELS) -> bytes:
    made: bytes = _converter().svg_to_png(picture, scale=scale)
    return made


def _dressed(spec: Spec, theme: Theme) -> Spec:
    """With the theme's colours; a picture has a background, because it may be pasted anywhere."""
    looks = config(theme) | {"background": INK[theme]["page"], "padding": 12}
    return {"$schema": SCHEMA, **copy.deepcopy(spec), "config": looks}


def vega_bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script that defines `vegaEmbed` on the window. Building it takes seconds,
    so it is cached, once for each version."""
    converter = _converter()
    versions = (converter.__version__, VEGA_LITE)
    kept = cached_path("charts", "vega.js", *versions)
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    bundle = embeddable(converter.javascript_bundle(vl_version=VEGA_LITE))
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, bundle)
    except Exception:  # without a writable cache it takes seconds longer, but works
        return bundle
    return bundle


def embeddable(script: str) -> str:
    """A script that can be embedded in a page: nothing in it ends or opens a script element."""
    return script.replace("</script", "<\\/script").replace("<script", "\\x3cscript").replace("<!--", "\\x3c!--")


def has_charts() -> bool:
    """Whether the extra is installed."""
    try:
        _converter()
    except MissingExtra:
        return False
    return True


def _converter() -> Any:
    try:
        return import_module("vl_convert")
    except ImportError:
        raise MissingExtra("a chart", "charts") from None


# -- sheet -----------------------------------------------------------------------------------------------------------

COLUMNS = 2
_OPENING = re.compile(r"<svg[^>]*?>", re.DOTALL)
_SIZE = re.compile(r'\b(width|height)="([0-9.]+)')
_IDS = re.compile(r'(id="|url\(#|href="#)')


def contact_sheet(charts: Sequence[Chart], theme: Theme = "light", columns: int = COLUMNS, scale: float = 1.5) -> bytes:
    """As PNG; each chart is placed in the shortest column."""
    pictures = [render_svg(chart.spec, theme) for chart in charts]
    sizes = [size_of(picture) for picture in pictures]
    width = max(size[0] for size in sizes)
    bottoms = [0.0] * max(1, min(columns, len(charts)))
    placed = []
    for at, (picture, (_, height)) in enumerate(zip(pictures, sizes, strict=True)):
        column = bottoms.index(min(bottoms))
        placed.append(f'<g transform="translate({column * width},{bottoms[column]})">{_with_own_ids(picture, at)}</g>')
        bottoms[column] += height
    size = f'width="{width * len(bottoms):.0f}" height="{max(bottoms):.0f}"'
    ground = f'<rect width="100%" height="100%" fill="{INK[theme]["page"]}"/>'
    return svg_as_png(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{ground}{"".join(placed)}</svg>', scale)


def size_of(picture: str) -> tuple[float, float]:
    """Width and height in pixels, from its first element."""
    opening = _OPENING.search(picture)
    size = dict(_SIZE.findall(opening[0])) if opening else {}
    return float(size.get("width", 0)), float(size.get("height", 0))


def _with_own_ids(picture: str, at: int) -> str:
    """All charts use the same names for clip paths."""
    return _IDS.sub(rf"\g<1>c{at}-", picture)


# -- registry --------------------------------------------------------------------------------------------------------

Of = Literal["run", "runs", "comparison", "history", "experiment"]


class Definition(NamedTuple):
    """`where` is a function from the chart's input to a specification; it raises `Cannot` if the input lacks
    something."""

    where: str
    title: str
    of: Of
    needs: str


_HERE = "inferometer.show.charts"
FLEET = "samples of a routed fleet"
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}


def _of_run(module: str, title: str, needs: str = "records") -> Definition:
    return Definition(f"{_HERE}.{module}", title, "run", needs)


def _of_runs(module: str, title: str, needs: str = "at least two runs") -> Definition:
    return Definition(f"{_HERE}.{module}", title, "runs", needs)


CHARTS: dict[str, Definition] = {
    **{
        f"{name}_cdf": _of_run(f"distributions:{name}_cdf", f"{label}: share of requests that were at least this fast")
        for name, label in _LATENCIES.items()
        if name != "itl"
    },
    "itl_cdf": _of_run("distributions:itl_cdf", "ITL: share of tokens that came at least this fast"),
    **{
        f"{name}_histogram": _of_run(f"distributions:{name}_histogram", f"{label}: histogram")
        for name, label in _LATENCIES.items()
    },
    "ttft_by_input": _of_run("distributions:ttft_by_input", "TTFT by input length"),
    "e2e_by_output": _of_run("distributions:e2e_by_output", "E2E by output length"),
    "throughput_latency": _of_run("timelines:throughput_latency", "TTFT by request throughput"),
    "latency_over_time": _of_run("timelines:latency_over_time", "TTFT over time"),
    "tokens_over_time": _of_run("timelines:tokens_over_time", "Tokens per second over time"),
    "in_flight": _of_run("timelines:in_flight", "Requests in flight and waiting over time"),
    "requests": _of_run("timelines:requests", "Timeline of requests: waiting, first token, last token"),
    "under_one_clock": _of_run("timelines:under_one_clock", "Load, server and GPU on one time axis", "samples"),
    "startup_phases": _of_run("engine:startup_phases", "Startup time by phase", "startup phases"),
    "batch_latency": _of_run("engine:batch_latency", "Batch latency by batch size", "batch sizes"),
    "replica_load": _of_run("routing:replica_load", "Requests at every replica over time", FLEET),
    "prefix_match_rate": _of_run("routing:prefix_match_rate", "Prefix match rate over time", FLEET),
    "regret_over_time": _of_run("routing:regret_over_time", "Cached tokens of a prompt over time", FLEET),
    "tree_against_cache": _of_run("routing:tree_against_cache", "Tree of the router against the caches", FLEET),
    "cache_hits": _of_run("routing:cache_hits", "Prefix cache hits of every replica over time", FLEET),
    "server_times": _of_run("routing:server_times", "Times in the servers over time", FLEET),
    "search_overhead": _of_run("routing:search_overhead", "Time to choose a replica", FLEET),
    "routing_phases": _of_run("routing:routing_phases", "Routing time of a request by phase", FLEET),
    "routing_decisions": _of_run("routing:routing_decisions", "Decisions of the router", FLEET),
    "latency_by_rate": _of_runs("trade_offs:latency_by_rate", "TTFT by offered rate"),
    "throughput_by_user_speed": _of_runs(
        "trade_offs:throughput_by_user_speed", "Tokens per second and GPU by interactivity"
    ),
    "cost_by_user_speed": _of_runs(
        "trade_offs:cost_by_user_speed", "Cost of a million tokens by interactivity", "runs with a price"
    ),
    "pareto": _of_runs("trade_offs:pareto", "Pareto front: no other run is better in both"),
    "ttft_cdfs": _of_runs("distributions:ttft_cdfs", "TTFT of several runs, overlaid", "records of two runs"),
    "e2e_cdfs": _of_runs("distributions:e2e_cdfs", "E2E of several runs, overlaid", "records of two runs"),
    "startups": _of_runs(
        "engine:startups", "Startup phases of several runs, side by side", "two runs with startup phases"
    ),
    "request_lifecycle": _of_runs(
        "comparisons:request_lifecycle", "Where a request spends its time", "runs with server metrics"
    ),
    "comparison": Definition(
        f"{_HERE}.comparisons:comparison", "Changes with confidence intervals", "comparison", "a comparison"
    ),
    "history": Definition(f"{_HERE}.history:history", "A measure over time, with change points", "history", "runs"),
    "experiment_curves": Definition(
        f"{_HERE}.experiments:experiment_curves", "A measure by a varied setting", "experiment", "a numeric axis"
    ),
    "search_curve": Definition(
        f"{_HERE}.experiments:search_curve", "A limited measure at the loads of a search", "experiment", "a search"
    ),
    "experiment_grid": Definition(
        f"{_HERE}.experiments:experiment_grid", "A measure by two varied settings", "experiment", "two axes"
    ),
    "strategy_bars": Definition(
        f"{_HERE}.comparisons:strategy_bars", "Strategies side by side", "experiment", "at least two strategies"
    ),
    "ratio_to_baseline": Definition(
        f"{_HERE}.comparisons:ratio_to_baseline", "Ratio to the first strategy", "experiment", "at least two strategies"
    ),
    "routing_map": Definition(
        f"{_HERE}.comparisons:routing_map", "Which strategy wins where", "experiment", "two numeric axes and strategies"
    ),
}
STRATEGIES = ("strategy_bars", "ratio_to_baseline")  # one of each per experiment, whatever the measure


def charts_of(run: Run) -> list[Chart]:
    """Every chart possible for this run."""
    return gallery("run", ChartedRun(run))[0]


def charts_of_runs(runs: Sequence[Run]) -> list[Chart]:
    """Every chart that shows these runs together."""
    return gallery("runs", list(runs))[0]


def gallery(of: Of, thing: Any) -> tuple[list[Chart], list[Absent]]:
    """All charts for a kind of input, and those not possible, with the reasons."""
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
    """One chart by its name; of a run, several runs, a comparison, a history or an experiment, depending on its
    definition."""
    definition = definition_of(name)
    thing = ChartedRun(thing) if isinstance(thing, Run) else thing
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
    """None if no request was answered: there is nothing to draw."""
    try:
        return render_png(draw("throughput_latency", run).spec)
    except Cannot:
        return None
