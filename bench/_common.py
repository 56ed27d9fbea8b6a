"""Shared by the benchmarks: child processes with their CPU time, tables, and common options."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferometer.observe.machine import cpu_times, shares

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished child process: its output, and the CPU time of it and of its children."""

    output: bytes
    cpu_s: float
    wall_s: float
    stolen: float | None  # steal time of all cores meanwhile: if it is large, times are unreliable


def counted(command: Sequence[str], fine: Collection[int] = (0,)) -> Finished:
    """Run a command to its end; its stderr is shown if its exit code is not in `fine`. Bytecode files are written, as
    in an installed copy: without them each start compiles all modules."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began, times = time.perf_counter(), cpu_times(Path("/"))
    with tempfile.TemporaryFile() as complaints:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, env=environment
        )
        assert child.stdout is not None
        with child.stdout:
            output = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in fine:
            complaints.seek(0)
            sys.exit(f"{complaints.read().decode()}error: {' '.join(command)} ended with {child.returncode}")
    wall_s, (_, stolen) = time.perf_counter() - began, shares(times, cpu_times(Path("/")))
    return Finished(output, used.ru_utime + used.ru_stime, wall_s, stolen)


def inferometer(*arguments: str) -> list[str]:
    """The command line of Inferometer in this Python."""
    return [sys.executable, "-m", "inferometer", *arguments]


def compiled_floor(folder: Path) -> Path | None:
    """The C reader, if there is a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    program = folder / "floor"
    subprocess.run([compiler, "-O2", "-o", program, HERE / "floor.c"], check=True)
    return program


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return made


def print_rows(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    """All rows have the same keys, which head the columns."""
    if as_json:
        print(json.dumps(list(rows), indent=2))
    elif rows:
        print(table(rows))


def table(rows: Sequence[dict[str, Any]]) -> str:
    cells = [list(rows[0]), *([text(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def text(value: Any) -> str:
    """Numbers to three digits or so; missing is `-`."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
