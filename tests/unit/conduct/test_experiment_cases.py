"""The cases of an experiment: their order, expected duration, and errors."""

from pathlib import Path

import jsonschema
import pytest

from inferometer.conduct.prepare import prepare
from inferometer.errors import PlanError
from inferometer.measure.values import shared_among
from inferometer.plan.cases import cases_of, expected_s, ordered, server_starts
from inferometer.plan.experiment import experiment_from, json_schema, read_experiment
from inferometer.plan.text import parse_yaml
from inferometer.record.summary import MeasureSummary, Rate, Summary

EXAMPLES = Path(__file__).parents[3] / "examples"


def cases(mapping, *overrides, **options):
    return cases_of(experiment_from(mapping, overrides), **options)


def labels(mapping, *overrides):
    return [case.label for case in cases(mapping, *overrides)]


def mistakes(mapping, *overrides, **options):
    with pytest.raises(PlanError) as wrong:
        cases(mapping, *overrides, **options)
    return wrong.value.mistakes


def test_axes_are_multiplied_and_the_last_is_fastest() -> None:
    found = cases({"axes": {"load.rate": [1, 2], "server.args.max_sequences": [64, 128]}})
    assert [case.label for case in found] == [
        *("rate=1 max_sequences=64", "rate=1 max_sequences=128"),
        *("rate=2 max_sequences=64", "rate=2 max_sequences=128"),
    ]
    assert found[2].plan.load.rate == 2 and found[2].plan.server.args == {"max_sequences": 64}
    assert found[1].parameters == {"load.rate": 1, "server.args.max_sequences": 128}


def test_zipped_lists_go_together_and_the_rate_follows_from_tokens_per_second() -> None:
    pairs = read_experiment(EXAMPLES / "online-pairs.yaml", ["stop.minutes=1"])
    found = cases_of(pairs)
    assert [case.plan.load.rate for case in found] == [12.5, 7.14, 4.55, 4.17, 2.08]  # round(5000 / (in + out), 2)
    assert [case.plan.stop.requests for case in found] == [750, 428, 273, 250, 125]  # round(60 * rate)


def test_named_cases_join_the_product_and_may_do_something_else() -> None:
    found = cases(
        {
            "axes": {"seed": [1, 2]},
            "cases": [{"name": "slow", "set": {"load.rate": 1}}, {"name": "fast", "set": {"load.rate": 9}}],
            "exclude": [{"case": "fast", "seed": 2}],
        }
    )
    assert [case.label for case in found] == ["slow seed=1", "slow seed=2", "fast seed=1"]
    assert found[0].parameters == {"case": "slow", "load.rate": 1, "seed": 1}
    other = cases({"cases": [{"name": "own", "benchmark": {"command": ["true"]}}, {"name": "batch", "latency": {}}]})
    assert [case.work for case in other] == ["benchmark", "latency"]


def test_set_changes_the_experiment_or_its_plan() -> None:
    found = cases({"axes": {"load.rate": [1]}, "plan": {"stop": "5s"}}, "repeats=2", "stop.duration=9s")
    assert [case.name for case in found] == ["rate=1 #1", "rate=1 #2"]
    assert found[0].plan.stop.duration == 9
    assert labels({"axes": {"load.rate": [1]}}, "axes.load.rate=[3, 4]") == ["rate=3", "rate=4"]


def test_a_case_is_the_same_only_if_all_that_it_does_is() -> None:
    first = {case.key for case in cases({"axes": {"load.rate": [1, 2]}})}
    assert first == {case.key for case in cases({"axes": {"load.rate": [2, 1]}, "about": "turned round"})}
    assert not first & {case.key for case in cases({"axes": {"load.rate": [1, 2]}, "set": {"stop.duration": "3s"}})}


def test_order_keeps_a_server_as_long_as_it_can_unless_it_is_told_otherwise() -> None:
    made = cases({"axes": {"load.rate": [1, 2], "server.args.max_sequences": [64, 128]}, "repeats": 2})
    sequential = ordered(made, "sequential")
    assert server_starts(sequential, restart_every_case=False) == 2
    assert [case.name.removesuffix(" max_sequences=64 #1") for case in sequential[:2]] == ["rate=1", "rate=2"]
    abba = ordered(made, "abba")
    assert [case.label for case in abba[:4]] == [case.label for case in reversed(abba[4:])]
    assert server_starts(abba, restart_every_case=False) == 3
    shuffled = ordered(made, "shuffled", 7)
    assert shuffled == ordered(made, "shuffled", 7) != made
    assert server_starts(shuffled, restart_every_case=True) == 8


def test_how_long_a_case_takes_where_the_plan_tells() -> None:
    def span(plan):
        return expected_s(cases({"plan": plan})[0])

    assert span({"load": {"rate": 10}, "stop": 50}) == 5
    assert span({"load": {"rate": 10}, "stop": {"requests": 500, "duration": "8s"}, "warmup": "2s"}) == 10
    assert span({"load": {"stages": [{"rate": 1, "duration": "3s"}, {"rate": 2, "duration": "4s"}]}}) == 7
    assert span({"load": {"concurrency": 4}, "stop": 100}) is None


