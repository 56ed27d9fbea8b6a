"""An engine that schedules one step ahead, as vLLM does by default, behind a frontend of one process.

While the GPU computes step n, the CPU launches step n + 1. Tokens of a step are known when its computation has ended
and the next step is launched: a slow launch (a prefill too large for CUDA graphs) delays the tokens of the previous
step. With S the time at which a step is scheduled and launched, G the end of its computation, E the time at which its
tokens are known and F the time at which the frontend has sent them:

    S(n) = E(n - 2)                                      at most two steps are in progress
    G(n) = max(max(G(n - 1), S(n)) + g(n), S(n) + l(n) + tail)
    E(n) = max(G(n), S(n + 1) + l(n + 1))
    g(n) = max(base, (t_p + u t_h) * (tokens + attended / attention_tokens)) + t_d * decodes + t_c * context
    F(n) = max(E(n), frontend free) + t_o * tokens made

u is the share of about the last second in which the GPU computed prefill: at the power limit its clock is reduced.

A request passes the frontend, waits for the next E, and then for the step that is already launched.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp

import numpy as np

from inferometer.load.clock import Clock, Timer
from inferometer.simulator.engine import Batch, Sequence, SimulatorEngine
from inferometer.simulator.loop import EngineLoop, StepEnds
from inferometer.simulator.settings import Instants, Noise, SimulatorSettings
from inferometer.vocabulary import NANOSECONDS


@dataclass(slots=True, frozen=True)
class PipelineTime:
    """Nanoseconds of the parts of a step."""

    base_ns: float
    decode_sequence_ns: float
    context_token_ns: float
    compute_token_ns: float
    throttle_token_ns: float
    attention_tokens: float
    launch_decode_ns: float
    launch_graph_ns: float
    launch_eager_ns: float
    launch_sequence_ns: float
    graph_tokens: int
    tail_ns: float

    @classmethod
    def of(cls, settings: SimulatorSettings) -> "PipelineTime":
        steps, ahead = settings.step_time, settings.pipeline
        assert ahead is not None
        unit = NANOSECONDS / settings.speed
        return cls(
            base_ns=steps.base * unit,
            decode_sequence_ns=steps.decode_sequence * unit,
            context_token_ns=steps.context_token * unit,
            compute_token_ns=ahead.compute_token * unit,
            throttle_token_ns=ahead.throttle_token * unit,
            attention_tokens=ahead.attention_tokens,
            launch_decode_ns=ahead.launch_decode * unit,
            launch_graph_ns=ahead.launch_graph * unit,
            launch_eager_ns=ahead.launch_eager * unit,
            launch_sequence_ns=ahead.launch_sequence * unit,
            graph_tokens=ahead.graph_tokens,
            tail_ns=ahead.tail * unit,
        )

    def launch_ns(self, prefill_tokens: int, sequences: int) -> float:
        """The CPU time of a launch: one graph for decodes, a piecewise graph for small mixed steps, else eager
        kernels."""
        if prefill_tokens + sequences > self.graph_tokens:
            launch = self.launch_eager_ns
        else:
            launch = self.launch_graph_ns if prefill_tokens else self.launch_decode_ns
        return launch + self.launch_sequence_ns * sequences

    def compute_ns(self, prefill_tokens: int, decodes: int, context: int, attended: float, busy: float = 0.0) -> float:
        """The GPU time of a step; `attended` is the context that each prefill token reads, summed over the tokens,
        `busy` the recent share of time in which it computed prefill."""
        token_ns = self.compute_token_ns + busy * self.throttle_token_ns
        compute = token_ns * (prefill_tokens + decodes + attended / self.attention_tokens)
        return max(self.base_ns, compute) + self.decode_sequence_ns * decodes + self.context_token_ns * context


def attended(batch: Batch) -> float:
    """The context that prefill tokens read, summed: the cached tokens before, and half of the own chunk per token."""
    return sum(tokens * (sequence.computed + tokens / 2) for sequence, tokens in batch.chunks)


BUSY_NS = NANOSECONDS  # averaging time of the GPU's load: a power limit acts within a second


class PrefillShare:
    """The share of time in which prefill was computed, with decreasing weight of the past."""

    def __init__(self) -> None:
        self._share, self._at = 0.0, 0.0

    def before(self, at: float) -> float:
        self._share *= exp(-max(0.0, at - self._at) / BUSY_NS)
        self._at = max(self._at, at)
        return min(1.0, self._share)

    def add(self, duration_ns: float) -> None:
        """Add computing time since the last queried time."""
        kept = exp(-duration_ns / BUSY_NS)
        self._share = self._share * kept + 1 - kept
        self._at += duration_ns


JOINED = 0.8  # of the work per token while tokens of earlier steps wait too: no separate write
FIRST = 0.5  # work on the prompt when an answer begins, relative to tokenizing it
TURNS = 0.02  # of the frontend's time for prompts while there is other work


class Frontend:
    """One process before and after the engine. It reads requests, sends tokens and ends answers in order. Joining
    tokens of several steps saves little (`JOINED`), so there is a maximum token rate. Prompts are tokenized one by one
    in idle time, and slowly (`TURNS`) while there is other work; otherwise they would starve while tokens keep the
    frontend busy."""

    def __init__(self, settings: SimulatorSettings) -> None:
        unit, ahead = NANOSECONDS / settings.speed, settings.pipeline
        assert ahead is not None
        self.fixed_ns = settings.frontend_ns
        self.half_request_ns = round(ahead.frontend_request * unit / 2)  # to read a request, and to end its answer
        self.prompt_token_ns = ahead.frontend_token * unit
        self._sent_token_ns = ahead.frontend_output * unit
        self.free_at = 0
        self._worked_ns = 0  # of all work so far
        self._sends_from = -1  # start of the newest work, if that is sending tokens

    def work(self, at: int, work_ns: int) -> int:
        """Add work; returns the time when it is done."""
        self.free_at = max(at, self.free_at) + work_ns
        self._worked_ns += work_ns
        self._sends_from = -1
        return self.free_at

    def send(self, at: int, tokens: int, prompt_tokens: int = 0) -> int:
        """Send the tokens of one step; returns the time when they are sent. `prompt_tokens` belong to answers that
        begin in this step: the first text of an answer requires decoding the end of its prompt."""
        begin, joins = max(at, self.free_at), self._sends_from > at
        work_ns = self._sent_token_ns * tokens * (JOINED if joins else 1.0)
        sends_from = self._sends_from if joins else begin
        sent_at = self.work(at, round(work_ns + FIRST * self.prompt_token_ns * prompt_tokens))
        self._sends_from = sends_from
        return sent_at

    def worked_ns(self, now: int) -> int:
        """The working time up to a time, of the work added before."""
        return self._worked_ns - max(0, self.free_at - now)


@dataclass(slots=True)
class _Coming:
    """Steps whose tokens are known at `ends`; those before `next` have been sent."""

    ends: Instants
    tokens: int  # of one step
    prompt_tokens: int = 0  # of the answers that begin in it
    next: int = 0


@dataclass(slots=True)
class _Prompt:
    """A prompt to tokenize: the remaining work at a time, and the frontend's working time up to then."""

    left_ns: int
    extra_ns: int
    action: Callable[[], None]
    since: tuple[int, int] | None = None


