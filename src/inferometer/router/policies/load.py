"""Policies that use only the load, or nothing: random, round robin, least loaded, power of two choices."""

import bisect
import math
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Annotated, Literal

import msgspec

from inferometer.router.policy import Candidate, Decision, Policy, Query, Replica, available, by_load, least_loaded


class RandomChoice(Policy):
    """Any replica."""

    name = "random"

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        return Decision(self._random.choice(available(replicas)).name, "random")


class RoundRobin(Policy):
    """One after the other, in the order of the list; unhealthy replicas are skipped."""

    name = "round_robin"
    _turn = 0

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        available(replicas)
        while not (chosen := replicas[self._turn % len(replicas)]).is_available:
            self._turn += 1
        self._turn += 1
        return Decision(chosen.name, "round_robin")


class LeastLoadedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The definition of load: requests in flight, or their prompt tokens."""

    load: Literal["requests", "tokens"] = "requests"


class LeastLoaded(Policy):
    """The replica with the lowest load."""

    name = "least_loaded"
    Settings = LeastLoadedSettings

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        left = available(replicas)
        if self.settings.load == "requests":
            return Decision(least_loaded(left, self._random).name, "least_loaded", by_load(left))
        least = min(replica.tokens_in_flight for replica in left)
        tied = [replica for replica in left if replica.tokens_in_flight == least]
        candidates = tuple(Candidate(replica.name, float(-replica.tokens_in_flight)) for replica in left)
        return Decision(self._random.choice(tied).name, "least_loaded", candidates)


class PowerOfTwo(Policy):
    """The less loaded of two random replicas."""

    name = "power_of_two"

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        left = available(replicas)
        two = self._random.sample(left, min(2, len(left)))
        return Decision(least_loaded(two, self._random).name, "power_of_two", by_load(two))


class SessionAffinitySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`load_factor` bounds the load: no session goes to a replica with more than this many times the mean."""

    load_factor: Annotated[float, msgspec.Meta(ge=1)] = 1.25
    points: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 160  # per replica on the hash ring
    prefix_chars: Annotated[int, msgspec.Meta(ge=0)] = 256  # a query without session is known by its prefix


class SessionAffinity(Policy):
    """Decisions: `session`, `session_overflow` if the session's replica has too much load, `no_session` (least
    loaded)."""

    name = "session_affinity"
    Settings = SessionAffinitySettings
    needs_text = True

    def __init__(self, settings: SessionAffinitySettings, seed: int) -> None:
        super().__init__(settings, seed)
        self._names: tuple[str, ...] = ()
        self._ring: list[tuple[int, str]] = []

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        left = available(replicas)
        key = query.session if query.session is not None else query.text[: self.settings.prefix_chars]
        if not key:
            return Decision(least_loaded(left, self._random).name, "no_session", by_load(left))
        by_name = {replica.name: replica for replica in left}
        most = self._bound(left)
        order = list(self._around(key, tuple(by_name)))
        chosen = next((name for name in order if by_name[name].in_flight < most), order[0])
        candidates = by_load([by_name[name] for name in order])
        return Decision(chosen, "session" if chosen == order[0] else "session_overflow", candidates)

    def _bound(self, left: list[Replica]) -> int:
        """Maximum requests in flight of a replica: the mean, including this request, times the factor."""
        total = sum(replica.in_flight for replica in left) + 1
        factor: float = self.settings.load_factor
        return math.ceil(factor * total / len(left))

    def _around(self, key: str, names: tuple[str, ...]) -> Iterator[str]:
        """The replicas in the order of the ring from the key on, each once."""
        if names != self._names:
            points = range(self.settings.points)
            self._ring = sorted((_place(f"{name}#{point}"), name) for name in names for point in points)
            self._names = names
        start = bisect.bisect(self._ring, (_place(key), ""))
        passed = set()
        for at in range(len(self._ring)):
            name = self._ring[(start + at) % len(self._ring)][1]
            if name not in passed:
                passed.add(name)
                yield name
                if len(passed) == len(names):
                    return


def _place(text: str) -> int:
    """Equal in every process, unlike `hash`."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
