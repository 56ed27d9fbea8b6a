"""What is said of one run: verdict first, then what was done, what was measured, what to doubt, how to do it again."""

from collections.abc import Iterator, Mapping

import yaml
from rich.table import Table as RichTable

from inferometer.measure.values import Quantity, quantities
from inferometer.plan.text import Dumper
from inferometer.record.encoding import environment_document
from inferometer.record.run import KINDS, STATES, Run
from inferometer.show.about import About, about_of
from inferometer.show.charts.chart import Absent, Chart
from inferometer.show.charts.registry import gallery
from inferometer.show.charts.subject import ChartedRun, headlined
from inferometer.show.notify.findings import other_failures
from inferometer.show.offline import cases_table
from inferometer.show.plan_text import done_table, own_plan, plan_texts
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
from inferometer.show.summary import limits_table, results_table, stages_table, throughput_table, traffic_table
from inferometer.show.tables import headline_table, interval_table
from inferometer.show.telemetry import energy_table, gpu_table, server_table
from inferometer.vocabulary import percent_text

TONES: dict[str, Tone] = {"valid": "good", "doubtful": "doubt", "invalid": "bad"}
FIRST_REASONS = 2
MOST_TILES = 8
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
            Section("Setup", tuple(_done(run))),
            Section("Results", tuple(_measured(run, charts))),
            Section("Doubts and notes", tuple(_doubts(run, absent))),
            Section("Reproduce", tuple(again(run))),
        ),
    )


def _subtitle(run: Run, about: About) -> str:
    origin = f"imported from {run.source}" if run.source else KINDS[run.kind]
    commit = f"commit {about.commit}" if about.commit else ""
    first = about.traffic if about.stack else ""
    return " · ".join(filter(None, (first, about.name, about.when, commit, origin, run.id)))


def verdict_of(run: Run) -> Verdict:
    status = run.status or "not judged"
    reasons = [reason.sentence for reason in run.doubts]
    more = len(reasons) - FIRST_REASONS
    shown = reasons if more <= 1 else [*reasons[:FIRST_REASONS], f"and {more} more, see Doubts and notes"]
    missed = [limit.text for limit in run.summary.limits if limit.met is False]
    state = "" if run.state == "complete" else f"{run.state}: {STATES[run.state]}"
    calm = "no problems were found with these numbers" if not reasons and not state else ""
    limits = f"{len(missed)} limit{'s' if len(missed) > 1 else ''} missed: {'; '.join(missed)}" if missed else ""
    tone = "bad" if missed else TONES.get(status, "doubt" if state else "")
    return Verdict(status, tone, ". ".join(filter(None, [other_failures(run), state, limits, calm])), tuple(shown))


def _done(run: Run) -> Iterator[Block]:
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


def _measured(run: Run, charts: list[Chart]) -> Iterator[Block]:
    numbers = quantities(run.summary)
    if tiles := tiles_of(numbers, run):
        yield Tiles(tiles)
    for table in _tables(run):
        yield from_rich(table)
    if own_plan(run) is None and numbers:
        yield numbers_table(numbers)
    if not numbers:
        yield Text("There are no measurements.")
    if charts:
        yield Charts(tuple(charts))


def tiles_of(numbers: Mapping[str, Quantity], run: Run | None = None) -> tuple[Tile, ...]:
    """Latencies as the charts have them: of an open loop from the schedule."""
    named = [key.partition(".") for key in _LATENCIES]
    latencies = [f"{headlined([run], name) if run else name}.{statistic}" for name, _, statistic in named]
    keys = [key for key in (*latencies, *_TILES) if key in numbers] or [
        key for key, quantity in numbers.items() if quantity.statistic is None
    ]
    return tuple(_tile(numbers[key]) for key in keys[:MOST_TILES])


def _tile(quantity: Quantity) -> Tile:
    name = quantity.title if quantity.statistic is None else f"{quantity.title} {quantity.statistic}"
    return Tile(name, quantity.text, quantity.spread)


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


def _doubts(run: Run, absent: list[Absent]) -> Iterator[Block]:
    reasons = [reason.sentence for reason in run.doubts]
    yield Bullets(tuple(reasons)) if reasons else Text("The checks of this run found no problems.")
    measures = run.summary.measures
    if any(measure.intervals for measure in measures.values()) and run.summary.confidence:
        known = {name: measure for name, measure in measures.items() if measure.count and measure.intervals}
        cases = percent_text(run.summary.confidence)
        yield Text(
            f"Confidence intervals contain the true value under this run's conditions in {cases} of cases. "
            "They cover noise within this run; only repeats show the run-to-run variation."
        )
        yield from_rich(interval_table(known, run.summary.confidence, WIDE))
    for note in run.summary.notes:
        yield Text(note)
    if run.summary.definitions:
        yield Text("Definitions of the tool that measured this:")
        yield facts(run.summary.definitions.items())
    if absent:
        yield Text("Charts that this run has no data for:")
        yield facts((chart.title, chart.why) for chart in absent)


def again(run: Run) -> Iterator[Block]:
    """The command and the plan; of what was imported, where it came from."""
    if run.source is not None:
        yield Text("This run was imported: repeat it with the original tool and the settings below.")
    elif run.kind in ("serving", "startup", "latency", "throughput"):
        yield Code(f"inferometer rerun {run.id}", "With the same plan and seed, on this machine:")
    if command := run.environment.command:
        yield Code(command, "Original command:")
    yield Code(yaml.dump(run.plan, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110), "plan.yaml")
    yield Code(
        yaml.dump(environment_document(run.environment), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110),
        "Full environment",
        fold=True,
    )
