"""The run's side of the observer process: what it watches, derived from the plan; started before the load, ended after
it. It is a forked copy of this process if possible: a new Python needs 0.15 s of processor time for its imports."""

import ipaddress
import os
import platform
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import IO, TYPE_CHECKING, NamedTuple, NoReturn
from urllib.parse import urlsplit

import msgspec

from inferometer.documents.document import is_unicode
from inferometer.observe.gpu import visible_gpus
from inferometer.router.feed import PATH as JOURNAL
from inferometer.wire.child import python_command
from inferometer.wire.origin import Trust

if TYPE_CHECKING:
    from inferometer.plan.model import Plan


class MetricsPlace(msgspec.Struct, frozen=True):
    """A Prometheus endpoint; `ours` marks one that the plan does not name; its absence is not reported."""

    url: str
    source: str = ""  # the URL as shown in samples, without secrets
    ours: bool = False
    headers: dict[str, str] = {}


class ObserverJob(msgspec.Struct, frozen=True):
    """Everything the observer process needs; sent to its stdin, because headers may contain keys."""

    log: str
    interval_s: float = 1.0
    host: bool = True
    gpu: bool = False
    gpus: list[int] | None = None  # None: all
    gpu_wanted: bool = False  # requested by the plan, so its absence is reported
    metrics: list[MetricsPlace] = []
    routers: list[MetricsPlace] = []  # by the URL of their journal
    tls: Trust = (True, None, None, None)
    proxy: str | None = None
    hidden: list[str] = []  # secrets that an endpoint may echo


def job_of(plan: "Plan", urls: Sequence[str], headers: Mapping[str, str], log: Path) -> ObserverJob | None:
    """The observer's job for a plan whose target answers at `urls`; None if there is nothing to watch."""
    from inferometer.plan.secrets import redactor_of

    observe = plan.observe
    if observe.nothing:
        return None
    gpus = observe.gpu if isinstance(observe.gpu, list) else _of_server(plan)
    return ObserverJob(
        log=str(log),
        interval_s=observe.interval,
        host=observe.host,
        gpu=_gpu_is_watched(plan, urls, gpus),
        gpus=gpus,
        gpu_wanted=observe.gpu != "auto",
        metrics=_places(plan, urls, headers),
        routers=_routers(plan, urls, headers),
        tls=plan.target.tls.trust,
        proxy=plan.target.proxy,
        hidden=sorted(filter(is_unicode, redactor_of(plan).secrets)),  # others occur in no text that it reads
    )


def _gpu_is_watched(plan: "Plan", urls: Sequence[str], gpus: list[int] | None) -> bool:
    """By default only if its GPUs can be the serving ones: not for the simulator, not for another machine."""
    if plan.observe.gpu != "auto":
        return plan.observe.gpu != "off"
    return gpus != [] and any(map(is_here, urls))


def _of_server(plan: "Plan") -> list[int] | None:
    """The GPUs visible to a server of ours: the power of others must not count for its tokens."""
    server = plan.server
    if plan.observe.gpu != "auto" or server is None or server.type == "external":
        return None
    shown = visible_gpus(server, {**os.environ, **server.env})
    return None if shown is None or not all(gpu.isdigit() for gpu in shown) else [int(gpu) for gpu in shown]


def is_here(url: str) -> bool:
    """Whether a URL leads to this machine."""
    host = (urlsplit(url).hostname or "").lower()
    if host in {"localhost", platform.node().lower()}:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _places(plan: "Plan", urls: Sequence[str], headers: Mapping[str, str]) -> list[MetricsPlace]:
    """The target's headers, including its key, are sent to the target's hosts only."""
    from inferometer.plan.secrets import redacted_url

    chosen = plan.observe.metrics
    ours = chosen == "auto"
    places = [f"{url}/metrics" for url in dict.fromkeys(urls)] if ours else [] if chosen == "off" else chosen
    hosts = {urlsplit(url).netloc for url in urls}
    return [
        MetricsPlace(url, redacted_url(url), ours, dict(headers) if urlsplit(url).netloc in hosts else {})
        for url in places
    ]


def _routers(plan: "Plan", urls: Sequence[str], headers: Mapping[str, str]) -> list[MetricsPlace]:
    """By default only if the plan starts a router with a journal: another server would answer 404 each time."""
    from inferometer.plan.secrets import redacted_url

    server, wanted = plan.server, plan.observe.router == "on"
    kept = server is not None and (server.type == "ray-serve" or server.has_own_router)
    if plan.observe.router == "off" or not (wanted or kept):
        return []
    places = [f"{url}{JOURNAL}" for url in dict.fromkeys(urls)]
    return [MetricsPlace(place, redacted_url(place), not wanted, dict(headers)) for place in places]


# -- observing -------------------------------------------------------------------------------------------------------

READY_S = 10.0  # if the observer takes longer, the load starts without it


