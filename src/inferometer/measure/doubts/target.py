"""Problems of the target: failed requests, answers other than requested, a warm cache, counters that disagree with
ours."""

from collections.abc import Iterator

from msgspec import structs

from inferometer.measure.doubts import EITHER, TOLERATED, TOO_LOW, JudgedRun, lacking, shares_of
from inferometer.measure.observed import findings
from inferometer.plan.model import Traffic
from inferometer.record.record import CENSORED, outcome_text
from inferometer.record.summary import CachedTokens, Summary, SummarySection
from inferometer.record.verdict import Reason
from inferometer.vocabulary import change_text, duration_text, percent_text

FAILED_DOUBTFUL = 0.01
FAILED_INVALID = 0.10
UNFINISHED = 0.01  # of the window's requests, cut off at the drain deadline: the longest ones are missing
OFF_BY = 0.05  # of all prompt tokens: rounding to blocks and a chat template take a percent or two
NOTED = 0.01
MOST_LISTED = 5  # finish reasons listed in a sentence
INPUT_DIFFERS = 0.20  # chat templates and foreign tokenizers add a few percent
CACHED_SHARE = 0.05  # templates share a few tokens
OF_STREAMS = frozenset(  # measures that mean nothing if the answer arrived all at once
    {"ttft", "ttft_scheduled", "ttfo", "ttfo_scheduled", "tpot", "itl", "icl", "stall", "stall_share", "user_speed"}
)
FINE_FINISHES = ("length", "stop", "tool_calls", "function_call")


def lost(case: JudgedRun) -> Iterator[Reason]:
    if case.facts.lost_server is not None:
        text = f"The server was lost during the run: {case.facts.lost_server}."
        yield case.doubt("server_lost", text, "look at the server's log, then repeat the run", invalid=True)
    sent = _sent_by_lost(case.summary)
    for at, worker in enumerate(case.facts.lost_workers):
        lost = [known.worker for known in case.facts.workers if known.lost is not None]
        share = sent.get(lost[at], "the rest was not sent") if at < len(lost) else "the rest was not sent"
        text = f"Worker {worker}; its records so far are stored, {share}."
        yield case.doubt("worker_lost", text, "repeat the run", invalid=True)


def _sent_by_lost(summary: Summary) -> dict[int, str]:
    """How much of its share each lost worker sent, over all traffic classes."""
    parts = [*summary.traffic.values()] or [summary]
    counts: dict[int, tuple[int, int]] = {}
    for worker in (worker for part in parts if part.delivery for worker in part.delivery.workers):
        if worker.status == "lost" and worker.planned is not None:
            planned, arrivals = counts.get(worker.worker, (0, 0))
            counts[worker.worker] = planned + worker.planned, arrivals + (worker.arrivals or 0)
    return {
        number: f"{arrivals:,} of its {planned:,} planned requests were sent"
        for number, (planned, arrivals) in counts.items()
    }


def failed_requests(case: JudgedRun) -> Iterator[Reason]:
    """Failed requests, unless the plan has a limit on the failure rate, which then judges them. Requests that we ended
    do not count."""
    share = case.part.failures.failure_rate
    if share is None or not share or not case.part.outcomes["ok"]:
        return
    text = as_sentence(failures_text(case.part))
    if share > FAILED_DOUBTFUL and not judges_failures(case.traffic):
        yield case.doubt(
            "failed_requests",
            f"{text} Latencies include only the answered requests.",
            "look at the server's log, or lower the load; a limit on failure_rate sets how many are acceptable",
            moves=lacking(case.part, share, "request_rate", "output_rate"),
            direction=TOO_LOW,
            invalid=share > FAILED_INVALID,
        )
    else:
        yield case.note("failed_requests", text)


