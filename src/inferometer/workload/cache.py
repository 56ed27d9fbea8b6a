"""The cache folder: downloaded, decompressed and indexed files, which can be made again at any time."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from inferometer.errors import DataError


def cache_folder() -> Path:
    """`$INFEROMETER_CACHE`, else `inferometer` in the user's cache folder."""
    if chosen := os.environ.get("INFEROMETER_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "inferometer"


def cached_path(kind: str, name: str, *facts: object) -> Path:
    """The cache path for these facts; other facts have another path, so that no stale file is read."""
    digest = hashlib.sha256("\0".join(map(str, facts)).encode()).hexdigest()[:20]
    return cache_folder() / kind / f"{digest}-{name[-60:]}"


def fingerprint(path: Path) -> tuple[str, int, int]:
    """A value that changes when a file changes: its path, size and modification time."""
    state = path.stat()
    return str(path.resolve()), state.st_size, state.st_mtime_ns


def kept_arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file in the cache; `None` if it is missing or damaged."""
    with suppress(OSError, ValueError, KeyError, EOFError, BadZipFile), np.load(path) as file:
        return {name: file[name] for name in file.files}
    return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A lock: one process creates `path`, the others wait and use its result."""
    with _translated_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_name(f".{path.name}.lock").open("wb")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file that is moved to `path` when it is complete."""
    with _translated_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = NamedTemporaryFile(dir=path.parent, prefix=".making-", delete=False)  # noqa: SIM115
    try:
        with file:
            yield file
        Path(file.name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(file.name).unlink()
        raise


@contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path.parent}: cannot store {path.name} there: {error.strerror}",
            "INFEROMETER_CACHE names another folder for the cache",
        ) from None
