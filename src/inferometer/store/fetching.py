"""A run from wherever its folder is: on this machine, or in an object store and then in the cache."""

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.errors import StoreError
from inferometer.record.run import Run
from inferometer.store.find import Found
from inferometer.store.folder import RECORDS, SAMPLES, load_run
from inferometer.store.index import folder_at
from inferometer.store.manifest import Files
from inferometer.store.objects import Objects

if TYPE_CHECKING:
    from inferometer.store.store import Store


def whole_folder(store: "Store", place: Found) -> Path:
    """With all its files."""
    objects = store.objects_of(place.location)
    if objects is None:
        return _local(store, place)
    folder = folder_at(place.location, place.id, store.home)
    objects.fetch(place.location, folder, whole=True)
    return folder


def lazy_run(store: "Store", place: Found) -> Run:
    """Its large files come when they are asked for."""
    objects = store.objects_of(place.location)
    if objects is None:
        return load_run(_local(store, place))
    folder = folder_at(place.location, place.id, store.home)
    files = objects.fetch(place.location, folder, whole=False)
    run = load_run(folder, files_elsewhere=files)
    records = _reading(objects, place, folder, files, RECORDS, Run.records)
    samples = _reading(objects, place, folder, files, SAMPLES, Run.samples)
    return replace(run, read_records=records, read_samples=samples)


def _reading(
    objects: Objects, place: Found, folder: Path, files: Files, name: str, ask: Callable[[Run], Any]
) -> Callable[[], Any] | None:
    """None where the run has no such file."""

    def read() -> Any:
        objects.fetch_file(place.location, folder, name, files)
        return ask(load_run(folder, files_elsewhere=files))

    return read if name in files else None


def _local(store: "Store", place: Found) -> Path:
    folder, here = folder_at(place.location, place.id, store.home), platform.node()
    host = place.location.removeprefix("file://").partition("/")[0] if "://" in place.location else here
    if host != here and not folder.is_dir():
        hint = "look at it there, or keep runs where all can read them: --records s3://... or a shared folder"
        raise StoreError(f"{place.id}: its folder is on {host}, at {folder}", hint)
    return folder
