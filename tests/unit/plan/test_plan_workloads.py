"""The workload of a plan: kinds by type or fields, lengths in text form, rates from tokens."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.errors import PlanError
from inferometer.plan.overrides import kind_at, known_paths, meant, section_at
from inferometer.plan.reading import mapping_in, plan_from
from inferometer.plan.text import json_schema, to_mapping, to_yaml
from inferometer.plan.workloads import TYPES, Lengths
from inferometer.plan.workloads.lengths import Pause

SCHEMA = jsonschema.Draft202012Validator(json_schema())


def mistakes(workload: Any, **sections: Any) -> list[str]:
    with pytest.raises(PlanError) as caught:
        plan_from({"workload": workload, **sections})
    return [each.removeprefix("plan.yaml: ") for each in caught.value.mistakes]


@pytest.mark.parametrize(
    ("written", "mean", "back"),
    [
        (512, 512, 512),
        ("2k", 2000, 2000),
        ("100-500", 300, "100-500"),
        ("1k - 2k", 1500, "1000-2000"),
        ([32, 64, 128], 224 / 3, [32, 64, 128]),
        ({"values": [10, 100], "weights": [9, 1]}, 19, {"values": [10, 100], "weights": [9, 1]}),
        ({"mean": 512, "std": 100}, 512, {"mean": 512, "std": 100}),
        ({"mean": 50, "std": 0}, 50, {"mean": 50, "std": 0}),
        ({"type": "lognormal", "mean": 50, "std": 9, "max": 99}, 50, None),
        ({"type": "zipf", "alpha": 1, "min": 1, "max": 2}, 4 / 3, {"min": 1, "max": 2, "alpha": 1}),
        ({"parts": [{"value": 10, "weight": 3}, {"mean": 50, "std": 1}]}, 20, None),
        ({"file": "lengths.txt"}, None, {"file": "lengths.txt"}),
    ],
)
def test_lengths_are_written_as_they_are_read(written: Any, mean: float | None, back: Any) -> None:
    lengths = Lengths.of(written)
    assert lengths.mean_value == (None if mean is None else pytest.approx(mean))
    assert Lengths.of(lengths.short()) == lengths == Lengths.of(lengths.model_dump())
    if back is not None:
        assert lengths.short() == back
    plan = plan_from({"workload": {"input_tokens": written}})
    assert plan_from(to_mapping(plan)) == plan == plan_from(to_mapping(plan, full=True))
    SCHEMA.validate({"workload": {"input_tokens": written}})


counts = st.integers(1, 10**6)
spans = st.tuples(counts, counts).map(sorted)
shapes = st.one_of(
    counts,
    spans.map(lambda ends: f"{ends[0]}-{ends[1]}"),
    st.lists(counts, min_size=1, max_size=4),
    st.fixed_dictionaries({"mean": st.floats(1, 1e5), "std": st.floats(0, 1e4)}),
    st.fixed_dictionaries({"type": st.just("lognormal"), "mean": st.floats(1, 1e5), "std": st.floats(0, 1e4)}),
    st.fixed_dictionaries({"alpha": st.floats(0.1, 4), "max": counts}),
    st.fixed_dictionaries({"file": st.just("a.txt"), "max": counts}),
)
mixtures = st.lists(
    st.fixed_dictionaries({"mean": st.floats(1, 9e3), "std": st.floats(0, 9)}, optional={"weight": st.floats(0.1, 9)}),
    min_size=1,
    max_size=3,
).map(lambda parts: {"parts": parts})


@settings(max_examples=50, deadline=None)
@given(shapes | mixtures)
def test_any_lengths_come_back_from_a_written_plan(written: Any) -> None:
    plan = plan_from({"workload": {"input_tokens": written, "turns": written}})
    for full in (False, True):
        assert plan_from(mapping_in(to_yaml(plan, full), "x")[0]) == plan
    assert plan_from(plan.model_dump()) == plan
    SCHEMA.validate({"workload": {"input_tokens": written}})


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(0, 500), st.floats(0.1, 3))
def test_the_mean_of_zipf_is_that_of_its_shares(least: int, more: int, alpha: float) -> None:
    shares = [1 / k**alpha for k in range(1, more + 2)]
    exact = sum((least + k) * share for k, share in enumerate(shares)) / sum(shares)
    assert Lengths.of({"alpha": alpha, "min": least, "max": least + more}).mean_value == pytest.approx(exact)


@pytest.mark.parametrize(
    ("written", "short"),
    [(2, "2s"), ("500ms", "500ms"), ("1s-5s", "1s-5s"), ({"mean": "5s"}, None), ({"mean": 2, "std": "1s"}, None)],
)
def test_pauses_are_written_as_they_are_read(written: Any, short: str | None) -> None:
    pause = Pause.model_validate(written)
    assert Pause.model_validate(pause.short()) == pause
    assert short in (None, pause.short())


@pytest.mark.parametrize(
    ("workload", "found"),
    [
        ({"input_tokens": "many"}, "workload.input_tokens must be a whole number such as 300, 2k or 4Ki, or a range"),
        ({"input_tokens": []}, "workload.input_tokens must hold at least one length"),
        ({"input_tokens": "500-100"}, "workload.input_tokens.max must be at least min, 500, got 100"),
        ({"input_tokens": {"mean": 5}}, "workload.input_tokens.std is missing"),
        ({"input_tokens": {"value": 5, "alpha": 1}}, "workload.input_tokens.alpha does not belong to lengths of type"),
        ({"input_tokens": {"values": [1, 0]}}, "workload.input_tokens.values must be at least 1, got 0"),
        ({"input_tokens": {"vlaue": 5}}, "workload.input_tokens.vlaue is not a setting; did you mean"),
        (
            {"input_tokenz": 5},
            "workload.input_tokenz is not a setting of type synthetic; did you mean workload.input_t",
        ),
        ({"type": "sharegtp"}, "workload.type must be one of synthetic, sharegpt, "),
        ({"type": "sharegtp"}, "got sharegtp; did you mean sharegpt?"),
        (
            {"type": "synthetic", "path": "x"},
            "workload.path is not a setting of type synthetic; it belongs to type sha",
        ),
        (
            {"type": "prompts", "path": "x", "limits": 5},
            "workload.limits is not a setting of type prompts; did you mean",
        ),
        ({"type": "sharegpt"}, "workload.path is missing: give the file, or the url"),
        (
            {"path": "conversations.db"},
            "workload.type is missing, and does not follow from the name conversations.db: must be one of synthetic",
        ),
        (5, "workload must be settings by name such as type, input_tokens, output_tokens, got 5"),
        ({"pairs": ["300"]}, "workload.pairs[0] must be a pair of lengths such as 300:100, got 300"),
        ({"pairs": ["300:100"], "input_tokens": 5}, "workload.pairs replace input_tokens"),
    ],
)
def test_mistakes_name_the_field_and_not_the_union(workload: Any, found: str) -> None:
    assert any(found in each for each in mistakes(workload)), mistakes(workload)
    assert not any("type type" in each or ".type " in each.replace("workload.type ", "") for each in mistakes(workload))


@pytest.mark.parametrize(
    ("workload", "kind"),
    [
        ({}, "synthetic"),
        ({"output_tokens": None}, "synthetic"),
        ({"path": "data/ShareGPT_V3.json"}, "sharegpt"),
        ({"url": "https://host/dir/sharegpt.json?download=true"}, "sharegpt"),
        ({"path": "prompts.txt"}, "prompts"),
        ({"path": "x.csv"}, "table"),
        ({"repo": "owner/name"}, "huggingface"),
        ({"path": "mooncake_conversation_trace.jsonl"}, "mooncake"),
        ({"path": "AzureLLMInferenceTrace_code.csv"}, "azure"),
        ({"path": "BurstGPT_1.csv"}, "burstgpt"),
        ({"type": "trace", "path": "x.csv"}, "trace"),
    ],
)
def test_the_type_is_told_by_fields_and_names(workload: dict[str, Any], kind: str) -> None:
    plan = plan_from({"workload": workload})
    assert plan.workload.type == kind
    assert type(plan.workload) is TYPES[kind]
    assert plan_from(mapping_in(to_yaml(plan), "x")[0]) == plan == plan_from(plan.model_dump())
    SCHEMA.validate({"workload": workload})


def test_a_path_into_any_kind_can_be_set() -> None:
    plan = plan_from({}, ["workload.path=prompts.txt", "workload.limit=5"])
    assert (plan.workload.type, plan.workload.path, plan.workload.limit) == ("prompts", "prompts.txt", 5)
    plan = plan_from({"workload": {"type": "sharegpt", "path": "a.json"}}, ["workload.turns=pieces"])
    assert plan.workload.turns == "pieces"
    plan = plan_from({}, ["workload.turns.mean=3", "workload.turns.std=1"])
    assert plan.workload.turns.type == "normal"


def test_paths_know_every_kind() -> None:
    assert {"workload.path", "workload.input_tokens", "workload.window.start", "workload.prefix.groups"} <= set(
        known_paths()
    )
    assert kind_at(("workload", "pth")) is None
    assert meant(("workload", "pth"))[0] == "workload.path"
    kind = section_at(("workload",), {"workload": {"type": "sonnet"}})
    assert kind is TYPES["sonnet"]


def test_a_class_with_another_kind_of_workload_inherits_nothing_of_the_first() -> None:
    plan = plan_from(
        {
            "workload": {"input_tokens": 9, "output_tokens": 5},
            "traffic": [{"workload": {"path": "a.txt"}}, {"workload": {"input_tokens": 7}}],
        }
    )
    first, second = (each.workload for each in plan.classes)
    assert (first.type, first.output_tokens) == ("prompts", None)
    assert (second.input_tokens.value, second.output_tokens.value) == (7, 5)
    assert plan_from(mapping_in(to_yaml(plan), "x")[0]) == plan


@pytest.mark.parametrize(
    ("pair", "rate", "requests"),
    [((300, 100), 12.5, 2250), ((500, 200), 7.14, 1285), ((1000, 200), 4.17, 751), ((2000, 400), 2.08, 374)],
)
def test_a_rate_from_tokens_per_second_is_rounded_as_online_pairs_are(
    pair: tuple[int, int], rate: float, requests: int
) -> None:
    said = {
        "workload": {"input_tokens": pair[0], "output_tokens": pair[1]},
        "load": {"tokens_per_s": 5000},
        "stop": {"minutes": 3},
    }
    plan = plan_from(said)
    assert (plan.load.type, plan.load.rate, plan.stop.requests) == ("poisson", rate, requests)
    assert to_mapping(plan) == said | {"load": {"type": "poisson", "tokens_per_s": 5000}}
    assert plan_from(to_mapping(plan)) == plan == plan_from(plan.model_dump())
    assert plan_from(said, flags=None, overrides=["load.tokens_per_s=10k"]).load.rate == pytest.approx(
        2 * rate, abs=0.011
    )


def test_tokens_per_second_need_lengths() -> None:
    found = mistakes({"path": "a.txt"}, load={"tokens_per_s": 5})
    assert found == [
        "load.tokens_per_s needs lengths in the plan: workload.input_tokens and workload.output_tokens, or give a rate"
    ]
    assert mistakes({}, load={"tokens_per_s": 5, "rate": 3})[0].startswith("load.rate must be omitted, or match")
    assert mistakes({}, stop={"minutes": 3}) == ["stop.minutes counts requests of a rate, but load is concurrency"]


def test_classes_make_their_own_rate_of_tokens() -> None:
    plan = plan_from(
        {
            "load": {"tokens_per_s": 1000},
            "stop": {"minutes": 1},
            "traffic": [{"workload": {"pairs": ["300:200"]}}, {"workload": {"pairs": ["100:100", "600:200:3"]}}],
        }
    )
    assert [each.load.rate for each in plan.classes] == [2, round(1000 / 650, 2)]
    assert [each.stop.requests for each in plan.classes] == [120, 92]
    assert plan_from(mapping_in(to_yaml(plan), "x")[0]) == plan == plan_from(plan.model_dump())


def test_a_trace_is_replayed_unless_another_load_is_said() -> None:
    trace = {"type": "azure", "path": "a.csv"}
    plan = plan_from({"workload": trace})
    assert (plan.load.type, plan.stop.requests) == ("replay", None)
    assert plan_from({"workload": trace, "load": {"speed": 2}}).load.speed == 2
    closed = plan_from({"workload": trace, "load": {"concurrency": 8}})
    assert closed.load.type == "concurrency"
    for each in (plan, closed, plan_from({"traffic": [{"workload": trace}, {}]})):
        assert plan_from(mapping_in(to_yaml(each), "x")[0]) == each == plan_from(each.model_dump())
    assert mistakes({}, load={"type": "replay"}) == [
        "load.type must not be replay: a workload of type synthetic has no recorded times"
    ]


@pytest.mark.parametrize("written", ["10min-20min", {"start": "10min"}, {"start": 5, "end": 6}, "-5s", "5s-"])
def test_a_window_of_a_trace(written: Any) -> None:
    plan = plan_from({"workload": {"type": "azure", "path": "a", "window": written}})
    assert plan_from(mapping_in(to_yaml(plan), "x")[0]) == plan
    SCHEMA.validate({"workload": {"type": "azure", "path": "a", "window": written}})


def test_a_password_in_the_address_of_a_dataset_is_not_written() -> None:
    secret = {"url": "https://me:hunter2@host/sharegpt.json?token=hunter2"}
    plan = plan_from({"workload": secret, "traffic": [{}, {"workload": {"output_tokens": 5}}]})
    for text in (to_yaml(plan), to_yaml(plan, full=True)):
        assert "hunter2" not in text
        assert "host/sharegpt.json" in text
