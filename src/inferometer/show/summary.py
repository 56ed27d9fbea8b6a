"""The summary for people: verdict, what was done, the numbers and their uncertainty, rates, failures, delivery, and the
instrument's own error."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.measure.summary import slowest
from inferometer.measure.verdict import failures_text
from inferometer.plan.model import Plan
from inferometer.plan.wording import stage_text
from inferometer.record.record import CENSORED, OUTCOMES, outcome_text
from inferometer.record.run import STATES, Run
from inferometer.record.sanitize import harmless
from inferometer.record.summary import (
    CachedTokens,
    Concurrency,
    Delivery,
    Goodput,
    Instrument,
    LimitResult,
    Rate,
    StageSummary,
    StructureSummary,
    Summary,
    SummarySection,
)
from inferometer.record.verdict import Reason, Status
from inferometer.show.about import done_table, own_plan, plan_texts
from inferometer.show.console import VERDICT_STYLES, emit, facts_table, first_that_fits, on_a_screen, plain_table
from inferometer.show.tables import (
    STATS,
    adjusted_table,
    cell,
    energy_table,
    full_table,
    gpu_table,
    headline_table,
    interval_table,
    server_table,
    slices_table,
    slowest_table,
)
from inferometer.vocabulary import (
    MEASURES,
    WEAK_MARK,
    attribute_at,
    duration_text,
    number_text,
    percent_text,
    value_text,
)

# -- results ---------------------------------------------------------------------------------------------------------

MOST_ERRORS = 3
LONGEST_ERROR = 160


def throughput_table(summary: Summary, brief: bool = False) -> Table:
    """Throughput within the limits and in total, and failures."""
    table = facts_table(label=24)
    for name, value in _throughput(summary, brief):
        table.add_row(name, value)
    return table


RATES = ("request_rate", "output_rate", "total_rate")


def _throughput(summary: Summary, brief: bool) -> Iterator[tuple[str, str | Text]]:
    names = [name for name in RATES if not (brief and name == "total_rate")]
    shown = {name: rate for name in names if (rate := summary.rates.get(name)) is not None and rate.value is not None}
    for number, (name, rate) in enumerate(shown.items()):
        text = Text(value_text(rate.value, MEASURES[name].unit))
        if number == 0:
            text.append(f"  {_basis_text(rate, summary, brief)}", style="dim")
        elif name == "output_rate" and rate.peak_1s:
            text.append(f"  peak {number_text(rate.peak_1s)} in one second", style="dim")
        yield MEASURES[name].phrase, text
    if summary.goodput and summary.outcomes.get("ok"):
        yield "goodput", _goodput(summary.goodput, brief)
    if not brief:
        yield "in flight", _in_flight(summary.concurrency)
    yield from _failures(summary, brief)


def _basis_text(rate: Rate, summary: Summary, brief: bool) -> str:
    """The basis of a rate, and its value on the other basis."""
    if rate.basis == "file":
        return "as its file states"
    if rate.basis == "window":
        other = "" if rate.span is None or brief else f" ({number_text(rate.span)} overall)"
        return f"in a window of {duration_text(summary.window.length_s)}{other}"
    other = "" if rate.window is None or brief else f" ({number_text(rate.window)} in the window)"
    return f"first request to last token{other}"


def results_table(summary: Summary) -> Table:
    """How the load was delivered, what the cache did, and our own error."""
    table = facts_table()
    if summary.tokens and (text := _cached(summary.tokens.cached)):
        table.add_row("cache", text)
    drifting = summary.window.steady is not None and summary.window.steady.status == "drifting"
    if (law := summary.concurrency.little) and not drifting:  # the law requires a steady state
        table.add_row(
            "Little's law",
            f"{number_text(law.x_per_s)} req/s × {duration_text(law.r_s)} = {number_text(law.x_times_r)} in flight",
        )
    if summary.delivery:
        table.add_row("delivery", _delivery(summary.delivery, summary))
        if resent := summary.delivery.resent:
            table.add_row("", f"{resent:,} sent again: the keep-alive connection was closed")
    if summary.instrument:
        table.add_row("instrument", _instrument(summary.instrument))
    return table


def _in_flight(concurrency: Concurrency) -> str:
    requested = f" of {concurrency.requested} requested" if concurrency.requested else ""
    return f"{number_text(concurrency.mean)}{requested} on average, {number_text(concurrency.max)} at most"


def _goodput(goodput: Goodput, brief: bool) -> str:
    undefined = f"; {goodput.undefined:,} without a value for a limit" if goodput.undefined and not brief else ""
    limits = "the limits" if brief else " and ".join(goodput.limits)
    share = f"{percent_text(goodput.share)} of the requests met {limits}"
    return f"{value_text(goodput.value, goodput.unit)}: {share}{undefined}"


def _cached(cached: CachedTokens) -> str | None:
    if not cached.reported:
        return None
    return f"{percent_text(cached.share)} of the input tokens came from the prefix cache"


def _failures(summary: Summary, brief: bool) -> Iterator[tuple[str, str | Text]]:
    """Number and kinds of failures, how many requests we ended ourselves, and the most frequent error messages; in
    brief without the failures of the window, which the verdict lists."""
    total = sum(summary.outcomes.values())
    others = {outcome: n for outcome, n in summary.outcomes.items() if outcome != "ok" and n}
    failed = {outcome: n for outcome, n in others.items() if outcome not in CENSORED}
    if failed and not (brief and summary.failures.failed):
        share = percent_text(sum(failed.values()) / total)
        parts = ", ".join(f"{n:,} × {outcome_text(outcome)}" for outcome, n in failed.items())
        yield "failed", Text(f"{sum(failed.values()):,} of {total:,} requests ({share}): {parts}", style="red")
    if planned := summary.cancelled_as_planned:
        yield "cancelled", f"{planned:,} of {total:,} requests ({percent_text(planned / total)}): as planned"
        others["cancelled"] -= planned
    for outcome in sorted(outcome for outcome in CENSORED if others.get(outcome)):
        share = percent_text(others[outcome] / total)
        yield outcome, Text(f"{others[outcome]:,} of {total:,} requests ({share}): {OUTCOMES[outcome]}", style="yellow")
    if (structure := summary.structure) is not None:
        yield (
            "structure",
            Text(_structure(structure), style="yellow" if structure.invalid + structure.unchecked else ""),
        )
    for error in summary.errors[:MOST_ERRORS] if not brief else ():
        yield "", f"{error.count:,} × {cut(error.message, LONGEST_ERROR)}"


def _structure(structure: StructureSummary) -> str:
    checked = structure.valid + structure.invalid
    valid = f"{structure.valid:,} of {checked:,} answers valid ({percent_text(structure.share or 0.0)})"
    unchecked = f"{structure.unchecked:,} answers not checked, as checks took longer than 0.1 s each"
    return ", ".join([valid] * bool(checked) + [unchecked] * bool(structure.unchecked))


def _delivery(delivery: Delivery, summary: Summary) -> str:
    lateness = delivery.lateness
    planned = f" of {delivery.planned:,} planned" if delivery.planned else ""
    sent = f"{delivery.arrivals if planned else delivery.sent:,}{planned} sent"
    rate = summary.rates["offered_rate"].window
    pace = f", {value_text(rate, '1/s')}" if summary.loop == "open" and rate is not None else ""
    if lateness.p99 is None:
        return sent + pace
    return f"{sent}{pace}; late by {duration_text(lateness.p99)} at p99, {duration_text(lateness.max)} at most"


def _instrument(instrument: Instrument) -> str:
    """Our own contribution, from the calibration of this machine at the load of this run."""
    if not instrument.calibrated:
        return "own error unknown; inferometer calibrate measures it"
    ttft, read = instrument.ttft_error_p99, instrument.read_error_p99
    load = f"{number_text(instrument.streams)} streams, {number_text(instrument.events_per_s)} events/s"
    beyond = ", outside the calibrated range" if instrument.extrapolated else ""
    return f"adds ≤ {duration_text(ttft)} to TTFT, {duration_text(read)} to gaps ({load}{beyond})"


# -- summary ---------------------------------------------------------------------------------------------------------

LEAST_NAME = 8  # minimum width of a name on one line


def print_summary(
    run: Run, to: Console, *, more: bool = False, measures: bool = False, slices: bool = False, slow: int = 0
) -> None:
    """The most important information, in the order of interest; with `more` the rest; and the requested tables."""
    for section in _sections(run, to.width, ALL_DETAILS) if more else _fitting_sections(run, to.width):
        emit(section, to)
        to.print()
    if measures:
        _print_measures(run, to)
    if slices and run.summary.slices:
        emit(slices_table(run.summary.slices), to)
        to.print()
    if slow:
        records = run.records
        emit("no records are stored" if records is None else slowest_table(slowest(records, slow)), to)
        to.print()
    for line in kept_lines(run, more):
        to.print(line, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Detail:
    """How much is shown."""

    more: bool = False  # also what `--more` shows
    doubts: int = 3
    brief: bool = False  # only the headline rates, goodput and failures
    few_limits: bool = False  # the first that are not met, and their number
    parts: int = 8  # maximum number of stages, or of traffic classes
    dense: bool = False  # no blank lines between numbers
    cut: bool = False  # only the first lines of a doubt


ALL_DETAILS = Detail(more=True)
DETAILS = (  # ordered from long to short: the first that fits is used
    Detail(),
    Detail(doubts=1),
    Detail(doubts=1, brief=True),
    Detail(doubts=1, brief=True, dense=True),
    Detail(doubts=1, brief=True, dense=True, few_limits=True, parts=3),
    Detail(doubts=1, brief=True, dense=True, few_limits=True, parts=3, cut=True),
    Detail(doubts=1, brief=True, dense=True, few_limits=True, parts=0, cut=True),
)
MOST_LIMITS = 2
DOUBT_LINES = 2


def _fitting_sections(run: Run, width: int) -> Sequence[RenderableType]:
    """As much as fits on a screen, together with the line on how to see more."""
    variants = (list(_sections(run, width, detail)) for detail in DETAILS)
    return on_a_screen(variants, width, len(list(kept_lines(run))))


def _sections(run: Run, width: int, detail: Detail) -> Iterator[RenderableType]:
    summary, plan = run.summary, own_plan(run)
    line = run.subject.line
    if detail.more:
        yield verdict_table(run)
        yield _plan_table(run) if plan is None else done_table(run, plan)
    else:
        head = verdict_table(run, detail.doubts, DOUBT_LINES * width if detail.cut else None)
        yield Group(head, Text(line)) if line else head
    if table := headline_table(summary.measures, _without_doubles(summary), width):
        yield table
    numbers = list(_numbers(run, plan, width, detail))
    yield from [Group(*numbers)] if detail.dense else numbers


def _numbers(run: Run, plan: Plan | None, width: int, detail: Detail) -> Iterator[RenderableType]:
    """Limits, rates, parts of the run, and notes."""
    summary, most = run.summary, None if detail.more else detail.parts
    if summary.limits:
        yield limits_table(summary.limits, detail.few_limits)
    yield throughput_table(summary, detail.brief)
    if summary.stages:
        yield stages_table(summary.stages, plan, width, most)
    if summary.traffic:
        yield traffic_table(run, width, most)
    if summary.models:
        yield models_table(summary, width, most)
    if detail.more:
        yield results_table(summary)
        yield from _observed(summary, width)
    if notes := notes_table(run, detail.more):
        yield notes


def notes_table(run: Run, more: bool) -> RenderableType | None:
    """Notes, which change nothing; in the short form their number, and the meaning of the mark."""
    notes = run.verdict.notes if run.verdict else []
    if not more:
        weak = f"{WEAK_MARK} too few samples for a two-sided interval" if any_weak(run.summary) else ""
        count = f"{len(notes)} note{'s' if len(notes) > 1 else ''} with --more" if notes else ""
        text = "; ".join(filter(None, [weak, count]))
        return Text(text, style="dim") if text else None
    table = facts_table(label=5, gap=1)
    for note in notes:
        table.add_row("note", note.sentence)
    return table if notes else None


def any_weak(summary: Summary) -> bool:
    shown = (summary.measures[name] for name in summary.headline if name in summary.measures)
    return any(measure.weak.keys() & {*STATS} for measure in shown)


def _plan_table(run: Run) -> Table:
    table = facts_table()
    for name, text in plan_texts(run):
        table.add_row(name, text)
    return table


def _observed(summary: Summary, width: int) -> Iterator[RenderableType]:
    """What was sampled during the load."""
    if table := server_table(summary):
        yield table
    if gpu := summary.gpu:
        yield gpu_table(gpu, width)
        if table := energy_table(summary.values, gpu):
            yield table


def _print_measures(run: Run, to: Console) -> None:
    measures = run.summary.measures
    tables = [full_table(measures, to.width), interval_table(measures, run.summary.confidence, to.width)]
    if any(measure.adjusted for measure in measures.values()):
        tables.append(adjusted_table(measures))
    for table in tables:
        emit(table, to)
        to.print()


def _validity(run: Run) -> str:
    """What a valid status refers to: a file without intervals has none to check."""
    summary = run.summary
    of_measures = any(measure.intervals for measure in summary.measures.values())
    if of_measures or any(rate.interval for rate in summary.rates.values()):
        return "the numbers below hold within their confidence intervals"
    if run.environment.imported is not None:
        return "the numbers below are those of the imported file, which has no confidence intervals"
    return "nothing contradicts the numbers below; they have no confidence intervals"


def verdict_table(run: Run, most: int | None = None, longest: int | None = None) -> RenderableType:
    """`VALID`, or the status with its reasons as bullets: all or this many, in full or cut to this length."""
    status, reasons = run.status or "not judged", run.doubts
    predicted = Text()
    if run.environment.known_target.is_predicted:
        about = Text("  nothing was measured; the intervals leave out the error of the model", "not bold default")
        predicted = Text("PREDICTED", "bold cyan") + about
        if run.state == "complete" and not reasons:
            return predicted
        predicted.append("\n")
    head = predicted + Text(status.upper(), style=VERDICT_STYLES.get(status, "bold"))
    first = next((reason for reason in reasons if reason.status == status == "invalid" and reason.remedy), None)
    if run.state != "complete":
        head.append(f"  {run.state}: {STATES[run.state]}", style="not bold default")
    elif not reasons:
        head.append(f"  {_validity(run)}", style="not bold default")
    if first is not None and first.remedy:
        remedy = first.remedy.partition(";")[0] if longest else first.remedy
        head.append(f"{'.' if run.state != 'complete' else ' '} What to do: {remedy}.", style="not bold default")
    failures = run.summary.failures
    if failures.failed and failures.failure_rate and not _names_failures(reasons[:most]):
        text = failures_text(run.summary)
        head.append(f"\n{cut(text, longest - 10) if longest else text}", style="not bold default")
    if not reasons:
        return head
    bullets = facts_table(label=1, gap=1)
    for reason in reasons[:most]:
        text = reason.text if reason is first or longest else reason.sentence
        bullets.add_row("•", cut(text, longest - 10) if longest else text)
    if left := len(reasons[most:]) if most is not None else 0:
        bullets.add_row("", Text(f"{left} more {'reason' if left == 1 else 'reasons'} with --more", style="dim"))
    return Group(head, bullets)


def cut(text: str, longest: int | None) -> str:
    return text if longest is None or len(text) <= longest else f"{text[: longest - 2]}.."


def _names_failures(reasons: Sequence[Reason]) -> bool:
    return any(reason.code in ("nothing_answered", "failed_requests") for reason in reasons)


RESULTS = {True: "met", False: "not met", None: "unclear"}


def limits_table(limits: Sequence[LimitResult], few: bool = False) -> Table:
    """Each limit with a mark and the measured value; with `few` the first that are not met, and their number."""
    table = facts_table(label=1, gap=1)
    open_ = [limit for limit in limits if not limit.met]
    for limit in open_[:MOST_LIMITS] if few else limits:
        traffic = f"{limit.traffic}: " if limit.traffic else ""
        table.add_row(_mark(limit.met), f"{traffic}{f'{limit.limit}: {RESULTS[limit.met]}' if few else limit.text}")
    if few:
        table.add_row("", Text(f"{len(limits) - len(open_)} of {len(limits)} limits are met", style="dim"))
    return table


def _mark(met: bool | None) -> Text:
    return Text("?", "yellow") if met is None else Text("✓", "green") if met else Text("✗", "bold red")


def stages_table(stages: Sequence[StageSummary], plan: Plan | None, width: int, most: int | None = None) -> Table:
    """One line per stage."""
    levels = [stage_text(level) for level in plan.classes[0].load.stages] if plan else []
    names = (": ".join([f"{at + 1}", *levels[at : at + 1]]) for at in (stage.stage for stage in stages))
    return _compact_table("stage", dict(zip(names, stages, strict=True)), width, most)


def traffic_table(run: Run, width: int, most: int | None = None) -> Table:
    """One line per traffic class, with its own verdict."""
    statuses = run.verdict.traffic if run.verdict else None
    return _compact_table("traffic", run.summary.traffic, width, most, statuses)


def models_table(summary: Summary, width: int, most: int | None = None) -> Table:
    """One line per requested model or adapter."""
    return _compact_table("model", summary.models, width, most)


def _compact_table(
    what: str,
    every: Mapping[str, SummarySection],
    width: int,
    most: int | None,
    statuses: Mapping[str, Status] | None = None,
) -> Table:
    """With intervals if there is room for them; names are wrapped, numbers never."""
    if most == 0:
        table = facts_table(label=24)
        table.add_row(f"{len(every)} rows by {what} with --more")
        return table
    parts = dict(list(every.items())[:most])
    failed = ("failed",) if any(part.failures.failed for part in parts.values()) else ()
    columns = ("sent", *failed, "TTFT p50", "TTFT p99", "TPOT p50", "tok/s")
    variants = ((columns, True), (columns, False), (("sent", "TTFT p50", "TTFT p99"), False))
    room = width + max(0, max(map(len, parts)) - LEAST_NAME)
    table = first_that_fits((_compact(what, parts, *look, statuses) for look in variants), room)
    if left := len(every) - len(parts):
        table.caption, table.caption_justify = Text(f"{left} more with --more", style="dim"), "left"
    return table


def _compact(
    what: str,
    parts: Mapping[str, SummarySection],
    columns: tuple[str, ...],
    spread: bool,
    statuses: Mapping[str, Status] | None,
) -> Table:
    """Requests, failures if there are any, and the headline of each part."""
    table = plain_table(what, *columns, *([""] if statuses else []), right=columns, wrap=what, gap=1)
    for name, part in parts.items():
        cells = _compact_cells(part, spread)
        status = statuses.get(name) if statuses else None
        shown = [Text(status, style=VERDICT_STYLES.get(status, ""))] if status else []
        table.add_row(name, *(cells[column] for column in columns), *shown)
    return table


def _compact_cells(part: SummarySection, spread: bool) -> dict[str, str | Text]:
    """TTFT from the scheduled or the send time, depending on the part's loop."""
    ttft, tpot = part.measures[part.headline[0]], part.measures["tpot"]
    return {
        "sent": f"{part.window.requests or 0:,}",
        "failed": f"{part.failures.failed or 0:,}",
        "TTFT p50": cell(ttft, "p50", spread),
        "TTFT p99": cell(ttft, "p99", spread),
        "TPOT p50": cell(tpot, "p50", spread),
        "tok/s": number_text(part.rates["output_rate"].value),
    }


