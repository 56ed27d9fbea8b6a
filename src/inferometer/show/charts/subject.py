"""`ChartedRun`: a run as charts look at it: records and samples read once, with the window that was measured; and what
a run is called in a chart."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from inferometer.measure.inputs import Answers, Facts
from inferometer.measure.registry import REGISTRY, request_values
from inferometer.measure.tally import condensed, gap_batches
from inferometer.measure.window import Window, end_of
from inferometer.record.columns import Floats, Ints, Mask
from inferometer.record.record import Samples
from inferometer.record.run import Run
from inferometer.show.about import UNNAMED, series_names, stack_text
from inferometer.show.charts.chart import Cannot
from inferometer.vocabulary import NANOSECONDS

# -- subject ---------------------------------------------------------------------------------------------------------

_ROUNDING = 1000  # ns: a summary has its window in seconds, which are rounded


class ChartedRun:
    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def answers(self) -> Answers:
        records = self.run.records
        if records is None:
            raise Cannot("this run has no records of its requests")
        if not len(records):
            raise Cannot("nothing was sent in this run")
        return Answers.of(records)

    @cached_property
    def samples(self) -> Samples:
        samples = self.run.samples
        if samples is None or not len(samples):
            raise Cannot("nothing was sampled during the load")
        return samples

    @cached_property
    def start_at(self) -> int:
        """When the load began. A summary has the duration of the run; its end is the last instant there is."""
        if self.run.source is not None and self.run.summary.window.start_s is None:
            raise Cannot("when the requests were sent is not known")
        records, run_s = self.answers.records, self.run.summary.window.run_s
        first_at = int(records.scheduled_at.min())
        return first_at if run_s is None else min(first_at, self.end_at - round(run_s * NANOSECONDS))

    @cached_property
    def end_at(self) -> int:
        return end_of(self.answers.records, Facts())

    @cached_property
    def window(self) -> Window:
        """What was measured; without a word on it, everything."""
        window = self.run.summary.window
        if window.start_s is None or window.end_s is None:
            return Window(int(self.answers.records.scheduled_at.min()), self.end_at, "the whole run")
        start, end = (self.start_at + round(at_s * NANOSECONDS) for at_s in (window.start_s, window.end_s))
        return Window(start - _ROUNDING, end + _ROUNDING, window.rule)

    @cached_property
    def chosen(self) -> Mask:
        """The answered requests of the window: those that the summary's measures are of."""
        chosen: Mask = self.window.holds(self.answers.records.scheduled_at) & self.answers.ok
        return chosen

    def headlined(self, name: str) -> str:
        """The measure that a page headlines under this name: of an open loop from the schedule on."""
        return headlined([self.run], name)

    def values(self, name: str) -> tuple[Floats, Floats | None]:
        """A measure of the chosen requests, or of their gaps with weights; of a long run's gaps values that stand for
        their neighbours, right to 0.012%."""
        measure = REGISTRY[name]
        if measure.gaps is None:
            values = request_values(name, self.answers)[self.chosen]
            return _some(name, values[~np.isnan(values)]), None
        if not self.answers.records.held:
            values, weights = condensed(gap_batches(self.answers, self.chosen, measure))
            return _some(name, values), weights
        series = measure.gaps(self.answers.gaps)
        inside = self.chosen[series.owner]
        return _some(name, series.values[inside]), None if series.weights is None else series.weights[inside]

    def seconds(self, at: Ints) -> Floats:
        """Instants as seconds since the load began."""
        since: Floats = (at - self.start_at) / NANOSECONDS
        return since

    def edges(self, most: int) -> Ints:
        """The run cut into at most so many equal pieces, none shorter than a fifth of a second."""
        length = max(self.end_at - self.start_at, 1)
        pieces = int(np.clip(length // (NANOSECONDS // 5), 1, most))
        return np.linspace(self.start_at, self.end_at, pieces + 1).astype(np.int64)


def headlined(runs: Sequence[Run], name: str) -> str:
    """`ttft_scheduled` for `ttft` where every run is an open loop: one page has one number for it."""
    scheduled = f"{name}_scheduled"
    is_open = all(run.summary.loop in ("open", "mixed") and scheduled in run.summary.measures for run in runs)
    return scheduled if is_open and runs else name


def _some(name: str, values: Floats) -> Floats:
    if not len(values):
        raise Cannot(f"no answered request of the window has a {name}")
    return values


# -- labels ----------------------------------------------------------------------------------------------------------


def labels_of(runs: Sequence[Run]) -> dict[str, str]:
    """By run id: the plan's name if that distinguishes them, else what differs in words."""
    names = series_names({run.id: run for run in runs})
    return {id_: run_words(id_) if name.startswith(UNNAMED) else name for id_, name in names.items()}


def run_words(id_: str) -> str:
    """The end of an id, which is words: `plum-fox`."""
    return id_.split("-", 2)[2] if id_[:8].isdecimal() and id_.count("-") >= 2 else id_


def stack_of(run: Run) -> str:
    """The model and what it ran on, as far as that is known."""
    return stack_text(run) or "unknown model"
