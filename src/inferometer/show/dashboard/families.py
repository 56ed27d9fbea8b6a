"""Histories as pages show them. A family is what is watched together: one kind of run of one model, engine and
hardware; its series are the identities in it, told apart by what differs in their plans: batch sizes, lengths, rates.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from inferometer.errors import StoreError
from inferometer.judge.changes import change_points
from inferometer.judge.identity import identity
from inferometer.measure.values import Quantity, canonical, quantities
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.show.charts.history import MOST_SERIES
from inferometer.store.entry import Entry, flat

MOST_POINTS = 2_000  # of one series; the last ones
STATISTICS = ("mean", "p50", "p90", "p99", None)
_SHORT = {  # what most series are told apart by: a legend has little room
    "input_tokens": "in",
    "output_tokens": "out",
    "input_len": "in",
    "output_len": "out",
    "batch_size": "batch",
    "concurrency": "c",
}
_DONE = ("complete", "interrupted")
_OF_BATCH = re.compile(r"latency_bs(\d+)(?:_in(\d+)_out(\d+))?")
LATENCY = "latency"  # the measure whose series are batch sizes

Load = Callable[[Entry], Run]


@dataclass(frozen=True)
class Series:
    identity: str
    label: str
    entries: list[Entry]  # the oldest first
    batch: str = ""  # latency_bs8: the numbers of one batch size of these runs

    def stored(self, key: str) -> str | None:
        """The name under which the runs have a number of the family; None where it is another series' number."""
        name, _, statistic = key.partition(".")
        if name == LATENCY and self.batch:
            return f"{self.batch}.{statistic}"
        return None if self.batch else key


@dataclass(frozen=True)
class Family:
    id: str
    title: str
    kind: str
    series: list[Series]
    keys: dict[str, Quantity]  # what there is to watch: its newest run's numbers that can be better or worse
    left_out: int  # series beyond the most that are shown

    @property
    def runs(self) -> int:
        return len({entry.id for each in self.series for entry in each.entries})

    @property
    def newest(self) -> list[Entry]:
        """The newest run of each series, once."""
        return list({entry.id: entry for each in self.series for entry in each.entries[-1:]}.values())

    @property
    def updated(self) -> str:
        return max(each.entries[-1].started_at for each in self.series)


def families(entries: Iterable[Entry], load: Load) -> list[Family]:
    """Of entries in any order; that with the newest run first. `load` is asked for one run of each series."""
    done = [entry for entry in entries if entry.state in _DONE and entry.identity]
    ordered = sorted(done, key=lambda entry: (_kin(entry), entry.started_at, entry.id))
    found = [_family(kin, list(group), load) for kin, group in groupby(ordered, _kin)]
    return sorted((each for each in found if each is not None), key=lambda each: each.updated, reverse=True)


def _kin(entry: Entry) -> tuple[str, ...]:
    own = entry.name if entry.kind == "benchmark" else ""
    said = (entry.kind, own, entry.model, entry.engine, entry.hardware_id, entry.hardware, entry.source)
    return tuple(each or "" for each in said)


def _family(kin: tuple[str, ...], entries: Sequence[Entry], load: Load) -> Family | None:
    by_identity: dict[str, list[Entry]] = {}
    for entry in entries:
        by_identity.setdefault(entry.identity or "", []).append(entry)
    longest = sorted(by_identity.items(), key=lambda each: (len(each[1]), each[1][-1].started_at), reverse=True)
    read = {each: run for each, own in longest[:MOST_SERIES] if (run := _newest_readable(own, load)) is not None}
    if not read:
        return None
    labels = labels_of(read)
    whole = [Series(each, labels[each], by_identity[each][-MOST_POINTS:]) for each in read]
    series, keys = _by_batch(whole, _keys(read.values()))
    series.sort(key=lambda each: _natural(each.label))
    if not keys:
        return None
    kind, own, model, engine, _, hardware, source = kin
    title = " · ".join(filter(None, (own, model, engine, hardware, source and f"from {source}"))) or kind
    number = hashlib.sha256("\0".join(kin).encode()).hexdigest()[:12]
    left_out = len(by_identity) - len(read) + max(0, len(series) - MOST_SERIES)
    return Family(number, title, kind, series[:MOST_SERIES], keys, left_out)


def _by_batch(series: list[Series], keys: dict[str, Quantity]) -> tuple[list[Series], dict[str, Quantity]]:
    """Latencies of batches are one measure, and each size is a series of it."""
    sizes = {each.name: found for each in keys.values() if (found := _OF_BATCH.fullmatch(each.name))}
    if not sizes:
        return series, keys
    other = {key: each for key, each in keys.items() if each.name not in sizes}
    own = [replace(each, name=LATENCY, title="Latency of a batch") for each in keys.values() if each.name in sizes]
    split = [
        replace(each, label=_batch_label(each.label, size, len(series) > 1), batch=name)
        for each in series
        for name, size in sizes.items()
    ]
    return [*split, *(series if other else [])], {each.key: each for each in own} | other


