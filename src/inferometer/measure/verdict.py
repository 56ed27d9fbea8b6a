"""Whether a run can be trusted as a measurement: valid, doubtful or invalid, each reason with its number
and a remedy."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import structs

from inferometer.measure.describe import named_quantiles, share_of
from inferometer.measure.facts import Facts
from inferometer.measure.hardware import scarcity
from inferometer.measure.observed import findings
from inferometer.measure.quantiles import needed_for
from inferometer.plan.model import Plan, Traffic
from inferometer.record.summary import Backlog, CachedTokens, ClassSummary, Section, Slack, StageSummary, Summary
from inferometer.record.verdict import Reason, Status, Verdict, worst
from inferometer.vocabulary import duration_text, number_text

# -- cache -----------------------------------------------------------------------------------------------------------

OFF_BY = 0.05  # of all prompt tokens: rounding to blocks and a chat template take a percent or two

Finding = tuple[Literal["doubtful", "invalid"], str]


def asked_hit_rate(traffic: Traffic) -> float | None:
    """The share of prompt tokens that shall come from the cache, where the plan says one."""
    prefix = getattr(traffic.workload, "prefix", None)
    return None if prefix is None else prefix.hit_rate


def hit_rate_finding(traffic: Traffic, cached: CachedTokens) -> Finding | None:
    """What is wrong with the hit rate, if anything; `cached` is what the answers reported."""
    asked, found = asked_hit_rate(traffic), cached.share
    if asked is None:
        return None
    if found is None:
        text = f"A cache hit rate of {asked:.0%} was asked for, but the server does not report cached tokens"
        return "doubtful", f"{text}; start it so that it does (vLLM: --enable-prompt-tokens-details)."
    if abs(found - asked) <= OFF_BY:
        return None
    text = f"{found:.1%} of prompt tokens came from the prefix cache, {asked:.1%} were asked for"
    return "invalid", f"{text}; {_hit_rate_remedy(asked, found)}."


def _hit_rate_remedy(asked: float, found: float) -> str:
    if found > asked:
        return "prompts were in the cache before: use another seed, more nonce tokens, or a fresh server"
    return "is prefix caching on, and does the cache hold all groups? Fewer or shorter ones take less room"


# -- verdict ---------------------------------------------------------------------------------------------------------


# Errors against what is reported: 5% of the median is what two runs differ by anyway; half of it is no measurement.
ERROR_DOUBTFUL = 0.05
ERROR_INVALID = 0.50
LATE_FLOOR_S = 0.001  # pacing is to be below a millisecond; less is never worth a word
LATE_INVALID_S = 0.010
GAP_ERROR_DOUBTFUL = 0.25  # of the median gap: p99 of a gap that is off by a quarter still ranks the same systems
SHORTFALL_DOUBTFUL = 0.01
SHORTFALL_INVALID = 0.10
KS_SIGNIFICANT = 0.001  # one sound run in a thousand
KS_DISTANCE = 0.03  # with many gaps any difference is significant; a smaller one changes no queue
UNEVEN_GAPS = 0.10  # coefficient of variation of gaps that should all be equal
READS_FEWEST = 3  # one read that waited says nothing of the others, however few they are
READS_FIRST = 0.01  # share of TTFTs with a large uncertainty: more, and it reaches p99
READS_LATER = 0.05  # share of gaps with a large uncertainty: more, and it reaches p95
CEILING_DOUBTFUL = 0.80
BUSY_SHARE = 0.90  # of a core: above it, queueing in the client is no longer small
BUSY_TIME = 0.10
BUSY_KNOWN_S = 1.0  # of samples: start and end of a shorter run weigh more than what lies between
QUEUE_GROWTH = 0.05  # requests that join the backlog per request offered
FEW_TURNOVERS = 2.0  # a window of fewer stays than this has not seen a steady state
HELD_SHARE = 0.95
OUTPUT_SHORT = 0.01  # share of answers that ended early
INPUT_DIFFERS = 0.20  # chat templates and foreign tokenizers add a few percent
TOKENS_DIFFER = 0.01
ODD_FINISHES = 0.01
FAILED_DOUBTFUL = 0.01
FAILED_INVALID = 0.10
OURS = ("late_sends", "shortfall", "own_error")  # codes that say nothing of the target: what it missed may be our doing
LEADING = ("server_lost", "worker_lost", "nothing_answered", "failed_requests")  # first of all, how bad the rest may be
CACHED_SHARE = 0.10  # templates share a few tokens; a tenth of all prompts is more than that


def verdict(summary: Summary, facts: Facts, plan: Plan) -> Verdict:
    """The worst status of all rules, and every reason, worst first."""
    doubts = [doubt for rule in RULES for doubt in rule(summary, facts, plan)]
    doubts.sort(key=lambda doubt: (doubt.code not in LEADING, doubt.status != "invalid"))
    return Verdict(status=worst(doubts), doubts=doubts, traffic=_of_classes(doubts, plan))


def _of_classes(doubts: list[Reason], plan: Plan) -> dict[str, Status]:
    """Of several traffic classes the status of each: by its own doubts, and by those of the run as a whole."""
    if len(plan.classes) < 2:
        return {}
    names = [traffic.name for traffic in plan.classes]
    return {name: worst([doubt for doubt in doubts if doubt.traffic in (None, name)]) for name in names}


def _reason(status: Status, code: str, text: str, traffic: str | None = None) -> Reason:
    return Reason(status=status, code=code, text=text if traffic is None else f"{traffic}: {text}", traffic=traffic)


def _doubt(code: str, text: str, traffic: str | None = None) -> Reason:
    return _reason("doubtful", code, text, traffic)


def _parts(summary: Summary, plan: Plan) -> Iterator[tuple[str | None, Traffic, ClassSummary]]:
    """(name to say, class, its summary): of several classes each its own."""
    for traffic in plan.classes:
        several = len(plan.classes) > 1
        yield (traffic.name, traffic, summary.traffic[traffic.name]) if several else (None, traffic, summary)


def _lost(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    if facts.lost_server is not None:
        yield _reason("invalid", "server_lost", f"The server was lost on the way: {facts.lost_server}.")
    for text in facts.lost_workers:
        yield _reason("invalid", "worker_lost", f"Worker {text}; what it had logged is kept, the rest was not sent.")


def _failed_requests(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    """Unless the plan has a limit on the failure rate, which judges it. Requests that we ended are not among them."""
    for name, traffic, part in _parts(summary, plan):
        share = part.failures.failure_rate
        if share is None or share <= FAILED_DOUBTFUL or not part.outcomes["ok"] or judges_failures(traffic):
            continue
        status: Status = "invalid" if share > FAILED_INVALID else "doubtful"
        yield _reason(status, "failed_requests", f"{failures_text(part)}.", name)


def judges_failures(traffic: Traffic) -> bool:
    return any(limit.measure == "failure_rate" for limit in traffic.limits)


def failures_text(part: Section) -> str:
    """`51% of requests failed (205 of 400): 205 connect; the first: Connection refused`."""
    failures = part.failures
    failed, share = failures.failed or 0, failures.failure_rate or 1.0
    counts = {word: round(each / share * failed) for word, each in failures.by_outcome.items()}
    listed = ", ".join(f"{n:,} {word}" for word, n in sorted(counts.items(), key=lambda item: -item[1]))
    first = f"; the first: {failures.first}" if failures.first else ""
    of = f"{100 * share:.3g}% of requests failed ({failed:,} of {round(failed / share):,})"
    return f"{of}: {listed}{first}"


def _nothing_answered(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    counts = summary.outcomes
    total = sum(counts.values())
    if counts["ok"] == 0:
        rest = ", ".join(f"{n} {word}" for word, n in counts.items() if word != "ok") or "nothing was sent"
        first = f"; most often: {summary.errors[0].message}" if summary.errors else ""
        yield _reason("invalid", "nothing_answered", f"None of {total} requests was answered ({rest}){first}.")
    elif not any(summary.measures[name].count for name in ("ttft", "e2e")):
        yield _reason(
            "invalid", "empty_window", "No request scheduled in the window was answered; make the run longer."
        )


def _interrupted(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    length = duration_text(summary.window.length_s)
    if facts.interrupted:
        text = f"The run was interrupted; its window is the {length} before that."
        yield structs.replace(_doubt("interrupted", text), signal=facts.interrupted_by)
    elif facts.gave_up is not None:
        text = f"The run ended early: {facts.gave_up}; its window is the {length} before that."
        status: Status = "doubtful" if all(map(judges_failures, plan.classes)) else "invalid"
        yield _reason(status, "ended_early", text)


def _not_precise(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    for name, _, part in _parts(summary, plan):
        precision = part.precision
        if precision is None or precision.met or (part.goal and part.goal.status == "precise"):
            continue
        found = "is unknown" if precision.within is None else f"is known within {precision.within:.1%}"
        text = f"Asked for {precision.requested}, but {precision.measure} {precision.stat} {found}"
        yield _doubt("not_precise", f"{text}; raise stop.at_most.", name)


def _late_sends(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    for name, _, part in _parts(summary, plan):
        late = part.delivery.lateness.p99 if part.delivery else None
        middle = part.measures["ttft"].p50
        if late is None or middle is None or late <= max(LATE_FLOOR_S, ERROR_DOUBTFUL * middle):
            continue
        status: Status = "invalid" if late > max(LATE_INVALID_S, ERROR_INVALID * middle) else "doubtful"
        text = f"We sent late: 1 request in 100 by more than {duration_text(late)}, where the median TTFT is"
        remedy = _remedy(summary, "use more workers or less load")
        yield _reason(status, "late_sends", f"{text} {duration_text(middle)}; {remedy}.", name)


def _remedy(summary: Summary, usual: str) -> str:
    """What to do against our own lateness, or its cause where more workers are no help: `_scarce_cores` says more."""
    return usual if scarcity(summary.host) is None else "its likely cause are missing cores, see below"


def _scarce_cores(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    """Where we were late or uncertain and others had the cores: the cause. By itself that does no harm."""
    cause = scarcity(summary.host)
    suffered = (_late_sends, _not_the_process, _uncertain_reads)
    if cause is not None and any(True for rule in suffered for _ in rule(summary, facts, plan)):
        code, text = cause
        remedy = "more workers are no help, use a machine with cores of its own, or less load"
        yield _doubt(code, f"{text[0].upper()}{text[1:]}: {remedy}.")


def _shortfall(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    for name, _, part in _parts(summary, plan):
        planned, missing = (part.delivery.planned, part.delivery.shortfall) if part.delivery else (None, None)
        if facts.cut_short or not planned or missing is None or missing / planned <= SHORTFALL_DOUBTFUL:
            continue
        status: Status = "invalid" if missing / planned > SHORTFALL_INVALID else "doubtful"
        text = f"Of {planned} planned arrivals {missing} never came: the offered load is not the one asked for."
        yield _reason(status, "shortfall", text, name)


def _not_the_process(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    for name, _, part in _parts(summary, plan):
        if part.delivery is None:
            continue
        ks, cv, named = part.delivery.ks, part.delivery.gap_cv, part.delivery.process
        if ks and ks.p < KS_SIGNIFICANT and ks.statistic > KS_DISTANCE:
            text = f"The gaps between arrivals are not {named}: Kolmogorov-Smirnov distance {ks.statistic:.3f}"
            remedy = _remedy(summary, "use more workers or less load")
            yield _doubt("not_the_process", f"{text}, p = {ks.p:.1g}; {remedy}.", name)
        if part.delivery.gap_cv_named == 0.0 and cv is not None and cv > UNEVEN_GAPS:
            text = f"The constant rate was not even: its gaps vary by {cv:.0%} of their mean"
            yield _doubt("not_the_process", f"{text}; {_remedy(summary, 'use more workers or less load')}.", name)


def _uncertain_reads(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    if summary.uncertainty is None:
        return
    first, later, last = summary.uncertainty.first_read, summary.uncertainty.read, summary.uncertainty.last_read
    remedy = _remedy(summary, "use more workers")
    if _many_uncertain(first, READS_FIRST):
        text = f"{first.large_share:.1%} of first tokens may have come more than 5% of the median TTFT earlier"
        yield _doubt("uncertain_reads", f"{text} (p99 {duration_text(first.p99)}); {remedy}.")
    if _many_uncertain(later, READS_LATER):
        text = f"{later.large_share:.1%} of reads are uncertain by more than half a median gap"
        yield _doubt("uncertain_reads", f"{text}: do not rely on the tails of ICL and ITL; {remedy}.")
    if _many_uncertain(last, READS_LATER):
        text = f"{last.large_share:.0%} of last tokens came together with the end of the answer, and may have come"
        text += " earlier by more than half of the time the answer took from its first token"
        yield _doubt("uncertain_ends", f"{text}: do not rely on TPOT; ask for longer answers.")


def _many_uncertain(reads: Slack, share: float) -> bool:
    return reads.large >= READS_FEWEST and (reads.large_share or 0.0) > share


def _own_error(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    own = summary.instrument
    if own is None:  # virtual time
        return
    point = f"at {own.streams} streams and {number_text(own.events_per_s)} events/s a worker"
    beyond = " (beyond its calibration)" if own.extrapolated else ""
    error, middle = own.ttft_error_p99, summary.measures["ttft"]["p50"]
    if error is not None and middle and error > ERROR_DOUBTFUL * middle:
        status: Status = "invalid" if error > ERROR_INVALID * middle else "doubtful"
        text = f"Our own TTFT error {point} is up to {duration_text(error)}{beyond}, the median TTFT"
        yield _reason(status, "own_error", f"{text} {duration_text(middle)}; use more workers or machines.")
    error, middle = own.read_error_p99, summary.measures["icl"]["p50"]
    if error is not None and middle and error > GAP_ERROR_DOUBTFUL * middle:
        text = f"Our own error of a read {point} is up to {duration_text(error)}{beyond}, the median gap"
        yield _doubt("own_error", f"{text} {duration_text(middle)}: the tails of ICL and ITL are partly ours.")


def _near_the_ceiling(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    share = summary.instrument.ceiling_share if summary.instrument else None
    if share is not None and share > CEILING_DOUBTFUL:
        text = f"The client ran at {share:.0%} of what it can read on this machine"
        yield _doubt("near_ceiling", f"{text}; use more workers or machines.")


def _busy_client(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    busy = max((_busy_time(facts, shard) for shard in {use.shard for use in facts.core_use}), default=0.0)
    if busy > BUSY_TIME:
        text = f"The client's core was over {BUSY_SHARE:.0%} busy for {busy:.0%} of the time"
        yield _doubt("busy_client", f"{text}: what it reports as latency may be its own; use more workers.")


def _busy_time(facts: Facts, shard: str) -> float:
    """The share of a load process's time in which it left its core no rest; 0 where too little of it was seen."""
    uses = [use for use in facts.core_use if use.shard == shard]
    seen_s = sum(use.over_s for use in uses)
    busy_s = sum(use.over_s for use in uses if use.share > BUSY_SHARE)
    return busy_s / seen_s if seen_s >= BUSY_KNOWN_S else 0.0


