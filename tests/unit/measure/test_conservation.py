"""Client and server counts: they agree, or the verdict names the number that differs, and why."""

from dataclasses import replace
from typing import Any

import pytest
from made_runs import TOKENS, made_run
from msgspec import structs

from inferometer.measure.inputs import Facts
from inferometer.measure.observed import observed
from inferometer.measure.summary import summarize
from inferometer.measure.values import quantities
from inferometer.measure.verdict import verdict
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.log import Note
from inferometer.record.record import Sample, Samples
from inferometer.record.run import Run
from inferometer.record.summary import HostSummary, Lateness
from inferometer.show.console import console
from inferometer.show.summary import print_summary

URL = "http://localhost:8000/metrics"
REQUESTS = 100


def told(run, requests=REQUESTS, prompt=REQUESTS * 256, output=REQUESTS * TOKENS, ttft=None, engine="vLLM"):
    """What a server that counted so much would have been scraped for, before and after."""
    first_at, last_at = 0, 1 << 61
    mean = run.summary.measures["ttft"]["mean"] if ttft is None else ttft
    grown = {
        "requests_ok": requests,
        "prompt_tokens": prompt,
        "generation_tokens": output,
        "ttft_count": requests,
        "ttft_sum": mean * requests,
    }
    samples = [
        Sample(URL, name, at, 1000.0 + value * (at > 0)) for name, value in grown.items() for at in (first_at, last_at)
    ]
    return samples, [Note("found", 0, {"source": URL, "engine": engine})]


def judged(run: Run, samples: list[Sample], notes: list[Note], **changed: Any) -> Run:
    """The run with what was sampled beside it, and its verdict."""
    plan = Plan.model_validate(run.plan)
    start_at = int(run.records.scheduled_at.min())
    seen = observed(Samples.of(samples), notes, run.records, plan, run.summary, start_at)
    summary = structs.replace(seen, **changed)
    return replace(run, summary=summary, verdict=verdict(summary, Facts(), plan))


def reasons(run):
    return {reason.code: reason.sentence for reason in run.verdict.doubts}


@pytest.fixture(scope="module")
def run() -> Run:
    return made_run(REQUESTS)


