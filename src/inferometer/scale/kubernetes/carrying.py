"""Files out of a pod through nothing but its log: a collector pod prints them in checked pieces, and here they are put
together again. Logs are what every cluster and every node offers; exec is not.

A container's log is rotated at 10 MiB by default, and what was rotated away may be lost to a reader. So a pod prints a
bounded piece and returns where the next one begins.
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
LINE_BYTES = 6000  # of a file in one line: container runtimes split lines at 16 KiB
MARK = "@inferometer"


class Cursor(msgspec.Struct, frozen=True):
    """Where the next piece begins: a file by its number, and a byte in it."""

    file: int = 0
    at: int = 0


class CarriedFile(msgspec.Struct, frozen=True):
    path: str
    size: int
    sha256: str


# -- in the pod ------------------------------------------------------------------------------------------------------


def printed(root: Path, names: Sequence[str], start: Cursor, most: int = PIECE_BYTES) -> Iterator[str]:
    """The lines of one piece of the folders below `root` that are named."""
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
    """Puts pieces together below a folder. What a piece lacks is requested again: `cursor` says from where."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self.cursor: Cursor | None = Cursor()
        self.files: list[CarriedFile] = []
        self._parts = into / ".parts"
        self.text: list[str] = []  # what else the pod printed

    def take(self, lines: Iterable[str]) -> bool:
        """One piece; whether it went further than the one before."""
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
        """A line that does not follow on the last one is left out: another was lost, and both come again."""
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
        """Where the next byte belongs: behind the last one, in its file or in the next that is not empty."""
        cursor = self.cursor or Cursor()
        while cursor.file < len(self.files) and cursor.at >= self.files[cursor.file].size:
            cursor = Cursor(cursor.file + 1, 0)
        return cursor if cursor.file < len(self.files) else None

    def _end(self, rest: str) -> None:
        """All is there if all that was announced came."""
        if len(self.files) == int(rest.partition(" ")[0]) and self._next() is None:
            self.cursor = None

    def finish(self) -> list[Path]:
        """Every file in its place, whole as it was in the pod."""
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
        """A pod chooses where its files go, but only inside our folder."""
        place = (self._into / name).resolve()
        if not place.is_relative_to(self._into.resolve()):
            raise LostError(f"the pod sent a file that would lie outside of the results: {name}")
        return place
