"""Collects runs and their checks, and reports them to a CI system."""

import io
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from inferometer import vocabulary
from inferometer.cli.errors import echo
from inferometer.cli.work.notify import notify_outcomes
from inferometer.cli.work.stores import store_of
from inferometer.conduct.compare import check_run, runs_named
from inferometer.documents.document import JsonObject
from inferometer.documents.files import file_bytes, text_in
from inferometer.documents.json_text import json_value
from inferometer.errors import DataError, StoreError
from inferometer.judge.check_result import CheckResult, check_from
from inferometer.plan.stored import StoredPlan
from inferometer.record.encoding import result_from
from inferometer.record.environment import Environment
from inferometer.record.files import check_schema, translated_errors, write_text
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.record.verdict import Reason, judged
from inferometer.show.ci import github
from inferometer.show.ci.outcome import CiOutcome, CiReport, outcome, print_report
from inferometer.show.ci.outcome import junit as as_junit
from inferometer.show.ci.outcome import metrics as as_metrics
from inferometer.show.console import console, print_json
from inferometer.show.notify import channels_of
from inferometer.store.entry import Entry
from inferometer.store.experiments import KeptExperiment, experiments_of
from inferometer.store.store import Store


def ci(
    what: tuple[str, ...],
    since: str | None,
    here: bool,
    against: str,
    title: str,
    strict: bool,
    summary: Path | None,
    outputs: Path | None,
    junit: Path | None,
    gitlab_metrics: Path | None,
    no_fail: bool,
    notify: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    store: str | None,
) -> int:
    channels, place = channels_of(notify), store_of(store)
    subjects, experiments = subjects_of(what, since, place, here=here)
    report = CiReport(tuple(_outcome(subject, against, strict, place) for subject in subjects), title)
    _write(report, summary, outputs, junit, gitlab_metrics)
    _print(report, as_json)
    notify_outcomes(report.outcomes, experiments, place, channels, quiet=quiet)
    return 0 if no_fail else report.exit_code


def _outcome(subject: "ReportedRun", against: str, strict: bool, store: Store) -> CiOutcome:
    check = subject.check if subject.check is not None else _check(subject.run, against, store)
    return outcome(subject.run, check, strict=strict, label=subject.label, parameters=subject.parameters)


def _check(run: Run, against: str, store: Store) -> CheckResult | None:
    """The check of a run; None without a stored run with a verdict, which is reported as a problem of its own."""
    if against == "none" or not run.id or run.verdict is None:
        return None

    return check_run(run.id, store, against=against)


def _write(
    report: CiReport, summary: Path | None, outputs: Path | None, junit: Path | None, metrics: Path | None
) -> None:
    if summary is not None:
        github.write_summary(report, summary)
    if outputs is not None:
        github.write_outputs(report, outputs)
    if junit is not None:
        write_text(junit, as_junit(report))
    if metrics is not None:
        write_text(metrics, as_metrics(report))


def _print(report: CiReport, as_json: bool) -> None:
    """Annotations are commands to GitHub; other text must not look like one."""
    if as_json:
        print_json(report.document())
    elif not github.in_github():
        print_report(report, console())
    else:
        text = io.StringIO()
        print_report(report, console(text, width=100))
        echo(github.guarded(text.getvalue()), nl=False)
        for line in github.annotations(report):
            echo(line)


# -- ci runs ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ReportedRun:
    """A run with its check and its case. A case that failed before it made a run has no id."""

    run: Run
    check: CheckResult | None = None  # None: not checked yet
    label: str | None = None
    parameters: JsonObject = field(default_factory=dict)


