"""Comparisons of runs: by their requests if they have them, otherwise by their values, or not at all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_runs import made_run
from msgspec import structs

from inferometer.errors import PlanError
from inferometer.judge.compare import compare
from inferometer.judge.evidence import RunSpread, evidence, noise, on_one_tape
from inferometer.measure.values import quantities
from inferometer.plan.stored import StoredPlan
from inferometer.record.columns import Records
from inferometer.record.environment import Environment, Machine
from inferometer.record.record import Record
from inferometer.record.run import Run
from inferometer.record.summary import Summary, Value
from inferometer.record.verdict import Verdict
from lined_runs import line_of, lined_run

MADE = made_run(requests=400)


def slower(run: Run, times: float, name: str, seed: int = 0) -> Run:
    """The same requests, each answered so many times slower, and its own small noise."""
    records = run.records
    assert records is not None
    draw = np.random.default_rng(seed)
    made = Records.of([_stretched(records.record(i), times * draw.normal(1, 0.01)) for i in range(len(records))])
    from inferometer.measure.summary import summarize
    from inferometer.plan.model import Plan

    summary = summarize(made, Plan.model_validate(run.plan))
    return replace(run, id=name, summary=summary, read_records=lambda: made)


def _stretched(record: Record, times: float) -> Record:
    sent_at = record.sent_at or 0
    reads = sent_at + ((np.frombuffer(record.read_at, "<i8") - sent_at) * times).astype("<i8")
    record.read_at, record.ended_at, record.visible_at = reads.tobytes(), int(reads[-1]), int(reads[0])
    return record


def words(found: Any) -> dict[str, str]:
    return {change.key: change.status for change in found.changes}


def group(times: float, name: str, n: int = 4) -> list[Run]:
    draw = np.random.default_rng(int(times * 1000))
    return [slower(MADE, times * float(draw.normal(1, 0.005)), f"{name}-{at}", at) for at in range(n)]


BEFORE, SAME, SLOW = group(1.0, "a"), group(1.0001, "b"), group(1.1, "c")


def test_repeats_tell_a_slower_server_and_find_nothing_where_there_is_nothing() -> None:
    slow, same = compare(BEFORE, SLOW), compare(BEFORE, SAME)
    assert slow.status == "worse" and words(slow)["tpot.mean"] == "worse"
    assert same.status in ("same", "unclear") and "worse" not in words(same).values()
    tpot = next(change for change in slow.changes if change.key == "tpot.mean")
    assert tpot.change == pytest.approx(0.1, abs=0.01)
    assert tpot.interval is not None and tpot.interval[0] < 0.1 < tpot.interval[1]
    assert (slow.design, slow.records, tpot.basis) == ("one tape", True, "repeats")


def test_of_single_runs_a_usual_spread_is_assumed_until_a_history_tells_it() -> None:
    alone = compare(BEFORE[:1], SLOW[:1])
    assert set(words(alone).values()) == {"unclear"}
    assert {change.basis for change in alone.changes} == {"assumed"}
    assert words(compare(BEFORE[:1], [slower(MADE, 2.16, "twice", 9)]))["tpot.mean"] == "worse"
    known = compare(BEFORE[:1], SLOW[:1], history=[*BEFORE[1:], *SAME])
    assert words(known)["tpot.mean"] == "worse"
    assert known.history == 7


def test_requests_of_one_tape_are_paired_and_that_takes_the_tapes_noise_out() -> None:
    one, other = evidence(BEFORE[0]), evidence(SLOW[0])
    assert one is not None and other is not None
    matched = on_one_tape(one, other)
    assert matched is not None
    quantity = quantities(BEFORE[0].summary)["e2e.p50"]
    alone = noise([(one, other)], quantity, True, one_tape=False)
    paired = noise([matched], quantity, True, one_tape=True)
    assert alone is not None and paired is not None
    assert paired < alone / 3


def test_the_noise_within_a_run_is_that_of_its_summary() -> None:
    """The bootstrap and the interval of the mean come to the same standard error by different ways."""
    for key, tolerance in (("tpot.mean", 0.35), ("ttft.p50", 0.6)):
        quantity = quantities(MADE.summary)[key]
        found = evidence(MADE)
        assert found is not None and quantity.interval is not None
        made = noise([(found, found)], quantity, False, one_tape=False)
        low, high = quantity.interval
        assert made is not None and low is not None and high is not None
        assert (made / 2) ** 0.5 == pytest.approx((high - low) / 3.92, rel=tolerance)


def test_other_requests_are_not_called_the_same_tape() -> None:
    other = made_run(requests=400, seed=3)
    assert compare([MADE], [replace(other, id="other")]).design == "independent"
    longer = [replace_asked(MADE, 99)]
    assert compare([MADE], longer).design == "independent"


def replace_asked(run: Run, asked: int) -> Run:
    records = run.records
    assert records is not None
    changed = [records.record(i) for i in range(len(records))]
    for record in changed:
        record.requested_output = asked
    made = Records.of(changed)
    return replace(run, id="longer", read_records=lambda: made)


def test_runs_without_records_are_compared_by_their_values() -> None:
    before, after = line_of([20.0, 20.1, 19.9]), line_of([22.0, 22.1, 21.9], first=3)
    found = compare(before, after)
    assert not found.records
    assert words(found) == {"ttft.p50": "same", "tpot.mean": "worse", "output_rate": "worse"}
    alone = compare(before[:1], after[:1])
    assert set(words(alone).values()) == {"unclear"}
    assert {change.basis for change in alone.changes} == {"assumed"}
    assert compare(before[:1], after[:1], spread=RunSpread(0.001, 0.002)).status == "worse"


def test_intervals_that_runs_came_with_stand_in_for_records() -> None:
    def imported(name: str, value: float) -> Run:
        latency = Value(value=value, unit="s", direction="lower", interval=(value * 0.95, value * 1.05))
        return Run(
            name,
            "",
            StoredPlan({}),
            Environment(),
            Summary(values={"avg_latency": latency}),
            kind="latency",
            source="vllm",
        )

    (change,) = compare([imported("a", 1.0)], [imported("b", 2.0)]).changes
    assert (change.status, change.basis) == ("worse", "assumed")
    assert change.interval is not None and 0.5 < change.interval[0] < 1.0 < change.interval[1] < 1.5


def valued(name: str, unit: str, kind: Any = "benchmark") -> Run:
    step = Value(value=1.0, unit=unit, direction="lower")
    return Run(
        name,
        "",
        StoredPlan({"name": "own"}),
        Environment(),
        Summary(values={"step": step}),
        Verdict(status="valid"),
        kind=kind,
    )


def codes(before: Sequence[Run], after: Sequence[Run]) -> dict[str, str]:
    return {each.code: each.severity for each in compare(before, after).objections}


def test_what_cannot_be_compared_is_refused() -> None:
    assert codes([valued("a", "s")], [valued("b", "ms")]) == {"units": "refuse"}
    assert codes([valued("a", "s")], [valued("b", "s", "startup")])["kind"] == "refuse"
    assert compare([valued("a", "s")], [valued("b", "ms")]).changes == ()
    assert codes(BEFORE[:1], BEFORE[:1]) == {"same_run": "refuse"}
    assert codes(line_of([20.0]), [lined_run(1, 20.0, verdict="invalid")])["invalid"] == "refuse"
    empty = replace(valued("b", "s"), summary=Summary(), state="failed")
    assert codes([valued("a", "s")], [empty])["no_numbers"] == "refuse"


def test_what_may_mislead_is_warned_of_with_its_reason() -> None:
    before, (after,) = line_of([20.0]), line_of([20.0], first=1)
    other = replace(after, plan=StoredPlan(after.plan.settings() | {"load": {"concurrency": 16}}))
    (objection,) = compare(before, [other]).objections
    assert (objection.severity, objection.code) == ("warn", "workload")
    assert objection.text == "The workloads differ: load.concurrency: 8 vs 16."
    elsewhere = replace(after, environment=structs.replace(after.environment, machine=Machine(cpu="y", cores=8)))
    assert codes(before, [elsewhere]) == {"hardware": "warn"}
    assert codes(before, [lined_run(1, 20.0, verdict="doubtful")]) == {"doubtful": "warn"}
    assert codes(before, [replace(after, source="vllm")])["source"] == "warn"
    assert codes([*before, other], [after])["mixed_group"] == "warn"
    assert codes(before, [after]) == {}


def test_measures_are_named_or_all() -> None:
    named = compare(BEFORE, SLOW, measures=["TTFT p99,tpot.p50", "output_rate"])
    assert list(words(named)) == ["ttft.p99", "tpot.p50", "output_rate"]
    assert len(compare(BEFORE, SLOW, every=True).changes) > 30
    with pytest.raises(PlanError, match=r"ttft.p98 was not measured"):
        compare(BEFORE, SLOW, measures=["ttft.p98"])


def test_open_loops_without_due_times_are_compared_from_when_they_sent() -> None:
    """As other tools keep them."""
    asked = words(compare(BEFORE, SLOW))
    assert {"ttft_scheduled.p50", "e2e_scheduled.p50"} <= asked.keys() and "ttft.p50" not in asked
    ours, theirs = ([_undue(run) for run in side] for side in (BEFORE, SLOW))
    assert {"ttft.p50", "ttft.p99", "e2e.p50"} <= words(compare(ours, theirs)).keys()


def _undue(run: Run) -> Run:
    measures = {name: each for name, each in run.summary.measures.items() if not name.endswith("_scheduled")}
    return replace(run, summary=structs.replace(run.summary, measures=measures))


def test_versions_that_changed_are_told() -> None:
    from lined_runs import environment_of

    before, after = line_of([20.0]), line_of([20.0], 1, environment_of("0.25.0"))
    assert compare(before, after).axes == "engine 0.24.0 to 0.25.0"
    assert compare(before, after).objections == ()
