"""Additional files of a run folder: `marks.json`, the tags, baselines and experiment that users assign, which may
change; and the manifest, with size and checksum of every other file, written last. A run without a manifest was
killed."""

import hashlib
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import msgspec
import orjson
from msgspec import structs

from inferometer.documents.files import Content, pieces_of
from inferometer.errors import PlanError, StoreError
from inferometer.record.files import check_schema, replacing, schema_of, translated_errors
from inferometer.store.shapes import FileFacts, ManifestFile, MarksFile, decoded, file_bytes, is_there

MARKS = "marks.json"


_LABEL = re.compile(r"[A-Za-z0-9][\w.:/+@-]{0,99}")


@dataclass(frozen=True)
class Marks:
    tags: frozenset[str] = frozenset()
    baselines: dict[str, str] = field(default_factory=dict)  # name to the instant it was set: the last one applies
    experiment: str | None = None
    case: str | None = None

    def tagged(self, *more: str) -> Self:
        return replace(self, tags=self.tags | set(more))

    def untagged(self, *less: str) -> Self:
        return replace(self, tags=self.tags - set(less))

    def as_baseline(self, name: str, set_at: str) -> Self:
        return replace(self, baselines={**self.baselines, name: set_at})

    def not_baseline(self, name: str) -> Self:
        return replace(self, baselines={other: at for other, at in self.baselines.items() if other != name})

    def as_case(self, experiment: str, case: str | None) -> Self:
        return replace(self, experiment=experiment, case=case)


def checked_label(text: str, what: str) -> str:
    """A tag or a baseline's name that can be used in commands and lists."""
    if _LABEL.fullmatch(text):
        return text
    hint = "use letters, digits and . _ - : / + @, at most 100 characters, a letter or digit first"
    raise PlanError(f"{what} {text!r} is not a valid name", hint)


def read_marks(folder: Path) -> Marks:
    file = folder / MARKS
    if not is_there(file):
        return Marks()
    try:
        return marks_of(orjson.loads(file_bytes(file)), file)
    except orjson.JSONDecodeError as error:
        raise StoreError(f"{file}: not JSON: {error}") from error


def marks_of(content: Any, where: object) -> Marks:
    if not isinstance(content, dict):
        raise StoreError(f"{where}: expected a JSON object, got {type(content).__name__}")
    check_schema(where, "marks", content.get("schema"))
    marks = decoded(content, MarksFile, where)
    return Marks(
        tags=frozenset(marks.tags or ()),
        baselines=dict(marks.baselines or {}),
        experiment=marks.experiment,
        case=marks.case,
    )


def marks_bytes(marks: Marks) -> bytes:
    fields = {"tags": sorted(marks.tags), "baselines": marks.baselines}
    case = {} if marks.experiment is None else {"experiment": marks.experiment, "case": marks.case}
    return orjson.dumps({"schema": schema_of("marks"), **fields, **case}, option=orjson.OPT_INDENT_2)


def write_marks(folder: Path, marks: Marks) -> None:
    with replacing(folder / MARKS) as draft:
        draft.write_bytes(marks_bytes(marks))


MANIFEST = "manifest.json"


Files = dict[str, FileFacts]


def manifest_of(folder: Path) -> Files:
    """Of all existing files; marks may change and are not included."""
    with translated_errors(folder):
        names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        return {name: _facts(folder / name) for name in names if name not in (MANIFEST, MARKS)}


def facts_of(content: Content) -> FileFacts:
    digest = hashlib.sha256()
    for piece in pieces_of(content):
        digest.update(piece)
    return FileFacts(len(content), digest.hexdigest())


def manifest_bytes(files: Mapping[str, FileFacts]) -> bytes:
    content = {"schema": schema_of("manifest"), "files": msgspec.to_builtins(files)}
    return orjson.dumps(content, option=orjson.OPT_INDENT_2)


def write_manifest(folder: Path) -> None:
    with replacing(folder / MANIFEST) as draft:
        draft.write_bytes(manifest_bytes(manifest_of(folder)))


def read_manifest(folder: Path) -> Files | None:
    file = folder / MANIFEST
    return files_in(file_bytes(file), file) if is_there(file) else None


def files_in(content: bytes, where: object) -> Files:
    """Without files that were deleted on purpose."""
    return {name: facts for name, facts in _all_in(content, where).items() if not facts.left_out}


