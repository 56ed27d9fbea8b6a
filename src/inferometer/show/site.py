"""The static site of a store: the dashboard's pages with their data in files, for GitHub Pages or any folder. Files are
written only if their content changed."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import orjson

from inferometer import __version__
from inferometer.documents.document import JsonObject
from inferometer.errors import InferometerError, StoreError
from inferometer.record.files import replacing, translated_errors
from inferometer.record.sanitize import json_text
from inferometer.show.dashboard.answers import (
    LAST_EXPERIMENTS,
    ExperimentsDocument,
    Histories,
    StoreAnswers,
    line_of,
    with_values,
)
from inferometer.show.dashboard.documents import plain, run_document
from inferometer.show.dashboard.explore import explored, run_charts, trade_offs
from inferometer.show.dashboard.families import Family, FamilyRow, families, family_row
from inferometer.show.dashboard.listing import RunRow
from inferometer.show.dashboard.overview import Overview, history_lines
from inferometer.show.dashboard.pages import ASSETS, PAGES, ListFile, asset_bytes, names_document, shell
from inferometer.show.experiment_answer import ExperimentRow
from inferometer.store.entry import Entry
from inferometer.store.experiments import KeptExperiment
from inferometer.store.folder import RECORDS
from inferometer.store.manifest import measured
from inferometer.store.upkeep import blaming

MEMORY = "site.json"
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2


@dataclass
class SiteFolder:
    path: Path
    before: dict[str, str]  # file to checksum, as of the last build
    prints: dict[str, str]  # checksum of each file's inputs, as of the last build
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
        """Whether its inputs were the same at the last build; then it stays."""
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
    """A folder that is new, empty, or already a site; other folders are not touched."""
    memory = path / MEMORY
    if memory.is_file():
        remembered = _remembered(memory)
        return SiteFolder(path, remembered.files, remembered.made_of)
    if (path / "index.html").exists():
        hint = "choose another folder, or remove its index.html"
        raise StoreError(f"{path}: has an index.html that Inferometer did not write", hint)
    _remember(path, {}, {})  # marks it as ours, even if this is interrupted
    return SiteFolder(path, {}, {})


def _remember(path: Path, files: dict[str, str], made_of: dict[str, str]) -> None:
    with translated_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with replacing(path / MEMORY) as draft:
        draft.write_bytes(orjson.dumps({"files": files, "made_of": made_of}, option=_SORTED))


class SiteMemory(msgspec.Struct):
    """The state of a site: checksums of its files, and of the inputs of each."""

    files: dict[str, str] = {}
    made_of: dict[str, str] = {}


def _remembered(memory: Path) -> SiteMemory:
    try:
        with translated_errors(memory):
            return msgspec.json.decode(memory.read_bytes(), type=SiteMemory)
    except msgspec.DecodeError:
        return SiteMemory()  # incomplete: everything is rebuilt


def _is_below(folder: Path, name: str) -> bool:
    """The state file may have been edited by anyone."""
    return (folder / name).resolve().is_relative_to(folder.resolve()) and not Path(name).is_absolute()


# -- data ------------------------------------------------------------------------------------------------------------

AT_ONCE = 500  # runs per file: 100 KB
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
PRIVATE = {
    "boot",
    "host",
    "hosts",
    "command",
    "argv",
    "env",
    "environ",
    "log",
    "url",
    "urls",
    "headers",
    "pid",
    "cwd",
    "user",
}


def script(name: str, content: object) -> bytes:
    """Data that a page loads through a script element: unlike `fetch`, that also works for files opened from a disk."""
    return b'inferometer.put("' + name.encode() + b'",' + json_text(content, _OPTIONS).encode() + b");\n"


def public(document: object) -> Any:
    """A document as plain data, without paths, commands and names of machines: a site is public."""
    return _public(plain(document))


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _public(child) for name, child in value.items() if str(name).lower() not in PRIVATE}
    return [_public(child) for child in value] if isinstance(value, list) else value


def file_of(key: str) -> str:
    """A key as a file name; a user's own key may contain any characters."""
    return key if _SAFE.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Chunk:
    """A part of the table of runs, with the column names only once: a fifth of the size."""

    plain: list[str]
    numbers: list[str]
    rows: list[list[Any]]


def lists(rows: Sequence[RunRow]) -> Iterator[tuple[str, Chunk]]:
    """The table of runs in one file per month, so that a new run changes only one of them."""
    ordered = sorted(rows, key=lambda row: row.id)
    for month, group in groupby(ordered, lambda row: file_of(row.id[:6].lower())):
        own = list(group)
        for start in range(0, len(own), AT_ONCE):
            yield f"list/{month}-{start // AT_ONCE}", columnar(own[start : start + AT_ONCE])


