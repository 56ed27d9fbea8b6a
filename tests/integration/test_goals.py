"""Runs that end by a goal: a number is precise enough, or a limit is certainly missed."""

from pathlib import Path
from typing import Any

import pytest

from inferometer.conduct.run import run
from inferometer.plan.reading import plan_from

QUICK = {"workload": {"input_tokens": 8, "output_tokens": 4}, "server": "simulator"}


@pytest.mark.parametrize("load", [{"rate": 150}, {"concurrency": 8}], ids=["open loop", "closed loop"])
def test_a_run_ends_when_its_number_is_known_well_enough(load: dict[str, Any], tmp_path: Path) -> None:
    stop = {"precision": "tpot mean within 20%", "at_most": "60s"}
    measured = run(plan_from({**QUICK, "load": load, "stop": stop}), store=tmp_path)
    assert measured.state == "complete"
    assert measured.summary.goal.status == "precise"
    assert measured.summary.window.run_s < 50
    assert measured.summary.precision.measure == "tpot"
    assert "not_precise" not in [reason.code for reason in measured.doubts]
    assert "shortfall" not in [reason.code for reason in measured.doubts]


def test_a_precision_that_is_not_reached_is_a_doubt(tmp_path: Path) -> None:
    stop = {"precision": "ttft p99 within 0.01%", "at_most": "2s"}
    measured = run(plan_from({**QUICK, "load": {"rate": 50}, "stop": stop}), store=tmp_path)
    assert measured.summary.goal is None
    assert "not_precise" in [reason.code for reason in measured.doubts]


def test_a_run_ends_when_its_limit_is_lost_and_every_worker_hears_of_it(tmp_path: Path) -> None:
    plan = plan_from(
        {
            **QUICK,
            "load": {"rate": 100},
            "limits": ["e2e p50 < 1us"],
            "stop": {"duration": "60s", "lost": True},
            "workers": 2,
        }
    )
    measured = run(plan, store=tmp_path)
    assert measured.summary.goal.status == "lost"
    assert "e2e p50 < 1us is missed" in measured.summary.goal.why
    assert measured.summary.window.run_s < 50
