"""Policies that look at load alone, or at nothing: random, round robin, least loaded, power of two choices."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from inferometer.router.policy import Candidate, Decision, Policy, Query, Replica, available, by_load, least_loaded


class RandomChoice(Policy):
    """Any replica."""

    name = "random"

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        return Decision(self._random.choice(available(replicas)).name, "random")


class RoundRobin(Policy):
    """One after the other, in the order of the list; one that is down is passed over."""

    name = "round_robin"
    _turn = 0

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        available(replicas)
        while not (chosen := replicas[self._turn % len(replicas)]).is_available:
            self._turn += 1
        self._turn += 1
        return Decision(chosen.name, "round_robin")


class LeastLoadedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What load is: requests in flight, or their prompt tokens."""

    load: Literal["requests", "tokens"] = "requests"


class LeastLoaded(Policy):
    """The replica with the least in flight."""

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
