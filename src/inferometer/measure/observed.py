"""What was sampled during the load, as parts of a run's summary, and whether client and server agree on the requests
and tokens they exchanged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from inferometer.measure.hardware import gpu_summary, gpu_values, host_summary
from inferometer.measure.inputs import Answers
from inferometer.measure.registry import request_values
from inferometer.measure.server import busy_span, server_summary, server_values, source_problems
from inferometer.plan.model import Plan
from inferometer.record.columns import Floats, Ints, Mask, Records, known
from inferometer.record.log import Note
from inferometer.record.record import Samples
from inferometer.record.summary import (
    Conservation,
    CountAgreement,
    ObserverSummary,
    ServerSummary,
    Summary,
    TtftAgreement,
)
from inferometer.vocabulary import NANOSECONDS, duration_text

# -- conservation ----------------------------------------------------------------------------------------------------

TOLERATED = 0.01  # of the client's count
WIRE_S, WIRE_SHARE = 0.005, 0.10  # by which a client may see a first token later than the server reports
LEAST_ERROR_S = 0.001  # by which a client may see it earlier, which is impossible in truth
NAMES = {"requests": "requests", "prompt_tokens": "prompt tokens", "generation_tokens": "generated tokens"}


def conservation(
    answers: Answers, notes: Sequence[Note], server: ServerSummary, plan: Plan, error_s: float | None
) -> Conservation:
    """Each count of both sides, and whether they agree (None: cannot be compared)."""
    primed = _primed(notes)
    requests = _compared(*_requests(answers, primed), _server_count(server, "requests_ok"))
    comparable = plan.target.stream and not primed["requests"] and requests.agree is not False
    records = answers.records
    return Conservation(
        requests=requests,
        prompt_tokens=_compared(
            *_tokens(answers, records.input_tokens, records.requested_input, primed["tokens"]),
            _server_count(server, "prompt_tokens", "input_length"),
        ),
        generation_tokens=_compared(
            *_tokens(answers, records.output_tokens, records.requested_output, primed["requests"], goes_on=True),
            _server_count(server, "generation_tokens", "output_length"),
        ),
        ttft=_first_tokens(answers, server, error_s) if comparable else None,
    )


def _primed(notes: Sequence[Note]) -> dict[str, int]:
    """What was sent before the load started; each such request generates one token."""
    facts = [note.known for note in notes if note.what == "primed"]
    sent, failed, tokens = (sum(entry.count(name) or 0 for entry in facts) for name in ("requests", "failed", "tokens"))
    return {"requests": sent - failed, "failed": failed, "tokens": tokens}


def _server_count(server: ServerSummary, counter: str, histogram: str | None = None) -> float | None:
    """The growth of a counter, or the sum over a histogram if there is no counter."""
    counted = server.counters.get(counter)
    if counted is not None:
        return counted.grown
    observed = server.histograms.get(histogram or "")
    return None if observed is None else observed.sum


CountPair = tuple[float | None, float]  # what the client knows of, and what it may have missed


def _open(answers: Answers) -> Mask:
    """Requests sent and not answered in full: the server may or may not have counted them."""
    unanswered: Mask = ~answers.ok & known(answers.records.sent_at)
    return unanswered


def _requests(answers: Answers, primed: Mapping[str, int]) -> CountPair:
    return float(answers.ok.sum() + primed["requests"]), float(_open(answers).sum() + primed["failed"])


def _tokens(answers: Answers, reported: Ints, requested: Ints, primed: int, goes_on: bool = False) -> CountPair:
    """Only if every answer reported its usage: estimates cannot disagree. With `goes_on` the usage of an abandoned
    answer is what had arrived by then: a server generates more tokens until it notices."""
    ok, unanswered = answers.ok, _open(answers)
    if not known(reported[ok]).all() or (unanswered.any() and not ok.any()):
        return None, 0.0
    most = _at_most(reported, requested, ok)
    unsure = np.where(known(reported), np.maximum(reported, most) if goes_on else reported, most)[unanswered]
    return float(reported[ok].sum() + primed), float(unsure.sum())


def _at_most(reported: Ints, requested: Ints, ok: Mask) -> Floats:
    """Tokens that the server may have counted for an unanswered request: the requested ones, plus what a template or
    another tokenizer adds; if none were requested, the largest number that an answer reported."""
    both = ok & known(requested)
    total = float(requested[both].sum())
    ratio = max(1.0, float(reported[both].sum()) / total) if total else 1.0
    largest = float(reported[ok].max(initial=0))
    return np.where(known(requested), requested * ratio, largest)


def _compared(client: float | None, unsure: float, server: float | None) -> CountAgreement:
    """They agree if the server counted as much as the client, or more by at most the uncertain amount."""
    comparable = client is not None and server is not None and not (client == 0 and server == 0)
    difference: float | None = None
    agree: bool | None = None
    if comparable and client is not None and server is not None:
        slack = TOLERATED * client
        agree = client - slack <= server <= client + unsure + slack
        difference = (server - client) / client if client else None
    return CountAgreement(client=client, unsure=unsure, server=server, difference=difference, agree=agree)


def _first_tokens(answers: Answers, server: ServerSummary, error_s: float | None) -> TtftAgreement | None:
    """The means over the whole run. The network's share is how much longer the client waited than the server
    reports."""
    reported = server.histograms.get("ttft")
    values = request_values("ttft", answers)  # also of answers that we cancelled: the server counts every first token
    values = values[~np.isnan(values)]
    if reported is None or reported.mean is None or not len(values):
        return None
    client, mean = float(values.mean()), reported.mean
    allowed = max(WIRE_S, WIRE_SHARE * mean)
    least = max(LEAST_ERROR_S, error_s or 0.0)
    share = client - mean
    agree = -least <= share <= allowed
    return TtftAgreement(client=client, server=mean, wire=share, allowed=allowed, agree=agree)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A disagreement between client and server, with the likely cause, and the share by which it may shift a number."""

    code: str
    text: str
    remedy: str
    key: str | None = None  # the number
    share: float = 0.0