def _batch_label(label: str, size: re.Match[str], several: bool) -> str:
    lengths = f", in {size[2]}, out {size[3]}" if size[2] else ""
    return f"batch {size[1]}{lengths}" + (f", {label}" if several else "")


def _newest_readable(entries: Sequence[Entry], load: Load) -> Run | None:
    for entry in reversed(entries[-3:]):
        try:
            run = load(entry)
        except StoreError:
            continue  # on another machine, or deleted just now
        if run.summary != Summary():
            return run
    return None


def _keys(runs: Iterable[Run]) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for run in runs:
        found |= {key: each for key, each in quantities(run.summary).items() if _is_watched(each)}
    return found


def _is_watched(each: Quantity) -> bool:
    """What can be better or worse, and be asked for: the index finds small letters, and commas part names."""
    named = canonical(each.key) == each.key and "," not in each.key
    return named and each.direction is not None and each.statistic in STATISTICS


def labels_of(runs: Mapping[str, Run]) -> dict[str, str]:
    """What differs between the identities, shortly: `in 300, rate 10`. The shortest name that is clear."""
    said = {name: _settings(run) for name, run in runs.items()}
    paths = dict.fromkeys(path for settings in said.values() for path in settings)
    differing = [path for path in paths if len({settings.get(path) for settings in said.values()}) > 1]
    short = _short(differing)
    return _distinct({name: _label(settings, short) or "all runs" for name, settings in said.items()})


def _distinct(labels: dict[str, str]) -> dict[str, str]:
    """Series of one label would be one line: the second has a number."""
    seen: dict[str, int] = {}
    told = {}
    for name, label in labels.items():
        seen[label] = seen.get(label, 0) + 1
        told[name] = label if seen[label] == 1 else f"{label} ({seen[label]})"
    return told


def _settings(run: Run) -> dict[str, str]:
    parts = identity(run).parts
    return flat(parts["workload"]) | {f"stack.{path}": text for path, text in flat(parts["stack"]).items()}


def _label(settings: Mapping[str, str], short: Mapping[str, str]) -> str:
    return ", ".join(f"{short[path]} {settings[path]}" for path in short if path in settings)


def _short(paths: Sequence[str]) -> dict[str, str]:
    last = [path.rpartition(".")[2] for path in paths]
    clear = {path: word if last.count(word) == 1 else path for path, word in zip(paths, last, strict=True)}
    return {path: _SHORT.get(word, word) for path, word in clear.items()}


def _natural(label: str) -> list[tuple[int, float, str]]:
    """So that 8 comes before 16."""
    return [(0, float(word), "") if _is_number(word) else (1, 0.0, word) for word in label.replace(",", "").split()]


def _is_number(word: str) -> bool:
    return word.replace(".", "", 1).isdigit()


def summary_of(family: Family) -> dict[str, Any]:
    """A family as a line of the list of histories."""
    series = [{"identity": each.identity, "label": each.label, "runs": len(each.entries)} for each in family.series]
    return {
        "id": family.id,
        "title": family.title,
        "kind": family.kind,
        "runs": family.runs,
        "updated": family.updated,
        "series": series,
        "left_out": family.left_out,
        "measures": [_measure(key, each) for key, each in family.keys.items()],
    }


def _measure(key: str, each: Quantity) -> dict[str, Any]:
    title = each.title if each.statistic is None else f"{each.title} {each.statistic}"
    said = {"key": key, "name": each.name, "title": title, "section": each.title}
    return {**said, "unit": each.unit, "direction": each.direction}


def points_of(series: Series, key: str) -> list[dict[str, Any]]:
    """One measure of one series over time, with what changed between runs."""
    return list(_points(series, key))


def _points(series: Series, key: str) -> Iterator[dict[str, Any]]:
    stored = series.stored(key)
    for entry in series.entries:
        if stored is not None and (value := entry.values.get(stored)) is not None:
            axes = {"version": entry.engine_version, "commit": entry.commit and entry.commit[:12]}
            known = {name: said for name, said in axes.items() if said}
            yield {"run": entry.id, "at": entry.started_at, "value": value, "verdict": entry.verdict, **known}


def changes_in(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Where a series of points changed: the run from which on it is different, and by how much."""
    sound = [point for point in points if point.get("verdict") != "invalid"]
    found = change_points([point["value"] for point in sound])
    return [
        {
            "run": sound[each.index]["run"],
            "at": sound[each.index]["at"],
            "before": each.before,
            "after": each.after,
            "change": each.change,
            "drift": each.is_drift,
        }
        for each in found
    ]