def test_classes_are_switched_off_one_by_one() -> None:
    plan = {"traffic": [{"name": "chat", "load": {"rate": 1}}, {"load": {"concurrency": 1}}], "stop": "1s"}
    found = cases({"plan": plan, "classes": "switch-off"})
    assert [case.label for case in found] == ["all classes", "without chat", "without class-2"]
    assert [each.name for each in found[1].plan.classes] == ["class-2"]
    assert "at least two traffic classes" in mistakes({"classes": "switch-off"})[0]


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        ({"axes": {"load.rat": [1, 2]}}, "axes: load.rat is not a setting; did you mean load.rate?"),
        ({"zip": {"load.rat": [1, 2]}}, "zip: load.rat is not a setting; did you mean load.rate?"),
        ({"set": {"server.arg.x": 1}}, "set: server.arg is not a setting; did you mean server.args?"),
        ({"axes": {"load.rate": [1, -2]}}, "load.rate must be greater than 0, got -2 (in case rate=-2)"),
        ({"plan": {"stop": "x y"}, "axes": {"load.rate": [1, 2]}}, "got x y"),
        ({"axes": {"load.rate": []}}, "must have at least one value"),
        (
            {"zip": {"seed": [1, 2], "load.rate": [1]}},
            "zip[0] must have lists of one length: seed has 2",
        ),
        ({"axes": {"seed": [1]}, "exclude": {"sed": 1}}, "exclude[0]: sed is not varied; did you mean seed?"),
        ({"axes": {"seed": [1]}, "exclude": {"seed": 2}}, "exclude[0]: seed never is 2"),
        ({"axes": {"seed": [1]}, "exclude": {"seed": 1}}, "exclude leaves no case"),
        ({"repeat": 3}, "repeat is not a setting; did you mean repeats?"),
        ({"order": "abab"}, "order must be sequential, shuffled or abba, got abab"),
        ({"plan": {}, "latency": {}}, "latency cannot be combined with plan"),
        ({"latency": {}, "axes": {"batch_siz": [1]}}, "latency: batch_siz is not a setting; did you mean batch_size?"),
        ({"latency": {"batch_size": 0}}, "batch_size"),
        ({"cases": [{"name": "a"}, {"name": "a"}]}, "cases[1].name must be unique"),
        ({"axes": {"seed": [1, 1]}}, "case seed=1 appears 2 times"),
        ({"zip": {"seed": [1, 2, 1], "load.rate": [3, 3, 3]}}, "case seed=1 rate=3 appears 2 times"),
        ({"plan": "chta"}, "no such file or profile"),
        ({"axes": {"a b": [1]}}, "a b is not a path"),
    ],
)
def test_what_is_wrong_is_said(mapping, told: str):
    assert any(told in text for text in mistakes(mapping)), mistakes(mapping)


def test_all_mistakes_are_said_at_once() -> None:
    found = mistakes({"axes": {"load.rate": [-1], "seed": [-1]}, "exclude": {"x": 1}})
    assert len(found) == 3


def test_a_product_of_too_many_cases_is_refused_before_any_is_made() -> None:
    huge = {"axes": {"seed": list(range(400)), "load.rate": list(range(1, 251))}}
    with pytest.raises(PlanError) as wrong:
        cases(huge)
    assert "makes 100,000 cases (400 x 250 x 1), the maximum is 1,000" in wrong.value.message
    assert "--most 100000" in wrong.value.hint
    assert len(cases({"axes": {"seed": [1, 2, 3]}}, most=3)) == 3


def test_the_examples_fit_the_schema() -> None:
    for file in ("latency-over-batch-sizes", "online-pairs", "concurrency-and-cost"):
        text = (EXAMPLES / f"{file}.yaml").read_text()
        jsonschema.validate(parse_yaml(text, file)[0], json_schema())


def test_secrets_are_not_kept() -> None:
    prepared = prepare({"plan": {"target": {"url": "http://x", "headers": {"Authorization": "Bearer abcdefgh"}}}})
    assert "abcdefgh" not in str(prepared.definition)
    assert prepared.cases[0].plan.target.headers == {"Authorization": "Bearer abcdefgh"}


def test_what_tokens_cost() -> None:
    """S1: cost = price * 1e6 / (tokens/s * 3600), user = 1000 / mean TPOT in ms."""
    tpot = MeasureSummary(statistics={"mean": 0.02})
    summary = Summary(rates={"total_rate": Rate(value=5000.0)}, measures={"tpot": tpot})
    found = {name: each.value for name, each in shared_among(summary, 1, 2.0).items()}
    assert found == pytest.approx(
        {"throughput_per_gpu": 5000, "tokens_per_s_user": 50, "cost_per_million_tokens": 2e6 / (5000 * 3600)}
    )
    two = {name: each.value for name, each in shared_among(summary, 2, None).items()}
    assert two == {"throughput_per_gpu": 2500, "tokens_per_s_user": 50}
    assert shared_among(Summary(), 1, 2.0) == {}


def test_a_setting_below_a_number_takes_its_place() -> None:
    """`args.x` is 5 in the benchmark and a mapping in the axes: what is below a number replaces it."""
    own = {"benchmark": {"command": "echo", "args": {"x": 5}}, "axes": {"args.x.y": [1, 2]}}
    assert [case.plan.args for case in cases(own)] == [{"x": {"y": 1}}, {"x": {"y": 2}}]


def test_settings_of_a_wrong_type_are_a_mistake_with_set_too() -> None:
    (mistake,) = mistakes({"plan": {}, "set": 5}, "seed=3")
    assert "set must be settings by name" in mistake
