"""What pages know of runs, as plain data: documents of runs, and the table of runs a page at a time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inferometer.judge.compare import OBSERVED
from inferometer.measure.values import Quantity, quantities
from inferometer.record.encoding import document_of
from inferometer.record.run import KINDS, STATES, Run, document
from inferometer.record.schema import schema_of
from inferometer.record.summary import Summary
from inferometer.show.runs import PLAIN, cell, entry_document
from inferometer.store.entry import Entry
from inferometer.store.store import Store
from inferometer.vocabulary import MEASURES

# -- documents -------------------------------------------------------------------------------------------------------

OF_THE_MACHINE = ("folder", "location", "damage", "remedy")  # where files are is nobody's business but the machine's
USUAL = ("verdict", "name", "model", "engine_version")
NUMBERS = ("ttft.p50", "ttft.p99", "tpot.p50", "output_rate")


def row(entry: Entry, columns: Sequence[str] = ()) -> dict[str, Any]:
    """A run as a line of the table; `more` has what was asked for beside it."""
    said = {name: value for name, value in entry_document(entry).items() if name not in OF_THE_MACHINE}
    more = {name: cell(entry, name) for name in columns if name not in OF_THE_MACHINE}
    return {**{name: value for name, value in said.items() if value is not None}, "more": more}


def names() -> dict[str, Any]:
    """What columns, measures, kinds and states are called."""
    measures = {
        each.name: {"title": each.title, "unit": each.unit, "direction": each.direction} for each in MEASURES.values()
    }
    plain = [name for name in PLAIN if name not in (*OF_THE_MACHINE, "tag")]
    usual = {"columns": [*USUAL, *NUMBERS], "plain": plain}
    return {"measures": measures, "kinds": dict(KINDS), "states": dict(STATES), **usual}


def run_document(run: Run, entry: Entry | None = None) -> dict[str, Any]:
    """A run as its page shows it: `document`, its numbers by name, and what people said of it."""
    whole = document(run)
    about = {name: value for name, value in whole["run"].items() if name != "folder"}
    marks = {"tags": list(entry.tags), "experiment": entry.experiment, "case": entry.case} if entry else {}
    found = quantities(run.summary)
    return {
        "schema": schema_of("run"),
        "run": about | {"state_means": STATES[run.state], "kind_means": KINDS[run.kind]},
        "marks": marks | {"identity": entry.identity if entry else None},
        "verdict": whole["verdict"],
        "limits": document_of(run.summary.limits),
        "headline": headline(found, run.summary),
        "quantities": [quantity_row(each) for each in found.values()],
        "outcomes": run.summary.outcomes,
        "plan": run.plan,
        "environment": run.environment,
    }


def headline(found: Mapping[str, Quantity], summary: Summary) -> list[str]:
    """The keys that a person looks at first; of a run of another kind, its first that can be better or worse."""
    late = "_scheduled" if summary.loop in ("open", "mixed") else ""
    first = [f"ttft{late}.p50", f"ttft{late}.p99", "tpot.p50", f"e2e{late}.p50", "request_rate", "output_rate"]
    there = [key for key in (*first, "goodput", "failure_rate") if key in found]
    return there if len(there) > 1 else [key for key, each in found.items() if each.direction is not None][:8]


def quantity_row(each: Quantity) -> dict[str, Any]:
    low, high = each.interval or (None, None)
    return {
        "key": each.key,
        "title": each.title if each.statistic is None else f"{each.title} {each.statistic}",
        "unit": each.unit,
        "direction": each.direction,
        "value": each.value,
        "low": low,
        "high": high,
        "observed": each.key in OBSERVED,
    }


# -- listing ---------------------------------------------------------------------------------------------------------

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
