"""Runs, experiments and files by the names that requests give. Nothing outside the store is ever opened: a name is one
word, it has to be known to the index, and what it leads to has to lie in the store's own folders."""

import re
from contextlib import suppress
from pathlib import Path

from inferometer.errors import StoreError
from inferometer.record.run import Run
from inferometer.show.dashboard.documents import FileRow
from inferometer.store.entry import Entry
from inferometer.store.experiments import ABOUT, KeptExperiment, load_experiment
from inferometer.store.folder import load_run
from inferometer.store.store import Store

_NAME = re.compile(r"[A-Za-z0-9][\w.:+@~-]{0,199}", re.ASCII)
SHOWN_FILES = (".log", ".txt", ".json", ".yaml", ".jsonl", ".csv", ".md")
READ = (".json", ".jsonl", ".yaml", ".parquet", ".bin")  # what runs and experiments are made of
LARGEST_SHOWN = 4 * 2**20  # bytes of a log; its end says most


class NotFound(StoreError):
    """There is no such thing in the store."""


class Refused(StoreError):
    """It would be outside the store, or is not for everybody's eyes."""


def entry_of(store: Store, wanted: str) -> Entry:
    """By its id, the start of one, `latest`, a baseline or a tag; never by a path."""
    if not _NAME.fullmatch(wanted) or ".." in wanted:
        raise NotFound(f"not the id of a run: {wanted[:80]!r}")
    try:
        return store.entry(wanted)
    except StoreError as error:
        raise NotFound(error.message, error.hint) from error


def run_of(store: Store, entry: Entry) -> Run:
    """From the folder that the index names; one in an object store comes through the store's cache."""
    if "://" in entry.location and not entry.location.startswith("file://"):
        return store.load(entry.id)
    return load_run(whole_inside(store.home, entry.folder))


def inside(home: Path, path: Path) -> Path:
    """The path, if it lies in the store after every link was followed."""
    try:
        leads_to = path.resolve()
    except (OSError, RuntimeError) as error:  # a link that leads to itself
        raise Refused(f"{path.name}: {error}") from error
    if not leads_to.is_relative_to(home.resolve()):
        raise Refused(f"{path.name}: lies outside the store", "copy it into the store instead of linking to it")
    return path


def whole_inside(home: Path, folder: Path) -> Path:
    """The folder, if it stays in the store, and what a run or an experiment is read from too: a plan may be a link.
    Other files are shown by `file_text`, which follows none."""
    with suppress(OSError):  # gone just now: who reads it says so
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
    """A text file of a run; of a large one the end."""
    if run.folder is None or name not in {file.name for file in files_of(store, run)}:
        raise NotFound(f"{run.id}: no file {name[:80]!r} that could be shown")
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
    """The newest first; what is half written, or what a link would bring in from elsewhere, is left out."""
    experiments = []
    for about in sorted((store.home / "experiments").glob(f"*/{ABOUT}"), reverse=True):
        with suppress(StoreError):
            experiments.append(load_experiment(whole_inside(store.home, about.parent)))
    return experiments
