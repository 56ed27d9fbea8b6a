"""What the servers reported during the load: counters and histograms over the run, pooled over the replicas."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from inferometer.documents.document import Document
from inferometer.measure.telemetry import DCGM, GPU, HOST, ROUTER, SERVER, named
from inferometer.record.columns import Categorical, Floats, Ints, Records, known
from inferometer.record.log import Note
from inferometer.record.record import Samples
from inferometer.record.summary import (
    Counter,
    Gauge,
    HistogramSummary,
    MetricsSource,
    ServerSummary,
    SourceProblem,
    Speculation,
    Value,
)
from inferometer.vocabulary import Direction

# -- deltas ----------------------------------------------------------------------------------------------------------

FAR = np.iinfo(np.int64).max

Labels = dict[str, str]
Part = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, eq=False, slots=True)
class SourceSeries:
    """The values of one metric of one source, in order of time."""

    source: str
    name: str
    labels: Labels
    at: Ints
    value: Floats
    late: bool = False  # the first scrape was before it existed: counters appear with their first count


def all_series(samples: Samples, sources: Sequence[str]) -> list[SourceSeries]:
    """Every series of the sources, one per name and labels."""
    chosen = np.flatnonzero(samples.source.mask(*sources))
    if not len(chosen):
        return []
    columns = (samples.source, samples.name, samples.labels)
    codes = np.stack([column.codes[chosen] for column in columns])
    order = np.lexsort((samples.at[chosen], *codes))
    edges = np.flatnonzero(np.any(np.diff(codes[:, order], axis=1), axis=0)) + 1
    first_at = {source: int(samples.at[samples.source.mask(source)].min(initial=FAR)) for source in sources}
    return [_series(samples, chosen[part], first_at) for part in np.split(order, edges)]


def _series(samples: Samples, rows: Ints, first_at: dict[str, int]) -> SourceSeries:
    first = samples.sample(int(rows[0]))
    late = first.at > first_at[first.source]
    return SourceSeries(first.source, first.name, first.labels, samples.at[rows], samples.value[rows], late)


def growth(values: Floats) -> tuple[float, int]:
    """How much a counter grew, and how often it was reset: after a reset it counts from 0."""
    steps = np.diff(values)
    resets = steps < 0
    return float(steps[~resets].sum() + values[1:][resets].sum()), int(resets.sum())


@dataclass(slots=True)
class Pooled:
    """A counter, or a part of a histogram, of all replicas together."""

    grown: float = 0.0
    resets: int = 0
    by_source: dict[str, float] = field(default_factory=dict)

    def add(self, source: str, grown: float, resets: int) -> None:
        self.grown += grown
        self.resets += resets
        self.by_source[source] = self.by_source.get(source, 0.0) + grown


def pooled(series: Sequence[SourceSeries], name: str, without: Sequence[str] = ()) -> Pooled | None:
    """The growth of a metric over all replicas, excluding series of some finish reasons; None if no replica has it. A
    series that did not exist before the load started at 0."""
    chosen = [
        metric for metric in series if metric.name == name and metric.labels.get("finished_reason") not in without
    ]
    if not chosen:
        return None
    total = Pooled()
    for metric in chosen:
        late = metric.late and metric.name != "process_started"
        values = np.concatenate(([0.0], metric.value)) if late else metric.value
        total.add(metric.source, *growth(values))
    return total


@dataclass(frozen=True, slots=True)
class Histogram:
    """What was observed between two scrapes: `counts[i]` values are at most `bounds[i]`, cumulative."""

    count: float
    total: float
    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count > 0 else None

    def quantile(self, share: float) -> tuple[float | None, tuple[float, float | None]] | None:
        """(estimate, bounds of its bucket). The buckets only give the bounds; the estimate interpolates between them as
        if the values were spread evenly, and is None in the last bucket, which is unbounded."""
        if not self.counts or self.counts[-1] <= 0:
            return None
        rank = share * self.counts[-1]
        at = next(i for i, reached in enumerate(self.counts) if reached >= rank)
        low, high = (self.bounds[at - 1] if at else 0.0), self.bounds[at]
        if math.isinf(high):
            return None, (low, None)
        before = self.counts[at - 1] if at else 0.0
        inside = self.counts[at] - before
        return low + (high - low) * ((rank - before) / inside if inside else 1.0), (low, high)


def histogram(series: Sequence[SourceSeries], name: str) -> Histogram | None:
    """A histogram of all replicas together: the summed sums over the summed counts, and buckets at the bounds that all
    have."""
    assert SERVER[name].kind == "histogram"
    total, count = pooled(series, f"{name}_sum"), pooled(series, f"{name}_count")
    if total is None or count is None:
        return None
    grown = None if total.resets or count.resets else _buckets(series, name)
    if not grown:  # after a restart the earlier buckets are lost
        return Histogram(count.grown, total.grown)
    bounds = tuple(sorted(grown))
    counts = tuple(grown[bound] for bound in bounds)
    honest = counts[-1] == count.grown and all(before <= after for before, after in pairwise(counts))
    return Histogram(count.grown, total.grown, bounds, counts) if honest else Histogram(count.grown, total.grown)


def _buckets(series: Sequence[SourceSeries], name: str) -> dict[float, float]:
    """Growth by bound. Cumulative counts can only be added at bounds that every part has."""
    new = {_part(metric) for metric in series if metric.name == f"{name}_count" and metric.late}
    parts: dict[Part, dict[float, float]] = {}
    for metric in series:
        bound = _bound(metric.labels.get("le")) if metric.name == f"{name}_bucket" else None
        if bound is None:
            continue
        if _part(metric) in new:  # observed for the first time during the load
            parts.setdefault(_part(metric), {})[bound] = float(metric.value[-1])
        elif not metric.late and len(metric.value) > 1:  # scraped before and after
            parts.setdefault(_part(metric), {})[bound] = float(metric.value[-1] - metric.value[0])
    if not parts:
        return {}
    common = set.intersection(*(set(part) for part in parts.values()))
    return {bound: sum(part[bound] for part in parts.values()) for bound in common}


def _part(series: SourceSeries) -> Part:
    """The identity of a histogram: a source, and labels other than the bound."""
    return series.source, tuple(sorted(item for item in series.labels.items() if item[0] != "le"))


def _bound(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


# -- server ----------------------------------------------------------------------------------------------------------

QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
ENDED_OTHERWISE = ("abort", "error")  # finish reasons of requests without an answer
MEANS = ("ttft", "itl", "tpot", "e2e", "queue_time", "prefill_time", "decode_time", "inference_time")
CLIENT = "client"
PICKED = ("picker_pods", "picker_running", "picker_queued", "picker_kv_usage")
_ACCEPTANCE = ("acceptance_rate", "acceptance_length")
SPECULATION = ("Drafted tokens accepted", "Tokens per step of a request")


def server_summary(samples: Samples, notes: Sequence[Note], start_at: int, end_at: int) -> ServerSummary | None:
    """The summary over all endpoints; None if none was scraped. Deltas run from before the load to after it, gauges
    from its start to its end."""
    by_source = {note.known.text("source") or "": note.known for note in notes if note.what in ("found", "observed")}
    by_source = {source: facts for source, facts in by_source.items() if is_server(source)}
    by_source = {source: facts for source, facts in by_source.items() if facts.text("engine") != DCGM}
    sources = [source for source in _sources(samples.source) if is_server(source)]
    if not by_source and not sources:
        return None
    series = all_series(samples, sources)
    gauges = _gauges(series, start_at, end_at)
    return ServerSummary(
        sources=[
            _source(source, by_source.get(source, Document({})), series)
            for source in dict.fromkeys([*sources, *by_source])
        ],
        counters=_counters(series),
        finished=_finished(series),
        histograms=_histograms(series),
        gauges=gauges,
        prefix_hit_rate=_hit_rate(series),
        complete=bool(series) and all(_is_whole(series, source, start_at, end_at) for source in sources),
        restarted=any(_restarts(series, source) for source in sources),
        speculation=_speculation(series, gauges),
    )


def busy_span(samples: Samples) -> tuple[int, int] | None:
    """From the last scrape before the servers' token counts grew to the first after they stopped growing; None if they
    never grew."""
    sources = [source for source in _sources(samples.source) if is_server(source)]
    edges: list[tuple[int, int]] = []
    for metric in all_series(samples, sources):
        if metric.name not in ("prompt_tokens", "generation_tokens", "requests_ok"):
            continue
        grew = np.flatnonzero(np.diff(metric.value) > 0)
        first = metric.at[0] if metric.late else metric.at[grew[0]] if len(grew) else None
        if first is not None:
            edges.append((int(first), int(metric.at[grew[-1] + 1] if len(grew) else metric.at[0])))
    return (min(first for first, _ in edges), max(last for _, last in edges)) if edges else None


def is_server(source: str) -> bool:
    return source not in (HOST, CLIENT, ROUTER, "gpu") and not source.startswith(GPU)


def _is_whole(series: Sequence[SourceSeries], source: str, start_at: int, end_at: int) -> bool:
    """Whether it was scraped both before and after the load: only then is its count in between known."""
    own = [metric.at for metric in series if metric.source == source]
    return bool(own) and min(at[0] for at in own) <= start_at and max(at[-1] for at in own) >= end_at


def _sources(column: Categorical) -> list[str]:
    return [source for source in column.counts() if source is not None]


def source_problems(facts: Document, source: str | None = None) -> list[SourceProblem]:
    """The problems of a source of samples, as its sampler noted them."""
    wanted = None if source is None else facts.flag("wanted")
    return [
        SourceProblem(text=problem.text("text") or "", count=problem.count("count"), source=source, wanted=wanted)
        for problem in facts.sections("problems")
    ]


def _texts(section: Document) -> dict[str, str]:
    return {name: text for name in section if (text := section.text(name)) is not None}


def _source(source: str, facts: Document, series: Sequence[SourceSeries]) -> MetricsSource:
    own = [metric for metric in series if metric.source == source]
    at = np.unique(np.concatenate([metric.at for metric in own])) if own else np.empty(0, np.int64)
    return MetricsSource(
        url=source,
        engine=facts.text("engine"),
        names=_texts(facts.section("names")),
        config=_texts(facts.section("config")),
        scrapes=len(at),
        failed=facts.count("failed"),
        span_s=float(at[-1] - at[0]) / 1e9 if len(at) > 1 else None,
        restarts=_restarts(series, source),
        wanted=facts.flag("wanted") or False,
        problems=source_problems(facts),
        prefix_hit_rate=_hit_rate(own),
    )


def _restarts(series: Sequence[SourceSeries], source: str) -> int:
    """A process that started later, or several counters that were reset together: a single one may be an error of its
    own."""
    own = [metric for metric in series if metric.source == source]
    started = [metric for metric in own if metric.name == "process_started"]
    if started:
        return max(int((np.diff(metric.value) > 1.0).sum()) for metric in started)
    anew = [
        pooled([metric], metric.name)
        for metric in own
        if metric.name in named("counter") or metric.name.endswith("_count")
    ]
    resets = sorted((counter.resets for counter in anew if counter is not None), reverse=True)
    return resets[1] if len(resets) > 1 else 0


def _counters(series: Sequence[SourceSeries]) -> dict[str, Counter]:
    counters = {name: pooled(series, name, _left_out(name)) for name in named("counter")}
    return {
        name: Counter(grown=counter.grown, unit=SERVER[name].unit, resets=counter.resets, by_source=counter.by_source)
        for name, counter in counters.items()
        if counter is not None
    }


def _left_out(name: str) -> tuple[str, ...]:
    return ENDED_OTHERWISE if name == "requests_ok" else ()


def _finished(series: Sequence[SourceSeries]) -> dict[str, float]:
    """Requests by finish reason; only reasons that occurred."""
    own = [metric for metric in series if metric.name == "requests_ok" and "finished_reason" in metric.labels]
    reasons = sorted({metric.labels["finished_reason"] for metric in own})
    others = {reason: [other for other in reasons if other != reason] for reason in reasons}
    grown = {reason: pooled(own, "requests_ok", others[reason]) for reason in reasons}
    return {reason: counter.grown for reason, counter in grown.items() if counter is not None and counter.grown}


def _histograms(series: Sequence[SourceSeries]) -> dict[str, HistogramSummary]:
    summaries = {}
    for name in named("histogram"):
        merged = histogram(series, name)
        if merged is None or not merged.count:
            continue
        quantiles = {quantile: merged.quantile(share) for quantile, share in QUANTILES.items()}
        summaries[name] = HistogramSummary(
            unit=SERVER[name].unit,
            count=merged.count,
            sum=merged.total,
            mean=merged.mean,
            **{quantile: None if estimate is None else estimate[0] for quantile, estimate in quantiles.items()},
            buckets={quantile: estimate[1] for quantile, estimate in quantiles.items() if estimate is not None},
        )
    return summaries


def _gauges(series: Sequence[SourceSeries], start_at: int, end_at: int) -> dict[str, Gauge]:
    """Requests are summed over replicas, shares averaged, each at its own instants. The values of an endpoint picker
    already cover all pods."""
    gauges = {}
    for name in ("running", "queued", "kv_usage", "hit_rate", *_ACCEPTANCE, *PICKED):
        own = [
            metric.value[(metric.at >= start_at) & (metric.at <= end_at)] for metric in series if metric.name == name
        ]
        own = [values for values in own if len(values)]
        if own:
            shared = SERVER[name].unit == "share" or name in (*_ACCEPTANCE, *PICKED)
            means, tops = [float(values.mean()) for values in own], [float(values.max()) for values in own]
            together = float(np.mean(means)) if shared else sum(means)
            gauges[name] = Gauge(unit=SERVER[name].unit, mean=together, max=max(tops) if shared else sum(tops))
    return gauges


def _hit_rate(series: Sequence[SourceSeries]) -> float | None:
    hits, queries = pooled(series, "prefix_hits"), pooled(series, "prefix_queries")
    if hits is None or queries is None:
        hits, queries = pooled(series, "cached_prompt_tokens"), pooled(series, "prompt_tokens")
    return hits.grown / queries.grown if hits and queries and queries.grown > 0 else None


def _speculation(series: Sequence[SourceSeries], gauges: Mapping[str, Gauge]) -> Speculation | None:
    """From the counters, of which vLLM has three; else the means of the gauges of SGLang."""
    drafts, drafted, accepted = (pooled(series, name) for name in ("drafts", "draft_tokens", "accepted_tokens"))
    if drafts and drafted and accepted and drafts.grown > 0 and drafted.grown > 0:
        return Speculation(
            acceptance_rate=accepted.grown / drafted.grown,
            acceptance_length=1 + accepted.grown / drafts.grown,
            drafts=drafts.grown,
            draft_tokens=drafted.grown,
            accepted_tokens=accepted.grown,
        )
    rate, length = (gauges[name].mean if name in gauges else None for name in _ACCEPTANCE)
    return Speculation(acceptance_rate=rate, acceptance_length=length) if length else None


def server_values(server: ServerSummary) -> dict[str, Value]:
    """The server's numbers as values of the run: means of its histograms, and other comparable numbers."""
    values = {
        f"server_{name}": _value(of.mean, of.unit, "lower", f"Server's {SERVER[name].title}, mean")
        for name, of in server.histograms.items()
        if name in MEANS
    }
    if server.prefix_hit_rate is not None:
        title = "Prefix cache hit rate, by the server"
        values["server_prefix_hit_rate"] = _value(server.prefix_hit_rate, "share", "higher", title)
    if (speculation := server.speculation) is not None:
        rate, length = (f"{title}, by the server" for title in SPECULATION)
        values["server_acceptance_rate"] = _value(speculation.acceptance_rate, "share", "higher", rate)
        values["server_acceptance_length"] = _value(speculation.acceptance_length, "tokens", "higher", length)
    if "preemptions" in server.counters:
        values["server_preemptions"] = _value(server.counters["preemptions"].grown, "requests", "lower", "Preemptions")
    if "kv_usage" in server.gauges:
        most = server.gauges["kv_usage"].max
        values["server_kv_usage_max"] = _value(most, "share", None, "KV cache in use, maximum")
    return values


