"""Batch sizes and lengths in text form, with all errors before an engine starts."""

import pytest

from inferometer.errors import PlanError
from inferometer.plan.offline import (
    BatchShape,
    EngineChoice,
    LatencyPlan,
    ThroughputPlan,
    bs_range,
    check_context,
    reread,
    settings,
    sizes,
    written,
)

ON = EngineChoice("simulator")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", (8,)),
        ("1-4", (1, 2, 3, 4)),
        ("1-64:8", (1, 9, 17, 25, 33, 41, 49, 57)),
        ("8-64:8", (8, 16, 24, 32, 40, 48, 56, 64)),
        ("1,2,4", (1, 2, 4)),
        ("1, 4-6, 5, 2k", (1, 4, 5, 6, 2000)),
        ("3-3", (3,)),
    ],
)
def test_sizes(text: str, expected):
    assert sizes(text, "--batch-sizes") == expected


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("8-1", "must end where it begins or later, got 8-1"),
        ("1-8:0", "must have a step of at least 1"),
        ("0", "must be at least 1, got 0"),
        ("0-4", "must be at least 1, got 0-4"),
        ("", "must be sizes such as"),
        ("many", "must be sizes such as"),
        ("1..8", "must be sizes such as"),
        ("1-1000000", "must be at most 4096 sizes"),
        ("1.5", "must be sizes such as"),
    ],
)
def test_sizes_that_are_none(text: str, wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        sizes(text, "--batch-sizes")


def test_the_range_of_three_flags() -> None:
    assert bs_range(None, None, None) is None
    assert bs_range(1, 8, None) == (1, 2, 3, 4, 5, 6, 7, 8)
    assert bs_range(2, 9, 3) == (2, 5, 8)
    assert bs_range(4, 4, 7) == (4,)


@pytest.mark.parametrize(
    ("start", "end", "step", "wrong"),
    [
        (8, 1, None, "--bs-end: must be at least --bs-start, 8, got 1"),
        (1, 8, 0, "--bs-step: must be at least 1, got 0"),
        (None, 8, None, "--bs-start: is missing"),
        (1, None, None, "--bs-end: is missing"),
        (0, 8, 1, "--bs-start: must be at least 1"),
    ],
)
def test_a_range_that_is_none(start: int | None, end: int | None, step: int | None, wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        bs_range(start, end, step)


def test_settings_are_read_as_yaml() -> None:
    given = ("max-model-len=4096", "--dtype=float16", "enforce_eager=true", "rope={a: 1}", "name=a=b")
    assert settings(given) == {
        "max_model_len": 4096,
        "dtype": "float16",
        "enforce_eager": True,
        "rope": {"a": 1},
        "name": "a=b",
    }
    assert settings(("step_time.jitter=0.1", "step_time.base=1ms")) == {"step_time": {"jitter": 0.1, "base": "1ms"}}
    for wrong in ("dtype", "=3", "a..b=3"):
        with pytest.raises(PlanError, match="must be key=value"):
            settings((wrong,))
    with pytest.raises(PlanError, match="is not a group of settings"):
        settings(("a=1", "a.b=2"))


def test_every_mistake_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        LatencyPlan(EngineChoice("simulator", n=0), (), iters=0, warmup=-1)
    assert [mistake.split(":")[0] for mistake in caught.value.mistakes] == [
        "--iters",
        "--warmup",
        "--batch-sizes",
        "--n",
    ]
    with pytest.raises(PlanError, match="--num-prompts"):
        ThroughputPlan(ON, {}, num_prompts=0)


def test_shapes_and_names() -> None:
    plain = LatencyPlan(ON, (1, 8))
    assert [plain.name_of(shape) for shape in plain.shapes] == ["latency_bs1", "latency_bs8"]
    several = LatencyPlan(ON, (1, 8), (512, 1024), (128,))
    assert several.shapes == [
        BatchShape(1, 512, 128),
        BatchShape(8, 512, 128),
        BatchShape(1, 1024, 128),
        BatchShape(8, 1024, 128),
    ]
    assert several.name_of(several.shapes[1]) == "latency_bs8_in512_out128"
    assert len({several.name_of(shape) for shape in several.shapes}) == 4


def test_a_context_that_is_too_short() -> None:
    plan = LatencyPlan(ON, (1,), (100, 900), (128,))
    check_context(plan, 1028, "the model's context")
    check_context(plan, None, "the model's context")
    with pytest.raises(PlanError, match=r"must be at most 1027, the model's context, got 900 \+ 128"):
        check_context(plan, 1027, "the model's context")


def test_the_plan_as_it_is_kept() -> None:
    on = EngineChoice("vllm", "m", seed=3, n=2, profile="traces", args={"hf_token": "hf_abcdefghijk", "dtype": "auto"})
    kept = written(LatencyPlan(on, (1, 2)))
    assert kept["engine"] == {"type": "vllm", "args": {"hf_token": "***", "dtype": "auto"}}
    assert (kept["model"], kept["seed"], kept["n"], kept["batch_sizes"]) == ("m", 3, 2, [1, 2])
    assert not {"profile", "on", "beam_search", "detokenize"} & kept.keys()


def test_a_kept_plan_can_be_done_again() -> None:
    on = EngineChoice("vllm", "m", seed=3, n=2, beam_search=True, args={"dtype": "auto"})
    for plan in (LatencyPlan(on, (1, 2), (8, 16), iters=7), ThroughputPlan(on, {"type": "synthetic"}, repeats=3)):
        assert reread(written(plan)) == plan
