"""A routed fleet over the time of a run: load and match rate of every replica, the router's memory compared with the
caches, its decisions, and their cost. The charts of Ray's prefix-aware benchmark."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from inferometer.errors import InferometerError
from inferometer.measure.server import (
    ByReplica,
    Decisions,
    all_series,
    cached_by_replica,
    decisions_of,
    is_server,
    load_by_replica,
    router_series,
    server_series,
)
from inferometer.record.columns import Floats, Ints
from inferometer.record.run import Run
from inferometer.router.policies.prefix import CacheAwareSettings, PrefixAwareSettings
from inferometer.router.policy import checked_settings
from inferometer.show.charts.chart import (
    Cannot,
    ChartedRun,
    ChartRow,
    Spec,
    colours,
    scale_of,
    tip,
    titled,
    toggled,
    tooltip,
    view,
    with_unit,
    x,
    y,
)
from inferometer.show.charts.distributions import thinned
from inferometer.show.charts.timelines import window_marks
from inferometer.vocabulary import duration_text, number_text, percent_text

POINTS = 1500  # in all series of a chart together
WINDOW_S = 5.0  # averaging window for the times of the servers
CHARS_PER_TOKEN = 4  # factor by which Ray's benchmark converts characters of the tree into tokens
FAR = 3  # times the largest tree: a line beyond that would squeeze the trees to the bottom
MEAN = "mean of all"
BUSY = 5  # requests at a replica: Ray's benchmark averages over the time above it
MOVING = "moving mean"
TIME = "time since the start (s)"


def replica_load(subject: ChartedRun) -> Spec:
    """Requests at every replica, and their mean."""
    series = load_by_replica(subject.samples)
    if len(series) < 2:
        raise Cannot("it needs the load of at least two replicas")
    at, mean = _mean(series)
    busy = mean[mean > BUSY]
    average = f"; {number_text(float(busy.mean()))} on average while the mean is above {BUSY}" if len(busy) else ""
    title = titled("Requests at every replica over time", f"as counted by the router: sent and not finished{average}")
    return _lines(subject, title, {**series, MEAN: (at, mean)}, "requests")


def _mean(series: ByReplica) -> tuple[Ints, Floats]:
    at = next(iter(series.values()))[0]
    columns = [np.interp(at, own, values) for own, values in series.values()]
    return at, np.mean(columns, axis=0)


def prefix_match_rate(subject: ChartedRun) -> Spec:
    """A point for every request, and a moving mean over all of them."""
    decisions = _decisions(subject)
    if not decisions.match_rate.any():
        raise Cannot("the policy does not look at prefixes")
    at, chosen = (
        subject.seconds(decisions.at),
        np.linspace(0, len(decisions) - 1, min(len(decisions), 1200)).astype(int),
    )
    rows: list[ChartRow] = [
        {"at": float(at[i]), "rate": 100 * float(decisions.match_rate[i]), "series": decisions.replica[i]}
        for i in chosen
    ]
    width = max(len(decisions) // 40, 5)
    moving = np.convolve(decisions.match_rate, np.ones(width) / width, mode="valid")
    places = np.linspace(0, len(moving) - 1, min(len(moving), 200)).astype(int)
    line = [{"at": float(at[i + width // 2]), "rate": 100 * float(moving[i]), "series": MOVING} for i in places]
    coloured = colours("series", [*sorted(set(decisions.replica)), MOVING])
    encoding = {"x": x("at", TIME), "y": y("rate", "prefix match rate (%)", scale={"domain": [0, 100]})}
    params, opacity = toggled("series")
    tips = tooltip(tip("at", "time (s)"), tip("series", "replica", "nominal"), tip("rate", "match rate (%)"))
    layers: list[Spec] = [
        {
            "params": params,
            "mark": {"type": "point", "size": 12},
            "encoding": encoding | {"color": coloured, "opacity": opacity, "tooltip": tips},
        },
        {
            "data": {"values": line},
            "mark": {"type": "line", "strokeDash": [5, 3]},
            "encoding": encoding | {"color": coloured},
        },
    ]
    mean = percent_text(float(decisions.match_rate.mean()))
    title = titled("Prefix match rate over time", f"mean {mean}; moving mean over {width} requests")
    return view(title, rows, [*layers, *window_marks(subject)])


def regret_over_time(subject: ChartedRun) -> Spec:
    """Tokens that were cached at the chosen replica, and the most that were cached at any, as means over intervals."""
    decisions = _decisions(subject)
    if not decisions.knows_caches:
        raise Cannot("what the caches held at every choice is known in virtual time only")
    pieces = np.array_split(np.arange(len(decisions)), min(len(decisions), 100))
    parts = {
        "at the chosen replica": decisions.cached_tokens,
        "in the best cache": decisions.best_cached_tokens,
    }
    at = np.array([int(decisions.at[piece].mean()) for piece in pieces])
    series = {name: (at, np.array([values[piece].mean() for piece in pieces])) for name, values in parts.items()}
    regret = float(decisions.regret_tokens.mean())
    subtitle = f"the difference is the regret, {number_text(regret)} tokens a request on average"
    return _lines(subject, titled("Cached tokens of a prompt over time", subtitle), series, "tokens")


def tree_against_cache(subject: ChartedRun) -> Spec:
    """The router's memory in tokens, the prompt tokens that were computed or found cached, and how full the modelled
    caches are; with lines at the levels where the router starts and stops evicting."""
    tree = router_series(subject.samples, "tree_chars")
    filled = server_series(subject.samples, "kv_filled") or server_series(subject.samples, "kv_usage")
    if not tree or not filled:
        raise Cannot("it needs a policy that remembers prompts, and the use of the caches")
    tokens = {f"tree, {name}": (at, chars / CHARS_PER_TOKEN) for name, (at, chars) in tree.items()}
    shares = {f"cache, {name}": (at, 100 * share) for name, (at, share) in filled.items()}
    bounds = [(name, chars / CHARS_PER_TOKEN) for name, chars in _eviction(subject.run)]
    largest = max(float(values.max()) for _, values in tokens.values())
    is_far = any(value > FAR * largest for _, value in bounds)
    texts = ", ".join(f"{name} {number_text(value)} tokens" for name, value in bounds)
    subtitle = f"{texts}: far above this chart" if is_far else f"dashed: {texts}" if bounds else ""
    levels = [] if is_far else [value for _, value in bounds]
    upper = _lines(
        subject,
        titled("Tree of the router", subtitle),
        tokens,
        f"tokens ({CHARS_PER_TOKEN} characters each)",
        levels,
    )
    processed = {f"prompts, {name}": pair for name, pair in server_series(subject.samples, "prompt_tokens").items()}
    middle = [_lines(subject, titled("Prompt tokens since the start"), processed, "tokens")] if processed else []
    lower = _lines(subject, titled("KV cache filled"), shares, "share (%)")
    return {
        "title": titled("Tree of the router against the caches", "what the router remembers, and what the caches hold"),
        "vconcat": [{**part, "height": 150} for part in (upper, *middle, lower)],
        "resolve": {"scale": {"color": "independent"}},
    }


def cache_hits(subject: ChartedRun) -> Spec:
    """For every replica, the share of the recent prompt tokens that were in its cache."""
    counts = cached_by_replica(subject.samples, subject.run.records)
    if len(counts) < 2:
        raise Cannot("it needs at least two replicas that report what they had cached")
    shares = {}
    for name, (at, cached, prompts) in counts.items():
        grown = [values - values[before] for before in [_before(at)] for values in (cached, prompts)]
        some = grown[1] > 0
        shares[name] = at[some], 100 * grown[0][some] / grown[1][some]
    whole = [
        float(cached[-1] - cached[0]) / max(float(prompts[-1] - prompts[0]), 1)
        for _, cached, prompts in counts.values()
    ]
    range_text = f"{percent_text(min(whole))} to {percent_text(max(whole))}"
    subtitle = f"of the prompt tokens of the last {WINDOW_S:g} s; over the whole run {range_text}"
    return _lines(subject, titled("Prefix cache hits of every replica over time", subtitle), shares, "cached (%)")


def _eviction(run: Run) -> list[tuple[str, int]]:
    """Characters of a replica above which the plan's policy evicts, and the target size."""
    router = run.plan.server.section("router")
    policy = router.text("policy") or "prefix_aware" if run.plan.server.text("type") != "ray-serve" else "prefix_aware"
    try:
        settings = checked_settings(policy, router.section("settings"))
    except InferometerError:  # a custom policy, which may not be available here
        return []
    if isinstance(settings, PrefixAwareSettings) and settings.evicts:
        return [("evicts above", settings.eviction_threshold_chars), ("down to", settings.eviction_target_chars)]
    return [("evicts above", settings.max_tree_size)] if isinstance(settings, CacheAwareSettings) else []


