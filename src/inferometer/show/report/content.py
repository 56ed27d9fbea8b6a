"""What is said of one run: verdict first, then what was done, what was measured, what to doubt, how to do it again."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from rich.table import Table as RichTable

from inferometer.measure.values import Quantity, quantities
from inferometer.plan.text import Dumper
from inferometer.record.run import KINDS, STATES, Run
from inferometer.show.charts.chart import Absent, Chart
from inferometer.show.charts.registry import gallery
from inferometer.show.charts.subject import Subject
from inferometer.show.numbers import spread_text, value_text
from inferometer.show.offline import cases_table
from inferometer.show.plan_text import done_table, own_plan, plan_in_words
from inferometer.show.report.document import (
    WIDE,
    Block,
    Bullets,
    Charts,
    Code,
    Report,
    Section,
    Text,
    Tile,
    Tiles,
    Tone,
    Verdict,
    facts,
    from_rich,
    numbers_table,
)
from inferometer.show.startup import phases_table
from inferometer.show.summary import limits_table, results_table, stages_table, traffic_table
from inferometer.show.tables import headline_table, interval_table
from inferometer.show.telemetry import energy_table, gpu_table, server_table

TONES: dict[str, Tone] = {"valid": "good", "doubtful": "doubt", "invalid": "bad"}
FIRST_REASONS = 2
MOST_TILES = 8
_TILES = (
    *("ttft_scheduled.p50", "ttft.p50", "ttft.p99", "tpot.p50", "e2e.p50", "output_rate", "request_rate", "goodput"),
    *("time_to_ready", "weights_time", "compile_time", "total_rate"),
)


def run_report(run: Run) -> Report:
    charts, absent = gallery("run", Subject(run))
    return Report(
        title=str(run.plan.get("name") or run.id),
        subtitle=_subtitle(run),
        verdict=verdict_of(run),
        sections=(
            Section("What was done", tuple(_done(run))),
            Section("What was measured", tuple(_measured(run, charts))),
            Section("What to doubt", tuple(_doubts(run, absent))),
            Section("How to do it again", tuple(again(run))),
        ),
    )


def _subtitle(run: Run) -> str:
    when = run.started_at[:16].replace("T", " ")
    origin = f"imported from {run.source}" if run.source else KINDS[run.kind]
    clock = " UTC" if run.started_at.endswith("+00:00") else ""
    named = [run.id] if run.plan.get("name") else []  # else the title says it
    return ", ".join([*named, f"{when}{clock}", origin])


def verdict_of(run: Run) -> Verdict:
    word = run.status or "not judged"
    said = [reason.text for reason in run.doubts]
    more = len(said) - FIRST_REASONS
    shown = said if more <= 1 else [*said[:FIRST_REASONS], f"and {more} more, under What to doubt"]
    missed = [limit.text for limit in run.summary.limits if limit.met is False]
    state = "" if run.state == "complete" else f"{run.state}: {STATES[run.state]}"
    calm = "nothing speaks against these numbers" if not said and not state else ""
    limits = f"{len(missed)} limit{'s' if len(missed) > 1 else ''} missed: {'; '.join(missed)}" if missed else ""
    tone = "bad" if missed else TONES.get(word, "doubt" if state else "")
    return Verdict(word, tone, ". ".join(filter(None, [state, limits, calm])), tuple(shown))


def _done(run: Run) -> Iterator[Block]:
    if (plan := own_plan(run)) is not None:
        yield from_rich(done_table(run, plan))
    else:
        yield facts(plan_in_words(run))
    about = list(_environment(run.environment))
    if about:
        yield facts(about)


def _environment(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    machine, gpus, git = (environment.get(name) or {} for name in ("machine", "gpu", "git"))
    if machine:
        yield "machine", ", ".join(filter(None, [machine.get("cpu"), f"{machine.get('usable_cores')} cores"]))
    names = [str(each.get("name")) for each in gpus.get("gpus", [])] if isinstance(gpus, Mapping) else []
    names = names or [str(each) for each in environment.get("gpus") or []]
    if names:
        yield "GPUs", ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    if git.get("commit"):
        yield "commit", git["commit"][:12] + (", with changes" if git.get("changed") else "")


def _measured(run: Run, charts: list[Chart]) -> Iterator[Block]:
    found = quantities(run.summary)
    if tiles := tiles_of(found):
        yield Tiles(tiles)
    for table in _tables(run):
        yield from_rich(table)
    if own_plan(run) is None and found:
        yield numbers_table(found)
    if not found:
        yield Text("Nothing was measured.")
    if charts:
        yield Charts(tuple(charts))


def tiles_of(found: Mapping[str, Quantity]) -> tuple[Tile, ...]:
    keys = [key for key in _TILES if key in found] or [key for key, each in found.items() if each.statistic is None]
    return tuple(_tile(found[key]) for key in keys[:MOST_TILES])


def _tile(each: Quantity) -> Tile:
    name = each.title if each.statistic is None else f"{each.title} {each.statistic}"
    unit = "" if each.unit in ("s", "share", "1/s", "tokens/s", "") else f" {each.unit}"
    per_second = each.unit == "tokens/s" and each.title.endswith("per second")
    text = value_text(each.value, "" if per_second else each.unit)
    return Tile(name, f"{text}{unit}", spread_text(each.value, each.interval, each.unit))


def _tables(run: Run) -> Iterator[RichTable]:
    """Those that the terminal shows, with every column."""
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


def _doubts(run: Run, absent: list[Absent]) -> Iterator[Block]:
    reasons = [reason.text for reason in run.doubts]
    yield Bullets(tuple(reasons)) if reasons else Text("The checks of this run found nothing.")
    measures = run.summary.measures
    if any(measure.intervals for measure in measures.values()) and run.summary.confidence:
        known = {name: measure for name, measure in measures.items() if measure.count and measure.intervals}
        yield Text(
            f"Intervals hold the true value of this run's conditions in {run.summary.confidence:.0%} of cases. "
            "They tell of the noise within this run; how much runs differ from each other only repeats can tell."
        )
        yield from_rich(interval_table(known, run.summary.confidence, WIDE))
    for note in run.summary.notes:
        yield Text(note)
    if run.summary.definitions:
        yield Text("The tool that measured this defines:")
        yield facts(run.summary.definitions.items())
    if absent:
        yield Text("What this run cannot show:")
        yield facts((each.title, each.why) for each in absent)


def again(run: Run) -> Iterator[Block]:
    """The command and the plan; of what was imported, where it came from."""
    if run.source is not None:
        yield Text("This run was imported: the tool that made it can do it again, with the settings below.")
    elif run.kind in ("serving", "startup", "latency", "throughput"):
        yield Code(f"inferometer rerun {run.id}", "The same plan and seed, on this machine:")
    if command := run.environment.get("command"):
        yield Code(str(command), "It was started by:")
    yield Code(yaml.dump(run.plan, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110), "plan.yaml")
    yield Code(
        yaml.dump(run.environment, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110),
        "Everything that is known of where it ran",
        fold=True,
    )
