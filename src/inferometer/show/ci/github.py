"""What GitHub Actions reads of a step: outputs, annotations, and a log whose text it must not take for commands."""

import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from inferometer.record.files import translated_errors
from inferometer.record.sanitize import cut, harmless, one_line
from inferometer.show.ci.markdown import MOST_BYTES, summary
from inferometer.show.ci.outcome import Outcome, Report, headline_keys

MOST_ANNOTATIONS = 10  # of a kind in a step; GitHub drops the others
MOST_MESSAGE = 4000
MOST_TITLE = 200
MOST_OUTPUT = 900_000  # bytes; GitHub takes 1 MB of a job


def write_summary(report: Report, file: Path) -> None:
    """After what the step wrote before, in the room that is left."""
    with translated_errors(file):
        there = file.stat().st_size if file.exists() else 0
        with file.open("a", encoding="utf-8") as out:
            out.write(summary(report, max(0, MOST_BYTES - there)))


def write_outputs(report: Report, file: Path) -> None:
    with translated_errors(file), file.open("a", encoding="utf-8") as out:
        out.write("".join(f"{name}={value}\n" for name, value in outputs(report).items()))


def outputs(report: Report) -> dict[str, str]:
    """`run`, `runs`, `verdict`, `status`, `worse`, `ok`, `measures` as JSON; of a single run each measure by itself. A
    case of which no run came has no id."""
    runs = [outcome for outcome in report.outcomes if outcome.is_kept]
    ids = [outcome.run.id for outcome in runs]
    fields = {
        "run": ids[-1] if ids else "",
        "runs": " ".join(ids),
        "status": report.status,
        "verdict": " ".join(dict.fromkeys(outcome.verdict for outcome in report.outcomes)),
        "worse": _yes(report.worse),
        "ok": _yes(report.exit_code == 0),
        "measures": _measures_text(runs),
    }
    single = _measures(runs[0]) if len(runs) == 1 else {}
    more = {_name(key): repr(value) for key, value in single.items()}
    return {name: one_line(value) for name, value in {**more, **fields}.items()}


def _measures(outcome: Outcome) -> dict[str, float]:
    return {key: quantity.value for key, quantity in outcome.quantities.items() if math.isfinite(quantity.value)}


def _measures_text(runs: Sequence[Outcome]) -> str:
    """All of them; of hundreds of runs those that people look at first; `{}` where even these are too many."""
    first = headline_keys(runs)
    for keys in (None, first, ()):
        measures = {outcome.run.id: _measures(outcome) for outcome in runs} if keys != () else {}
        if keys is not None:
            measures = {id_: {key: known[key] for key in keys if key in known} for id_, known in measures.items()}
        text = json.dumps(measures, separators=(",", ":"))
        if len(text) <= MOST_OUTPUT:
            break
    return text


def _name(key: str) -> str:
    """As `${{ steps.x.outputs.ttft_p99 }}` can say it."""
    return re.sub(r"[^A-Za-z0-9_]", "_", key)


def _yes(fact: bool) -> str:
    return "true" if fact else "false"


def annotations(report: Report) -> Iterator[str]:
    """`::error title=...::...`, the errors first, as many as GitHub keeps."""
    for level in ("error", "warning"):
        problems = [(outcome, problem) for outcome, problem in report.problems if problem.level == level]
        for outcome, problem in problems[:MOST_ANNOTATIONS]:
            title = _property(cut(one_line(f"{outcome.label}: {problem.title}"), MOST_TITLE))
            yield f"::{level} title={title}::{_message(cut(harmless(problem.text), MOST_MESSAGE))}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def guarded(text: str) -> str:
    """For a log of GitHub: a line of a model's name that looks like a command is not one."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}\n{harmless(text).rstrip()}\n::{token}::\n"


def in_github(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get("GITHUB_ACTIONS") == "true"
