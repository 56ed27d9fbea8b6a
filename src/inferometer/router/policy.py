"""The interface of routing policies: a policy chooses a replica for a query from the information available to a router.
Policies are pure: time is an argument, randomness comes from a seed, and there is no I/O, so that the proxy and the
fleet in virtual time use the same ones. The policies themselves are in `router.policies`."""

import difflib
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, get_args, get_type_hints

import msgspec

from inferometer.errors import PlanError
from inferometer.vocabulary import attribute_at

_HERE = "inferometer.router.policies"
POLICIES: dict[str, str] = {  # to add a policy, add a line here and a class in router/policies
    "random": f"{_HERE}.load:RandomChoice",
    "round_robin": f"{_HERE}.load:RoundRobin",
    "least_loaded": f"{_HERE}.load:LeastLoaded",
    "power_of_two": f"{_HERE}.load:PowerOfTwo",
    "prefix_aware": f"{_HERE}.prefix:PrefixAware",
    "cache_aware": f"{_HERE}.prefix:CacheAware",
    "block_prefix": f"{_HERE}.scorers:BlockPrefix",
    "prefix_affinity": f"{_HERE}.scorers:PrefixAffinity",
    "session_affinity": f"{_HERE}.load:SessionAffinity",
}


class Replica(msgspec.Struct, frozen=True):
    """The router's information on a replica at the time of a choice."""

    name: str
    in_flight: int = 0  # requests sent there by this router and not over
    tokens_in_flight: int = 0  # prompt tokens of these requests, counted or estimated
    healthy: bool = True
    capacity: int | None = None  # maximum requests in flight; None: no limit
    waiting: int | None = None  # requests in its own queue, if it reports them
    kv_usage: float | None = None  # share of its KV cache in use, if it reports that

    @property
    def is_available(self) -> bool:
        return self.healthy and (self.capacity is None or self.in_flight < self.capacity)


class Query(msgspec.Struct, frozen=True):
    """The router's information on a request before it is sent."""

    text: str = ""  # of the prompt, or of all messages concatenated
    session: str | None = None  # groups related requests: a session, a user, a prefix id
    tokens: int | None = None  # prompt tokens if counted; else estimated from the text
    model: str = ""
    cached: Mapping[str, int] | None = None  # prompt tokens in the real cache of every replica, if these report it
    id: int = 0  # distinguishes requests that are in flight at the same time


class Candidate(msgspec.Struct, frozen=True):
    """A considered replica. The policy defines the score; more is better."""

    replica: str
    score: float


class Decision(msgspec.Struct, frozen=True):
    """The choice, and the reason."""

    replica: str
    kind: str  # the branch of the policy that made the choice
    candidates: tuple[Candidate, ...] = ()  # those that remained for the last comparison
    matched_chars: int = 0  # length of the prefix that the policy knows was sent before
    match_rate: float = 0.0  # as a share of the text


class PolicyState(msgspec.Struct, frozen=True):
    """The size of a policy's memory."""

    tree_chars: dict[str, int] = {}  # characters (block_prefix: blocks) remembered per replica
    tree_nodes: int = 0
    evictions: int = 0
    evicted_chars: int = 0
    uncached_tokens_in_flight: dict[str, int] = {}


class Eviction(msgspec.Struct, frozen=True):
    """What one pass of eviction removed for one replica."""

    replica: str
    chars: int


