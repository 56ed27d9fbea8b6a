"""Many command lines in one process, for attacks in thousands: the start of Python would take most of the time.

As a script it is the child: command lines come as JSON on stdin, how each ended goes out as JSON. `Batch` is the side
that watches it: a command line that takes too long is killed with its process, and the next one gets a new one.
"""

import json
import os
import select
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .commands import Ended, Ground

COMMAND_S = 60.0  # milliseconds for most; this is for a machine that is busy
LINES = 200  # command lines of one child: memory that grows from one to the next is not theirs
MOST_OUTPUT = 1 << 22


class Batch:
    """The child, from the outside. Not for two threads at once."""

    def __init__(self, ground: "Ground") -> None:
        self._ground = ground
        self._child: subprocess.Popen[bytes] | None = None
        self._lines = 0

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, *arguments: str, cwd: Path | None = None) -> "Ended":
        from .commands import Ended

        child = self._begun()
        assert child.stdin is not None and child.stdout is not None
        line = json.dumps({"arguments": arguments, "cwd": str(cwd or self._ground.scratch)}).encode()
        began_at = time.monotonic()
        child.stdin.write(line + b"\n")
        child.stdin.flush()
        answer = self._answer(child)
        took_s = time.monotonic() - began_at
        name = " ".join(arguments[:2])[:60]
        peak_mb = _peak_mb(child.pid)
        if answer is None:  # it hung, or the whole process went down
            hung = child.poll() is None
            self._end()
            return Ended(name, child.returncode, took_s, COMMAND_S, peak_mb, "", "the process ended", hung)
        self._lines += 1
        return Ended(name, answer["code"], took_s, COMMAND_S, peak_mb, answer["out"], answer["err"])

    def _begun(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._lines >= LINES:
            self._end()
            self._lines = 0
            self._child = subprocess.Popen(
                [sys.executable, "-P", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **self._ground.variables()},
                bufsize=0,
            )
        return self._child

    def _answer(self, child: "subprocess.Popen[bytes]") -> dict[str, Any] | None:
        from .commands import StoppedError

        assert child.stdout is not None
        deadline = time.monotonic() + COMMAND_S
        data = b""
        while not data.endswith(b"\n"):
            if self._ground.stop.is_set():
                raise StoppedError
            if time.monotonic() > deadline:
                return None
            if select.select([child.stdout], [], [], 0.5)[0]:
                if not (piece := os.read(child.stdout.fileno(), 1 << 16)):
                    child.wait()
                    return None
                data += piece
        answer: dict[str, Any] = json.loads(data)
        return answer

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout):
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()
            self._child = None


def _peak_mb(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


# -- the child -------------------------------------------------------------------------------------------------


def main() -> None:
    import tempfile

    orders, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    out, err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 - for as long as we live
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    for line in os.fdopen(orders, "rb"):
        order = json.loads(line)
        for file in (out, err):
            file.seek(0)
            file.truncate()
        os.chdir(order["cwd"])
        code = _code(order["arguments"])
        texts = [os.pread(file.fileno(), MOST_OUTPUT, 0).decode("utf-8", "replace") for file in (out, err)]
        answer = json.dumps({"code": code, "out": texts[0], "err": texts[1]}).encode() + b"\n"
        while answer:
            answer = answer[os.write(answers, answer) :]


def _code(arguments: list[str]) -> int:
    from inferometer.cli import execute

    try:
        return execute(arguments)
    except BaseException:  # nothing may come through `execute`
        traceback.print_exc()
        return 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    main()
