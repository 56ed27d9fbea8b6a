"""Output for a GitHub Actions step: outputs, annotations, and the step summary in Markdown, safe for any names in it
and within GitHub's size limits."""

import html
import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inferometer.judge.check_result import Checked
from inferometer.record.files import translated_errors
from inferometer.record.sanitize import cut, harmless, one_line
from inferometer.record.summary import Summary
from inferometer.show.about import about_of, page_link
from inferometer.show.ci.outcome import CiOutcome, CiReport, ReportLine, headline_keys
from inferometer.show.notify.news import run_facts
from inferometer.vocabulary import change_text, value_text

MOST_BYTES = 1_000_000  # GitHub drops a step's summary entirely if it exceeds 1 MiB
STATISTICS = ("mean", "p50", "p90", "p99")
MARKS = {"fine": "✅", "worse": "📉", "failed": "❌", "invalid": "❌", "unclear": "⚠️", "doubtful": "⚠️"}
STATUS_MARKS = {"worse": "🔴", "better": "🟢", "same": "⚪", "unclear": "🟡", "changed": "🔵"}
_SPECIAL = re.compile(r"([\\`*_\[\]|~$]|^[#+=-](?=.)|(?<=^\d)[.)](?= ))")
_WEB = re.compile(r"\b(www)\.", re.IGNORECASE)  # GitHub turns it into a link
MOST_TEXT = 2000  # characters of a problem
MOST_CELL = 300
_MET = {True: "✅", False: "❌"}  # None: unclear
_TABLED = 200  # maximum number of runs in a table
_MOST_LINES = 50


def summary(report: CiReport, room: int = MOST_BYTES) -> str:
    """Most important sections first; those that do not fit are left out, with a note."""
    parts = [_head(report), *_runs(report), *_checks(report), *_details(report)]
    return fitting(parts, room)


def fitting(parts: Sequence[str], room: int) -> str:
    """Complete parts as long as there is room, in bytes of UTF-8."""
    left_out = "\n_This summary is shortened: `inferometer show` prints everything._\n"
    kept: list[str] = []
    room -= len(left_out.encode())
    if room < 0:
        return ""
    for part in parts:
        size = len(part.encode())
        if size > room:
            return "".join([*kept, left_out])
        kept.append(part)
        room -= size
    return "".join(kept)


def _head(report: CiReport) -> str:
    lines = [f"## {MARKS[report.status]} {plain(cut(report.title, MOST_CELL))}: {report.status}\n"]
    if len(report.outcomes) == 1:
        lines.append(_about(report.outcomes[0]) + "\n")
    elif report.about:
        lines.append(plain(cut(report.about, MOST_CELL)) + "\n")
    lines += [_line(line, report) for line in report.lines[:_MOST_LINES]]
    if len(report.lines) > _MOST_LINES:
        lines.append(f"- … and {len(report.lines) - _MOST_LINES} more")
    for outcome in report.outcomes[:20]:
        whose = f"**{_linked(outcome)}**: " if len(report.outcomes) > 1 else ""
        lines += [f"- {whose}{plain(cut(text, MOST_TEXT))}" for text in outcome.notes]
    return "\n".join(lines) + "\n\n"


def _line(line: ReportLine, report: CiReport) -> str:
    mark = "❌" if line.level == "error" else "⚠️"
    return f"- {mark} {_whose(line, report)}{plain(cut(line.text, MOST_TEXT))}"


def _whose(line: ReportLine, report: CiReport) -> str:
    """The runs of a line by name, each with a link to its page; empty if there is only one run."""
    if len(report.outcomes) == 1:
        return ""
    return f"**{', '.join(map(_linked, line.outcomes[:6]))}**{_more(line.outcomes)}: "


def _linked(outcome: CiOutcome) -> str:
    link = page_link(outcome.run.id, os.environ)
    return f"[{_cell_name(outcome)}]({link})" if link else _cell_name(outcome)


def _more(outcomes: Sequence[CiOutcome]) -> str:
    return f" and {len(outcomes) - 6} more" if len(outcomes) > 6 else ""


