"""The scheduler of an inference engine: continuous batching under a token budget, chunked prefill, a paged cache with
prefix caching, preemption by recompute. Pure: it knows neither time nor sockets; `simulator.loop` gives it both.

It plans runs of steps: while nobody arrives, finishes or runs out of blocks, every step is like the one before.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from inferometer.simulator.blocks import BlockPool
from inferometer.simulator.tokens import Token, chain


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine. `spans` are the steps, as [first, end), that gave it one token each."""

    prompt: list[Token]
    answer: list[str]  # all it will say; its length decides when it is finished
    waiter: Any = None  # whoever wants its tokens
    made: int = 0  # tokens generated so far
    computed: int = 0  # tokens whose keys and values are in the cache
    cached: int | None = None  # prompt tokens found in the cache when first admitted
    admitted_at: int | None = None  # when its first chunk began; set by whoever knows the time
    preemptions: int = 0
    aborted: bool = False
    spans: list[list[int]] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    published: int = 0  # leading blocks held by hash; those beyond are private
    room: int = 0  # tokens that its blocks can hold
    length: int = field(init=False)  # of the prompt and what is made
    left: int = field(init=False)  # tokens still to make

    def __post_init__(self) -> None:
        self.length = len(self.prompt)
        self.left = len(self.answer)

    def give(self, first_step: int, end: int) -> None:
        """The steps from `first_step` to `end` gave it a token each."""
        tokens = end - first_step
        self.made += tokens
        self.length += tokens
        self.left -= tokens
        if self.spans and self.spans[-1][1] == first_step:
            self.spans[-1][1] = end
        else:
            self.spans.append([first_step, end])


@dataclass(slots=True)
class Batch:
    """One step, or `steps` equal ones: who decodes, and who gets how many tokens of prefill."""

    first_step: int
    steps: int
    decodes: list[Sequence]
    chunks: list[tuple[Sequence, int]]
    context: int  # cached tokens that the first step reads

    @property
    def prefill_tokens(self) -> int:
        return sum(tokens for _, tokens in self.chunks)


@dataclass(slots=True)
class Counters:
    """What the engine has done since it began."""

    preemptions: int = 0
    prompt_tokens: int = 0  # of admitted requests
    cached_tokens: int = 0  # of these, found in the cache


