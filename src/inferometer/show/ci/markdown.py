"""The step summary: GitHub-flavoured Markdown, safe whatever names are in it, and never larger than GitHub takes."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from inferometer.judge.wording import change_text
from inferometer.record.sanitize import cut, one_line
from inferometer.record.summary import Summary
from inferometer.show.ci.outcome import Outcome, Report, headline_keys
from inferometer.show.notify.findings import run_facts
from inferometer.show.numbers import spread_text, value_text

MOST_BYTES = 1_000_000  # GitHub drops a summary of more than 1 MiB of a step, whole
STATISTICS = ("mean", "p50", "p90", "p99")
MARKS = {"fine": "✅", "worse": "📉", "failed": "❌", "invalid": "❌", "unclear": "⚠️", "doubtful": "⚠️"}
WORD_MARKS = {"worse": "🔴", "better": "🟢", "same": "⚪", "unclear": "🟡", "changed": "🔵"}
_SPECIAL = re.compile(r"([\\`*_\[\]|~$]|^[#+=-](?=.)|(?<=^\d)[.)](?= ))")
_WEB = re.compile(r"\b(www)\.", re.IGNORECASE)  # a link by itself
MOST_TEXT = 2000  # characters of a problem
MOST_CELL = 300
_MET = {True: "✅", False: "❌"}  # None: it cannot be told
_TABLED = 200  # runs in one table


def summary(report: Report, room: int = MOST_BYTES) -> str:
    """The most important first; sections that have no room any more are left out, and that is said."""
    parts = [_head(report), *_runs(report), *_checks(report), *_details(report)]
    return fitting(parts, room)


def fitting(parts: Sequence[str], room: int) -> str:
    """Whole parts as long as there is room, in bytes of UTF-8."""
    left_out = "\n_More was measured than has room here: `inferometer show` has it all._\n"
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


def _head(report: Report) -> str:
    lines = [f"## {MARKS[report.word]} {plain(cut(report.title, MOST_CELL))}: {report.word}\n"]
    for each, problem in report.problems[:50]:
        whose = f"**{_name(each)}**: " if len(report.outcomes) > 1 else ""
        lines.append(f"- {'❌' if problem.level == 'error' else '⚠️'} {whose}{plain(cut(problem.text, MOST_TEXT))}")
    if len(report.problems) > 50:
        lines.append(f"- … and {len(report.problems) - 50} more")
    if not report.problems:
        lines += [f"- {plain(cut(text, MOST_TEXT))}" for each in report.outcomes[:20] for text in _quiet(each)]
    return "\n".join(lines) + "\n\n"


def _quiet(each: Outcome) -> Iterable[str]:
    return map(str, each.check.get("sentences", ())) if each.check else ()


def _runs(report: Report) -> Iterator[str]:
    serving = [each for each in report.outcomes if each.run.kind == "serving"]
    if len(serving) > 1:
        for at in range(0, len(serving), _TABLED):
            yield _runs_table(serving[at : at + _TABLED])
    for each in report.outcomes:
        if each.run.summary != Summary() and (len(serving) < 2 or each.run.kind != "serving"):
            yield measures_table(each)


def _runs_table(outcomes: Sequence[Outcome]) -> str:
    """A row per run, with the parameters in which they differ."""
    keys = headline_keys(outcomes)
    names = list(dict.fromkeys(name for each in outcomes for name in each.parameters))
    titles = [_title(outcomes, key) for key in keys]
    rows = [
        [each.label, *(_said(each.parameters.get(name)) for name in names), *_cells(each, keys)] for each in outcomes
    ]
    return table(["run", *names, *titles, "verdict"], rows, right=1 + len(names))


def _cells(each: Outcome, keys: Sequence[str]) -> list[str]:
    known = each.quantities
    cells = [value_text(known[key].value, known[key].unit) if key in known else "-" for key in keys]
    return [*cells, each.verdict]


def _name(each: Outcome) -> str:
    return plain(cut(each.label, MOST_CELL))


def _title(outcomes: Sequence[Outcome], key: str) -> str:
    found = next(each.quantities[key] for each in outcomes if key in each.quantities)
    return " ".join(filter(None, (found.title, found.statistic)))


def measures_table(each: Outcome) -> str:
    """A row per measure with its mean and quantiles, then one per number that has none."""
    known = each.quantities
    names = list(dict.fromkeys(found.name for found in known.values() if found.statistic))
    rows = [[_row_title(each, name), *(_cell(each, f"{name}.{stat}") for stat in STATISTICS)] for name in names]
    rows = [row for row in rows if any(cell != "-" for cell in row[1:])]
    scalars = [found for found in known.values() if found.statistic is None]
    single = [[found.title, value_text(found.value, found.unit)] for found in scalars]
    head = f"**{_name(each)}** ({plain(each.verdict)})\n\n"
    first = table(["", *STATISTICS], rows, right=1) if rows else ""
    return head + first + (table(["", "value"], single, right=1) if single else "")


def _row_title(each: Outcome, name: str) -> str:
    return next(found.title for found in each.quantities.values() if found.name == name)


def _cell(each: Outcome, key: str) -> str:
    found = each.quantities.get(key)
    if found is None:
        return "-"
    beside = spread_text(found.value, found.interval, found.unit)
    return f"{value_text(found.value, found.unit)} {beside}".strip()


def _checks(report: Report) -> Iterator[str]:
    for each in report.outcomes:
        if each.check and each.check.get("measures"):
            shown = [found for found in each.check["measures"] if _matters(found)]
            against = plain(cut(str(each.check.get("against")), MOST_CELL))
            whose = f"{_name(each)} against {against}" if len(report.outcomes) > 1 else f"Against {against}"
            yield f"### {whose}\n\n" + table(["", "before", "after", "change", ""], map(_change, shown), right=1)


def _matters(found: Mapping[str, Any]) -> bool:
    return found["class"] == "alert" or found["word"] in ("worse", "better", "changed")


def _change(found: Mapping[str, Any]) -> list[str]:
    before, after = (value_text(found[name], found["unit"]) for name in ("before", "after"))
    change = change_text(found["change"], found["relative"], found["unit"])
    return [found["title"], before, after, change, f"{WORD_MARKS.get(found['word'], '')} {found['word']}"]


def _details(report: Report) -> Iterator[str]:
    """Folded: limits, what was measured, and everything that was measured."""
    many = sum(each.run.kind == "serving" for each in report.outcomes) > 1
    for each in report.outcomes:
        limits = [["❔" if limit.met is None else _MET[limit.met], limit.text] for limit in each.run.summary.limits]
        facts = list({"run": each.run.id or None, "started": each.run.started_at[:19], **run_facts(each.run)}.items())
        body = (table(["", "limit"], limits) if limits else "") + table(["", ""], facts)
        if many and each.run.kind == "serving" and each.run.summary != Summary():
            body += measures_table(each)
        yield f"<details><summary>{in_html(cut(each.label, MOST_CELL))}</summary>\n\n{body}</details>\n\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: int | None = None) -> str:
    """Columns from the one numbered `right` on are numbers."""
    marks = ["---:" if right is not None and at >= right else "---" for at in range(len(columns))]
    lines = [_row(columns), f"|{'|'.join(marks)}|", *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n\n"


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(plain(cut(_said(cell), MOST_CELL)) for cell in cells)} |"


def _said(value: Any) -> str:
    return "-" if value is None else str(value)


def plain(text: str) -> str:
    """Text that stays text: no HTML, no Markdown, no mention of anybody, one line."""
    said = _SPECIAL.sub(r"\\\1", html.escape(one_line(text), quote=False))
    return _unlinked(said).replace("@", "&#64;")


def _unlinked(said: str) -> str:
    """GitHub makes links of addresses, also without brackets."""
    return _WEB.sub(r"\1&#46;", said).replace("://", "&#58;//")


def in_html(text: str) -> str:
    """The same inside a tag of ours, where Markdown's own escapes would be seen."""
    said = _unlinked(html.escape(one_line(text)))
    return said.replace("@", "&#64;").replace("[", "&#91;").replace("]", "&#93;").replace("`", "&#96;")
