"""`--set` can change everything; the common flags do what users expect."""

from typing import Any

import pytest

from inferometer.errors import PlanError
from inferometer.plan.overrides import Flags, parse_override, with_flags
from inferometer.plan.reading import plan_from

STAGES = {"stages": [{"duration": "1s", "rate": 1}, {"duration": "2s", "rate": 2}]}


def mistakes(mapping: dict[str, Any], *overrides: str, flags: Flags | None = None) -> list[str]:
    with pytest.raises(PlanError) as caught:
        plan_from(mapping, overrides, flags=flags)
    return caught.value.mistakes


@pytest.mark.parametrize("path", ["load.stages.1.rate", "load.stages[1].rate"])
def test_an_entry_of_a_list(path: str) -> None:
    plan = plan_from({"load": STAGES}, [f"{path}=5"])
    assert [stage.rate for stage in plan.load.stages] == [1, 5]


def test_one_more_entry() -> None:
    plan = plan_from({}, ["outputs[+]={format: csv, path: a.csv}", "outputs[+].format=json", "outputs[1].path=b"])
    assert [(each.format, each.path) for each in plan.outputs] == [("csv", "a.csv"), ("json", "b")]


def test_a_class_by_its_name() -> None:
    plan = plan_from({"traffic": [{"name": "chat"}, {"name": "batch"}]}, ["traffic.batch.load.concurrency=3"])
    assert [each.load.concurrency for each in plan.traffic] == [8, 3]


def test_keys_with_dots_and_free_keys() -> None:
    plan = plan_from({}, ['target.headers."x.y"=1', "sampling.extra.a.b[+]=on", "server.args.blocks=5"])
    assert plan.target.headers == {"x.y": "1"}
    assert plan.sampling.extra == {"a": {"b": ["on"]}}
    assert plan.server is not None and plan.server.args == {"blocks": 5}


def test_into_short_forms() -> None:
    short = {"target": "http://a", "stop": 5, "server": "simulator", "limits": "ttft p99 < 1s"}
    plan = plan_from(short, ["target.model=m", "stop.drain=1s", "limits[0]=ttft p99 < 2s", "target.url[+]=http://b"])
    assert (plan.target.url, plan.target.model) == (["http://a", "http://b"], "m")
    assert (plan.stop.requests, plan.stop.drain, plan.limits[0].value) == (5, 1, 2)


def test_values_are_yaml_and_the_last_one_wins() -> None:
    plan = plan_from({"workload": {"output_tokens": 5}}, ["workload.output_tokens=null", "stop=1k", "stop=60s"])
    assert plan.workload.output_tokens is None
    assert (plan.stop.duration, plan.stop.requests) == (60, None)
    assert parse_override("sampling.stop=[a=b, c]").value == ["a=b", "c"]
    assert parse_override("name=").value is None


@pytest.mark.parametrize(
    ("override", "mistake"),
    [
        ("load.rat=1", "--set load.rat: load.rat is not a setting; did you mean load.rate?"),
        ("laod.rate=1", "--set laod.rate: laod is not a setting; did you mean load?"),
        ("rate=1", "--set rate: rate is not a setting; did you mean load.rate?"),
        ("load.rate", "--set load.rate: must be path=value, such as load.rate=5"),
        ("=5", "--set =5: must be path=value, such as load.rate=5"),
        ("load..rate=5", "--set load..rate=5: must be path=value, such as load.rate=5"),
        ("load[+]=3", "--set load[+]: load is not a list"),
        ("seed.x=3", "--set seed.x: seed.x is not a setting; did you mean seed?"),
        ("outputs[0].path=x", "--set outputs[0].path: outputs has no entries; [+] adds one"),
        (
            "load.stages[7].rate=1",
            "--set load.stages[7].rate: load.stages has 2 entries, the first is [0]; [+] adds one",
        ),
        ("load.stages.rate=1", "--set load.stages.rate: load.stages is a list: write load.stages[0]"),
        ("load.rate=-1", "--set: load.rate must be greater than 0, got -1"),
        ("stop={a: 1, a: 2}", "--set stop: a is given twice, on lines 1 and 1"),
    ],
)
def test_an_override_that_cannot_be(override: str, mistake: str) -> None:
    assert mistake in mistakes({"load": STAGES}, override)


def test_every_override_that_cannot_be_is_named() -> None:
    assert len(mistakes({"seed": -1}, "a.b.c=1", "load.rat=1", "target.headers.authorization=[x]")) == 4


def test_an_override_does_not_show_its_secret() -> None:
    found = mistakes({}, "target.headers.authorization=[hunter2]", "target.api_key=hunter2", "seed.api_key={hunter2")
    assert len(found) == 3 and "hunter2" not in "".join(found)


def test_a_rate_on_a_closed_loop_is_understandable() -> None:
    (found,) = mistakes({"load": {"type": "concurrency", "concurrency": 8}}, "load.rate=5")
    assert found == (
        "--set: load.rate does not belong to type concurrency: for an open loop, set type to poisson and take "
        "concurrency out (max_concurrency caps it)"
    )
    assert plan_from({}, ["load.rate=5"]).load.type == "poisson"


def test_the_mapping_that_was_given_stays_as_it_was() -> None:
    mapping: dict[str, Any] = {"load": {"stages": [{"duration": "1s", "rate": 1}]}, "stop": "5s"}
    plan_from(mapping, ["load.stages[0].rate=5", "stop.drain=1s"], flags=Flags(model="m"))
    assert mapping == {"load": {"stages": [{"duration": "1s", "rate": 1}]}, "stop": "5s"}


