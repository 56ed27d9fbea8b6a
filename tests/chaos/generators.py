"""The generators of damages and mutations in tests/, which the suite uses too; imported on use."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def generator(module: str) -> Any:
    """A module of tests/, found the same way as by pytest."""
    folder = str(Path(__file__).resolve().parent.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return import_module(module)
