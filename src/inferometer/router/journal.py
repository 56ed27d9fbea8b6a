"""The activity of a router and its replicas over time, as samples: queues, caches and trees every second, and for every
request its replica, the reason, and how much of it was cached there and elsewhere."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np

from inferometer.measure.telemetry import ROUTER
from inferometer.record.record import Sample, Samples
from inferometer.router.feed import Choice, of_choice
from inferometer.router.policies.prefix import TreePolicy
from inferometer.router.policy import Eviction, Policy, PolicyState, Query, Replica
from inferometer.simulator.engine import Sequence as TokenSequence
from inferometer.simulator.engine import SimulatorEngine
from inferometer.simulator.settings import Instants

REPLICA = "simulator://"  # followed by its name: the source of its samples
TIMES = ("ttft", "tpot", "e2e", "queue_time", "inference_time", "prefill_time", "decode_time")


@dataclass(slots=True)
class ReplicaCounts:
    """What a replica has done since its start: sums over its finished requests, in seconds and tokens."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    times: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TIMES, 0.0))
    several: int = 0  # requests with more than one token, which have a TPOT

    def add(self, sequence: TokenSequence, made: Instants, frontend_ns: int) -> None:
        first, last = made[0], made[-1]
        joined, admitted = sequence.arrived_at, sequence.admitted_at or sequence.arrived_at
        self.requests += 1
        self.prompt_tokens += len(sequence.prompt)
        self.cached_tokens += sequence.cached or 0
        self.generated_tokens += len(made)
        spans = {
            "ttft": first - joined + frontend_ns,
            "e2e": last - joined + frontend_ns,
            "queue_time": admitted - joined,
            "inference_time": last - admitted,
            "prefill_time": first - admitted,
            "decode_time": last - first,
        }
        for name, span in spans.items():
            self.times[name] += span / 1e9
        if len(made) > 1:
            self.several += 1
            self.times["tpot"] += (last - first) / 1e9 / (len(made) - 1)


class Reporting(Protocol):
    """The part of a replica that is read."""

    in_flight: int
    counts: ReplicaCounts

    @property
    def engine(self) -> SimulatorEngine: ...


class Journal:
    """Collects while the fleet runs; `samples` returns the result."""

    def __init__(self) -> None:
        self.choices: list[Choice] = []
        self._samples: list[Sample] = []

    def sample(self, at: int, replicas: Mapping[str, Reporting], state: PolicyState) -> None:
        """Current values of every replica and of the policy's memory."""
        for name, replica in replicas.items():
            source = f"{REPLICA}{name}"
            values = {**_gauges(replica.engine), **_counters(replica)}
            self._samples += [Sample(source, key, at, float(value)) for key, value in values.items()]
            self._add("in_flight", at, replica.in_flight, replica=name)
        for name, chars in state.tree_chars.items():
            self._add("tree_chars", at, chars, replica=name)
        self._add("tree_nodes", at, state.tree_nodes)

    def evicted(self, at: int, evictions: Sequence[Eviction], took_s: float) -> None:
        for eviction in evictions:
            self._add("evicted_chars", at, eviction.chars, replica=eviction.replica)
        self._add("eviction_s", at, took_s)

    def _add(self, name: str, at: int, value: float, **labels: str) -> None:
        self._samples.append(Sample(ROUTER, name, at, float(value), labels))

    def samples(self) -> Samples:
        return Samples.of([*self._samples, *(sample for choice in self.choices for sample in of_choice(choice))])

    def totals(self, from_session: int = 0) -> "RoutingTotals":
        """Totals of the decisions from a session on: those after the warm-up."""
        chosen = [choice for choice in self.choices if choice.session >= from_session]
        cached = np.array([choice.cached_tokens or 0 for choice in chosen], np.float64)
        best = np.array([choice.best_cached_tokens or 0 for choice in chosen], np.float64)
        return RoutingTotals(
            kinds=dict(Counter(choice.kind for choice in chosen)),
            requests=dict(Counter(choice.replica for choice in chosen)),
            match_rate=float(np.mean([choice.match_rate for choice in chosen])) if chosen else 0.0,
            regret_tokens=float((best - cached).mean()) if chosen else 0.0,
            best_share=float(cached.sum() / best.sum()) if best.sum() else 1.0,
        )


@dataclass(frozen=True, slots=True)
class RoutingTotals:
    """The decisions of a run as numbers."""

    kinds: dict[str, int]
    requests: dict[str, int]  # by replica
    match_rate: float  # mean over requests, as the policy saw it
    regret_tokens: float  # mean over requests: most tokens cached anywhere minus those cached at the chosen replica
    best_share: float  # tokens cached at the chosen replicas, as share of the most that were cached anywhere


