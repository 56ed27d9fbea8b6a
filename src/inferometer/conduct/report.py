"""Conducts reports, the dashboard and the static site: finds the requested runs or experiment, compares them, and
writes or serves the result."""

import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from inferometer.conduct.compare import compare_sides, runs_named
from inferometer.conduct.run import partial_run
from inferometer.errors import InferometerError, MissingExtra, PlanError, StoreError
from inferometer.judge.compare import Comparison
from inferometer.measure.values import canonical
from inferometer.record.run import Run
from inferometer.show.charts.chart import Chart
from inferometer.show.charts.experiments import ChartedCase, Varied, cases_of
from inferometer.show.charts.history import history_of as history_lines
from inferometer.show.charts.registry import definition_of, draw
from inferometer.show.dashboard.access import is_loopback
from inferometer.show.dashboard.answers import StoreAnswers
from inferometer.show.dashboard.overview import LiveRuns
from inferometer.show.report.content import experiment_report, run_report, runs_report
from inferometer.show.report.writing import ReportWithRuns, write_report
from inferometer.show.site import Built, build_site
from inferometer.store.experiments import KeptExperiment, load_experiment
from inferometer.store.store import Place, Store, open_store


def report(names: Sequence[str], output: Path | None = None, store: Place = None) -> list[Path]:
    """What `inferometer report` does; returns the paths of all written files, the report first."""
    place = open_store(store)
    what = build_report(names or ["latest"], place)
    return write_report(what, output or Path(f"report-{name_of(what, names)}.html"))


def build_report(names: Sequence[str], store: Place = None) -> ReportWithRuns:
    """A report of a run, of several, or of an experiment, by name."""
    place = open_store(store)
    if len(names) == 1 and (kept := experiment_named(names[0], place)) is not None:
        cases = readable_cases(kept, place)
        return ReportWithRuns(experiment_report(kept, cases), [run for _, run in cases])
    sides = [[_measured(run, place) for run in runs_named(name, place)] for name in names]
    runs = list({run.id: run for side in sides for run in side}.values())
    if len(runs) == 1:
        return ReportWithRuns(run_report(runs[0]), runs)
    return ReportWithRuns(runs_report(runs, _comparison(sides, place)), runs)


def name_of(what: ReportWithRuns, names: Sequence[str]) -> str:
    """For one run its id, for several the id of the first and the number of others."""
    if not what.runs:
        return "nothing" if not names else Path(names[0]).name
    first = what.runs[0].id
    return first if len(what.runs) == 1 else f"{first}-and-{len(what.runs) - 1}-more"


def _comparison(sides: list[list[Run]], store: Store) -> Comparison | None:
    """The comparison of two sides; more than two are shown side by side."""
    return compare_sides(sides[0], sides[1], store) if len(sides) == 2 else None


def _measured(run: Run, store: Store) -> Run:
    """A run that was killed or still runs, with the content of its logs so far."""
    return partial_run(run, store) if run.verdict is None else run


def experiment_named(name: str, store: Store) -> KeptExperiment | None:
    """By its id, the start of one, or its folder; `None` if there is no such experiment."""
    path = Path(name)
    if (path / "experiment.json").is_file():
        return load_experiment(path)
    if "/" in name or name.startswith(".") or not name:
        return None
    ids = sorted(file.parent.name for file in (store.home / "experiments").glob("*/experiment.json"))
    begin = [name] if name in ids else [id_ for id_ in ids if id_.startswith(name)]
    if not begin or (begin != [name] and _loaded(name, store) is not None):
        return None
    if len(begin) > 1:
        raise StoreError(
            f"{name}: {len(begin)} experiments start with this", f"give more of the id: {', '.join(begin[:5])}"
        )
    return load_experiment(store.home / "experiments" / begin[0])


def readable_cases(kept: KeptExperiment, store: Store) -> list[ChartedCase]:
    """The cases whose runs exist and can be read."""
    return cases_of(kept, lambda id_: _loaded(id_, store))


def _loaded(id_: str, store: Store) -> Run | None:
    try:
        return store.load(id_)
    except StoreError:
        return None  # deleted, or on another machine


def chart_of(subject: str, name: str, measures: Sequence[str], store: Place = None) -> Chart:
    """One chart of whatever type its definition requires."""
    place, of = open_store(store), definition_of(name).of
    if of == "experiment":
        kept = experiment_named(subject, place)
        if kept is None:
            raise StoreError(f"{subject}: no such experiment", "create one with inferometer sweep")
        return draw(name, Varied(canonical(measures[0]), readable_cases(kept, place)))
    runs = [_measured(run, place) for run in runs_named(subject, place)]
    if of == "run":
        return draw(name, runs[0])
    if of == "comparison":
        return draw(name, _pair(runs, place))
    return draw(name, history_lines(runs, *map(canonical, measures)) if of == "history" else runs)


def _pair(runs: list[Run], store: Store) -> Comparison:
    if len(runs) != 2:
        raise StoreError(f"a comparison needs two runs, got {len(runs)}", "write BEFORE,AFTER")
    comparison = _comparison([[runs[0]], [runs[1]]], store)
    assert comparison is not None
    return comparison


# -- dashboard -------------------------------------------------------------------------------------------------------

SHUTDOWN_S = 0.4  # answers that are nearly finished are still sent


def answers_of(store: Place = None) -> StoreAnswers:
    """Everything that the pages over a store request; the static site uses the same."""
    place = open_store(store)

    def compared(before: Sequence[Run], after: Sequence[Run], measures: Sequence[str], every: bool) -> Comparison:
        return compare_sides(before, after, place, measures=measures, every=every)

    return StoreAnswers(place, compared, LiveRuns(lambda run: partial_run(run, place)))


def new_token() -> str:
    return secrets.token_urlsafe(24)


def serve_dashboard(
    store: Place,
    *,
    host: str,
    port: int,
    token: str | None,
    write: bool,
    ready: Callable[[str], None],
) -> None:
    """Serves until interrupted. `ready` is called with the address, including the free port chosen for port 0."""
    if token is None and not is_loopback(host):
        raise PlanError(f"{host}: a dashboard that is reachable from other machines needs a token")
    try:
        import uvicorn

        from inferometer.show.dashboard.app import made_app
    except ImportError:
        raise MissingExtra("the dashboard", "dashboard") from None
    app = made_app(answers_of(store), token=token, write=write)
    with _listening(host, port) as listener:
        config = uvicorn.Config(app, log_level="critical", access_log=False, server_header=False, lifespan="off")
        config.timeout_graceful_shutdown = SHUTDOWN_S  # type: ignore[assignment]  # passed on to asyncio: a part of 1 s
        server = uvicorn.Server(config)
        ready(_address(listener, host))
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        hint = "choose another port: --port 0 takes any that is free"
        raise InferometerError(
            f"{host}:{port}: cannot listen: {(error.strerror or str(error)).lower()}", hint
        ) from None
    # Responses are headers and a body: without this the body waits 40 ms for the reader's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _address(listener: socket.socket, host: str) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"


# -- site ------------------------------------------------------------------------------------------------------------

CHARTS = 100  # runs whose charts are included


def site(folder: Path | str, store: Place = None, *, where: Sequence[str] = (), charts: int = CHARTS) -> Built:
    """Write the site of a store, or update what has changed since the last time."""
    return build_site(answers_of(store), Path(folder), where=where, charts=charts)
