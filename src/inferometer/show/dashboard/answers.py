"""What the API answers, as functions of the store: no web framework here. The conductor says how runs are compared and
how a run in progress is read, for that is above this room."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inferometer.errors import PlanError, StoreError
from inferometer.judge.compare import Comparison
from inferometer.measure.values import canonical, quantities
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.show.dashboard.documents import quantity_row, row, run_document
from inferometer.show.dashboard.drawing import (
    comparison_charts,
    experiment_charts,
    history_chart,
    run_charts,
    trade_offs,
)
from inferometer.show.dashboard.families import Family, changes_in, families, points_of, summary_of
from inferometer.show.dashboard.live import LiveRuns
from inferometer.show.dashboard.reading import (
    NotFound,
    entry_of,
    experiment_of,
    experiments_in,
    file_text,
    files_of,
    run_of,
)
from inferometer.store.entry import Entry
from inferometer.store.experiments import KeptExperiment
from inferometer.store.store import Store

MOST_COMPARED = 40

Compare = Callable[[Sequence[Run], Sequence[Run], Sequence[str], bool], Comparison]
Known = dict[int, list[Family]]


@dataclass(frozen=True)
class Answers:
    store: Store
    compare: Compare
    live: LiveRuns
    _families: Known = field(default_factory=dict)

    # -- runs -----------------------------------------------------------------------------------------------------

    def load(self, entry: Entry) -> Run:
        return run_of(self.store, entry)

    def found(self, wanted: str) -> tuple[Entry, Run]:
        """A run that is not over comes with what its logs hold so far."""
        entry = entry_of(self.store, wanted)
        run = self.load(entry)
        return entry, self.live.read(run) if run.summary == Summary() else run

    def run(self, wanted: str) -> dict[str, Any]:
        entry, run = self.found(wanted)
        baselines = sorted(name for name, id_ in self.store.baselines().items() if id_ == entry.id)
        said = run_document(run, entry)
        return said | {"files": files_of(self.store, run), "marks": said["marks"] | {"baselines": baselines}}

    def live_state(self, wanted: str) -> dict[str, Any]:
        entry = entry_of(self.store, wanted)
        return self.live.state(self.load(entry), entry)

    def charts(self, wanted: str) -> dict[str, Any]:
        return run_charts(self.found(wanted)[1])

    def file(self, wanted: str, name: str) -> str:
        return file_text(self.store, self.load(entry_of(self.store, wanted)), name)

    # -- comparing ------------------------------------------------------------------------------------------------

    def comparison(
        self, before: Sequence[str], after: Sequence[str], measures: Sequence[str], every: bool
    ) -> dict[str, Any]:
        """Two sides, judged, and every number of every run beside each other."""
        if not before or not after:
            raise PlanError("compare: needs at least one run on each side", "before=ID&after=ID")
        if len(before) + len(after) > MOST_COMPARED:
            raise PlanError(f"compare: at most {MOST_COMPARED} runs at once, got {len(before) + len(after)}")
        sides = [[self.found(wanted) for wanted in side] for side in (before, after)]
        one, other = ([run for _, run in side] for side in sides)
        found = self.compare(one, other, measures, every)
        rows = {word: [row(entry) for entry, _ in side] for word, side in zip(("before", "after"), sides, strict=True)}
        return found.document() | {
            "runs": rows,
            "table": table_of([*one, *other]),
            **comparison_charts(found, [*one, *other]),
        }

    # -- histories ------------------------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        """Made again when a run came, went or ended. Requests run beside each other: what another one forgets is still
        in this one's hands."""
        entries = self.store.runs()
        now = hash(tuple((entry.id, entry.state) for entry in entries))
        known = self._families.get(now)
        if known is None:
            known = families(entries, self.load)
            self._families.clear()
            self._families[now] = known
        return known

    def histories(self) -> dict[str, Any]:
        return {"histories": [summary_of(family) for family in self.families()]}

    def family(self, wanted: str) -> Family:
        found = next((each for each in self.families() if each.id == wanted), None)
        if found is None:
            raise NotFound(f"no history {wanted[:80]!r}")
        return found

    def history(self, wanted: str, keys: Sequence[str]) -> dict[str, Any]:
        """Measures of one family over time."""
        family = self.family(wanted)
        asked = [canonical(key) for key in keys] or list(family.keys)[:1]
        if unknown := [key for key in asked if key not in family.keys]:
            raise PlanError(f"not measured there: {', '.join(unknown)}", f"there are {', '.join(family.keys)}")
        wide = with_values(family, self.store, asked)
        return {**summary_of(family), "lines": [line_of(wide, key) for key in asked]}

    def trade_offs(self, wanted: str) -> dict[str, Any]:
        """The newest run of each series of a family, beside each other."""
        runs = map(self._readable, self.family(wanted).newest)
        return trade_offs([run for run in runs if run is not None])

    # -- experiments ----------------------------------------------------------------------------------------------

    def experiments(self) -> dict[str, Any]:
        return {"experiments": [experiment_row(each) for each in experiments_in(self.store)]}

    def kept_experiment(self, wanted: str) -> KeptExperiment:
        return experiment_of(self.store, wanted)

    def experiment(self, wanted: str) -> dict[str, Any]:
        kept = self.kept_experiment(wanted)
        runs = self.case_runs(kept)
        return experiment_document(kept, runs) | experiment_charts(kept, runs)

    def case_runs(self, kept: KeptExperiment) -> dict[str, Run]:
        """Those that are still there and can be read."""
        known = {entry.id: entry for entry in self.store.runs(experiment=kept.id)}
        wanted = [id_ for case in kept.cases if isinstance(id_ := case.get("run"), str)]
        for id_ in wanted:
            if id_ not in known:
                known |= _maybe(self.store, id_)
        return {id_: run for id_ in wanted if id_ in known and (run := self._readable(known[id_])) is not None}

    def _readable(self, entry: Entry) -> Run | None:
        try:
            return self.load(entry)
        except StoreError:
            return None  # damaged, or deleted just now: the others are shown


