"""What our own doing may have moved: late sends, uncertain reads, the instrument's own error, a busy client."""

from collections.abc import Iterator

from inferometer.measure.doubts.rule import EITHER, TOO_HIGH, TOO_LOW, JudgedRun, is_invalid, moved_text, telling
from inferometer.measure.hardware import scarcity
from inferometer.measure.inputs import Facts
from inferometer.record.summary import Summary
from inferometer.record.verdict import Reason
from inferometer.vocabulary import duration_text, number_text, percent_text

BUSY_SHARE = 0.90  # of a core: above it, queueing in the client is no longer small
BUSY_TIME = 0.10
HALF_BUSY = 0.50  # of a core, on average: more workers can help only above
BUSY_KNOWN_S = 1.0  # of samples: start and end of a shorter run weigh more than what lies between
CEILING = 0.80
LATE_NOTED_S = 0.001
LATE_UNKNOWN = 0.10  # of what lateness moves: requests sent late also meet other requests (one deviation, corpora)
OWN_FAILURES = 0.01  # of all requests: beyond it the load that was offered is not the one of the plan
REMEDIES = {  # by the system's error
    "open files": "raise the limit of open files (ulimit -n), or use more workers: the limit is one of each process",
    "assign requested address": "no local port was free: sudo sysctl net.ipv4.ip_local_port_range='1024 65535', fewer "
    "connections, or several addresses of the target",
    "buffer space": "the system's memory for sockets is full: raise net.ipv4.tcp_mem, or use fewer connections",
    "memory": "use a machine with more free memory, fewer connections, or a smaller target.bounds.memory",
}


def client_remedy(summary: Summary, facts: Facts) -> str:
    """What helps against our own lateness depends on its cause."""
    if (cause := scarcity(summary.host)) is not None:
        return f"{cause[1]}: use a machine with free cores, or less load"
    uses = facts.core_use
    total_s = sum(use.over_s for use in uses)
    if total_s and sum(use.share * use.over_s for use in uses) / total_s > HALF_BUSY:
        return "use more workers"
    return "something else delayed the client: stop other work on this machine, or use another machine"


def client_failed(case: JudgedRun) -> Iterator[Reason]:
    """Requests that failed on this machine. They are not among the target's failures, whatever their number."""
    count, total = case.part.outcomes.get("client", 0), sum(case.part.outcomes.values())
    if not count:
        return
    messages = [error.message for error in case.part.errors]
    cause, remedy = next(
        ((message, REMEDIES[key]) for message in messages for key in REMEDIES if key in message),
        ("this machine had no more to give", "use a larger machine, or less load"),
    )
    text = (
        f"{percent_text(count / total)} of requests ({count:,} of {total:,}) failed on this machine, not at the server"
    )
    if count / total > OWN_FAILURES:
        text = f"{text}: {cause}. The load was not the one of the plan."
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
    """Only the run as a whole: classes share the client."""
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
        yield case.note("merged_first", f"{text} {merged.most}: they were sent, or merged in the network, together.")


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
    """What a busy client sends late is in `late_sends`; what it reads late has a kernel timestamp or, with our own, is
    stated as the uncertainty of the read (`uncertain_reads`). That it was busy moves nothing besides."""
    facts = case.facts
    busy = max((_busy_time(facts, shard) for shard in {use.shard for use in facts.core_use}), default=0.0)
    if busy > BUSY_TIME:
        covered = (
            "reads have kernel timestamps" if facts.stamps == "kernel" else "reads state how uncertain that made them"
        )
        text = f"The client's core was over {percent_text(BUSY_SHARE)} busy for {percent_text(busy)} of the time"
        yield case.note("busy_client", f"{text}; {covered}.", "use more workers")
    elif (cause := scarcity(case.summary.host)) is not None:
        text = f"{cause[1][0].upper()}{cause[1][1:]}; it had no visible effect on the numbers."
        yield case.note(cause[0], text)


def _busy_time(facts: Facts, shard: str) -> float:
    """The share of a load process's time in which it left its core no rest; 0 where too little of it was seen."""
    uses = [use for use in facts.core_use if use.shard == shard]
    seen_s = sum(use.over_s for use in uses)
    busy_s = sum(use.over_s for use in uses if use.share > BUSY_SHARE)
    return busy_s / seen_s if seen_s >= BUSY_KNOWN_S else 0.0


def workers_behind(case: JudgedRun) -> Iterator[Reason]:
    """Who began late or lagged, by name; what it moves is in `late_sends`."""
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
    """What combines the clocks of several hosts: window edges, rates, requests in flight. No latency does."""
    clocks, length_s = case.facts.clocks, case.summary.window.length_s
    if clocks is None or not length_s:
        return
    hosts = f"Workers ran on {len(clocks.hosts)} hosts"
    if clocks.uncertainty_s is None:
        text = f"{hosts}, whose clocks were compared by their real time alone: rates and concurrency combine them."
        yield case.note("clocks_unmeasured", text, "check that all hosts are synchronised by NTP or PTP")
        return
    jump = max((host for host in clocks.hosts if host.jump_s), key=lambda host: host.jump_s or 0.0, default=None)
    off_s = max(clocks.uncertainty_s, (jump.jump_s or 0.0) if jump else 0.0)
    moves = telling(case.summary, dict.fromkeys(ACROSS_HOSTS, 2 * off_s / length_s), shares=True)
    known = f"{hosts} and agree on the time within {duration_text(clocks.uncertainty_s)}"
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
