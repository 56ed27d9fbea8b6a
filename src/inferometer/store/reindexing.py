"""The index made anew from the run folders: those of this machine and those in the object store."""

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection

from inferometer.errors import StoreError
from inferometer.store import index
from inferometer.store.damage import damaged_by
from inferometer.store.entry import CHANGING, DAMAGED, Listing, damaged_listing, listing_at, listing_of
from inferometer.store.folder import load_run
from inferometer.store.objects import Objects, folders_in, remove_leftovers

if TYPE_CHECKING:
    from inferometer.store.store import Store


class Reindexed(NamedTuple):
    """What was found when the index was made anew."""

    runs: int
    uploaded: int  # of those, that had waited for it
    damaged: dict[str, tuple[str, str]]  # by id: what is wrong, and what to do
    half_uploaded: list[str]  # by another machine


def reindexed(store: "Store") -> Reindexed:
    remove_leftovers(store.home)
    folders = folders_in(store.home)
    listings = [entry for path in folders.values() if (entry := listing_at(path, store.location_of(path)))]
    waiting = [each.row["id"] for each in listings if store.objects and each.row["state"] not in CHANGING]
    remote, half = store.objects.runs() if store.objects else ([], [])
    there = [_remote_listing(store, store.objects, id_) for id_ in remote if id_ not in folders and store.objects]

    def write(db: Connection) -> None:
        index.one_writer(db)
        _forget_ours(store, db)
        index.enter(db, [*listings, *there])

    store.change(write)
    for id_ in waiting:
        store.add(load_run(folders[id_]))
    damaged = {
        each.row["id"]: (each.row["damage"], each.row["remedy"])
        for each in [*listings, *there]
        if each.row["state"] == DAMAGED
    }
    return Reindexed(len(listings) + len(there), len(waiting), damaged, [id_ for id_ in half if id_ not in folders])


def _forget_ours(store: "Store", db: Connection) -> None:
    """Everything that is read from folders again; not what other machines keep. Baselines stay: one whose run was
    deleted should be named as that."""
    known = index.known_runs(db)
    ours = [id_ for id_, (_, location) in known.items() if _is_ours(store, id_, location)]
    if len(ours) == len(known):
        index.forget_all(db)
    else:
        index.forget(db, ours)
    index.forget_marks(db, ours)


def _is_ours(store: "Store", id_: str, location: str) -> bool:
    return (store.objects is not None and location == store.objects.at(id_)) or store.was_here(id_, location)


def _remote_listing(store: "Store", objects: Objects, id_: str) -> Listing:
    location, folder = objects.at(id_), store.home / "cache" / id_
    try:
        files = objects.fetch(location, folder, whole=False)
        return listing_of(load_run(folder, files_elsewhere=files), location)
    except StoreError as error:
        return damaged_listing(damaged_by(error, folder), location)
