"""How Python processes of ours are started: without the working folder among the places that modules come from.

`python -m` puts the working folder before the standard library, so that a `queue.py` of an untrusted checkout would be
run by every process that imports `queue`.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # for what starts more of its kind: `multiprocessing` begins with `python -c`


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs one of our modules; `-P` leaves the working folder out (Python 3.11)."""
    return [sys.executable, "-P", "-m", module, *arguments]


def import_from(folder: str) -> None:
    """Let modules of a folder be imported, for the user's own code: behind the standard library, whose names they must
    not take, and before what is installed."""
    library = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    library |= {place / "lib-dynload" for place in library}
    behind = [at + 1 for at, place in enumerate(sys.path) if Path(place).resolve() in library]
    sys.path.insert(max(behind, default=len(sys.path)), folder)


@contextmanager
def safe_path_for_children() -> Iterator[None]:
    """While an engine in this process starts processes of its own; commands of a plan are started without it."""
    added = {name: value for name, value in SAFE_PATH.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
