"""A run compared with its history: what is reported, what is excluded from the baseline, and what is ignored."""

import json

import msgspec
import numpy as np
import pytest

from inferometer.judge.check import baseline, check, confirm
from inferometer.judge.check_result import CheckResult, check_from
from inferometer.record.run import Run
from lined_runs import environment_of, line_of, lined_run
from plain_data import at
from shapes import AT, POINTS, shaped


def noisy(level: float, n: int, seed: int = 1, cv: float = 0.01) -> list[float]:
    return (level * np.random.default_rng(seed).normal(1, cv, n)).tolist()


HISTORY = line_of(noisy(20, 30))


def checked(history: list[Run], tpot: float, **more: object) -> CheckResult:
    return check(history, lined_run(len(history), tpot), **more)  # type: ignore[arg-type]


def test_a_run_like_the_others_is_the_same() -> None:
    found = checked(HISTORY, 20.1)
    assert (found.status, found.exit_code(), found.exit_code(strict=True)) == ("same", 0, 0)
    assert found.sentences[0].startswith("No regression against its baseline; a change of ")


def test_a_worse_run_says_by_how_much_and_what_it_came_with() -> None:
    run = lined_run(30, 22.0, environment_of("0.25.0", "b" * 40))
    found = check(HISTORY, run)
    assert (found.status, found.exit_code()) == ("worse", 1)
    (tpot, rate) = found.with_status("worse")
    assert (tpot.change.key, rate.change.key) == ("tpot.mean", "output_rate")
    assert found.sentences[0].startswith("TPOT mean is 10.")
    assert "% worse (20.0 ms to 22 ms) than its baseline of 30 runs" in found.sentences[0]
    assert found.sentences[0].endswith(
        "changed at the same time: engine 0.24.0 to 0.25.0, commit aaaaaaaaa to bbbbbbbbb."
    )


@pytest.mark.parametrize("tpot", [18.0, 20.1, 22.0])
def test_a_check_is_read_as_it_was_written(tpot: float) -> None:
    line = [*HISTORY, *(lined_run(at, tpot) for at in range(30, 36))]  # so that there is a step in it
    result = checked(line, tpot)
    written = json.loads(json.dumps(result.document()))
    assert check_from(written).document() == result.document() and check_from(written).sentences == result.sentences
    written["measures"][0]["before"] = "fast"
    with pytest.raises(msgspec.ValidationError, match="before"):
        check_from(written)


def test_a_better_run_is_no_failure() -> None:
    assert (checked(HISTORY, 18.0).status, checked(HISTORY, 18.0).exit_code(strict=True)) == ("better", 0)


def test_an_invalid_run_is_not_judged_and_an_invalid_history_not_used() -> None:
    found = check(HISTORY, lined_run(30, 22.0, verdict="invalid"))
    assert (found.status, found.exit_code()) == ("invalid", 4)
    spoiled = [*HISTORY, *(lined_run(30 + at, 40.0, verdict="invalid") for at in range(10))]
    assert checked(spoiled, 20.0).status == "same"


def test_without_any_history_it_is_unclear() -> None:
    found = checked([], 30.0)
    assert (found.status, found.exit_code(), found.exit_code(strict=True)) == ("unclear", 0, 4)
    assert "earlier run" in found.warnings[0]


@pytest.mark.parametrize("n", [1, 2])
def test_with_hardly_any_history_a_usual_spread_between_runs_is_assumed(n: int) -> None:
    worse, alike = checked(HISTORY[:n], 43.0), checked(HISTORY[:n], 20.8)
    assert (worse.status, worse.exit_code()) == ("worse", 1)
    assert "assumed" in worse.warnings[0]
    assert (alike.status, alike.exit_code(), alike.exit_code(strict=True)) == ("unclear", 0, 4)
    assert alike.sentences[0].startswith("Unclear whether this run is worse")


def test_a_small_step_is_seen_when_several_runs_have_come_together() -> None:
    """2% worse at a spread of 1%: no single run is far out, together they are."""
    later = line_of(noisy(20.4, 12, seed=9), 30, environment_of("0.25.0"))
    found = check([*HISTORY, *later[:-1]], later[-1])
    assert found.status == "worse"
    step = next(each.since for each in found.with_status("worse") if each.since is not None)
    assert abs(int(step.run.rpartition("-")[2]) - 30) <= 1
    assert "got worse by" in found.sentences[0] and "on 2026-10-3" in found.sentences[0]
    assert "engine 0.24.0 to 0.25.0" in found.sentences[0]


def test_a_regression_does_not_become_its_own_baseline() -> None:
    """A hundred runs later it is still worse, and held against the runs before it."""
    worse = line_of(noisy(22, 100, seed=3), 30)
    found = check([*HISTORY, *worse[:-1]], worse[-1])
    assert found.status == "worse"
    tpot = found.with_status("worse")[0]
    assert set(tpot.baseline) <= {run.id for run in HISTORY}
    assert len(tpot.left_out) == 99


def test_what_is_accepted_is_the_new_baseline() -> None:
    worse = line_of(noisy(22, 12, seed=3), 30)
    history, last = [*HISTORY, *worse[:-1]], worse[-1]
    assert check(history, last).status == "worse"
    accepted = check(history, last, accepted=[worse[3].id])
    assert accepted.status in ("same", "unclear")
    assert set(accepted.measures[0].baseline) == {run.id for run in worse[3:-1]}
    assert any(step.accepted for step in accepted.steps)
    again = check([*history, last], lined_run(42, 24.5), accepted=[worse[3].id])
    assert again.status == "worse"