def server_times(subject: ChartedRun) -> Spec:
    """Means over the requests that the servers finished in the last seconds: windowed growth of their histograms."""
    samples = subject.samples
    sources = [source for source in samples.source.counts() if source is not None and is_server(source)]
    series = {(one.source, one.name): one for one in all_series(samples, sources) if not one.labels.get("le")}
    lines: ByReplica = {}
    for name, label in (("queue_time", "queue"), ("prefill_time", "prefill"), ("ttft", "TTFT")):
        windows = [
            _windowed(series[source, f"{name}_sum"], series[source, f"{name}_count"])
            for source in sources
            if (source, f"{name}_sum") in series and (source, f"{name}_count") in series
        ]
        if windows:
            lines[label] = _pooled(windows)
    if not lines:
        raise Cannot("no server reported how long its requests waited and were computed")
    scale = scale_of("s", [float(values.max(initial=0)) for _, values in lines.values()])
    shown = {label: (at, values * scale.factor) for label, (at, values) in lines.items() if len(at)}
    title = titled("Times in the servers over time", f"means over {WINDOW_S:g} s, all servers together")
    return _lines(subject, title, shown, with_unit("time", scale.unit))


def _windowed(total: Any, count: Any) -> tuple[Ints, Floats, Floats]:
    """Growth of a histogram's sum and count over the window before each sample."""
    before = _before(total.at)
    return total.at, total.value - total.value[before], count.value - count.value[before]


