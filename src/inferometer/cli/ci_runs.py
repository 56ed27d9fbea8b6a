"""Which runs `inferometer ci` is about: by name, by experiment, by a check that was made already, or all since."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from inferometer import vocabulary
from inferometer.comparison import runs_named
from inferometer.documents.files import file_bytes, text_in
from inferometer.documents.json_text import json_value
from inferometer.errors import DataError, StoreError
from inferometer.record.files import told
from inferometer.record.run import Run
from inferometer.record.schema import check_schema
from inferometer.store.entry import Entry
from inferometer.store.experiments import KeptExperiment, experiments_of
from inferometer.store.store import Store


@dataclass(frozen=True)
class Subject:
    """A run, and what is known of it beside. A case that failed before there was a run has no id."""

    run: Run
    check: Mapping[str, Any] | None = None  # None: it was not made yet
    label: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


def subjects_of(
    what: Sequence[str], since: str | None, store: Store, *, here: bool
) -> tuple[list[Subject], list[KeptExperiment]]:
    """Each run once, and the experiments that are told of as a whole."""
    found: list[Subject] = []
    experiments: list[KeptExperiment] = []
    if since is not None:
        start = _instant(since)
        experiments += [each for each in experiments_of(store.home) if _at(each.started_at) >= start]
        found += _since(start, experiments, store, here)
    for word in what or (("latest",) if since is None else ()):
        if (experiment := _experiment(word, store)) is not None:
            experiments.append(experiment)
            found += _cases(experiment, store)
        else:
            found += _runs(word, store)
    return list(_once(found)), list({each.id: each for each in experiments}.values())


def _once(found: Sequence[Subject]) -> Iterator[Subject]:
    seen: set[str] = set()
    for each in found:
        if not each.run.id or each.run.id not in seen:
            seen.add(each.run.id)
            yield each


def _runs(word: str, store: Store) -> Iterator[Subject]:
    if word.endswith(".json"):
        check = _document(Path(word))
        yield Subject(store.load(str(check["run"])), check)
    else:
        yield from map(Subject, runs_named(word, store))


def _since(start: datetime, experiments: Sequence[KeptExperiment], store: Store, here: bool) -> list[Subject]:
    """Cases of an experiment are called as they are called there; those that left no run are results too."""
    entries = [each for each in store.runs() if _at(each.started_at) >= start and (not here or _may_be_ours(each))]
    loaded = [Subject(store.load(each.id), label=each.case) for each in reversed(entries)]
    found = [each for each in loaded if not here or _is_ours(each.run)]
    found += [case for each in experiments for case in _without_run(each)]
    if not found:
        whose = " of this machine" if here else ""
        raise StoreError(f"no run{whose} since {start:%Y-%m-%d %H:%M:%S} UTC", "inferometer list shows what there is")
    return found


def _may_be_ours(entry: Entry) -> bool:
    """A folder that stayed on another machine cannot be opened here."""
    return not entry.location.startswith("file://") or entry.location.startswith(f"file://{platform.node()}/")


def _is_ours(run: Run) -> bool:
    machine = run.environment.get("machine") or {}
    return bool(machine.get("host", platform.node()) == platform.node())


def _instant(text: str) -> datetime:
    try:
        return datetime.now(UTC) - timedelta(seconds=vocabulary.seconds(text))
    except (ValueError, OverflowError):
        pass
    try:
        return _at(text)
    except ValueError:
        raise click.UsageError(f"--since must be a time such as 2h or 2026-11-15T03:00:00Z, got {text}") from None


def _at(text: str) -> datetime:
    """What has no time, as a folder that cannot be read, was never."""
    found = datetime.fromisoformat(text) if text else datetime.min
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _document(file: Path) -> dict[str, Any]:
    try:
        with told(file):
            content = text_in(file_bytes(file))
        said: dict[str, Any] = json_value(content)[0]
    except ValueError as error:
        raise DataError(f"{file}: not JSON: {error}", "inferometer check --json writes one") from None
    check_schema(file, "check", said.get("schema") if isinstance(said, dict) else None)
    return said


def _experiment(word: str, store: Store) -> KeptExperiment | None:
    """An experiment by its id, the beginning of one, its name, or `experiment` for the latest; None if it is none."""
    if "/" in word or word.endswith(".json") or not (store.home / "experiments").is_dir():
        return None
    known = experiments_of(store.home)
    if word == "experiment" and known:
        return known[0]
    return next((each for each in known if each.id.startswith(word) or each.name == word), None)


def _cases(experiment: KeptExperiment, store: Store) -> Iterator[Subject]:
    if not experiment.latest:
        raise StoreError(f"{experiment.id}: no case of this experiment was done", "inferometer sweep goes on with it")
    for case in experiment.latest:
        if case.get("run"):
            yield Subject(store.load(case["run"]), None, str(case["name"]), _parameters(case))
    yield from _without_run(experiment)


def _without_run(experiment: KeptExperiment) -> Iterator[Subject]:
    for case in experiment.latest:
        if not case.get("run"):
            why = {"word": "failed", "reasons": [{"text": str(case.get("error") or "")}]}
            run = Run("", experiment.started_at, {}, {}, {}, why, state="failed")
            yield Subject(run, None, str(case["name"]), _parameters(case))


def _parameters(case: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in (case.get("parameters") or {}).items()}
