"""Writes files so that each is either complete or missing, and turns errors of the operating system into
`StoreError`."""

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
    """The error of the operating system for a file, and what can be done about it."""
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
    """Write the file under the given name; it replaces the target once it is complete and on disk."""
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


VERSIONS = {
    "run": 2,  # the document of a run, and run.json
    "log": 1,
    "records": 2,
    "samples": 1,
    "plan": 1,
    "environment": 1,
    "summary": 2,
    "verdict": 2,
    "shards": 1,
    "index": 2,  # the list of runs
    "marks": 1,
    "manifest": 1,
    "comparison": 2,
    "check": 2,
    "experiment": 2,
    "event": 1,  # as sent to a webhook
    "notifications": 2,  # which channel received which message
    "ci": 2,
    "rosetta": 1,  # a run by another tool's definitions
    "search": 2,
    "import": 1,
    "formats": 1,
    "harnesses": 1,  # other load generators, or the runs they made of one plan
    "doctor": 2,
    "report": 1,
    "site": 1,
    "store": 1,
    "server-model": 1,  # a fitted model of a server
    "prediction": 1,
}


def schema_of(kind: str) -> str:
    return f"inferometer/{kind}/{VERSIONS[kind]}"


def check_schema(where: object, kind: str, schema: object) -> None:
    """Refuses documents that are not ours, and those of a newer Inferometer."""
    family, _, version = str(schema).rpartition("/")
    if family != f"inferometer/{kind}" or not version.isdigit():
        raise StoreError(f"{where}: not {kind} of an Inferometer run, its schema is {schema!r}")
    if int(version) > VERSIONS[kind]:
        raise StoreError(
            f"{where}: written by a newer Inferometer, schema {schema}; this one knows {schema_of(kind)}",
            "update Inferometer: pip install --upgrade inferometer",
        )
