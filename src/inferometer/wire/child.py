"""Starts our Python processes without the working folder in the module search path.

`python -m` puts the working folder before the standard library, so that a `queue.py` of an untrusted checkout would be
executed by every process that imports `queue`.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # for processes that start further ones: `multiprocessing` uses `python -c`


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs one of our modules; `-P` leaves the working folder out (Python 3.11)."""
    return [sys.executable, "-P", "-m", module, *arguments]


def import_from(folder: str) -> None:
    """Let modules of a folder be imported, for the user's own code: after the standard library, whose names they must
    not shadow, and before installed packages."""
    library = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    library |= {place / "lib-dynload" for place in library}
    behind = [at + 1 for at, place in enumerate(sys.path) if Path(place).resolve() in library]
    sys.path.insert(max(behind, default=len(sys.path)), folder)


@contextmanager
def safe_path_for_children() -> Iterator[None]:
    """For an engine in this process that starts processes of its own; commands of a plan are started without it."""
    added = {name: value for name, value in SAFE_PATH.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
