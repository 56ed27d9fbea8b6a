"""What is said of several runs together, and of an experiment."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from inferometer.judge.compare import Comparison
from inferometer.measure.values import quantities
from inferometer.plan.text import Dumper
from inferometer.record.run import Run
from inferometer.show.charts.chart import Absent, Cannot, Chart
from inferometer.show.charts.experiments import Varied, keys_of
from inferometer.show.charts.registry import draw, gallery
from inferometer.show.charts.subject import labels_of
from inferometer.show.comparison import changes_table, head
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
    side_by_side,
)
from inferometer.store.experiments import KeptExperiment

MOST_COLUMNS = 12  # runs side by side; more are rows
MOST_KEYS = 24
_WORDS: dict[str, Tone] = {"worse": "bad", "better": "good", "same": "good", "unclear": "doubt", "changed": "doubt"}
_STATISTICS = ("mean", "p50", "p90", "p99")

Cases = list[tuple[dict[str, Any], Run]]


def runs_report(runs: Sequence[Run], comparison: Comparison | None = None) -> Report:
    """Runs beside one another. Two of them, or two sides, are compared as well."""
    charts, absent = gallery("runs", list(runs))
    drawn = [draw("comparison", comparison)] if comparison is not None and comparison.changes else []
    return Report(
        title=f"{len(runs)} runs",
        subtitle=", ".join(labels_of(runs).values()) if len(runs) <= 6 else f"{runs[0].id} to {runs[-1].id}",
        verdict=_compared(comparison) if comparison is not None else _counted(runs),
        sections=(
            Section("What was done", (runs_table(runs),)),
            Section("What was measured", tuple(_measured(runs, comparison, [*drawn, *charts]))),
            Section("What to doubt", tuple(_doubts(runs, comparison, absent))),
            Section("How to do it again", tuple(_again(runs))),
        ),
    )


def _compared(found: Comparison) -> Verdict:
    word = "not comparable" if found.refused else found.word
    text = head(found).plain.split("  ", 1)
    reasons = tuple(each.text for each in found.objections)
    return Verdict(word, "bad" if found.refused else _WORDS.get(word, "doubt"), text[-1] if text[1:] else "", reasons)


def _counted(runs: Sequence[Run]) -> Verdict:
    """The worst word of all, and how many have which."""
    words = Counter(str(run.status or "not judged") for run in runs)
    worst = next((word for word in ("invalid", "doubtful", "valid") if words[word]), "not judged")
    text = ", ".join(f"{count} {word}" for word, count in words.items())
    return Verdict(worst, TONES.get(worst, ""), f"{len(runs)} runs: {text}")


def runs_table(runs: Sequence[Run]) -> Table:
    names = labels_of(runs)
    rows = []
    for run in runs:
        word = str(run.status or "-")
        told = (
            Cell(names[run.id]),
            Cell(run.started_at[:16].replace("T", " ")),
            Cell(run.kind),
            Cell(run.source or "-"),
        )
        rows.append((*told, Cell(word, TONES.get(word, "")), Cell(run.id)))
    return Table(("run", "started", "kind", "from", "verdict", "id"), tuple(rows))


def _measured(runs: Sequence[Run], comparison: Comparison | None, charts: list[Chart]) -> Iterator[Block]:
    if comparison is not None and comparison.changes:
        yield from_rich(changes_table(comparison.changes, WIDE))
    for start in range(0, len(runs), MOST_COLUMNS):
        yield side_by_side(runs[start : start + MOST_COLUMNS], table_keys(runs))
    if charts:
        yield Charts(tuple(charts))


def table_keys(runs: Sequence[Run]) -> list[str]:
    """Headline measures and single numbers, as any of the runs has them."""
    headline = dict.fromkeys(name for run in runs for name in run.summary.headline)
    found = [quantities(run.summary) for run in runs]
    every = dict.fromkeys(key for each in found for key in each)
    wanted = [f"{name}.{statistic}" for name in headline for statistic in _STATISTICS]
    scalars = [key for key in every if any(key in each and each[key].statistic is None for each in found)]
    keys = [key for key in [*wanted, *scalars] if key in every]
    return (keys or list(every))[:MOST_KEYS] if not headline else keys[: MOST_KEYS + len(wanted)]


def _doubts(runs: Sequence[Run], comparison: Comparison | None, absent: list[Absent]) -> Iterator[Block]:
    names = labels_of(runs)
    said = [f"{names[run.id]}: {reason.text}" for run in runs for reason in run.doubts[:3]]
    yield Bullets(tuple(said[:40])) if said else Text("The checks of these runs found nothing.")
    if len(said) > 40:
        yield Text(f"and {len(said) - 40} more; inferometer show RUN tells all of one run.")
    if comparison is not None and any(change.within_only for change in comparison.changes):
        yield Text("One run a side cannot tell how much runs differ from each other: repeat them, and compare again.")
    yield Text(
        "Green marks the best of a row: its interval touches no other's. Where no run tells intervals, it is only the "
        "best value."
    )
    if comparison is None:
        yield Text("Numbers side by side are no comparison: inferometer compare tells what differs by more than noise.")
    if absent:
        yield Text("What these runs cannot show:")
        yield facts((each.title, each.why) for each in absent)


def _again(runs: Sequence[Run]) -> Iterator[Block]:
    for run in runs[:MOST_COLUMNS]:
        yield from (block for block in again(run) if isinstance(block, Code) and not block.fold)


def experiment_report(kept: KeptExperiment, cases: Cases) -> Report:
    """Its cases as rows, its numbers as curves and grids."""
    runs = [run for _, run in cases]
    charts, absent = _experiment_charts(cases)
    failed = [case for case in kept.cases if not case.get("run")]
    doubts: list[Block] = [Text(f"{len(failed)} of {len(kept.cases)} cases came to no run.")] if failed else []
    return Report(
        title=str(kept.name or kept.id),
        subtitle=f"{kept.kind} {kept.id}, {kept.started_at[:16].replace('T', ' ')}, {len(kept.cases)} cases",
        verdict=_counted(runs) if runs else Verdict("nothing", "bad", "no case came to a run"),
        sections=(
            Section("What was done", (_definition(kept),)),
            Section("What was measured", tuple(_cases(kept, cases, charts))),
            Section("What to doubt", (*doubts, *_doubts(runs, None, absent))),
            Section("How to do it again", (_definition(kept, full=True),)),
        ),
    )


def _definition(kept: KeptExperiment, full: bool = False) -> Block:
    if full:
        text = yaml.dump(kept.definition, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)
        return Code(text, "What was asked for:")
    rows = [("kind", kept.kind), ("cases", f"{len(kept.cases)}"), ("over", "yes" if kept.result is not None else "no")]
    varied = dict.fromkeys(name for case in kept.cases for name in case.get("parameters") or {})
    return facts([*rows, ("varied", ", ".join(varied) or "-")])


def _experiment_charts(cases: Cases) -> tuple[list[Chart], list[Absent]]:
    """Every number worth it as curves, the first ones as grids too, and the runs as points."""
    made: list[Chart] = []
    absent: list[Absent] = []
    for key in keys_of(cases):
        for name in ("experiment_curves", "experiment_grid"):
            try:
                chart = draw(name, Varied(key, cases))
                made.append(Chart(f"{name}_{key.replace('.', '_')}", chart.title, chart.spec))
            except Cannot as lacking:
                absent.append(Absent(name, f"{key}: {name.replace('_', ' ')}", str(lacking)))
    points, others = gallery("runs", [run for _, run in cases]) if len(cases) > 1 else ([], [])
    return [*made, *points], [*absent, *others]


def _cases(kept: KeptExperiment, cases: Cases, charts: list[Chart]) -> Iterator[Block]:
    keys = keys_of(cases)
    if cases:
        yield _cases_table(cases, keys)
    if kept.result:
        plain = {name: value for name, value in kept.result.items() if isinstance(value, str | int | float)}
        if plain:
            yield facts((name, str(value)) for name, value in plain.items())
    if charts:
        yield Charts(tuple(charts))


def _cases_table(cases: Cases, keys: Sequence[str]) -> Table:
    """What was set, and what came of it: numbers with their spread."""
    settings = list(dict.fromkeys(name for parameters, _ in cases for name in parameters))
    body = side_by_side([run for _, run in cases], keys)
    titles = [row[0].text for row in body.rows]
    rows = []
    for at, (parameters, run) in enumerate(cases):
        word = str(run.status or "-")
        told = [Cell(str(parameters.get(name, "-"))) for name in settings]
        rows.append((*told, *(row[at + 1] for row in body.rows), Cell(word, TONES.get(word, ""))))
    right = frozenset(range(len(settings) + len(titles)))
    return Table((*settings, *titles, "verdict"), tuple(rows), right)
