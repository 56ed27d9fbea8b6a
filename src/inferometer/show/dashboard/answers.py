"""The API's answers, as functions of the store: no web framework here. The conductor passes in how runs are compared
and how a run in progress is read, because that code is above this room."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from inferometer.documents.document import Document, JsonObject
from inferometer.errors import PlanError, StoreError
from inferometer.judge.compare import Comparison
from inferometer.measure.values import Quantity, alike, canonical
from inferometer.record.encoding import document_of
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.show.about import About, about_of
from inferometer.show.charts.experiments import ChartedCase, cases_of, joined_cases
from inferometer.show.comparison import comparison_view
from inferometer.show.dashboard.documents import (
    Cell,
    ChartDocument,
    ChartsDocument,
    LiveDocument,
    RunDocument,
    measure_row,
    run_document,
    title_of,
)
from inferometer.show.dashboard.explore import (
    NUMBERS,
    SERIES,
    ExploreDocument,
    GridMeasure,
    comparison_charts,
    experiment_charts,
    explored,
    history_chart,
    run_charts,
    trade_offs,
)
from inferometer.show.dashboard.families import (
    Family,
    FamilyRow,
    SeriesChange,
    changes_in,
    families,
    family_row,
    values_by_label,
)
from inferometer.show.dashboard.listing import (
    NotFound,
    RunRow,
    RunsPage,
    TrafficTexts,
    entry_of,
    experiment_of,
    experiments_in,
    file_text,
    files_of,
    page_of,
    run_of,
    run_row,
    searched,
    visitor_conditions,
)
from inferometer.show.dashboard.overview import LiveRuns, Overview, history_lines, is_running
from inferometer.show.experiment_answer import ExperimentAnswer, ExperimentRow, answer_of, experiment_row
from inferometer.store.entry import Entry
from inferometer.store.experiments import KeptExperiment
from inferometer.store.query import Condition
from inferometer.store.store import Store

MOST_COMPARED = 40
LAST_EXPERIMENTS = 6
MOST_READ = 60  # runs that a list of experiments reads for the answers of sweeps: half a second
_BASES = ("output_rate.window", "output_rate.span")  # so that a line of the overview uses one basis

Compare = Callable[[Sequence[Run], Sequence[Run], Sequence[str], bool], Comparison]
FamiliesByRun = dict[int, list[Family]]
SweepKey = tuple[str, int, bool]  # the progress of a sweep: its id, its lines, whether it is over


# -- documents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableRow:
    """One measure of several runs; missing is null."""

    key: str
    title: str
    unit: str
    direction: str | None
    observed: bool
    values: list[float | None]
    weak: list[bool]  # which of them are percentiles of too few samples


@dataclass(frozen=True)
class ComparedRuns:
    before: list[About]
    after: list[About]


@dataclass(frozen=True)
class ComparisonDocument:
    """Two sides, judged as in `compare --json`, and every number of every run side by side."""

    comparison: JsonObject
    view: JsonObject
    runs: ComparedRuns
    table: list[TableRow]
    charts: list[ChartDocument]


@dataclass(frozen=True)
class HistoryMeasure:
    """One measure of a family over time, and the change points of each series."""

    key: str
    series: dict[str, int]
    changes: dict[str, list[SeriesChange]]
    field: str
    chart: ChartDocument | None


@dataclass(frozen=True)
class Histories:
    histories: list[FamilyRow]


@dataclass(frozen=True)
class HistoryDocument:
    history: FamilyRow
    lines: list[HistoryMeasure]


@dataclass(frozen=True)
class ExperimentsDocument:
    experiments: list[ExperimentRow]


@dataclass(frozen=True)
class GridCase:
    name: str | None
    parameters: dict[str, Cell]
    run: str | None
    repeat: int | None
    error: str | None
    verdict: str | None
    values: dict[str, float]
    weak: list[str]  # keys of percentiles of too few samples


@dataclass(frozen=True)
class ExperimentDocument:
    row: ExperimentRow
    about: About | None  # of its first run
    answer: ExperimentAnswer
    charts: list[ChartDocument]
    axes: list[str]  # settings that vary; of those that vary together only one
    grid: list[GridCase]
    measures: list[GridMeasure]
    definition: JsonObject


# -- answers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoreAnswers:
    store: Store
    compare: Compare
    live: LiveRuns
    _families: FamiliesByRun = field(default_factory=dict)
    _words: list[TrafficTexts] = field(default_factory=list)
    _sweeps: dict[SweepKey, ExperimentAnswer] = field(default_factory=dict)

    @property
    def words(self) -> TrafficTexts:
        if not self._words:
            self._words.append(TrafficTexts(self.load))
        return self._words[0]

    # -- runs -----------------------------------------------------------------------------------------------------

    def load(self, entry: Entry) -> Run:
        return run_of(self.store, entry)

    def entry_and_run(self, wanted: str) -> tuple[Entry, Run]:
        """A run in progress is returned with the content of its logs so far."""
        entry = entry_of(self.store, wanted)
        run = self.load(entry)
        return entry, self.live.read(run) if run.summary == Summary() else run

    def page(
        self,
        *,
        where: Sequence[str],
        search: str,
        sort: str | None,
        columns: Sequence[str],
        limit: int,
        offset: int,
        experiments: bool,
    ) -> RunsPage:
        return page_of(
            self.store,
            self.words,
            where=where,
            search=search,
            sort=sort,
            columns=columns,
            limit=limit,
            offset=offset,
            experiments=experiments,
        )

    def run(self, wanted: str) -> RunDocument:
        entry, run = self.entry_and_run(wanted)
        baselines = sorted(name for name, id_ in self.store.baselines().items() if id_ == entry.id)
        return replace(run_document(run, entry, baselines), files=files_of(self.store, run))

    def live_state(self, wanted: str) -> LiveDocument:
        entry = entry_of(self.store, wanted)
        return self.live.state(self.load(entry), entry)

    def charts(self, wanted: str) -> ChartsDocument:
        return run_charts(self.entry_and_run(wanted)[1])

    def file(self, wanted: str, name: str) -> str:
        return file_text(self.store, self.load(entry_of(self.store, wanted)), name)

    # -- overview -------------------------------------------------------------------------------------------------

    def overview(self) -> Overview:
        running = [entry for entry in self.store.runs(where=["state=partial"]) if self._is_running(entry)]
        histories = self.families()
        return Overview(
            lines=history_lines(histories),
            left_out=sum(family.left_out for family in histories),
            running=[self.row(entry) for entry in running],
            experiments=self.experiments().experiments[:LAST_EXPERIMENTS],
            total=self.store.count(),
        )

    def row(self, entry: Entry) -> RunRow:
        return run_row(entry, self.words)

    def _is_running(self, entry: Entry) -> bool:
        run = self._readable(entry)
        return run is not None and is_running(run)

    # -- comparing ------------------------------------------------------------------------------------------------

    def comparison(
        self, before: Sequence[str], after: Sequence[str], measures: Sequence[str], every: bool
    ) -> ComparisonDocument:
        if not before or not after:
            raise PlanError("compare: needs at least one run on each side", "before=ID&after=ID")
        if len(before) + len(after) > MOST_COMPARED:
            raise PlanError(f"compare: at most {MOST_COMPARED} runs at once, got {len(before) + len(after)}")
        one, other = ([self.entry_and_run(wanted)[1] for wanted in side] for side in (before, after))
        comparison = self.compare(one, other, measures, every)
        return ComparisonDocument(
            comparison=comparison.document(),
            view=comparison_view(comparison).document(),
            runs=ComparedRuns([about_of(run) for run in one], [about_of(run) for run in other]),
            table=table_of([*one, *other]),
            charts=comparison_charts(comparison, [*one, *other]),
        )

    # -- histories ------------------------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        """Recomputed when a run was added, finished or removed; cases of experiments are not part of a history.
        Requests run in parallel: what one drops from the cache another may still use."""
        now = self.store.stamp()
        known = self._families.get(now)
        if known is None:
            known = families(
                [entry for entry in self.store.runs(numbers=_BASES) if entry.experiment is None], self.load
            )
            self._families.clear()
            self._families[now] = known
        return known

    def histories(self) -> Histories:
        return Histories([family_row(family) for family in self.families()])

    def family(self, wanted: str) -> Family:
        match = next((family for family in self.families() if family.id == wanted), None)
        if match is None:
            raise NotFound(f"no history {wanted[:80]!r}")
        return match

    def history(self, wanted: str, keys: Sequence[str]) -> HistoryDocument:
        """Measures of one family over time."""
        family = self.family(wanted)
        requested = [canonical(key) for key in keys] or list(family.keys)[:1]
        if unknown := [key for key in requested if key not in family.keys]:
            raise PlanError(f"not measured there: {', '.join(unknown)}", f"there are {', '.join(family.keys)}")
        wide = with_values(family, self.store, requested)
        return HistoryDocument(family_row(family), [line_of(wide, key) for key in requested])

    def trade_offs(self, wanted: str) -> ChartsDocument:
        """The newest run of each series of a family, side by side."""
        return trade_offs(self.all_readable(self.family(wanted).newest))

    # -- across families ------------------------------------------------------------------------------------------

    def explore(self, where: Sequence[str], search: str = "") -> ExploreDocument:
        """The newest matching runs, of any model, engine and hardware, from the data in the index; including cases of
        experiments."""
        return explored(
            self.explorable(searched(self.explorable_entries(visitor_conditions(where)), search)), self.words
        )

    def explorable_entries(self, where: Sequence[str | Condition] = ()) -> list[Entry]:
        return self.store.runs(where=where, numbers=NUMBERS)

    def explorable(self, entries: Sequence[Entry]) -> list[Entry]:
        return [
            entry
            for entry in entries
            if entry.kind == "serving" and entry.state in ("complete", "interrupted") and entry.verdict != "invalid"
        ]

    # -- experiments ----------------------------------------------------------------------------------------------

    def experiments(self, most_read: int | None = MOST_READ) -> ExperimentsDocument:
        """With their answers. Those of sweeps require reading the runs of their cases: at most this many that are not
        cached yet."""
        rows, left = [], most_read
        for kept in experiments_in(self.store):
            key = (kept.id, len(kept.cases), kept.result is not None)
            if kept.kind == "sweep" and key not in self._sweeps and (left is None or left > 0):
                runs = self.case_runs(kept)
                self._sweeps[key] = replace(answer_of(kept, cases_of(kept, runs.get)), tables=[])
                left = None if left is None else left - len(runs)
            rows.append(experiment_row(kept, self._sweeps.get(key)))
        return ExperimentsDocument(rows)

    def kept_experiment(self, wanted: str) -> KeptExperiment:
        return experiment_of(self.store, wanted)

    def experiment(self, wanted: str) -> ExperimentDocument:
        kept = self.kept_experiment(wanted)
        runs = self.case_runs(kept)
        cases = cases_of(kept, runs.get)
        return experiment_document(kept, runs, cases)

    def case_runs(self, kept: KeptExperiment) -> dict[str, Run]:
        """Those that still exist and can be read."""
        known = {entry.id: entry for entry in self.store.runs(experiment=kept.id)}
        wanted = [id_ for case in kept.cases if (id_ := case.run)]
        for id_ in wanted:
            if id_ not in known:
                known |= _maybe(self.store, id_)
        return {id_: run for id_ in wanted if id_ in known and (run := self._readable(known[id_])) is not None}

    def all_readable(self, entries: Sequence[Entry]) -> list[Run]:
        return [run for run in map(self._readable, entries) if run is not None]

    def _readable(self, entry: Entry) -> Run | None:
        try:
            return self.load(entry)
        except StoreError:
            return None  # damaged, or just deleted: the others are shown


def _maybe(store: Store, id_: str) -> dict[str, Entry]:
    try:
        return {id_: entry_of(store, id_)}
    except NotFound:
        return {}


def table_of(runs: Sequence[Run]) -> list[TableRow]:
    """Every number that any of the runs has."""
    by_run = alike([run.summary for run in runs])
    first = {key: quantity for numbers in reversed(by_run) for key, quantity in numbers.items()}
    ordered = {key: first[key] for numbers in by_run for key in numbers}
    return [_table_row(quantity, [numbers.get(key) for numbers in by_run]) for key, quantity in ordered.items()]


def _table_row(quantity: Quantity, of_runs: list[Quantity | None]) -> TableRow:
    row = measure_row(quantity)
    values = [None if one is None else one.value for one in of_runs]
    weak = [one is not None and one.needed is not None for one in of_runs]
    return TableRow(row.key, row.title, row.unit, row.direction, row.observed, values, weak)


def with_values(family: Family, store: Store, keys: Sequence[str]) -> Family:
    """Its entries with the requested numbers."""
    wanted = list({entry.id: None for series in family.series for entry in series.entries})
    stored = list(dict.fromkeys(name for key in keys for series in family.series for name in series.stored_on(key)))
    known = store.numbers(stored, wanted)
    series = [
        replace(own, entries=[replace(entry, values=entry.values | known[entry.id]) for entry in own.entries])
        for own in family.series
    ]
    return replace(family, series=series)


def line_of(family: Family, key: str) -> HistoryMeasure:
    """One measure of a family: a chart, and the change points of each series."""
    points = values_by_label(family, key)
    changes = {label: rows for label, own in points.items() if (rows := changes_in(own))}
    counted = {label: len(own) for label, own in points.items()}
    return HistoryMeasure(key, counted, changes, SERIES, history_chart(family, key, points))


def experiment_document(kept: KeptExperiment, runs: dict[str, Run], cases: Sequence[ChartedCase]) -> ExperimentDocument:
    """Its answer first, then its charts and a grid of its cases with their numbers."""
    numbers = dict(zip(runs, alike([run.summary for run in runs.values()]), strict=True))
    known = {key: quantity for by_key in numbers.values() for key, quantity in by_key.items()}
    grid = [
        GridCase(
            name=case.name,
            parameters={name: _cell(value) for name, value in (case.parameters or {}).items()},
            run=case.run,
            repeat=case.repeat,
            error=case.error,
            verdict=runs[case.run].status if case.run and case.run in runs else None,
            values={key: quantity.value for key, quantity in numbers.get(case.run or "", {}).items()},
            weak=[key for key, quantity in numbers.get(case.run or "", {}).items() if quantity.needed],
        )
        for case in kept.latest
    ]
    answer = answer_of(kept, cases)
    return ExperimentDocument(
        row=experiment_row(kept, answer),
        about=about_of(next(iter(runs.values()))) if runs else None,
        answer=answer,
        charts=experiment_charts(kept, cases),
        axes=list(dict.fromkeys(name for settings, _ in joined_cases(cases) for name in settings)),
        grid=grid,
        measures=[_grid_measure(quantity) for quantity in known.values() if quantity.direction is not None],
        definition=_definition(kept),
    )


def _definition(kept: KeptExperiment) -> JsonObject:
    """Without the cases, which have a table of their own."""
    whole = Document.of(document_of(kept.definition))
    return {name: part for name, part in whole.items() if name not in ("file", "cases")}


def _cell(value: object) -> Cell:
    return value if isinstance(value, str | int | float) or value is None else str(value)


def _grid_measure(quantity: Quantity) -> GridMeasure:
    return GridMeasure(quantity.key, title_of(quantity), quantity.unit, quantity.direction)
