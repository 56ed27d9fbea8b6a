"""The optional part of the wire in C (`_reader.c`), where it was built; all works without it, at more CPU time."""

import functools
import os
from importlib import import_module
from typing import Any


@functools.cache
def compiled() -> Any | None:
    """The module, or None where it is not there or `INFEROMETER_READER=python` asks to do without."""
    if os.environ.get("INFEROMETER_READER") == "python":
        return None
    try:
        return import_module("inferometer.wire._reader")
    except ImportError:
        return None