class PipelinedLoop:
    """Runs the engine on a clock; `on_finished` gets each finished sequence when its last token is sent. The engine's
    state advances when the next step is scheduled, before the tokens of the current step are known."""

    def __init__(
        self,
        clock: Clock,
        engine: SimulatorEngine,
        time: PipelineTime,
        frontend: Frontend,
        on_finished: Callable[[Sequence], None],
        noise: Noise | None = None,
        launch_noise: Noise | None = None,
    ) -> None:
        self.clock = clock
        self.engine = engine
        self.time = time
        self._launch_noise = launch_noise
        self.step_ends = StepEnds()  # end times of steps whose tokens are sent
        self._frontend = frontend
        self._noise = noise
        self._on_finished = on_finished
        self._batch: Batch | None = None  # the latest launched batch
        self._ends: Instants = array("q")  # of its steps; the last one may end later, when the next step is launched
        self._coming: deque[_Coming] = deque()  # earlier steps
        self._gpu_free_at = 0
        self._busy = PrefillShare()
        self._out_before = 0  # end of the step before the latest
        self._timer: Timer | None = None  # for the next scheduling
        self._prompts: deque[_Prompt] = deque()  # to be tokenized by the frontend
        self._unfinished: dict[Sequence, None] = {}  # finished, but not all tokens sent

    def admit(self, prompt_tokens: int, action: Callable[[], None], extra_ns: int = 0) -> None:
        """A request arrives now; the action runs when the frontend has read it and tokenized its prompt."""
        frontend, clock = self._frontend, self.clock
        self._send(clock.now())
        read_at = frontend.work(clock.now(), frontend.half_request_ns)
        prompt = _Prompt(round(frontend.prompt_token_ns * prompt_tokens), extra_ns, action)
        clock.call_at(read_at + frontend.fixed_ns, lambda: self._tokenize_later(prompt))

    def _tokenize_later(self, prompt: _Prompt) -> None:
        self._prompts.append(prompt)
        if len(self._prompts) == 1:
            self._tokenize()

    def _tokenize(self) -> None:
        """Tokenize the first prompt in idle time; check again when it should be done."""
        now, frontend, prompt = self.clock.now(), self._frontend, self._prompts[0]
        self._send(now)
        worked_ns = frontend.worked_ns(now)
        if prompt.since is not None:
            since, worked_before = prompt.since
            prompt.left_ns -= round(now - since - (1 - TURNS) * (worked_ns - worked_before))
        if prompt.left_ns > 0:
            prompt.since = (now, worked_ns)
            busy_ns = max(0, frontend.free_at - now)
            wait_ns = min(prompt.left_ns / TURNS, prompt.left_ns + (1 - TURNS) * busy_ns)
            self.clock.call_at(now + ceil(wait_ns), self._tokenize)
            return
        self._prompts.popleft()
        if self._prompts:
            self._tokenize()
        if prompt.extra_ns:
            self.clock.call_at(now + prompt.extra_ns, prompt.action)
        else:
            prompt.action()

    def add(self, sequence: Sequence) -> None:
        """The sequence reaches the engine now, and waits for the next scheduling."""
        sequence.arrived_at = self.clock.now()
        blocked = bool(self.engine.waiting)
        self.engine.add(sequence)
        if self._batch is None:
            self._schedule()
        elif not blocked:
            self._cut()

    def abort(self, sequence: Sequence) -> None:
        self.engine.abort(sequence)
        if self._batch is not None:
            self._cut()

    def instants(self, sequence: Sequence) -> Instants:
        """When its tokens were sent; available until `on_finished` returns."""
        return self.step_ends.of(sequence.spans)

    def instants_so_far(self, sequence: Sequence) -> Instants:
        """The same for an aborted sequence."""
        self._send(self.clock.now())
        self.engine.settle(sequence)
        made = self.step_ends.of(sequence.spans)
        return made[: bisect_right(made, self.clock.now())]

    def _cut(self) -> None:
        """End the run of steps with the step that is already launched when the current one ends."""
        assert self._batch is not None
        under_way = bisect_left(self._ends, self.clock.now())
        if under_way + 2 >= len(self._ends):
            return
        del self._ends[under_way + 2 :]
        self._batch.steps = under_way + 2
        self._gpu_free_at = self._ends[-1]
        self._arm()

    def _arm(self) -> None:
        """Schedule the next step for the end of the second-last launched step."""
        if self._timer is not None:
            self._timer.cancel()
        at = self._ends[-2] if len(self._ends) > 1 else self._out_before
        self._timer = self.clock.call_at(at, self._schedule)

    def _schedule(self) -> None:
        """Plan and launch the next step or run of steps."""
        self._timer, now = None, self.clock.now()
        before, finished = self._batch, []
        if before is not None:
            finished = self.engine.complete(before, len(self._ends))
        batch = self._batch = self.engine.plan()
        launched_at = now
        if batch is not None:
            launched_at += round(self._launch_ns(batch))
        if before is None:
            self._out_before = launched_at  # idle: the next step follows the launch of this one
        else:
            self._come_out(before, finished, launched_at)
        if batch is not None:
            self._launch(batch, now, launched_at)

    def _launch_ns(self, batch: Batch) -> float:
        launch = self.time.launch_ns(batch.prefill_tokens, len(batch.decodes) + len(batch.chunks))
        if self._launch_noise is not None and batch.chunks:
            launch *= self._launch_noise.factors(batch.first_step, 1)[0]
        return launch

    def _come_out(self, batch: Batch, finished: list[Sequence], launched_at: int) -> None:
        """Fix the end times of the steps before this one."""
        self._ends[-1] = self._out_before = max(self._ends[-1], launched_at)
        begun = [len(sequence.prompt) for sequence, _ in batch.chunks if sequence.computed >= len(sequence.prompt)]
        self._coming[-1].tokens = len(batch.decodes) + len(begun)
        self._coming[-1].prompt_tokens = sum(begun)
        if finished:
            self._unfinished |= dict.fromkeys(finished)
            self.clock.call_at(self._out_before, lambda: self._finish(finished))

    def _finish(self, finished: list[Sequence]) -> None:
        """Finish sequences whose last tokens are known."""
        self._send(self.clock.now())
        self.clock.call_at(self.step_ends.last, lambda: self._report_finished(finished))
        self._frontend.work(self.clock.now(), self._frontend.half_request_ns * len(finished))

    def _report_finished(self, finished: list[Sequence]) -> None:
        for sequence in finished:
            self._on_finished(sequence)
            del self._unfinished[sequence]

    def _send(self, until: int) -> None:
        """Let the frontend send the tokens known at a time."""
        while self._coming:
            coming = self._coming[0]
            ends, first = coming.ends, coming.next
            end = bisect_right(ends, until, first)
            if end > first:
                send, tokens, prompt_tokens = self._frontend.send, coming.tokens, coming.prompt_tokens
                sent = array("q", [send(at, tokens, prompt_tokens) for at in ends[first:end]])
                self.step_ends.append(sent, self._oldest_needed)
                coming.next = end
            if end < len(ends) or ends is self._ends:
                return
            self._coming.popleft()

    def _launch(self, batch: Batch, now: int, launched_at: int) -> None:
        time, decodes = self.time, len(batch.decodes)
        begin = max(self._gpu_free_at, now)
        if batch.steps == 1:
            busy = self._busy.before(begin) if time.throttle_token_ns and batch.chunks else 0.0
            duration = time.compute_ns(batch.prefill_tokens, decodes, batch.context, attended(batch), busy)
            if time.throttle_token_ns and batch.chunks:
                self._busy.add(duration)
            if self._noise is not None:
                duration *= self._noise.factors(batch.first_step, 1)[0]
            self._ends = array("q", [max(begin + round(duration), launched_at + round(time.tail_ns))])
        else:
            self._ends = self._decode_ends(batch, begin, launched_at)
        self._coming.append(_Coming(self._ends, decodes))
        self._gpu_free_at = self._ends[-1]
        for sequence, _ in batch.chunks:
            if sequence.admitted_at is None:
                sequence.admitted_at = begin
        self._arm()

    def _decode_ends(self, batch: Batch, begin: int, launched_at: int) -> Instants:
        """The end times of a run of steps in which the same sequences decode."""
        time, decodes = self.time, len(batch.decodes)
        contexts = batch.context + decodes * np.arange(batch.steps)
        weights = max(time.base_ns, time.compute_token_ns * decodes)
        durations = weights + time.decode_sequence_ns * decodes + time.context_token_ns * contexts
        if self._noise is not None:
            durations = durations * self._noise.factors(batch.first_step, batch.steps)
        ends = begin + durations.cumsum()
        ends += max(0.0, launched_at + time.tail_ns - ends[0])
        return array("q", ends.astype(np.int64).tobytes())

    def _oldest_needed(self) -> int:
        everyone = [*self.engine.running, *self.engine.waiting, *self._unfinished]
        for sequence in everyone:
            self.engine.settle(sequence)
        return min((sequence.spans[0][0] for sequence in everyone if sequence.spans), default=self.engine.step)


def loop_of(
    settings: SimulatorSettings, clock: Clock, on_finished: Callable[[Sequence], None]
) -> EngineLoop | PipelinedLoop:
    """The engine of these settings on a clock, for virtual time."""
    engine = settings.build_engine()
    if settings.pipeline is None:
        return EngineLoop(clock, engine, settings.build_step_time(), on_finished, frontend_ns=settings.frontend_ns)
    noises = [
        Noise(sigma, settings.seed + number) if sigma else None
        for number, sigma in enumerate((settings.step_time.jitter, settings.pipeline.launch_jitter))
    ]
    return PipelinedLoop(clock, engine, PipelineTime.of(settings), Frontend(settings), on_finished, *noises)
