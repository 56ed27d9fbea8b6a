"""Starts the server of a plan after its preparation commands, waits until it is ready, and always stops it with all its
child processes."""

import os
import re
import secrets
import shlex
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson
from msgspec import structs

from inferometer.errors import TargetError
from inferometer.observe.prometheus import MetricsEndpoint, await_counted
from inferometer.plan.model import Server, Target
from inferometer.plan.redactor import Redactor
from inferometer.plan.secrets import (
    hiding,
    is_secret,
    redacted_argv,
    redacted_fields,
    redacted_line,
    redacted_text,
    redacted_url,
    redactor_of,
)
from inferometer.plan.server import Prepare
from inferometer.record.encoding import with_texts
from inferometer.record.environment import ServerStart
from inferometer.target.ask import ANSWER_S, Reset, TargetClient, reset_prefix_cache
from inferometer.target.container import Container, with_variables
from inferometer.target.launch import Launch, LaunchPlace, launch_of, model_of, variables_of
from inferometer.target.lock import Claim, Registration, end_orphans, gpu_claims, held, registered, reserved_port
from inferometer.target.probe import NotReadyError, await_ready, matching, meaning
from inferometer.target.process import StartedProcess, not_started, tail
from inferometer.vocabulary import duration_text
from inferometer.wire.origin import origin_of

# -- prepare ---------------------------------------------------------------------------------------------------------

ENVIRONMENT_FILE = "INFEROMETER_ENV"
GRACE_S = 2.0


def prepare(
    steps: Sequence[Prepare],
    folder: Path,
    token: str,
    env: Mapping[str, str],
    working: Path | None,
    notify: Callable[[str], None],
    echo: bool = False,
    redactor: Redactor | None = None,
) -> dict[str, str]:
    """Run every step to its end; returns the environment that they pass on. Raises a `TargetError` if one fails."""
    handed: dict[str, str] = {}
    for number, step in enumerate(steps, 1):
        log = folder / f"prepare-{number}.log"
        notify(f"prepare {number}/{len(steps)}: {title(step)}")
        handed |= _run(step, log, token, {**env, **handed}, working, echo, redactor)
    return handed


def title(step: Prepare) -> str:
    """The name of a step; else the command itself, shortened."""
    text = redacted_line(step.run) if isinstance(step.run, str) else shlex.join(redacted_argv(step.run))
    return step.name or (text if len(text) <= 60 else f"{text[:57]}...")


def _run(
    step: Prepare,
    log: Path,
    token: str,
    env: Mapping[str, str],
    working: Path | None,
    echo: bool,
    redactor: Redactor | None,
) -> dict[str, str]:
    with tempfile.NamedTemporaryFile("r", prefix="inferometer-env-", encoding="utf-8", errors="replace") as handed:
        argv = _argv(step)
        try:
            own = {**env, ENVIRONMENT_FILE: handed.name}
            process = StartedProcess(argv, log, token, env=own, folder=working, echo=echo, redactor=redactor)
        except OSError as error:
            raise not_started(f"prepare: {title(step)}", argv, error, "is it spelled right, and on PATH?") from None
        try:
            in_time = process.wait(step.timeout)
            how, failed = process.ended(), process.failed
        finally:
            process.end(GRACE_S)
        if not in_time or failed:
            what = f"ended {how}" if in_time else f"took longer than {duration_text(step.timeout)} and was stopped"
            raise _failure(step, log, what)
        return dict(re.findall(r"^([A-Za-z_]\w*)=(.*)$", handed.read(), re.MULTILINE))


def _argv(step: Prepare) -> list[str]:
    """A line is run by the shell: bash if available, because not every other shell has `source`."""
    return [shutil.which("bash") or "/bin/sh", "-c", step.run] if isinstance(step.run, str) else step.run


def _failure(step: Prepare, log: Path, what: str) -> TargetError:
    end = "".join(f"\n  {redacted_text(line)}" for line in tail(log))
    log_text = f", the end of its log:{end}" if end else ", its log is empty"
    return TargetError(f"prepare: {title(step)} {what}{log_text}", f"the whole log: {log}")