def _value(value: float | None, unit: str, direction: Direction | None, title: str) -> Value:
    return Value(value=value, unit=unit, direction=direction, title=title)


# -- decisions of a router, and its replicas ---------------------------------------------------------------------------

# A router's decisions and the work of its replicas, read from the samples of a run: decisions by request, series by
# replica.

ByReplica = dict[str, tuple[Ints, Floats]]  # instants and values


@dataclass(frozen=True, eq=False, slots=True)
class Decisions:
    """One entry per routed request, in order of time."""

    at: Ints
    session: Ints
    given_to: Ints  # the request that received the chosen replica: itself, unless the router gave it to another
    replica: list[str]
    kind: list[str]
    match_rate: Floats
    cached_tokens: Floats  # at the chosen replica, at the time of the choice; NaN if unknown
    best_cached_tokens: Floats  # the most that any replica held at that time
    searched: Ints  # replicas that were compared
    search_s: Floats  # on the router's machine, for the choice
    insert_s: Floats  # and to record where the prompt went

    def __len__(self) -> int:
        return len(self.at)

    @property
    def regret_tokens(self) -> Floats:
        regret: Floats = self.best_cached_tokens - self.cached_tokens
        return regret

    @property
    def knows_caches(self) -> bool:
        """Whether the caches were known at every choice: only a fleet in virtual time knows them."""
        return bool(np.isfinite(self.best_cached_tokens).all())


