"""The generators of damages and mutations in tests/, which the suite uses too; imported on use."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from .trial import Trial


def generator(module: str) -> Any:
    """A module of tests/, found the same way as by pytest."""
    folder = str(Path(__file__).resolve().parent.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return import_module(module)


def missing_generator(path: str, error: Exception) -> Trial:
    """The one trial of a kind whose generator is not there: it fails and says so."""
    return Trial(path, [f"{type(error).__name__}: {error}"])
