"""Which files a store has imported already, by their checksum; and files of several runs, kept once."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import orjson

from inferometer.errors import StoreError
from inferometer.record.files import told
from inferometer.store.store import Store

FOLDER = "imports"


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def runs_of(store: Store, digest: str) -> list[str]:
    """The runs that were made of a file and still exist: by the note on this disk, and by a shared index."""
    entry = store.home / FOLDER / digest / "runs.json"
    try:
        ids = orjson.loads(entry.read_bytes())["runs"] if entry.is_file() else []
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        ids = []  # a broken note is no reason not to import: the index knows it too
    noted = [id_ for id_ in map(str, ids) if _exists(store, id_)]
    return noted or store.imported_from(digest)


@contextmanager
def one_at_a_time(store: Store, digest: str) -> Iterator[None]:
    """Whoever imports a file first keeps it, and others that import it at the same time find it kept: what is looked up
    and what is kept inside belong together. On this disk by a lock on a file, in a shared index by a lock in it; both
    end with the process, however it ends."""
    folder = store.home / FOLDER
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f".{digest[:2]}.lock").open("ab")  # 256 of them: files with the same beginning take turns
    with lock, store.database.held(int(digest[:15], 16)):
        with told(folder):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _exists(store: Store, id_: str) -> bool:
    """In its place, or wherever the index knows it."""
    if (store.home / "runs" / id_).is_dir():
        return True
    with suppress(StoreError):
        return store.entry(id_).id == id_
    return False


def remember(store: Store, digest: str, runs: list[str], original: tuple[str, bytes] | None) -> None:
    """Note what a file became; `original` is kept where no single run holds it."""
    folder = store.home / FOLDER / digest
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files = {"runs.json": orjson.dumps({"runs": [*runs_of(store, digest), *runs]})}
    for name, content in (files | dict([original] if original else [])).items():
        with told(folder / name):  # not waited for until it is on disk: the worst is that a file is imported again
            draft = folder / f".{name}.{os.getpid()}.tmp"
            draft.write_bytes(content)
            draft.replace(folder / name)
