"""The observer's process, from the side of the run: what it watches, made from the plan; started before the load, ended
after it, never in its way."""

import ipaddress
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from inferometer.observe.gpu import visible_gpus
from inferometer.wire.child import python_command
from inferometer.wire.origin import Trust

# -- job -------------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:  # the observer's process has no use for the plan, and pydantic takes 0.2 s
    from inferometer.plan.model import Plan


class MetricsPlace(msgspec.Struct, frozen=True):
    """A Prometheus endpoint; `ours` is one that nobody named, whose absence is no news."""

    url: str
    source: str = ""  # the URL as samples show it, without secrets
    ours: bool = False
    headers: dict[str, str] = {}


class ObserverJob(msgspec.Struct, frozen=True):
    """All that the observer's process needs to know; it comes on its stdin, for headers may hold keys."""

    log: str
    interval_s: float = 1.0
    host: bool = True
    gpu: bool = False
    gpus: list[int] | None = None  # None: all
    gpu_wanted: bool = False  # asked for, so that its absence is worth a word
    metrics: list[MetricsPlace] = []
    tls: Trust = (True, None, None, None)
    proxy: str | None = None
    hidden: list[str] = []  # secrets that an endpoint may echo


def job_of(plan: "Plan", urls: Sequence[str], headers: Mapping[str, str], log: Path) -> ObserverJob | None:
    """The observer's job for a plan whose target answers at `urls`; None where nothing is to be watched."""
    from inferometer.plan.known_secrets import redactor_of

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
        tls=plan.target.tls.trust,
        proxy=plan.target.proxy,
        hidden=sorted(redactor_of(plan).secrets),
    )


def _gpu_is_watched(plan: "Plan", urls: Sequence[str], gpus: list[int] | None) -> bool:
    """By itself only where its GPUs can be the ones that serve: not for the simulator, not for another machine."""
    if plan.observe.gpu != "auto":
        return plan.observe.gpu != "off"
    return gpus != [] and any(map(is_here, urls))


def _of_server(plan: "Plan") -> list[int] | None:
    """Those that a server of ours is shown: the power of the others is no part of what its tokens took."""
    server = plan.server
    if plan.observe.gpu != "auto" or server is None or server.type == "external":
        return None
    shown = visible_gpus(server, {**os.environ, **server.env})
    return None if shown is None or not all(each.isdigit() for each in shown) else [int(each) for each in shown]


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
    """The target's headers, with its key, go to the target's hosts only."""
    from inferometer.plan.secrets import redacted_url

    chosen = plan.observe.metrics
    ours = chosen == "auto"
    places = [f"{url}/metrics" for url in dict.fromkeys(urls)] if ours else [] if chosen == "off" else chosen
    hosts = {urlsplit(url).netloc for url in urls}
    return [
        MetricsPlace(url, redacted_url(url), ours, dict(headers) if urlsplit(url).netloc in hosts else {})
        for url in places
    ]


# -- observing -------------------------------------------------------------------------------------------------------

READY_S = 10.0  # a load that waits longer for its observer starts without it
ENDED_S = 10.0


_spares: list["_Observer"] = []  # at most one, and only inside `kept_warm`
_is_kept_warm = False


class _Observer(NamedTuple):
    """A process that awaits its job, and where it complains."""

    process: "subprocess.Popen[bytes]"
    complaints: IO[bytes]


@contextmanager
def kept_warm() -> Iterator[None]:
    """Of many runs: once the load of one is over, the observer of the next starts, while the run is summed up. Half a
    second that no run waits for."""
    global _is_kept_warm
    _is_kept_warm = True
    try:
        yield
    finally:
        _is_kept_warm = False
        while _spares:
            _give_up(_spares.pop())


@contextmanager
def observing(job: ObserverJob | None, say: Callable[[str], None]) -> Iterator[None]:
    """Whatever is to be watched is watched inside; what goes wrong with it is said, and the run goes on."""
    if job is None:
        yield
        return
    try:
        process, complaints = _spares.pop() if _spares else _spawned()
    except OSError as error:
        say(f"nothing is observed beside the load: {error}")
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
                say(f"the observer ended early: {''.join(last)[:300] or f'exit status {process.returncode}'}")
            if _is_kept_warm:
                with suppress(OSError):
                    _spares.append(_spawned())


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


def _begin(process: "subprocess.Popen[bytes]", job: ObserverJob) -> None:
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


def _end(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(ENDED_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


# -- beside ----------------------------------------------------------------------------------------------------------

NICENESS = 5


def stand_back() -> None:
    """The load goes first: when we wake up, nobody is put aside for us. But on cores that are all busy we still get our
    share, or nothing would be seen there at all (SCHED_IDLE would get almost none)."""
    with suppress(OSError):
        os.nice(NICENESS)
        if hasattr(os, "SCHED_BATCH"):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