def columnar(rows: Sequence[RunRow]) -> Chunk:
    fields = [name for name in RunRow.__dataclass_fields__ if name not in ("values", "more")]
    present = [name for name in fields if any(getattr(row, name) not in (None, "", []) for row in rows)]
    numbers = list(dict.fromkeys(key for row in rows for key in row.values))
    lines = [
        [*(getattr(row, name) for name in present), *(_rounded(row.values.get(key)) for key in numbers)] for row in rows
    ]
    return Chunk(present, numbers, lines)


def _rounded(value: float | None) -> float | None:
    """Rounded to eight digits: conditions evaluated on it find the same runs as `inferometer list`."""
    return None if value is None else float(f"{value:.8g}")


def site_family(family: Family) -> FamilyRow:
    row = family_row(family)
    return replace(row, measures=[replace(measure, file=file_of(measure.key)) for measure in row.measures])


# -- neighbours ------------------------------------------------------------------------------------------------------


def neighbours(entries: Iterable[Entry]) -> dict[str, Entry]:
    """By run id: the previous newest sound run with the same workload, stack and hardware."""
    last: dict[tuple[str, str], Entry] = {}
    previous = {}
    for entry in sorted(entries, key=lambda entry: (entry.started_at, entry.id)):
        if entry.state != "complete" or entry.identity is None:
            continue
        who = (entry.kind, entry.identity)
        if who in last:
            previous[entry.id] = last[who]
        if entry.verdict != "invalid":
            last[who] = entry
    return previous


def judged(answers: StoreAnswers, before: Entry, entry: Entry) -> Any:
    """The content of a comparison page."""
    return public(answers.comparison([before.id], [entry.id], [], False))


# -- building --------------------------------------------------------------------------------------------------------

JUDGED = 25  # newest runs that are compared with their predecessor at once; later ones as they are added
FORMAT = "6"  # version of the data files: a new one rebuilds all of them
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'self'"
)


@dataclass(frozen=True)
class Built:
    path: Path
    runs: int
    written: list[str]
    removed: list[str]
    unreadable: list[str]

    def document(self) -> JsonObject:
        return {
            "folder": str(self.path),
            "runs": self.runs,
            "written": self.written,
            "removed": self.removed,
            "unreadable": self.unreadable,
        }


def build_site(answers: StoreAnswers, path: Path, *, where: Sequence[str] = (), charts: int = 100) -> Built:
    """Charts of single runs are only built for the newest: they make up most of a site's size."""
    site = open_site(path)
    entries = answers.store.runs(where=where)
    _put_pages(site)
    unreadable = _put_runs(site, answers, entries, charts)
    entries = [entry for entry in entries if entry.id not in unreadable]
    histories = families([entry for entry in entries if entry.experiment is None], answers.load)
    for family in histories:
        _put_family(site, answers, family)
    experiments = _put_experiments(site, answers, {entry.id for entry in entries}, everything=not where)
    chunks = _put_lists(site, [answers.row(entry) for entry in entries])
    newest = max((entry.started_at for entry in entries), default="")
    lines, left_out = history_lines(histories), sum(family.left_out for family in histories)
    overview = Overview(lines, left_out, [], experiments[:LAST_EXPERIMENTS], len(entries))
    site.put("data/overview.js", script("overview", overview))
    site.put("data/explore.js", script("explore", _explored(answers, {entry.id for entry in entries})))
    site.put("data/histories.js", script("histories", Histories([site_family(family) for family in histories])))
    site.put("data/names.js", script("names", names_document(lists=chunks, total=len(entries), updated=newest)))
    site.close()
    return Built(path, len(entries), site.written, site.removed, unreadable)


def _explored(answers: StoreAnswers, shown: set[str]) -> Any:
    """Charts and rows of the newest runs; a page filters the rows itself."""
    entries = [entry for entry in answers.explorable_entries() if entry.id in shown]
    return public(explored(answers.explorable(entries), answers.words))


def _put_pages(site: SiteFolder) -> None:
    for name in PAGES:
        site.put(f"{name}.html", shell(name, "from-files.js", POLICY).encode())
    for name in ASSETS:
        if name != "from-server.js":
            site.put(f"assets/{name}", asset_bytes(name)[0])
    site.put(".nojekyll", b"")  # tells GitHub Pages to serve the files unchanged