def _about(outcome: CiOutcome) -> str:
    """Model, engine, hardware, workload and load, with a link to the page of the run if there is one."""
    about = about_of(outcome.run)
    text = plain(cut(" · ".join(filter(None, (about.stack, about.traffic))) or outcome.label, MOST_CELL))
    link = page_link(outcome.run.id, os.environ)
    return f"{text} · [page]({link})" if link else text


def _runs(report: CiReport) -> Iterator[str]:
    serving = [outcome for outcome in report.outcomes if outcome.run.kind == "serving"]
    if len(serving) > 1:
        for at in range(0, len(serving), _TABLED):
            yield _runs_table(serving[at : at + _TABLED])
    for outcome in report.outcomes:
        if outcome.run.summary != Summary() and (len(serving) < 2 or outcome.run.kind != "serving"):
            yield measures_table(outcome)


def _runs_table(outcomes: Sequence[CiOutcome]) -> str:
    """A row per run, with the parameters in which they differ."""
    keys = headline_keys(outcomes)
    names = _distinct([outcome.parameters for outcome in outcomes])
    titles = [_title(outcomes, key) for key in keys]
    rows = [
        [outcome.label, *(_parameter_text(outcome.parameters.get(name)) for name in names), *_cells(outcome, keys)]
        for outcome in outcomes
    ]
    short = [name.rpartition(".")[2].replace("_", " ") for name in names]
    heads = short if len(set(short)) == len(short) else names
    return table(["run", *heads, *titles, "verdict"], rows, right=1 + len(names))