def _maybe(store: Store, id_: str) -> dict[str, Entry]:
    try:
        return {id_: entry_of(store, id_)}
    except NotFound:
        return {}


def table_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every number that any of the runs has; missing is None."""
    found = [quantities(run.summary) for run in runs]
    first = {key: each for numbers in reversed(found) for key, each in numbers.items()}
    ordered = {key: first[key] for numbers in found for key in numbers}
    return [
        {**{name: said for name, said in quantity_row(each).items() if name not in ("value", "low", "high")}}
        | {"values": [numbers[key].value if key in numbers else None for numbers in found]}
        for key, each in ordered.items()
    ]


def with_values(family: Family, store: Store, keys: Sequence[str]) -> Family:
    """Its entries with the numbers that are asked for."""
    wanted = {entry.id for series in family.series for entry in series.entries}
    stored = list(dict.fromkeys(name for key in keys for each in family.series if (name := each.stored(key))))
    wide = {entry.id: entry for entry in store.runs(where=[f"kind={family.kind}"], numbers=stored)}
    known = {id_: wide[id_] for id_ in wanted if id_ in wide}
    series = [
        replace(each, entries=[known[entry.id] for entry in each.entries if entry.id in known])
        for each in family.series
    ]
    return replace(family, series=series)


def line_of(family: Family, key: str) -> dict[str, Any]:
    """One measure of a family: a chart, and where each series changed."""
    points = {series.label: found for series in family.series if (found := points_of(series, key))}
    changes = {label: found for label, own in points.items() if (found := changes_in(own))}
    counted = {label: len(own) for label, own in points.items()}
    return {"key": key, "series": counted, "changes": changes, **history_chart(family, key, points)}


def experiment_row(kept: KeptExperiment) -> dict[str, Any]:
    said = {"id": kept.id, "kind": kept.kind, "name": kept.name, "started": kept.started_at}
    failed = sum(1 for case in kept.cases if not case.get("run"))
    return said | {"cases": len(kept.cases), "failed": failed, "over": kept.result is not None}


def experiment_document(kept: KeptExperiment, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Its cases with their parameters and numbers: a grid."""
    numbers = {id_: quantities(run.summary) for id_, run in runs.items()}
    known = {key: each for found in numbers.values() for key, each in found.items()}
    cases = [
        {
            **{name: case.get(name) for name in ("name", "parameters", "run", "repeat", "error")},
            "verdict": runs[case["run"]].status if case.get("run") in runs else None,
            "values": {key: each.value for key, each in numbers.get(str(case.get("run")), {}).items()},
        }
        for case in kept.cases
    ]
    measures = [quantity_row(each) for each in known.values() if each.direction is not None]
    shown = [{name: each[name] for name in ("key", "title", "unit", "direction")} for each in measures]
    return {**experiment_row(kept), "result": kept.result, "grid": cases, "measures": shown}