def _unbounded_queue(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    for name, _, part in _parts(summary, plan):
        share = growing_queue(part)
        if share is None:
            continue
        text = f"More was offered than served: of 100 requests {100 * share:.0f} joined a growing queue, so latencies"
        yield _reason("invalid", "unbounded_queue", f"{text} depend on how long the run was; lower the rate.", name)


def growing_queue(part: Section) -> float | None:
    """The share of the requests that joined a queue which only grows; None where it is not known to."""
    backlog = part.window.backlog
    if part.loop == "closed" or not backlog or backlog.status != "drifting":
        return None
    share: float | None = backlog.growth_share
    if share is None or share <= QUEUE_GROWTH or _short_against_stay(backlog, part.window.length_s):
        return None
    return share


def _short_against_stay(backlog: Backlog, length_s: float | None) -> bool:
    """Also where nothing left the system: its stay is then longer than the window, we do not know by how much."""
    stay_s = backlog.time_in_system_s
    return stay_s is None or (length_s or 0.0) < FEW_TURNOVERS * stay_s


def _not_steady(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    """Stages, ramps and recordings are meant to change: of stages each is looked at, the others are not."""
    for name, traffic, part in _parts(summary, plan):
        if traffic.load.type in ("ramp", "replay"):
            continue
        sections: Sequence[Section] = part.stages or [part]
        for section in sections:
            ramped = isinstance(section, StageSummary) and traffic.load.stages[section.stage].to is not None
            if not ramped:
                yield from _drifts(section, name)


def _drifts(section: Section, name: str | None) -> Iterator[Reason]:
    where = f"In stage {section.stage + 1} " if isinstance(section, StageSummary) else ""
    steady = section.window.steady
    if steady is None or steady.status != "drifting":
        return
    drifts = [f"{what} by {trend.drift:+.0%}" for what, trend in steady.of.items() if trend.status == "drifting"]
    text = f"{where}the window is not steady: {' and '.join(drifts)} from its start to its end (p = {steady.p:.1g})"
    yield _doubt("not_steady", f"{text[0].upper()}{text[1:]}; use a longer warm-up or a longer run.", name)


def _concurrency_not_held(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    for name, traffic, part in _parts(summary, plan):
        if traffic.load.type != "concurrency" or traffic.load.sessions_at_once:  # users who think leave slots free
            continue
        held, asked = part.concurrency.mean, part.concurrency.requested
        if held is not None and asked and held < HELD_SHARE * asked:
            text = f"Concurrency {asked} was asked for and {number_text(held)} were in flight on average"
            yield _doubt("concurrency_not_held", f"{text}; send more requests, or use more workers.", name)


def _too_few(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    """Binds only the quantiles that the plan's limits or the headline name."""
    for name, traffic, part in _parts(summary, plan):
        wanting = _wanting(part, traffic)
        if wanting:
            need, have, worst = max(wanting)
            rest = f" ({len(wanting)} quantiles are unknown)" if len(wanting) > 1 else ""
            text = f"Too few samples: {worst} needs about {need} and has {have}{rest}; make the run longer."
            yield _doubt("too_few_samples", text, name)


def _wanting(part: ClassSummary, traffic: Traffic) -> list[tuple[int, int, str]]:
    """(needed, there, what) of each named quantile that is unknown. Under a load that is meant to change, neighbours
    are alike by design, and only the bare count binds."""
    changing = traffic.load.type in ("ramp", "stages", "replay")
    found = []
    for measure, described in part.measures.items():
        bound = set(named_quantiles(traffic.limits, measure))
        bound |= set(part.headline_quantiles) if measure in part.headline else set()
        have = described.count
        for stat in bound & set(described.unknown):
            alone = needed_for(share_of(stat), part.confidence)
            if have and not (changing and have >= alone):
                found.append((described.unknown[stat], have, f"{measure} {stat}"))
    return found


def _short_output(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    for name, traffic, part in _parts(summary, plan):
        if part.tokens is None:
            continue
        compared = part.tokens.output.requested_against_reported
        if compared.requests and compared.fewer / compared.requests > OUTPUT_SHORT and _exact(traffic):
            share = compared.fewer / compared.requests
            text = f"{share:.0%} of answers are shorter than asked, output in all {compared.difference:+.1%}"
            yield _doubt("short_output", f"{text}; check that the server honours ignore_eos and max_tokens.", name)


def _exact(traffic: Traffic) -> bool:
    """Whether answers are asked to have their full length."""
    return traffic.sampling.ignore_eos is not False


def _odd_finish(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    for name, traffic, part in _parts(summary, plan):
        if part.tokens is None:
            continue
        reasons = {word: n for word, n in part.tokens.finish_reasons.items() if word != "none"}
        asked = part.tokens.output.requested is not None and _exact(traffic)
        fine = {"length"} if asked else {"length", "stop", "tool_calls", "function_call"}
        odd = {word: n for word, n in reasons.items() if word not in fine}
        if odd and sum(odd.values()) / sum(reasons.values()) > ODD_FINISHES:
            listed = ", ".join(f"{n} {word!r}" for word, n in odd.items())
            expected = "'length', because full lengths were asked for" if asked else "'length' or 'stop'"
            yield _doubt("odd_finish", f"Answers finished with {listed}, where {expected} would fit.", name)


def _tokens_disagree(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    for name, _, part in _parts(summary, plan):
        if part.tokens is None:
            continue
        output, given = part.tokens.output, part.tokens.input.requested_against_reported
        difference = output.reported_against_counted.difference
        if difference is not None and abs(difference) > TOKENS_DIFFER:
            text = f"The reads carried {difference:+.1%} tokens against what the server reported at the end"
            yield _doubt("tokens_disagree", f"{text}; numbers per token are off by as much.", name)
        if given.difference is not None and abs(given.difference) > INPUT_DIFFERS:
            text = f"Prompts had {given.difference:+.0%} tokens against the length asked for"
            yield _doubt("input_differs", f"{text}; send token ids, or compare runs by reported tokens.", name)


def _cached_by_accident(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    """Synthetic prompts share nothing; within a session of several turns a cache is meant to hit."""
    if plan.warmup.tape:
        return
    for name, traffic, part in _parts(summary, plan):
        share = part.tokens.cached.share if part.tokens else None
        if traffic.workload.shares_nothing and part.sessions is None and (share or 0.0) > CACHED_SHARE:
            text = f"{share:.0%} of prompt tokens came from the prefix cache although prompts share nothing"
            yield _doubt("cached", f"{text}: they were sent before; use another seed or more nonce tokens.", name)


def _hit_rate_off(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    for name, traffic, part in _parts(summary, plan):
        if part.tokens and (found := hit_rate_finding(traffic, part.tokens.cached)) is not None:
            yield _reason(found[0], "hit_rate_off", found[1], name)


def _not_conserved(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    """Where the server's counters were read: they tell of the same requests and tokens as our records."""
    for code, text in findings(summary.server) if summary.server else ():
        yield _doubt(code, text)


def _clock_stepped(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    if facts.clock_steps_s and facts.stamps == "kernel":
        largest = max(facts.clock_steps_s, key=abs)
        text = f"The clock that stamps reads stepped {len(facts.clock_steps_s)} times, at most by"
        yield _doubt("clock_stepped", f"{text} {duration_text(largest)}; latencies across a step are off by it.")


def _unreadable(summary: Summary, facts: Facts, plan: Plan) -> Iterator[Reason]:
    if facts.unreadable:
        entries = "1 entry" if facts.unreadable == 1 else f"{facts.unreadable} entries"
        yield _doubt(
            "unreadable_entries",
            f"The run's logs are damaged: {entries} could not be read; the numbers leave them out.",
        )


RULES: tuple[Callable[[Summary, Facts, Plan], Iterator[Reason]], ...] = (
    _lost,
    _nothing_answered,
    _failed_requests,
    _interrupted,
    _not_precise,
    _late_sends,
    _shortfall,
    _not_the_process,
    _uncertain_reads,
    _scarce_cores,
    _own_error,
    _near_the_ceiling,
    _busy_client,
    _unbounded_queue,
    _not_steady,
    _concurrency_not_held,
    _too_few,
    _short_output,
    _odd_finish,
    _tokens_disagree,
    _cached_by_accident,
    _hit_rate_off,
    _not_conserved,
    _clock_stepped,
    _unreadable,
)
