"""The dashboard and the static site: a store behind a web address, or in a folder. Pages get from here what is above
their room: how runs are compared, and how a run in progress is read."""

import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from inferometer.conduct.compare import compare_sides
from inferometer.conduct.run import partial_run
from inferometer.errors import InferometerError, MissingExtra, PlanError
from inferometer.judge.compare import Comparison
from inferometer.record.run import Run
from inferometer.show.dashboard.access import is_loopback
from inferometer.show.dashboard.answers import Answers
from inferometer.show.dashboard.live import LiveRuns
from inferometer.show.site.building import Built, build_site
from inferometer.store.store import Place, open_store

# -- dashboard -------------------------------------------------------------------------------------------------------

SHUTDOWN_S = 0.4  # answers that are nearly there are still given


def answers_of(store: Place = None) -> Answers:
    """Everything that the pages over a store ask for; the static site asks the same."""
    place = open_store(store)

    def compared(before: Sequence[Run], after: Sequence[Run], measures: Sequence[str], every: bool) -> Comparison:
        return compare_sides(before, after, place, measures=measures, every=every)

    return Answers(place, compared, LiveRuns(lambda run: partial_run(run, place)))


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
    """Until it is interrupted. `ready` is told the address, with the port that was free where 0 was asked for."""
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
    return listener


def _address(listener: socket.socket, host: str) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"


# -- site ------------------------------------------------------------------------------------------------------------

CHARTS = 100  # runs whose charts are part of it


def site(folder: Path | str, store: Place = None, *, where: Sequence[str] = (), charts: int = CHARTS) -> Built:
    """Write the site of a store, or what changed of it since the last time."""
    return build_site(answers_of(store), Path(folder), where=where, charts=charts)
