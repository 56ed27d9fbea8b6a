"""From what a person writes, `--store` and `--records`, to a store."""

import functools
import hashlib
import os
from pathlib import Path

from inferometer.errors import PlanError
from inferometer.store.databases import PostgresIndex, SqliteIndex, is_postgres
from inferometer.store.folder import data_folder
from inferometer.store.objects import Objects, is_object_store
from inferometer.store.store import Store

Place = Store | Path | str | None  # what every function that keeps or finds runs takes


def open_store(where: Place = None, records: str | Path | None = None) -> Store:
    """A folder, or `postgresql://user@host/database` with the run folders at `records`: a folder, `s3://...` or
    `gs://...`. Without arguments the usual one: `$INFEROMETER_STORE` and `$INFEROMETER_RECORDS`."""
    if isinstance(where, Store):
        return where
    chosen = str(where or os.environ.get("INFEROMETER_STORE") or data_folder())
    kept_at = str(records or os.environ.get("INFEROMETER_RECORDS") or "").removeprefix("file://")
    if is_object_store(chosen):
        hint = f"keep the index in a folder or in PostgreSQL: --store FOLDER --records {chosen}"
        raise PlanError(f"--store {chosen}: run folders can be kept there, the index cannot", hint)
    for name, said in (("--store", chosen), ("--records", kept_at)):
        if "://" in said and not (is_postgres(said) if name == "--store" else is_object_store(said)):
            takes = "a folder or postgresql://..." if name == "--store" else "a folder, s3://... or gs://..."
            raise PlanError(f"{name}: takes {takes}, not {said.partition('://')[0]}://")
    return _opened(chosen, kept_at)


@functools.lru_cache(maxsize=16)
def _opened(where: str, records: str) -> Store:
    objects = Objects(records) if is_object_store(records) else None
    if is_postgres(where):
        return _of_team(where, records, objects)
    folder = Path(where).expanduser()
    home = Path(records).expanduser() if records and objects is None else folder
    return Store(home=home, database=SqliteIndex(folder, home), objects=objects, folder=folder)


def _of_team(url: str, records: str, objects: Objects | None) -> Store:
    """Runs on their way to an object store wait in a folder of their own."""
    if objects is not None:
        home = data_folder() / "outgoing" / hashlib.sha256(objects.url.encode()).hexdigest()[:12]
    else:
        home = Path(records).expanduser() if records else data_folder()
    warnings = []
    if not records:
        warnings.append(
            f"run folders stay on this machine, in {home}: --records s3://... or a shared folder for a team"
        )
    return Store(home=home, database=PostgresIndex(url), objects=objects, warnings=warnings)
