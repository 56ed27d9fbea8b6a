"""Whether the load was that of the plan, and whether the window shows a steady state."""

from collections.abc import Iterator, Sequence

from inferometer.measure.describe import named_quantiles, share_of
from inferometer.measure.doubts import (
    EITHER,
    TOLERATED,
    TOO_HIGH,
    TOO_LOW,
    JudgedRun,
    amount_text,
    differing,
    is_invalid,
    lacking,
    moved_text,
    number_name,
    shares_of,
    telling,
)
from inferometer.measure.hardware import scarcity
from inferometer.measure.inputs import Facts
from inferometer.measure.quantiles import needed_for
from inferometer.record.summary import Backlog, StageSummary, Summary, SummarySection, Trend
from inferometer.record.verdict import Move, Reason
from inferometer.vocabulary import MEASURES, change_text, duration_text, number_text, percent_text, value_text

# -- the load generator and its machine --------------------------------------------------------------------------------

# What the client itself may have shifted: late sends, uncertain reads, the instrument's own error, a busy client.

BUSY_SHARE = 0.90  # of a core: above it, queueing in the client is no longer small
BUSY_TIME = 0.10
HALF_BUSY = 0.50  # of a core, on average: more workers can help only above this
BUSY_KNOWN_S = 1.0  # of samples: start and end of a shorter run weigh more than what lies between
CEILING = 0.80
LATE_NOTED_S = 0.001
LATE_UNKNOWN = 0.10  # of what lateness shifts: requests sent late also meet other requests (one deviation, corpora)
OWN_FAILURES = 0.01  # of all requests: above it the offered load is not the planned one
REMEDIES = {  # by the operating system's error
    "open files": "raise the limit of open files (ulimit -n), or use more workers: the limit is one of each process",
    "assign requested address": "no local port was free: sudo sysctl net.ipv4.ip_local_port_range='1024 65535', fewer "
    "connections, or several addresses of the target",
    "buffer space": "the system's memory for sockets is full: raise net.ipv4.tcp_mem, or use fewer connections",
    "memory": "use a machine with more free memory, fewer connections, or a smaller target.bounds.memory",
}


def client_remedy(summary: Summary, facts: Facts) -> str:
    """The remedy for our own lateness, which depends on its cause."""
    if (cause := scarcity(summary.host)) is not None:
        return f"{cause[1]}: use a machine with free cores, or less load"
    uses = facts.core_use
    total_s = sum(use.over_s for use in uses)
    if total_s and sum(use.share * use.over_s for use in uses) / total_s > HALF_BUSY:
        return "use more workers"
    return "something else delayed the client: stop other work on this machine, or use another machine"


def client_failed(case: JudgedRun) -> Iterator[Reason]:
    """Requests that failed on this machine. They never count as failures of the target."""
    count, total = case.part.outcomes.get("client", 0), sum(case.part.outcomes.values())
    if not count:
        return
    messages = [error.message for error in case.part.errors]
    cause, remedy = next(
        ((message, REMEDIES[key]) for message in messages for key in REMEDIES if key in message),
        ("this machine was at its limit", "use a larger machine, or less load"),
    )
    text = (
        f"{percent_text(count / total)} of requests ({count:,} of {total:,}) failed on this machine, not at the server"
    )
    if count / total > OWN_FAILURES:
        text = f"{text}: {cause}. The load was not the planned load."
        yield case.doubt("client_failed", text, remedy, invalid=True)
    else:
        yield case.note("client_failed", f"{text}: {cause}.", remedy)


def late_sends(case: JudgedRun) -> Iterator[Reason]:
    delivery = case.part.delivery
    if delivery is None or delivery.lateness.p99 is None:
        return
    late = delivery.lateness
    direction = TOO_LOW if case.part.loop == "closed" else TOO_HIGH
    moves = telling(case.part, late.moves, direction, shares=case.part.loop == "closed", unknown=LATE_UNKNOWN)
    sent = f"1 request in 100 was sent more than {duration_text(late.p99)} late"
    if moves:
        remedy = client_remedy(case.summary, case.facts)
        text = f"Requests were sent late ({sent}): {moved_text(moves, direction)}."
        yield case.doubt("late_sends", text, remedy, moves=moves, invalid=is_invalid(moves))
    elif late.p99 is not None and late.p99 > LATE_NOTED_S:
        yield case.note("late_sends", f"{sent}, which changes no headline number by more than its uncertainty.")


