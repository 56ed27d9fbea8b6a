"""The table of runs, one page at a time; and runs, experiments and files by the names in requests. Nothing outside the
store is ever opened."""

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from inferometer.errors import PlanError, StoreError
from inferometer.record.run import Run, engine_name
from inferometer.show.about import short_model
from inferometer.show.dashboard.documents import IN_WORDS, OF_THE_MACHINE, Cell, FileRow
from inferometer.show.runs import PLAIN, cell
from inferometer.store.entry import Entry
from inferometer.store.experiments import ABOUT, KeptExperiment, load_experiment
from inferometer.store.folder import load_run
from inferometer.store.query import Condition, condition, linear
from inferometer.store.store import Store

MOST = 500  # rows per page
MOST_CONDITIONS, LONGEST_CONDITION = 20, 300
MOST_COLUMNS, LONGEST_NAME = 60, 120
_SEARCHED = ("id", "name", "model", "target", "engine", "engine_version", "commit", "hardware", "kind", "state")


# -- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunRow:
    """A run as a line of a table; `more` has the requested columns."""

    id: str
    started: str
    state: str
    kind: str
    what: str  # its model and engine
    workload: str
    load: str
    source: str | None = None
    verdict: str | None = None
    name: str | None = None
    model: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    commit: str | None = None
    hardware: str | None = None
    requests: int | None = None
    workload_id: str | None = None
    stack_id: str | None = None
    hardware_id: str | None = None
    identity: str | None = None
    tags: list[str] = field(default_factory=list)
    experiment: str | None = None
    case: str | None = None
    values: dict[str, float] = field(default_factory=dict)
    weak: list[str] = field(default_factory=list)  # keys of percentiles of too few samples
    more: dict[str, Cell] = field(default_factory=dict)


@dataclass(frozen=True)
class RunsPage:
    total: int
    offset: int
    runs: list[RunRow]
    hidden: int = 0  # matching runs of experiments that are not shown


LoadRun = Callable[[Entry], Run]


class TrafficTexts:
    """Workload and load of runs in words. Runs of one workload have the same text, so few plans are read for many
    runs."""

    MOST_KNOWN = 20_000

    def __init__(self, load: LoadRun) -> None:
        self._load = load
        self._known: dict[tuple[str, str, str | None], tuple[str, str]] = {}
        self._lock = threading.Lock()

    def of(self, entry: Entry) -> tuple[str, str]:
        if entry.workload_id is None:
            return self._read(entry)
        key = (entry.workload_id, entry.kind, entry.source)
        known = self._known.get(key)
        if known is None:
            known = self._read(entry)
            self.put(entry, known)
        return known

    def put(self, entry: Entry, words: tuple[str, str]) -> None:
        with self._lock:
            if len(self._known) > self.MOST_KNOWN:
                self._known.clear()
            self._known[(entry.workload_id or "", entry.kind, entry.source)] = words

    def _read(self, entry: Entry) -> tuple[str, str]:
        try:
            subject = self._load(entry).subject
        except StoreError:
            return "", ""  # damaged, or just deleted: the table shows only its id
        return subject.workload, subject.load


def run_row(entry: Entry, words: TrafficTexts, columns: Sequence[str] = ()) -> RunRow:
    workload, load = words.of(entry)
    own = {name: getattr(entry, name) for name in PLAIN if name in _OF_ENTRY}
    own["hardware"] = hardware_text(entry) or None
    more = {name: cell(entry, name) for name in columns if name not in (*OF_THE_MACHINE, *IN_WORDS)}
    return RunRow(
        started=entry.started_at,
        what=what_text(entry),
        workload=workload,
        load=load,
        tags=list(entry.tags),
        values=entry.values,
        weak=sorted(entry.weak_keys & {*entry.values, *columns}),
        more=more,
        **own,
    )


_OF_ENTRY = set(RunRow.__dataclass_fields__) - {"started", "what", "workload", "load", "tags", "values", "weak", "more"}


