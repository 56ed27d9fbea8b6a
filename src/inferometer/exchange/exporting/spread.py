"""A measure with more quantiles than summaries keep, taken from the records of the window where there are any."""

from collections.abc import Collection, Mapping
from typing import Any

from inferometer.errors import PlanError
from inferometer.measure import quantiles
from inferometer.measure.answers import Answers
from inferometer.measure.describe import share_of
from inferometer.measure.facts import Facts
from inferometer.measure.gaps import gap_values
from inferometer.measure.registry import REGISTRY
from inferometer.measure.tally import Tally
from inferometer.measure.values import quantities
from inferometer.measure.window import whole_window
from inferometer.plan.reading import plan_from
from inferometer.record.columns import Mask
from inferometer.record.run import Run

CONFIDENCE = 0.95
MORE = ("p0.1", "p1", "p5", "p10", "p25", "p75", "p99.9")


def spreads(run: Run, names: Collection[str]) -> dict[str, dict[str, float]]:
    """The statistics of our measures by name, as the summary has them, and more quantiles from the records. A quantile
    of the summary that is unknown stays so: there were too few values."""
    told = _told(run.summary, names)
    records = run.records()
    if records is None or run.source is not None:
        return told
    answers = Answers.of(records)
    chosen = _window(run, answers)
    if chosen is not None:
        for name, known in told.items():
            known |= _more(answers, chosen, name)
    return told


def _told(summary: Mapping[str, Any], names: Collection[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for each in quantities(summary).values():
        if each.name in names and each.statistic is not None:
            found.setdefault(each.name, {})[each.statistic] = each.value
    return found


def _window(run: Run, answers: Answers) -> Mask | None:
    """The answered requests of the window; None where it cannot be found again as the summary has it."""
    try:
        window = whole_window(answers, plan_from(dict(run.plan), where=run.id), Facts())
    except PlanError:
        return None
    inside = window.holds(answers.records.scheduled_at)
    same = int(inside.sum()) == (run.summary.get("window") or {}).get("requests")
    return answers.ok & inside if same else None


def _more(answers: Answers, chosen: Mask, name: str) -> dict[str, float]:
    measure = REGISTRY.get(name)
    if measure is None:
        return {}
    sample: quantiles.Distribution
    if measure.gaps is not None:
        sample = gap_values(answers, chosen, measure).sample
        if isinstance(sample, Tally):
            sample.prepare([share_of(word) for word in MORE], CONFIDENCE)
    elif measure.each is not None:
        values = measure.each(answers)[chosen]
        sample = quantiles.sample(values[values == values])
    else:
        return {}
    found = {word: quantiles.estimate(sample, share_of(word), CONFIDENCE).value for word in MORE} if len(sample) else {}
    return {word: value for word, value in found.items() if value is not None}