def _put_lists(site: SiteFolder, rows: Sequence[RunRow]) -> list[ListFile]:
    """Newest first."""
    chunks = []
    for name, content in lists(rows):
        site.put(f"data/{name}.js", script(name, content))
        chunks.append(ListFile(name, len(content.rows)))
    return chunks[::-1]


def _put_runs(site: SiteFolder, answers: StoreAnswers, entries: Sequence[Entry], charts: int) -> list[str]:
    unreadable, before = [], neighbours(entries)
    for number, entry in enumerate(sorted(entries, key=lambda entry: entry.id, reverse=True)):
        try:
            with blaming(entry.folder):
                drawn = number < charts and _put_charts(site, answers, entry)
                known = _put_judged(site, answers, entry, before.get(entry.id), anew=number < JUDGED)
                _put_run(site, answers, entry, {"drawn": drawn, "before": known})
        except StoreError:
            unreadable.append(entry.id)
    return unreadable


def _put_run(site: SiteFolder, answers: StoreAnswers, entry: Entry, extras: dict[str, bool | str | None]) -> None:
    """`extras` lists the other files of the run: a page fetches no others."""
    name, print_ = file_of(entry.id), _print_of(entry, extras)
    if not site.is_fresh(f"data/runs/{name}.js", print_):
        document = run_document(answers.load(entry), entry)
        content = public(document) | {"files": [], **extras}
        site.put(f"data/runs/{name}.js", script(f"runs/{name}", content), print_)


def _put_charts(site: SiteFolder, answers: StoreAnswers, entry: Entry) -> bool:
    name, print_ = file_of(entry.id), _print_of(entry)
    if not site.is_fresh(f"data/charts/{name}.js", print_):
        content = run_charts(answers.load(entry))
        site.put(f"data/charts/{name}.js", script(f"charts/{name}", content), print_)
    return True


def _put_judged(
    site: SiteFolder, answers: StoreAnswers, entry: Entry, before: Entry | None, *, anew: bool
) -> str | None:
    """The id of the previous run, if there is a comparison."""
    if before is None:
        return None
    name, print_ = f"compare/{file_of(entry.id)}", _print_of(entry, _print_of(before))
    if not site.is_fresh(f"data/{name}.js", print_):
        if not anew:
            return None
        try:
            site.put(f"data/{name}.js", script(name, judged(answers, before, entry)), print_)
        except InferometerError:
            return None  # deleted, or no common measures
    return before.id


def _print_of(entry: Entry, extras: object = None) -> str:
    """The inputs of a run's files: its manifest for the measurement, and its marks."""
    content = (measured(entry.folder) or str(_sizes(entry.folder))).encode()
    parts = (FORMAT, __version__, entry.state, entry.verdict, entry.tags, entry.experiment, entry.case, RECORDS, extras)
    return hashlib.sha256(content + repr(parts).encode()).hexdigest()[:16]


def _sizes(folder: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_size) for path in folder.iterdir()) if folder.is_dir() else []


def _put_family(site: SiteFolder, answers: StoreAnswers, family: Family) -> None:
    wide = with_values(family, answers.store, list(family.keys))
    for key in family.keys:
        name = f"history/{family.id}/{file_of(key)}"
        site.put(f"data/{name}.js", script(name, line_of(wide, key)))
    if len(newest := family.newest) > 1:
        name = f"history/{family.id}/trade-offs"
        print_ = hashlib.sha256("".join(map(_print_of, newest)).encode()).hexdigest()[:16]
        if not site.is_fresh(f"data/{name}.js", print_):
            site.put(f"data/{name}.js", script(name, trade_offs([answers.load(entry) for entry in newest])), print_)


def _put_experiments(
    site: SiteFolder, answers: StoreAnswers, shown: set[str], *, everything: bool
) -> list[ExperimentRow]:
    rows = []
    for row in answers.experiments(most_read=None).experiments:
        kept = answers.kept_experiment(row.id)
        if not everything and not _runs_of(kept) & shown:
            continue
        rows.append(row)
        name = f"experiments/{file_of(kept.id)}"
        print_ = _print_of_experiment(kept)
        if not site.is_fresh(f"data/{name}.js", print_):
            site.put(f"data/{name}.js", script(name, public(answers.experiment(kept.id))), print_)
    site.put("data/experiments.js", script("experiments", ExperimentsDocument(rows)))
    return rows


def _runs_of(kept: KeptExperiment) -> set[str]:
    return {case.run for case in kept.cases if case.run}


def _print_of_experiment(kept: KeptExperiment) -> str:
    parts = (FORMAT, __version__, kept.id, kept.cases, kept.result)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
