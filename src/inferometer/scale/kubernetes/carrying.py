"""Copies files out of a pod through its log: a collector pod prints them in checksummed pieces, which are reassembled
here. Every cluster and node offers logs, but not exec.

A container's log is rotated at 10 MiB by default, and a reader may lose rotated lines. So a pod prints one bounded
piece and the position of the next one.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from inferometer.errors import LostError
from inferometer.record.files import translated_errors

PIECE_BYTES = 6 * 2**20  # of files in one log: 8 MiB as text
LINE_BYTES = 6000  # of a file per line: container runtimes split lines at 16 KiB
MARK = "@inferometer"


class Cursor(msgspec.Struct, frozen=True):
    """The start of the next piece: the number of a file, and an offset in it."""

    file: int = 0
    at: int = 0


class CarriedFile(msgspec.Struct, frozen=True):
    path: str
    size: int
    sha256: str


# -- in the pod ------------------------------------------------------------------------------------------------------


def printed(root: Path, names: Sequence[str], start: Cursor, most: int = PIECE_BYTES) -> Iterator[str]:
    """The lines of one piece of the named folders below `root`."""
    files = [_described(root, path) for name in names for path in _files(root / name)]
    for file in files:
        yield f"{MARK} file {msgspec.json.encode(file).decode()}"
    left, number, at = most, start.file, start.at
    while number < len(files) and left > 0:
        with (root / files[number].path).open("rb") as source:
            source.seek(at)
            while left > 0 and (part := source.read(min(LINE_BYTES, left))):
                yield f"{MARK} {number} {at} {binascii.crc32(part):08x} {base64.b64encode(part).decode()}"
                at, left = at + len(part), left - len(part)
        if at >= files[number].size:
            number, at = number + 1, 0
    yield f"{MARK} end {len(files)}"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _described(root: Path, path: Path) -> CarriedFile:
    with path.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    return CarriedFile(str(path.relative_to(root)), path.stat().st_size, digest)


# -- here ------------------------------------------------------------------------------------------------------------


class Unpacking:
    """Reassembles pieces in a folder. Missing data is requested again, starting at `cursor`."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self.cursor: Cursor | None = Cursor()
        self.files: list[CarriedFile] = []
        self._parts = into / ".parts"
        self.text: list[str] = []  # other output of the pod

    def take(self, lines: Iterable[str]) -> bool:
        """Add one piece; returns whether it brought new data."""
        before, self.files = self.cursor, []
        for line in lines:
            if not line.startswith(f"{MARK} "):
                self.text.append(line)
                continue
            kind, _, rest = line.removeprefix(f"{MARK} ").partition(" ")
            if kind == "file":
                self.files.append(msgspec.json.decode(rest, type=CarriedFile))
            elif kind == "end":
                self._end(rest)
            else:
                self._keep(int(kind), rest)
        return self.cursor != before

    def _keep(self, number: int, rest: str) -> None:
        """Add a line. A line that does not continue the last one is dropped: one was lost, and both are requested
        again."""
        at, check, text = rest.split(" ", 2)
        part = base64.b64decode(text)
        if Cursor(number, int(at)) != self._next() or binascii.crc32(part) != int(check, 16):
            return
        with translated_errors(self._parts):
            self._parts.mkdir(parents=True, exist_ok=True)
            with (self._parts / str(number)).open("ab" if int(at) else "wb") as file:
                file.truncate(int(at))
                file.write(part)
        self.cursor = Cursor(number, int(at) + len(part))

    def _next(self) -> Cursor | None:
        """The position of the next byte, in the same file or in the next one that is not empty."""
        cursor = self.cursor or Cursor()
        while cursor.file < len(self.files) and cursor.at >= self.files[cursor.file].size:
            cursor = Cursor(cursor.file + 1, 0)
        return cursor if cursor.file < len(self.files) else None

    def _end(self, rest: str) -> None:
        """Check that all announced data has arrived."""
        if len(self.files) == int(rest.partition(" ")[0]) and self._next() is None:
            self.cursor = None

    def finish(self) -> list[Path]:
        """Move every complete file to its place."""
        written = []
        with translated_errors(self._parts):
            self._parts.mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(self.files):
            place = self._safe(file.path)
            with translated_errors(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                part = self._parts / str(number)
                if not part.exists():  # an empty file
                    part.touch()
                with part.open("rb") as source:
                    digest = hashlib.file_digest(source, "sha256").hexdigest()
                if digest != file.sha256:
                    raise LostError(f"{file.path} came back damaged", "collect it again: inferometer k8s run --skip")
                part.replace(place)
            written.append(place)
        self._parts.rmdir()
        return written

    def _safe(self, name: str) -> Path:
        """The path for a file of a pod, refused if it is outside of our folder."""
        place = (self._into / name).resolve()
        if not place.is_relative_to(self._into.resolve()):
            raise LostError(f"the pod sent a file that would lie outside of the results: {name}")
        return place
