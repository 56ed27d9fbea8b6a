"""The table of runs: filtered by the words of `list --where`, searched, sorted, a page at a time."""

from collections.abc import Iterable, Sequence
from typing import Any

from inferometer.show.dashboard.documents import row
from inferometer.store.entry import Entry
from inferometer.store.store import Store

MOST = 500  # rows a page
_SEARCHED = ("id", "name", "model", "target", "engine", "engine_version", "commit", "hardware", "kind", "state")


def page_of(
    store: Store,
    *,
    where: Sequence[str] = (),
    search: str = "",
    sort: str | None = None,
    columns: Sequence[str] = (),
    limit: int = 50,
    offset: int = 0,
) -> dict[str, Any]:
    found = searched(store.runs(where=where, sort=sort, columns=columns), search)
    shown = found[offset : offset + min(limit, MOST)]
    return {"total": len(found), "offset": offset, "runs": [row(entry, columns) for entry in shown]}


def searched(entries: Iterable[Entry], text: str) -> list[Entry]:
    """Those that have every word somewhere, small or capital."""
    words = text.lower().split()
    return [entry for entry in entries if all(word in _said(entry) for word in words)] if words else list(entries)


def _said(entry: Entry) -> str:
    said = [str(getattr(entry, name) or "") for name in _SEARCHED]
    return " ".join([*said, entry.verdict or "", entry.source or "", entry.experiment or "", *entry.tags]).lower()
