"""Files that are whole or not there, and what the operating system refuses as a `StoreError`."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inferometer.errors import StoreError

_HINTS = {
    errno.ENOSPC: "free some disk space, or use another store: --store FOLDER",
    errno.EDQUOT: "your disk quota is used up: free some disk space, or use another store: --store FOLDER",
    errno.EFBIG: "the file size limit was reached (ulimit -f): raise it",
    errno.EROFS: "the file system is read-only: use another store: --store FOLDER",
    errno.EACCES: "no permission to write: use another store: --store FOLDER",
    errno.EPERM: "no permission to write: use another store: --store FOLDER",
    errno.ENOTDIR: "a part of the path is a file: choose another folder with --store FOLDER",
}


def store_error(where: object, error: OSError) -> StoreError:
    """What the system refused to do with a file, and what can be done about it."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StoreError(f"{where}: {reason.lower()}", _HINTS.get(error.errno or 0))


@contextmanager
def translated_errors(where: object) -> Iterator[None]:
    """Any OSError inside becomes a `StoreError` about `where`."""
    try:
        yield
    except OSError as error:
        raise store_error(where, error) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write the file under the name given; it takes its place once it is whole and on disk."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with translated_errors(path):
            yield draft
            sync(draft)
            draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink()


def write_text(path: Path, text: str) -> None:
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


def sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
