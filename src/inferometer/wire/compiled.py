"""The optional part of the wire in C (`_reader.c`), where it was built; all works without it, at more CPU time."""

import functools
import os
from importlib import import_module
from typing import Any

VERSION = 9  # of what the two parts expect of each other: one that was built from older sources is not used


@functools.cache
def compiled() -> Any | None:
    """The module, or None where it is not there or `INFEROMETER_READER=python` asks to do without."""
    if os.environ.get("INFEROMETER_READER") == "python":
        return None
    try:
        reader = import_module("inferometer.wire._reader")
    except ImportError:
        return None
    return reader if getattr(reader, "VERSION", 0) == VERSION else None
