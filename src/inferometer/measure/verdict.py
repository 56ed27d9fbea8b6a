"""Whether the numbers of a run are true within the printed intervals: valid, doubtful or invalid.

A doubt is a cause that can move a headline number by more than its own interval or 5%; everything else worth reporting
is a note.
"""

from collections.abc import Iterator

from inferometer.measure.doubts import DoubtRule, JudgedRun, load, target
from inferometer.measure.doubts.load import queue_grows
from inferometer.measure.doubts.target import failures_text, judges_failures
from inferometer.measure.inputs import Facts
from inferometer.plan.model import Plan
from inferometer.record.summary import Summary
from inferometer.record.verdict import Reason, Status, Verdict, judged, worst

CLIENT_CODES = (
    "client_failed",
    "late_sends",
    "shortfall",
    "own_error",
)  # codes caused by the client: missed limits may be its fault
LISTED_FIRST = (
    "server_lost",
    "worker_lost",
    "client_failed",
    "nothing_answered",
    "failed_requests",
)  # listed first and in this order, however serious the others are
CORE_CODES = ("busy_machine", "stolen_cores")  # no note if a doubt already names one as its cause

RUN_RULES: tuple[DoubtRule, ...] = (
    target.lost,
    target.nothing_answered,
    target.ended,
    load.own_error,
    load.busy_client,
    load.clock_stepped,
    load.clocks_disagree,
    target.not_conserved,
    target.unreadable,
)
CLASS_RULES: tuple[DoubtRule, ...] = (
    load.client_failed,
    target.failed_requests,
    target.unfinished,
    load.late_sends,
    load.workers_behind,
    load.uncertain_reads,
    load.shortfall,
    load.not_the_process,
    load.held_back,
    load.unbounded_queue,
    load.short_window,
    load.not_steady,
    load.concurrency_not_held,
    load.not_precise,
    load.weak_quantiles,
    target.not_streamed,
    target.short_output,
    target.odd_finish,
    target.tokens_disagree,
    target.cached_by_accident,
    target.hit_rate_off,
)


def verdict(summary: Summary, facts: Facts, plan: Plan) -> Verdict:
    """The status that follows from the doubts, every doubt with its number and its remedy, and the notes."""
    result = judged(_reasons(summary, facts, plan))
    doubts = sorted(
        result.doubts,
        key=lambda doubt: LISTED_FIRST.index(doubt.code) if doubt.code in LISTED_FIRST else len(LISTED_FIRST),
    )
    blamed = " ".join(doubt.sentence for doubt in doubts)
    notes = [note for note in result.notes if not (note.code in CORE_CODES and note.text.partition(";")[0] in blamed)]
    return Verdict(status=result.status, doubts=doubts, notes=notes, traffic=_of_classes(doubts, plan))


def _reasons(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    whole = JudgedRun(summary, summary, plan.classes[0], None, facts, plan)
    for rule in RUN_RULES:
        yield from rule(whole)
    several = len(plan.classes) > 1
    for traffic in plan.classes:
        part = summary.traffic[traffic.name] if several else summary
        case = JudgedRun(summary, part, traffic, traffic.name if several else None, facts, plan)
        for rule in CLASS_RULES:
            yield from rule(case)


def _of_classes(doubts: list[Reason], plan: Plan) -> dict[str, Status]:
    """With several traffic classes, the status of each: from its own doubts and from those of the run as a whole."""
    if len(plan.classes) < 2:
        return {}
    names = [traffic.name for traffic in plan.classes]
    return {name: worst([doubt for doubt in doubts if doubt.traffic in (None, name)]) for name in names}


__all__ = ["CLIENT_CODES", "LISTED_FIRST", "failures_text", "judges_failures", "queue_grows", "verdict"]