def uncertain_reads(case: JudgedRun) -> Iterator[Reason]:
    """Judged only for the run as a whole: classes share the client."""
    uncertainty = case.part.uncertainty
    if uncertainty is None:
        return
    earlier = {key: by for key, by in uncertainty.moves.items() if key.startswith(("ttft.", "e2e."))}
    others = {key: by for key, by in uncertainty.moves.items() if key not in earlier}
    moves = telling(case.part, earlier, TOO_HIGH) + telling(case.part, others)
    moves.sort(key=lambda move: -(move.share or 0.0))
    if moves:
        text = f"Some tokens may have arrived before the read that contained them: {moved_text(moves)}."
        remedy = client_remedy(case.summary, case.facts)
        yield case.doubt("uncertain_reads", text, remedy, moves=moves, invalid=is_invalid(moves))
    merged = uncertainty.first_tokens
    if merged is not None and (merged.several_share or 0.0) > 0.01:
        text = f"{percent_text(merged.several_share)} of answers brought several tokens with their first read, up to"
        yield case.note("merged_first", f"{text} {merged.most}: sent together by the server, or merged in the network.")


def own_error(case: JudgedRun) -> Iterator[Reason]:
    own = case.summary.instrument
    if own is None:  # virtual time
        return
    errors = {
        "ttft.p50": own.ttft_error_p50,
        "ttft.p99": own.ttft_error_p99,
        "itl.p50": own.read_error_p50,
        "itl.p99": own.read_error_p99,
    }
    known = {key: error for key, error in errors.items() if error is not None}
    moves = telling(case.summary, known, TOO_HIGH)
    if moves:
        beyond = " (outside the calibrated range)" if own.extrapolated else ""
        load = f"{own.streams} streams and {number_text(own.events_per_s)} events/s per worker{beyond}"
        text = f"The load generator's own error at {load}: {moved_text(moves, TOO_HIGH)}."
        near = own.ceiling_share is None or own.ceiling_share > HALF_BUSY
        idle = "calibrate again while nothing else runs on this machine: inferometer calibrate"
        remedy = "use more workers or machines" if near else idle
        yield case.doubt("own_error", text, remedy, moves=moves, invalid=is_invalid(moves))
    if own.ceiling_share is not None and own.ceiling_share > CEILING:
        text = f"The client ran at {percent_text(own.ceiling_share)} of its maximum event rate on this machine."
        yield case.note("near_ceiling", text, "use more workers or machines")


def busy_client(case: JudgedRun) -> Iterator[Reason]:
    """What a busy client sends late is in `late_sends`; what it reads late has a kernel timestamp or, with our own
    timestamps, is stated as the uncertainty of the read (`uncertain_reads`). Being busy shifts nothing beyond that."""
    facts = case.facts
    busy = max((_busy_time(facts, shard) for shard in {use.shard for use in facts.core_use}), default=0.0)
    if busy > BUSY_TIME:
        covered = (
            "reads have kernel timestamps"
            if facts.stamps == "kernel"
            else "the stated uncertainty of the reads includes this"
        )
        text = f"The client's core was over {percent_text(BUSY_SHARE)} busy for {percent_text(busy)} of the time"
        yield case.note("busy_client", f"{text}; {covered}.", "use more workers")
    elif (cause := scarcity(case.summary.host)) is not None:
        text = f"{cause[1][0].upper()}{cause[1][1:]}; it had no visible effect on the numbers."
        yield case.note(cause[0], text)


def _busy_time(facts: Facts, shard: str) -> float:
    """The share of a load process's time in which it left its core no idle time; 0 if too little of it was sampled."""
    uses = [use for use in facts.core_use if use.shard == shard]
    seen_s = sum(use.over_s for use in uses)
    busy_s = sum(use.over_s for use in uses if use.share > BUSY_SHARE)
    return busy_s / seen_s if seen_s >= BUSY_KNOWN_S else 0.0


