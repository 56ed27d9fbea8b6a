"""Requests that the plan has us cancel: a seeded share, counted apart, no failures and no doubt; on a jumping clock."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferometer.errors import PlanError
from inferometer.plan.overrides import Flags
from inferometer.plan.reading import plan_from
from inferometer.record.log import read_log
from inferometer.record.record import AS_PLANNED
from inferometer.scale.rehearsal import rehearse_shards
from inferometer.show.summary import _failures
from inferometer.simulator.virtual import rehearse, simulated_run

QUARTER = {"share": "25%", "after": "200ms"}


def written(cancel: Any, seed: int = 0) -> dict[str, Any]:
    return {
        "server": {"type": "simulator"},
        "workload": {"input_tokens": 64, "output_tokens": 100},
        "load": {"rate": 20, "cancel": cancel},
        "stop": {"requests": 400},
        "seed": seed,
    }


def ended_early(cancel: Any, seed: int = 0) -> set[int]:
    records, _ = rehearse(plan_from(written(cancel, seed)))
    return set(records.session[records.outcome.mask("cancelled")].tolist())


def test_a_share_is_cancelled_after_its_time_and_marked() -> None:
    records, _ = rehearse(plan_from(written(QUARTER)))
    ended, ok = (np.flatnonzero(records.outcome.mask(name)) for name in ("cancelled", "ok"))
    assert len(ended) + len(ok) == 400 and 70 <= len(ended) <= 130
    assert {records.error[int(at)] for at in ended} == {AS_PLANNED}
    assert {records.error[int(at)] for at in ok} == {None}
    lasted = records.ended_at[ended] - records.sent_at[ended]
    assert lasted.tolist() == pytest.approx([200_000_000] * len(ended), rel=0.05)


def test_a_share_is_cancelled_after_its_tokens() -> None:
    records, _ = rehearse(plan_from(written({"share": "25%", "after_tokens": 7})))
    ended, ok = (np.flatnonzero(records.outcome.mask(name)) for name in ("cancelled", "ok"))
    assert set(records.session[ended].tolist()) == ended_early(QUARTER)  # the same choice
    assert len(ended) + len(ok) == 400 and {records.error[int(at)] for at in ended} == {AS_PLANNED}
    received = [int(records.read_tokens[records.reads(int(at))].sum()) for at in (*ended, *ok)]
    assert received == [7] * len(ended) + [100] * len(ok)


def test_whichever_comes_first_and_a_complete_answer_stays() -> None:
    assert ended_early({"share": 1, "after_tokens": 100}) == set()  # all of them: nothing is left to cancel
    assert ended_early({"share": 1, "after_tokens": 100, "after": "200ms"}) == set(range(400))
    assert len(ended_early({"share": 1, "after_tokens": 99, "after": "1h"})) == 400


def test_the_seed_chooses_and_nothing_else() -> None:
    assert ended_early(QUARTER) == ended_early(QUARTER)
    assert ended_early(QUARTER) != ended_early(QUARTER, seed=1)
    assert ended_early(QUARTER) < ended_early({"share": 0.5, "after": "200ms"})
    assert ended_early({"share": 1, "after": "1h"}) == set()  # all were answered by then


def test_workers_choose_the_same_requests_as_one_alone(tmp_path: Path) -> None:
    logs = rehearse_shards(plan_from(written(QUARTER)), 3, tmp_path, "nonce")
    records = [record for log in logs for record in read_log(log).records]
    assert {each.session for each in records if each.outcome == "cancelled"} == ended_early(QUARTER)


def test_they_are_counted_and_neither_failures_nor_doubts() -> None:
    run = simulated_run(plan_from(written(QUARTER)))
    plain = simulated_run(plan_from(written(None)))
    summary = run.summary
    assert summary is not None and plain.summary is not None
    assert summary.cancelled_as_planned == summary.outcomes["cancelled"] > 0
    assert summary.failures.failed == 0 and summary.failures.failure_rate == 0
    assert summary.errors == [] and plain.summary.cancelled_as_planned is None
    shown = {name: str(text) for name, text in _failures(summary, brief=False)}
    assert shown == {"cancelled": f"{summary.cancelled_as_planned} of 400 requests (25.8%): as planned"}
    assert run.verdict is not None and plain.verdict is not None
    assert (run.verdict.status, run.verdict.codes) == (plain.verdict.status, plain.verdict.codes)


def test_typed_options_keep_it() -> None:
    for flags in (Flags(rate=5), Flags(concurrency=3)):
        cancel = plan_from(written(QUARTER), flags=flags).load.cancel
        assert cancel is not None and (cancel.share, cancel.after) == (0.25, 0.2)


@pytest.mark.parametrize(
    "cancel",
    [{"share": 0, "after": 1}, {"share": "120%", "after": 1}, {"share": 0.1}, {"share": 0.1, "after_tokens": 0}],
)
def test_what_makes_no_sense_is_refused(cancel: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=r"load\.cancel"):
        plan_from(written(cancel))


@pytest.mark.parametrize("target", [{"stream": False}, {"api": "embeddings"}])
def test_tokens_can_only_be_counted_in_a_stream(target: dict[str, Any]) -> None:
    plan = written({"share": 0.1, "after_tokens": 5}) | {"target": target}
    with pytest.raises(PlanError, match=r"load\.cancel\.after_tokens needs answers that stream tokens"):
        plan_from(plan)