def test_nothing_is_compared_where_the_first_reading_came_late(run: Run) -> None:
    """An endpoint that was too slow to be read before the load: what it had counted by then is not known."""
    samples, notes = told(run, requests=REQUESTS // 2)
    late = [Sample(each.source, each.name, each.at or 1 << 60, each.value) for each in samples]
    found = judged(run, late, notes)
    assert not found.summary.server.complete and found.summary.server.conservation is None
    assert "not_conserved" in reasons(judged(run, samples, notes)) and "not_conserved" not in reasons(found)


def test_they_agree(run: Run) -> None:
    found = judged(run, *told(run))
    conserved = found.summary.server.conservation
    assert conserved.requests.agree and conserved.prompt_tokens.agree and conserved.generation_tokens.agree
    assert conserved.ttft.agree and conserved.ttft.wire == pytest.approx(0, abs=1e-9)
    assert not {"not_conserved", "ttft_disagrees", "target_restarted"} & set(reasons(found))


def test_another_client_shows(run: Run) -> None:
    text = reasons(judged(run, *told(run, requests=150, prompt=150 * 256, output=150 * TOKENS)))["not_conserved"]
    assert "150 requests and 38,400 prompt tokens and 2,400 generated tokens" in text
    assert "the client 100 and 25,600 and 1,600: other clients probably used the server" in text


def test_less_than_ours_is_a_replica_that_was_not_asked_or_ray(run: Run) -> None:
    fewer = {"requests": 50, "prompt": 50 * 256, "output": 50 * TOKENS}
    assert "not scraped" in reasons(judged(run, *told(run, **fewer)))["not_conserved"]
    assert (
        "metrics_report_interval_ms" in reasons(judged(run, *told(run, **fewer, engine="vLLM on Ray")))["not_conserved"]
    )


def test_a_small_difference_is_tolerated(run: Run) -> None:
    assert "not_conserved" not in reasons(judged(run, *told(run, prompt=REQUESTS * 256 + 200)))


@pytest.mark.parametrize(("offset_s", "agree"), [(-0.0005, True), (0.0045, True), (0.02, False), (-0.03, False)])
def test_the_wire_may_have_its_share_of_ttft(run: Run, offset_s: float, agree: bool) -> None:
    mean = run.summary.measures["ttft"]["mean"]
    found = judged(run, *told(run, ttft=mean - offset_s))
    noted = {reason.code: reason.text for reason in found.verdict.notes}
    assert ("ttft_disagrees" not in reasons(found) | noted) == agree
    if not agree and offset_s > 0:  # the client's own error is small: what is lost lies between
        assert "spent between" in noted["ttft_disagrees"]
    elif not agree:
        assert "which is not possible" in reasons(found)["ttft_disagrees"]


def test_requests_that_ended_badly_may_have_been_counted_or_not() -> None:
    run = made_run(REQUESTS, failed=0.1)
    for counted in (90, 95, 100):
        samples, notes = told(run, counted, 90 * 256, 90 * TOKENS)
        assert "not_conserved" not in reasons(judged(run, samples, notes)), counted
    assert "not_conserved" in reasons(judged(run, *told(run, 110, 90 * 256, 90 * TOKENS)))


@pytest.mark.parametrize("usage", [None, 2])
def test_requests_that_we_cancelled_are_not_somebody_elses(usage: int | None) -> None:
    """The server counts 20 tokens more for every prompt than were requested, and those of cancelled requests too. It
    makes more tokens than the running usage had until we left."""
    whole = made_run(REQUESTS)
    rows = [whole.records.record(number) for number in range(REQUESTS)]
    for number, row in enumerate(rows):
        row.requested_input = 236
        if number % 2:
            row.outcome, row.finish_reason = "cancelled", None
            row.input_tokens, row.output_tokens = usage and row.input_tokens, usage
    records = Records.of(rows)
    plan = Plan.model_validate(whole.plan)
    summary = summarize(records, plan, Facts(interrupted=True))
    cancelled = replace(whole, summary=summary, read_records=lambda: records)
    found = judged(cancelled, *told(whole))
    compared = found.summary.server.conservation
    assert (compared.requests.client, compared.requests.unsure, compared.requests.server) == (50, 50, 100)
    assert compared.prompt_tokens.unsure == pytest.approx(50 * 256)
    assert "not_conserved" not in reasons(found)
    more = told(whole, 120, 120 * 256, 120 * TOKENS)
    assert "other clients" in reasons(judged(cancelled, *more))["not_conserved"]


def test_what_was_sent_to_prime_caches_counts(run: Run) -> None:
    samples, notes = told(run, 110, REQUESTS * 256 + 5000, REQUESTS * TOKENS + 10)
    primed = Note("primed", 1, {"requests": 10, "failed": 0, "tokens": 5000})
    found = judged(run, samples, [*notes, primed])
    assert "not_conserved" not in reasons(found)
    assert found.summary.server.conservation.ttft is None  # theirs has the primes in it
    assert "not_conserved" in reasons(judged(run, samples, notes))


def test_aborted_requests_are_no_answers(run: Run) -> None:
    samples, notes = told(run)
    samples += [Sample(URL, "requests_ok", at, 50.0 * (at > 0), {"finished_reason": "abort"}) for at in (0, 1 << 61)]
    found = judged(run, samples, notes)
    assert "not_conserved" not in reasons(found)
    assert found.summary.server.finished == {"abort": 50}


def test_a_restart_is_told_instead_of_its_consequences(run: Run) -> None:
    samples, notes = told(run)
    samples += [Sample(URL, name, 1 << 62, 3.0) for name in ("prompt_tokens", "generation_tokens")]
    found = reasons(judged(run, samples, notes))
    assert "reset its counters" in found["target_restarted"] and "not_conserved" not in found


def test_the_servers_numbers_are_quantities_of_the_run(run: Run) -> None:
    found = quantities(judged(run, *told(run, ttft=0.02)).summary)
    assert found["server_ttft"].value == pytest.approx(0.02) and found["server_ttft"].direction == "lower"


def test_without_samples_nothing_is_claimed(run: Run) -> None:
    found = judged(run, [], [])
    assert found.summary.server is None and found.summary.gpu is None and found.summary.host is None
    assert reasons(found).keys() == {reason.code for reason in run.verdict.doubts}


def test_stolen_cores_are_named_where_they_did_harm(run: Run) -> None:
    moves = {"ttft_scheduled.mean": 0.2, "ttft_scheduled.p50": 0.2}
    lateness = Lateness(p50=0.001, p99=0.5, max=1.0, moves=moves)
    late = {"delivery": structs.replace(run.summary.delivery, lateness=lateness)}
    stolen = {"host": HostSummary(cpu_share=0.5, steal_share=0.041)}

    def remedy(**parts):
        verdict = judged(run, [], [], **parts).verdict
        return next((reason.remedy for reason in verdict.doubts if reason.code == "late_sends"), None)

    both = remedy(**late, **stolen)
    assert "the hypervisor took 4.1% of this machine's CPU time: use a machine with free cores" in both
    assert "hypervisor" not in remedy(**late)
    assert remedy(**stolen) is None

    def noted(**parts):
        return [note.text for note in judged(run, [], [], **parts).verdict.notes if note.code == "stolen_cores"]

    [text] = noted(**stolen)
    assert text.endswith("it had no visible effect on the numbers.")
    assert noted(**late, **stolen) == [], "the doubt blames them"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_a_person_sees(run: Run, width: int, capsys):
    samples, notes = told(run)
    samples += [Sample("gpu:0", name, at, value) for at in (0, 1 << 61) for name, value in GPU.items()]
    notes += [Note("observed", 0, {"source": "gpu", "wanted": True, "problems": [{"text": "went away", "count": 2}]})]
    print_summary(judged(run, samples, notes), console(width=width), more=True)
    shown = capsys.readouterr().out
    assert "100 requests" in shown and "metrics of vLLM" in shown
    assert "gpu: went away (2 times)" in shown
    assert "GPU" in shown and all(len(line) <= width for line in shown.splitlines() if "inferometer" not in line)


GPU = {"power_w": 300.0, "utilization_share": 0.93, "memory_used_bytes": 2.0**36, "memory_total_bytes": 2.0**37}


def test_a_run_that_was_killed_is_not_held_against_the_server(run: Run) -> None:
    samples, notes = told(run, requests=150)
    assert "not_conserved" in reasons(judged(run, samples, notes))
    assert "not_conserved" not in reasons(judged(run, samples, [*notes, Note("start", 1)]))
    early = [Sample(URL, each.name, min(each.at, 1), each.value) for each in samples]  # nothing after the load
    assert "not_conserved" not in reasons(judged(run, early, notes))
