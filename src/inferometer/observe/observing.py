"""The observer's process, from the side of the run: started before the load, ended after it, never in its way."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from typing import IO

import msgspec

from inferometer.observe.job import ObserverJob

READY_S = 10.0  # a load that waits longer for its observer starts without it
ENDED_S = 10.0


@contextmanager
def observing(job: ObserverJob | None, say: Callable[[str], None]) -> Iterator[None]:
    """Whatever is to be watched is watched inside; what goes wrong with it is said, and the run goes on."""
    if job is None:
        yield
        return
    with tempfile.TemporaryFile() as complaints:
        try:
            process = _started(job, complaints)
        except OSError as error:
            say(f"nothing is observed beside the load: {error}")
            yield
            return
        try:
            yield
        finally:
            _end(process)
            if process.returncode:
                complaints.seek(0)
                last = complaints.read().decode("utf-8", "replace").strip().splitlines()[-1:]
                say(f"the observer ended early: {''.join(last)[:300] or f'exit status {process.returncode}'}")


def _started(job: ObserverJob, complaints: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Returns when the first readings are done."""
    process = subprocess.Popen(
        [sys.executable, "-m", "inferometer.observe.watch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=complaints,
        start_new_session=True,  # Ctrl-C is for the load, which drains first
    )
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError):
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        process.stdin.flush()
    select([process.stdout], [], [], READY_S)
    return process


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
