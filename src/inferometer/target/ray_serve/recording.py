"""Ray's own request routers, with what they decide noted: the decision is Ray's code, unchanged.

The routers live in the process of whoever holds the handle, here the ingress, which forwards their notes. Ray's names
of methods are its own; those that begin with an underscore are no public interface (tried with Ray 2.60).
"""

import asyncio
import time
from typing import Any

import ray
from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router import PrefixCacheAffinityRouter
from ray.serve._private.request_router import PowerOfTwoChoicesRequestRouter

from inferometer.router.journal import Chosen, Sent
from inferometer.router.policy import PolicyState
from inferometer.target.ray_serve import notes

STATE_S = 1.0


class _Recorded:
    """Common to both routers; in front of Ray's class in the order of inheritance."""

    kind = "power_of_two"

    def initialize_state(self, with_text: bool = False, **settings: Any) -> None:
        notes.NOTES.with_text = with_text
        super().initialize_state(**settings)  # type: ignore[misc]
        self._state_task: asyncio.Task[None] | None = None

    def update_replicas(self, replicas: Any) -> None:
        before = set(self._replica_id_set)  # type: ignore[attr-defined]
        super().update_replicas(replicas)  # type: ignore[misc]
        after = set(self._replica_id_set)  # type: ignore[attr-defined]
        notes.NOTES.replicas(sorted(name_of(it) for it in after - before), sorted(name_of(it) for it in before - after))
        if self._state_task is None:
            self._state_task = asyncio.ensure_future(self._keep_state())

    async def choose_replicas(self, candidate_replicas: Any, pending_request: Any = None) -> Any:
        began = time.monotonic()
        self._before_choice()
        ranks = await super().choose_replicas(  # type: ignore[misc]
            candidate_replicas=candidate_replicas, pending_request=pending_request
        )
        if pending_request is not None and pending_request.args and ranks:
            took_s = time.monotonic() - began
            kind, matched = self._how(pending_request)
            notes.NOTES.chose(
                Chosen(
                    time.monotonic(),
                    notes.NOTES.number(pending_request),
                    text_of(pending_request) if notes.NOTES.with_text else "",
                    self._queues(candidate_replicas),
                    kind,
                    [name_of(replica.replica_id) for replica in ranks[0]],
                    matched,
                    took_s,
                    self._tree_now() if notes.NOTES.with_text else None,
                )
            )
        return ranks

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:
        began = time.monotonic()
        super().on_request_routed(pending_request, replica_id, result)  # type: ignore[misc]
        if pending_request is not None and pending_request.args:
            at_s, text = time.monotonic(), text_of(pending_request)
            kept = text if notes.NOTES.with_text else ""
            notes.NOTES.sent(
                Sent(at_s, notes.NOTES.number(pending_request), kept, name_of(replica_id), at_s - began), text
            )

    def _before_choice(self) -> None:
        pass

    def _how(self, _pending_request: Any) -> tuple[str, int]:
        """Which branch chose, and how many characters matched."""
        return self.kind, 0

    def _queues(self, replicas: Any) -> dict[str, int | None]:
        known = self.replica_queue_len_cache  # type: ignore[attr-defined]
        return {name_of(replica.replica_id): known.get(replica.replica_id) for replica in replicas}

    async def _keep_state(self) -> None:
        while True:
            queues = self._queues(self.curr_replicas.values())  # type: ignore[attr-defined]
            chars = await self._tree_chars()
            load = {name: queue for name, queue in queues.items() if queue is not None}
            notes.NOTES.feed.state(time.monotonic_ns(), load, PolicyState(chars))
            await asyncio.sleep(STATE_S)

    async def _tree_chars(self) -> dict[str, int]:
        return {}

    def _tree_now(self) -> dict[str, int] | None:
        return None


class RecordedPowerOfTwo(_Recorded, PowerOfTwoChoicesRequestRouter):  # type: ignore[misc]
    """Serve's default."""


class RecordedPrefixAware(_Recorded, PrefixCacheAffinityRouter):  # type: ignore[misc]
    """`PrefixCacheAffinityRouter`. What its tree answers is seen by a go-between."""

    _tree_actor: Any

    def initialize_state(self, with_text: bool = False, **settings: Any) -> None:
        super().initialize_state(with_text, **settings)
        self._tree_actor = _SeenTree(self._tree_actor)

    def _before_choice(self) -> None:
        self._tree_actor.matches.pop(asyncio.current_task(), None)

    def _how(self, pending_request: Any) -> tuple[str, int]:
        match = self._tree_actor.matches.pop(asyncio.current_task(), None)
        if match is None:  # the tree was not queried
            return "fallback_imbalanced", 0
        matched = len(ray.get(match)[0])
        text = text_of(pending_request)
        return "smallest_tree" if matched / len(text) < self._match_rate_threshold else "prefix_match", matched

    async def _tree_chars(self) -> dict[str, int]:
        return _by_name(await self._tree_actor.getattr.remote("tenant_to_char_count"))

    def _tree_now(self) -> dict[str, int] | None:
        """Waited for like Ray's own questions to the tree, so that nothing is inserted in between."""
        return _by_name(ray.get(self._tree_actor.getattr.remote("tenant_to_char_count")))


class _SeenTree:
    """Hands every call on to the actor with Ray's tree, and keeps the answer to `prefix_match` for the task that asked:
    several choices are under way at once."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self.matches: dict[Any, Any] = {}
        self.prefix_match = self  # `.remote` below

    def remote(self, *arguments: Any) -> Any:
        match = self.matches[asyncio.current_task()] = self._actor.prefix_match.remote(*arguments)
        return match

    def __getattr__(self, name: str) -> Any:
        return getattr(self._actor, name)


def _by_name(counts: dict[str, int]) -> dict[str, int]:
    return {tenant.rpartition("#")[2]: int(chars) for tenant, chars in counts.items()}


def name_of(replica_id: Any) -> str:
    """The part of Ray's id that distinguishes the replicas of a deployment."""
    return str(replica_id.unique_id)


def text_of(pending_request: Any) -> str:
    """As Ray's router reads it; power of two does not look at it."""
    text: str = PrefixCacheAffinityRouter._extract_text_from_request(_READER, pending_request)
    return text


_READER = PrefixCacheAffinityRouter.__new__(PrefixCacheAffinityRouter)  # for two methods that need no state


__all__ = ["RecordedPowerOfTwo", "RecordedPrefixAware"]