_COLUMNS = ("decision", "match_rate", "searched", "search_s", "insert_s")
_OPTIONAL = ("given_to", "cached_tokens", "best_cached_tokens")


def decisions_of(samples: Samples) -> Decisions | None:
    """None if no router recorded its decisions."""
    of_router = samples.source.mask(ROUTER)
    rows = {name: np.flatnonzero(samples.name.mask(name) & of_router) for name in (*_COLUMNS, *_OPTIONAL)}
    first = rows["decision"]
    if not len(first) or any(len(rows[name]) != len(first) for name in _COLUMNS):
        return None
    labels = [_labels(samples, int(row)) for row in first]
    values = {name: samples.value[part] for name, part in rows.items()}
    unknown = np.full(len(first), np.nan)
    cached, best = (values[name] if len(values[name]) == len(first) else unknown for name in _OPTIONAL[1:])
    given_to = values["given_to"] if len(values["given_to"]) == len(first) else values["decision"]
    return Decisions(
        at=samples.at[first],
        session=values["decision"].astype(np.int64),
        given_to=given_to.astype(np.int64),
        replica=[label.get("replica", "") for label in labels],
        kind=[label.get("kind", "") for label in labels],
        match_rate=values["match_rate"],
        cached_tokens=cached,
        best_cached_tokens=best,
        searched=values["searched"].astype(np.int64),
        search_s=values["search_s"],
        insert_s=values["insert_s"],
    )


