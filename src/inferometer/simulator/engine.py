"""The scheduler of an inference engine: continuous batching under a token budget, chunked prefill, a paged cache with
prefix caching, preemption by recomputation; and its sequences."""

import heapq
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from inferometer.simulator.tokens import Tokens

# -- blocks of the KV cache --------------------------------------------------------------------------------------------

# The paged key-value cache, indexed by content: a full block is identified by its tokens and all tokens before them.
#
# A block is *private* (partly filled, or not published yet), *live* (published and held by at least one sequence) or
# *idle* (published, not held by any sequence: it can be hit again, and the oldest is evicted first if space is needed).
# If two sequences compute the same block, they share it from then on.


@dataclass(slots=True, eq=False)
class BlockRun:
    """Consecutive blocks that the same sequences hold. They are stored together, because an hour of load moves millions
    of blocks. Only the first `blocks` blocks of its tokens are in the cache."""

    tokens: Tokens
    blocks: int
    holders: int = 0
    before: Self | None = None  # the previous run
    behind: dict[Tokens, Self] = field(default_factory=dict)  # the following runs, by their first block


class BlockPool:
    """Counts private blocks and stores the others as a tree of runs. `private + live + idle <= capacity` always holds.

    A run is split where sequences diverge. A sequence that holds a run holds all runs before it, and releases the
    last one first, so no run is evicted before the runs that continue it.
    """

    def __init__(self, capacity: int, block_size: int) -> None:
        self.capacity = capacity
        self.private = 0
        self.live = 0
        self.idle = 0
        self._size = block_size
        self._root = BlockRun((), 0)
        self._idle_runs: OrderedDict[BlockRun, None] = OrderedDict()  # the oldest first

    @property
    def free(self) -> int:
        """The number of available blocks, including idle ones that can be evicted."""
        return self.capacity - self.private - self.live

    @property
    def usage(self) -> float:
        """The share of blocks held by sequences."""
        return 1 - self.free / self.capacity

    def take(self, blocks: int) -> None:
        """Take a number of blocks as private; the caller has checked `free`."""
        self.private += blocks
        excess = self.private + self.live + self.idle - self.capacity
        while excess > 0:
            excess -= self._evict(excess)

    def _evict(self, most: int) -> int:
        """Evict up to a number of blocks from the end of the oldest idle run."""
        run = next(iter(self._idle_runs))
        count = min(most, run.blocks)
        run.blocks -= count
        self.idle -= count
        if not run.blocks:
            del self._idle_runs[run]
            self._unlink(run)
        return count

    def _unlink(self, run: BlockRun) -> None:
        assert run.before is not None
        del run.before.behind[run.tokens[: self._size]]

    def match(self, tokens: Tokens) -> tuple[int, int]:
        """The number of cached leading blocks, and how many of these are idle."""
        present = idle = 0
        for run, common in self._along(tokens, self._root):
            present += common
            idle += 0 if run.holders else common
        return present, idle

    def _along(self, tokens: Tokens, run: BlockRun) -> Iterator[tuple[BlockRun, int]]:
        """The runs that follow this one along the tokens, and the number of matching blocks of each."""
        at, size = 0, self._size
        while (follower := run.behind.get(tokens[at : at + size])) is not None:
            run, common = follower, self._common(follower, tokens, at)
            whole = common == run.blocks
            yield run, common
            at += common * size
            if not whole:
                return

    def _common(self, run: BlockRun, tokens: Tokens, at: int) -> int:
        """The number of blocks that the run shares with the tokens from `at`; at least one."""
        size = self._size
        most = min(run.blocks, (len(tokens) - at) // size)

        def differ(blocks: int) -> bool:
            return run.tokens[: blocks * size] != tokens[at : at + blocks * size]

        return most if not differ(most) else bisect_right(range(1, most), False, key=differ)

    def hold(self, tokens: Tokens, behind: BlockRun | None = None) -> BlockRun | None:
        """Hold the cached blocks that follow a held run; returns the last held run."""
        for follower, common in self._along(tokens, behind or self._root):
            run = follower
            if common < run.blocks:
                run = self._split_off(run, common)
            elif not run.holders:
                del self._idle_runs[run]
            if not run.holders:
                self.idle -= common
                self.live += common
            run.holders += 1
            behind = run
        return behind

    def _split_off(self, run: BlockRun, blocks: int) -> BlockRun:
        """Split off the beginning of a run as a new run; the rest stays the object that its holders refer to."""
        at = blocks * self._size
        head = BlockRun(run.tokens[:at], blocks, run.holders, run.before)
        run.tokens = run.tokens[at:]
        run.blocks -= blocks
        self._link(head)
        run.before = head
        self._link(run)
        return head

    def _link(self, run: BlockRun) -> None:
        assert run.before is not None
        run.before.behind[run.tokens[: self._size]] = run

    def publish(self, tokens: Tokens, behind: BlockRun | None) -> BlockRun | None:
        """Publish private blocks that are now full, after the last run that the caller holds; returns the new last
        run."""
        self.private -= len(tokens) // self._size
        known = sum(common for _, common in self._along(tokens, behind or self._root)) * self._size
        last = self.hold(tokens[:known], behind) if known else behind
        if known == len(tokens):
            return last
        run = BlockRun(tokens[known:], (len(tokens) - known) // self._size, 1, last or self._root)
        self._link(run)
        self.live += run.blocks
        return run

    def release(self, last: BlockRun | None, private: int) -> None:
        """Release a run and all runs before it; the tail becomes idle first, so it is evicted before a prefix that
        others may share."""
        self.private -= private
        run = last
        while run is not None and run.before is not None:
            run.holders -= 1
            if not run.holders:
                self._idle_runs[run] = None
                self.live -= run.blocks
                self.idle += run.blocks
            run = run.before

    def forget_idle(self) -> None:
        for run in self._idle_runs:
            self._unlink(run)
        self._idle_runs.clear()
        self.idle = 0


# -- sequence --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Sequence:
    """A request in the engine. `spans` are the ranges of steps, [first, end), that generated one token each."""

    prompt: Tokens
    answer: tuple[str, ...]  # the whole answer; its length determines when it is finished
    waiter: Any = None  # the receiver of its tokens
    made: int = 0  # tokens generated so far
    computed: int = 0  # tokens whose keys and values are in the cache
    cached: int | None = None  # prompt tokens in the cache at first admission
    arrived_at: int = 0  # when it reached the engine; set by the caller, which has the clock
    admitted_at: int | None = None  # when its first chunk began; set by the caller
    preemptions: int = 0
    aborted: bool = False
    spans: list[list[int]] = field(default_factory=list)
    held: BlockRun | None = None  # the last published run that it holds
    published: int = 0  # leading published blocks; the others are private
    room: int = 0  # capacity of its blocks, in tokens
    settled: int = 0  # the step up to which these numbers are current, while it decodes
    length: int = field(init=False)  # tokens of the prompt and generated so far
    left: int = field(init=False)  # tokens still to generate

    def __post_init__(self) -> None:
        self.length = len(self.prompt)
        self.left = len(self.answer)

    def give(self, first_step: int, end: int) -> None:
        """Record that the steps from `first_step` to `end` generated a token each."""
        tokens = end - first_step
        self.made += tokens
        self.length += tokens
        self.left -= tokens
        if self.spans and self.spans[-1][1] == first_step:
            self.spans[-1][1] = end
        else:
            self.spans.append([first_step, end])

    def catch_up(self, step: int, block_size: int) -> None:
        """Update its numbers: it has decoded in every step since `settled`."""
        if step > self.settled:
            self.computed += step - self.settled
            self.room = -(-self.computed // block_size) * block_size
            self.give(self.settled, step)
            self.settled = step

    def tokens(self, start: int, end: int) -> Tokens:
        """The tokens of the prompt, then those of the answer."""
        prompt = len(self.prompt)
        if end <= prompt:
            return self.prompt[start:end]
        return self.prompt[start:] + self.answer[max(0, start - prompt) : end - prompt]


# -- decoding --------------------------------------------------------------------------------------------------------


class Decoding:
    """The decoding sequences: when the first is finished, how much context they read, and when they need blocks.

    A sequence takes a new block in the steps where `length % block_size == 1`. Length and step grow together, so
    `(length - step) % block_size`, its phase, is constant while it decodes.
    """

    def __init__(self, block_size: int) -> None:
        self.members: dict[Sequence, None] = {}  # in the order of joining
        self.context = 0  # their tokens in the cache
        self._block_size = block_size
        self._phases = [0] * block_size  # number of sequences per phase
        self._finishes: list[tuple[int, int, Sequence]] = []  # a heap; entries of removed sequences are stale
        self._joined = 0

    def join(self, sequence: Sequence, step: int) -> None:
        sequence.settled = step
        self.members[sequence] = None
        self.context += sequence.computed
        self._phases[(sequence.length - step) % self._block_size] += 1
        self._joined += 1
        heapq.heappush(self._finishes, (step + sequence.left, self._joined, sequence))

    def leave(self, sequence: Sequence, step: int) -> None:
        sequence.catch_up(step, self._block_size)
        del self.members[sequence]
        self.context -= sequence.computed
        self._phases[(sequence.length - step) % self._block_size] -= 1

    def advance(self, steps: int) -> None:
        self.context += len(self.members) * steps

    def first_finish(self) -> int:
        """The step at whose end, counted from 1, the first of them has its last token."""
        while self._is_stale(self._finishes[0]):
            heapq.heappop(self._finishes)
        return self._finishes[0][0]

    def finished(self, step: int) -> list[Sequence]:
        """The sequences that have all their tokens after `step` steps."""
        done = []
        while self._finishes and self._finishes[0][0] <= step:
            entry = heapq.heappop(self._finishes)
            if not self._is_stale(entry):
                done.append(entry[2])
        return done

    def _is_stale(self, entry: tuple[int, int, Sequence]) -> bool:
        finish, _, sequence = entry
        return sequence not in self.members or finish != sequence.settled + sequence.left

    def blocks_for(self, first_step: int, steps: int) -> int:
        """The number of blocks that they take in a number of steps."""
        size = self._block_size
        if steps <= 1:  # about half of the calls
            return self._phases[(1 - first_step) % size] if steps else 0
        rounds, rest = divmod(steps, size)
        some = sum([self._phases[(1 - step) % size] for step in range(first_step, first_step + rest)])
        return rounds * len(self.members) + some


# -- engine ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Batch:
    """One step, or `steps` equal ones: the decoding sequences, and the prefill tokens per sequence."""

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
    """Counters of the engine since its start."""

    preemptions: int = 0
    prompt_tokens: int = 0  # of admitted requests
    cached_tokens: int = 0  # of these, found in the cache


class SimulatorEngine:
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
        self.pool = BlockPool(blocks, block_size)
        self.block_size = block_size
        self.max_sequences = max_sequences
        self.max_batched_tokens = max_batched_tokens
        self.prefix_caching = prefix_caching
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in the order of admission
        self.step = 0
        self.counters = Counters()
        self._decoding = Decoding(block_size)
        self._aborted: list[Sequence] = []  # running, to be released when the step ends

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
        """Remove a sequence: at once if it waits, else when its current step completes."""
        sequence.aborted = True
        if sequence in self.running:
            self._aborted.append(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def settle(self, sequence: Sequence) -> None:
        """Update the sequence's own numbers, which are not current while it decodes."""
        if sequence in self._decoding.members:
            sequence.catch_up(self.step, self.block_size)

    def plan(self, most_steps: int = 1 << 30) -> Batch | None:
        """The next run of steps, with the blocks of its first step allocated; None if there is no work."""
        preemptions = self.counters.preemptions
        self._make_room()
        chunks = self._continued()
        while self.running and not self._decoding.members and not chunks:  # partly computed prompts hold all blocks
            self._preempt(self.running.pop())
            chunks = self._continued()
        preempted = self.counters.preemptions > preemptions
        if not preempted and self.waiting:
            chunks += self._admitted(self.max_batched_tokens - sum(tokens for _, tokens in chunks))
        decodes = list(self._decoding.members)
        if not decodes and not chunks:
            return None
        steps = 1 if chunks or preempted else min(self._steps_alike(), most_steps)
        context = self._decoding.context + sum(sequence.computed for sequence, _ in chunks)
        return Batch(self.step, steps, decodes, chunks, context)

    def complete(self, batch: Batch, steps: int) -> list[Sequence]:
        """Complete the first `steps` steps of the batch; returns the finished sequences."""
        if steps > 1:
            self.pool.take(self._decoding.blocks_for(self.step + 1, steps - 1))
        self._decoding.advance(steps)
        self.step += steps
        for sequence, tokens in batch.chunks:
            self._computed(sequence, tokens)
        finished = [sequence for sequence, _ in batch.chunks if not sequence.left]
        finished += self._decoding.finished(self.step)
        finished += [sequence for sequence in self._aborted if sequence not in finished]
        self._aborted.clear()
        for sequence in finished:
            self._let_go(sequence)
            if sequence in self.running:  # otherwise it was aborted and then preempted
                self.running.remove(sequence)
        return finished

    def _computed(self, sequence: Sequence, tokens: int) -> None:
        """Complete a prefill chunk; the last one generates a token, and the sequence then decodes."""
        sequence.computed += tokens
        self._publish(sequence)
        if sequence.computed == sequence.length:
            sequence.give(self.step - 1, self.step)
        if sequence.left and sequence.computed == sequence.length - 1:
            self._decoding.join(sequence, self.step)

    def _let_go(self, sequence: Sequence) -> None:
        """Remove a sequence from the batch and free its blocks."""
        if sequence in self._decoding.members:
            self._decoding.leave(sequence, self.step)
        self._publish(sequence)
        private = sequence.room // self.block_size - sequence.published
        self.pool.release(sequence.held, private)
        sequence.held = None
        sequence.published = sequence.room = 0

    def _make_room(self) -> None:
        """Allocate the blocks for the decodes of the next step; while there are too few, preempt the last admitted."""
        needed = self._decoding.blocks_for(self.step, 1)
        if needed <= self.pool.free:
            self.pool.take(needed)
            return
        for sequence in [candidate for candidate in self.running if candidate in self._decoding.members]:
            sequence.catch_up(self.step, self.block_size)
            while self._is_full(sequence) and self.pool.free == 0:
                self._preempt(self.running.pop())
            if self._is_full(sequence):
                self._grow(sequence, sequence.length)

    def _is_full(self, sequence: Sequence) -> bool:
        """Whether it decodes and its next token needs a block."""
        return sequence in self._decoding.members and sequence.length > sequence.room

    def _preempt(self, sequence: Sequence) -> None:
        self._let_go(sequence)
        self.counters.preemptions += 1
        sequence.preemptions += 1
        sequence.computed = 0
        if not sequence.aborted:
            self.waiting.appendleft(sequence)

    def _continued(self) -> list[tuple[Sequence, int]]:
        """Chunks for partly computed prompts, within the token budget and the free blocks."""
        decoding = self._decoding.members
        if len(decoding) == len(self.running):
            return []
        chunks, budget = [], self.max_batched_tokens - len(decoding)
        for sequence in self.running:
            room = sequence.room + self.pool.free * self.block_size
            tokens = min(sequence.length - sequence.computed, budget, room - sequence.computed)
            if tokens > 0 and sequence not in decoding:
                self._grow(sequence, sequence.computed + tokens)
                chunks.append((sequence, tokens))
                budget -= tokens
        return chunks

    def _admitted(self, budget: int) -> list[tuple[Sequence, int]]:
        """First chunks of waiting sequences, in order, until one does not fit."""
        chunks = []
        budget -= len(self._decoding.members)
        while budget > 0 and self.waiting and len(self.running) < self.max_sequences:
            sequence = self.waiting[0]
            hit_blocks, idle_hits = self._hits(sequence)
            tokens = min(sequence.length - hit_blocks * self.block_size, budget)
            needed = self._blocks(hit_blocks * self.block_size + tokens) - hit_blocks
            if needed + idle_hits > self.pool.free:
                break
            self.waiting.popleft()
            self._admit(sequence, hit_blocks, needed)
            chunks.append((sequence, tokens))
            budget -= tokens
        return chunks

    def _hits(self, sequence: Sequence) -> tuple[int, int]:
        """The number of cached leading blocks, and how many of them are idle. The last token is always computed,
        because it generates the next one."""
        if not self.prefix_caching:
            return 0, 0
        return self.pool.match(sequence.tokens(0, sequence.length - 1))

    def _admit(self, sequence: Sequence, hit_blocks: int, needed: int) -> None:
        sequence.published = hit_blocks
        sequence.room = sequence.computed = hit_blocks * self.block_size
        sequence.held = self.pool.hold(sequence.tokens(0, sequence.computed))
        self._take(sequence, needed)
        if sequence.cached is None:
            sequence.cached = sequence.computed
            self.counters.prompt_tokens += len(sequence.prompt)
            self.counters.cached_tokens += sequence.computed
        self.running.append(sequence)

    def _steps_alike(self) -> int:
        """The number of equal steps until the first sequence finishes or the blocks do not suffice."""
        steps = self._decoding.first_finish() - self.step
        free = self.pool.free
        if len(self._decoding.members) * self._blocks(steps) <= free:
            return steps
        begin = self.step + 1
        return bisect_right(range(steps), free, key=lambda more: self._decoding.blocks_for(begin, more))

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _grow(self, sequence: Sequence, tokens: int) -> None:
        if tokens > sequence.room:
            self._take(sequence, self._blocks(tokens - sequence.room))

    def _take(self, sequence: Sequence, blocks: int) -> None:
        self.pool.take(blocks)
        sequence.room += blocks * self.block_size

    def _publish(self, sequence: Sequence) -> None:
        """Publish the full blocks."""
        full = sequence.computed // self.block_size
        if not self.prefix_caching or full <= sequence.published:
            return
        new = sequence.tokens(sequence.published * self.block_size, full * self.block_size)
        sequence.held = self.pool.publish(new, sequence.held)
        sequence.published = full
