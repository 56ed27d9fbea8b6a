"""An imported run as a person reads it, and a run under another tool's definitions: the numbers, how that tool defines
them, and why they differ from ours."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.errors import StoreError
from inferometer.exchange.exporting.facts import seen_by_others
from inferometer.measure.rosetta.registry import tool_named, translated
from inferometer.measure.summary import slowest
from inferometer.measure.values import quantities
from inferometer.plan.load import Load, Stop
from inferometer.record.run import Run
from inferometer.record.schema import schema_of
from inferometer.record.summary import MeasureSummary, Summary, WindowSummary
from inferometer.show.console import emit, facts_table, first_that_fits, plain_table
from inferometer.show.numbers import percent_text, value_text
from inferometer.show.plan_text import load_text
from inferometer.show.summary import verdict_table
from inferometer.show.tables import STATS, cell, slices_table, slowest_table, title
from inferometer.vocabulary import MEASURES, duration_text, number_text

# -- imported --------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from inferometer.exchange.importing.importer import Imported

MOST_IDS = 2
_QUANTILES = ("p25", "p50", "p75", "p90", "p95", "p99", "p99.9")


def print_imported(run: Run, to: Console, *, measures: bool = False, slices: bool = False, slow: int = 0) -> None:
    for section in _sections(run, to.width, measures):
        emit(section, to)
        to.print()
    if slices and run.summary.slices:
        emit(slices_table(run.summary.slices), to)
        to.print()
    if slow:
        records = run.records
        emit(
            "no records: its file tells nothing of single requests"
            if records is None
            else slowest_table(slowest(records, slow)),
            to,
        )
        to.print()
    if run.folder is not None:
        to.print(Text.assemble(("kept in     ", "dim"), str(run.folder)), soft_wrap=True)


def _sections(run: Run, width: int, every: bool) -> Iterator[RenderableType]:
    yield verdict_table(run)
    yield _done(run)
    if table := measures_table(run.summary.measures, None if every else run.summary.headline, width):
        yield table
    if table := _numbers(run.summary):
        yield table
    if said := _definitions(run.summary):
        yield said


def _done(run: Run) -> Table:
    table = facts_table()
    for name, text in _facts(run):
        if text:
            table.add_row(name, text)
    return table


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    plan, environment = run.plan, run.environment
    about = environment.get("imported") or {}
    yield "imported", ", ".join(filter(None, [str(run.source), about.get("file"), about.get("part")]))
    if plan.get("name"):
        yield "plan", str(plan["name"])
    yield "target", _target(plan, environment)
    yield "workload", _workload(plan.get("workload") or {})
    yield "load", _load(plan)
    yield "window", _window(run.summary.window)
    for note in run.summary.notes:
        yield "note", note


def _target(plan: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    target, found = plan.get("target") or {}, environment.get("target") or {}
    engine = " ".join(str(found[name]) for name in ("server", "version") if found.get(name))
    gpus = environment.get("gpus") or []
    cards = (
        ", ".join(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)) if isinstance(gpus, list) else gpus
    )
    model = f"model {target['model']}" if target.get("model") else ""
    hardware = environment.get("hardware")
    return ", ".join(str(each) for each in (target.get("url"), engine, model, cards, hardware) if each)


def _workload(workload: Mapping[str, Any]) -> str:
    """What is told of it, and no default."""
    prefix = workload.get("prefix") or {}
    shared = f"{prefix['tokens']} shared + {prefix.get('suffix_tokens', '?')} input" if prefix.get("tokens") else ""
    lengths = [shared] if shared else []
    lengths += [
        f"{_length(workload[f'{side}_tokens'])} {side}" for side in ("input", "output") if f"{side}_tokens" in workload
    ]
    tokens = f"{' + '.join(lengths)} tokens" if lengths else ""
    turns = f"{workload['turns']} turns" if workload.get("turns") else ""
    return ", ".join(filter(None, [str(workload.get("path") or ""), tokens, turns]))


def _length(said: Any) -> str:
    return f"{said['mean']} ± {said['std']}" if isinstance(said, Mapping) and "mean" in said else str(said)


def _load(plan: Mapping[str, Any]) -> str:
    said, stop = plan.get("load"), plan.get("stop") or {}
    ends = [f"{stop['requests']:,} requests" if stop.get("requests") else "", str(stop.get("duration") or "")]
    extent = " or ".join(filter(None, ends))
    if not said:
        return extent
    load = Load.model_validate(said)
    words = " ".join(filter(None, [load_text(load, Stop()), f"for {extent}" if extent else ""]))
    return f"{words} ({'open' if load.open_loop else 'closed'} loop)"


def _window(window: WindowSummary) -> str:
    length, requests = window.length_s, window.requests
    parts = [duration_text(length) if length else "", f"{requests:,} requests" if requests is not None else ""]
    return ", ".join(filter(None, parts))


def measures_table(measures: Mapping[str, MeasureSummary], names: Iterable[str] | None, width: int) -> Table | None:
    """Each measure with the statistics there are; columns that no measure has are left out."""
    shown = [
        name for name in (measures if names is None else names) if name in measures and _has_values(measures[name])
    ]
    if not shown:
        return None
    wanted = STATS if names is not None else ("mean", "std", "min", *_QUANTILES, "max")
    stats = [stat for stat in wanted if any(measures[name][stat] is not None for name in shown)]
    fewer = [
        stats,
        [stat for stat in stats if stat in STATS],
        [stat for stat in stats if stat in ("p50", "p99")] or stats[:1],
    ]
    looks = [(each, spread) for each in fewer for spread in (True, False)]
    return first_that_fits((_measures(measures, shown, *look) for look in looks), width)


def _measures(measures: Mapping[str, MeasureSummary], shown: list[str], stats: list[str], spread: bool) -> Table:
    table = plain_table("", *stats, right=tuple(stats), gap=2)
    for name in shown:
        words = title(name) if name in MEASURES else measures[name].title or name
        table.add_row(words, *(cell(measures[name], stat, spread) for stat in stats))
    return table


def _has_values(measure: MeasureSummary) -> bool:
    return any(measure[stat] is not None for stat in ("mean", "min", "max", *_QUANTILES))


def _numbers(summary: Summary) -> Table | None:
    """Rates, failures and single values."""
    table = facts_table(label=24)
    for each in quantities(summary).values():
        if each.statistic is None and each.name != "failure_rate":
            table.add_row(each.title, _value_text(each.value, each.unit))
    failures = summary.failures
    if failures.failed:
        share = percent_text(failures.failure_rate)
        table.add_row("Failed", Text(f"{number_text(failures.failed)} requests ({share})", style="red"))
    for error in summary.errors[:3]:
        table.add_row("", f"{error.count:,} × {error.message[:160]}")
    return table if table.row_count else None


def _value_text(value: float, unit: str) -> str:
    return f"{number_text(value / 2**30)} GiB" if unit == "bytes" else value_text(value, unit)


def _definitions(summary: Summary) -> RenderableType | None:
    """What the tool means by its words. Of records the numbers are ours, but the instants are still its own."""
    if not summary.definitions:
        return None
    ours = "The numbers above are ours, made of the requests in the file. The tool itself defines:"
    head = Text(ours if summary.reported else "As that tool defines it:", style="dim")
    table = facts_table(label=10)
    for name, text in summary.definitions.items():
        table.add_row(MEASURES[name].title if name in MEASURES else name, text)
    return Group(head, table)


def imports_table(done: Iterable["Imported"], dry_run: bool) -> Table:
    """What became of each file."""
    table = facts_table(label=0)
    for each in done:
        table.add_row(each.format, Text.assemble(f"{each.path.name}: ", _became(each, dry_run)))
    return table


def _became(each: "Imported", dry_run: bool) -> Text:
    if each.before:
        return Text(f"already imported as {_some(each.before)}; --again keeps it once more", style="yellow")
    if dry_run:
        return Text(f"would keep {each.found:,} run{'s' if each.found != 1 else ''}")
    return Text(_some([run.id for run in each.runs]))


def _some(ids: list[str]) -> str:
    if len(ids) <= MOST_IDS:
        return ", ".join(ids)
    return f"{len(ids):,} runs, {ids[0]} .. {ids[-1]}"


# -- rosetta ---------------------------------------------------------------------------------------------------------

SHOWN = ("mean", "avg", "median", "p50", "50.00", "p90", "90.00", "p99", "99.00", "max")
FEWER = ("mean", "avg", "median", "p50", "50.00", "p99", "99.00")


def rosetta(run: Run, name: str) -> dict[str, Any]:
    """The document: every number of the tool from this run's records."""
    tool = tool_named(name)
    records = run.records
    if records is None:
        hint = "only runs with records can be computed anew; vllm bench serve keeps them with --save-detailed"
        raise StoreError(f"{run.id}: has no records, so nothing can be computed by other definitions", hint)
    return {"schema": schema_of("rosetta"), "run": run.id} | translated(tool, seen_by_others(run, records), run.summary)


