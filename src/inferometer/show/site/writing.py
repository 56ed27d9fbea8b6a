"""Files of a site, written only where their content changed. What was written is remembered in `site.json`: only such
files are ever removed, and a run that did not change is not even read."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from inferometer.errors import StoreError
from inferometer.record.files import replacing, translated_errors

MEMORY = "site.json"
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2


@dataclass
class SiteFolder:
    path: Path
    before: dict[str, str]  # file to checksum, as the last time
    prints: dict[str, str]  # what a file was made of, the last time
    files: dict[str, str] = field(default_factory=dict)
    made_of: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def put(self, name: str, content: bytes, made_of: str | None = None) -> None:
        number = hashlib.sha256(content).hexdigest()[:16]
        self.files[name] = number
        if made_of is not None:
            self.made_of[name] = made_of
        if self.before.get(name) == number and (self.path / name).is_file():
            return
        with translated_errors(self.path / name):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path / name) as draft:
            draft.write_bytes(content)
        self.written.append(name)

    def is_fresh(self, name: str, made_of: str) -> bool:
        """Whether it was made of the same the last time; then it stays."""
        if self.prints.get(name) != made_of or name not in self.before or not (self.path / name).is_file():
            return False
        self.files[name], self.made_of[name] = self.before[name], made_of
        return True

    def close(self) -> None:
        for name in sorted(set(self.before) - set(self.files)):
            if _is_below(self.path, name):
                (self.path / name).unlink(missing_ok=True)
                self.removed.append(name)
        if self.files != self.before or self.made_of != self.prints:
            _remember(self.path, self.files, self.made_of)


def open_site(path: Path) -> SiteFolder:
    """A folder that is new, empty, or a site already; another page's folder is left alone."""
    memory = path / MEMORY
    if memory.is_file():
        remembered = _remembered(memory)
        return SiteFolder(path, dict(remembered.get("files", {})), dict(remembered.get("made_of", {})))
    if (path / "index.html").exists():
        hint = "choose another folder, or remove its index.html"
        raise StoreError(f"{path}: has an index.html that Inferometer did not write", hint)
    _remember(path, {}, {})  # ours from now on, also where this is interrupted
    return SiteFolder(path, {}, {})


def _remember(path: Path, files: dict[str, str], made_of: dict[str, str]) -> None:
    with translated_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with replacing(path / MEMORY) as draft:
        draft.write_bytes(orjson.dumps({"files": files, "made_of": made_of}, option=_SORTED))


def _remembered(memory: Path) -> dict[str, Any]:
    try:
        with translated_errors(memory):
            content = orjson.loads(memory.read_bytes())
        return content if isinstance(content, dict) else {}
    except orjson.JSONDecodeError:
        return {}  # half written: everything is made anew


def _is_below(folder: Path, name: str) -> bool:
    """The memory is a file that anybody could have edited."""
    return (folder / name).resolve().is_relative_to(folder.resolve()) and not Path(name).is_absolute()
