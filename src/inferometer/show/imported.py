"""An imported run as a person reads it: only what its file tells, and how that tool defines its numbers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.measure.summary import slowest
from inferometer.measure.values import quantities
from inferometer.plan.load import Load, Stop
from inferometer.record.run import Run
from inferometer.show.console import emit, facts_table, first_that_fits, plain_table
from inferometer.show.deeds import load_text
from inferometer.show.headline import STATS, cell, title
from inferometer.show.over_time import slices_table
from inferometer.show.slowest import slowest_table
from inferometer.show.summary import verdict_table
from inferometer.show.values import percent_text, value_text
from inferometer.vocabulary import MEASURES, duration_text, number_text

if TYPE_CHECKING:
    from inferometer.exchange.importing.conduct import Imported

MOST_IDS = 2
_QUANTILES = ("p25", "p50", "p75", "p90", "p95", "p99", "p99.9")


def print_imported(run: Run, to: Console, *, measures: bool = False, slices: bool = False, slow: int = 0) -> None:
    for section in _sections(run, to.width, measures):
        emit(section, to)
        to.print()
    if slices and run.summary.get("slices"):
        emit(slices_table(run.summary["slices"]), to)
        to.print()
    if slow:
        records = run.records()
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
    if table := measures_table(run.summary["measures"], None if every else run.summary["headline"], width):
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
    yield "window", _window(run.summary.get("window") or {})
    for note in run.summary.get("notes") or []:
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


def _window(window: Mapping[str, Any]) -> str:
    length, requests = window.get("length_s"), window.get("requests")
    parts = [duration_text(length) if length else "", f"{requests:,} requests" if requests is not None else ""]
    return ", ".join(filter(None, parts))


def measures_table(measures: Mapping[str, Any], names: Iterable[str] | None, width: int) -> Table | None:
    """Each measure with the statistics there are; columns that no measure has are left out."""
    shown = [name for name in (measures if names is None else names) if _has_values(measures.get(name) or {})]
    if not shown:
        return None
    wanted = STATS if names is not None else ("mean", "std", "min", *_QUANTILES, "max")
    stats = [stat for stat in wanted if any(measures[name].get(stat) is not None for name in shown)]
    fewer = [
        stats,
        [stat for stat in stats if stat in STATS],
        [stat for stat in stats if stat in ("p50", "p99")] or stats[:1],
    ]
    looks = [(each, spread) for each in fewer for spread in (True, False)]
    return first_that_fits((_measures(measures, shown, *look) for look in looks), width)


def _measures(measures: Mapping[str, Any], shown: list[str], stats: list[str], spread: bool) -> Table:
    table = plain_table("", *stats, right=tuple(stats), gap=2)
    for name in shown:
        words = title(name) if name in MEASURES else str(measures[name].get("title") or name)
        table.add_row(words, *(cell(measures[name], stat, spread) for stat in stats))
    return table


def _has_values(measure: Mapping[str, Any]) -> bool:
    return any(measure.get(stat) is not None for stat in ("mean", "min", "max", *_QUANTILES))


def _numbers(summary: Mapping[str, Any]) -> Table | None:
    """Rates, failures and single values."""
    table = facts_table(label=24)
    for each in quantities(summary).values():
        if each.statistic is None and each.name != "failure_rate":
            table.add_row(each.title, _value_text(each.value, each.unit))
    failures = summary.get("failures") or {}
    if failures.get("failed"):
        share = percent_text(failures.get("failure_rate"))
        table.add_row("Failed", Text(f"{number_text(failures['failed'])} requests ({share})", style="red"))
    for error in (summary.get("errors") or [])[:3]:
        table.add_row("", f"{error['count']:,} × {error['message'][:160]}")
    return table if table.row_count else None


def _value_text(value: float, unit: str) -> str:
    return f"{number_text(value / 2**30)} GiB" if unit == "bytes" else value_text(value, unit)


def _definitions(summary: Mapping[str, Any]) -> RenderableType | None:
    """What the tool means by its words. Of records the numbers are ours, but the instants are still its own."""
    said = summary.get("definitions") or {}
    if not said:
        return None
    ours = "The numbers above are ours, made of the requests in the file. The tool itself defines:"
    head = Text(ours if "reported" in summary else "As that tool defines it:", style="dim")
    table = facts_table(label=10)
    for name, text in said.items():
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