def _without_doubles(summary: Summary) -> list[str]:
    """The headline, without token counts if every answer has the requested length."""
    measures = summary.measures
    constant = measures["output_tokens"].min == measures["output_tokens"].max
    return [name for name in summary.headline if not (name == "output_tokens" and constant)]


def kept_lines(run: Run, more: bool = False) -> Iterator[Text]:
    """Where the run is stored, and how to see more of it."""
    if run.folder is None:
        return
    if more:
        yield Text.assemble(("stored in ", "dim"), str(run.folder))
        yield Text.assemble(("again     ", "dim"), f"inferometer rerun {run.id}")
    flags = "--measures --slices --slowest 10" if more else "--more"
    yield Text.assemble(("see more  ", "dim"), f"inferometer show {run.id} {flags}")
    if run.is_outdated:
        again = f"inferometer store remeasure {run.id}"
        yield Text.assemble(("outdated  ", "dim"), again, ("  (judged by older rules)", "dim"))


# -- the view of any run -----------------------------------------------------------------------------------------------

# A run for people, by its kind: measured by us, imported, offline, a startup, or a user's own benchmark.

VIEWS = {  # imported on use: most runs are of another kind
    "latency": "inferometer.show.offline:print_offline",
    "throughput": "inferometer.show.offline:print_offline",
    "startup": "inferometer.show.startup:print_startup",
    "benchmark": "inferometer.show.offline:print_benchmark",
}
WIDTH = 100  # of a text without a terminal


def print_view(
    run: Run, to: Console, *, more: bool = False, measures: bool = False, slices: bool = False, slow: int = 0
) -> None:
    if run.source is not None:
        from inferometer.show.imported import print_imported

        print_imported(run, to, more=more, measures=measures, slices=slices, slow=slow)
    elif run.kind in VIEWS:
        attribute_at(VIEWS[run.kind])(run, to, more=more)
    else:
        print_summary(run, to, more=more, measures=measures, slices=slices, slow=slow)


def run_text(run: Run) -> str:
    """The terminal output without colours, which `print(run)` prints."""
    out = StringIO()
    to = Console(
        file=out,
        width=WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,  # else it would draw in the notebook, and return no text
    )
    print_view(run, to)
    return harmless(out.getvalue()).rstrip()
