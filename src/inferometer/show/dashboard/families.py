"""Histories for pages. A family is what is tracked together: one kind of run of one model, engine and hardware; its
series are the identities in it, named by what differs in their plans: lengths, rates, batch sizes."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from inferometer.errors import StoreError
from inferometer.judge.changes import change_points
from inferometer.measure.values import Quantity, canonical, quantities
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.show.about import hardware_name, series_names, short_model
from inferometer.show.charts.history import MOST_SERIES
from inferometer.show.dashboard.documents import title_of
from inferometer.store.entry import Entry

MOST_POINTS = 2_000  # of one series, counted from the end
STATISTICS = ("mean", "p50", "p90", "p99", None)
_DONE = ("complete", "interrupted")
_OF_BATCH = re.compile(r"latency_bs(\d+)(?:_in(\d+)_out(\d+))?")
LATENCY = "latency"  # measure with batch sizes as series
RATES = ("request_rate", "input_rate", "output_rate", "total_rate")
BASES = ("window", "span")

LoadRun = Callable[[Entry], Run]


@dataclass(frozen=True)
class FamilySeries:
    identity: str
    label: str
    entries: list[Entry]  # oldest first
    workload: str = ""  # in words
    load: str = ""
    batch: str = ""  # latency_bs8: the numbers of one batch size of these runs

    @property
    def id(self) -> str:
        """Short, for addresses; stays the same as long as the series does."""
        return hashlib.sha256(f"{self.identity} {self.batch}".encode()).hexdigest()[:6]

    def stored(self, key: str) -> str | None:
        """The name under which the runs store a number of the family; None if the number belongs to another series."""
        name, _, statistic = key.partition(".")
        if name == LATENCY and self.batch:
            return f"{self.batch}.{statistic}"
        return None if self.batch else key

    def stored_on(self, key: str) -> list[str]:
        """The same, for a rate on either basis: a history is drawn on one."""
        name = self.stored(key)
        if name is None:
            return []
        return [name, *(f"{name}.{basis}" for basis in BASES)] if name in RATES else [name]


@dataclass(frozen=True)
class Family:
    id: str
    title: str
    kind: str
    model: str
    engine: str
    hardware: str
    series: list[FamilySeries]
    keys: dict[str, Quantity]  # what can be tracked: numbers of its newest run that have a better direction
    left_out: int  # number of series beyond the maximum shown

    @property
    def runs(self) -> int:
        return len({entry.id for series in self.series for entry in series.entries})

    @property
    def newest(self) -> list[Entry]:
        """The newest run of each series, once."""
        return list({entry.id: entry for series in self.series for entry in series.entries[-1:]}.values())

    @property
    def updated(self) -> str:
        return max(series.entries[-1].started_at for series in self.series)


def families(entries: Iterable[Entry], load: LoadRun) -> list[Family]:
    """Families of entries in any order; the one with the newest run first. `load` is called for one run of each
    series."""
    done = [entry for entry in entries if entry.state in _DONE and entry.identity]
    ordered = sorted(done, key=lambda entry: (_kin(entry), entry.started_at, entry.id))
    candidates = [_family(kin, list(group), load) for kin, group in groupby(ordered, _kin)]
    return sorted(
        (family for family in candidates if family is not None), key=lambda family: family.updated, reverse=True
    )


def _kin(entry: Entry) -> tuple[str, ...]:
    own = entry.name if entry.kind == "benchmark" else ""
    fields = (entry.kind, own, entry.model, entry.engine, entry.hardware_id, entry.hardware, entry.source)
    return tuple(field or "" for field in fields)


def _family(kin: tuple[str, ...], entries: Sequence[Entry], load: LoadRun) -> Family | None:
    by_identity: dict[str, list[Entry]] = {}
    for entry in entries:
        by_identity.setdefault(entry.identity or "", []).append(entry)
    longest = sorted(by_identity.items(), key=lambda item: (len(item[1]), item[1][-1].started_at), reverse=True)
    read = {item: run for item, own in longest[:MOST_SERIES] if (run := _newest_readable(own, load)) is not None}
    if not read:
        return None
    labels = series_names(read, versions=False)
    whole = [_series(item, labels[item], run, by_identity[item]) for item, run in read.items()]
    series, keys = _by_batch(whole, read)
    series.sort(key=lambda item: natural(item.label))
    if not keys:
        return None
    kind, own, model, _, _, _, source = kin
    newest = max(read.values(), key=lambda run: run.started_at)
    engine, hardware = newest.subject.engine_text, hardware_name(newest)
    parts = (own, short_model(model), engine, hardware, source and f"from {source}")
    return Family(
        id=hashlib.sha256("\0".join(kin).encode()).hexdigest()[:12],
        title=" · ".join(filter(None, parts)) or kind,
        kind=kind,
        model=short_model(model) or own,
        engine=engine,
        hardware=hardware,
        series=series[:MOST_SERIES],
        keys=keys,
        left_out=len(by_identity) - len(read) + max(0, len(series) - MOST_SERIES),
    )


def _series(identity: str, label: str, run: Run, entries: Sequence[Entry]) -> FamilySeries:
    return FamilySeries(identity, label, list(entries[-MOST_POINTS:]), run.subject.workload, run.subject.load)


def _by_batch(series: list[FamilySeries], runs: Mapping[str, Run]) -> tuple[list[FamilySeries], dict[str, Quantity]]:
    """Latencies of batches are one measure, with a series for each batch size."""
    keys = _keys(runs.values())
    sizes = {item.name: match for item in keys.values() if (match := _OF_BATCH.fullmatch(item.name))}
    if not sizes:
        return series, keys
    other = {key: item for key, item in keys.items() if item.name not in sizes}
    own = [replace(item, name=LATENCY, title="Batch latency") for item in keys.values() if item.name in sizes]
    pairs = [(item, name) for item in series for name in sizes if name in runs[item.identity].summary.measures]
    several = len({name for _, name in pairs}) < len(pairs)
    split = [replace(item, label=_batch_label(item.label, sizes[name], several), batch=name) for item, name in pairs]
    return [*split, *(series if other else [])], {item.key: item for item in own} | other


def _batch_label(label: str, size: re.Match[str], several: bool) -> str:
    lengths = f", {size[2]} in, {size[3]} out" if size[2] else ""
    return f"batch {size[1]}{lengths}" + (f", {label}" if several else "")


def _newest_readable(entries: Sequence[Entry], load: LoadRun) -> Run | None:
    for entry in reversed(entries[-3:]):
        try:
            run = load(entry)
        except StoreError:
            continue  # on another machine, or just deleted
        if run.summary != Summary():
            return run
    return None


def _keys(runs: Iterable[Run]) -> dict[str, Quantity]:
    numbers: dict[str, Quantity] = {}
    for run in runs:
        numbers |= {key: quantity for key, quantity in quantities(run.summary).items() if _is_watched(quantity)}
    return numbers


def _is_watched(quantity: Quantity) -> bool:
    """Numbers with a better direction that can be requested: the index has lower-case names, and commas separate
    names."""
    named = canonical(quantity.key) == quantity.key and "," not in quantity.key
    return named and quantity.direction is not None and quantity.statistic in STATISTICS


def natural(label: str) -> list[tuple[int, float, str]]:
    """A sort key by which 8 comes before 16."""
    return [(0, float(part), "") if _is_number(part) else (1, 0.0, part) for part in label.replace(",", "").split()]


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() and text.isascii()


# -- documents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeriesRow:
    id: str
    label: str
    runs: int
    workload: str
    load: str


@dataclass(frozen=True)
class WatchedMeasure:
    key: str
    name: str
    title: str
    section: str
    unit: str
    direction: str | None
    file: str | None = None  # of the static site


@dataclass(frozen=True)
class FamilyRow:
    """A family as a line of the list of histories."""

    id: str
    title: str
    kind: str
    runs: int
    updated: str
    series: list[SeriesRow]
    left_out: int
    measures: list[WatchedMeasure]


def family_row(family: Family) -> FamilyRow:
    return FamilyRow(
        id=family.id,
        title=family.title,
        kind=family.kind,
        runs=family.runs,
        updated=family.updated,
        series=[SeriesRow(s.id, s.label, len(s.entries), s.workload, s.load) for s in family.series],
        left_out=family.left_out,
        measures=[_measure(key, quantity) for key, quantity in family.keys.items()],
    )


def _measure(key: str, quantity: Quantity) -> WatchedMeasure:
    return WatchedMeasure(key, quantity.name, title_of(quantity), quantity.title, quantity.unit, quantity.direction)


# -- points ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """A run's value of one measure."""

    run: str
    at: str
    value: float
    verdict: str | None
    version: str | None
    commit: str | None
    weak: bool = False  # a percentile of too few samples

    @property
    def sound(self) -> bool:
        return self.verdict != "invalid"

    @property
    def came_with(self) -> str:
        texts = (f"version {self.version}" if self.version else "", f"commit {self.commit}" if self.commit else "")
        return ", ".join(filter(None, texts))