# -- server ----------------------------------------------------------------------------------------------------------

LOG = "server.log"
COUNTED_S = 15.0  # for a delayed export to report the first query
FIRST_PATH, FIRST_PROMPT = "/v1/completions", "Hello"
Notify = Callable[[str], None]


class Body(Protocol):
    """The thing that runs: a process or a container."""

    def ended(self) -> str | None: ...
    def end(self, grace_s: float) -> list[Any]: ...


class StartedServer:
    """A started server, or an external one that was waited for. `facts` is stored with a run."""

    def __init__(
        self, server: Server, launch: Launch, log: Path, body: Body | None, target: Target, began: float
    ) -> None:
        self.server, self.launch, self.target = server, launch, target
        self.redactor = _redactor(server, launch, target)
        self.name, self.url, self.log = launch.name, launch.url, log
        self.model: str | None = None  # served name
        self.ready_s: float | None = None
        self.runs = 0  # number of runs served so far
        self.version: str | None = None
        self.image = ServerStart()  # of a container: data on it and its image
        self.reset: Reset | None = None
        self._body = body
        self._began = began  # on the monotonic clock
        self._started_at = datetime.now(UTC) - timedelta(seconds=time.monotonic() - began)
        self._over: str | None = None

    @property
    def engine_url(self) -> str:
        """The address of the engine itself, if something else is in front of it."""
        return self.url

    @property
    def metrics_urls(self) -> list[str]:
        """Its metrics addresses, if they differ from its own."""
        return list(self.launch.metrics)

    @property
    def logs(self) -> list[Path]:
        return [self.log]

    @property
    def pid(self) -> int | None:
        return self._body.pid if isinstance(self._body, StartedProcess) else None

    @property
    def facts(self) -> ServerStart:
        """For the environment of a run; without secrets."""
        server = self.server
        facts = structs.replace(
            self.image,
            type=server.type,
            name=self.name,
            url=redacted_url(self.url),
            model=self.model,
            argv=redacted_argv(self.launch.argv),
            args=redacted_fields(server.args),
            env=redacted_fields(server.env),
            version=self.version,
            pid=self.pid,
            started=self._started_at.isoformat(timespec="milliseconds"),
            ready_s=self.ready_s,
            log=str(self.log) if self._body else None,
            run_number=self.runs or None,
            prefix_cache_reset=self.reset.done if self.reset else None,
            ended=self.ended(),
        )
        return with_texts(facts, self.redactor.hide_within)

    def await_ready(self) -> None:
        """Wait until it answers; a `TargetError` with the end of its log if it never does."""
        deadline = self._began + self.launch.ready_s
        try:
            served = await_ready(self.launch, self.target, self.server.ready.path, self.ended, deadline)
        except NotReadyError as error:
            raise self._not_ready(error) from None
        self.ready_s = time.monotonic() - self._began if self._body else None
        self.model = _served_as(self.launch, self.target, served)
        self.version = _version(self.launch, self.target)
        if self.launch.first_query:
            self._query_once(max(deadline - time.monotonic(), ANSWER_S))
            self.ready_s = time.monotonic() - self._began if self._body else None
        if isinstance(self._body, Container) and self.server.image:
            self.image = self._body.facts(self.server.image)

    def _query_once(self, within_s: float) -> None:
        """One query before the load: an application may list its model although nothing behind it answers, and an
        engine's first answer may include warming up."""
        body = {"model": self.model, "prompt": FIRST_PROMPT, "max_tokens": 1}
        client = TargetClient(self.target.model_copy(update={"url": [self.url]}), self.url, within_s)
        try:
            reply = client.post(FIRST_PATH, orjson.dumps(body))
        except TargetError as error:
            raise self.failure(f"did not answer the first query: {error.message}", error.hint) from None
        if reply.status != 200:
            text = client.hide(reply.body.decode("utf-8", "replace"))[:300]
            raise self.failure(f"answered the first query with status {reply.status}: {text}")
        for url in self.launch.metrics:
            origin, parts = origin_of(url), urlsplit(url)
            with closing(MetricsEndpoint(origin, parts.path or "/", {}, COUNTED_S)) as endpoint:
                await_counted(endpoint, COUNTED_S)

    def ended(self) -> str | None:
        """How it ended, None while it runs; unknown for an external server."""
        return self._over or (self._body.ended() if self._body else None)

    def check(self) -> None:
        """Raises a `TargetError` with the end of its log if it is not running any more."""
        if how := self.ended():
            raise self.failure(f"ended {how}")

    def serve_run(self) -> Iterator[str]:
        """Before each run, check that it is running and reset its prefix cache; returns notes on what was done."""
        self.check()
        wanted = self.server.reset_cache
        if wanted or (wanted is None and self.runs and self._body):
            self.reset = self._reset_cache()
            yield self.reset.note
        self.runs += 1

    def _reset_cache(self) -> Reset:
        return reset_prefix_cache(self.launch, self.target)

    def since(self, began: float) -> None:
        """Set an earlier start time than that of its process, on the monotonic clock."""
        self._began = began

    def end(self) -> list[Any]:
        """Stop it and all its children; returns the processes that could not be ended."""
        if self._body is None or self._over:
            return []
        self._over = self._body.ended() or "by us"
        return self._body.end(self.server.grace)

    def failure(self, what: str, hint: str | None = None) -> TargetError:
        """The error with the end of its log and its meaning."""
        if self._body is None:
            url = redacted_url(self.url)
            return TargetError(f"{self.name} {what}" if url in what else f"{self.name} at {url} {what}", hint)
        if self.ended():
            self.end()  # its children too; only then is its log complete
        end = "".join(f"\n  {redacted_text(line)}" for line in tail(self.log))
        if not end:
            return TargetError(f"{self.name} {what}, its log is empty", hint)
        remedy, whole = hint or meaning(tail(self.log, 200)), f"the whole log: {self.log}"
        return TargetError(f"{self.name} {what}, the end of its log:{end}", f"{remedy}; {whole}" if remedy else whole)

    def _not_ready(self, error: NotReadyError) -> TargetError:
        """Builds the error before stopping the server: its output while stopping would hide the earlier output."""
        if error.in_time:
            return self.failure(error.what, error.hint)
        waited = f"was not ready within {duration_text(self.launch.ready_s)}"
        return self.failure(f"{waited} ({error.what})", error.hint)


