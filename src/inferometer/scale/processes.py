"""The place `local`: k shards as processes of this machine, one alone in this process. What a shard does is left to it.

Ctrl-C is forwarded: once drains, twice cancels at once. A worker that dies is reported, the others go on.
"""

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from inferometer import errors
from inferometer.load.progress import Progress
from inferometer.scale.frames import (
    Frame,
    ShardError,
    ShardFunction,
    Start,
    Unpacker,
    Watch,
    job_and_report_types,
)
from inferometer.scale.place import Job, LostShard, Report, ShardsEnd
from inferometer.wire.child import python_command
from inferometer.wire.reactor import Reactor, now

LEAD_NS = 50_000_000  # from the last shard's `ready` to the common start: all have heard of it by then
GRACE_NS = 10_000_000_000  # for a cancelled worker to close its log before it is killed


def run_shards(
    function: Callable[[Job, Watch, Start], Report],
    jobs: Sequence[Job],
    watch: Watch,
) -> ShardsEnd[Report]:
    """Run one shard per job to its end. `function` must be importable by its name; it handles SIGINT itself, calls
    `start` when its connections stand, and begins at the instant that this returns."""
    if len(jobs) == 1:
        return ShardsEnd([function(jobs[0], watch, lambda: now() + LEAD_NS)])
    return _Crew(function, jobs, watch).run()


class _Crew:
    """The workers and the loop that hears them."""

    def __init__(self, function: ShardFunction, jobs: Sequence[Any], watch: Watch) -> None:
        _, self._report_type = job_and_report_types(function)
        self._watch = watch
        self._reactor = Reactor()
        self._started = False
        self._interrupts = 0
        self._terminated = False
        self._place = f"{function.__module__}:{function.__qualname__}"
        self._jobs = jobs
        self._workers: list[_Worker] = []

    def run(self) -> ShardsEnd[Any]:
        undo = self._take_signals()
        try:
            for shard, job in enumerate(self._jobs):
                self._workers.append(_Worker(shard, self._place, job))
            for worker in self._workers:
                self._reactor.watch(worker.frames, self._reader(worker))
            self._reactor.run()
        finally:
            undo()
            for worker in self._workers:
                worker.end()
            self._reactor.close()
        return self._end()

    def _take_signals(self) -> Callable[[], None]:
        """Forward interrupts to the workers. Only the main thread of a process may."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        undos = [
            self._reactor.on_signal(number, partial(self._interrupt, number))
            for number in (signal.SIGINT, signal.SIGTERM)
        ]

        def undo() -> None:
            for one in undos:
                one()

        return undo

    def _interrupt(self, number: signal.Signals) -> None:
        self._interrupts += 1
        self._terminated = number == signal.SIGTERM
        for worker in self._workers:
            worker.signal(number if worker.ready else signal.SIGTERM)  # before it is, nothing was sent
        self._start()  # those that wait for it would not look up before
        if self._interrupts == 2:
            self._reactor.call_at(now() + GRACE_NS, self._kill)

    def _kill(self) -> None:
        for worker in self._workers:
            worker.signal(signal.SIGKILL)

    def _reader(self, worker: "_Worker") -> Callable[[int], None]:
        def read(_events: int) -> None:
            data = os.read(worker.frames, 1 << 16)
            for frame in worker.unpacker.feed(data):
                self._heed(worker, frame)
            if not data:
                self._reactor.unwatch(worker.frames)
                worker.ended = True
            self._look_round()

        return read

    def _heed(self, worker: "_Worker", frame: Frame) -> None:
        match frame.kind:
            case "ready":
                worker.ready = True
            case "progress":
                self._watch(msgspec.msgpack.decode(frame.payload, type=Progress))
            case "report":
                worker.report = frame.payload
            case "error":
                worker.error = msgspec.msgpack.decode(frame.payload, type=ShardError)

    def _look_round(self) -> None:
        """Start when all that live are ready, stop when all have ended."""
        if all(worker.ended for worker in self._workers):
            self._reactor.stop()
        elif all(worker.ready or worker.ended for worker in self._workers):
            self._start()

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        start_at = now() + LEAD_NS
        for worker in self._workers:
            worker.say(f"start {start_at}")

    def _end(self) -> ShardsEnd[Any]:
        """Reports and losses; when nothing but one and the same mistake came back, that mistake."""
        decode = msgspec.msgpack.Decoder(self._report_type).decode
        reports = [decode(worker.report) for worker in self._workers if worker.report is not None]
        lost = [LostShard(worker.shard, worker.why()) for worker in self._workers if worker.report is None]
        first = next((worker.error for worker in self._workers if worker.error is not None), None)
        if not reports and first is not None:
            raise _as_exception(first)
        if not reports and self._interrupts:
            raise errors.Terminated if self._terminated else KeyboardInterrupt
        return ShardsEnd(reports, lost)


class _Worker:
    """One child process."""

    def __init__(self, shard: int, place: str, job: Any) -> None:
        self.shard = shard
        self.ready = self.ended = False
        self.report: msgspec.Raw | None = None
        self.error: ShardError | None = None
        self.unpacker = Unpacker()
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        self._process = subprocess.Popen(
            python_command("inferometer.scale.worker", place),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,  # the terminal's Ctrl-C comes through us, once
        )
        assert self._process.stdout is not None
        self.frames: int = self._process.stdout.fileno()
        self._why = ""
        self.say(msgspec.json.encode(job).decode())

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def why(self) -> str:
        """Why there is no report."""
        return self.error.message if self.error is not None else self._why

    def end(self) -> None:
        """Reap it; if we are leaving early, it sees its stdin close and cancels, or is killed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(GRACE_NS / 1e9)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._why = self._how_it_ended()
        self._complaints.close()

    def _how_it_ended(self) -> str:
        code = self._process.returncode
        how = f"exit status {code}" if code >= 0 else signal.Signals(-code).name
        self._complaints.seek(0)
        said = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return f"its process ended with {how}" + (f": {said[-1][:300]}" if said else "")


def _as_exception(error: ShardError) -> BaseException:
    """The error as if it had happened here."""
    if error.kind == "KeyboardInterrupt":
        return KeyboardInterrupt()
    kind = getattr(errors, error.kind, errors.InferometerError)
    return (
        kind(error.message, error.hint) if kind is not errors.MissingExtra else errors.InferometerError(error.message)
    )
