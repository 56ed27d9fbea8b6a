"""Runs a shard: the load, with a sampler of its own process; and one shard in a separate process,
`python -m inferometer.scale.worker module:function`, with the job on stdin."""

import os
import signal
import sys
import threading
import time
from typing import Any

import msgspec

from inferometer.errors import InferometerError
from inferometer.load.progress import Progress
from inferometer.load.shard import CANCEL_SIGNAL, ShardJob, ShardReport, run_shard
from inferometer.observe.host import ClientSampler
from inferometer.scale.frames import ShardError, ShardFunction, Start, Watch, job_and_report_types, packed
from inferometer.vocabulary import attribute_at

SAME_SIGNAL_S = 0.5  # two signals closer than this count as one
ORPHAN_S = 10.0  # time for a cancelled shard without a parent to close its log


def observed_shard(job: ShardJob, watch: Watch, start: Start) -> ShardReport:
    """Run one shard to its end, with samples of its own process in its log."""
    sampler = ClientSampler(job.shard)

    def begin() -> int:
        start_at = start()
        sampler.begin()
        return start_at

    return run_shard(job, watch, begin, sampler.sample)


class Parent:
    """The parent process: receives frames, and sends the start time."""

    def __init__(self) -> None:
        self._orders, self._frames = os.dup(0), os.dup(1)
        os.dup2(2, 1)  # prints must not mix with the frames
        self._pending = b""
        self._start_at: int | None = None
        self._started = threading.Event()

    def job(self) -> bytes:
        return self._line() or b""

    def listen(self) -> None:
        """Read the parent's messages on a thread, which blocks in `read` and costs the shard nothing."""
        threading.Thread(target=self._hear, daemon=True).start()

    def start(self) -> int:
        """Report that this shard is ready; returns the time at which all shards begin."""
        self.send(packed("ready"))
        self._started.wait()
        assert self._start_at is not None
        return self._start_at

    def progress(self, progress: Progress) -> None:
        self.send(packed("progress", progress))

    def send(self, frame: bytes) -> None:
        try:
            while frame:
                frame = frame[os.write(self._frames, frame) :]
        except BrokenPipeError:
            return  # the parent is gone; `_hear` notices and ends this process cleanly

    def _hear(self) -> None:
        while (line := self._line()) is not None:
            command, _, value = line.decode().partition(" ")
            if command == "start":
                self._start_at = int(value)
                self._started.set()
        self._abandoned()

    def _abandoned(self) -> None:
        """The parent is gone: cancel, as after two interrupts, and leave a complete log."""
        self._start_at = self._start_at or 0
        self._started.set()
        for patience_s in (SAME_SIGNAL_S, ORPHAN_S):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(patience_s)
        os._exit(1)

    def _line(self) -> bytes | None:
        """The next line, None at the end. Does not use sys.stdin, whose lock would outlive the daemon thread."""
        while b"\n" not in self._pending:
            data = os.read(self._orders, 1 << 16)
            if not data:
                return None
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line


def hear_signals() -> None:
    """Unblock signals: the parent may block or ignore them, as Ray's threads do, and children inherit that."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(CANCEL_SIGNAL, signal.SIG_IGN)  # except while there is something to cancel


def main(place: str) -> int:
    hear_signals()
    parent = Parent()
    function: ShardFunction = attribute_at(place)
    job_type, _ = job_and_report_types(function)
    job: Any = msgspec.json.decode(parent.job(), type=job_type)
    parent.listen()
    try:
        report = function(job, parent.progress, parent.start)
    except InferometerError as error:
        parent.send(packed("error", ShardError(type(error).__name__, error.message, error.hint)))
        return error.exit_code
    except KeyboardInterrupt:
        parent.send(packed("error", ShardError("KeyboardInterrupt", "interrupted")))
        return 130
    parent.send(packed("report", report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
