"""Which files a store has imported already, by their checksum; and files of several runs, kept once."""

import hashlib
import os
from contextlib import suppress

import orjson

from inferometer.errors import StoreError
from inferometer.record.files import told
from inferometer.store.store import Store

FOLDER = "imports"


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def runs_of(store: Store, digest: str) -> list[str]:
    """The runs that were made of a file and still exist."""
    entry = store.home / FOLDER / digest / "runs.json"
    try:
        ids = orjson.loads(entry.read_bytes())["runs"] if entry.exists() else []
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return []  # a broken note is no reason not to import; the worst is a double
    return [id_ for id_ in map(str, ids) if _exists(store, id_)]


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