def findings(server: ServerSummary) -> Iterator[Disagreement]:
    """Every disagreement."""
    if server.restarted:
        text = "The target restarted during the run and reset its counters."
        yield Disagreement("target_restarted", text, "look at the server's log, then repeat the run")
    compared = server.conservation
    if compared is None:
        return
    counts = {"requests": compared.requests, "prompt_tokens": compared.prompt_tokens}
    counts["generation_tokens"] = compared.generation_tokens
    wrong = {name: count for name, count in counts.items() if count.agree is False}
    if wrong and not server.restarted:
        listed = " and ".join(f"{count.server:,.0f} {NAMES[name]}" for name, count in wrong.items())
        ours = " and ".join(_ours(count) for count in wrong.values())
        cause, remedy = _cause(wrong, server)
        text = f"The server counted {listed}, the client {ours}: {cause}."
        others = min(count.difference or 0.0 for count in wrong.values())  # what the server did for other clients
        yield Disagreement("not_conserved", text, remedy, "request_rate", max(others, 0.0))
    if compared.ttft and not compared.ttft.agree:
        share = abs(compared.ttft.wire) / compared.ttft.client if compared.ttft.client else 0.0
        remedy = "compare with a run on the server's own machine"
        yield Disagreement("ttft_disagrees", _ttft_text(compared.ttft), remedy, "ttft.mean", share)


def _ours(count: CountAgreement) -> str:
    client = count.client or 0.0
    extra = f" to {client + count.unsure:,.0f}" if count.unsure else ""
    return f"{client:,.0f}{extra}"


