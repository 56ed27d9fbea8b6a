"""The number of workers for a plan, by the calibration of a machine."""

from typing import Any

import pytest

from inferometer.plan.model import AUTO
from inferometer.plan.reading import plan_from
from inferometer.plan.text import to_mapping
from inferometer.record.environment import Curve
from inferometer.scale.place import expected_events_per_s, workers_for

CURVE = Curve(ceiling_events_per_s=50_000.0)


@pytest.mark.parametrize(
    ("sections", "events"),
    [
        ({"load": {"rate": 100}, "workload": {"output_tokens": 200}}, 20_000),
        ({"load": {"rate": 100, "to": 300}, "stop": "10s", "workload": {"output_tokens": 10}}, 3_000),
        ({"load": {"stages": [{"rate": 5, "duration": 1}, {"rate": 50, "duration": 1}]}}, 50 * 64),
        ({"load": {"concurrency": 64}, "workload": {"output_tokens": 200}}, 6_400),
        ({"load": {"rate": 1000, "max_concurrency": 10}, "workload": {"output_tokens": 200}}, 1_000),
        ({"load": {"rate": 100}, "workload": {"output_tokens": 200, "turns": 3}}, 60_000),
        ({"load": {"rate": 100}, "workload": {"output_tokens": 200}, "target": {"stream": False}}, 100),
    ],
)
def test_events_that_a_plan_leads_to_expect(sections: dict[str, Any], events: float) -> None:
    assert expected_events_per_s(plan_from(sections)) == pytest.approx(events)


@pytest.mark.parametrize(
    ("rate", "cores", "workers"),
    [(10, 16, 1), (124, 16, 1), (126, 16, 2), (1000, 16, 8), (1000, 4, 4), (1000, None, 8)],
)
def test_workers_follow_from_half_of_the_ceiling_and_the_cores(rate: int, cores: int | None, workers: int) -> None:
    plan = plan_from({"load": {"rate": rate}, "workload": {"output_tokens": 200}})
    count = workers_for(plan, CURVE, cores)
    assert count.workers == workers
    assert "events/s are expected" in count.why


def test_no_worker_is_left_without_a_slot() -> None:
    plan = plan_from({"load": {"rate": 1000, "max_concurrency": 3}, "workload": {"output_tokens": 200}})
    assert workers_for(plan, Curve(ceiling_events_per_s=10.0), 16).workers == 3


def test_many_streams_are_shared_however_slow() -> None:
    plan = plan_from({"load": {"concurrency": 5000}, "stop": {"requests": 10_000}})
    assert workers_for(plan, Curve(ceiling_events_per_s=1e9), 16).workers == 5


def test_without_a_calibration_there_is_one() -> None:
    assert workers_for(plan_from({"load": {"rate": 1000}}), None, 16).workers == 1


def test_auto_is_written_as_it_was_read() -> None:
    plan = plan_from({"workers": "auto"})
    assert plan.workers == AUTO
    assert to_mapping(plan)["workers"] == "auto"
    assert plan_from(to_mapping(plan)) == plan
