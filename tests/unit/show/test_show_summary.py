"""The terminal summary: its required content, for any run and any width of the terminal."""

import io
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from made_runs import made_run
from msgspec import structs

from inferometer.plan.stored import StoredPlan
from inferometer.record.encoding import summary_document, summary_from
from inferometer.record.run import Run
from inferometer.show.console import console
from inferometer.show.summary import print_summary


def shown(run: Run, width: int = 80, **more: bool | int) -> str:
    file = io.StringIO()
    print_summary(run, console(file, width), **more)  # type: ignore[arg-type]
    return file.getvalue()


MANY_LIMITS = [f"{name} {stat} < 9s" for name in ("ttft", "tpot", "itl", "e2e") for stat in ("p50", "p90", "p99")]
MANY_STAGES = {"stages": [{"rate": 10, "duration": 3} for _ in range(12)]}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"failed": 0.02},
        {"limits": ["ttft p99 < 1s", "failure_rate < 1%"]},
        {"failed": 0.5, "limits": [*MANY_LIMITS, "ttft p90 < 1ms"], "error": 20 * "a long message of the server "},
        {"load": MANY_STAGES, "limits": MANY_LIMITS, "stop": {}, "failed": 0.04},
        {"failed": 0.5, "state": "failed", "lost": "http://localhost:8000 refused the connection after the load"},
    ],
)
def test_the_first_glance_fits_a_screen(options: dict[str, Any]) -> None:
    """24 lines of 80 columns: the verdict first, then who and what in one line, the table, throughput."""
    lines = shown(made_run(**options), 80).splitlines()
    assert len(lines) <= 24, "\n".join(lines)
    assert any(line.startswith("m · 256 in, 64 out · ") for line in lines)
    text = "\n".join(lines)
    assert "request throughput" in text and "output token throughput" in text and "req/s" in text


def test_what_does_not_fit_a_screen_is_behind_more() -> None:
    run = made_run(limits=[*MANY_LIMITS, "ttft p90 < 1ms"])
    glance, everything = shown(run), shown(run, more=True)
    assert "12 of 13 limits are met" in glance and "✗ ttft p90 < 1ms: not met\n" in glance
    assert "e2e p50 < 9s: met" in everything


def test_an_invalid_run_says_in_its_first_line_what_to_do() -> None:
    first = shown(made_run(failed=0.5), 100).splitlines()[0]
    assert first.startswith("INVALID  What to do: look at the server")


def test_a_lost_server_says_what_to_do_and_what_failed() -> None:
    """Also where the reason that names the failures has no room: their share, outcome and first message lead."""
    run = made_run(failed=0.5, state="failed", lost="http://localhost:8000 refused the connection after the load")
    lines = shown(run).splitlines()
    head = " ".join(lines[:4])
    assert head.startswith("INVALID  failed: ended by an error, and stored. What to do: look at the server's log")
    assert "50% of requests failed (250 of 500): 250 × HTTP 429; first error: 429 Too Many Requests" in head
    assert lines.index(next(line for line in lines if "was lost" in line)) <= 4
    assert sum("HTTP 429" in line for line in lines) == 1, "what failed needs its lines once"


def test_a_message_of_the_server_that_ends_in_a_full_stop_gets_no_second_one() -> None:
    assert ". Latencies" in shown(made_run(failed=0.5, error="the engine is dead.")).replace("\n  ", " ")
    assert ".. " not in shown(made_run(failed=0.5, error="the engine is dead."))


def test_says_verdict_plan_numbers_and_place() -> None:
    text = shown(made_run(), more=True)
    assert text.startswith("VALID")
    assert "http://localhost:8000, model m, completions, streaming" in text
    assert "10 req/s Poisson for 500 requests (open loop)" in text
    rows = [line.split("  ")[0].strip() for line in text.splitlines()]
    assert rows.index("TTFT, scheduled") < rows.index("TTFT") < rows.index("TPOT")
    assert "inferometer rerun 20261115-031207-plum-otter" in text


def test_a_plan_that_another_version_wrote_is_told_word_by_word() -> None:
    run = made_run()
    run = replace(run, plan=StoredPlan({**run.plan, "quantum": {"qubits": 7}}))
    text = shown(run, more=True)
    assert text.startswith("VALID") and "qubits 7" in text and "TTFT, scheduled" in text


