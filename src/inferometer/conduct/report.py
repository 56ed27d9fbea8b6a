"""The conductor of reports: finds the runs or the experiment that are meant, has them compared, and has it written."""

from collections.abc import Sequence
from pathlib import Path

from inferometer.conduct.compare import history_of, runs_named
from inferometer.conduct.run import partial_run
from inferometer.errors import StoreError
from inferometer.judge.compare import Comparison, compare
from inferometer.measure.values import canonical
from inferometer.record.run import Run
from inferometer.show.charts.chart import Chart
from inferometer.show.charts.experiments import Varied, cases_of
from inferometer.show.charts.history import history_of as history_lines
from inferometer.show.charts.registry import definition_of, draw
from inferometer.show.report.content import run_report
from inferometer.show.report.together import experiment_report, runs_report
from inferometer.show.report.writing import Told, write_report
from inferometer.store.experiments import KeptExperiment, load_experiment
from inferometer.store.store import Place, Store, open_store


def report(asked: Sequence[str], output: Path | None = None, store: Place = None) -> list[Path]:
    """What `inferometer report` does; the paths of all that was written, the report first."""
    place = open_store(store)
    what = told_of(asked or ["latest"], place)
    return write_report(what, output or Path(f"report-{name_of(what, asked)}.html"))


def told_of(asked: Sequence[str], store: Place = None) -> Told:
    """A report of a run, of several, or of an experiment, by their names."""
    place = open_store(store)
    if len(asked) == 1 and (kept := _experiment(asked[0], place)) is not None:
        cases = cases_of(kept, lambda id_: _loaded(id_, place))
        return Told(experiment_report(kept, cases), [run for _, run in cases])
    sides = [[_measured(run, place) for run in runs_named(said, place)] for said in asked]
    runs = list({run.id: run for side in sides for run in side}.values())
    if len(runs) == 1:
        return Told(run_report(runs[0]), runs)
    return Told(runs_report(runs, _comparison(sides, place)), runs)


def name_of(what: Told, asked: Sequence[str]) -> str:
    """Of one run its id, of several those of the first and how many more."""
    if not what.runs:
        return "nothing" if not asked else Path(asked[0]).name
    first = what.runs[0].id
    return first if len(what.runs) == 1 else f"{first}-and-{len(what.runs) - 1}-more"


def _comparison(sides: list[list[Run]], store: Store) -> Comparison | None:
    """Of two sides; more than two are shown beside each other."""
    if len(sides) != 2:
        return None
    newest = max(sides[0], key=lambda run: run.started_at)
    return compare(*sides, history=history_of(newest, store))


def _measured(run: Run, store: Store) -> Run:
    """A run that was killed or still runs, with what its logs hold so far."""
    return partial_run(run, store) if run.verdict is None else run


def _experiment(said: str, store: Store) -> KeptExperiment | None:
    """By its id, the beginning of one, or its folder; `None` where no experiment is called so."""
    path = Path(said)
    if (path / "experiment.json").is_file():
        return load_experiment(path)
    if "/" in said or said.startswith(".") or not said:
        return None
    ids = sorted(file.parent.name for file in (store.home / "experiments").glob("*/experiment.json"))
    begin = [said] if said in ids else [id_ for id_ in ids if id_.startswith(said)]
    if not begin or (begin != [said] and _loaded(said, store) is not None):
        return None
    if len(begin) > 1:
        raise StoreError(f"{said}: {len(begin)} experiments begin so", f"say more: {', '.join(begin[:5])}")
    return load_experiment(store.home / "experiments" / begin[0])


def _loaded(id_: str, store: Store) -> Run | None:
    try:
        return store.load(id_)
    except StoreError:
        return None  # deleted, or on another machine


def chart_of(said: str, name: str, measures: Sequence[str], store: Place = None) -> Chart:
    """One chart, of whatever its definition is made of."""
    place, of = open_store(store), definition_of(name).of
    if of == "experiment":
        kept = _experiment(said, place)
        if kept is None:
            raise StoreError(f"{said}: no such experiment", "inferometer sweep makes one")
        return draw(name, Varied(canonical(measures[0]), cases_of(kept, lambda id_: _loaded(id_, place))))
    runs = [_measured(run, place) for run in runs_named(said, place)]
    if of == "run":
        return draw(name, runs[0])
    if of == "comparison":
        return draw(name, _pair(runs, place))
    return draw(name, history_lines(runs, *map(canonical, measures)) if of == "history" else runs)


def _pair(runs: list[Run], store: Store) -> Comparison:
    if len(runs) != 2:
        raise StoreError(f"a comparison is of two runs, not of {len(runs)}", "write BEFORE,AFTER")
    found = _comparison([[runs[0]], [runs[1]]], store)
    assert found is not None
    return found
