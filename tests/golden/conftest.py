"""Real outside data is found only through INFEROMETER_DATA: unset, tests that need it skip; set, it must be there."""

import os
from pathlib import Path

import pytest


class Data(type(Path())):
    """The data folder: a file that should be in it and is not fails the test by name."""

    def __truediv__(self, name):
        path = Path(self) / name
        if not path.exists():
            pytest.fail(f"INFEROMETER_DATA has no {name}")
        return path


@pytest.fixture(scope="session")
def data() -> Path:
    folder = os.environ.get("INFEROMETER_DATA")
    if not folder:
        pytest.skip("INFEROMETER_DATA is not set: it names the folder of real data (traces, conversations, results)")
    return Data(folder)
