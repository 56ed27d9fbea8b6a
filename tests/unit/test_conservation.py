"""Client and server side by side: they agree, or the verdict says in which number they do not, and why."""

from dataclasses import replace

import pytest
from made_runs import TOKENS, made_run
from msgspec import structs

from inferometer.measure.facts import Facts
from inferometer.measure.observed import observed
from inferometer.measure.values import quantities
from inferometer.measure.verdict import verdict
from inferometer.plan.model import Plan
from inferometer.record.log import Note
from inferometer.record.sample import Sample, Samples
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


def judged(samples, notes, run, **changed):
    """The run with what was sampled beside it, and its verdict."""
    plan = Plan.model_validate(run.plan)
    start_at = int(run.records.scheduled_at.min())
    seen = observed(Samples.of(samples), notes, run.records, plan, run.summary, start_at)
    summary = structs.replace(seen, **changed)
    return replace(run, summary=summary, verdict=verdict(summary, Facts(), plan))


def reasons(run):
    return {reason.code: reason.text for reason in run.verdict.doubts}


@pytest.fixture(scope="module")
def run():
    return made_run(REQUESTS)


def test_nothing_is_compared_where_the_first_reading_came_late(run):
    """An endpoint that was too slow to be read before the load: what it had counted by then is not known."""
    samples, notes = told(run, requests=REQUESTS // 2)
    late = [Sample(each.source, each.name, each.at or 1 << 60, each.value) for each in samples]
    found = judged(late, notes, run)
    assert not found.summary.server.complete and found.summary.server.conservation is None
    assert "not_conserved" in reasons(judged(samples, notes, run)) and "not_conserved" not in reasons(found)


def test_they_agree(run):
    found = judged(*told(run), run)
    conserved = found.summary.server.conservation
    assert conserved.requests.agree and conserved.prompt_tokens.agree and conserved.generation_tokens.agree
    assert conserved.ttft.agree and conserved.ttft.wire == pytest.approx(0, abs=1e-9)
    assert not {"not_conserved", "ttft_disagrees", "target_restarted"} & set(reasons(found))


def test_another_client_shows(run):
    text = reasons(judged(*told(run, requests=150, prompt=150 * 256, output=150 * TOKENS), run))["not_conserved"]
    assert "150 requests and 38,400 prompt tokens and 2,400 generated tokens" in text
    assert "we have 100 and 25,600 and 1,600: somebody else likely used it" in text


def test_less_than_ours_is_a_replica_that_was_not_asked_or_ray(run):
    fewer = {"requests": 50, "prompt": 50 * 256, "output": 50 * TOKENS}
    assert "not scraped" in reasons(judged(*told(run, **fewer), run))["not_conserved"]
    assert (
        "metrics_report_interval_ms" in reasons(judged(*told(run, **fewer, engine="vLLM on Ray"), run))["not_conserved"]
    )


def test_a_small_difference_is_tolerated(run):
    assert "not_conserved" not in reasons(judged(*told(run, prompt=REQUESTS * 256 + 200), run))


@pytest.mark.parametrize(("offset_s", "agree"), [(-0.0005, True), (0.0045, True), (0.02, False), (-0.03, False)])
def test_the_wire_may_have_its_share_of_ttft(run, offset_s, agree):
    mean = run.summary.measures["ttft"]["mean"]
    found = judged(*told(run, ttft=mean - offset_s), run)
    assert ("ttft_disagrees" not in reasons(found)) == agree
    if not agree:
        words = "lost between" if offset_s > 0 else "before it is made"
        assert words in reasons(found)["ttft_disagrees"]


def test_requests_that_ended_badly_may_have_been_counted_or_not():
    run = made_run(REQUESTS, failed=0.1)
    for counted in (90, 95, 100):
        samples, notes = told(run, counted, 90 * 256, 90 * TOKENS)
        assert "not_conserved" not in reasons(judged(samples, notes, run)), counted
    assert "not_conserved" in reasons(judged(*told(run, 110, 90 * 256, 90 * TOKENS), run))


def test_what_was_sent_to_prime_caches_counts(run):
    samples, notes = told(run, 110, REQUESTS * 256 + 5000, REQUESTS * TOKENS + 10)
    primed = Note("primed", 1, {"requests": 10, "failed": 0, "tokens": 5000})
    found = judged(samples, [*notes, primed], run)
    assert "not_conserved" not in reasons(found)
    assert found.summary.server.conservation.ttft is None  # theirs has the primes in it
    assert "not_conserved" in reasons(judged(samples, notes, run))


def test_aborted_requests_are_no_answers(run):
    samples, notes = told(run)
    samples += [Sample(URL, "requests_ok", at, 50.0 * (at > 0), {"finished_reason": "abort"}) for at in (0, 1 << 61)]
    found = judged(samples, notes, run)
    assert "not_conserved" not in reasons(found)
    assert found.summary.server.finished == {"abort": 50}


def test_a_restart_is_told_instead_of_its_consequences(run):
    samples, notes = told(run)
    samples += [Sample(URL, name, 1 << 62, 3.0) for name in ("prompt_tokens", "generation_tokens")]
    found = reasons(judged(samples, notes, run))
    assert "began anew" in found["target_restarted"] and "not_conserved" not in found


def test_the_servers_numbers_are_quantities_of_the_run(run):
    found = quantities(judged(*told(run, ttft=0.02), run).summary)
    assert found["server_ttft"].value == pytest.approx(0.02) and found["server_ttft"].direction == "lower"


def test_without_samples_nothing_is_claimed(run):
    found = judged([], [], run)
    assert found.summary.server is None and found.summary.gpu is None and found.summary.host is None
    assert reasons(found).keys() == {reason.code for reason in run.verdict.doubts}


def test_stolen_cores_are_named_where_they_did_harm(run):
    lateness = Lateness(p50=0.001, p99=0.5, max=1.0)
    late = {"delivery": structs.replace(run.summary.delivery, lateness=lateness)}
    stolen = {"host": HostSummary(cpu_share=0.5, steal_share=0.041)}
    found = reasons(judged([], [], run, **late, **stolen))
    assert "This machine's hypervisor took the cores away for 4.1% of the time" in found["stolen_cores"]
    assert "more workers are no help" in found["stolen_cores"]
    assert "use more workers" not in found["late_sends"]
    assert "use more workers" in reasons(judged([], [], run, **late))["late_sends"]
    assert "stolen_cores" not in reasons(judged([], [], run, **stolen))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_a_person_sees(run, width, capsys):
    samples, notes = told(run)
    samples += [Sample("gpu:0", name, at, value) for at in (0, 1 << 61) for name, value in GPU.items()]
    notes += [Note("observed", 0, {"source": "gpu", "wanted": True, "problems": [{"text": "went away", "count": 2}]})]
    print_summary(judged(samples, notes, run), console(width=width))
    shown = capsys.readouterr().out
    assert "100 requests" in shown and "metrics of vLLM" in shown
    assert "gpu: went away (2 times)" in shown
    assert "GPU" in shown and all(len(line) <= width for line in shown.splitlines() if "inferometer" not in line)


GPU = {"power_w": 300.0, "utilization_share": 0.93, "memory_used_bytes": 2.0**36, "memory_total_bytes": 2.0**37}


def test_a_run_that_was_killed_is_not_held_against_the_server(run):
    samples, notes = told(run, requests=150)
    assert "not_conserved" in reasons(judged(samples, notes, run))
    assert "not_conserved" not in reasons(judged(samples, [*notes, Note("start", 1)], run))
    early = [Sample(URL, each.name, min(each.at, 1), each.value) for each in samples]  # nothing after the load
    assert "not_conserved" not in reasons(judged(early, notes, run))