def _cause(wrong: Mapping[str, CountAgreement], server: ServerSummary) -> tuple[str, str]:
    """The likely cause, and what to do about it."""
    if all((count.server or 0.0) > (count.client or 0.0) for count in wrong.values()):
        return "other clients probably used the server at the same time and slowed it down", "keep other clients away"
    if any("Ray" in (source.engine or "") for source in server.sources):
        return "Ray exports its counters only every 10 s", "start Ray with metrics_report_interval_ms=100"
    return "some replicas were probably not scraped", "list every replica in observe.metrics"


def _ttft_text(ttft: TtftAgreement) -> str:
    client, server = duration_text(ttft.client), duration_text(ttft.server)
    if ttft.wire > 0:
        text = (
            f"Mean TTFT is {client} at the client and {server} at the server: {duration_text(ttft.wire)} spent between"
        )
        return f"{text} them: in the network, a proxy, the server's front end, or waiting for a CPU core."
    return f"Mean TTFT is {client} at the client and {server} at the server, which is not possible."


# -- observed --------------------------------------------------------------------------------------------------------


def observed(
    samples: Samples, notes: Sequence[Note], records: Records, plan: Plan, summary: Summary, start_at: int
) -> Summary:
    """The summary with the sampled data; None for what was not sampled."""
    edges = [start_at + round((edge or 0.0) * NANOSECONDS) for edge in (summary.window.start_s, summary.window.end_s)]
    end_at = start_at + round((summary.window.run_s or 0.0) * NANOSECONDS)
    gpu = gpu_summary(samples, edges[0], edges[1])
    server = server_summary(samples, notes, start_at, end_at)
    if server is not None and server.complete and _all_ended(notes):
        error_s = summary.instrument.ttft_error_p99 if summary.instrument else None
        server = replace(server, conservation=conservation(Answers.of(records), notes, server, plan, error_s))
    values = dict(summary.values)
    values |= server_values(server) if server is not None else {}
    values |= gpu_values(gpu, *_work(summary)) if gpu is not None else {}
    return replace(
        summary,
        server=server,
        gpu=gpu,
        host=host_summary(samples, start_at, end_at),
        observer=_observer(notes),
        values=values,
    )


def with_observations(samples: Samples, notes: Sequence[Note], summary: Summary, life: tuple[int, int]) -> Summary:
    """A summary of another tool's load with what was sampled meanwhile. The start and end of that load come from the
    servers' counters; if none were scraped, from the lifetime of the process that sent it. Tokens and requests are the
    server's counts."""
    start_at, end_at = busy_span(samples) or life
    gpu, server = gpu_summary(samples, start_at, end_at), server_summary(samples, notes, *life)
    values = dict(summary.values)
    values |= server_values(server) if server is not None else {}
    if gpu is not None:
        counts = [_server_count(server, name) if server else None for name in ("generation_tokens", "requests_ok")]
        values |= gpu_values(gpu, *counts)
    host = host_summary(samples, start_at, end_at)
    return replace(summary, server=server, gpu=gpu, host=host, observer=_observer(notes), values=values)


def _all_ended(notes: Sequence[Note]) -> bool:
    """Whether every worker ended normally: the requests in flight of a killed worker have no records."""
    kinds = [note.what for note in notes]
    return kinds.count("start") == kinds.count("ended")


def _work(summary: Summary) -> tuple[float | None, float | None]:
    """Output tokens and requests that arrived in the window."""
    length_s = summary.window.length_s
    rates = (summary.rates[name].window for name in ("output_rate", "request_rate"))
    tokens, requests = (None if rate is None or length_s is None else rate * length_s for rate in rates)
    return tokens, requests


def _observer(notes: Sequence[Note]) -> ObserverSummary | None:
    """The resources the samplers used, and the errors of samplers other than those of servers."""
    ends = [note.known for note in notes if note.what == "observer"]
    failing = [note.known for note in notes if note.what == "observed" and note.facts.get("problems")]
    if not ends and not failing:
        return None
    problems = [problem for facts in failing for problem in source_problems(facts, facts.text("source"))]
    return ObserverSummary(cpu_s=sum(end.number("cpu_s") or 0.0 for end in ends) if ends else None, problems=problems)
