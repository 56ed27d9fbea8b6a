"""Runs the engine on a clock: steps end at absolute deadlines, and a run of steps is one event."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from inferometer.load.clock import Clock, Timer
from inferometer.simulator.engine import Batch, Sequence, SimulatorEngine
from inferometer.simulator.settings import Instants, StepTime

_FIRST_STEPS = 1 << 14


class StepEnds:
    """The end times of steps; old ones are dropped when no sequence needs them."""

    def __init__(self) -> None:
        self._ends: Instants = array("q")
        self._first = 0  # step of _ends[0]
        self._many = _FIRST_STEPS  # number of entries at which old ones are dropped

    def append(self, ends: Instants, oldest_needed: Callable[[], int]) -> None:
        self._ends.extend(ends)
        if len(self._ends) > self._many:
            self._forget(oldest_needed())
            self._many = max(_FIRST_STEPS, 2 * len(self._ends))  # so that dropping is rare

    def _forget(self, step: int) -> None:
        del self._ends[: step - self._first]
        self._first = step

    @property
    def last(self) -> int:
        return self._ends[-1]

    def of(self, spans: list[list[int]]) -> Instants:
        """The end times of these ranges of steps, concatenated."""
        ends: Instants = array("q")
        for first, end in spans:
            ends += self._ends[first - self._first : end - self._first]
        return ends


class EngineLoop:
    """Runs the engine. `on_finished` gets each finished sequence at the end of its last step. If set, `on_begin` and
    `on_step` are called at the start and end of each step, with the batch and the number of the step in it."""

    def __init__(
        self,
        clock: Clock,
        engine: SimulatorEngine,
        step_time: StepTime,
        on_finished: Callable[[Sequence], None],
        on_step: Callable[[Batch, int, int], None] | None = None,
        on_batch: Callable[[Batch, int], None] | None = None,
        on_begin: Callable[[Batch, int], None] | None = None,
        frontend_ns: int = 0,
    ) -> None:
        self.clock = clock
        self.frontend_ns = frontend_ns
        self.engine = engine
        self.step_time = step_time
        self.step_ends = StepEnds()
        self._on_finished = on_finished
        self._on_step = on_step
        self._on_batch = on_batch
        self._on_begin = on_begin
        self._batch: Batch | None = None
        self._ends: Instants = array("q")
        self._done = 0  # steps of the batch that have ended
        self._timer: Timer | None = None
        self._completing = False

    def admit(self, _prompt_tokens: int, action: Callable[[], None], extra_ns: int = 0) -> None:
        """A request arrives now; the action runs when the frontend has processed it."""
        self.clock.call_at(self.clock.now() + self.frontend_ns + extra_ns, action)

    def add(self, sequence: Sequence) -> None:
        """The sequence arrives now; the current step is not changed."""
        sequence.arrived_at = self.clock.now()
        blocked = bool(self.engine.waiting)  # then another waiting sequence changes nothing
        self.engine.add(sequence)
        if self._batch is not None:
            if not blocked:
                self._cut()
        elif not self._completing:
            self._begin(self.clock.now())

    def abort(self, sequence: Sequence) -> None:
        """Remove a sequence; its blocks are freed when the current step ends."""
        self.engine.abort(sequence)
        if self._batch is not None:
            self._cut()

    def instants(self, sequence: Sequence) -> Instants:
        """The times of its tokens; available until `on_finished` returns."""
        return self.step_ends.of(sequence.spans)

    def instants_so_far(self, sequence: Sequence) -> Instants:
        """The same in the middle of a run of steps, for an aborted sequence."""
        self.engine.settle(sequence)
        made = self.step_ends.of(sequence.spans)
        if self._batch is None or sequence not in self._batch.decodes:
            return made
        return made + self._ends[: bisect_right(self._ends, self.clock.now())]

    def _begin(self, at: int) -> None:
        batch = self._batch = self.engine.plan()
        if batch is None:
            return
        # If steps are too short for us, deadlines lag behind the clock. But no step begins before the sequences that it
        # admits have arrived, or they would get their first token before their arrival.
        at = max([at, *(sequence.arrived_at for sequence, _ in batch.chunks if sequence.admitted_at is None)])
        self._ends = self.step_time.ends(
            at, batch.prefill_tokens, len(batch.decodes), batch.context, batch.steps, batch.first_step
        )
        for sequence, _ in batch.chunks:
            if sequence.admitted_at is None:
                sequence.admitted_at = at
        self._done = 0
        self._arm()

    def _arm(self) -> None:
        at = self._ends[self._done if self._on_step else -1]
        self._timer = self.clock.call_at(at, self._ended)
        if self._on_begin is not None and self._batch is not None:
            self._on_begin(self._batch, self._done)

    def _cut(self) -> None:
        """End the run of steps with the current step."""
        assert self._batch is not None
        keep = bisect_left(self._ends, self.clock.now(), self._done) + 1
        if keep >= len(self._ends):
            return
        self._ends = self._ends[:keep]
        self._batch.steps = keep
        if self._on_step is None and self._timer is not None:
            self._timer.cancel()
            self._arm()

    def _ended(self) -> None:
        """A step (real time) or the whole run (virtual time) has ended."""
        batch, ends = self._batch, self._ends
        assert batch is not None
        if self._on_step is not None:
            self._done += 1
            self._on_step(batch, self._done - 1, ends[self._done - 1])
            if self._done < len(self._ends):  # a disconnect during the step may have cut the run
                self._arm()
                return
        self._complete(batch)

    def _complete(self, batch: Batch) -> None:
        ends = self._ends
        finished = self.engine.complete(batch, len(ends))
        self.step_ends.append(ends, lambda: self._oldest_needed(finished))
        if self._on_batch is not None:
            self._on_batch(batch, len(ends))
        self._batch, self._completing = None, True
        for sequence in finished:
            self._on_finished(sequence)
        self._completing = False
        self._begin(ends[-1])

    def _oldest_needed(self, finished: list[Sequence]) -> int:
        """The first step that a sequence still needs; steps of the batch are always kept."""
        everyone = [*self.engine.running, *self.engine.waiting, *finished]
        for sequence in everyone:
            self.engine.settle(sequence)
        firsts = [sequence.spans[0][0] for sequence in everyone if sequence.spans]
        return min([*firsts, self.engine.step - len(self._ends)])
