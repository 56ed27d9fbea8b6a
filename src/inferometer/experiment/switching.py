"""What each traffic class does to the others: all of them together against all but one, class by class."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inferometer.judge.compare import Comparison, compare
from inferometer.plan.cases import WITHOUT
from inferometer.record.run import Run
from inferometer.store.experiments import CaseRow
from inferometer.store.store import Store


def effects_of(rows: Sequence[CaseRow], store: Store) -> list[dict[str, Any]]:
    """For each class that was switched off, and each that stayed: how its measures changed, as plain data."""
    return [
        {"off": off, "of": of, "comparison": found.document()} for (off, of), found in comparisons(rows, store).items()
    ]


def comparisons(rows: Sequence[CaseRow], store: Store) -> dict[tuple[str, str], Comparison]:
    """By the class that was switched off and the class that is looked at."""
    runs = {row.name: store.load(row.run) for row in rows if row.run and row.state == "complete"}
    together = [(row, runs[row.name]) for row in rows if row.name in runs and row.parameters[WITHOUT] is None]
    off = dict.fromkeys(row.parameters[WITHOUT] for row in rows if row.parameters[WITHOUT] is not None)
    found = {}
    for name in off:
        alone = [runs[row.name] for row in rows if row.name in runs and row.parameters[WITHOUT] == name]
        for of in classes_of(alone):
            before = [of_class(run, of) for _, run in together]
            if before and alone:
                found[name, of] = compare(before, [of_class(run, of) for run in alone])
    return found


def classes_of(runs: Sequence[Run]) -> list[str]:
    return [each["name"] for each in runs[0].plan.get("traffic") or []] if runs else []


def of_class(run: Run, name: str) -> Run:
    """The run as one of its classes saw it. Its requests are not compared one by one: with a class gone, the others
    draw other lengths, so that the spread between repeats has to tell."""
    classes = [each for each in run.plan["traffic"] if each["name"] == name]
    summary = {**run.summary, **run.summary.get("traffic", {}).get(name, {}), "traffic": {}}
    return replace(run, plan={**run.plan, "traffic": classes}, summary=summary, read_records=None)