def workers_behind(case: JudgedRun) -> Iterator[Reason]:
    """The workers that started late or lagged, by name; the numbers this shifts are in `late_sends`."""
    for worker in case.part.delivery.workers if case.part.delivery else ():
        name = f"Worker {worker.worker}" + (f" on {worker.host}" if worker.host else "")
        if worker.status == "late start":
            text = f"{name} started {duration_text(worker.late_start_s)} after the others."
            yield case.note("late_start", text)
        elif worker.status == "lagging":
            text = f"{name} lagged: 1 of its requests in 100 was sent more than"
            yield case.note("lagging_worker", f"{text} {duration_text(worker.send_delay_p99_s)} late.")


ACROSS_HOSTS = ("request_rate", "input_rate", "output_rate", "total_rate")


def clocks_disagree(case: JudgedRun) -> Iterator[Reason]:
    """The numbers that combine the clocks of several hosts: window edges, rates, requests in flight. Latencies use one
    clock."""
    clocks, length_s = case.facts.clocks, case.summary.window.length_s
    if clocks is None or not length_s:
        return
    hosts = f"Workers ran on {len(clocks.hosts)} hosts"
    if clocks.uncertainty_s is None:
        text = f"{hosts}, whose clocks were compared by wall-clock time only; rates and concurrency combine them."
        yield case.note("clocks_unmeasured", text, "check that all hosts are synchronised by NTP or PTP")
        return
    jump = max((host for host in clocks.hosts if host.jump_s), key=lambda host: host.jump_s or 0.0, default=None)
    off_s = max(clocks.uncertainty_s, (jump.jump_s or 0.0) if jump else 0.0)
    moves = telling(case.summary, dict.fromkeys(ACROSS_HOSTS, 2 * off_s / length_s), shares=True)
    known = f"{hosts}, whose clocks agree within {duration_text(clocks.uncertainty_s)}"
    if jump and len(clocks.hosts) == 1:
        known = f"The clock of {jump.host}, where all workers ran, jumped by {duration_text(jump.jump_s)}"
    elif jump:
        known += f", but the clock of {jump.host} jumped by {duration_text(jump.jump_s)}"
    if moves:
        text = f"{known}: {moved_text(moves)}."
        yield case.doubt("clocks_disagree", text, "make the run longer, or use hosts in one network", moves=moves)
    else:
        spread_s = case.summary.clocks.start_spread_s if case.summary.clocks else None
        started = "" if spread_s is None else f", and started within {duration_text(spread_s)} of each other"
        yield case.note("clocks", f"{known}{started}.")


def clock_stepped(case: JudgedRun) -> Iterator[Reason]:
    if not case.facts.clock_steps_s or case.facts.stamps != "kernel":
        return
    steps = case.facts.clock_steps_s
    largest = max(map(abs, steps))
    times = "once" if len(steps) == 1 else f"{len(steps)} times"
    text = f"The clock of the read timestamps stepped {times}, by at most {duration_text(largest)}"
    moves = telling(case.part, {f"ttft.{stat}": largest for stat in ("mean", "p50", "p90", "p99")})
    if moves:
        yield case.doubt("clock_stepped", f"{text}.", "repeat the run", moves=moves, direction=EITHER)
    else:
        yield case.note("clock_stepped", f"{text}.")


# -- the load ----------------------------------------------------------------------------------------------------------

SHORTFALL_INVALID = 0.10
KS_SIGNIFICANT = 0.001  # one sound run in a thousand
KS_DISTANCE = 0.03  # with many gaps any difference is significant; a smaller one changes no queue
BLURRED = 0.10  # of the mean gap: clocks that differ by more than this change the gaps
UNEVEN_GAPS = 0.10  # coefficient of variation of gaps that should all be equal
QUEUE_GROWTH = 0.05  # requests that join the backlog per request offered
QUEUE_GROWTH_FAST = 0.03  # the same when stays get so much longer that no test of the backlog is needed
LONGER = 0.20  # growth of stays over the window when there is a queue: from its start to its end, of their mean
MUCH_LONGER = 1.0  # the same in a window so short that the target may just be filling up: stays triple
FEW_TURNOVERS = 2.0  # a window of fewer stays than this cannot show whether a queue only grows
SHORT_STAYS = 1.5  # mean stays: one, plus a half because the stays of so few and early requests are short
ANOTHER_LEVEL = 0.12  # by which the means of two parts of a window differ: less occurs in the tails of a sound run, too
HELD_SHARE = 0.95
WAVES = 10  # mean stays after which the requests of a closed loop no longer start together
WAITING_SHARE = 0.5  # the last part of the load in which no request was served at once
WAITING_GROWTH = 1.3  # factor by which TTFT grows from the load's first half to its last quarter, at least


