"""Whose fault an unexpected error is. What we wrote ourselves we can read and show: where a run that was read is not as
it was written, by the checksums of its manifest, or has lost that manifest, the run is damaged; else it is our mistake.

The shape of a run is checked where it is read (`store.shapes`); this is for what lies deeper in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inferometer.errors import InferometerError, StoreError
from inferometer.store.damage import Damaged, DamagedError, damaged_by
from inferometer.store.folder import FOLDERS_READ, load_run
from inferometer.store.manifest import faults, read_manifest

FINISHED = ("complete", "interrupted")


def damaged_runs(because: Exception) -> list[Damaged]:
    """Of the runs that this process has read, those that are not as they were written."""
    return [damaged for folder in FOLDERS_READ if (damaged := changed_since_written(folder, because))]


@contextmanager
def blaming(folder: Path) -> Iterator[None]:
    """An unexpected error in what is done with one run of many becomes a `DamagedError`, if the run is to blame."""
    try:
        yield
    except InferometerError:
        raise
    except Exception as error:
        if (damaged := changed_since_written(folder, error)) is None:
            raise
        raise damaged.error from error


def changed_since_written(folder: Path, because: Exception) -> Damaged | None:
    if not folder.is_dir():  # deleted since
        return None
    try:
        wrong = next(faults(folder), None)
        if wrong is None and read_manifest(folder) is None and load_run(folder).state in FINISHED:
            wrong = "its manifest.json is missing"
    except DamagedError as error:
        return error.damaged
    except StoreError as error:
        return damaged_by(error, folder)
    if wrong is None:
        return None
    return damaged_by(StoreError(f"{wrong} ({type(because).__name__}: {because})"), folder)
