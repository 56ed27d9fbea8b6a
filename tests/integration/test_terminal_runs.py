"""Runs in a terminal: the command has a pty, so that its progress line is drawn."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import get_args

from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.load.progress import PHASES, Phase, Progress
from inferometer.show.progress import merged


def on_terminal(store: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and all that was drawn."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"INFEROMETER_STORE": str(store), "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "inferometer", *arguments]
    process = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    drawn = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return process.wait(60), drawn.decode(errors="replace")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the command has closed its end
        return b""


def test_a_run_that_primes_the_prefix_cache_is_drawn_to_its_end(tmp_path: Path) -> None:
    keep_curve(curve_of([]), tmp_path)
    code, drawn = on_terminal(
        tmp_path,
        *("run", "--server", "simulator", "--set", "server.args.speed=20", "--rate", "50", "--requests", "40"),
        *("--input-tokens", "256", "--output-tokens", "8"),
        *("--set", "workload.prefix.hit_rate=0.5", "--set", "workload.prefix.groups=4"),
    )
    assert code in (0, 4), drawn  # 4: a loaded machine may spoil the measurement
    assert "bug in Inferometer" not in drawn  # as of a phase that the display does not know, however short it is
    assert "load" in drawn


def test_every_phase_of_a_shard_can_be_drawn() -> None:
    assert get_args(Phase) == PHASES
    for number, phase in enumerate(PHASES):
        later = PHASES[number:]
        assert merged([Progress(shard=at, at=1, phase=each) for at, each in enumerate(later)]).phase == phase
