"""In each process of an attacked command, by `PYTHONPATH`: how long its event loop computed at most without looking for
signals and time limits, appended to a file. Processor time of its thread, so that a busy machine changes little."""

import importlib.abc
import importlib.util
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

LOOP = "inferometer.wire.reactor"
WORTH_NOTING_NS = 10_000_000


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the loop's module once, and watches it."""

    def find_spec(self, name, path, target=None):
        if name != LOOP:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _watch(module.Reactor)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _watch(reactor):
    poll, longest, looked_at = reactor._poll, WORTH_NOTING_NS, None

    def watched_poll(self, timeout):
        nonlocal longest, looked_at
        computed = 0 if looked_at is None else time.thread_time_ns() - looked_at
        if computed > longest:
            longest = computed
            _note(computed)
        before = time.thread_time_ns()
        events = poll(self, timeout)
        looked_at = before  # what the compiled reader does inside of a poll is work too
        return events

    reactor._poll = watched_poll


def _note(computed_ns):
    file = os.environ.get("INFEROMETER_CHAOS_PIECES")
    with suppress(OSError):
        if file:
            with Path(file).open("a") as out:  # one write, of a line: several processes have the file
                out.write(f"{computed_ns / 1e9:.3f}\n")


sys.meta_path.insert(0, _Finder())
