"""What is news: something that was fine is not, something else is wrong now, or it is fine again. Once each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from inferometer.errors import StoreError
from inferometer.show.notify.channels import Channel
from inferometer.show.notify.delivery import Delivered
from inferometer.show.notify.delivery import deliver as _deliver
from inferometer.show.notify.event import Event
from inferometer.show.notify.notebook import Note, Notes, notebook
from inferometer.store.store import Store

Deliver = Callable[[Event, Sequence[Channel]], list[Delivered]]


@dataclass(frozen=True)
class Finding:
    """How a subject is now. `what` is wrong, empty when nothing is; `event` says either in words."""

    what: tuple[str, ...]
    event: Event

    @property
    def subject(self) -> str:
        return self.event.subject


def tell(
    store: Store,
    finding: Finding,
    channels: Sequence[Channel],
    deliver: Deliver | None = None,
    *,
    until: float | None = None,
) -> list[Delivered]:
    """Tell whoever has not heard; a channel that could not be reached is tried again with the next finding. Where the
    store cannot remember, it is told nevertheless: twice is better than never. `until` is an instant of the monotonic
    clock after which nobody is waited for."""
    said = deliver or partial(_deliver, until=until)
    sent: list[Delivered] = []
    try:
        with notebook(store, until) as notes:
            sent += _told(notes, finding, channels, said)
    except StoreError:
        if finding.what and not sent:
            sent += said(finding.event, channels)
    return sent


def _told(notes: Notes, finding: Finding, channels: Sequence[Channel], deliver: Deliver) -> list[Delivered]:
    known = notes.get(finding.subject)
    if not finding.what:
        return _recovered(notes, finding, known, channels, deliver) if known else []
    if known and set(finding.what) <= set(known.what):
        due = [each for each in channels if each.name not in known.told]
        note = known
    else:
        due = list(channels)
        since = known.since if known else finding.event.at
        what = tuple(sorted({*finding.what, *(known.what if known else ())}))
        note = Note(what, (), finding.event.run, since)
    sent = deliver(finding.event, due) if due else []
    heard = {*note.told, *(each.channel for each in sent if each.arrived)}
    if heard:  # else nobody knows: it is news still
        notes[finding.subject] = replace(note, told=tuple(sorted(heard)))
    return sent


def _recovered(
    notes: Notes, finding: Finding, known: Note, channels: Sequence[Channel], deliver: Deliver
) -> list[Delivered]:
    """Those who heard that it was wrong hear that it is not any more."""
    due = [each for each in channels if each.name in known.told]
    sent = deliver(finding.event, due) if due else []
    waiting = tuple(each.channel for each in sent if not each.arrived)
    if waiting:
        notes[finding.subject] = replace(known, told=waiting)
    else:
        del notes[finding.subject]
    return sent
