"""Builds the site of a store: pages, lists of runs, a file for each run with how it compares with the one before, each
measure over time, each experiment."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson

from inferometer import __version__
from inferometer.errors import InferometerError, StoreError
from inferometer.record.sanitize import json_text
from inferometer.show.dashboard.answers import Answers, line_of, with_values
from inferometer.show.dashboard.documents import row, run_document
from inferometer.show.dashboard.drawing import run_charts, trade_offs
from inferometer.show.dashboard.families import Family, families, summary_of
from inferometer.show.dashboard.pages import ASSETS, PAGES, asset_bytes, names_document, shell
from inferometer.show.site.writing import SiteFolder, open_site
from inferometer.store.entry import Entry
from inferometer.store.experiments import KeptExperiment
from inferometer.store.folder import RECORDS
from inferometer.store.manifest import measured
from inferometer.store.suspects import blaming

# -- data ------------------------------------------------------------------------------------------------------------

AT_ONCE = 500  # runs a file: 100 KB
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
    """Data that a page loads by a script element: unlike `fetch`, that also works for files opened from a disk."""
    return b'inferometer.put("' + name.encode() + b'",' + json_text(content, _OPTIONS).encode() + b");\n"


def public(value: Any) -> Any:
    """Plain data without places, commands and names of machines: a site is for everybody."""
    if isinstance(value, Mapping):
        return {name: public(each) for name, each in value.items() if str(name).lower() not in PRIVATE}
    return [public(each) for each in value] if isinstance(value, list | tuple) else value


def file_of(key: str) -> str:
    """A key as the name of a file; one of somebody's own may have anything in it."""
    return key if _SAFE.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:16]