def as_sentence(text: str) -> str:
    """The text with a full stop; a server's own message may already end in one."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def judges_failures(traffic: Traffic) -> bool:
    return any(limit.measure == "failure_rate" for limit in traffic.limits)


def failures_text(part: SummarySection) -> str:
    """`51% of requests failed (205 of 400): 205 × connection failed; first error: Connection refused`."""
    failures = part.failures
    failed, share = failures.failed or 0, failures.failure_rate or 1.0
    counts = {outcome: round(part_share / share * failed) for outcome, part_share in failures.by_outcome.items()}
    listed = ", ".join(
        f"{n:,} × {outcome_text(outcome)}" for outcome, n in sorted(counts.items(), key=lambda item: -item[1])
    )
    first = f"; first error: {failures.first}" if failures.first else ""
    of = f"{percent_text(share)} of requests failed ({failed:,} of {round(failed / share):,})"
    return f"{of}: {listed}{first}"


def nothing_answered(case: JudgedRun) -> Iterator[Reason]:
    summary = case.summary
    counts = summary.outcomes
    total = sum(counts.values())
    if counts["ok"] == 0:
        rest = (
            ", ".join(f"{n:,} × {outcome_text(outcome)}" for outcome, n in counts.items() if outcome != "ok")
            or "nothing was sent"
        )
        first = f"; most often: {summary.errors[0].message}" if summary.errors else ""
        text = as_sentence(f"None of {total} requests was answered ({rest}){first}")
        ours = (
            bool(counts.get("client")) and {name for name, n in counts.items() if n} <= CENSORED
        )  # `client_failed` has the remedy in that case
        remedy = None if ours else "check the server, its address and the model's name"
        yield case.doubt("nothing_answered", text, remedy, invalid=True)
    elif not any(summary.measures[name].count for name in ("ttft", "e2e")):
        text = "No request scheduled in the window was answered."
        yield case.doubt("empty_window", text, "make the run longer", invalid=True)


def unfinished(case: JudgedRun) -> Iterator[Reason]:
    """Answers that we stopped waiting for: every latency lacks the longest of them."""
    count, requests = case.part.outcomes.get("unfinished", 0), case.part.window.requests or 0
    share = count / requests if requests else 0.0
    if share > UNFINISHED and case.part.outcomes["ok"]:
        text = f"{count:,} of {requests:,} requests were unfinished when the run ended: the longest are missing from"
        moves = lacking(case.part, share, "request_rate", "output_rate")
        remedy = "raise stop.drain, or lower the load"
        yield case.doubt("unfinished", f"{text} the latencies.", remedy, moves=moves, direction=TOO_LOW)


def ended(case: JudgedRun) -> Iterator[Reason]:
    """A run that was interrupted, or that stopped early by itself."""
    length = duration_text(case.summary.window.length_s)
    if case.facts.interrupted:
        text = f"The run was interrupted; its window is the {length} before that."
        yield structs.replace(case.doubt("interrupted", text), signal=case.facts.interrupted_by)
    elif case.facts.gave_up is not None:
        text = f"The run ended early: {case.facts.gave_up}; its window is the {length} before that."
        yield case.doubt("ended_early", text, invalid=not all(map(judges_failures, case.plan.classes)))


def short_output(case: JudgedRun) -> Iterator[Reason]:
    if case.part.tokens is None or not _exact(case.traffic):
        return
    compared = case.part.tokens.output.requested_against_reported
    share = compared.fewer / compared.requests if compared.requests else 0.0
    if share <= NOTED:
        return
    missing = -(compared.difference or 0.0)
    text = f"{percent_text(share)} of answers are shorter than requested"
    text += f", output in all {change_text(compared.difference)}."
    remedy = "check that the server honours ignore_eos and max_tokens"
    if missing > TOLERATED:
        moves = lacking(case.part, missing, "e2e.mean", "output_rate")
        yield case.doubt("short_output", text, remedy, moves=moves, direction=TOO_LOW)
    else:
        yield case.note("short_output", text, remedy)


def _exact(traffic: Traffic) -> bool:
    """Whether answers are requested with their full length."""
    return traffic.sampling.whole_answers


def not_streamed(case: JudgedRun) -> Iterator[Reason]:
    """An endpoint, or a proxy in front of it, that answers all at once although a stream was requested. E2E and the
    rates hold; a limit on a streaming measure cannot be judged, which makes the run invalid."""
    share = case.part.tokens.in_one_piece if case.part.tokens else None
    if not case.plan.target.stream or share is None or share <= TOLERATED:
        return
    text = f"{percent_text(share)} of answers came in one piece although a stream was requested: TTFT is not a"
    text += " measurement here, it equals E2E, and TPOT and ITL have no values."
    remedy = (
        "check that the endpoint and every proxy before it honour stream, or turn it off: --set target.stream=false"
    )
    limited = any(limit.measure in OF_STREAMS for limit in case.traffic.limits)
    yield case.doubt("not_streamed", text, remedy, moves=shares_of(case.part, share, "ttft.mean"), invalid=limited)


def odd_finish(case: JudgedRun) -> Iterator[Reason]:
    if case.part.tokens is None:
        return
    reasons = {reason: n for reason, n in case.part.tokens.finish_reasons.items() if reason != "none"}
    exact = case.part.tokens.output.requested is not None and _exact(case.traffic)
    fine = ("length",) if exact else FINE_FINISHES
    odd = {reason: n for reason, n in reasons.items() if reason not in fine}
    share = sum(odd.values()) / sum(reasons.values()) if odd else 0.0
    if share <= NOTED:
        return
    frequent = sorted(odd.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{n} {reason!r}" for reason, n in frequent[:MOST_LISTED])
    if others := sum(n for _, n in frequent[MOST_LISTED:]):
        listed += f" and {others} others"
    expected = "'length', because full lengths were requested" if exact else "'length' or 'stop'"
    text = f"Answers ended with finish reason {listed}, expected {expected}."
    foreign = sum(n for reason, n in odd.items() if reason not in FINE_FINISHES) / sum(reasons.values())
    if foreign > TOLERATED:  # cut by a filter, an error or an abort: not a normal answer
        moves = shares_of(case.part, foreign, "e2e.mean", "output_rate")
        yield case.doubt("odd_finish", text, "look at the server's log", moves=moves, direction=EITHER)
    else:
        yield case.note("odd_finish", text)


def tokens_disagree(case: JudgedRun) -> Iterator[Reason]:
    if case.part.tokens is None:
        return
    output, given = case.part.tokens.output, case.part.tokens.input.requested_against_reported
    difference = output.reported_against_counted.difference or 0.0
    text = f"The stream had {change_text(difference)} tokens compared with the usage that the server reported"
    if abs(difference) > TOLERATED:
        moves = shares_of(case.part, abs(difference), "tpot.mean", "output_rate")
        remedy = "check the server's usage reports, and proxies that drop events"
        yield case.doubt("tokens_disagree", f"{text}.", remedy, moves=moves, direction=EITHER)
    elif abs(difference) > NOTED:
        yield case.note("tokens_disagree", f"{text}.")
    if given.difference is not None and abs(given.difference) > INPUT_DIFFERS:
        text = f"Prompts had {change_text(given.difference)} tokens compared with the requested length."
        yield case.note("input_differs", text, "send token ids, or compare runs by reported tokens")


def cached_by_accident(case: JudgedRun) -> Iterator[Reason]:
    """Synthetic prompts share nothing; within a session of several turns cache hits are expected."""
    share = case.part.tokens.cached.share if case.part.tokens else None
    if case.plan.warmup.tape or not case.traffic.workload.shares_nothing or case.part.sessions is not None:
        return
    if (share or 0.0) > CACHED_SHARE:
        text = (
            f"{percent_text(share)} of prompt tokens came from the prefix cache although prompts share no prefix: they"
        )
        moves = lacking(case.part, share or 0.0, "ttft.mean")
        remedy = "use another seed or more nonce tokens"
        yield case.doubt("cached", f"{text} were sent before.", remedy, moves=moves, direction=TOO_LOW)


def requested_hit_rate(traffic: Traffic) -> float | None:
    """The share of prompt tokens that should come from the cache, if the plan sets it."""
    prefix = getattr(traffic.workload, "prefix", None)
    return None if prefix is None else prefix.hit_rate


def hit_rate_off(case: JudgedRun) -> Iterator[Reason]:
    """A hit rate that differs from the requested one."""
    cached: CachedTokens | None = case.part.tokens.cached if case.part.tokens else None
    requested = requested_hit_rate(case.traffic)
    if cached is None or requested is None:
        return
    if cached.share is None:
        text = f"A cache hit rate of {percent_text(requested)} was requested, but the server reports no cached tokens."
        yield case.doubt(
            "hit_rate_off", text, "start the server with cached-token reporting (vLLM: --enable-prompt-tokens-details)"
        )
    elif abs(cached.share - requested) > OFF_BY:
        text = (
            f"{percent_text(cached.share)} of prompt tokens came from the prefix cache, {percent_text(requested)} were"
        )
        moves = shares_of(case.part, abs(cached.share - requested), "ttft.mean")
        remedy = _hit_rate_remedy(requested, cached.share)
        yield case.doubt("hit_rate_off", f"{text} requested.", remedy, moves=moves, direction=EITHER, invalid=True)


def _hit_rate_remedy(requested: float, share: float) -> str:
    if share > requested:
        return "prompts were in the cache before: use another seed, more nonce tokens, or a fresh server"
    return "check that prefix caching is on and the cache holds all groups; use fewer or shorter groups"


def not_conserved(case: JudgedRun) -> Iterator[Reason]:
    """The server's counters against our records, if they were scraped: both count the same requests and tokens."""
    server = case.summary.server
    if server is None:
        return
    for finding in findings(server):
        if finding.code == "ttft_disagrees" and _client_is_exact(case):
            yield case.note(finding.code, finding.text)
        else:
            moves = shares_of(case.part, finding.share, finding.key) if finding.key else []
            yield case.doubt(finding.code, finding.text, finding.remedy, moves=moves, direction=EITHER)


def _client_is_exact(case: JudgedRun) -> bool:
    """Whether the difference between the server's TTFT and ours is known not to be the client's own error."""
    ttft = case.summary.server.conservation.ttft if case.summary.server and case.summary.server.conservation else None
    own = case.summary.instrument
    error_s = own.ttft_error_p50 if own is not None else None
    if ttft is None or ttft.wire <= 0:
        return False
    late = case.part.delivery.lateness.p50 if case.part.delivery else None
    ours_s = (error_s or 0.0) + (late or 0.0)
    return ours_s < TOLERATED * ttft.client or (case.facts.stamps == "kernel" and error_s is None)


def unreadable(case: JudgedRun) -> Iterator[Reason]:
    if case.facts.unreadable:
        entries = "1 entry" if case.facts.unreadable == 1 else f"{case.facts.unreadable} entries"
        yield case.doubt(
            "unreadable_entries", f"The run's logs are damaged: {entries} could not be read and are missing."
        )
