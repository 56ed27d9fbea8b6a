"""Compares two groups of runs, or checks a run against its history."""

from pathlib import Path

from inferometer.cli.errors import INVALID, LIMIT_FAILED, WRONG_USE, echo, print_message
from inferometer.cli.work.stores import store_of
from inferometer.conduct.compare import MeasurePlan, accept, check_run, compare_runs
from inferometer.judge.check_result import CheckResult
from inferometer.plan.model import Plan
from inferometer.plan.reading import read_plan
from inferometer.record.run import Run
from inferometer.show.comparison import print_check, print_comparison
from inferometer.show.console import console, print_json
from inferometer.show.notify import channels_of
from inferometer.store.store import Store


def compare(
    before: str,
    after: str,
    measures: tuple[str, ...],
    every: bool,
    repeats: bool,
    margin: float,
    force: bool,
    assume_spread: float | None,
    fail_on_worse: bool,
    strict: bool,
    as_json: bool,
    store: Path | None,
) -> int:
    comparison = compare_runs(
        before,
        after,
        store_of(store),
        measures=measures,
        every=every,
        repeats=repeats,
        margin=margin / 100,
        assume_spread=None if assume_spread is None else assume_spread / 100,
    )
    if comparison.refused and (not force or not comparison.changes):
        for objection in comparison.objections:
            if objection.severity == "refuse":
                print_message("error", objection.text)
        print_message(
            "hint", "--force compares them anyway" if comparison.changes else "these runs have no measures in common"
        )
        return WRONG_USE
    if as_json:
        print_json(comparison.document())
    else:
        print_comparison(comparison, console())
    if not fail_on_worse:
        return 0
    if comparison.status == "unclear":
        print_message(
            "warning",
            "unclear whether any measure is worse" + ("" if strict else "; --strict exits with 4 in this case"),
        )
        return INVALID if strict else 0
    return LIMIT_FAILED if comparison.status == "worse" else 0


def check(
    run: str | None,
    against: str,
    measures: tuple[str, ...],
    every: bool,
    p_value: float | None,
    magnitude: float,
    confirm: bool,
    confirm_with: str | None,
    assume_spread: float | None,
    strict: bool,
    accepts: bool,
    notify: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    store: Path | None,
) -> int:
    channels, place, wanted = channels_of(notify), store_of(store), run or "latest"
    if accepts:
        echo(f"accepted: the baseline now starts at run {accept(wanted, place)}")
        return 0
    result = check_run(
        wanted,
        place,
        against=against,
        measures=measures,
        p_value=p_value,
        magnitude=magnitude / 100,
        again=_again(place, quiet) if confirm or confirm_with else None,
        plan=_plan(confirm_with),
        assume_spread=None if assume_spread is None else assume_spread / 100,
    )
    code = _print_result(result, as_json=as_json, every=every, strict=strict)
    if channels:
        from inferometer.cli.work.notify import notify_check  # 30 modules

        notify_check(place.load(result.run), result, place, channels, quiet=quiet)
    return code


def _plan(path: str | None) -> Plan | None:
    return None if path is None else read_plan(path)


def _again(store: Store, quiet: bool) -> MeasurePlan:
    """Makes the confirming run: with progress on the terminal, stored like any other run."""
    from inferometer.conduct.run import run  # the conductor of runs: only with --confirm
    from inferometer.show.progress import ProgressLine

    def again(plan: Plan) -> Run:
        line = ProgressLine()

        def note(text: str) -> None:
            line.clear()
            print_message("note", text)

        if not quiet:
            print_message("note", "the run looks worse: repeating it for confirmation")
        try:
            return run(plan, store=store, watch=None if quiet else line, notes=None if quiet else note)
        finally:
            line.clear()

    return again


def _print_result(result: CheckResult, *, as_json: bool, every: bool, strict: bool) -> int:
    """Prints the result on stdout, and on stderr the messages that the log of a script needs."""
    if as_json:
        print_json(result.document())
    else:
        print_check(result, console(), every=every)
    for text in result.warnings:
        print_message("warning", text)
    if result.status == "unclear":
        print_message(
            "warning", "unclear whether this run is worse" + ("" if strict else "; --strict exits with 4 in this case")
        )
    return result.exit_code(strict)
