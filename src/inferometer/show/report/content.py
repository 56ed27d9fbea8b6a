"""The content of a report of one run, of several together, and of an experiment."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import yaml
from rich.table import Table as RichTable

from inferometer.judge.compare import Comparison
from inferometer.measure.values import Quantity, quantities
from inferometer.plan.text import Dumper
from inferometer.record.encoding import document_of, environment_document
from inferometer.record.run import KINDS, STATES, Run
from inferometer.show.about import MOST_TILES, About, about_of, done_table, one_of_each, own_plan, plan_texts
from inferometer.show.charts.chart import Absent, Cannot, Chart, ChartedRun, headlined, labels_of
from inferometer.show.charts.experiments import ChartedCase, Varied, joined_cases, keys_of, limit_keys, readable
from inferometer.show.charts.registry import STRATEGIES, definition_of, draw, gallery
from inferometer.show.comparison import changes_table, comparison_view
from inferometer.show.experiment_answer import (
    COUNTED,
    AnswerTable,
    ExperimentAnswer,
    answer_of,
    count_of,
    count_text,
    title_of,
)
from inferometer.show.experiment_answer import KINDS as EXPERIMENT_KINDS
from inferometer.show.notify.news import other_failures
from inferometer.show.offline import cases_table
from inferometer.show.report.document import (
    WIDE,
    Bullets,
    Cell,
    Charts,
    Code,
    Report,
    ReportBlock,
    ReportSection,
    ReportTable,
    ReportText,
    ReportVerdict,
    Tile,
    Tiles,
    Tone,
    facts,
    from_rich,
    numbers_table,
    runs_as_rows,
)
from inferometer.show.startup import phases_table
from inferometer.show.summary import (
    limits_table,
    models_table,
    results_table,
    stages_table,
    throughput_table,
    traffic_table,
)
from inferometer.show.tables import energy_table, gpu_table, headline_table, interval_table, server_table
from inferometer.store.experiments import KeptExperiment
from inferometer.vocabulary import percent_text

TONES: dict[str, Tone] = {"valid": "good", "doubtful": "doubt", "invalid": "bad"}
FIRST_REASONS = 2
_LATENCIES = ("ttft.p50", "ttft.p99", "tpot.p50", "e2e.p50")
_TILES = (
    *("output_rate", "request_rate", "goodput"),
    *("time_to_ready", "weights_time", "compile_time", "total_rate"),
)


def run_report(run: Run) -> Report:
    charts, absent = gallery("run", ChartedRun(run))
    about = about_of(run)
    return Report(
        title=about.stack or about.name or run.id,
        subtitle=_subtitle(run, about),
        verdict=verdict_of(run),
        sections=(
            ReportSection("Setup", tuple(_done(run))),
            ReportSection("Results", tuple(_measured(run, charts))),
            ReportSection("Doubts and notes", tuple(_doubts(run, absent))),
            ReportSection("Reproduce", tuple(again(run))),
        ),
    )


def _subtitle(run: Run, about: About) -> str:
    origin = f"imported from {run.source}" if run.source else KINDS[run.kind]
    commit = f"commit {about.commit}" if about.commit else ""
    first = about.traffic if about.stack else ""
    return " · ".join(filter(None, (first, about.name, about.when, commit, origin, run.id)))


def verdict_of(run: Run) -> ReportVerdict:
    status = run.status or "not judged"
    reasons = [reason.sentence for reason in run.doubts]
    more = len(reasons) - FIRST_REASONS
    shown = reasons if more <= 1 else [*reasons[:FIRST_REASONS], f"and {more} more, see Doubts and notes"]
    missed = [limit.text for limit in run.summary.limits if limit.met is False]
    state = "" if run.state == "complete" else f"{run.state}: {STATES[run.state]}"
    calm = "no problems were found with these numbers" if not reasons and not state else ""
    limits = f"{len(missed)} limit{'s' if len(missed) > 1 else ''} missed: {'; '.join(missed)}" if missed else ""
    tone = "bad" if missed else TONES.get(status, "doubt" if state else "")
    return ReportVerdict(
        status, tone, ". ".join(filter(None, [other_failures(run), state, limits, calm])), tuple(shown)
    )


def _done(run: Run) -> Iterator[ReportBlock]:
    if (plan := own_plan(run)) is not None:
        yield from_rich(done_table(run, plan))
    else:
        yield facts(plan_texts(run))
    about = list(_environment(run))
    if about:
        yield facts(about)


def _environment(run: Run) -> Iterator[tuple[str, str]]:
    machine, git = run.environment.machine, run.environment.git
    if machine:
        cores = machine.usable_cores or machine.cores
        yield "machine", ", ".join(filter(None, [machine.cpu, f"{cores} cores" if cores else None]))
    if run.subject.accelerators:
        yield "GPUs", run.subject.accelerators_text
    if git and git.commit:
        yield "commit", git.commit[:12] + (", with changes" if git.changed else "")


def _measured(run: Run, charts: list[Chart]) -> Iterator[ReportBlock]:
    numbers = quantities(run.summary)
    if tiles := tiles_of(numbers, run):
        yield Tiles(tiles)
    for table in _tables(run):
        yield from_rich(table)
    if own_plan(run) is None and numbers:
        yield numbers_table(numbers)
    if not numbers:
        yield ReportText("There are no measurements.")
    if charts:
        yield Charts(tuple(charts))


def tiles_of(numbers: Mapping[str, Quantity], run: Run | None = None) -> tuple[Tile, ...]:
    """Latencies as in the charts: for an open loop from the scheduled time."""
    named = [key.partition(".") for key in _LATENCIES]
    latencies = [f"{headlined([run], name) if run else name}.{statistic}" for name, _, statistic in named]
    keys = [key for key in (*latencies, *_TILES) if key in numbers]
    if len(keys) < 2:
        keys = one_of_each(numbers) or list(numbers)
    return tuple(_tile(numbers[key]) for key in keys[:MOST_TILES])


def _tile(quantity: Quantity) -> Tile:
    name = quantity.title if quantity.statistic is None else f"{quantity.title} {quantity.statistic}"
    return Tile(name, quantity.text, quantity.spread)


def _tables(run: Run) -> Iterator[RichTable]:
    """The tables of the terminal, with every column."""
    summary = run.summary
    if summary.startup and summary.startup.phases:
        yield phases_table(summary.startup, WIDE)
    if summary.cases:
        yield cases_table(summary, WIDE)
    plan = own_plan(run)
    if plan is None:
        return
    if table := headline_table(summary.measures, summary.headline, WIDE):
        yield table
    if summary.limits:
        yield limits_table(summary.limits)
    yield throughput_table(summary)
    yield results_table(summary)
    if table := server_table(summary):
        yield table
    if gpu := summary.gpu:
        yield gpu_table(gpu, WIDE)
        if table := energy_table(summary.values, gpu):
            yield table
    if summary.stages:
        yield stages_table(summary.stages, plan, WIDE)
    if summary.traffic:
        yield traffic_table(run, WIDE)
    if summary.models:
        yield models_table(summary, WIDE)


def _doubts(run: Run, absent: list[Absent]) -> Iterator[ReportBlock]:
    reasons = [reason.sentence for reason in run.doubts]
    yield Bullets(tuple(reasons)) if reasons else ReportText("The checks of this run found no problems.")
    measures = run.summary.measures
    if any(measure.intervals for measure in measures.values()) and run.summary.confidence:
        known = {name: measure for name, measure in measures.items() if measure.count and measure.intervals}
        cases = percent_text(run.summary.confidence)
        yield ReportText(
            f"Confidence intervals contain the true value under this run's conditions in {cases} of cases. "
            "They cover noise within this run; only repeats show the run-to-run variation."
        )
        yield from_rich(interval_table(known, run.summary.confidence, WIDE))
    for note in run.summary.notes:
        yield ReportText(note)
    if run.summary.definitions:
        yield ReportText("Definitions of the tool that measured this:")
        yield facts(run.summary.definitions.items())
    if absent:
        yield ReportText("Charts that this run has no data for:")
        yield facts((chart.title, chart.why) for chart in absent)


PLAN, ENVIRONMENT = "plan.yaml", "Full environment"  # titles of blocks that are folded until a reader opens them


def again(run: Run) -> Iterator[ReportBlock]:
    """The command and the plan; for imported runs their origin."""
    if run.source is not None:
        yield ReportText("This run was imported: repeat it with the original tool and the settings below.")
    elif run.kind in ("serving", "startup", "latency", "throughput"):
        yield Code(f"inferometer rerun {run.id}", "With the same plan and seed, on this machine:")
    if command := run.environment.command:
        yield Code(command, "Original command:")
    yield Code(
        yaml.dump(run.plan.settings(), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110),
        PLAN,
        fold=True,
    )
    yield Code(
        yaml.dump(environment_document(run.environment), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110),
        ENVIRONMENT,
        fold=True,
    )


MOST_COLUMNS = 12  # runs side by side; more become rows
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


def runs_report(runs: Sequence[Run], comparison: Comparison | None = None) -> Report:
    """Runs side by side. Two of them, or two sides, are also compared."""
    charts, absent = gallery("runs", list(runs))
    drawn = [draw("comparison", comparison)] if comparison is not None and comparison.changes else []
    return Report(
        title=f"{len(runs)} runs",
        subtitle=_common_text(runs),
        verdict=_compared(comparison) if comparison is not None else _counted(runs),
        sections=(
            ReportSection("Results", tuple(_measured_side_by_side(runs, comparison, [*drawn, *charts]))),
            ReportSection("Setup", (runs_table(runs),)),
            ReportSection("Doubts and notes", tuple(_doubts_of_runs(runs, comparison, absent))),
            ReportSection("Reproduce", tuple(_again(runs))),
        ),
    )


def _compared(comparison: Comparison) -> ReportVerdict:
    compared = comparison_view(comparison)
    reasons = tuple(objection.text for objection in compared.objections)
    return ReportVerdict(compared.status, _TONE_OF_STATUS.get(compared.status, "doubt"), compared.counts, reasons)


def _counted(runs: Sequence[Run]) -> ReportVerdict:
    """The worst status, and how many runs have which."""
    statuses = Counter(str(run.status or "not judged") for run in runs)
    worst = next((status for status in ("invalid", "doubtful", "valid") if statuses[status]), "not judged")
    text = ", ".join(f"{count} {status}" for status, count in statuses.items())
    return ReportVerdict(worst, TONES.get(worst, ""), f"{len(runs)} runs: {text}")


_FACETS = ("model", "engine", "hardware", "workload", "load", "commit")  # of a run's header


def _common_text(runs: Sequence[Run]) -> str:
    """What all runs share, and what differs."""
    values = {name: {getattr(about_of(run), name) or "" for run in runs} for name in _FACETS}
    common = [next(iter(texts)) for texts in values.values() if len(texts) == 1]
    differing = [name for name, texts in values.items() if len(texts) > 1]
    differs = f"differs: {', '.join(differing)}" if differing else "all of one setup"
    return " · ".join(filter(None, [*common, differs]))


def runs_table(runs: Sequence[Run]) -> ReportTable:
    """A row for each run with what differs between them; what they share is in the subtitle."""
    names, abouts = labels_of(runs), {run.id: about_of(run) for run in runs}
    differing = [name for name in _FACETS if len({getattr(about, name) for about in abouts.values()}) > 1]
    rows = []
    for run in runs:
        status = str(run.status or "-")
        about = abouts[run.id]
        cells = [Cell(names[run.id]), *(Cell(getattr(about, name) or "-") for name in differing), Cell(about.when)]
        rows.append((*cells, Cell(run.source or run.kind), Cell(status, TONES.get(status, "")), Cell(run.id)))
    return ReportTable(("run", *differing, "started", "from", "verdict", "id"), tuple(rows))


def _measured_side_by_side(
    runs: Sequence[Run], comparison: Comparison | None, charts: list[Chart]
) -> Iterator[ReportBlock]:
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
    """Headline measures and single numbers that any of the runs has."""
    headline = dict.fromkeys(name for run in runs for name in run.summary.headline)
    by_run = [quantities(run.summary) for run in runs]
    every = dict.fromkeys(key for numbers in by_run for key in numbers)
    wanted = [f"{name}.{statistic}" for name in headline for statistic in _STATISTICS]
    scalars = [key for key in every if any(key in numbers and numbers[key].statistic is None for numbers in by_run)]
    keys = [key for key in [*wanted, *scalars] if key in every]
    return (keys or list(every))[:MOST_KEYS] if not headline else keys[: MOST_KEYS + len(wanted)]


def _doubts_of_runs(runs: Sequence[Run], comparison: Comparison | None, absent: list[Absent]) -> Iterator[ReportBlock]:
    names = labels_of(runs)
    doubts = [f"{names[run.id]}: {reason.sentence}" for run in runs for reason in run.doubts[:3]]
    yield Bullets(tuple(doubts[:40])) if doubts else ReportText("The checks of these runs found no problems.")
    if len(doubts) > 40:
        yield ReportText(f"and {len(doubts) - 40} more; inferometer show RUN lists everything about one run.")
    if comparison is None:
        yield ReportText(
            "These numbers are not a statistical comparison: inferometer compare shows which differences exceed noise."
        )
    if absent:
        yield ReportText("Charts that these runs have no data for:")
        yield facts((chart.title, chart.why) for chart in absent)


def _again(runs: Sequence[Run]) -> Iterator[ReportBlock]:
    names = labels_of(runs)
    for run in runs[:MOST_COLUMNS]:
        for block in again(run):
            if isinstance(block, Code) and block.title != ENVIRONMENT:
                yield replace(block, title=f"{PLAN} of {names[run.id]}") if block.title == PLAN else block


def experiment_report(kept: KeptExperiment, cases: Sequence[ChartedCase]) -> Report:
    """Its answer first, then its tables and charts, its cases as rows."""
    runs = [run for _, run in cases]
    charts, absent = _experiment_charts(kept, cases)
    failed = [case for case in kept.latest if not case.run]
    doubts: list[ReportBlock] = (
        [ReportText(f"{len(failed)} of {len(kept.latest)} cases have no run.")] if failed else []
    )
    answer = answer_of(kept, cases)
    about = about_of(runs[0]).stack if runs else ""
    when = kept.started_at[:16].replace("T", " ")
    return Report(
        title=title_of(kept),
        subtitle=" · ".join(filter(None, (about, f"{EXPERIMENT_KINDS[kept.kind]}, {when}", count_text(kept), kept.id))),
        verdict=ReportVerdict(answer.status or "done", answer.tone, answer.headline, tuple(filter(None, answer.notes)))
        if runs
        else ReportVerdict("nothing", "bad", "no case has a run"),
        sections=(
            ReportSection("Results", tuple(_cases(answer, cases, charts))),
            ReportSection("Setup", (_definition(kept),)),
            ReportSection("Doubts and notes", (*doubts, *_doubts_of_runs(runs, None, absent))),
            ReportSection("Reproduce", (_definition(kept, full=True),)),
        ),
    )


def _definition(kept: KeptExperiment, full: bool = False) -> ReportBlock:
    if full:
        text = yaml.dump(document_of(kept.definition), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)
        return Code(text, "The experiment:", fold=True)
    over = "yes" if kept.result is not None else "no"
    rows = [("kind", EXPERIMENT_KINDS[kept.kind]), (COUNTED[kept.kind], f"{count_of(kept)}"), ("over", over)]
    varied = dict.fromkeys(name for case in kept.cases for name in case.parameters or {})
    return facts([*rows, ("varied", ", ".join(varied) or "-")])


def _experiment_charts(kept: KeptExperiment, cases: Sequence[ChartedCase]) -> tuple[list[Chart], list[Absent]]:
    """For an A/B test the forest plot of its measures, for a search its limits by load; for a sweep the runs as points,
    then every useful number as grids and curves."""
    if kept.kind == "ab":
        return ([draw("comparison", kept.result)] if kept.result else []), []
    tried = [case for case in cases if case[0] or kept.kind != "search"]
    points, others = gallery("runs", [run for _, run in tried]) if len(tried) > 1 else ([], [])
    made, absent = _varied_charts(kept, tried)
    return ([*made, *points] if kept.kind == "search" else [*points, *made]), [*absent, *others]


def _varied_charts(kept: KeptExperiment, cases: Sequence[ChartedCase]) -> tuple[list[Chart], list[Absent]]:
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


def _cases(answer: ExperimentAnswer, cases: Sequence[ChartedCase], charts: list[Chart]) -> Iterator[ReportBlock]:
    for table in answer.tables:
        yield ReportText(f"{table.title}:")
        yield _answer_table(table)
    if charts:
        yield Charts(tuple(charts))
    if cases:
        yield _cases_table(cases, keys_of(cases))


def _answer_table(table: AnswerTable) -> ReportTable:
    rows = []
    for at, cells in enumerate(table.rows):
        tone: Tone = table.tones[at] if table.tones else ""
        rows.append((*map(Cell, cells[:-1]), Cell(cells[-1], tone)))
    return ReportTable(tuple(table.head), tuple(rows), frozenset(table.right))


def _cases_table(cases: Sequence[ChartedCase], keys: Sequence[str]) -> ReportTable:
    """The settings, and the results: numbers with their spread."""
    joined = joined_cases(cases)
    settings = list(dict.fromkeys(name for parameters, _ in joined for name in parameters))
    body = runs_as_rows([run for _, run in joined], keys)
    rows = []
    for (parameters, run), row in zip(joined, body.rows, strict=True):
        status = str(run.status or "-")
        cells = [Cell(str(parameters.get(name, "-"))) for name in settings]
        rows.append((*cells, *row[1:], Cell(status, TONES.get(status, ""))))
    right = frozenset(range(len(settings) + len(body.head) - 1))
    return ReportTable((*map(readable, settings), *body.head[1:], "verdict"), tuple(rows), right)