@pytest.mark.parametrize(
    ("load", "flags", "folded"),
    [
        ({}, Flags(rate="10"), {"type": "poisson", "rate": "10"}),
        ({"rate": 1}, Flags(rate=10), {"type": "poisson", "rate": 10}),
        ({"rate": 1, "cv": 2}, Flags(rate=10), {"type": "gamma", "rate": 10, "cv": 2}),
        (
            {"type": "constant", "rate": 1, "max_concurrency": 5},
            Flags(rate=10),
            {"type": "constant", "rate": 10, "max_concurrency": 5},
        ),
        (
            {"type": "constant", "rate": 1, "max_concurrency": 5},
            Flags(rate=10, concurrency=64),
            {"type": "constant", "rate": 10, "max_concurrency": 64},
        ),
        ({"concurrency": 8}, Flags(rate=10), {"type": "poisson", "rate": 10}),
        (STAGES, Flags(rate=10), {"type": "poisson", "rate": 10}),
        ({"rate": 1, "to": 5}, Flags(rate=10), {"type": "poisson", "rate": 10}),
        ({}, Flags(rate=10, concurrency=64), {"type": "poisson", "rate": 10, "max_concurrency": 64}),
        (
            {"rate": 1, "max_concurrency": 3},
            Flags(concurrency=64),
            {"type": "concurrency", "concurrency": 64},
        ),
    ],
)
def test_load_flags(load: dict[str, Any], flags: Flags, folded: dict[str, Any]) -> None:
    assert with_flags({"load": load}, flags)["load"] == folded


@pytest.mark.parametrize("rate", ["inf", "Infinity", float("inf")])
def test_an_endless_rate_is_a_closed_loop(rate: str | float) -> None:
    with pytest.raises(PlanError, match="--rate must be finite") as caught:
        with_flags({}, Flags(rate=rate))
    assert "--concurrency" in str(caught.value.hint)


def test_where_to() -> None:
    filed = {"target": {"url": "http://a", "model": "m"}, "server": {"type": "simulator", "args": {"blocks": 5}}}
    plan = plan_from(filed, flags=Flags(url=("http://b",), api="chat"))
    assert (plan.target.url, plan.target.model, plan.target.api, plan.server) == (["http://b"], "m", "chat", None)
    plan = plan_from(filed, flags=Flags(server="simulator"))
    assert plan.target.url == [] and plan.server is not None and plan.server.args == {"blocks": 5}
    with pytest.raises(PlanError, match="exclude each other"):
        with_flags({}, Flags(url=("http://b",), server="simulator"))


def test_how_it_ends_is_one_decision() -> None:
    filed = {"stop": {"duration": "60s", "drain": "1s", "errors": 3}}
    stop = plan_from(filed, flags=Flags(requests="1k")).stop
    assert (stop.requests, stop.duration, stop.drain, stop.errors) == (1000, None, 1, 3)
    stop = plan_from({"stop": 5}, flags=Flags(requests=7, duration="2s")).stop
    assert (stop.requests, stop.duration) == (7, 2)


def test_other_flags() -> None:
    flags = Flags(input_tokens="2k", output_tokens="100", workers="2", seed="7", warmup="10s")
    plan = plan_from({"workload": {"prompt_as": "token_ids"}}, flags=flags)
    assert (plan.workload.input_tokens.value, plan.workload.output_tokens.value) == (2000, 100)
    assert (plan.workload.prompt_as, plan.workers, plan.seed) == ("token_ids", 2, 7)
    assert plan.warmup.duration == 10


def test_a_typed_limit_replaces_the_same_one() -> None:
    filed = {"limits": ["ttft p99 < 1s", "tpot p99 < 50ms"]}
    plan = plan_from(filed, flags=Flags(limit=("TTFT p99 < 2s", "ttft p50 < 1s")))
    assert [str(each) for each in plan.limits] == ["tpot p99 < 50ms", "ttft p99 < 2s", "ttft p50 < 1s"]


def test_a_flag_that_changes_nothing_is_a_mistake() -> None:
    filed = {"traffic": [{"load": {"rate": 1}}, {"load": {"rate": 2}}]}
    (found,) = mistakes(filed, flags=Flags(rate=5))
    assert found.startswith("every traffic class has its own load")
    classes = plan_from(filed, flags=Flags(input_tokens=5)).classes
    assert [each.workload.input_tokens.value for each in classes] == [5, 5]


def test_no_flags_change_nothing() -> None:
    filed = {"target": "http://a", "load": STAGES, "limits": "ttft p99 < 1s"}
    assert plan_from(filed, flags=Flags()) == plan_from(filed)
    assert plan_from({}, flags=Flags()) == plan_from({})


@pytest.mark.parametrize("body", ['{"inputs": "{prompt}"}', '{"inputs": "{prompt}", "n": {max_tokens}}', "[{prompt}]"])
def test_text_that_looks_like_yaml_stays_text(body: str) -> None:
    plan = plan_from({}, ["target.api=template", "target.path=/x", f"target.body={body}"])
    assert plan.target.body == body


def test_text_may_be_quoted_missing_or_a_number() -> None:
    assert plan_from({}, ["name='5'"]).name == "5"
    assert plan_from({}, ["name=5"]).name == "5"
    assert plan_from({"name": "x"}, ["name=null"]).name is None


def test_flags_on_a_section_of_a_wrong_type_leave_the_mistake_to_the_model() -> None:
    for odd in (5, True, "x", [5]):
        assert any("traffic" in mistake for mistake in mistakes({"traffic": odd}, flags=Flags(rate=5)))
