"""Runs the cases of an experiment in order. Each finished case is a line on disk before the next one starts, so that
nothing is repeated after an interruption."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from inferometer.conduct.offline import offline
from inferometer.conduct.prepare import Engines, NotStarted, Prepared, Servers, done_cases, loads_between, shared
from inferometer.conduct.run import Derive, run, simulate_kept
from inferometer.documents.document import JsonValue
from inferometer.errors import InferometerError, StoreError
from inferometer.judge.compare import Comparison, compare, paired_change
from inferometer.load.shard import Watch
from inferometer.measure.values import shared_among
from inferometer.observe.observer import kept_warm
from inferometer.plan.cases import CASE, WITHOUT, Case, expected_s
from inferometer.plan.model import Plan
from inferometer.plan.server import ROUTED
from inferometer.plan.text import as_written
from inferometer.record.run import Run
from inferometer.store.experiments import (
    CaseRow,
    ClassEffect,
    ExperimentFolder,
    KeptExperiment,
    StrategyChange,
    SweepResult,
    case_row,
    rows_of,
)
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import Place, Store, open_store
from inferometer.vocabulary import attribute_at, duration_text, number_text

MEASURES = ("ttft.mean", "tpot.mean", "e2e.mean", "run_time", "request_rate", "output_rate")


def changes_of(prepared: Prepared, rows: Sequence[CaseRow]) -> list[StrategyChange]:
    """The changes of every case relative to the baseline; a measure that a repeat lacks is left out."""
    baseline = prepared.experiment.baseline
    done = [row for row in rows if row.state == "complete"]
    blocks: dict[str, list[CaseRow]] = {}
    for row in done:
        blocks.setdefault(str(_settings(prepared, row)), []).append(row)
    return [
        change
        for block in blocks.values()
        for case in dict.fromkeys(str(row.parameters[CASE]) for row in block)
        if case != baseline
        for change in _of_case(prepared, block, case, str(baseline))
    ]


def _settings(prepared: Prepared, row: CaseRow) -> dict[str, JsonValue]:
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
            yield StrategyChange(
                **structs.asdict(change),
                case=case,
                baseline=baseline,
                settings=_settings(prepared, block[0]),
                measure=measure,
                text=str(change),
            )


def doubt_of_tape(prepared: Prepared) -> str | None:
    """Why this experiment cannot distinguish routing strategies, if its tape is too short for it."""
    plans = [case.plan for case in prepared.cases if isinstance(case.plan, Plan)]
    routed = [plan for plan in plans if plan.server is not None and plan.server.type in ROUTED]
    if not routed or any((plan.stop.requests or 2) > 1 for plan in routed):
        return None
    return "the tape has one prompt, so routing strategies can differ only by chance: raise stop.requests"


# -- switching -------------------------------------------------------------------------------------------------------


def effects_of(rows: Sequence[CaseRow], store: Store) -> list[ClassEffect]:
    """How the measures changed, for each class that was switched off and each remaining class."""
    return [
        ClassEffect(off=off, of=of, comparison=comparison) for (off, of), comparison in comparisons(rows, store).items()
    ]


def comparisons(rows: Sequence[CaseRow], store: Store) -> dict[tuple[str, str], Comparison]:
    """By the class that was switched off and the class being compared."""
    runs = {row.name: store.load(row.run) for row in rows if row.run and row.state == "complete"}
    together = [(row, runs[row.name]) for row in rows if row.name in runs and row.parameters[WITHOUT] is None]
    off = dict.fromkeys(str(row.parameters[WITHOUT]) for row in rows if row.parameters[WITHOUT] is not None)
    by_class = {}
    for name in off:
        alone = [runs[row.name] for row in rows if row.name in runs and row.parameters[WITHOUT] == name]
        for of in classes_of(alone):
            before = [of_class(run, of) for _, run in together]
            if before and alone:
                by_class[name, of] = compare(before, [of_class(run, of) for run in alone])
    return by_class


def classes_of(runs: Sequence[Run]) -> list[str]:
    return [traffic.text("name") or "" for traffic in runs[0].plan.classes] if runs else []


def of_class(run: Run, name: str) -> Run:
    """The run as seen by one of its classes. Its requests are not compared one by one: with a class gone, the others
    draw other lengths, so only the spread between repeats shows it."""
    classes = [dict(traffic) for traffic in run.plan.classes if traffic.text("name") == name]
    summary = structs.replace(run.summary, traffic={})
    if (part := run.summary.traffic.get(name)) is not None:
        summary = structs.replace(summary, **{field: getattr(part, field) for field in part.__struct_fields__})
    return replace(run, plan=run.plan.with_settings(traffic=classes), summary=summary, read_records=None)


# -- conduct ---------------------------------------------------------------------------------------------------------

Notes = Callable[[str], None]
OnCase = Callable[[CaseRow], None]
BENCHMARK = "inferometer.conduct.benchmark:run_benchmark"


@dataclass(frozen=True)
class Swept:
    """The result: the experiment as stored, its rows, and why it ended before its last case, if it did."""

    kept: KeptExperiment
    rows: list[CaseRow]
    ended: str | None = None
    interrupted: bool = False
    left: int = 0  # cases not run yet

    @property
    def failed(self) -> list[CaseRow]:
        return [row for row in self.rows if row.state == "failed"]


@dataclass
class Sweep:
    """A running experiment."""

    prepared: Prepared
    folder: ExperimentFolder
    store: Store
    notify: Notes
    watch: Watch | None
    on_begin: Callable[[Case, int], None]
    on_case: OnCase
    began_at: float = field(default_factory=time.monotonic)
    spent_s: float = 0.0  # before it was resumed
    rows: list[CaseRow] = field(default_factory=list)
    failures: int = 0

    def do(self, cases: Sequence[Case], servers: Servers, engines: Engines) -> tuple[str | None, int, bool]:
        """Why it ended early, how many cases are left, and whether a person ended it."""
        for at, case in enumerate(cases):
            if why := self._spent(case):
                return why, len(cases) - at, False
            self.on_begin(case, len(self.rows))
            row = self._do(case, servers, engines)
            self.rows.append(row)
            self.on_case(row)
            if row.state == "interrupted":
                return "interrupted", len(cases) - at, True
        return None, 0, False

    def _spent(self, case: Case) -> str | None:
        budget = self.prepared.experiment.budget
        if self.failures >= budget.failures:
            return f"{self.failures} cases failed, which is the maximum"
        spent = self.spent_s + time.monotonic() - self.began_at
        if budget.time is not None and spent + self._expected_s(case) > budget.time:
            return f"the next case would exceed the time budget of {duration_text(budget.time)}"
        return None

    def _expected_s(self, case: Case) -> float:
        """As set in its plan; if the target determines it, as long as the longest completed case so far."""
        expected = expected_s(case)
        lasted = (row.wall_s or 0.0 for row in self.rows if row.state == "complete")
        return max(lasted, default=0.0) if expected is None else expected

    def _do(self, case: Case, servers: Servers, engines: Engines) -> CaseRow:
        began, made, error = time.monotonic(), None, None
        try:
            case = self._settled(case)
            made = self._measured(case, servers, engines)
            state, error = made.state, _failure(made)
        except StoreError as wrong:
            raise _resumable(wrong, self.folder.id) from wrong
        except KeyboardInterrupt:
            state = "interrupted"
        except Exception as wrong:  # any error of a case: the others are still worth running
            error = wrong.message if isinstance(wrong, InferometerError) else f"{type(wrong).__name__}: {wrong}"
            self.failures -= isinstance(wrong, NotStarted)  # it counts only for the first case with this server
        if error is not None:
            state = "failed"
            self.failures += 1
        return self._kept(case, made, state, error, time.monotonic() - began)

    def _settled(self, case: Case) -> Case:
        """With the load that follows from the measured ends, if the case depends on them."""
        levels, level = self.prepared.experiment.levels, case.level
        if levels is None or level is None or not case.waits:
            return case
        loads = loads_between(case, levels, self.prepared.cases, self.rows, self.store)
        values = ", ".join(as_written(value) for value in loads.values)
        self.notify(
            f"{levels.path} is {values}: between {number_text(loads.low)} and {number_text(loads.high)} of the ends"
        )
        return case.settled(loads.values[(level.number or 1) - 1])

    def _measured(self, case: Case, servers: Servers, engines: Engines) -> Run:
        """A server and an engine in this process are not kept running side by side: they need the memory of the same
        GPU."""
        (engines if case.work == "plan" else servers).close()
        match case.work:
            case "plan" if self.prepared.experiment.time == "virtual":
                return simulate_kept(case.plan, self.store, self.notify, self._derive())
            case "plan":
                server = servers.of(case)
                return run(
                    case.plan,
                    store=self.store,
                    watch=self.watch,
                    notes=self.notify,
                    server=server,
                    derive=self._derive(),
                )
            case "latency" | "throughput":
                return offline(case.plan, store=self.store, notes=self.notify, open_engine=engines.opener())
        engines.close()
        made: Run = attribute_at(BENCHMARK)(case.plan, store=self.store)
        return made

    def _derive(self) -> Derive | None:
        gpus, price = self.prepared.experiment.gpus, self.prepared.experiment.price_per_gpu_hour
        if gpus is None and price is None:
            return None
        return lambda summary: shared_among(summary, gpus or 1, price)

    def _kept(self, case: Case, made: Run | None, state: str, error: str | None, wall_s: float) -> CaseRow:
        line = ExperimentCase(
            name=case.name,
            label=case.label,
            repeat=case.repeat,
            parameters=dict(case.parameters),
            key=case.key,
            run=made.id if made else None,
            state=state,
            error=error,
            wall_s=wall_s,
        )
        try:
            self.folder.add(line)
            if made is not None:
                self.store.set_case(made.id, self.folder.id, case.name)
        except StoreError as wrong:
            raise _resumable(wrong, self.folder.id) from wrong
        return case_row(line, made)


def sweep(
    prepared: Prepared,
    folder: ExperimentFolder,
    *,
    store: Place = None,
    notes: Notes | None = None,
    watch: Watch | None = None,
    on_begin: Callable[[Case, int], None] = lambda _case, _done: None,
    on_case: OnCase = lambda _row: None,
    retry_failed: bool = False,
) -> Swept:
    """Run the remaining cases of the folder, and return all results."""
    kept_in, notify = open_store(store), notes or (lambda _text: None)
    with folder.held():
        before = folder.load()
        done = done_cases(before, prepared, retry_failed=retry_failed)
        left = [case for case in prepared.cases if case.key not in done]
        spent = sum(case.wall_s or 0.0 for case in before.cases)
        rows = [row for row in rows_of(before, kept_in) if row.name in {case.name for case in done.values()}]
        at_work = Sweep(prepared, folder, kept_in, notify, watch, on_begin, on_case, spent_s=spent, rows=rows)
        restarts = prepared.experiment.server.restart == "each-case"
        with kept_warm(), shared(folder.path, notify, restarts=restarts) as (servers, engines):
            why, remaining, interrupted = at_work.do(left, servers, engines)
        if not remaining:
            folder.finish(_result(prepared, at_work.rows, kept_in))
    in_order = sorted(at_work.rows, key=_written_order(prepared))
    return Swept(folder.load(), in_order, why, interrupted, remaining)


def _written_order(prepared: Prepared) -> Callable[[CaseRow], tuple[int, int]]:
    """In the order of the file, whatever order they were run in."""
    labels: dict[str, int] = {}
    for case in prepared.cases_written:
        labels.setdefault(case.label, len(labels))
    return lambda row: (labels.get(row.label, len(labels)), row.repeat)


def _result(prepared: Prepared, rows: Sequence[CaseRow], store: Store) -> SweepResult:
    states = [row.state for row in rows]
    return SweepResult(
        cases={state: states.count(state) for state in dict.fromkeys(states)},
        effects=(effects_of(rows, store) if prepared.experiment.classes else None) or None,
        changes=(changes_of(prepared, rows) if prepared.experiment.baseline else None) or None,
    )


def _failure(made: Run) -> str | None:
    """Why a stored run counts as a failed case: it ended early, or nothing was answered."""
    if made.state == "failed":
        return made.doubts[0].text if made.doubts else "it ended early"
    outcomes = made.summary.outcomes
    if made.state == "complete" and outcomes and not outcomes.get("ok"):
        errors = made.summary.errors
        why = errors[0].message if errors else "unknown reason"
        return f"no request was answered completely: {why}"
    return None


def _resumable(wrong: StoreError, experiment: str) -> StoreError:
    """The store cannot take more; its content is complete."""
    on = f"then continue where it stopped: inferometer sweep --resume {experiment}"
    return StoreError(wrong.message, f"{wrong.hint}; {on}" if wrong.hint else on)
