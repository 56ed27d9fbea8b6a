"""`--notify`: tells people of failures, regressions and recoveries after a command; never changes its result."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferometer.record.run import Run
    from inferometer.show.ci.outcome import Outcome
    from inferometer.show.notify.channels import Channel
    from inferometer.show.notify.news import Finding
    from inferometer.store.experiments import CaseRow, KeptExperiment
    from inferometer.store.opening import Place
    from inferometer.store.store import Store


def channels_of(said: Sequence[str]) -> "list[Channel]":
    """Checked before anything is measured; nothing is imported where nobody is to be told."""
    if not said:
        return []
    from inferometer.show.notify.channels import channels

    return channels(said)


def watched(
    work: "Callable[[], tuple[Run, int]]",
    plan: Mapping[str, Any],
    store: "Place",
    channels: "Sequence[Channel]",
    *,
    quiet: bool = False,
) -> "tuple[Run, int]":
    """Make a run, and tell how it went: also where none came of it."""
    from inferometer.errors import InferometerError

    try:
        run, code = work()
    except InferometerError as error:
        if channels:
            tell_of_error(plan, error.message, store, channels, quiet=quiet)
        raise
    if channels:
        tell_of_run(run, store, channels, quiet=quiet)
    return run, code


def tell_of_run(run: "Run", store: "Place", channels: "Sequence[Channel]", *, quiet: bool = False) -> None:
    tell_findings(_of_run(run), store, channels, quiet=quiet)


def _of_run(run: "Run") -> "Iterator[Finding]":
    """An interrupted run says nothing of how things are; a case without a run is told of with its experiment."""
    from inferometer.show.ci.outcome import problems_of
    from inferometer.show.notify.findings import of_run

    if run.id and run.state != "interrupted":
        yield of_run(run, [(each.what, each.text) for each in problems_of(run) if each.level == "error"])


def tell_of_error(
    plan: Mapping[str, Any], error: str, store: "Place", channels: "Sequence[Channel]", *, quiet: bool = False
) -> None:
    from inferometer.show.notify.findings import of_error

    tell_findings([of_error(plan, error)], store, channels, quiet=quiet)


def tell_of_check(
    run: "Run", check: Mapping[str, Any], store: "Place", channels: "Sequence[Channel]", *, quiet: bool = False
) -> None:
    tell_findings(_of_check(run, check), store, channels, quiet=quiet)


def _of_check(run: "Run", check: Mapping[str, Any]) -> "Iterator[Finding]":
    from inferometer.show.notify.findings import of_check

    if found := of_check(run, check):
        yield found


def tell_of_outcomes(
    outcomes: "Iterable[Outcome]",
    experiments: "Iterable[KeptExperiment]",
    store: "Store",
    channels: "Sequence[Channel]",
    *,
    quiet: bool = False,
) -> None:
    """Of each run how it went, and how it compares; of an experiment the cases of which no run came."""
    if channels:
        tell_findings(_of_outcomes(outcomes, experiments, store), store, channels, quiet=quiet)


def _of_outcomes(
    outcomes: "Iterable[Outcome]", experiments: "Iterable[KeptExperiment]", store: "Store"
) -> "Iterator[Finding]":
    from inferometer.show.notify.findings import of_experiment
    from inferometer.store.experiments import rows_of

    for each in outcomes:
        yield from _of_run(each.run)
        if each.check is not None:
            yield from _of_check(each.run, each.check)
    for experiment in experiments:
        rows = rows_of(experiment, store)
        found = of_experiment(experiment.name, rows, experiment.id)
        if found.what:
            worth = any(row.run is None for row in rows)  # a limit that was missed is said with its run
        else:
            worth = experiment.result is not None  # of one that was interrupted nobody knows whether all is well
        if worth:
            yield found


def tell_of_experiment(
    name: str | None,
    rows: "Sequence[CaseRow]",
    id_: str,
    store: "Place",
    channels: "Sequence[Channel]",
    *,
    quiet: bool = False,
) -> None:
    """Of cases that failed or missed a limit, and when none does any more."""
    from inferometer.show.notify.findings import of_experiment

    tell_findings([of_experiment(name, rows, id_)], store, channels, quiet=quiet)


def tell_findings(
    findings: "Iterable[Finding]", store: "Place", channels: "Sequence[Channel]", *, quiet: bool = False
) -> None:
    """What could not be told is warned of; the exit code stays that of the command. However many findings there are,
    a receiver that hangs is waited for once."""
    from inferometer.cli.mistakes import say
    from inferometer.show.notify.delivery import PATIENCE
    from inferometer.show.notify.news import tell
    from inferometer.store.opening import open_store

    until = time.monotonic() + PATIENCE.deadline_s
    for finding in findings:
        for each in tell(open_store(store), finding, channels, until=until):
            if not each.arrived:
                say("warning", f"{each.channel} was not told: {each.why_not}")
            elif not quiet:
                say("note", f"told {each.channel}: {finding.event.title}")
