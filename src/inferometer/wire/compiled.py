"""The optional part of the wire in C (`_reader.c`), if it was built; everything works without it, with more CPU
time."""

import functools
import os
from importlib import import_module
from typing import Any

VERSION = 10  # version of the interface between the two parts: a module built from older sources is not used


@functools.cache
def compiled() -> Any | None:
    """The module, or None if it was not built or `INFEROMETER_READER=python` disables it."""
    if os.environ.get("INFEROMETER_READER") == "python":
        return None
    try:
        reader = import_module("inferometer.wire._reader")
    except ImportError:
        return None
    return reader if getattr(reader, "VERSION", 0) == VERSION else None