class NoReplicaError(Exception):
    """No replica is available for the request: all are unhealthy or full."""


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For a policy without settings."""


class Policy:
    """Chooses a replica for every query. A policy implements `choose`, and those of the other methods it learns from.
    Its memory changes in `sent` (after the choice was carried out), `finished`, `removed` and `evict`, never in
    `choose`, except for the random generator and counters such as that of round robin."""

    Settings: ClassVar[type[msgspec.Struct]] = NoSettings
    name: ClassVar[str]
    needs_text: ClassVar[bool] = False
    needs_metrics: ClassVar[bool] = False  # `waiting` and `kv_usage` of replicas, read from their metrics
    eviction_interval_s: float | None = None  # how often `evict` should be called

    def __init__(self, settings: Any, seed: int) -> None:
        self.settings = settings
        self._random = random.Random(seed)

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        """One of the available replicas; raises `NoReplicaError` if there are none."""
        raise NotImplementedError

    def sent(self, query: Query, replica: str, now_s: float) -> None:
        """The request was sent to this replica."""

    def finished(self, query: Query, replica: str, now_s: float) -> None:
        """The request is over, whatever its outcome."""

    def added(self, replica: str) -> None:
        """A replica was added, new or again."""

    def removed(self, replica: str) -> None:
        """A replica was removed, and its cache is lost."""

    def evict(self, now_s: float) -> list[Eviction]:
        """Drop old entries, if it is time; returns what was dropped."""
        return []

    def state(self) -> PolicyState:
        return PolicyState()


def policy_named(name: str, settings: Mapping[str, Any] | None = None, seed: int = 0) -> Policy:
    """A policy by its name, with settings as in a plan; a `PlanError` lists the available ones."""
    made = policy_class(name)
    return made(checked_settings(name, settings or {}), seed)


def policy_class(name: str) -> type[Policy]:
    if name not in POLICIES:
        close = difflib.get_close_matches(name, POLICIES, 1)
        raise PlanError(
            f"policy must be one of {', '.join(POLICIES)}, got {name}", f"did you mean {close[0]}?" if close else None
        )
    policy: type[Policy] = attribute_at(POLICIES[name])
    return policy


def checked_settings(name: str, settings: Mapping[str, Any]) -> msgspec.Struct:
    """Settings of a policy as its own type."""
    made = policy_class(name)
    try:
        return msgspec.convert(dict(settings), made.Settings, strict=False)
    except msgspec.ValidationError as error:
        raise PlanError(wrong_setting(name, made.Settings, settings, error)) from None


def wrong_setting(owner: str, kind: type[msgspec.Struct], settings: Mapping[str, Any], error: Exception) -> str:
    """msgspec's `Expected ... - at `$.field`` as a sentence, with the value as it was written."""
    known = kind.__struct_fields__
    if unknown := [name for name in settings if name not in known]:
        return f"{owner} has no setting {', '.join(unknown)}; its settings: {', '.join(known) or 'none'}"
    what, _, place = str(error).partition(" - at ")
    field = place.strip("`").removeprefix("$.").partition("[")[0]
    if field not in settings:
        return f"{owner}: {error}"
    return f"{field} of {owner} must be {_wanted(what, kind, field)}, got {settings[field]}"


_EXPECTED = re.compile(r"Expected `(?P<kind>\w+)[^`]*`(?: (?P<bound>[<>]=?) (?P<limit>[\d.]+?)(?:\.0)?(?=,|$))?")
_BOUNDS = {"<=": "at most", "<": "less than", ">=": "at least", ">": "greater than"}
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list", "str": "text"}


def _wanted(what: str, kind: type[msgspec.Struct], field: str) -> str:
    if choices := [str(choice) for choice in get_args(get_type_hints(kind)[field]) if isinstance(choice, str)]:
        return " or ".join(choices)
    matched = _EXPECTED.match(what)
    if matched is None:
        return what
    if matched["bound"]:
        return f"{_BOUNDS[matched['bound']]} {matched['limit']}"
    return _KINDS.get(matched["kind"], matched["kind"])


def available(replicas: Sequence[Replica]) -> list[Replica]:
    """Replicas that may be chosen; raises `NoReplicaError` if there are none."""
    left = [replica for replica in replicas if replica.is_available]
    if left:
        return left
    if not any(replica.healthy for replica in replicas):
        raise NoReplicaError(f"none of {len(replicas)} replicas is healthy")
    raise NoReplicaError("every healthy replica has as many requests in flight as it may have")


def extremes_of_load(replicas: Sequence[Replica]) -> tuple[int, int]:
    """The most and the fewest requests in flight at a healthy replica. A full one is included: it has the most."""
    loads = [replica.in_flight for replica in replicas if replica.healthy]
    return max(loads), min(loads)


def tokens_of(query: Query) -> int:
    """Prompt tokens as counted, else estimated at four characters each, as in llm-d."""
    return query.tokens if query.tokens is not None else (len(query.text) + 3) // 4


def least_loaded(replicas: Sequence[Replica], generator: random.Random) -> Replica:
    """The one with the fewest requests in flight; a random one if several are equal."""
    least = min(replica.in_flight for replica in replicas)
    tied = [replica for replica in replicas if replica.in_flight == least]
    return tied[0] if len(tied) == 1 else generator.choice(tied)


def by_load(replicas: Sequence[Replica]) -> tuple[Candidate, ...]:
    """Candidates for which fewer requests in flight are better."""
    return tuple(Candidate(replica.name, float(-replica.in_flight)) for replica in replicas)