def _gauges(engine: SimulatorEngine) -> dict[str, float]:
    pool = engine.pool
    filled = (pool.private + pool.live + pool.idle) / pool.capacity
    return {"running": len(engine.running), "queued": len(engine.waiting), "kv_usage": pool.usage, "kv_filled": filled}


def _counters(replica: Reporting) -> dict[str, float]:
    counts, done = replica.counts, replica.engine.counters
    observed = {name: counts.several if name == "tpot" else counts.requests for name in TIMES}
    return {
        "requests_ok": counts.requests,
        "prompt_tokens": counts.prompt_tokens,
        "generation_tokens": counts.generated_tokens,
        "prefix_queries": done.prompt_tokens,
        "prefix_hits": done.cached_tokens,
        "preemptions": done.preemptions,
        **{f"{name}_sum": total for name, total in counts.times.items()},
        **{f"{name}_count": count for name, count in observed.items()},
    }


# -- replaying decisions -----------------------------------------------------------------------------------------------

# Compares another router's recorded decisions with a policy of ours: the policy receives the state that the other
# router had at every choice (queue lengths, earlier assignments), and its candidates are compared with the recorded
# ones.


class ReplicasChanged(msgspec.Struct, frozen=True, tag="replicas"):
    """The router was notified of added or removed replicas."""

    at_s: float
    added: list[str] = []
    removed: list[str] = []


class Chosen(msgspec.Struct, frozen=True, tag="chosen"):
    """One choice: the replicas considered with their queue lengths (None: unknown), and the remaining candidates."""

    at_s: float
    request: int
    text: str
    queues: dict[str, int | None]
    kind: str
    candidates: list[str]
    matched_chars: int = 0
    took_s: float = 0.0
    tree_chars: dict[str, int] | None = None  # of each replica in its tree, if the router reported it

    @property
    def is_random(self) -> bool:
        """Two of all at random: another router cannot repeat that."""
        return self.kind.startswith("fallback") or self.kind == "power_of_two"


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """A request was sent to a replica."""

    at_s: float
    request: int
    text: str
    replica: str
    insert_s: float = 0.0


RouterEvent = ReplicasChanged | Chosen | Sent
_decoder = msgspec.json.Decoder(RouterEvent)


def read_events(lines: Iterable[bytes | str]) -> list[RouterEvent]:
    """Reads a JSON document from each line."""
    return [_decoder.decode(line) for line in lines if line.strip()]


def write_events(events: Iterable[RouterEvent]) -> bytes:
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


@dataclass(slots=True)
class Replayed:
    """Result of the comparison. A decision is the same if both have the same set of candidates."""

    decisions: int = 0
    random: int = 0  # left out: both choose any two
    alike: int = 0
    same_tree: int = 0  # decisions at which both trees held the same amount for every replica
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)  # recorded kind, our kind
    differences: list[tuple[Chosen, str, tuple[str, ...]]] = field(default_factory=list)  # our kind and candidates

    @property
    def share_alike(self) -> float | None:
        compared = self.decisions - self.random
        return self.alike / compared if compared else None


def replay(events: Iterable[RouterEvent], policy: Policy) -> Replayed:
    """The policy's own choices on the recorded state. It learns what the other router did, not what it would have done
    itself, so that one difference does not cause the next; and it evicts when the other's tree became smaller, because
    the time of an eviction is not a decision."""
    done = Replayed()
    for event in events:
        match event:
            case ReplicasChanged():
                for name in event.added:
                    policy.added(name)
                for name in event.removed:
                    policy.removed(name)
            case Sent():
                policy.sent(Query(event.text, id=event.request), event.replica, event.at_s)
            case Chosen():
                _compare(done, event, policy)
    return done


def _compare(done: Replayed, chosen: Chosen, policy: Policy) -> None:
    if chosen.tree_chars is not None and isinstance(policy, TreePolicy):
        held = policy.tree.chars
        for name, chars in chosen.tree_chars.items():
            if held.get(name, 0) > chars:
                policy.tree.evict(name, held[name] - chars)
        done.same_tree += policy.tree.chars == chosen.tree_chars
    replicas = [Replica(name, queue or 0) for name, queue in chosen.queues.items()]
    ours = policy.choose(Query(chosen.text, id=chosen.request), replicas, chosen.at_s)
    names = tuple(candidate.replica for candidate in ours.candidates)
    done.decisions += 1
    done.kinds[chosen.kind, ours.kind] += 1
    if chosen.is_random and ours.kind.startswith("fallback"):
        done.random += 1
    elif set(names) == set(chosen.candidates):
        done.alike += 1
    else:
        done.differences.append((chosen, ours.kind, names))
