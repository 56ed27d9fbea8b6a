"""A shard in a child process, from the side of its parent: a place on this machine, or an actor on a node."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress

from inferometer.wire.child import python_command

GRACE_S = 10.0  # for a cancelled worker to close its log before it is killed


class WorkerProcess:
    """One shard in a child process of this host: its job goes in, its frames come out, and how it ended is known."""

    def __init__(self, function: str, job: bytes, environ: Mapping[str, str] | None = None) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        self._process = subprocess.Popen(
            python_command("inferometer.scale.worker", function),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,  # the terminal's Ctrl-C comes through us, once
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
        """How it ended, once it has."""
        return self._why

    def end(self) -> None:
        """Reap it, once; if we are leaving early, it sees its stdin close and cancels, or is killed."""
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
