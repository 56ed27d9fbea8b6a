"""What commands print: a run as a summary or as one JSON document, and the exit code it means."""

from importlib import import_module
from typing import Any

import click

from inferometer.cli.mistakes import INTERRUPTED, INVALID, LIMIT_FAILED, UNREACHABLE, say
from inferometer.record.harmless import json_text
from inferometer.record.record import CENSORED
from inferometer.record.run import Run, document
from inferometer.record.schema import schema_of

VIEWS = {  # of runs without requests: who prints them
    "latency": "inferometer.show.offline:print_offline",
    "throughput": "inferometer.show.offline:print_offline",
    "startup": "inferometer.show.startup:print_startup",
    "benchmark": "inferometer.show.benchmark:print_benchmark",
}


def print_json(content: dict[str, Any], kind: str | None = None) -> None:
    """One JSON document, which says of which `kind` it is; a missing number is null."""
    import orjson

    if kind is not None:
        content = {"schema": schema_of(kind), **content}

    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    click.echo(json_text(content, options))


def print_run(run: Run, *, as_json: bool, slowest: int, measures: bool = False, slices: bool = False) -> None:
    """The run as a person or a program reads it."""
    if as_json:
        print_json(document(run) | _slowest(run, slowest))
        return
    from inferometer.show.console import console

    if run.source is not None:
        from inferometer.show.imported import print_imported

        print_imported(run, console(), measures=measures, slices=slices, slow=slowest)
        return
    if run.kind in VIEWS:
        module, _, attribute = VIEWS[run.kind].partition(":")
        getattr(import_module(module), attribute)(run, console())
        return
    from inferometer.show.summary import print_summary

    print_summary(run, console(), measures=measures, slices=slices, slow=slowest)


def print_rosetta(run: Run, tool: str, *, as_json: bool) -> None:
    """The run by another tool's definitions, ours beside them."""
    from inferometer.show.rosetta import print_rosetta, rosetta

    found = rosetta(run, tool)
    if as_json:
        print_json(found)
        return
    from inferometer.show.console import console

    print_rosetta(found, console())


def _slowest(run: Run, most: int) -> dict[str, Any]:
    from inferometer.measure.summary import slowest

    records = run.records() if most else None
    return {} if records is None else {"slowest": slowest(records, most)}


def exit_code(run: Run, *, shown: bool) -> int:
    """What the run means for a script, said on stderr; briefly where the summary has been shown."""
    if run.state == "interrupted":
        say("warning", "interrupted; what was measured until then is kept")
        return INTERRUPTED
    if _none_answered(run.summary["outcomes"]):
        say("error", f"no request was answered completely{_first_error(run)}")
        return UNREACHABLE
    word = run.verdict["word"]
    if word == "invalid":
        say("error", f"not valid as a measurement: {_reasons(run, shown)}")
        return INVALID
    if word == "doubtful":
        say("warning", f"doubtful as a measurement: {_reasons(run, shown)}")
    return _limits_code(run.summary.get("limits", []))


def _limits_code(limits: list[dict[str, Any]]) -> int:
    """A limit that failed failed; one that cannot be told was not measured, which is neither."""
    failed = [limit["limit"] for limit in limits if limit["met"] is False]
    untold = [limit["text"] for limit in limits if limit["met"] is None]
    if failed:
        say("error", f"{'a limit' if len(failed) == 1 else 'limits'} failed: {', '.join(failed)}")
    if untold:
        what = "a limit" if len(untold) == 1 else "limits"
        say("error", f"not valid as a measurement of {what}: {'; '.join(untold)}")
    return LIMIT_FAILED if failed else INVALID if untold else 0


def _none_answered(outcomes: dict[str, int]) -> bool:
    """Requests that we ended ourselves say nothing against the target: they make the run invalid, no more."""
    censored = sum(n for word, n in outcomes.items() if word in CENSORED)
    return not outcomes.get("ok") and not 0 < censored == sum(outcomes.values())


def _reasons(run: Run, shown: bool) -> str:
    reasons = run.verdict["reasons"]
    if shown:
        return "the reason is above" if len(reasons) == 1 else f"the {len(reasons)} reasons are above"
    return " ".join(reason["text"] for reason in reasons)


def _first_error(run: Run) -> str:
    errors = run.summary.get("errors", [])
    return f": {errors[0]['message']}" if errors else ""
