"""The place `local`: k shards as processes of this machine, one alone in this process. The shard function is an
argument."""

import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from inferometer.plan.model import Plan
from inferometer.scale.crew import WAIT_S, Crew, Worker
from inferometer.scale.frames import ShardFunction, Start, Watch
from inferometer.scale.place import Job, Report, ShardsEnd
from inferometer.wire.child import python_command
from inferometer.wire.reactor import now

GRACE_S = 10.0  # for a cancelled worker to close its log before it is killed


class WorkerProcess:
    """One shard in a child process: sends its job, receives its frames, and reports how it ended."""

    def __init__(self, function: str, job: bytes, environ: Mapping[str, str] | None = None) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        self._process = subprocess.Popen(
            python_command("inferometer.scale.worker", function),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,  # the terminal's Ctrl-C is forwarded by us, once
            env=None if environ is None else {**os.environ, **environ},
        )
        assert self._process.stdout is not None
        self.frames: int = self._process.stdout.fileno()
        self.pid = self._process.pid
        self._why = ""
        self.send_line(job.decode())

    def send_line(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def why(self) -> str:
        """How it ended, when it has."""
        return self._why

    def end(self) -> None:
        """Wait for it, once; if we end early, its stdin closes and it cancels, or it is killed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if self._why:
            return
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(GRACE_S)
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
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return f"its process ended with {how}" + (f": {lines[-1][:300]}" if lines else "")


LEAD_NS = 50_000_000  # from the last shard's `ready` to the common start, so that all know it in time
PIN_ENV = "INFEROMETER_PIN_WORKERS"
_FRAME_BYTES = 1 << 16


def cores_for(workers: int, pin: str | None) -> list[int]:
    """A core for each worker if pinning is on; none if there are too few, or the system does not support it. Off by
    default: bench/workers.py shows no gain while the machine has spare cores."""
    if pin != "1" or not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    return cores[-workers:] if workers <= len(cores) else []


def run_shards(
    function: Callable[[Job, Watch, Start], Report],
    jobs: Sequence[Job],
    watch: Watch,
    plan: Plan | None = None,
) -> ShardsEnd[Report]:
    """Run one shard per job to its end. `function` must be importable by its name; it handles SIGINT itself, calls
    `start` when its connections are open, and begins at the time that this returns."""
    if len(jobs) == 1:
        return ShardsEnd([function(jobs[0], watch, lambda: now() + LEAD_NS)])
    return _Crew(function, [msgspec.json.encode(job) for job in jobs], watch).run()


class _Worker(Worker):
    """One shard in a child process."""

    def __init__(self, shard: int, function: str, job: bytes) -> None:
        super().__init__(shard)
        self.process = WorkerProcess(function, job)

    def start(self, at: int) -> None:
        self.process.send_line(f"start {at}")

    def signal(self, number: signal.Signals) -> None:
        self.process.signal(number)


class _Crew(Crew[_Worker]):
    lead_ns, grace_s = LEAD_NS, GRACE_S

    def __init__(self, function: ShardFunction, jobs: list[bytes], watch: Watch) -> None:
        super().__init__(function, watch)
        self._jobs = jobs
        self._frames = selectors.DefaultSelector()

    def _begin(self) -> None:
        cores = cores_for(len(self._jobs), os.environ.get(PIN_ENV))
        for shard, job in enumerate(self._jobs):
            worker = _Worker(shard, self._function, job)
            self._workers.append(worker)
            self._frames.register(worker.process.frames, selectors.EVENT_READ, worker)
            if cores:
                os.sched_setaffinity(worker.process.pid, {cores[shard]})

    def _poll(self) -> None:
        for key, _ in self._frames.select(WAIT_S):
            worker: _Worker = key.data
            data = os.read(worker.process.frames, _FRAME_BYTES)
            self._heed(worker, data)
            if not data:
                self._frames.unregister(worker.process.frames)
                worker.ended = True

    def _give_up(self, worker: _Worker, why: str) -> None:
        worker.why = why
        worker.process.signal(signal.SIGKILL)

    def _stop(self) -> None:
        for worker in self._workers:
            worker.process.end()
            worker.lose(worker.process.why())
        self._frames.close()