def what_text(entry: Entry) -> str:
    """Model and engine; for a run with neither, its name or its address."""
    engine = engine_name(entry.engine, entry.engine_version)
    text = " · ".join(filter(None, (short_model(entry.model), engine))) or entry.name or entry.target or ""
    return f"predicted: {text}" if text and entry.is_predicted else text


_COUNTED = re.compile(r"(\d+) ?x ")


def hardware_text(entry: Entry) -> str:
    """`2 x NVIDIA H200`, as in headers; the index has `2x NVIDIA H200`, and the hosts if the hardware is unknown."""
    known = entry.hardware or ""
    if known and all(part in (entry.target or "") for part in known.split(", ")):
        return ""
    return _COUNTED.sub(r"\1 x ", known)


def accelerators_of(entry: Entry) -> int | None:
    """None if the number in its hardware text is unknown."""
    return sum(map(int, _COUNTED.findall(f"{entry.hardware or ''} "))) or None


def page_of(
    store: Store,
    words: TrafficTexts,
    *,
    where: Sequence[str] = (),
    search: str = "",
    sort: str | None = None,
    columns: Sequence[str] = (),
    limit: int = 50,
    offset: int = 0,
    experiments: bool = True,
) -> RunsPage:
    """Without `experiments`, cases of sweeps, steps of searches and blocks of A/B tests are counted and left out; a
    condition on `experiment` or `case` includes them."""
    conditions = visitor_conditions(where)
    requested = [name for name in columns_of(columns) if name not in IN_WORDS]
    every = searched(store.runs(where=conditions, sort=_sort(sort), columns=requested), search)
    wants_cases = experiments or any(given.name in ("experiment", "case", "id") for given in conditions)
    entries = every if wants_cases else [entry for entry in every if entry.experiment is None]
    shown = entries[offset : offset + min(limit, MOST)]
    rows = [run_row(entry, words, columns) for entry in shown]
    return RunsPage(len(entries), offset, rows, len(every) - len(entries))


# -- what visitors ask for -------------------------------------------------------------------------------------------


def visitor_conditions(texts: Sequence[str]) -> list[Condition]:
    """Conditions from anyone who can reach the server: short, and only with patterns that are matched in linear time,
    so that none of them can keep the server busy."""
    if len(texts) > MOST_CONDITIONS:
        raise PlanError(f"where: at most {MOST_CONDITIONS} conditions, got {len(texts)}")
    return [_visitor_condition(text) for text in texts]


def _visitor_condition(text: str) -> Condition:
    if len(text) > LONGEST_CONDITION:
        raise PlanError(f"where: a condition has at most {LONGEST_CONDITION} characters, got {len(text)}")
    parsed = condition(text)
    if parsed.operator in ("=~", "!~") and linear(parsed.value) is None:
        hint = "look-around and references to groups work only in `inferometer list --where`"
        raise PlanError(f"where: {parsed}: this regular expression cannot be matched in linear time", hint)
    return parsed


def columns_of(names: Sequence[str]) -> list[str]:
    if len(names) > MOST_COLUMNS or any(len(name) > LONGEST_NAME for name in names):
        raise PlanError(f"columns: at most {MOST_COLUMNS}, of at most {LONGEST_NAME} characters each")
    return [name for name in names if name not in OF_THE_MACHINE]


def _sort(sort: str | None) -> str | None:
    """For columns that are not in the index, the closest one that is."""
    if sort is None or len(sort) > LONGEST_NAME:
        return None
    nearest = {"what": "name", "workload": "plan.workload.input_tokens", "load": "plan.load.rate"}
    name = sort.removeprefix("-")
    return ("-" if sort.startswith("-") else "") + nearest.get(name, name)


def searched(entries: Iterable[Entry], text: str) -> list[Entry]:
    """Entries that contain every word, ignoring case."""
    terms = text.lower().split()
    if not terms:
        return list(entries)
    return [entry for entry in entries if all(term in _searchable_text(entry) for term in terms)]


def _searchable_text(entry: Entry) -> str:
    fields = [str(getattr(entry, name) or "") for name in _SEARCHED]
    return " ".join([*fields, entry.verdict or "", entry.source or "", entry.experiment or "", *entry.tags]).lower()