class Engine:
    """First come, first served; decodes before prefill; the last admitted is the first preempted."""

    def __init__(
        self,
        blocks: int = 56_916,
        block_size: int = 16,
        max_sequences: int = 1024,
        max_batched_tokens: int = 8192,
        prefix_caching: bool = True,
    ) -> None:
        if max_batched_tokens < max_sequences:
            raise ValueError("max_batched_tokens must be at least max_sequences: every sequence decodes in every step")
        self.pool = BlockPool(blocks)
        self.block_size = block_size
        self.max_sequences = max_sequences
        self.max_batched_tokens = max_batched_tokens
        self.prefix_caching = prefix_caching
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in the order of admission
        self.step = 0
        self.counters = Counters()

    @property
    def capacity_tokens(self) -> int:
        return self.pool.capacity * self.block_size

    def add(self, sequence: Sequence) -> None:
        if len(sequence.prompt) + len(sequence.answer) > self.capacity_tokens:
            raise ValueError(
                f"a sequence of {len(sequence.prompt)} + {len(sequence.answer)} tokens never fits the cache"
            )
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence: at once while it waits, else when the step that holds it completes."""
        sequence.aborted = True
        if sequence in self.waiting:
            self.waiting.remove(sequence)

    def plan(self, most_steps: int = 1 << 30) -> Batch | None:
        """The next run of steps, with the blocks of its first step taken; None when there is nothing to do."""
        preemptions = self.counters.preemptions
        decodes, chunks = self._running_part()
        while self.running and not decodes and not chunks:  # half-computed prompts hold every block
            self._preempt(self.running.pop())
            decodes, chunks = self._running_part()
        preempted = self.counters.preemptions > preemptions
        if not preempted and self.waiting:
            used = len(decodes) + sum(tokens for _, tokens in chunks)
            chunks += self._admitted(self.max_batched_tokens - used)
        if not decodes and not chunks:
            return None
        context = sum([sequence.computed for sequence in decodes]) + sum(sequence.computed for sequence, _ in chunks)
        steps = 1 if chunks or preempted else min(self._steps_alike(decodes), most_steps)
        return Batch(self.step, steps, decodes, chunks, context)

    def complete(self, batch: Batch, steps: int) -> list[Sequence]:
        """The first `steps` steps of the batch have happened; returns those that are finished by it."""
        first, end = batch.first_step, batch.first_step + steps
        for sequence in batch.decodes:
            sequence.computed += steps
            if sequence.computed > sequence.room:
                self._grow(sequence, sequence.computed)
            sequence.give(first, end)
        for sequence, tokens in batch.chunks:
            sequence.computed += tokens
            self._publish(sequence)
            if sequence.computed == sequence.length:
                sequence.give(first, end)
        self.step = end
        return self._retire()

    def _running_part(self) -> tuple[list[Sequence], list[tuple[Sequence, int]]]:
        """What the next step does for those who run: all that decode, and chunks of prompts not yet computed."""
        self._make_room()
        decodes = [each for each in self.running if each.computed == each.length - 1]
        if len(decodes) == len(self.running):
            return decodes, []
        return decodes, self._continued(self.max_batched_tokens - len(decodes))

    def _retire(self) -> list[Sequence]:
        finished = [each for each in self.running if each.left == 0 or each.aborted]
        if finished:
            self.running = [each for each in self.running if each.left and not each.aborted]
            for sequence in finished:
                self._release(sequence)
        return finished

    def _make_room(self) -> None:
        """Take a block for every decode that needs one; while there is none, preempt the last admitted."""
        full = [each for each in self.running if each.length > each.room and each.computed == each.length - 1]
        for sequence in full:
            while self.pool.free == 0 and sequence.room:
                self._preempt(self.running.pop())
            if sequence.room:  # else it was itself preempted
                self._grow(sequence, sequence.length)

    def _preempt(self, sequence: Sequence) -> None:
        self._release(sequence)
        self.counters.preemptions += 1
        sequence.preemptions += 1
        sequence.computed = 0
        if not sequence.aborted:
            self.waiting.appendleft(sequence)

    def _continued(self, budget: int) -> list[tuple[Sequence, int]]:
        """Chunks for prompts that are partly computed, as far as tokens and blocks go."""
        chunks = []
        for sequence in self.running:
            left = sequence.length - sequence.computed
            tokens = min(left, budget, self._room(sequence) - sequence.computed)
            if left > 1 and tokens > 0:
                self._grow(sequence, sequence.computed + tokens)
                chunks.append((sequence, tokens))
                budget -= tokens
        return chunks

    def _room(self, sequence: Sequence) -> int:
        """How many tokens the sequence's blocks and all free ones could hold."""
        return sequence.room + self.pool.free * self.block_size

    def _admitted(self, budget: int) -> list[tuple[Sequence, int]]:
        """First chunks of those who wait, in order, until one does not fit."""
        chunks = []
        while budget > 0 and self.waiting and len(self.running) < self.max_sequences:
            sequence = self.waiting[0]
            hit_blocks, idle_hits = self._hits(sequence)
            hits = sequence.hashes[:hit_blocks]
            tokens = min(sequence.length - hit_blocks * self.block_size, budget)
            needed = self._blocks(hit_blocks * self.block_size + tokens) - hit_blocks
            if needed + idle_hits > self.pool.free:
                break
            self.waiting.popleft()
            self._admit(sequence, hits, needed)
            chunks.append((sequence, tokens))
            budget -= tokens
        return chunks

    def _hits(self, sequence: Sequence) -> tuple[int, int]:
        """Leading blocks that are cached, and how many of them nobody holds; the last token is always computed, for it
        gives the next one."""
        if not self.prefix_caching:
            return 0, 0
        self._hash(sequence, sequence.length)
        return self.pool.match(sequence.hashes[: (sequence.length - 1) // self.block_size])

    def _admit(self, sequence: Sequence, hits: list[int], needed: int) -> None:
        self.pool.hold(hits)
        sequence.published = len(hits)
        sequence.room = sequence.computed = len(hits) * self.block_size
        self._take(sequence, needed)
        if sequence.cached is None:
            sequence.cached = sequence.computed
            self.counters.prompt_tokens += len(sequence.prompt)
            self.counters.cached_tokens += sequence.computed
        self.running.append(sequence)

    def _steps_alike(self, decodes: list[Sequence]) -> int:
        """Until the first of them is finished or the blocks do not suffice; the first step has its blocks."""
        steps = min([sequence.left for sequence in decodes])
        free = self.pool.free
        if len(decodes) * self._blocks(steps) <= free:
            return max(steps, 1)

        def needed(count: int) -> int:
            return sum(max(0, self._blocks(each.computed + count - each.room)) for each in decodes)

        return max(1, bisect_right(range(1, steps + 1), free, key=needed))

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _grow(self, sequence: Sequence, tokens: int) -> None:
        if tokens > sequence.room:
            self._take(sequence, self._blocks(tokens - sequence.room))

    def _take(self, sequence: Sequence, blocks: int) -> None:
        self.pool.take(blocks)
        sequence.room += blocks * self.block_size

    def _hash(self, sequence: Sequence, tokens: int) -> None:
        """Have the hashes of all full blocks among the first `tokens`."""
        start, prompt = len(sequence.hashes) * self.block_size, len(sequence.prompt)
        if tokens - start < self.block_size:
            return
        if tokens <= prompt:
            chain(sequence.prompt[start:], self.block_size, sequence.hashes)
        else:
            made = sequence.answer[max(0, start - prompt) : tokens - prompt]
            chain([*sequence.prompt[start:], *made], self.block_size, sequence.hashes)

    def _publish(self, sequence: Sequence) -> None:
        """Let others find the blocks that are full."""
        full = sequence.computed // self.block_size
        if not self.prefix_caching or full <= sequence.published:
            return
        self._hash(sequence, sequence.computed)
        self.pool.publish(sequence.hashes[sequence.published : full])
        sequence.published = full

    def _release(self, sequence: Sequence) -> None:
        self._publish(sequence)
        private = sequence.room // self.block_size - sequence.published
        self.pool.release(sequence.hashes[: sequence.published], private)
        sequence.published = sequence.room = 0