def _distinct(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of settings that always vary together only the first."""
    kept: dict[tuple[int, ...], str] = {}
    for name in dict.fromkeys(name for own in settings for name in own):
        values = [_parameter_text(own.get(name)) for own in settings]
        kept.setdefault(tuple(map(values.index, values)), name)
    return list(kept.values())


def _cells(outcome: CiOutcome, keys: Sequence[str]) -> list[str]:
    known = outcome.quantities
    cells = [known[key].text if key in known else "-" for key in keys]
    return [*cells, outcome.verdict]


def _cell_name(outcome: CiOutcome) -> str:
    return plain(cut(outcome.label, MOST_CELL))


def _title(outcomes: Sequence[CiOutcome], key: str) -> str:
    quantity = next(outcome.quantities[key] for outcome in outcomes if key in outcome.quantities)
    return " ".join(filter(None, (quantity.title, quantity.statistic)))


def measures_table(outcome: CiOutcome) -> str:
    """A row per measure with its mean and quantiles, then one per number without statistics."""
    known = outcome.quantities
    names = list(dict.fromkeys(quantity.name for quantity in known.values() if quantity.statistic))
    rows = [[_row_title(outcome, name), *(_cell(outcome, f"{name}.{stat}") for stat in STATISTICS)] for name in names]
    rows = [row for row in rows if any(cell != "-" for cell in row[1:])]
    scalars = [quantity for quantity in known.values() if quantity.statistic is None]
    single = [[quantity.title, quantity.text] for quantity in scalars]
    head = f"**{_cell_name(outcome)}** ({plain(outcome.verdict)})\n\n"
    first = table(["", *STATISTICS], rows, right=1) if rows else ""
    return head + first + (table(["", "value"], single, right=1) if single else "")


def _row_title(outcome: CiOutcome, name: str) -> str:
    return next(quantity.title for quantity in outcome.quantities.values() if quantity.name == name)


def _cell(outcome: CiOutcome, key: str) -> str:
    quantity = outcome.quantities.get(key)
    if quantity is None:
        return "-"
    return f"{quantity.text} {quantity.spread}".strip()


def _checks(report: CiReport) -> Iterator[str]:
    for outcome in report.outcomes:
        if outcome.check and outcome.check.measures:
            shown = [measure for measure in outcome.check.measures if _matters(measure)]
            against = plain(cut(outcome.check.against, MOST_CELL))
            whose = f"{_cell_name(outcome)} against {against}" if len(report.outcomes) > 1 else f"Against {against}"
            yield f"### {whose}\n\n" + table(["", "before", "after", "change", ""], map(_change, shown), right=1)


def _matters(measure: Checked) -> bool:
    return measure.alert or measure.status in ("worse", "better", "changed")


def _change(measure: Checked) -> list[str]:
    change = measure.change
    before, after = (value_text(value, change.unit) for value in (change.before, change.after))
    text = change_text(change.change, change.relative, change.unit)
    return [change.title, before, after, text, f"{STATUS_MARKS.get(measure.status, '')} {measure.status}"]


def _details(report: CiReport) -> Iterator[str]:
    """Collapsed: limits, what was measured, and all numbers."""
    many = sum(outcome.run.kind == "serving" for outcome in report.outcomes) > 1
    for outcome in report.outcomes:
        limits = [["❔" if limit.met is None else _MET[limit.met], limit.text] for limit in outcome.run.summary.limits]
        facts = list(
            {"run": outcome.run.id or None, "started": outcome.run.started_at[:19], **run_facts(outcome.run)}.items()
        )
        body = (table(["", "limit"], limits) if limits else "") + table(["", ""], facts)
        if many and outcome.run.kind == "serving" and outcome.run.summary != Summary():
            body += measures_table(outcome)
        name = in_html(cut(outcome.label, MOST_CELL))
        yield f"<details><summary>{name}</summary>\n\n{_about(outcome)}\n\n{body}</details>\n\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: int | None = None) -> str:
    """Columns from index `right` on are numbers."""
    marks = ["---:" if right is not None and at >= right else "---" for at in range(len(columns))]
    lines = [_row(columns), f"|{'|'.join(marks)}|", *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n\n"


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(plain(cut(_parameter_text(cell), MOST_CELL)) for cell in cells)} |"


def _parameter_text(value: Any) -> str:
    return "-" if value is None else str(value)


def plain(text: str) -> str:
    """Text without markup: no HTML, no Markdown, no mentions, one line."""
    escaped = _SPECIAL.sub(r"\\\1", html.escape(one_line(text), quote=False))
    return _unlinked(escaped).replace("@", "&#64;")


def _unlinked(text: str) -> str:
    """GitHub turns addresses into links, even without brackets."""
    return _WEB.sub(r"\1&#46;", text).replace("://", "&#58;//")


def in_html(text: str) -> str:
    """The same inside a tag of ours, where Markdown's own escapes would be visible."""
    escaped = _unlinked(html.escape(one_line(text)))
    return escaped.replace("@", "&#64;").replace("[", "&#91;").replace("]", "&#93;").replace("`", "&#96;")


MOST_ANNOTATIONS = 10  # per kind and step; GitHub drops the others
MOST_MESSAGE = 4000
MOST_TITLE = 200
MOST_OUTPUT = 900_000  # bytes; GitHub's limit is 1 MB per job


def write_summary(report: CiReport, file: Path) -> None:
    """After what the step wrote before, within the remaining size limit."""
    with translated_errors(file):
        there = file.stat().st_size if file.exists() else 0
        with file.open("a", encoding="utf-8") as out:
            out.write(summary(report, max(0, MOST_BYTES - there)))


def write_outputs(report: CiReport, file: Path) -> None:
    with translated_errors(file), file.open("a", encoding="utf-8") as out:
        out.write("".join(f"{name}={value}\n" for name, value in outputs(report).items()))


def outputs(report: CiReport) -> dict[str, str]:
    """`run`, `runs`, `verdict`, `status`, `worse`, `ok`, `measures` as JSON; for a single run also each measure by
    itself. A case without a run has no id."""
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


def _measures(outcome: CiOutcome) -> dict[str, float]:
    return {key: quantity.value for key, quantity in outcome.quantities.items() if math.isfinite(quantity.value)}


def _measures_text(runs: Sequence[CiOutcome]) -> str:
    """All of them; for hundreds of runs only the headline ones; `{}` if even these are too many."""
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
    """A name usable in `${{ steps.x.outputs.ttft_p99 }}`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", key)


def _yes(fact: bool) -> str:
    return "true" if fact else "false"


def annotations(report: CiReport) -> Iterator[str]:
    """`::error title=...::...`, errors first, as many as GitHub keeps."""
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
    """For a log of GitHub: text such as a model's name must not be taken for a command."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}\n{harmless(text).rstrip()}\n::{token}::\n"


def in_github(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get("GITHUB_ACTIONS") == "true"
