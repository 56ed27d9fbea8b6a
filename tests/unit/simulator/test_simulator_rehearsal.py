"""A whole plan on virtual time."""

import pytest

from inferometer.errors import PlanError
from inferometer.plan.reading import plan_from
from inferometer.simulator.virtual import rehearse, settings_of, simulated_run


def test_the_same_plan_gives_the_same_run() -> None:
    plan = plan_from({"load": {"rate": 20}, "stop": 50, "workload": {"input_tokens": 32, "output_tokens": 8}})
    one, two = simulated_run(plan), simulated_run(plan)
    assert one.summary == two.summary
    assert one.summary.outcomes == {"ok": 50}
    assert one.status in ("valid", "doubtful") and one.folder is None


def test_every_class_is_driven_to_its_end() -> None:
    traffic = [
        {"name": "chat", "load": {"rate": 50}, "stop": 40, "workload": {"output_tokens": 4}},
        {"name": "batch", "load": {"concurrency": 3}, "stop": 7, "workload": {"output_tokens": 400}},
    ]
    records, _ = rehearse(plan_from({"traffic": traffic}))
    assert records.traffic.counts() == {"chat": 40, "batch": 7}
    assert records.outcome.counts() == {"ok": 47}


def test_what_is_not_answered_at_the_drain_deadline_is_unfinished() -> None:
    slow = {"type": "simulator", "args": {"speed": 0.01}}
    plan = plan_from({"server": slow, "load": {"rate": 10}, "stop": {"duration": "2s", "drain": "1s"}})
    records, _ = rehearse(plan)
    assert records.outcome.counts() == {"unfinished": len(records)}
    assert len(records) > 5


def test_a_target_is_left_out() -> None:
    run = simulated_run(plan_from({"target": {"url": "http://nowhere.invalid", "model": "m"}, "stop": 5}))
    assert run.plan.section("target")["url"] == []
    assert run.environment.model == "simulated-8b"


def test_every_wrong_setting_is_named() -> None:
    plan = plan_from({"server": {"type": "simulator", "args": {"speed": -1, "sped": 2, "blocks": "many"}}})
    with pytest.raises(PlanError) as caught:
        settings_of(plan)
    assert sorted(caught.value.mistakes) == [
        "server.args.blocks must be a whole number such as 300, 2k or 4Ki, got many",
        "server.args.sped is not a setting of the simulator",
        "server.args.speed must be greater than 0, got -1",
    ]