def _before(at: Ints) -> Any:
    """For every instant, the index of the first one in its window."""
    return np.searchsorted(at, at - round(WINDOW_S * 1e9))


def _pooled(windows: list[tuple[Ints, Floats, Floats]]) -> tuple[Ints, Floats]:
    at = windows[0][0]
    sums = np.sum([np.interp(at, own, total) for own, total, _ in windows], axis=0)
    counts = np.sum([np.interp(at, own, count) for own, _, count in windows], axis=0)
    some = counts > 0
    return at[some], sums[some] / counts[some]


def search_overhead(subject: ChartedRun) -> Spec:
    """How long choosing a replica took on the router's machine, by the number of replicas compared."""
    decisions = _decisions(subject)
    took = 1e6 * decisions.search_s
    edges = np.linspace(0, float(np.quantile(took, 0.99)) or 1.0, 41)
    rows: list[ChartRow] = []
    names = [f"{searched} compared" for searched in sorted(set(decisions.searched.tolist()))]
    for searched in sorted(set(decisions.searched.tolist())):
        counts, _ = np.histogram(took[decisions.searched == searched], edges)
        rows += [
            {"from": float(low), "to": float(high), "count": int(count), "series": f"{searched} compared"}
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
    bars = {
        "mark": {"type": "bar"},
        "encoding": {
            "x": x("from", "time to choose (µs)", bin={"binned": True}),
            "x2": {"field": "to"},
            "y": y("count", "requests", stack=True),
            "color": colours("series", names),
            "tooltip": tooltip(
                tip("from", "from (µs)"), tip("count", "requests"), tip("series", "replicas", "nominal")
            ),
        },
    }
    beyond = int((took > edges[-1]).sum())
    mean, longest = (duration_text(float(value)) for value in (decisions.search_s.mean(), decisions.search_s.max()))
    subtitle = f"mean {mean}, longest {longest}; {beyond} beyond the axis"
    return view(titled("Time to choose a replica", subtitle), rows, [bars])


_STEPS = {"match": "find the prefix", "insert": "remember the prompt"}
_LEGS = {"there": "way to the tree", "work": "in the tree", "back": "way back"}


def routing_phases(subject: ChartedRun) -> Spec:
    """The router's cost per request: choosing, inserting, and its share of evictions. If the tree is a separate
    process, as on Ray Serve, calls to it are split into transport and work."""
    decisions = _decisions(subject)
    evictions = subject.samples.series("eviction_s")[1]
    legs = {
        f"{step}: {leg}": subject.samples.series(f"{name}_{part}_s")[1]
        for name, step in _STEPS.items()
        for part, leg in _LEGS.items()
    }
    called = {name: took for name, took in legs.items() if len(took)}
    in_calls = sum(float(took.sum()) for took in called.values()) / len(decisions)
    whole = {"choose a replica": decisions.search_s, "remember the prompt": decisions.insert_s}
    spent = float(decisions.search_s.mean() + decisions.insert_s.mean())
    phases = {
        **({**called, "the rest": np.array([max(spent - in_calls, 0.0)])} if called else whole),
        "evict (per request)": np.array([float(evictions.sum()) / len(decisions)]),
    }
    means = {
        name: 1e6 * float(values.sum()) / (len(decisions) if name in called else len(values))
        for name, values in phases.items()
    }
    rows: list[ChartRow] = [
        {"phase": name, "value": means[name], "p99": 1e6 * float(np.quantile(values, 0.99))}
        for name, values in phases.items()
    ]
    rows.append({"phase": "total", "value": sum(means.values()), "p99": None})
    across = {"field": "phase", "type": "nominal", "title": None, "sort": [*phases, "total"]}
    tips = tooltip(tip("phase", "phase", "nominal"), tip("value", "mean (µs)"), tip("p99", "p99 (µs)"))
    layers: list[Spec] = [
        {"mark": {"type": "bar"}, "encoding": {"y": across, "x": x("value", "mean (µs)"), "tooltip": tips}},
        {
            "mark": {"type": "text", "align": "left", "dx": 4},
            "encoding": {"y": across, "x": x("value", "mean (µs)"), "text": {"field": "value", "format": ".1f"}},
        },
    ]
    title = titled("Routing time of a request by phase", f"{len(decisions):,} requests, on the router's machine")
    return view(title, rows, layers, height=35 * len(rows))


def routing_decisions(subject: ChartedRun) -> Spec:
    """How often each branch of the policy chose, and how much of the prompts matched there."""
    decisions = _decisions(subject)
    counts = Counter(zip(decisions.kind, decisions.replica, strict=True))
    kinds = [kind for kind, _ in Counter(decisions.kind).most_common()]
    matched = {
        kind: float(np.mean(decisions.match_rate[[at for at, own in enumerate(decisions.kind) if own == kind]]))
        for kind in kinds
    }
    rows = [
        {"kind": kind, "series": replica, "count": count, "matched": 100 * matched[kind]}
        for (kind, replica), count in sorted(counts.items())
    ]
    bars = {
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "kind", "type": "nominal", "title": None, "sort": kinds},
            "x": x("count", "requests"),
            "color": colours("series", sorted(set(decisions.replica))),
            "tooltip": tooltip(
                tip("kind", "decision", "nominal"),
                tip("series", "replica", "nominal"),
                tip("count", "requests"),
                tip("matched", "mean match (%)"),
            ),
        },
    }
    subtitle = f"{len(decisions):,} requests"
    if decisions.knows_caches:
        best = float(np.mean(decisions.regret_tokens <= 0))
        subtitle = f"{percent_text(best)} of {subtitle} went to a replica that no other cache beats"
    return view(titled("Decisions of the router", subtitle), rows, [bars], height=max(80, 34 * len(kinds)))