def shortfall(case: JudgedRun) -> Iterator[Reason]:
    delivery = case.part.delivery
    planned, missing = (delivery.planned, delivery.shortfall) if delivery else (None, None)
    if case.facts.cut_short or not planned or not missing:
        return
    share = missing / planned
    text = f"{missing:,} of {planned:,} planned requests were never sent: the offered load is not the planned load."
    if share > TOLERATED:
        moves = lacking(case.part, share, "request_rate", "output_rate")
        remedy = client_remedy(case.summary, case.facts)
        invalid = share > SHORTFALL_INVALID
        yield case.doubt("shortfall", text, remedy, moves=moves, direction=TOO_LOW, invalid=invalid)
    else:
        yield case.note("shortfall", text)


def not_the_process(case: JudgedRun) -> Iterator[Reason]:
    delivery = case.part.delivery
    if delivery is None:
        return
    ks, cv = delivery.ks, delivery.gap_cv
    if _gaps_across_hosts(case):
        text = "The gaps between arrivals are shorter than the clock uncertainty between the hosts: the arrival process"
        yield case.note("process_unchecked", f"{text} was not checked.")
        return
    if ks and ks.p < KS_SIGNIFICANT and ks.statistic > KS_DISTANCE:
        text = f"The gaps between arrivals are not {delivery.process} (Kolmogorov-Smirnov distance"
        yield _other_process(case, f"{text} {ks.statistic:.3f}, p = {ks.p:.1g})")
    if delivery.gap_cv_named == 0.0 and cv is not None and cv > UNEVEN_GAPS:
        yield _other_process(case, f"The constant rate was uneven (gaps vary by {percent_text(cv)} of their mean)")


def _other_process(case: JudgedRun, text: str) -> Reason:
    remedy = client_remedy(case.summary, case.facts)
    text = f"{text}, which changes queueing and the tail of TTFT."
    return case.doubt("not_the_process", text, remedy, moves=_waiting_moves(case), direction=EITHER)


def _waiting_moves(case: JudgedRun) -> list[Move]:
    """How much longer requests wait by Kingman's formula: a wait is proportional to the sum of the squared coefficients
    of variation of gaps and of service times, the latter taken as 1. TTFT includes the wait, so it is shifted by at
    most that."""
    delivery = case.part.delivery
    if delivery is None or delivery.gap_cv is None or delivery.gap_cv_named is None:
        return []
    share = abs(1 - (delivery.gap_cv_named**2 + 1) / (delivery.gap_cv**2 + 1))
    return shares_of(case.part, share, "ttft_scheduled.mean", "ttft_scheduled.p99")


def _gaps_across_hosts(case: JudgedRun) -> bool:
    """Whether the clocks of several hosts blur the gaps between arrivals."""
    clocks, window = case.facts.clocks, case.part.window
    if clocks is None or not window.requests or not window.length_s:
        return False
    return clocks.uncertainty_s is None or clocks.uncertainty_s > BLURRED * window.length_s / window.requests


def held_back(case: JudgedRun) -> Iterator[Reason]:
    """Arrivals that waited for a slot under the plan's cap: the server was offered less than the planned rate."""
    cap, waits = case.traffic.load.max_concurrency, case.part.measures.get("queue_wait")
    if cap is None or waits is None or not case.traffic.load.open_loop:
        return
    late = {f"ttft_scheduled.{stat}": waits[stat] or 0.0 for stat in ("mean", "p50", "p90", "p99")}
    moves = telling(case.part, late, TOO_HIGH)
    if moves:
        waited = f"{number_name(moves[0])} includes {amount_text(moves[0])} of waiting for a free slot"
        text = f"The cap of {cap} requests in flight held requests back: {waited}."
        yield case.doubt("held_back", text, "lower the rate, or raise max_concurrency", moves=moves)


