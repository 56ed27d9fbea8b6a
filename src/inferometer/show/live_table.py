"""A table on the terminal that is drawn again after every case, with the progress of the present one below it. Between
cases only: nothing is laid out while a load runs."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from inferometer.load.progress import Progress
from inferometer.show.console import console
from inferometer.show.experiment import cases_table
from inferometer.show.progress import ProgressLine
from inferometer.store.experiments import CaseRow

ROOM = 4  # lines of the terminal that are left to others


class LiveTable:
    """Silent where there is no terminal."""

    def __init__(self, total: int, terminal: TextIO | None = None) -> None:
        self._terminal = sys.stderr if terminal is None else terminal
        self._live = self._terminal.isatty() and os.environ.get("TERM") != "dumb"
        self._line = ProgressLine(self._terminal)
        self._total = total
        self._lines = 0
        self.rows: list[CaseRow] = []

    def begin(self, name: str, done: int) -> None:
        """The next case."""
        self._line = ProgressLine(self._terminal)
        self._line.message(f"case {done + 1} of {self._total}: {name}")

    def __call__(self, progress: Progress) -> None:
        self._line(progress)

    def add(self, row: CaseRow) -> None:
        self.rows.append(row)
        self._line.clear()
        self._erase()
        self._draw(self.rows)

    def note(self, write: Callable[[], None]) -> None:
        """Something is written above the table."""
        self._line.clear()
        self._erase()
        write()
        self._draw(self.rows)

    def close(self) -> None:
        """Take it all away: the final table is printed where output goes."""
        self._line.clear()
        self._erase()

    def _draw(self, rows: Sequence[CaseRow]) -> None:
        if not self._live or not rows:
            return
        size = shutil.get_terminal_size()
        labels = list(dict.fromkeys(row.label for row in rows))[-max(size.lines - ROOM, 1) :]
        to = console(self._terminal)
        with to.capture() as captured:
            to.print(cases_table([row for row in rows if row.label in labels], to.width))
        self._lines = captured.get().count("\n")
        self._terminal.write(captured.get())
        self._terminal.flush()

    def _erase(self) -> None:
        if self._lines:
            self._terminal.write(f"\x1b[{self._lines}A\x1b[J")
            self._terminal.flush()
            self._lines = 0
