"""A run or an experiment that cannot be read: what is wrong with it and what to do. Nothing else in the store suffers
from it: whatever goes through a store passes over it and names it."""

import errno
import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from inferometer.errors import StoreError
from inferometer.record.files import translated_errors
from inferometer.vocabulary import size_text

LARGEST_FILE = 512 * 2**20  # bytes of one JSON or YAML file: what is larger is none of ours


@dataclass(frozen=True)
class Damaged:
    """In place of what should have been read."""

    id: str
    folder: Path
    cause: str  # "summary.json: not JSON: unexpected end of data at line 1 column 120"
    remedy: str  # a command to type

    @property
    def error(self) -> "DamagedError":
        return DamagedError(self)


class DamagedError(StoreError):
    """Somebody wants just this one."""

    def __init__(self, damaged: Damaged) -> None:
        super().__init__(f"{damaged.folder}: damaged: {damaged.cause}", damaged.remedy)
        self.damaged = damaged


def damaged_by(error: BaseException, folder: Path) -> Damaged:
    """What an error while reading a folder means for it."""
    message = error.message if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
    cause = message.removeprefix(f"{folder}/").removeprefix(f"{folder}: ")
    hint = error.hint if isinstance(error, StoreError) else None
    denied = isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EACCES, errno.EPERM)
    if denied:
        hint = f"no permission to read it: chmod -R u+rX {shlex.quote(str(folder))}"
    away = f"move it out of the store: mv {shlex.quote(str(folder))} /tmp/"
    return Damaged(folder.name, folder, " ".join(cause.split())[:400], hint or f"restore it from a copy, or {away}")


def file_bytes(file: Path) -> bytes:
    """Of a plain file; a pipe in its place would be waited for for ever."""
    with translated_errors(file):
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
        try:
            about = os.fstat(opened)
            if not stat.S_ISREG(about.st_mode):
                raise StoreError(f"{file}: not a plain file")
            if about.st_size > LARGEST_FILE:
                raise StoreError(f"{file}: {size_text(about.st_size)} is too large for it")
            with os.fdopen(opened, "rb", closefd=False) as content:
                return content.read()
        finally:
            os.close(opened)


def is_there(file: Path) -> bool:
    """Whether anything has that name: a link that leads nowhere is not the same as nothing."""
    with translated_errors(file):
        try:
            file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True
