"""The summary a person reads at a glance: verdict, what was done, the numbers and how well they are known, rates,
failures, delivery, and the instrument's own error."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.measure.summary import slowest
from inferometer.measure.verdict import failures_text
from inferometer.plan.model import Plan
from inferometer.record.record import CENSORED, OUTCOMES
from inferometer.record.run import STATES, Run
from inferometer.record.summary import (
    CachedTokens,
    Concurrency,
    Delivery,
    Goodput,
    Instrument,
    LimitResult,
    Rate,
    Section,
    StageSummary,
    Summary,
)
from inferometer.record.verdict import Reason, Status
from inferometer.show.console import emit, facts_table, first_that_fits, plain_table
from inferometer.show.numbers import VERDICT_STYLES, percent_text, value_text
from inferometer.show.plan_text import done_table, own_plan, plan_in_words, stage_text
from inferometer.show.tables import (
    adjusted_table,
    cell,
    full_table,
    headline_table,
    interval_table,
    slices_table,
    slowest_table,
)
from inferometer.show.telemetry import energy_table, gpu_table, server_table
from inferometer.vocabulary import duration_text, number_text

# -- results ---------------------------------------------------------------------------------------------------------

MOST_ERRORS = 3
LONGEST_ERROR = 160


def results_table(summary: Summary) -> Table:
    table = facts_table()
    for name, value in _facts(summary):
        table.add_row(name, value)
    return table


def _facts(summary: Summary) -> Iterator[tuple[str, str | Text]]:
    yield "rates", _rates(summary.rates)
    yield "in flight", _in_flight(summary.concurrency)
    if summary.goodput and summary.outcomes.get("ok"):
        yield "goodput", _goodput(summary.goodput)
    if summary.tokens and (text := _cached(summary.tokens.cached)):
        yield "cache", text
    yield from _failures(summary)
    if summary.delivery:
        yield "delivery", _delivery(summary.delivery, summary)
        if resent := summary.delivery.resent:
            yield "", f"{resent:,} sent again: the kept-alive connection was dead"
    if summary.instrument:
        yield "instrument", _instrument(summary.instrument)


def _rates(rates: Mapping[str, Rate]) -> str:
    requests, inputs, output = (rates[name] for name in ("request_rate", "input_rate", "output_rate"))
    tokens = f"{number_text(inputs.window)} input + {number_text(output.window)} output tokens/s"
    peak = f" (peak {number_text(output.peak_1s)})" if output.peak_1s else ""
    return f"{number_text(requests.window)} requests/s, {tokens}{peak}"


def _in_flight(concurrency: Concurrency) -> str:
    requested = f" of {concurrency.requested} asked" if concurrency.requested else ""
    law = concurrency.little
    little = f"; by Little's law {number_text(law.x_times_r)}" if law else ""
    return f"{number_text(concurrency.mean)}{requested} on average, {number_text(concurrency.max)} at most{little}"


def _goodput(goodput: Goodput) -> str:
    undefined = f"; {goodput.undefined:,} could not be judged" if goodput.undefined else ""
    share = f"{percent_text(goodput.share)} of the requests met {' and '.join(goodput.limits)}"
    return f"{value_text(goodput.window, goodput.unit)}: {share}{undefined}"


def _cached(cached: CachedTokens) -> str | None:
    if not cached.reported:
        return None
    return f"{percent_text(cached.share)} of the input tokens came from the prefix cache"


def _failures(summary: Summary) -> Iterator[tuple[str, str | Text]]:
    """How many failed and in what way, how many we ended ourselves, and what the most frequent errors say."""
    total = sum(summary.outcomes.values())
    others = {word: n for word, n in summary.outcomes.items() if word != "ok" and n}
    failed = {word: n for word, n in others.items() if word not in CENSORED}
    if failed:
        share = percent_text(sum(failed.values()) / total)
        parts = ", ".join(f"{n:,} {outcome_text(word)}" for word, n in failed.items())
        yield "failed", Text(f"{sum(failed.values()):,} of {total:,} requests ({share}): {parts}", style="red")
    for word in CENSORED & others.keys():
        share = percent_text(others[word] / total)
        yield word, Text(f"{others[word]:,} of {total:,} requests ({share}): {OUTCOMES[word]}", style="yellow")
    for error in summary.errors[:MOST_ERRORS]:
        message = error.message
        shown = message if len(message) <= LONGEST_ERROR else f"{message[: LONGEST_ERROR - 2]}.."
        yield "", f"{error.count:,} × {shown}"


def outcome_text(word: str) -> str:
    """`status_429` as `status 429`."""
    assert word.partition("_")[0] in OUTCOMES, word
    return word.replace("_", " ")


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
    """What we add ourselves, by the calibration of this machine at the load of this run."""
    if not instrument.calibrated:
        return "own error not known: inferometer calibrate measures it"
    ttft, read = instrument.ttft_error_p99, instrument.read_error_p99
    load = f"{number_text(instrument.streams)} streams, {number_text(instrument.events_per_s)} events/s"
    beyond = ", beyond the calibration" if instrument.extrapolated else ""
    return f"adds ≤ {duration_text(ttft)} to TTFT, {duration_text(read)} to gaps ({load}{beyond})"


# -- summary ---------------------------------------------------------------------------------------------------------

LEAST_NAME = 8  # letters of a name on one line


def print_summary(run: Run, to: Console, *, measures: bool = False, slices: bool = False, slow: int = 0) -> None:
    """Everything worth a glance, in the order a person asks for it; and what else was asked for."""
    for section in _sections(run, to.width):
        emit(section, to)
        to.print()
    if measures:
        _print_measures(run, to)
    if slices and run.summary.slices:
        emit(slices_table(run.summary.slices), to)
        to.print()
    if slow:
        records = run.records
        emit("no records were kept" if records is None else slowest_table(slowest(records, slow)), to)
        to.print()
    for line in kept_lines(run):
        to.print(line, soft_wrap=True)


def _sections(run: Run, width: int) -> Iterator[RenderableType]:
    summary, plan = run.summary, own_plan(run)
    yield verdict_table(run)
    yield _told_table(run) if plan is None else done_table(run, plan)
    if table := headline_table(summary.measures, _without_doubles(summary), width):
        yield table
    if summary.limits:
        yield limits_table(summary.limits)
    yield results_table(summary)
    yield from _observed(summary, width)
    if summary.stages:
        yield stages_table(summary.stages, plan, width)
    if summary.traffic:
        yield traffic_table(run, width)


def _told_table(run: Run) -> Table:
    table = facts_table()
    for name, said in plan_in_words(run):
        table.add_row(name, said)
    return table


def _observed(summary: Summary, width: int) -> Iterator[RenderableType]:
    """What was sampled beside the load."""
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


def verdict_table(run: Run) -> RenderableType:
    """`VALID`, or the status with its reasons as bullets."""
    status, reasons = run.status or "not judged", run.doubts
    head = Text(status.upper(), style=VERDICT_STYLES.get(status, "bold"))
    if run.state != "complete":
        head.append(f"  {run.state}: {STATES[run.state]}", style="not bold default")
    elif not reasons:
        head.append("  nothing speaks against these numbers", style="not bold default")
    failures = run.summary.failures
    if failures.failed and failures.failure_rate and not _says_what_failed(reasons):
        head.append(f"\n{failures_text(run.summary)}", style="not bold default")
    if not reasons:
        return head
    bullets = facts_table(label=1, gap=1)
    for reason in reasons:
        bullets.add_row("•", reason.text)
    return Group(head, bullets)


def _says_what_failed(reasons: Sequence[Reason]) -> bool:
    return any(reason.code in ("nothing_answered", "failed_requests") for reason in reasons)


def limits_table(limits: Sequence[LimitResult]) -> Table:
    """Each limit with a mark and what was measured."""
    table = facts_table(label=1, gap=1)
    for limit in limits:
        traffic = f"{limit.traffic}: " if limit.traffic else ""
        table.add_row(_mark(limit.met), f"{traffic}{limit.text}")
    return table


def _mark(met: bool | None) -> Text:
    return Text("?", "yellow") if met is None else Text("✓", "green") if met else Text("✗", "bold red")


def stages_table(stages: Sequence[StageSummary], plan: Plan | None, width: int) -> Table:
    """One line per stage."""
    levels = [stage_text(level) for level in plan.classes[0].load.stages] if plan else []
    names = (": ".join([f"{at + 1}", *levels[at : at + 1]]) for at in (stage.stage for stage in stages))
    return _compact_table("stage", dict(zip(names, stages, strict=True)), width)


def traffic_table(run: Run, width: int) -> Table:
    """One line per traffic class, with its own verdict."""
    return _compact_table("traffic", run.summary.traffic, width, run.verdict.traffic if run.verdict else None)


def _compact_table(
    what: str, parts: Mapping[str, Section], width: int, statuses: Mapping[str, Status] | None = None
) -> Table:
    """With intervals where there is room for them; names are broken over lines, numbers never."""
    failed = ("failed",) if any(part.failures.failed for part in parts.values()) else ()
    columns = ("sent", *failed, "TTFT p50", "TTFT p99", "TPOT p50", "tokens/s")
    looks = ((columns, True), (columns, False), (("sent", "TTFT p50", "TTFT p99"), False))
    room = width + max(0, max(map(len, parts)) - LEAST_NAME)
    return first_that_fits((_compact(what, parts, *look, statuses) for look in looks), room)


def _compact(
    what: str,
    parts: Mapping[str, Section],
    columns: tuple[str, ...],
    spread: bool,
    statuses: Mapping[str, Status] | None,
) -> Table:
    """Requests, failures where there are any, and the headline of each part."""
    table = plain_table(what, *columns, *([""] if statuses else []), right=columns, wrap=what, gap=1)
    for name, part in parts.items():
        cells = _compact_cells(part, spread)
        status = statuses.get(name) if statuses else None
        shown = [Text(status, style=VERDICT_STYLES.get(status, ""))] if status else []
        table.add_row(name, *(cells[column] for column in columns), *shown)
    return table


def _compact_cells(part: Section, spread: bool) -> dict[str, str | Text]:
    """TTFT as the part's loop counts it."""
    ttft, tpot = part.measures[part.headline[0]], part.measures["tpot"]
    return {
        "sent": f"{part.window.requests or 0:,}",
        "failed": f"{part.failures.failed or 0:,}",
        "TTFT p50": cell(ttft, "p50", spread),
        "TTFT p99": cell(ttft, "p99", spread),
        "TPOT p50": cell(tpot, "p50", spread),
        "tokens/s": number_text(part.rates["output_rate"].window),
    }


def _without_doubles(summary: Summary) -> list[str]:
    """The headline, without token counts that say nothing: every answer as long as asked."""
    measures = summary.measures
    constant = measures["output_tokens"].min == measures["output_tokens"].max
    return [name for name in summary.headline if not (name == "output_tokens" and constant)]


def kept_lines(run: Run) -> Iterator[Text]:
    """Where the run is, and what can be done with it next."""
    if run.folder is None:
        return
    yield Text.assemble(("kept in     ", "dim"), str(run.folder))
    yield Text.assemble(("see more    ", "dim"), f"inferometer show {run.id} --measures --slices --slowest 10")
    yield Text.assemble(("once more   ", "dim"), f"inferometer rerun {run.id}")
