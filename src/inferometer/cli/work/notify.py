"""Lists and tests channels, reports CI jobs, and sends the messages of `--notify`, which never change an exit code."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from inferometer.cli.errors import UNREACHABLE, echo, print_message
from inferometer.cli.work.stores import store_of
from inferometer.documents.document import JsonObject
from inferometer.judge.check_result import CheckResult
from inferometer.record.run import Run
from inferometer.show.ci.outcome import CiOutcome, problems_of
from inferometer.show.console import console, emit, plain_table
from inferometer.show.notify import CHANNELS, Channel, channels_of, missing, posting
from inferometer.show.notify.news import (
    SubjectState,
    deliver_finding,
    of_check,
    of_error,
    of_experiment,
    of_job,
    of_run,
    test_event,
)
from inferometer.store.experiments import CaseRow, KeptExperiment, rows_of
from inferometer.store.store import Place, Store, open_store


def notify(
    names: tuple[str, ...],
    test: bool,
    job: str | None,
    result: str,
    text: str | None,
    quiet: bool,
    store: Any,
) -> int:
    if not names and not test and job is None:
        _print_channels()
        return 0
    if not names:
        raise click.UsageError("no channel given; inferometer notify lists them")
    if test == (job is not None):
        raise click.UsageError("use --test, or name a job: --job NAME --result failure")
    channels = channels_of(names)
    if test:
        return _test(channels)
    if result in ("success", "failure"):
        notify_findings([of_job(str(job), result == "success", text)], store_of(store), channels, quiet=quiet)
    return 0


def _test(channels: Any) -> int:
    """An unreachable channel is an error here, because the message is the purpose of the command."""
    sent = posting.deliver(test_event(), channels)
    for delivery in sent:
        if delivery.arrived:
            echo(f"{delivery.channel}: message accepted")
        else:
            print_message("error", f"{delivery.channel}: {delivery.why_not}")
    return 0 if all(delivery.arrived for delivery in sent) else UNREACHABLE


def _print_channels() -> None:
    table = plain_table("channel", "description", "environment variables", "ready", wrap="environment variables")
    for name, kind in CHANNELS.items():
        takes = f" ({', '.join(kind.takes)})" if kind.takes else ""
        ready = "no" if missing(name, os.environ) else "yes"
        table.add_row(name, kind.about, " ".join(kind.needs) + takes, ready)
    emit(table, console())


def notify_run(run: Run, store: Place, channels: Sequence[Channel], *, quiet: bool = False) -> None:
    notify_findings(_of_run(run), store, channels, quiet=quiet)


def _of_run(run: Run) -> Iterator[SubjectState]:
    """Skips interrupted runs, which show nothing about the server; cases without a run belong to the experiment."""
    if run.id and run.state != "interrupted":
        yield of_run(run, [(problem.what, problem.text) for problem in problems_of(run) if problem.level == "error"])


def notify_error(
    plan: JsonObject, error: str, store: Place, channels: Sequence[Channel], *, quiet: bool = False
) -> None:
    notify_findings([of_error(plan, error)], store, channels, quiet=quiet)


def notify_check(
    run: Run, check: CheckResult, store: Place, channels: Sequence[Channel], *, quiet: bool = False
) -> None:
    notify_findings(_of_check(run, check), store, channels, quiet=quiet)


def _of_check(run: Run, check: CheckResult) -> Iterator[SubjectState]:
    if finding := of_check(run, check):
        yield finding


def notify_outcomes(
    outcomes: Iterable[CiOutcome],
    experiments: Iterable[KeptExperiment],
    store: Store,
    channels: Sequence[Channel],
    *,
    quiet: bool = False,
) -> None:
    """The findings of each run and of its check; for an experiment also the cases without a run."""
    if channels:
        notify_findings(_of_outcomes(outcomes, experiments, store), store, channels, quiet=quiet)


def _of_outcomes(
    outcomes: Iterable[CiOutcome], experiments: Iterable[KeptExperiment], store: Store
) -> Iterator[SubjectState]:
    for outcome in outcomes:
        yield from _of_run(outcome.run)
        if outcome.check is not None:
            yield from _of_check(outcome.run, outcome.check)
    for experiment in experiments:
        rows = rows_of(experiment, store)
        finding = of_experiment(experiment.name, rows, experiment.id, _first_and_last(rows, store))
        if finding.what:
            worth = any(row.run is None for row in rows)  # a missed limit is reported with its run
        else:
            worth = experiment.result is not None  # an interrupted experiment does not show a recovery
        if worth:
            yield finding


def notify_experiment(
    name: str | None,
    rows: Sequence[CaseRow],
    id_: str,
    store: Place,
    channels: Sequence[Channel],
    *,
    quiet: bool = False,
) -> None:
    """Reports cases that failed or missed a limit, and the recovery when all cases pass again."""
    finding = of_experiment(name, rows, id_, _first_and_last(rows, open_store(store)))
    notify_findings([finding], store, channels, quiet=quiet)


def _first_and_last(rows: Sequence[CaseRow], store: Store) -> list[Run]:
    """Two runs are enough to show what the experiment measured and what differs."""
    runs = [row.run for row in rows if row.run is not None]
    return [store.load(run) for run in dict.fromkeys([*runs[:1], *runs[-1:]])]


def notify_findings(
    findings: Iterable[SubjectState], store: Place, channels: Sequence[Channel], *, quiet: bool = False
) -> None:
    """A failed delivery is a warning, and the exit code stays that of the command. A receiver that hangs is waited for
    only once, however many findings there are."""
    until = time.monotonic() + posting.PATIENCE.deadline_s
    for finding in findings:
        for delivery in deliver_finding(open_store(store), finding, channels, until=until):
            if not delivery.arrived:
                print_message("warning", f"{delivery.channel}: notification failed: {delivery.why_not}")
            elif not quiet:
                print_message("note", f"notified {delivery.channel}: {finding.event.title}")
