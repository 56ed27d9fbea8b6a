"""Another router's recorded decisions held against a policy of ours: the policy is given the state that the other one
had at every choice (queue lengths, earlier assignments), and its candidates are compared with the recorded ones."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from inferometer.router.policies.prefix import TreePolicy
from inferometer.router.policy import Policy, Query, Replica


class ReplicasChanged(msgspec.Struct, frozen=True, tag="replicas"):
    """The router learned of replicas that came or went."""

    at_s: float
    added: list[str] = []
    removed: list[str] = []


class Chosen(msgspec.Struct, frozen=True, tag="chosen"):
    """One choice: of which replicas with which queue lengths (None: not known), and who was left as a candidate."""

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
        """Two of all at random: nothing that another router could repeat."""
        return self.kind.startswith("fallback") or self.kind == "power_of_two"


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """A request went to a replica."""

    at_s: float
    request: int
    text: str
    replica: str
    insert_s: float = 0.0


Event = ReplicasChanged | Chosen | Sent
_decoder = msgspec.json.Decoder(Event)


def read_events(lines: Iterable[bytes | str]) -> list[Event]:
    """A JSON document on each line."""
    return [_decoder.decode(line) for line in lines if line.strip()]


def write_events(events: Iterable[Event]) -> bytes:
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


@dataclass(slots=True)
class Replayed:
    """How the two compare. A decision is alike where both have the same set of candidates."""

    decisions: int = 0
    random: int = 0  # that were left out: both choose any two
    alike: int = 0
    same_tree: int = 0  # decisions at which both trees held as much of every replica
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)  # recorded kind, ours
    differences: list[tuple[Chosen, str, tuple[str, ...]]] = field(default_factory=list)  # ours: kind and candidates

    @property
    def share_alike(self) -> float | None:
        compared = self.decisions - self.random
        return self.alike / compared if compared else None


def replay(events: Iterable[Event], policy: Policy) -> Replayed:
    """The policy's own choices on the recorded state. It learns what the other router did, not what it would have done
    itself, so that one difference does not lead to the next; and it evicts when the other's tree was found smaller, for
    the instant of an eviction is not a decision."""
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
