"""Ray's own request routers with their decisions recorded: the decision itself is Ray's code, unchanged.

The routers live in the process that holds the handle, here the ingress, which forwards their notes. Method names are
Ray's; those that start with an underscore are not a public interface (tested with Ray 2.60).
"""

import asyncio
import time
from typing import Any

import ray
from ray.llm._internal.serve.routing_policies.prefix_aware import prefix_aware_router as of_ray
from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router import PrefixCacheAffinityRouter
from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_tree import PrefixTree
from ray.serve._private.request_router import PowerOfTwoChoicesRequestRouter

from inferometer.router.journal import Chosen, Sent
from inferometer.router.policy import PolicyState
from inferometer.target.ray_serve import notes

STATE_S = 1.0


class _Recorded:
    """Shared by both routers; in front of Ray's class in the method resolution order."""

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
        self._after_insert()
        if pending_request is not None and pending_request.args:
            at_s, text = time.monotonic(), text_of(pending_request)
            kept = text if notes.NOTES.with_text else ""
            notes.NOTES.sent(
                Sent(at_s, notes.NOTES.number(pending_request), kept, name_of(replica_id), at_s - began), text
            )

    def _before_choice(self) -> None:
        pass

    def _after_insert(self) -> None:
        pass

    def _how(self, _pending_request: Any) -> tuple[str, int]:
        """The branch that made the choice, and how many characters matched."""
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
            await self._note_calls()
            await asyncio.sleep(STATE_S)

    async def _tree_chars(self) -> dict[str, int]:
        return {}

    async def _note_calls(self) -> None:
        pass

    def _tree_now(self) -> dict[str, int] | None:
        return None


class RecordedPowerOfTwo(_Recorded, PowerOfTwoChoicesRequestRouter):  # type: ignore[misc]
    """Serve's default."""


class TimedTree(PrefixTree):  # type: ignore[misc]
    """Ray's tree, which also records the start and end of calls that a request waits for."""

    def __init__(self) -> None:
        super().__init__()
        self._worked: dict[str, list[tuple[float, float]]] = {"match": [], "insert": []}

    def prefix_match(self, *arguments: Any) -> Any:
        began = time.monotonic()
        try:
            return super().prefix_match(*arguments)
        finally:
            self._worked["match"].append((began, time.monotonic()))

    def insert(self, *arguments: Any) -> None:
        began = time.monotonic()
        try:
            super().insert(*arguments)
        finally:
            self._worked["insert"].append((began, time.monotonic()))

    def take_worked(self) -> tuple[str, dict[str, list[tuple[float, float]]]]:
        """Times by step, since the last call; and the node of the clock."""
        taken, self._worked = self._worked, {"match": [], "insert": []}
        return ray.get_runtime_context().get_node_id(), taken

    def getattr(self, name: str) -> Any:
        """As in Ray's actor."""
        return getattr(self, name)

    def setattr(self, name: str, value: Any) -> None:
        setattr(self, name, value)


class RecordedPrefixAware(_Recorded, PrefixCacheAffinityRouter):  # type: ignore[misc]
    """`PrefixCacheAffinityRouter`, with a proxy object that sees the answers of its tree."""

    _tree_actor: Any

    def initialize_state(self, with_text: bool = False, **settings: Any) -> None:
        of_rays = of_ray.PrefixTreeActor
        of_ray.PrefixTreeActor = ray.remote(TimedTree)
        try:
            super().initialize_state(with_text, **settings)
        finally:
            of_ray.PrefixTreeActor = of_rays
        self._tree_actor = _SeenTree(self._tree_actor)

    def _before_choice(self) -> None:
        self._tree_actor.matches.pop(asyncio.current_task(), None)

    def _after_insert(self) -> None:
        self._tree_actor.calls.returned("insert", asyncio.current_task())

    async def _note_calls(self) -> None:
        if not self._tree_actor.is_timed:
            return
        node, worked = await self._tree_actor.take_worked.remote()
        samples = self._tree_actor.calls.samples(worked)
        if node == ray.get_runtime_context().get_node_id():  # else their clocks differ by more than a call takes
            for sample in samples:
                notes.NOTES.feed.add(sample)

    def _how(self, pending_request: Any) -> tuple[str, int]:
        self._tree_actor.calls.returned("match", asyncio.current_task())
        match = self._tree_actor.matches.pop(asyncio.current_task(), None)
        if match is None:  # the tree was not queried
            return "fallback_imbalanced", 0
        matched = len(ray.get(match)[0])
        text = text_of(pending_request)
        return "smallest_tree" if matched / len(text) < self._match_rate_threshold else "prefix_match", matched

    async def _tree_chars(self) -> dict[str, int]:
        return _by_name(await self._tree_actor.getattr.remote("tenant_to_char_count"))

    def _tree_now(self) -> dict[str, int] | None:
        """Waits in the same way as Ray's own calls to the tree, so that nothing is inserted in between."""
        return _by_name(ray.get(self._tree_actor.getattr.remote("tenant_to_char_count")))


class _SeenTree:
    """Forwards every call to the actor with Ray's tree, and keeps the answer to `prefix_match` for the calling task:
    several choices are in progress at once."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self.is_timed = hasattr(actor, "take_worked")  # not one that a run without recording left on a cluster
        self.calls = notes.TreeCalls()
        self.matches: dict[Any, Any] = {}
        self.prefix_match = self  # `.remote` below

    def remote(self, *arguments: Any) -> Any:
        self.calls.called("match", asyncio.current_task())
        match = self.matches[asyncio.current_task()] = self._actor.prefix_match.remote(*arguments)
        return match

    def __getattr__(self, name: str) -> Any:
        if name == "insert":
            self.calls.called("insert", asyncio.current_task())
        elif name == "get_smallest_tenants":  # its query after a match that was too short
            self.calls.returned("match", asyncio.current_task())
        return getattr(self._actor, name)


def _by_name(counts: dict[str, int]) -> dict[str, int]:
    return {tenant.rpartition("#")[2]: int(chars) for tenant, chars in counts.items()}


def name_of(replica_id: Any) -> str:
    """The part of Ray's id that distinguishes the replicas of a deployment."""
    return str(replica_id.unique_id)


def text_of(pending_request: Any) -> str:
    """As Ray's router reads it; power of two ignores it."""
    text: str = PrefixCacheAffinityRouter._extract_text_from_request(_READER, pending_request)
    return text


_READER = PrefixCacheAffinityRouter.__new__(PrefixCacheAffinityRouter)  # for two methods that need no state


__all__ = ["RecordedPowerOfTwo", "RecordedPrefixAware"]