ENDED_S = 10.0


_spares: list["_Observer"] = []  # at most one, and only inside `kept_warm`


_is_kept_warm = False


class _Observer(NamedTuple):
    """A process that waits for its job, and its error output."""

    process: "subprocess.Popen[bytes] | Forked"
    complaints: IO[bytes]


@contextmanager
def kept_warm() -> Iterator[None]:
    """For several runs: when the load of one is over, the observer of the next starts, while the run is summarized. It
    saves half a second per run."""
    global _is_kept_warm
    _is_kept_warm = True
    try:
        yield
    finally:
        _is_kept_warm = False
        while _spares:
            _give_up(_spares.pop())


@contextmanager
def observing(job: ObserverJob | None, notify: Callable[[str], None]) -> Iterator[None]:
    """Everything to be watched is watched inside the block; errors are reported, and the run continues."""
    if job is None:
        yield
        return
    try:
        process, complaints = _spares.pop() if _spares else _started()
    except OSError as error:
        notify(f"no telemetry is sampled: {error}")
        yield
        return
    with complaints:
        _begin(process, job)
        try:
            yield
        finally:
            _end(process)
            if process.returncode:
                complaints.seek(0)
                last = complaints.read().decode("utf-8", "replace").strip().splitlines()[-1:]
                notify(f"the observer ended early: {''.join(last)[:300] or f'exit status {process.returncode}'}")
            if _is_kept_warm:
                with suppress(OSError):
                    _spares.append(_spawned())


def _started() -> _Observer:
    """Before the load, where it costs next to nothing."""
    return _forked() if may_fork() else _spawned()


def _forked() -> _Observer:
    from inferometer.observe.watch import main  # it imports this module

    complaints = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the observer)
    return _Observer(Forked(main, complaints), complaints)


def _spawned() -> _Observer:
    complaints = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the observer)
    try:
        process = subprocess.Popen(
            python_command("inferometer.observe.watch"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # Ctrl-C is for the load, which drains first
        )
    except OSError:
        complaints.close()
        raise
    return _Observer(process, complaints)


def _begin(process: "subprocess.Popen[bytes] | Forked", job: ObserverJob) -> None:
    """Returns when the first readings are done."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError):
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        process.stdin.flush()
    select([process.stdout], [], [], READY_S)


def _give_up(spare: _Observer) -> None:
    """It was never given a job."""
    assert spare.process.stdin is not None and spare.process.stdout is not None
    spare.process.kill()
    spare.process.wait()
    for pipe in (spare.process.stdin, spare.process.stdout, spare.complaints):
        with suppress(OSError):
            pipe.close()


def _end(process: "subprocess.Popen[bytes] | Forked") -> None:
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(ENDED_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


# -- lower priority --------------------------------------------------------------------------------------------------

NICENESS = 5


def lower_priority() -> None:
    """The load has priority: when we wake up, no other process is preempted for us. But if all cores are busy we still
    get our share, otherwise there would be no samples then (SCHED_IDLE would get almost none)."""
    with suppress(OSError):
        os.nice(NICENESS)
        if hasattr(os, "SCHED_BATCH"):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


_GPU_DRIVER = Path("/dev/nvidiactl")  # a process that has used it must not fork


_TASKS, _OPEN_FILES = Path("/proc/self/task"), Path("/proc/self/fd")


def may_fork() -> bool:
    """Other threads may hold locks that would never be released in the copy; so may drivers. A notebook has threads."""
    try:
        return len(list(_TASKS.iterdir())) == 1 and not _GPU_DRIVER.exists() and hasattr(os, "pidfd_open")
    except OSError:  # not Linux
        return False


class Forked:
    """The copy, with the part of the interface of `subprocess.Popen` that is used."""

    def __init__(self, main: Callable[[], None], complaints: IO[bytes]) -> None:
        """It runs `main` with pipes for stdin and stdout, in its own session, and ends with it."""
        its_stdin, our_end = os.pipe()
        our_start, its_stdout = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(main, (its_stdin, its_stdout, complaints.fileno()))
        os.close(its_stdin)
        os.close(its_stdout)
        self.stdin: IO[bytes] | None = os.fdopen(our_end, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(our_start, "rb")
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            process = os.pidfd_open(self.pid)
            try:
                if not select([process], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("a copy of this process", timeout or 0.0)
            finally:
                os.close(process)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def _run(main: Callable[[], None], files: tuple[int, int, int]) -> NoReturn:
    """Nothing of the original process continues: neither its signals, nor its open files, nor its exit handlers."""
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for at, file in enumerate(files):
            os.dup2(file, at)
        for file in [int(place.name) for place in _OPEN_FILES.iterdir()]:
            with suppress(OSError):  # the descriptor used for listing them
                if file > 2:
                    os.close(file)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 (until the end)
        main()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
