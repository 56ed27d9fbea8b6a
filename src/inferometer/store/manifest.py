"""The manifest of a finished run: each of its files with size and checksum, written last. What was copied half way or
changed since is told by it; a run without one was killed, or is older than manifests."""

import hashlib
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from inferometer.errors import StoreError
from inferometer.record.files import replacing, told
from inferometer.record.schema import check_schema, schema_of
from inferometer.store.damage import file_bytes, is_there
from inferometer.store.marks import MARKS
from inferometer.store.shapes import checked

MANIFEST = "manifest.json"
LEFT_OUT = "left_out"

Files = dict[str, dict[str, Any]]  # name to {"bytes", "sha256"}


def manifest_of(folder: Path) -> Files:
    """Of all files that are there; marks may change and are no part of it."""
    with told(folder):
        names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        return {name: _facts(folder / name) for name in names if name not in (MANIFEST, MARKS)}


def facts_of(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def manifest_bytes(files: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"schema": schema_of("manifest"), "files": files}, option=orjson.OPT_INDENT_2)


def write_manifest(folder: Path) -> None:
    with replacing(folder / MANIFEST) as draft:
        draft.write_bytes(manifest_bytes(manifest_of(folder)))


def read_manifest(folder: Path) -> Files | None:
    file = folder / MANIFEST
    return files_in(file_bytes(file), file) if is_there(file) else None


def files_in(content: bytes, where: object) -> Files:
    """Without those that were left out on purpose."""
    return {name: facts for name, facts in _all_in(content, where).items() if not facts.get(LEFT_OUT)}


def _all_in(content: bytes, where: object) -> Files:
    try:
        listed = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise StoreError(f"{where}: not JSON: {error}") from error
    if not isinstance(listed, dict):
        raise StoreError(f"{where}: expected a JSON object, got {type(listed).__name__}")
    check_schema(where, "manifest", listed.get("schema"))
    files = checked(listed, "manifest", where)["files"]
    if strange := [name for name in files if "/" in name or "\0" in name or name in ("", ".", "..")]:
        raise StoreError(f"{where}: {strange[0]!r} is not the name of a file")
    return dict(files)


def measured(folder: Path) -> str | None:
    """What a run was when it was finished, in a line: the checksums of all its files, also of those left out since."""
    file = folder / MANIFEST
    if not is_there(file):
        return None
    files = _all_in(file_bytes(file), file)
    return " ".join(f"{name} {facts['sha256']}" for name, facts in sorted(files.items()))


def leave_out(folder: Path, is_heavy: Callable[[str], bool]) -> int:
    """Delete such files of a finished run, and say how many bytes they had. The manifest knows them still, as left out:
    the folder is whole without them. Killed half way, some are there that nobody misses."""
    file = folder / MANIFEST
    if not is_there(file):
        return 0
    files = _all_in(file_bytes(file), file)
    heavy = [name for name in files if is_heavy(name) and (folder / name).exists()]
    if not heavy:
        return 0
    with replacing(file) as draft:
        marked = {name: facts | ({LEFT_OUT: True} if name in heavy else {}) for name, facts in files.items()}
        draft.write_bytes(manifest_bytes(marked))
    with told(folder):
        for name in heavy:
            (folder / name).unlink()
    return sum(int(files[name]["bytes"]) for name in heavy)


def check_whole(folder: Path, files_elsewhere: Collection[str] = ()) -> None:
    """Refuse a folder that was copied half way: a file is missing, or is shorter than it was."""
    for name, facts in (read_manifest(folder) or {}).items():
        if name in files_elsewhere:
            continue
        size = _size(folder / name)
        if size is None or size < facts["bytes"]:
            there = "missing" if size is None else f"{size} bytes long"
            raise StoreError(
                f"{folder}: not whole: {name} is {there}, it had {facts['bytes']} bytes",
                "copy the folder once more from where it came from",
            )


def faults(folder: Path) -> Iterator[str]:
    """Everything that is not as it was written, file by file."""
    files = read_manifest(folder)
    if files is None:
        return
    for name, facts in files.items():
        file = folder / name
        size = _size(file)
        if size is None:
            yield f"{name} is missing"
        elif size != facts["bytes"]:
            yield f"{name} has {size} bytes, it had {facts['bytes']}"
        elif sha256(file) != facts["sha256"]:
            yield f"{name} was changed: its checksum is another one"


def _size(file: Path) -> int | None:
    """None where there is no such file, nor one that a link leads to."""
    with told(file):
        try:
            about = file.stat()
        except FileNotFoundError:
            return None
    if not stat.S_ISREG(about.st_mode):
        raise StoreError(f"{file}: not a plain file")
    return about.st_size


def sha256(file: Path) -> str:
    with told(file), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _facts(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "sha256": sha256(file)}
