"""Prints a run as a summary or as one JSON document, and determines its exit code."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from inferometer.cli.errors import LIMIT_FAILED, UNREACHABLE, print_message
from inferometer.documents.document import JsonObject
from inferometer.judge import limits as ending
from inferometer.record.run import Run, document
from inferometer.record.summary import LimitResult
from inferometer.show.console import console, emit, plain_table, print_json

if TYPE_CHECKING:
    from inferometer.show.charts.experiments import ChartedCase
    from inferometer.store.experiments import KeptExperiment


def print_run(
    run: Run, *, as_json: bool, slowest: int, more: bool = False, measures: bool = False, slices: bool = False
) -> None:
    """Prints the run as a summary or as JSON."""
    if as_json:
        print_json({**document(run), **_slowest(run, slowest)})
        return
    from inferometer.show.summary import print_view  # 18 modules that JSON does not need

    print_view(run, console(), more=more, measures=measures, slices=slices, slow=slowest)


def print_experiment(kept: "KeptExperiment", cases: "Sequence[ChartedCase]", *, as_json: bool) -> None:
    """Prints the answer of an experiment, as pages and reports show it."""
    from inferometer.show.experiment_answer import answer_document, answer_of, count_text, title_of  # not for runs

    answer = answer_of(kept, cases)
    if as_json:
        print_json(answer_document(kept, answer), "experiment")
        return

    to = console()
    emit(title_of(kept), to)
    emit(f"{answer.status.upper()}  {answer.headline}", to)
    for note in filter(None, answer.notes):
        emit(f"- {note}", to)
    for part in answer.tables:
        right = tuple(name for at, name in enumerate(part.head) if at in part.right)
        table = plain_table(*part.head, right=right, wrap="limits" if "limits" in part.head else part.head[0])
        for row in part.rows:
            table.add_row(*row)
        emit("", to)
        emit(part.title, to)
        emit(table, to)
    emit("", to)
    emit(f"{count_text(kept)}  {kept.id}", to)


def print_rosetta(run: Run, tool: str, *, as_json: bool) -> None:
    """Prints the numbers by another tool's definitions, next to ours."""
    from inferometer.show.imported import print_rosetta, rosetta, rosetta_document  # only with --as

    translation = rosetta(run, tool)
    if as_json:
        print_json(rosetta_document(run, translation))
        return

    print_rosetta(translation, console())


def _slowest(run: Run, most: int) -> JsonObject:
    from inferometer.measure.summary import slowest  # only with --slowest

    records = run.records if most else None
    return {} if records is None else {"slowest": msgspec.to_builtins(slowest(records, most))}


def exit_code(run: Run, *, shown: bool) -> int:
    """Prints on stderr why the exit code is not 0, in brief if the summary was `shown`, and returns the code. Lost
    workers and a lost server are always named."""
    code = ending.exit_code(run)
    if run.state == "interrupted":
        print_message("warning", "interrupted; the measurements so far are stored")
        return code
    for text in ending.losses(run):
        print_message("error", text)
    if code == UNREACHABLE:
        print_message("error", f"no request was answered{_first_error(run)}")
        return code
    status, limits = run.status, run.summary.limits
    if code == LIMIT_FAILED:
        _print_failed(limits)
    if status == "invalid":
        print_message("error", f"not valid as a measurement: {_reasons(run, shown)}")
    elif status == "doubtful":
        print_message("warning", f"doubtful as a measurement: {_reasons(run, shown)}")
    elif run.state == "failed":
        print_message("error", "the run failed")
    if code != LIMIT_FAILED and status != "invalid":
        _print_undecided(limits)
    return code


def _print_failed(limits: Sequence[LimitResult]) -> None:
    failed = [limit.limit for limit in limits if limit.met is False]
    print_message("error", f"{'a limit' if len(failed) == 1 else 'limits'} failed: {', '.join(failed)}")


def _print_undecided(limits: Sequence[LimitResult]) -> None:
    """Prints the limits that are neither shown to be met nor broken, and what would decide them."""
    open_ = [limit for limit in limits if limit.met is None]
    if not open_:
        return
    what = "a limit" if len(open_) == 1 else f"{len(open_)} limits"
    print_message("error", f"{what} could not be decided: {'; '.join(limit.text for limit in open_)}")
    needed = max(limit.needed or 0 for limit in open_)
    if not needed and all(limit.value is None for limit in open_):
        return  # without a measured value, more requests would not help
    enough = f"about {needed:,} requests in the window would decide it" if needed else "a longer run may decide it"
    print_message("hint", f"{enough}: --requests or --duration")


def _reasons(run: Run, shown: bool) -> str:
    reasons = run.doubts
    if shown:
        return "see the reason above" if len(reasons) == 1 else f"see the {len(reasons)} reasons above"
    return " ".join(reason.sentence for reason in reasons)


def _first_error(run: Run) -> str:
    errors = run.summary.errors
    return f": {errors[0].message}" if errors else ""
