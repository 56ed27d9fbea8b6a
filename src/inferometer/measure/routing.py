"""What a router decided and what its replicas did, read from the samples of a run: decisions request by request, and
series by replica."""

import json
from dataclasses import dataclass

import numpy as np

from inferometer.measure.server import is_server
from inferometer.measure.telemetry import ROUTER
from inferometer.record.columns import Floats, Ints, Records, known
from inferometer.record.record import Samples

ByReplica = dict[str, tuple[Ints, Floats]]  # instants and values


@dataclass(frozen=True, eq=False, slots=True)
class Decisions:
    """One entry per routed request, in order of time."""

    at: Ints
    session: Ints
    given_to: Ints  # the request that got the chosen replica: itself, unless the router gave it to another
    replica: list[str]
    kind: list[str]
    match_rate: Floats
    cached_tokens: Floats  # at the replica that was chosen, when it was chosen; not a number if unknown
    best_cached_tokens: Floats  # the most that any replica held then
    searched: Ints  # replicas that were compared
    search_s: Floats  # of the router's machine, to choose
    insert_s: Floats  # and to remember where the prompt went

    def __len__(self) -> int:
        return len(self.at)

    @property
    def regret_tokens(self) -> Floats:
        regret: Floats = self.best_cached_tokens - self.cached_tokens
        return regret

    @property
    def knows_caches(self) -> bool:
        """Whether the caches were known at every choice: only a fleet in virtual time has them."""
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
    """What the router knows of each replica under a name: `in_flight`, `tree_chars`, `evicted_chars`."""
    rows = np.flatnonzero(samples.name.mask(name) & samples.source.mask(ROUTER))
    by_replica: dict[str, list[int]] = {}
    for row in rows.tolist():
        by_replica.setdefault(_labels(samples, row).get("replica", ""), []).append(row)
    return {replica: (samples.at[own], samples.value[own]) for replica, own in sorted(by_replica.items())}


def server_series(samples: Samples, name: str) -> ByReplica:
    """What each server reported under a name: `running`, `queued`, `kv_usage`."""
    sources = [source for source in samples.source.counts() if source is not None and is_server(source)]
    series = {source.rpartition("://")[2]: samples.series(name, source) for source in sorted(sources)}
    return {replica: pair for replica, pair in series.items() if len(pair[0])}


def load_by_replica(samples: Samples) -> ByReplica:
    """Requests at each replica: as the router counts them, else running and queued as the servers report."""
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
    """Prompt tokens that every replica's cache had, and all it was asked for, as counts that grow: by the servers'
    counters, else by the answers, if these name the replica and the cached tokens."""
    hits, queries = server_series(samples, "prefix_hits"), server_series(samples, "prefix_queries")
    both = {name: (*hits[name], queries[name][1]) for name in hits if name in queries}
    counted = {name: (at, own, asked) for name, (at, own, asked) in both.items() if len(own) == len(asked)}
    if len(counted) > 1 or records is None:
        return counted
    served = known(records.cached_tokens) & known(records.input_tokens) & known(records.ended_at)
    grown = {}
    for name in sorted(name for name in records.replica.counts() if name):
        own = np.flatnonzero(served & records.replica.mask(name))
        own = own[np.argsort(records.ended_at[own])]
        if len(own):
            cached, asked = (np.cumsum(tokens[own]) for tokens in (records.cached_tokens, records.input_tokens))
            at = records.ended_at[own]
            grown[name] = (np.r_[at[0], at], np.r_[0.0, cached], np.r_[0.0, asked])  # from nothing on
    return grown