def unbounded_queue(case: JudgedRun) -> Iterator[Reason]:
    # what a cap holds back waits in the client: an empty queue at the server shows nothing then
    ours = any(held_back(case))
    if not queue_grows(case.part) or (queue_was_empty(case) and not ours):
        return
    backlog = case.part.window.backlog
    share = max(backlog.growth_share or 0.0, 0.0) if backlog else 0.0
    joined = (
        f"{percent_text(round(share, 2))} of requests joined a growing queue" if share >= 0.01 else "the queue grows"
    )
    stays = backlog.time_in_system if backlog else None
    moves = shares_of(case.part, abs(stays.drift or 0.0) if stays else 0.0, "ttft_scheduled.mean", "e2e_scheduled.mean")
    cap = case.traffic.load.max_concurrency
    capacity = f"what a cap of {cap} requests in flight lets through" if ours else "the capacity"
    text = f"The load exceeds {capacity}: {joined}, so latencies grow as long as the run lasts."
    remedy = "lower the rate, or raise max_concurrency" if ours else "lower the rate"
    yield case.doubt("unbounded_queue", text, remedy, moves=moves, direction=EITHER, invalid=True)


def queue_grows(part: SummarySection) -> bool:
    """Whether requests join a queue that only grows. Either the backlog grows and stays get longer (under a random load
    one end of the window may simply have more requests in flight than the other), or no request was served at once for
    most of the load and waits kept growing."""
    backlog = part.window.backlog
    if part.loop == "closed" or not backlog:
        return False
    return _backlog_grows(backlog, part.window.length_s) or (
        (backlog.waiting_share or 0.0) > WAITING_SHARE and (backlog.waiting_growth or 0.0) > WAITING_GROWTH
    )


def _backlog_grows(backlog: Backlog, length_s: float | None) -> bool:
    share, stays = backlog.growth_share or 0.0, backlog.time_in_system
    drift = stays.drift if stays is not None else None
    if share > QUEUE_GROWTH_FAST and (drift or 0.0) > MUCH_LONGER:
        return True
    if backlog.status != "drifting" or share <= QUEUE_GROWTH:
        return False
    enough = LONGER if not _short_against_stay(backlog, length_s) else MUCH_LONGER
    return drift is None or drift > enough


def queue_was_empty(case: JudgedRun) -> bool:
    """Whether the server itself had nothing waiting, as far as its metrics were scraped."""
    queued = case.summary.server.gauges.get("queued") if case.summary.server else None
    return queued is not None and queued.max == 0


def _short_against_stay(backlog: Backlog, length_s: float | None) -> bool:
    """True also if nothing left the system: the stay is then longer than the window by an unknown amount."""
    stay_s = backlog.time_in_system_s
    return stay_s is None or (length_s or 0.0) < FEW_TURNOVERS * stay_s


def short_window(case: JudgedRun) -> Iterator[Reason]:
    """In a load this short, requests never meet as many others as they would later. A load that arrives all at once is
    meant to be short."""
    if case.traffic.load.changes or case.facts.cut_short:
        return
    stay = case.part.measures["e2e"].mean if "e2e" in case.part.measures else None
    length_s, requests = case.part.window.length_s, case.part.window.requests or 0
    if not stay or length_s is None or requests < 2 or length_s >= SHORT_STAYS * stay or case.part.loop == "closed":
        return
    if length_s < 0.01 * stay:  # all at once
        return
    moves = lacking(case.part, stay / (length_s + stay), "request_rate", "output_rate")
    text = f"The load lasted {duration_text(length_s)}, hardly longer than one request ({duration_text(stay)})"
    moved = f": {moved_text(moves, TOO_LOW)}" if moves else ""
    yield case.doubt("short_window", f"{text}{moved}.", "make the run longer", moves=moves)


def not_steady(case: JudgedRun) -> Iterator[Reason]:
    """Stages, ramps and recordings are meant to change: each stage is checked by itself, ramps and recordings are
    not."""
    load = case.traffic.load
    if load.type in ("ramp", "replay"):
        return
    sections: Sequence[SummarySection] = case.part.stages or [case.part]
    for section in sections:
        ramped = isinstance(section, StageSummary) and load.stages[section.stage].to is not None
        if not ramped:
            yield from _drift(case, section)


