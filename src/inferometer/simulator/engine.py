"""The scheduler of an inference engine: continuous batching under a token budget, chunked prefill, a paged cache with
prefix caching, preemption by recomputation; and the sequences it works on."""

import heapq
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from inferometer.simulator.tokens import Tokens

# -- blocks of the KV cache --------------------------------------------------------------------------------------------

# The paged key-value cache, by content: a full block is known by its tokens and all before them.
#
# A block is *private* (partly filled, or not published yet), *live* (published and held by at least one sequence) or
# *idle* (published, held by nobody: a hit if asked for again, the oldest evicted first when room is needed). Two
# sequences that compute the same block share it from then on.


@dataclass(slots=True, eq=False)
class BlockRun:
    """Blocks that follow each other and are held by the same sequences; kept together, because an hour of load
    moves millions of blocks and nearly all of them alone. Of its tokens only the first `blocks` blocks are there."""

    tokens: Tokens
    blocks: int
    holders: int = 0
    before: Self | None = None  # the run that it continues
    behind: dict[Tokens, Self] = field(default_factory=dict)  # those that continue it, by their first block


class BlockPool:
    """Counts private blocks and keeps the others as a tree of runs. `private + live + idle <= capacity`, always.

    A run is split where sequences part. Whoever holds a run holds all before it, and lets go of the last one first:
    so no run is evicted before those that continue it.
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
        """Blocks that can be had, evicting idle ones if need be."""
        return self.capacity - self.private - self.live

    @property
    def usage(self) -> float:
        """Share of the blocks that sequences hold."""
        return 1 - self.free / self.capacity

    def take(self, blocks: int) -> None:
        """Make so many blocks private; the caller has checked `free`."""
        self.private += blocks
        excess = self.private + self.live + self.idle - self.capacity
        while excess > 0:
            excess -= self._evict(excess)

    def _evict(self, most: int) -> int:
        """Up to so many blocks off the end of the oldest idle run."""
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
        """How many of the leading blocks are there, and how many of these are idle."""
        present = idle = 0
        for run, common in self._along(tokens, self._root):
            present += common
            idle += 0 if run.holders else common
        return present, idle

    def _along(self, tokens: Tokens, run: BlockRun) -> Iterator[tuple[BlockRun, int]]:
        """The runs behind this one that the tokens go along, and how many blocks of each they have."""
        at, size = 0, self._size
        while (follower := run.behind.get(tokens[at : at + size])) is not None:
            run, common = follower, self._common(follower, tokens, at)
            whole = common == run.blocks
            yield run, common
            at += common * size
            if not whole:
                return

    def _common(self, run: BlockRun, tokens: Tokens, at: int) -> int:
        """How many blocks the run has in common with the tokens from `at`; at least one."""
        size = self._size
        most = min(run.blocks, (len(tokens) - at) // size)

        def differ(blocks: int) -> bool:
            return run.tokens[: blocks * size] != tokens[at : at + blocks * size]

        return most if not differ(most) else bisect_right(range(1, most), False, key=differ)

    def hold(self, tokens: Tokens, behind: BlockRun | None = None) -> BlockRun | None:
        """Take part in the blocks that are there, behind a run that is held; returns the last one held."""
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
        """The beginning of a run as one of its own; the rest is what those who hold it know, and keeps its place."""
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
        """Private blocks that are now full become findable, behind the last run that the caller holds; returns the new
        last one."""
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
        """Let go of a run and all before it; the tail becomes idle first, so that it is evicted before a prefix that
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
    """`spans` are the steps, as [first, end), that gave it one token each."""

    prompt: Tokens
    answer: tuple[str, ...]  # the whole answer; its length decides when it is finished
    waiter: Any = None  # the receiver of its tokens
    made: int = 0  # tokens generated so far
    computed: int = 0  # tokens whose keys and values are in the cache
    cached: int | None = None  # prompt tokens found in the cache when first admitted
    arrived_at: int = 0  # when the engine got it; set by the caller, who has the clock
    admitted_at: int | None = None  # when its first chunk began; set by the caller
    preemptions: int = 0
    aborted: bool = False
    spans: list[list[int]] = field(default_factory=list)
    held: BlockRun | None = None  # the last run of blocks that it holds by content
    published: int = 0  # leading blocks held by content; those beyond are private
    room: int = 0  # tokens that its blocks can hold
    settled: int = 0  # the step up to which these numbers are right, while it decodes
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

    def catch_up(self, step: int, block_size: int) -> None:
        """It has decoded in every step since it was settled."""
        if step > self.settled:
            self.computed += step - self.settled
            self.room = -(-self.computed // block_size) * block_size
            self.give(self.settled, step)
            self.settled = step

    def tokens(self, start: int, end: int) -> Tokens:
        """Those of the prompt and, behind it, of the answer."""
        prompt = len(self.prompt)
        if end <= prompt:
            return self.prompt[start:end]
        return self.prompt[start:] + self.answer[max(0, start - prompt) : end - prompt]


# -- decoding --------------------------------------------------------------------------------------------------------


class Decoding:
    """Knows when the first is finished, how much context they read and when they need blocks.

    A sequence takes a new block in the steps where `length % block_size == 1`. As length and step grow together,
    `(length - step) % block_size` stays the same while it decodes: its phase.
    """

    def __init__(self, block_size: int) -> None:
        self.members: dict[Sequence, None] = {}  # in the order of joining
        self.context = 0  # tokens of theirs in the cache
        self._block_size = block_size
        self._phases = [0] * block_size  # how many have each phase
        self._finishes: list[tuple[int, int, Sequence]] = []  # a heap; entries of those who left are stale
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
        """Those who have all their tokens after `step` steps."""
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
        """How many blocks they take in so many steps."""
        size = self._block_size
        if steps <= 1:  # of nearly every second question
            return self._phases[(1 - first_step) % size] if steps else 0
        rounds, rest = divmod(steps, size)
        some = sum([self._phases[(1 - step) % size] for step in range(first_step, first_step + rest)])
        return rounds * len(self.members) + some


# -- engine ----------------------------------------------------------------------------------------------------------


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
        self._aborted: list[Sequence] = []  # running, to be let go of when the step ends

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
        if sequence in self.running:
            self._aborted.append(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def settle(self, sequence: Sequence) -> None:
        """Bring the sequence's own numbers up to date; while it decodes they are not."""
        if sequence in self._decoding.members:
            sequence.catch_up(self.step, self.block_size)

    def plan(self, most_steps: int = 1 << 30) -> Batch | None:
        """The next run of steps, with the blocks of its first step taken; None when there is nothing to do."""
        preemptions = self.counters.preemptions
        self._make_room()
        chunks = self._continued()
        while self.running and not self._decoding.members and not chunks:  # half-computed prompts hold every block
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
        """The first `steps` steps of the batch have happened; returns those that are finished by it."""
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
            if sequence in self.running:  # else it was aborted and then preempted
                self.running.remove(sequence)
        return finished

    def _computed(self, sequence: Sequence, tokens: int) -> None:
        """A chunk is done; the last one gives a token, and the sequence goes on decoding."""
        sequence.computed += tokens
        self._publish(sequence)
        if sequence.computed == sequence.length:
            sequence.give(self.step - 1, self.step)
        if sequence.left and sequence.computed == sequence.length - 1:
            self._decoding.join(sequence, self.step)

    def _let_go(self, sequence: Sequence) -> None:
        """Out of the batch, its blocks free."""
        if sequence in self._decoding.members:
            self._decoding.leave(sequence, self.step)
        self._publish(sequence)
        private = sequence.room // self.block_size - sequence.published
        self.pool.release(sequence.held, private)
        sequence.held = None
        sequence.published = sequence.room = 0

    def _make_room(self) -> None:
        """Take the blocks that the decodes of the next step need; while there are none, preempt the last admitted."""
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
        """Chunks for prompts that are partly computed, as far as tokens and blocks go."""
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
        """First chunks of those who wait, in order, until one does not fit."""
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
        """Leading blocks that are cached, and how many of them are unused; the last token is always computed, for it
        gives the next one."""
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
        """Until the first of them is finished or the blocks do not suffice; the first step has its blocks."""
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
        """Let others find the blocks that are full."""
        full = sequence.computed // self.block_size
        if not self.prefix_caching or full <= sequence.published:
            return
        new = sequence.tokens(sequence.published * self.block_size, full * self.block_size)
        sequence.held = self.pool.publish(new, sequence.held)
        sequence.published = full