@contextmanager
def running(
    server: Server,
    folder: Path,
    *,
    target: Target | None = None,
    notify: Notify = lambda _text: None,
    holder: str = "inferometer",
    wait_s: float = 0.0,
    echo: bool = False,
    log: Path | None = None,
    shared: bool = False,
) -> Iterator[StartedServer]:
    """The plan's server, ready for requests, for as long as the context lasts.

    Its log and those of its preparation are stored in the folder. `holder` is shown to other runs that request the same
    GPUs; GPUs in use are waited for up to `wait_s`. `shared`: it will serve several runs, as with `keep: shared`.
    """
    target = target or Target()
    server = server.model_copy(update={"keep": "shared"}) if shared else server
    with ExitStack() as stack:
        stack.enter_context(hiding(redactor_of(target=target, server=server)))
        stack.enter_context(_ended_by_signals())
        if server.type != "external":
            end_orphans(notify)
        if server.exclusive:
            stack.enter_context(held(_claims(server), holder, wait_s, notify))
        if server.type == "fleet":
            from inferometer.target.fleet import running_fleet  # it imports this module

            whole = running_fleet(server, folder, log or folder / LOG, target, holder, notify, echo)
            yield stack.enter_context(whole)
            return
        port = _known_port(server)
        if port is None:
            port = stack.enter_context(reserved_port(server.host, server.port, holder))
        place = LaunchPlace(server.host, port, model_of(server, target))
        launch = launch_of(server, place)
        made = started(server, launch, target, folder, log or folder / LOG, notify, echo, StartedServer, place)
        ready = stack.enter_context(made)
        ready.await_ready()
        yield ready