def _drift(case: JudgedRun, section: SummarySection) -> Iterator[Reason]:
    steady = section.window.steady
    if steady is None or steady.status != "drifting":
        return
    where = f"In stage {section.stage + 1} the" if isinstance(section, StageSummary) else "The"
    drifts = {name: trend for name, trend in steady.of.items() if trend.status == "drifting"}
    listed = "; ".join(_drift_text(name, trend) for name, trend in drifts.items())
    p = f" (p = {steady.p:.1g})" if steady.p is not None and steady.p < 0.01 else ""
    text = f"{where} window is not steady: {listed}{p}."
    moves = [move for name, trend in drifts.items() if trend.levels for move in differing(section, name, trend.levels)]
    if moves and not _few_turns(section):
        yield case.doubt("not_steady", text, "use a longer warm-up or a longer run", moves=moves, direction=EITHER)
    else:
        yield case.note("not_steady", text)


def _drift_text(name: str, trend: Trend) -> str:
    """`TPOT mean is 15.3 ms from 12 s to 20 s of the window, 5.1 ms in the rest`."""
    levels = trend.levels
    if levels is None or not (levels.inside and levels.outside):
        title = "requests in flight" if name == "in_flight" else MEASURES[name].title
        where = "from its middle to both ends" if trend.bend else "from its start to its end"
        return f"{title} change by {change_text(trend.drift)} {where}"
    unit = MEASURES[name].unit
    part = f"from {duration_text(levels.start_s)} to {duration_text(levels.end_s)} of the window"
    inside, outside = (value_text(level["mean"], unit) for level in (levels.inside, levels.outside))
    return f"{MEASURES[name].title} mean is {inside} {part}, {outside} in the rest"


def _few_turns(section: SummarySection) -> bool:
    """A closed loop starts all its requests at once, and they come in waves for some stays: that is no drift."""
    stay = section.measures["e2e"].mean if "e2e" in section.measures else None
    return section.loop == "closed" and bool(stay) and (section.window.length_s or 0.0) < WAVES * (stay or 0.0)


def concurrency_not_held(case: JudgedRun) -> Iterator[Reason]:
    load = case.traffic.load
    if load.type != "concurrency" or load.sessions_at_once:  # users with think time leave slots free
        return
    held, requested = case.part.concurrency.window, case.part.concurrency.requested
    if held is not None and requested and held < HELD_SHARE * requested:
        text = (
            f"Concurrency {requested} was requested, but only {number_text(held)} requests were in flight on average."
        )
        moves = lacking(case.part, 1 - held / requested, "request_rate", "output_rate")
        remedy = "send more requests than the concurrency, or limit the run by its duration"
        yield case.doubt("concurrency_not_held", text, remedy, moves=moves, direction=TOO_LOW)


def weak_quantiles(case: JudgedRun) -> Iterator[Reason]:
    """Checks the quantiles that the plan's limits or the headline name."""
    weak = []
    for name, measure in case.part.measures.items():
        bound = {*named_quantiles(case.traffic.limits, name)}
        bound |= {*case.part.headline_quantiles, "p99"} if name in case.part.headline else set()
        for stat in bound & measure.weak.keys():
            alone = needed_for(share_of(stat), case.part.confidence)
            if measure.count and not (case.traffic.load.changes and measure.count >= alone):
                title = MEASURES[name].title if name in MEASURES else name
                weak.append((measure.weak[stat], measure.count, f"{title} {stat}"))
    if weak:
        needed, count, worst = max(weak)
        more = f" ({len(weak)} percentiles are weak)" if len(weak) > 1 else ""
        text = f"{worst} is based on {count:,} samples ({needed:,} needed){more}."
        yield case.note("weak_quantiles", text, "make the run longer")


def not_precise(case: JudgedRun) -> Iterator[Reason]:
    precision = case.part.precision
    if precision is None or precision.met or (case.part.goal and case.part.goal.status == "precise"):
        return
    known = "is unknown" if precision.within is None else f"is known within {percent_text(precision.within)}"
    text = f"{precision.requested} was requested, but {precision.measure} {precision.stat} {known}."
    yield case.doubt("not_precise", text, "raise stop.at_most")