_NAME = re.compile(r"[A-Za-z0-9][\w.:+@~-]{0,199}", re.ASCII)
SHOWN_FILES = (".log", ".txt", ".json", ".yaml", ".jsonl", ".csv", ".md")
READ = (".json", ".jsonl", ".yaml", ".parquet", ".bin")  # data files of runs and experiments
LARGEST_SHOWN = 4 * 2**20  # bytes of a log; its end is most useful


class NotFound(StoreError):
    """There is no such run, experiment or file in the store."""


class Refused(StoreError):
    """It would be outside the store, or is not public."""


def entry_of(store: Store, wanted: str) -> Entry:
    """By its id, the start of one, `latest`, a baseline or a tag; never by a path."""
    if not _NAME.fullmatch(wanted) or ".." in wanted:
        raise NotFound(f"not the id of a run: {wanted[:80]!r}")
    try:
        return store.entry(wanted)
    except StoreError as error:
        raise NotFound(error.message, error.hint) from error


def run_of(store: Store, entry: Entry) -> Run:
    """From the folder in the index; a run in an object store is read through the store's cache."""
    if "://" in entry.location and not entry.location.startswith("file://"):
        return store.load(entry.id)
    return load_run(whole_inside(store.home, entry.folder))


def inside(home: Path, path: Path) -> Path:
    """The path, if it is inside the store after following every link."""
    try:
        leads_to = path.resolve()
    except (OSError, RuntimeError) as error:  # a link that leads to itself
        raise Refused(f"{path.name}: {error}") from error
    if not leads_to.is_relative_to(home.resolve()):
        raise Refused(f"{path.name}: lies outside the store", "copy it into the store instead of linking to it")
    return path


def whole_inside(home: Path, folder: Path) -> Path:
    """The folder, if it and all files from which a run or an experiment is read are inside the store: a plan may be a
    link. Other files are shown by `file_text`, which follows no links."""
    with suppress(OSError):  # just deleted: the reader reports it
        for path in inside(home, folder).iterdir():
            if path.is_symlink() and path.suffix in READ:
                inside(home, path)
    return folder


def files_of(store: Store, run: Run) -> list[FileRow]:
    """Text files of a run, with their sizes: logs first."""
    if run.folder is None or not run.folder.is_dir():
        return []
    shown = [path for path in inside(store.home, run.folder).iterdir() if _is_shown(path)]
    ordered = sorted(shown, key=lambda path: (path.suffix != ".log", path.name))
    return [FileRow(path.name, path.stat().st_size) for path in ordered]


def file_text(store: Store, run: Run, name: str) -> str:
    """A text file of a run; of a large one only the end."""
    if run.folder is None or name not in {file.name for file in files_of(store, run)}:
        raise NotFound(f"{run.id}: no file {name[:80]!r} that can be shown")
    with inside(store.home, run.folder / name).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - LARGEST_SHOWN))
        text = file.read().decode("utf-8", "replace")
    return text if size <= LARGEST_SHOWN else f"[the last 4 MiB of {size:,} bytes]\n{text.partition(chr(10))[2]}"


def _is_shown(path: Path) -> bool:
    plain = path.is_file() and not path.is_symlink()
    return plain and path.suffix in SHOWN_FILES and not path.name.startswith(".")


def experiment_of(store: Store, wanted: str) -> KeptExperiment:
    folder = store.home / "experiments" / wanted
    if not _NAME.fullmatch(wanted) or ".." in wanted or not folder.is_dir():
        raise NotFound(f"no experiment {wanted[:80]!r}")
    return load_experiment(whole_inside(store.home, folder))


def experiments_in(store: Store) -> list[KeptExperiment]:
    """Newest first; incomplete ones, and links to places elsewhere, are left out."""
    experiments = []
    for about in sorted((store.home / "experiments").glob(f"*/{ABOUT}"), reverse=True):
        with suppress(StoreError):
            experiments.append(load_experiment(whole_inside(store.home, about.parent)))
    return experiments