def lists(entries: Sequence[Entry]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The table of runs in files of a month each, so that a new run changes one of them and moves no other."""
    ordered = sorted(entries, key=lambda entry: entry.id)
    for month, group in groupby(ordered, lambda entry: file_of(entry.id[:6].lower())):
        own = [row(entry) for entry in group]
        for start in range(0, len(own), AT_ONCE):
            yield f"list/{month}-{start // AT_ONCE}", columnar(own[start : start + AT_ONCE])


def columnar(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows with the names of their columns once: a fifth of the size."""
    plain = _names(rows, but=("values", "more", "target"))
    numbers = list(dict.fromkeys(key for each in rows for key in each["values"]))
    lines = [
        [*(each.get(name) for name in plain), *(_rounded(each["values"].get(key)) for key in numbers)] for each in rows
    ]
    return {"plain": plain, "numbers": numbers, "rows": lines}


def _rounded(value: float | None) -> float | None:
    """To eight digits: conditions are checked on it, and find the same runs as `inferometer list`."""
    return None if value is None else float(f"{value:.8g}")


def _names(rows: Sequence[Mapping[str, Any]], but: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(name for each in rows for name in each) if name not in but]


def family_of(family: Family) -> dict[str, Any]:
    said = summary_of(family)
    return said | {"measures": [each | {"file": file_of(each["key"])} for each in said["measures"]]}


# -- neighbours ------------------------------------------------------------------------------------------------------


def neighbours(entries: Iterable[Entry]) -> dict[str, Entry]:
    """By run id: the newest sound run before it of the same workload, stack and hardware."""
    last: dict[tuple[str, str], Entry] = {}
    found = {}
    for entry in sorted(entries, key=lambda entry: (entry.started_at, entry.id)):
        if entry.state != "complete" or entry.identity is None:
            continue
        who = (entry.kind, entry.identity)
        if who in last:
            found[entry.id] = last[who]
        if entry.verdict != "invalid":
            last[who] = entry
    return found


def judged(answers: Answers, before: Entry, entry: Entry) -> dict[str, Any]:
    """What the page of a comparison shows; of the runs no more than their ids, for the site has a page for each."""
    found = answers.comparison([before.id], [entry.id], [], False)
    sides = {side: [{"id": each["id"]} for each in runs] for side, runs in found["runs"].items()}
    content: dict[str, Any] = public(found | {"runs": sides})
    return content


# -- building --------------------------------------------------------------------------------------------------------

JUDGED = 25  # newest runs that are judged against the one before at once; later ones are as they come, and stay
FORMAT = "4"  # of the data files: another one makes all of them anew
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

    def document(self) -> dict[str, Any]:
        said = {"folder": str(self.path), "runs": self.runs, "written": self.written, "removed": self.removed}
        return {**said, "unreadable": self.unreadable}


def build_site(answers: Answers, path: Path, *, where: Sequence[str] = (), charts: int = 100) -> Built:
    """Charts of single runs are made for the newest only: they are most of a site's size."""
    site = open_site(path)
    entries = answers.store.runs(where=where)
    _put_pages(site)
    unreadable = _put_runs(site, answers, entries, charts)
    entries = [entry for entry in entries if entry.id not in unreadable]
    found = families(entries, answers.load)
    for family in found:
        _put_family(site, answers, family)
    _put_experiments(site, answers, {entry.id for entry in entries}, everything=not where)
    chunks = _put_lists(site, entries)
    newest = max((entry.started_at for entry in entries), default="")
    about = {"lists": chunks, "total": len(entries), "updated": newest, "live": False, "write": False}
    site.put("data/histories.js", script("histories", {"histories": [family_of(each) for each in found]}))
    site.put("data/names.js", script("names", names_document() | about | {"version": __version__}))
    site.close()
    return Built(path, len(entries), site.written, site.removed, unreadable)


def _put_pages(site: SiteFolder) -> None:
    for name in PAGES:
        site.put(f"{name}.html", shell(name, "from-files.js", POLICY).encode())
    for name in ASSETS:
        if name != "from-server.js":
            site.put(f"assets/{name}", asset_bytes(name)[0])
    site.put(".nojekyll", b"")  # GitHub Pages: as it is


def _put_lists(site: SiteFolder, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The newest first."""
    chunks = []
    for name, content in lists(entries):
        site.put(f"data/{name}.js", script(name, content))
        chunks.append({"name": name, "runs": len(content["rows"])})
    return chunks[::-1]


def _put_runs(site: SiteFolder, answers: Answers, entries: Sequence[Entry], charts: int) -> list[str]:
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


def _put_run(site: SiteFolder, answers: Answers, entry: Entry, beside: dict[str, Any]) -> None:
    """`beside` says which other files of the run there are: a page asks for no others."""
    name, print_ = file_of(entry.id), _print_of(entry, beside)
    if not site.is_fresh(f"data/runs/{name}.js", print_):
        said = run_document(answers.load(entry), entry)
        content = public(said) | {"files": [], **beside}
        site.put(f"data/runs/{name}.js", script(f"runs/{name}", content), print_)


def _put_charts(site: SiteFolder, answers: Answers, entry: Entry) -> bool:
    name, print_ = file_of(entry.id), _print_of(entry)
    if not site.is_fresh(f"data/charts/{name}.js", print_):
        content = run_charts(answers.load(entry))
        site.put(f"data/charts/{name}.js", script(f"charts/{name}", content), print_)
    return True


def _put_judged(site: SiteFolder, answers: Answers, entry: Entry, before: Entry | None, *, anew: bool) -> str | None:
    """The id of the run before, if there is a judgement."""
    if before is None:
        return None
    name, print_ = f"compare/{file_of(entry.id)}", _print_of(entry, _print_of(before))
    if not site.is_fresh(f"data/{name}.js", print_):
        if not anew:
            return None
        try:
            site.put(f"data/{name}.js", script(name, judged(answers, before, entry)), print_)
        except InferometerError:
            return None  # not there any more, or nothing that both have
    return before.id


def _print_of(entry: Entry, beside: object = None) -> str:
    """What the files of a run are made of: its manifest says what was measured, the marks what was said of it."""
    content = (measured(entry.folder) or str(_sizes(entry.folder))).encode()
    said = (FORMAT, __version__, entry.state, entry.verdict, entry.tags, entry.experiment, entry.case, RECORDS, beside)
    return hashlib.sha256(content + repr(said).encode()).hexdigest()[:16]


def _sizes(folder: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_size) for path in folder.iterdir()) if folder.is_dir() else []


def _put_family(site: SiteFolder, answers: Answers, family: Family) -> None:
    wide = with_values(family, answers.store, list(family.keys))
    for key in family.keys:
        name = f"history/{family.id}/{file_of(key)}"
        site.put(f"data/{name}.js", script(name, line_of(wide, key)))
    if len(newest := family.newest) > 1:
        name = f"history/{family.id}/trade-offs"
        print_ = hashlib.sha256("".join(map(_print_of, newest)).encode()).hexdigest()[:16]
        if not site.is_fresh(f"data/{name}.js", print_):
            site.put(f"data/{name}.js", script(name, trade_offs([answers.load(each) for each in newest])), print_)


def _put_experiments(site: SiteFolder, answers: Answers, shown: set[str], *, everything: bool) -> None:
    rows = []
    for said in answers.experiments()["experiments"]:
        kept = answers.kept_experiment(said["id"])
        if not everything and not _runs_of(kept) & shown:
            continue
        rows.append(said)
        name = f"experiments/{file_of(kept.id)}"
        print_ = _print_of_experiment(kept)
        if not site.is_fresh(f"data/{name}.js", print_):
            site.put(f"data/{name}.js", script(name, public(answers.experiment(kept.id))), print_)
    site.put("data/experiments.js", script("experiments", {"experiments": rows}))


def _runs_of(kept: KeptExperiment) -> set[str]:
    return {case["run"] for case in kept.cases if case.get("run")}


def _print_of_experiment(kept: KeptExperiment) -> str:
    said = (FORMAT, __version__, kept.id, kept.cases, kept.result)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]