def test_a_run_judged_by_older_rules_says_how_to_see_the_present_ones() -> None:
    run = made_run()
    again = f"inferometer store remeasure {run.id}"
    older = replace(run, by_older_rules=True)
    assert again in shown(older) and again not in shown(run)
    assert again not in shown(replace(older, read_records=None)), "nothing to measure again"


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_fits_the_width(width: int) -> None:
    """All but the last lines, which are commands and a path to be copied."""
    text = shown(made_run(failed=0.1, limits=["ttft p99 < 1s"]), width, measures=True, slices=True, slow=3)
    assert max(len(line) for line in text.splitlines()[:-3]) <= width


def test_no_markup_is_interpreted() -> None:
    name = "[red]llama[/red] :smile:"
    run = made_run(failed=0.02, error="[bold]no[/bold]", target={"url": "http://x:1", "model": name})
    text = shown(run, 100, more=True)
    assert name in text
    assert "10 × [bold]no[/bold]" in text


def test_weak_quantiles_are_marked_and_bounded() -> None:
    text = shown(made_run(requests=60), 100)
    assert re.search(r"~\d+ ms ≥\d+", text), text


def test_failures_are_counted_and_shown_as_endlessly_late() -> None:
    text = shown(made_run(failed=0.02, limits=["ttft p99 < 500ms", "failure_rate < 50%"]), 100)
    assert "2% of requests failed (10 of 500): 10 × HTTP 429" in text
    assert "failed as ∞" in text and "∞" in text.split("failed as ∞")[1].splitlines()[0]
    assert "✗ ttft p99 < 500ms: not met" in text
    assert "✓ failure_rate < 50%: met" in text


def test_what_was_sent_again_is_said() -> None:
    run = made_run()
    assert run.summary.delivery is not None
    delivery = structs.replace(run.summary.delivery, resent=16)
    again = replace(run, summary=structs.replace(run.summary, delivery=delivery))
    assert "16 sent again: the keep-alive connection was closed" in shown(again, more=True)
    assert "sent again" not in shown(made_run(), more=True)


def test_nothing_answered_still_has_a_summary() -> None:
    text = shown(made_run(requests=20, failed=1.0))
    assert text.startswith("INVALID")
    assert "20 of 20 requests (100%)" in text


def test_an_interrupted_run_says_so() -> None:
    assert "interrupted: stopped early by the user" in shown(made_run(state="interrupted"))


def test_stages_have_a_line_each() -> None:
    stages = [{"duration": "20s", "rate": 10}, {"duration": "20s", "rate": 10, "to": 12}]
    text = shown(made_run(load={"stages": stages}, stop={}), 100)
    assert "1: 10 req/s" in text
    assert "2: 10 to 12 req/s" in text


def test_asked_for_more() -> None:
    text = shown(made_run(), 100, measures=True, slices=True, slow=2)
    assert "95% interval" in text and "Send delay" in text
    assert "in flight  tok/s" in text
    assert text.count("cmpl-") == 2


def test_shows_a_run_that_came_back_from_json() -> None:
    run = made_run(failed=0.1)
    again = replace(run, summary=summary_from(json.loads(json.dumps(summary_document(run.summary)))))
    assert shown(again) == shown(run)


def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in shown(made_run())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;32m" in shown(made_run())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;32m" not in shown(made_run())


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("plan", [{}, {"load": {"stages": [{"duration": "20s", "rate": 10}] * 2}, "stop": {}}])
def test_no_number_is_ever_cut(width: int, plan: dict[str, Any]) -> None:
    """Intervals and columns may go where there is no room; half a number is none."""
    for requests, failed in ((60, 0.0), (500, 0.02)):
        text = shown(made_run(requests=requests, failed=failed, **plan), width, measures=width >= 60)
        assert "…" not in text
        assert "p50" in text and "p99" in text


def test_where_there_is_room_intervals_are_shown() -> None:
    assert "±" in shown(made_run(), 80).split("rates")[0]
    assert "±" not in shown(made_run(), 50).split("rates")[0]


def test_without_answers_there_are_no_empty_tables() -> None:
    text = shown(made_run(requests=20, failed=1.0, limits=["ttft < 1s"]))
    assert "p90" not in text
    assert "goodput" not in text and "- of the requests" not in text