def _labels(samples: Samples, row: int) -> dict[str, str]:
    labels: dict[str, str] = json.loads(samples.labels[row] or "{}")
    return labels


def router_series(samples: Samples, name: str) -> ByReplica:
    """A metric that the router keeps of each replica: `in_flight`, `tree_chars`, `evicted_chars`."""
    rows = np.flatnonzero(samples.name.mask(name) & samples.source.mask(ROUTER))
    by_replica: dict[str, list[int]] = {}
    for row in rows.tolist():
        by_replica.setdefault(_labels(samples, row).get("replica", ""), []).append(row)
    return {replica: (samples.at[own], samples.value[own]) for replica, own in sorted(by_replica.items())}


def server_series(samples: Samples, name: str) -> ByReplica:
    """A metric that each server reported: `running`, `queued`, `kv_usage`."""
    sources = [source for source in samples.source.counts() if source is not None and is_server(source)]
    series = {source.rpartition("://")[2]: samples.series(name, source) for source in sorted(sources)}
    return {replica: pair for replica, pair in series.items() if len(pair[0])}


def load_by_replica(samples: Samples) -> ByReplica:
    """Requests at each replica: as the router counts them, else the running and queued requests that the servers
    report."""
    counted = router_series(samples, "in_flight")
    if counted:
        return counted
    running, queued = server_series(samples, "running"), server_series(samples, "queued")
    return {
        replica: (at, values + queued[replica][1])
        for replica, (at, values) in running.items()
        if replica in queued and len(queued[replica][1]) == len(values)
    }


def cached_by_replica(samples: Samples, records: Records | None) -> dict[str, tuple[Ints, Floats, Floats]]:
    """Cached and total prompt tokens of every replica as growing counts: from the servers' counters, else from the
    answers, if these name the replica and the cached tokens."""
    hits, queries = server_series(samples, "prefix_hits"), server_series(samples, "prefix_queries")
    both = {name: (*hits[name], queries[name][1]) for name in hits if name in queries}
    counted = {name: (at, own, inputs) for name, (at, own, inputs) in both.items() if len(own) == len(inputs)}
    if len(counted) > 1 or records is None:
        return counted
    served = known(records.cached_tokens) & known(records.input_tokens) & known(records.ended_at)
    grown = {}
    for name in sorted(name for name in records.replica.counts() if name):
        own = np.flatnonzero(served & records.replica.mask(name))
        own = own[np.argsort(records.ended_at[own])]
        if len(own):
            cached, inputs = (np.cumsum(tokens[own]) for tokens in (records.cached_tokens, records.input_tokens))
            at = records.ended_at[own]
            grown[name] = (np.r_[at[0], at], np.r_[0.0, cached], np.r_[0.0, inputs])  # starting at zero
    return grown
