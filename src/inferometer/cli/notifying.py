"""`--notify`: tells people of failures, regressions and recoveries after a command; never changes its result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferometer.record.run import Run
    from inferometer.show.ci.outcome import Outcome
    from inferometer.show.notify.channels import Channel
    from inferometer.show.notify.news import Finding
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
    """An interrupted run says nothing of how things are."""
    from inferometer.show.ci.outcome import problems_of
    from inferometer.show.notify.findings import of_run

    if run.state == "interrupted":
        return
    problems = [(each.what, each.text) for each in problems_of(run) if each.level == "error"]
    tell_findings([of_run(run, problems)], store, channels, quiet=quiet)


def tell_of_error(
    plan: Mapping[str, Any], error: str, store: "Place", channels: "Sequence[Channel]", *, quiet: bool = False
) -> None:
    from inferometer.show.notify.findings import of_error

    tell_findings([of_error(plan, error)], store, channels, quiet=quiet)


def tell_of_check(
    run: "Run", check: Mapping[str, Any], store: "Place", channels: "Sequence[Channel]", *, quiet: bool = False
) -> None:
    from inferometer.show.notify.findings import of_check

    found = of_check(run, check)
    tell_findings([found] if found else [], store, channels, quiet=quiet)


def tell_of_outcomes(
    outcomes: "Iterable[Outcome]", store: "Store", channels: "Sequence[Channel]", *, quiet: bool = False
) -> None:
    """Of each run how it went, and how it compares."""
    for each in outcomes if channels else ():
        tell_of_run(each.run, store, channels, quiet=quiet)
        if each.check is not None:
            tell_of_check(each.run, each.check, store, channels, quiet=quiet)


def tell_of_experiment(
    name: str,
    definition: Mapping[str, Any],
    failed: Sequence[tuple[str, str]],
    id_: str,
    store: "Place",
    channels: "Sequence[Channel]",
    *,
    quiet: bool = False,
) -> None:
    """`failed` are the cases that did not go as they should: the name of each, and why."""
    from inferometer.show.notify.findings import of_experiment

    if channels:
        tell_findings([of_experiment(name, definition, failed, id_)], store, channels, quiet=quiet)


def tell_findings(
    findings: "Iterable[Finding]", store: "Place", channels: "Sequence[Channel]", *, quiet: bool = False
) -> None:
    """What could not be told is warned of; the exit code stays that of the command."""
    from inferometer.cli.mistakes import say
    from inferometer.show.notify.news import tell
    from inferometer.store.opening import open_store

    for finding in findings:
        for each in tell(open_store(store), finding, channels):
            if not each.arrived:
                say("warning", f"{each.channel} was not told: {each.why_not}")
            elif not quiet:
                say("note", f"told {each.channel}: {finding.event.title}")