def _all_in(content: bytes, where: object) -> Files:
    try:
        listed = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise StoreError(f"{where}: not JSON: {error}") from error
    if not isinstance(listed, dict):
        raise StoreError(f"{where}: expected a JSON object, got {type(listed).__name__}")
    check_schema(where, "manifest", listed.get("schema"))
    files = decoded(listed, ManifestFile, where).files
    if strange := [name for name in files if "/" in name or "\0" in name or name in ("", ".", "..")]:
        raise StoreError(f"{where}: {strange[0]!r} is not the name of a file")
    return files


def measured(folder: Path) -> str | None:
    """Identifies a finished run: the checksums of all its files, including those deleted on purpose since."""
    file = folder / MANIFEST
    if not is_there(file):
        return None
    files = _all_in(file_bytes(file), file)
    return " ".join(f"{name} {facts.sha256}" for name, facts in sorted(files.items()))


def leave_out(folder: Path, is_heavy: Callable[[str], bool]) -> int:
    """Delete such files of a finished run, and return their size in bytes. The manifest still lists them, as left out:
    the folder is complete without them. If killed half way, some unneeded files remain."""
    file = folder / MANIFEST
    if not is_there(file):
        return 0
    files = _all_in(file_bytes(file), file)
    heavy = [name for name in files if is_heavy(name) and (folder / name).exists()]
    if not heavy:
        return 0
    with replacing(file) as draft:
        marked = {
            name: structs.replace(facts, left_out=True) if name in heavy else facts for name, facts in files.items()
        }
        draft.write_bytes(manifest_bytes(marked))
    with translated_errors(folder):
        for name in heavy:
            (folder / name).unlink()
    return sum(files[name].bytes for name in heavy)


def replace_files(folder: Path, contents: Mapping[str, bytes], keep_as: Mapping[str, str]) -> None:
    """Replace files of a finished run; each older version is kept under its name in `keep_as`, if there is none yet. If
    killed half way, the folder is complete, and the manifest does not list checksums for these files."""
    file = folder / MANIFEST
    files = _all_in(file_bytes(file), file) if is_there(file) else None
    if files is not None:
        with replacing(file) as draft:
            draft.write_bytes(manifest_bytes({name: facts for name, facts in files.items() if name not in contents}))
    with translated_errors(folder):
        for name, older in keep_as.items():
            if not is_there(folder / older):
                with replacing(folder / older) as draft:
                    draft.write_bytes(file_bytes(folder / name))
    for name, content in contents.items():
        with replacing(folder / name) as draft:
            draft.write_bytes(content)
    if files is not None:
        changed = {name: _facts(folder / name) for name in (*contents, *keep_as.values())}
        with replacing(file) as draft:
            draft.write_bytes(manifest_bytes(files | changed))


def check_whole(folder: Path, files_elsewhere: Collection[str] = ()) -> None:
    """Refuse an incompletely copied folder: a file is missing, or shorter than it was."""
    for name, facts in (read_manifest(folder) or {}).items():
        if name in files_elsewhere:
            continue
        size = _size(folder / name)
        if size is None or size < facts.bytes:
            there = "missing" if size is None else f"{size} bytes long"
            raise StoreError(
                f"{folder}: incomplete: {name} is {there}, it had {facts.bytes} bytes",
                "copy the folder again from its source",
            )


def faults(folder: Path) -> Iterator[str]:
    """All differences from what was written, file by file."""
    files = read_manifest(folder)
    if files is None:
        return
    for name, facts in files.items():
        file = folder / name
        size = _size(file)
        if size is None:
            yield f"{name} is missing"
        elif size != facts.bytes:
            yield f"{name} has {size} bytes, it had {facts.bytes}"
        elif sha256(file) != facts.sha256:
            yield f"{name} was changed: its checksum differs"


def _size(file: Path) -> int | None:
    """None if there is no such file, or only through a link."""
    with translated_errors(file):
        try:
            about = file.stat()
        except FileNotFoundError:
            return None
    if not stat.S_ISREG(about.st_mode):
        raise StoreError(f"{file}: not a plain file")
    return about.st_size


def sha256(file: Path) -> str:
    with translated_errors(file), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _facts(file: Path) -> FileFacts:
    return FileFacts(file.stat().st_size, sha256(file))