@dataclass(frozen=True)
class SeriesChange:
    """A change point of a series: the first run of the new level, and its difference from the previous level."""

    run: str
    at: str
    before: float
    after: float
    change: float | None
    drift: bool
    commit: str | None
    version: str | None


def points_of(series: FamilySeries, key: str) -> list[SeriesPoint]:
    """One measure of one series over time."""
    return list(_points(series, key))


def _points(series: FamilySeries, key: str) -> Iterator[SeriesPoint]:
    stored = series.stored(key)
    if stored is None:
        return
    basis = _common_basis(series.entries, stored) if stored in RATES else None
    for entry in series.entries:
        if (value := _value(entry, stored, basis)) is not None:
            commit = entry.commit[:12] if entry.commit else None
            about = entry.id, entry.started_at, value, entry.verdict, entry.engine_version, commit
            yield SeriesPoint(*about, weak=stored in entry.weak_keys)


def _common_basis(entries: Sequence[Entry], key: str) -> str:
    """The window if it is the headline basis of every run, else the span; runs indexed by older versions have only the
    headline."""
    values = [entry.values for entry in entries if key in entry.values]
    return "window" if all(own.get(f"{key}.window") in (None, own[key]) for own in values) else "span"


def _value(entry: Entry, key: str, basis: str | None) -> float | None:
    headline = entry.values.get(key)
    return headline if basis is None else entry.values.get(f"{key}.{basis}", headline)


def changes_in(points: Sequence[SeriesPoint]) -> list[SeriesChange]:
    """Runs that are invalid as measurements are ignored."""
    sound = [point for point in points if point.sound]
    return [
        SeriesChange(
            run=sound[change.index].run,
            at=sound[change.index].at,
            before=change.before,
            after=change.after,
            change=change.change,
            drift=change.is_drift,
            commit=sound[change.index].commit,
            version=sound[change.index].version,
        )
        for change in change_points([point.value for point in sound])
    ]


def values_by_label(family: Family, key: str) -> Mapping[str, list[SeriesPoint]]:
    return {series.label: points for series in family.series if (points := points_of(series, key))}