def print_rosetta(said: Mapping[str, Any], to: Console) -> None:
    for section in _rosetta_sections(said, to.width):
        emit(section, to)
        to.print()


def _rosetta_sections(said: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    yield _head(said)
    words = [word for word in said["measures"][0]["theirs"] if word in SHOWN]
    fewer = [word for word in words if word in FEWER]
    yield first_that_fits((_rosetta_measures(said, each) for each in (words, fewer)), width)
    yield _values(said)
    yield _reasons(said)


def _head(said: Mapping[str, Any]) -> Text:
    counted = said["requests"]
    requests = f"{counted['successful']:,} of {counted['all']:,} requests in {duration_text(said['duration_s'])}"
    head = Text.assemble((f"As {said['title']} counts", "bold"), f": {requests}\n")
    return head.append(f"{said['remark']}\n{said['source']}", style="dim")


def _rosetta_measures(said: Mapping[str, Any], words: list[str]) -> Table:
    """Two lines each: theirs, and ours below it under its own name."""
    table = plain_table(said["tool"], *words, right=tuple(words))
    for each in said["measures"]:
        table.add_row(each["name"], *(value_text(each["theirs"][word], each["unit"]) for word in words))
        ours = each["ours"] or {}
        cells = (Text(value_text(ours.get(word), each["unit"]), "dim") for word in words)
        table.add_row(Text(f"  {_our_title(each)}", "dim"), *cells)
    return table


def _values(said: Mapping[str, Any]) -> Table:
    table = plain_table(said["tool"], "theirs", "ours", right=("theirs", "ours"))
    for each in said["values"]:
        ours = Text(value_text(each["ours"], each["unit"]), "dim")
        table.add_row(each["name"], value_text(each["theirs"], each["unit"]), ours)
    return table


def _our_title(each: Mapping[str, Any]) -> str:
    measure = MEASURES.get(each["our_measure"] or "")
    return "ours: none" if measure is None else f"ours: {measure.title}"


def _reasons(said: Mapping[str, Any]) -> Table:
    """What each of its numbers is, and why ours is another."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=26)
    table.add_column(overflow="fold")
    for each in (*said["measures"], *said["values"]):
        table.add_row(each["name"], Text.assemble(each["definition"], "\n", (each["why"], "dim")))
    return table
