"""One decision of a router, and the feed through which a router over sockets publishes its decisions, its load and its
memory to an observer. Lightweight, because it runs in the router's own process."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from inferometer.measure.telemetry import ROUTER
from inferometer.record.record import Sample
from inferometer.router.policy import Eviction, PolicyState

PATH = "/router/journal"
MOST_KEPT = 100_000  # unread entries: eight minutes at 200 requests/s


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision of the router."""

    at: int
    session: int
    replica: str
    kind: str
    match_rate: float
    cached_tokens: int | None  # prompt tokens in the chosen replica's cache at the choice; None: unknown
    best_cached_tokens: int | None  # the most that any replica held at that time
    searched: int  # replicas that were compared
    took_s: float  # time on this machine for the choice
    insert_s: float = 0.0  # and for recording where the prompt went
    given_to: int | None = None  # the request that finally received the replica, if it is another one


def of_choice(choice: Choice) -> list[Sample]:
    """With the same instant and in the same order for every choice, so that the columns can be joined."""
    labels = {"replica": choice.replica, "kind": choice.kind}
    values = {
        "decision": choice.session,
        "given_to": choice.session if choice.given_to is None else choice.given_to,
        "match_rate": choice.match_rate,
        "cached_tokens": choice.cached_tokens,
        "best_cached_tokens": choice.best_cached_tokens,
        "searched": choice.searched,
        "search_s": choice.took_s,
        "insert_s": choice.insert_s,
    }
    return [
        Sample(ROUTER, name, choice.at, float(value), labels) for name, value in values.items() if value is not None
    ]


class FeedPage(msgspec.Struct, frozen=True):
    """The router's entries since a reader's last request."""

    now: int  # on the router's monotonic clock
    next: int  # start number of the next request
    lost: int  # entries that were dropped before they were read
    samples: list[Sample]


class Feed:
    """The notes of a router over sockets for an observer, which fetches new ones once a second. Adding an entry is part
    of every request, so samples are only built when fetched."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._entries: deque[Choice | Sample] = deque(maxlen=most)
        self._added = 0

    def add(self, entry: Choice | Sample) -> None:
        self._entries.append(entry)
        self._added += 1

    def state(self, at: int, in_flight: Mapping[str, int], state: PolicyState) -> None:
        """Current load of every replica, and the policy's memory."""
        for name, requests in in_flight.items():
            self.add(Sample(ROUTER, "in_flight", at, float(requests), {"replica": name}))
        for name, chars in state.tree_chars.items():
            self.add(Sample(ROUTER, "tree_chars", at, float(chars), {"replica": name}))
        self.add(Sample(ROUTER, "tree_nodes", at, float(state.tree_nodes)))

    def evicted(self, at: int, evictions: Iterable[Eviction], took_s: float) -> None:
        for eviction in evictions:
            self.add(Sample(ROUTER, "evicted_chars", at, float(eviction.chars), {"replica": eviction.replica}))
        self.add(Sample(ROUTER, "eviction_s", at, took_s))

    def page(self, since: int, now: int) -> FeedPage:
        """The entries after the first `since`."""
        first = self._added - len(self._entries)
        new = list(self._entries)[max(since - first, 0) :] if since < self._added else []
        samples = [sample for entry in new for sample in (of_choice(entry) if isinstance(entry, Choice) else [entry])]
        return FeedPage(now, self._added, max(first - since, 0), samples)