def test_right_after_it_was_accepted_the_spread_of_before_still_counts() -> None:
    worse = line_of(noisy(22, 6, seed=3), 30)
    accepted = [worse[-1].id]
    history = [*HISTORY, *worse]
    assert check(history, lined_run(36, 22.1), accepted=accepted).status == "same"
    assert check(history, lined_run(36, 25.0), accepted=accepted).status == "worse"


def test_a_regression_that_was_repaired_leaves_the_baseline_as_it_was() -> None:
    worse, repaired = line_of(noisy(22, 10, seed=3), 30), line_of(noisy(20, 10, seed=4), 40)
    history = [*HISTORY, *worse, *repaired]
    found = check(history, lined_run(50, 20.0))
    assert found.status == "same"
    tpot = next(each for each in found.measures if each.change.key == "tpot.mean")
    assert {run.id for run in repaired} <= set(tpot.baseline)
    assert not {run.id for run in worse} & set(tpot.baseline)


def test_an_improvement_is_the_new_baseline_without_asking() -> None:
    faster = line_of(noisy(16, 10, seed=3), 30)
    assert check([*HISTORY, *faster], lined_run(40, 20.0)).status == "worse"
    assert check([*HISTORY, *faster], lined_run(40, 16.1)).status == "same"


def test_spikes_do_not_widen_the_baseline() -> None:
    values = noisy(20, 30)
    values[12], values[20] = 40.0, 35.0
    kept = baseline(values, "lower").kept
    assert 12 not in kept and 20 not in kept and len(kept) == 28


def test_changes_below_the_magnitude_raise_no_alarm() -> None:
    assert checked(HISTORY, 21.4).status == "worse"
    assert checked(HISTORY, 21.4, magnitude=0.2).status in ("same", "unclear")


def test_what_is_observed_is_told_and_fails_nothing() -> None:
    found = check(HISTORY, lined_run(30, 20.0, tokens=80.0))
    assert (found.status, found.exit_code()) == ("same", 0)
    (tokens,) = [each for each in found.measures if not each.alert]
    assert (tokens.change.key, tokens.status) == ("output_tokens.mean", "changed")
    assert found.sentences == ("Observed: Output tokens mean is 25.0% more (64 to 80) than before.",)


def test_a_second_run_confirms_or_does_not() -> None:
    first = checked(HISTORY, 21.0, first_look=0.001**0.5)
    assert first.status == "worse"
    agrees = check(HISTORY, lined_run(31, 21.1), first_look=0.001**0.5)
    differs = check(HISTORY, lined_run(31, 20.0), first_look=0.001**0.5)
    assert (confirm(first, agrees).status, confirm(first, agrees).confirmed) == ("worse", True)
    calm = confirm(first, differs)
    assert (calm.status, calm.confirmed, calm.exit_code()) == ("same", False, 0)
    assert "does not confirm it" in calm.sentences[-1]
    assert not calm.with_status("worse")


def test_checks_of_nothing_raise_no_alarm() -> None:
    draw = np.random.default_rng(8)
    alarms = 0
    for _ in range(8):
        values = (20 * draw.normal(1, 0.01, 50)).tolist()
        line = line_of(values)
        alarms += sum(check(line[:at], line[at]).status == "worse" for at in range(20, 50, 6))
    assert alarms <= 1  # of 40; bench/checks.py has the rate


def alarms(shape: str, series: int, days: range) -> dict[int, int]:
    """On which days of a shape a check says worse, of how many series."""
    draw, found = np.random.default_rng(103), dict.fromkeys(days, 0)
    for _ in range(series):
        line = line_of(shaped(draw, shape).tolist())
        for day in days:
            found[day] += check(line[:day], line[day]).status == "worse"
    return found


def test_day_by_day_steps_for_the_worse_are_found() -> None:
    assert all(n == 2 for n in alarms("step up", 2, range(AT + 3, POINTS, 9)).values())
    assert all(n == 2 for n in alarms("small step", 2, range(AT + 9, POINTS, 9)).values())


@pytest.mark.parametrize("shape", ["step down", "drift", "noise"])
def test_day_by_day_the_rest_is_quiet(shape: str) -> None:
    assert not any(alarms(shape, 2, range(AT - 12, POINTS, 8)).values())


def test_a_spike_raises_an_alarm_on_its_own_day_alone() -> None:
    """And on none with a run that confirms it."""
    found = alarms("spike", 3, range(AT - 1, AT + 9))
    assert {day for day, n in found.items() if n} == {AT}
    line = line_of(shaped(np.random.default_rng(103), "spike").tolist())
    spike, next_one = (check(line[:AT], line[day], first_look=0.001**0.5) for day in (AT, AT + 1))
    assert spike.is_alone and not checked(HISTORY, 20.0).is_alone
    assert confirm(spike, next_one).status == "same"


def test_the_document_is_plain_and_complete() -> None:
    import orjson

    found = checked(HISTORY, 22.0).document()
    assert orjson.loads(orjson.dumps(found)) == found
    assert found["schema"] == "inferometer/check/2"
    assert {measure["class"] for measure in at(found, "measures")} == {"alert", "observe"}


def test_what_changed_at_the_same_time_is_told_once() -> None:
    from inferometer.judge.check_result import CAUSE, cause_once

    texts = [f"A got worse{CAUSE}commit a to b.", f"B got worse{CAUSE}commit a to b.", "C got worse.", "D got worse."]
    assert cause_once(texts) == [texts[0], "B got worse.", "C got worse.", "D got worse."]
