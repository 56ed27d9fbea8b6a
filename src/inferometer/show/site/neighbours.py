"""Each run against the one before it of the same kind, judged while the site is made: a page without a server has no
records to judge by."""

from collections.abc import Iterable
from typing import Any

from inferometer.show.dashboard.answers import Answers
from inferometer.show.site.data import public
from inferometer.store.entry import Entry


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
