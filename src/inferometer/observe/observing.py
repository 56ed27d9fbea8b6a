"""The observer's process, from the side of the run: started before the load, ended after it, never in its way."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from typing import IO, NamedTuple

import msgspec

from inferometer.observe.job import ObserverJob
from inferometer.wire.child import python_command

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
