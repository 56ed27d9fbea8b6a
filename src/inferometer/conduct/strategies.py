"""The cases of an experiment against its baseline, repeat by repeat: what a comparison of strategies comes to."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inferometer.conduct.prepare import Prepared
from inferometer.judge.strategies import PairedChange, paired_change
from inferometer.plan.cases import CASE
from inferometer.plan.model import Plan
from inferometer.plan.server import ROUTED
from inferometer.store.experiments import CaseRow

MEASURES = ("ttft.mean", "tpot.mean", "e2e.mean", "run_time", "request_rate", "output_rate")


@dataclass(frozen=True, slots=True)
class StrategyChange:
    """How a number of a case differs from the baseline's under the same other settings."""

    case: str
    settings: dict[str, Any]  # of the axes
    measure: str
    title: str
    change: PairedChange


def changes_of(prepared: Prepared, rows: Sequence[CaseRow]) -> list[StrategyChange]:
    """Of every case but the baseline; a measure that a repeat lacks is left out."""
    baseline = prepared.experiment.baseline
    done = [row for row in rows if row.state == "complete"]
    blocks: dict[str, list[CaseRow]] = {}
    for row in done:
        blocks.setdefault(str(_settings(prepared, row)), []).append(row)
    return [
        change
        for block in blocks.values()
        for case in dict.fromkeys(row.parameters[CASE] for row in block)
        if case != baseline
        for change in _of_case(prepared, block, case, str(baseline))
    ]


def _settings(prepared: Prepared, row: CaseRow) -> dict[str, Any]:
    own = {CASE, *(path for case in prepared.experiment.cases for path in case.set)}
    return {path: value for path, value in row.parameters.items() if path not in own}


def _of_case(prepared: Prepared, block: Sequence[CaseRow], case: str, baseline: str) -> Iterator[StrategyChange]:
    sides = [{row.repeat: row for row in block if row.parameters[CASE] == name} for name in (baseline, case)]
    both = sorted(set(sides[0]) & set(sides[1]))
    for measure in MEASURES:
        pairs = [tuple(side[repeat].values.get(measure) for side in sides) for repeat in both]
        known = [(old, new) for old, new in pairs if old is not None and new is not None]
        change = paired_change([old.value for old, _ in known], [new.value for _, new in known])
        if change is not None and len(known) == len(both):
            title = known[0][0].title
            yield StrategyChange(case, _settings(prepared, block[0]), measure, title, change)


def doubt_of_tape(prepared: Prepared) -> str | None:
    """Why routing strategies cannot be told apart by this experiment, where its tape is too short for it."""
    plans = [case.plan for case in prepared.cases if isinstance(case.plan, Plan)]
    routed = [plan for plan in plans if plan.server is not None and plan.server.type in ROUTED]
    if not routed or any((plan.stop.requests or 2) > 1 for plan in routed):
        return None
    return "the tape has one prompt, so that routing strategies cannot differ but by chance: raise stop.requests"


def changes_document(prepared: Prepared, rows: Sequence[CaseRow]) -> list[dict[str, Any]]:
    """As plain data, with the sentence that a person reads."""
    return [
        {
            "case": entry.case,
            "baseline": prepared.experiment.baseline,
            "settings": entry.settings,
            "measure": entry.measure,
            **asdict(entry.change),
            "text": str(entry.change),
        }
        for entry in changes_of(prepared, rows)
    ]
