"""What GitHub Actions reads of a step: outputs, annotations, and a log whose text it must not take for commands."""

import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from inferometer.record.files import told
from inferometer.record.sanitize import cut, harmless, one_line
from inferometer.show.ci.markdown import MOST_BYTES, summary
from inferometer.show.ci.outcome import Outcome, Report, headline_keys

MOST_ANNOTATIONS = 10  # of a kind in a step; GitHub drops the others
MOST_MESSAGE = 4000
MOST_TITLE = 200
MOST_OUTPUT = 900_000  # bytes; GitHub takes 1 MB of a job


def write_summary(report: Report, file: Path) -> None:
    """After what the step wrote before, in the room that is left."""
    with told(file):
        there = file.stat().st_size if file.exists() else 0
        with file.open("a", encoding="utf-8") as out:
            out.write(summary(report, max(0, MOST_BYTES - there)))


def write_outputs(report: Report, file: Path) -> None:
    with told(file), file.open("a", encoding="utf-8") as out:
        out.write("".join(f"{name}={value}\n" for name, value in outputs(report).items()))


def outputs(report: Report) -> dict[str, str]:
    """`run`, `runs`, `verdict`, `word`, `worse`, `ok`, `measures` as JSON; of a single run each measure by itself. A
    case of which no run came has no id."""
    runs = [each for each in report.outcomes if each.is_kept]
    ids = [each.run.id for each in runs]
    said = {
        "run": ids[-1] if ids else "",
        "runs": " ".join(ids),
        "word": report.word,
        "verdict": " ".join(dict.fromkeys(each.verdict for each in report.outcomes)),
        "worse": _yes(report.worse),
        "ok": _yes(report.exit_code == 0),
        "measures": _measures_text(runs),
    }
    single = _measures(runs[0]) if len(runs) == 1 else {}
    more = {_name(key): repr(value) for key, value in single.items()}
    return {name: one_line(value) for name, value in {**more, **said}.items()}


def _measures(each: Outcome) -> dict[str, float]:
    return {key: found.value for key, found in each.quantities.items() if math.isfinite(found.value)}


def _measures_text(runs: Sequence[Outcome]) -> str:
    """All of them; of hundreds of runs those that people look at first; `{}` where even these are too many."""
    first = headline_keys(runs)
    for keys in (None, first, ()):
        found = {each.run.id: _measures(each) for each in runs} if keys != () else {}
        if keys is not None:
            found = {id_: {key: known[key] for key in keys if key in known} for id_, known in found.items()}
        text = json.dumps(found, separators=(",", ":"))
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
        found = [(each, problem) for each, problem in report.problems if problem.level == level]
        for each, problem in found[:MOST_ANNOTATIONS]:
            title = _property(cut(one_line(f"{each.label}: {problem.title}"), MOST_TITLE))
            yield f"::{level} title={title}::{_message(cut(harmless(problem.text), MOST_MESSAGE))}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def guarded(text: str) -> str:
    """For a log of GitHub: a line of a model's name that looks like a command is not one."""
    word = secrets.token_hex(16)
    return f"::stop-commands::{word}\n{harmless(text).rstrip()}\n::{word}::\n"


def in_github(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get("GITHUB_ACTIONS") == "true"
