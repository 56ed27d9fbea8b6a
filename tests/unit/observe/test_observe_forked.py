"""The forked observer: it communicates through pipes, has none of our files, and its end is noticed."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from inferometer.observe.observer import Forked

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="copies are made on Linux only")


def ended(main: Callable[[], None], said: bytes = b"") -> tuple[int, bytes, bytes]:
    """Its exit code, what it printed, and its complaints."""
    with tempfile.TemporaryFile() as complaints:
        copy = Forked(main, complaints)
        assert copy.stdin is not None and copy.stdout is not None
        with copy.stdin:
            copy.stdin.write(said)
        with copy.stdout:
            printed = copy.stdout.read()
        code = copy.wait(20)
        complaints.seek(0)
        return code, printed, complaints.read()


def test_it_hears_and_answers() -> None:
    def main() -> None:
        os.write(1, sys.stdin.readline().upper().encode())

    assert ended(main, b"hello\n") == (0, b"HELLO\n", b"")


def test_what_goes_wrong_is_told() -> None:
    def main() -> None:
        raise ValueError("not today")

    code, _, complaints = ended(main)
    assert code == 1 and complaints.endswith(b"ValueError: not today\n")


def test_it_has_none_of_our_files_and_a_session_of_its_own(tmp_path: Path) -> None:
    def main() -> None:
        still_open = [place.name for place in list(Path("/proc/self/fd").iterdir()) if place.exists()]
        os.write(1, f"{sorted(still_open)} {os.getsid(0) == os.getpid()}".encode())

    with (tmp_path / "ours").open("w"):
        assert ended(main)[1] == b"['0', '1', '2'] True"


def test_one_that_does_not_end_is_killed() -> None:
    with tempfile.TemporaryFile() as complaints:
        copy = Forked(signal.pause, complaints)
        with pytest.raises(subprocess.TimeoutExpired):
            copy.wait(0.01)
        copy.kill()
        assert copy.wait(20) == -signal.SIGKILL
        for pipe in (copy.stdin, copy.stdout):
            assert pipe is not None
            pipe.close()