def _known_port(server: Server) -> int | None:
    """The fixed port of an external server, or of Serve in a running Ray, which may or may not be up."""
    if server.type == "external":
        return 0
    return server.port if server.type == "ray-serve" and server.args.get("address") else None


def _claims(server: Server) -> list[Claim]:
    if server.type == "fleet":
        from inferometer.target.fleet import fleet_claims

        return fleet_claims(server, os.environ)
    return gpu_claims(server, {**os.environ, **variables_of(server, LaunchPlace(server.host, server.port or 0))})


@contextmanager
def started(
    server: Server,
    launch: Launch,
    target: Target,
    folder: Path,
    log: Path,
    notify: Notify,
    echo: bool,
    kind: type[StartedServer],
    place: LaunchPlace | None = None,
) -> Iterator[StartedServer]:
    """Prepared (for its address and port), started and recorded; not ready yet."""
    if not launch.argv:
        yield kind(server, launch, log, None, target, time.monotonic())
        return
    token = secrets.token_hex(8)
    command = shlex.join(redacted_argv(launch.argv))
    with registered(token, launch.name, command, launch.argv[0] if launch.is_container else None) as registration:
        if place is not None:
            launch = _prepared(server, launch, place, target, folder, token, notify, echo)
        called = time.monotonic()
        body = _body(server, launch, log, token, registration, echo, _redactor(server, launch, target))
        began = time.monotonic() if launch.is_container else called  # its image may have been pulled first
        made = kind(server, launch, log, body, target, began)
        try:
            yield made
        finally:
            for left in made.end():
                notify(f"process {left.pid} of {launch.name} could not be stopped")


def _redactor(server: Server, launch: Launch, target: Target) -> Redactor:
    """For the secrets in the plan and those that the preparation passed on."""
    handed = [value for name, value in launch.env.items() if is_secret(name)]
    return redactor_of(target=target, server=server, more=handed)


def _prepared(
    server: Server,
    launch: Launch,
    place: LaunchPlace,
    target: Target,
    folder: Path,
    token: str,
    notify: Notify,
    echo: bool,
) -> Launch:
    if not server.prepare:
        return launch
    env = {**launch.env, **variables_of(server, place)}
    hidden = _redactor(server, launch, target)
    handed = prepare(server.prepare, folder, token, env, launch.folder, notify, echo, hidden)
    argv = with_variables(launch.argv, handed) if launch.is_container else launch.argv
    return replace(launch, argv=argv, env={**launch.env, **handed})


def _body(
    server: Server, launch: Launch, log: Path, token: str, registration: Registration, echo: bool, redactor: Redactor
) -> StartedProcess | Container:
    if launch.is_container:
        container = _container(server, launch, log, token, echo, redactor)
        registration.runs_in(container.id)
        return container
    try:
        process = StartedProcess(
            launch.argv,
            log,
            token,
            env=launch.env,
            folder=launch.folder,
            limit=server.log_limit,
            echo=echo,
            held_by_stdin=launch.held_by_stdin,
            redactor=redactor,
        )
    except OSError as error:
        raise not_started(launch.name, launch.argv, error, launch.missing) from None
    registration.runs_as(process.pid)
    return process


def _container(server: Server, launch: Launch, log: Path, token: str, echo: bool, redactor: Redactor) -> Container:
    try:
        return Container(launch, log, token, server.log_limit, echo, redactor)
    except TargetError as error:
        raise TargetError(error.message, meaning([error.message]) or error.hint) from None


def _served_as(launch: Launch, target: Target, served: list[str] | None) -> str | None:
    """The name to request: the target's own if it is served, because it may be an adapter."""
    if served is None:
        return target.model
    return target.model if target.model in served else matching(launch.names, served)


def _version(launch: Launch, target: Target) -> str | None:
    if launch.version is None:
        return None
    path, field = launch.version
    with suppress(TargetError):
        document = TargetClient(target, launch.url).get(path).json()
        version = document.get(field) if isinstance(document, Mapping) else None
        return version if isinstance(version, str) else None
    return None


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """TERM and HUP end us like Ctrl-C, through every `finally`, while a server of ours is running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    taken = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