def _decisions(subject: ChartedRun) -> Decisions:
    decisions = decisions_of(subject.samples)
    if decisions is None:
        raise Cannot("no router recorded its decisions")
    return decisions


def _lines(subject: ChartedRun, title: Any, series: ByReplica, axis: str, levels: Sequence[float] = ()) -> Spec:
    """A line per series, and dashed horizontal ones at `levels`."""
    most = max(POINTS // (2 * max(len(series), 1)), 20)
    rows = []
    for name, (at, values) in series.items():
        few_at, few = thinned(at, values, most)
        seconds = subject.seconds(few_at).tolist()
        rows += [{"at": a, "series": name, "value": v} for a, v in zip(seconds, few.tolist(), strict=True)]
    params, opacity = toggled("series")
    line = {
        "params": params,
        "mark": {"type": "line"},
        "encoding": {
            "x": x("at", TIME, scale={"nice": False}),
            "y": y("value", axis),
            "color": colours("series", [*series]),
            "opacity": opacity,
            "tooltip": tooltip(tip("at", "time (s)"), tip("series", "series", "nominal"), tip("value", axis)),
        },
    }
    across: Spec = {
        "data": {"values": [{"value": level} for level in levels]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1},
        "encoding": {"y": {"field": "value", "type": "quantitative"}},
    }
    return view(title, rows, [line, *([across] if levels else []), *window_marks(subject)])