def subjects_of(
    what: Sequence[str], since: str | None, store: Store, *, here: bool
) -> tuple[list[ReportedRun], list[KeptExperiment]]:
    """Every run once, and the experiments that are reported as a whole."""
    subjects: list[ReportedRun] = []
    experiments: list[KeptExperiment] = []
    if since is not None:
        start = _instant(since)
        experiments += [experiment for experiment in experiments_of(store.home) if _at(experiment.started_at) >= start]
        subjects += _since(start, experiments, store, here)
    for name in what or (("latest",) if since is None else ()):
        if (experiment := _experiment(name, store)) is not None:
            experiments.append(experiment)
            subjects += _cases(experiment, store)
        else:
            subjects += _runs(name, store)
    return list(_once(subjects)), list({experiment.id: experiment for experiment in experiments}.values())


def _once(subjects: Sequence[ReportedRun]) -> Iterator[ReportedRun]:
    seen: set[str] = set()
    for subject in subjects:
        if not subject.run.id or subject.run.id not in seen:
            seen.add(subject.run.id)
            yield subject


def _runs(name: str, store: Store) -> Iterator[ReportedRun]:
    if name.endswith(".json"):
        check = _check_in(Path(name))
        yield ReportedRun(store.load(check.run), check)
    else:
        yield from map(ReportedRun, runs_named(name, store))


def _since(start: datetime, experiments: Sequence[KeptExperiment], store: Store, here: bool) -> list[ReportedRun]:
    """Cases keep their names from the experiment; cases without a run are results too."""
    entries = [item for item in store.runs() if _at(item.started_at) >= start and (not here or _may_be_ours(item))]
    loaded = [ReportedRun(store.load(item.id), label=item.case) for item in reversed(entries)]
    subjects = [item for item in loaded if not here or _is_ours(item.run)]
    subjects += [case for item in experiments for case in _without_run(item)]
    if not subjects:
        whose = " from this machine" if here else ""
        raise StoreError(f"no run{whose} since {start:%Y-%m-%d %H:%M:%S} UTC", "inferometer list shows the stored runs")
    return subjects


def _may_be_ours(entry: Entry) -> bool:
    """A run whose folder is on another machine cannot be opened here."""
    return not entry.location.startswith("file://") or entry.location.startswith(f"file://{platform.node()}/")


def _is_ours(run: Run) -> bool:
    machine = run.environment.machine
    return machine is None or machine.host in (None, platform.node())


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
    """An entry without a time, such as an unreadable folder, does not count as recent."""
    instant = datetime.fromisoformat(text) if text else datetime.min
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _check_in(file: Path) -> CheckResult:
    try:
        with translated_errors(file):
            content = text_in(file_bytes(file))
        document = json_value(content)[0]
    except ValueError as error:
        raise DataError(f"{file}: not JSON: {error}", "inferometer check --json writes one") from None
    check_schema(file, "check", document.get("schema") if isinstance(document, dict) else None)
    try:
        return check_from(result_from(document))
    except (ValueError, TypeError) as error:
        raise DataError(f"{file}: not the result of a check: {error}", "inferometer check --json writes one") from None


def _experiment(name: str, store: Store) -> KeptExperiment | None:
    """The experiment with this id, id prefix or name, or the latest for `experiment`; None if there is none."""
    if "/" in name or name.endswith(".json") or not (store.home / "experiments").is_dir():
        return None
    known = experiments_of(store.home)
    if name == "experiment" and known:
        return known[0]
    return next((experiment for experiment in known if experiment.id.startswith(name) or experiment.name == name), None)


def _cases(experiment: KeptExperiment, store: Store) -> Iterator[ReportedRun]:
    if not experiment.latest:
        raise StoreError(
            f"{experiment.id}: no case of this experiment has been run", "continue it with inferometer sweep --resume"
        )
    for case in experiment.latest:
        if case.run:
            yield ReportedRun(store.load(case.run), None, case.name, case.parameters or {})
    yield from _without_run(experiment)


def _without_run(experiment: KeptExperiment) -> Iterator[ReportedRun]:
    for case in experiment.latest:
        if not case.run:
            why = Reason(status="invalid", code="case_failed", text=case.error or "")
            run = Run(
                "", experiment.started_at, StoredPlan({}), Environment(), Summary(), judged([why]), state="failed"
            )
            yield ReportedRun(run, None, case.name, case.parameters or {})
