"""The package with something added to it, as a contributor would: new files, and lines in registries. What is not
changed is a link to the checkout."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import inferometer

PACKAGE = Path(inferometer.__file__).parent


class RegistryLine(NamedTuple):
    file: str  # below the package
    after: str  # a line of the registry, without its indentation
    line: str


class AddedParts:
    """A copy in a folder, and a way to run programs with it."""

    def __init__(self, folder: Path, files: dict[str, str], *lines: RegistryLine) -> None:
        self._folder = folder
        _link(PACKAGE, folder / "inferometer", {Path(name) for name in (*files, *(each.file for each in lines))})
        for name, text in files.items():
            (folder / "inferometer" / name).write_text(text)
        for added in lines:
            (folder / "inferometer" / added.file).write_text(_with(PACKAGE / added.file, added))

    def python(self, *words: str, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run Python with the changed package; the working folder is the one it is in."""
        env = os.environ | {"PYTHONPATH": str(self._folder), "INFEROMETER_STORE": str(self._folder / "store")}
        return subprocess.run(
            [sys.executable, *words],
            cwd=self._folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def _link(source: Path, copy: Path, changed: set[Path]) -> None:
    """Folders with changed files are folders with links, all others are links."""
    copy.mkdir(parents=True)
    for entry in source.iterdir():
        below = {path.relative_to(entry.name) for path in changed if path.parts[0] == entry.name}
        if entry.name == "__pycache__" or below == {Path()}:
            continue
        if below:
            _link(entry, copy / entry.name, below)
        else:
            (copy / entry.name).symlink_to(entry)


def _with(file: Path, added: RegistryLine) -> str:
    lines = file.read_text().splitlines(keepends=True)
    (at,) = [number for number, line in enumerate(lines) if line.strip() == added.after]
    indentation = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    return "".join([*lines[: at + 1], f"{indentation}{added.line}\n", *lines[at + 1 :]])
