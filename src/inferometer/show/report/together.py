"""What is said of several runs together, and of an experiment."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from inferometer.judge.compare import Comparison
from inferometer.measure.values import quantities
from inferometer.plan.text import Dumper
from inferometer.record.run import Run
from inferometer.show.about import about_of
from inferometer.show.charts.chart import Absent, Cannot, Chart
from inferometer.show.charts.experiments import Varied, joined_cases, keys_of, limit_keys, readable
from inferometer.show.charts.registry import STRATEGIES, definition_of, draw, gallery
from inferometer.show.charts.subject import labels_of
from inferometer.show.comparison import changes_table
from inferometer.show.comparison_view import comparison_view
from inferometer.show.experiment_answer import (
    COUNTED,
    KINDS,
    AnswerTable,
    ExperimentAnswer,
    answer_of,
    comparison_from,
    count_of,
    count_text,
    title_of,
)
from inferometer.show.report.content import TONES, again
from inferometer.show.report.document import (
    WIDE,
    Block,
    Bullets,
    Cell,
    Charts,
    Code,
    Report,
    Section,
    Table,
    Text,
    Tone,
    Verdict,
    facts,
    from_rich,
    runs_as_rows,
)
from inferometer.store.experiments import KeptExperiment

MOST_COLUMNS = 12  # runs side by side; more are rows
MOST_KEYS = 24
_TONE_OF_STATUS: dict[str, Tone] = {
    "worse": "bad",
    "not comparable": "bad",
    "better": "good",
    "same": "good",
    "unclear": "doubt",
    "changed": "doubt",
}
_STATISTICS = ("mean", "p50", "p90", "p99")

Cases = list[tuple[dict[str, Any], Run]]


def runs_report(runs: Sequence[Run], comparison: Comparison | None = None) -> Report:
    """Runs beside one another. Two of them, or two sides, are compared as well."""
    charts, absent = gallery("runs", list(runs))
    drawn = [draw("comparison", comparison)] if comparison is not None and comparison.changes else []
    return Report(
        title=f"{len(runs)} runs",
        subtitle=_common_text(runs),
        verdict=_compared(comparison) if comparison is not None else _counted(runs),
        sections=(
            Section("Results", tuple(_measured(runs, comparison, [*drawn, *charts]))),
            Section("Setup", (runs_table(runs),)),
            Section("Doubts and notes", tuple(_doubts(runs, comparison, absent))),
            Section("Reproduce", tuple(_again(runs))),
        ),
    )


def _compared(comparison: Comparison) -> Verdict:
    compared = comparison_view(comparison)
    reasons = tuple(objection.text for objection in compared.objections)
    return Verdict(compared.status, _TONE_OF_STATUS.get(compared.status, "doubt"), compared.counts, reasons)


def _counted(runs: Sequence[Run]) -> Verdict:
    """The worst word of all, and how many have which."""
    statuses = Counter(str(run.status or "not judged") for run in runs)
    worst = next((status for status in ("invalid", "doubtful", "valid") if statuses[status]), "not judged")
    text = ", ".join(f"{count} {status}" for status, count in statuses.items())
    return Verdict(worst, TONES.get(worst, ""), f"{len(runs)} runs: {text}")


_FACETS = ("model", "engine", "hardware", "workload", "load", "commit")  # of a run's header


def _common_text(runs: Sequence[Run]) -> str:
    """What all runs share, and what differs."""
    values = {name: {getattr(about_of(run), name) or "" for run in runs} for name in _FACETS}
    common = [next(iter(texts)) for texts in values.values() if len(texts) == 1]
    differing = [name for name, texts in values.items() if len(texts) > 1]
    differs = f"differs: {', '.join(differing)}" if differing else "all of one setup"
    return " · ".join(filter(None, [*common, differs]))


def runs_table(runs: Sequence[Run]) -> Table:
    """A row for each run with what differs between them; what they share is in the subtitle."""
    names, abouts = labels_of(runs), {run.id: about_of(run) for run in runs}
    differing = [name for name in _FACETS if len({getattr(about, name) for about in abouts.values()}) > 1]
    rows = []
    for run in runs:
        status = str(run.status or "-")
        about = abouts[run.id]
        cells = [Cell(names[run.id]), *(Cell(getattr(about, name) or "-") for name in differing), Cell(about.when)]
        rows.append((*cells, Cell(run.source or run.kind), Cell(status, TONES.get(status, "")), Cell(run.id)))
    return Table(("run", *differing, "started", "from", "verdict", "id"), tuple(rows))


def _measured(runs: Sequence[Run], comparison: Comparison | None, charts: list[Chart]) -> Iterator[Block]:
    """Charts come early: the table of all numbers is below them."""
    if comparison is not None:
        compared = comparison_view(comparison)
        if compared.rows:
            yield from_rich(changes_table(compared.rows, WIDE))
        yield facts(compared.facts)
    if charts:
        yield Charts(tuple(charts))
    yield runs_as_rows(runs, table_keys(runs))


def table_keys(runs: Sequence[Run]) -> list[str]:
    """Headline measures and single numbers, as any of the runs has them."""
    headline = dict.fromkeys(name for run in runs for name in run.summary.headline)
    by_run = [quantities(run.summary) for run in runs]
    every = dict.fromkeys(key for numbers in by_run for key in numbers)
    wanted = [f"{name}.{statistic}" for name in headline for statistic in _STATISTICS]
    scalars = [key for key in every if any(key in numbers and numbers[key].statistic is None for numbers in by_run)]
    keys = [key for key in [*wanted, *scalars] if key in every]
    return (keys or list(every))[:MOST_KEYS] if not headline else keys[: MOST_KEYS + len(wanted)]


def _doubts(runs: Sequence[Run], comparison: Comparison | None, absent: list[Absent]) -> Iterator[Block]:
    names = labels_of(runs)
    doubts = [f"{names[run.id]}: {reason.sentence}" for run in runs for reason in run.doubts[:3]]
    yield Bullets(tuple(doubts[:40])) if doubts else Text("The checks of these runs found no problems.")
    if len(doubts) > 40:
        yield Text(f"and {len(doubts) - 40} more; inferometer show RUN lists everything about one run.")
    if comparison is None:
        yield Text(
            "These numbers are not a statistical comparison: inferometer compare shows which differences exceed noise."
        )
    if absent:
        yield Text("Charts that these runs have no data for:")
        yield facts((chart.title, chart.why) for chart in absent)


def _again(runs: Sequence[Run]) -> Iterator[Block]:
    for run in runs[:MOST_COLUMNS]:
        yield from (block for block in again(run) if isinstance(block, Code) and not block.fold)


def experiment_report(kept: KeptExperiment, cases: Cases) -> Report:
    """Its answer first, then its tables and charts, its cases as rows."""
    runs = [run for _, run in cases]
    charts, absent = _experiment_charts(kept, cases)
    failed = [case for case in kept.latest if not case.run]
    doubts: list[Block] = [Text(f"{len(failed)} of {len(kept.latest)} cases have no run.")] if failed else []
    answer = answer_of(kept, cases)
    about = about_of(runs[0]).stack if runs else ""
    when = kept.started_at[:16].replace("T", " ")
    return Report(
        title=title_of(kept),
        subtitle=" · ".join(filter(None, (about, f"{KINDS[kept.kind]}, {when}", count_text(kept), kept.id))),
        verdict=Verdict(answer.status or "done", answer.tone, answer.headline, tuple(filter(None, answer.notes)))
        if runs
        else Verdict("nothing", "bad", "no case has a run"),
        sections=(
            Section("Results", tuple(_cases(answer, cases, charts))),
            Section("Setup", (_definition(kept),)),
            Section("Doubts and notes", (*doubts, *_doubts(runs, None, absent))),
            Section("Reproduce", (_definition(kept, full=True),)),
        ),
    )


def _definition(kept: KeptExperiment, full: bool = False) -> Block:
    if full:
        text = yaml.dump(kept.definition, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)
        return Code(text, "The experiment:", fold=True)
    over = "yes" if kept.result is not None else "no"
    rows = [("kind", KINDS[kept.kind]), (COUNTED[kept.kind], f"{count_of(kept)}"), ("over", over)]
    varied = dict.fromkeys(name for case in kept.cases for name in case.parameters or {})
    return facts([*rows, ("varied", ", ".join(varied) or "-")])


def _experiment_charts(kept: KeptExperiment, cases: Cases) -> tuple[list[Chart], list[Absent]]:
    """Of an A/B test the forest of its measures, of a search its limits by load; of a sweep the runs as points, then
    every number worth it as grids and curves."""
    if kept.kind == "ab":
        return ([draw("comparison", comparison_from(kept.result))] if kept.result else []), []
    tried = [case for case in cases if case[0] or kept.kind != "search"]
    points, others = gallery("runs", [run for _, run in tried]) if len(tried) > 1 else ([], [])
    made, absent = _varied_charts(kept, tried)
    return ([*made, *points] if kept.kind == "search" else [*points, *made]), [*absent, *others]


def _varied_charts(kept: KeptExperiment, cases: Cases) -> tuple[list[Chart], list[Absent]]:
    names = ["search_curve"] if kept.kind == "search" else ["experiment_grid", "experiment_curves", "routing_map"]
    keys = list(limit_keys(cases)) if kept.kind == "search" else keys_of(cases)
    made: list[Chart] = []
    absent: list[Absent] = []
    for name in () if kept.kind == "search" else STRATEGIES:
        try:
            made.append(draw(name, Varied("ttft.mean", cases)))
        except Cannot as lacking:
            absent.append(Absent(name, definition_of(name).title, str(lacking)))
    for name in names:
        for key in keys:
            try:
                chart = draw(name, Varied(key, cases))
                made.append(Chart(f"{name}_{key.replace('.', '_')}", chart.title, chart.spec))
            except Cannot as lacking:
                absent.append(Absent(name, f"{key}: {name.replace('_', ' ')}", str(lacking)))
    return made, absent


def _cases(answer: ExperimentAnswer, cases: Cases, charts: list[Chart]) -> Iterator[Block]:
    for table in answer.tables:
        yield Text(f"{table.title}:")
        yield _answer_table(table)
    if charts:
        yield Charts(tuple(charts))
    if cases:
        yield _cases_table(cases, keys_of(cases))


def _answer_table(table: AnswerTable) -> Table:
    rows = []
    for at, cells in enumerate(table.rows):
        tone: Tone = table.tones[at] if table.tones else ""
        rows.append((*map(Cell, cells[:-1]), Cell(cells[-1], tone)))
    return Table(tuple(table.head), tuple(rows), frozenset(table.right))


def _cases_table(cases: Cases, keys: Sequence[str]) -> Table:
    """What was set, and what came of it: numbers with their spread."""
    joined = joined_cases(cases)
    settings = list(dict.fromkeys(name for parameters, _ in joined for name in parameters))
    body = runs_as_rows([run for _, run in joined], keys)
    rows = []
    for (parameters, run), row in zip(joined, body.rows, strict=True):
        status = str(run.status or "-")
        cells = [Cell(str(parameters.get(name, "-"))) for name in settings]
        rows.append((*cells, *row[1:], Cell(status, TONES.get(status, ""))))
    right = frozenset(range(len(settings) + len(body.head) - 1))
    return Table((*map(readable, settings), *body.head[1:], "verdict"), tuple(rows), right)
