"""Growing pieces of conversations: lengths, prefixes, groups, and that everything follows from the seed."""

import pytest

from inferometer.errors import PlanError
from inferometer.plan.reading import plan_from
from inferometer.plan.workloads.synthetic import ConversationPieces
from inferometer.workload.benchmark_prompts import PiecesTape, conversation_pieces
from inferometer.workload.session import Request, WorkloadContext


def tape_of(seed: int = 0, nonce: str = "n", **settings: object) -> PiecesTape:
    spec = ConversationPieces.model_validate({"prefix_header": "X-Prefix-ID", **settings})
    return conversation_pieces(spec, seed, 0, nonce)


def requests_of(tape: PiecesTape) -> list[Request]:
    return [tape(index).turns[0] for index in range(len(tape))]


def test_prompts_of_a_group_are_prefixes_of_one_another() -> None:
    groups: dict[str, list[str]] = {}
    for request in requests_of(tape_of(groups=40)):
        groups.setdefault(request.headers["X-Prefix-ID"], []).append(str(request.prompt))
    assert len(groups) == 40
    for prompts in groups.values():
        shorter, middle, longer = sorted(prompts, key=len)
        assert longer.startswith(f"{middle} ") and middle.startswith(f"{shorter} ")
    beginnings = {prompts[0][:100] for prompts in groups.values()}
    assert len(beginnings) == 40  # nothing is shared between groups


def test_lengths_are_those_of_the_plan() -> None:
    requests = requests_of(tape_of())
    assert len(requests) == 1002
    assert all(len(str(request.prompt).split()) == request.input_tokens for request in requests)
    assert all(1500 <= (request.input_tokens or 0) <= 8192 for request in requests)
    outputs = [request.output_tokens or 0 for request in requests]
    assert min(outputs) >= 10 and max(outputs) <= 200
    assert sum(outputs) / len(outputs) == pytest.approx(105, abs=6)


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_few_messages_still_make_as_many_different_pieces(pieces: int) -> None:
    tape = tape_of(groups=30, pieces=pieces, min_tokens=100, max_tokens=110)
    for group in range(30):
        lengths = tape.lengths(group)
        assert len(set(lengths)) == pieces
        assert lengths[0] >= 100 and lengths[-1] <= 110


def test_the_same_seed_and_nonce_make_the_same_tape_and_others_do_not() -> None:
    first, again, other = (requests_of(tape_of(seed, groups=5)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    fresh = requests_of(tape_of(1, nonce="another", groups=5))
    assert [request.input_tokens for request in fresh] == [request.input_tokens for request in first]
    assert all(a.prompt != b.prompt for a, b in zip(first, fresh, strict=True))


def test_what_the_model_cannot_hold_is_a_mistake_of_the_plan() -> None:
    with pytest.raises(PlanError, match="up to 8392 tokens, the model's context is 8192"):
        conversation_pieces(ConversationPieces(), 0, 0, "n", context=WorkloadContext(max_model_len=8192))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_tokens": 100, "max_tokens": 50}, "max_tokens must be at least min_tokens, 100, got 50"),
        ({"min_tokens": 100, "max_tokens": 101, "pieces": 3}, "pieces must have different lengths"),
        ({"prefix_header": "a b"}, "prefix_header is not a valid header name, got a b"),
    ],
)
def test_settings_that_disagree_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_from({"workload": {"type": "conversation_pieces", **settings}})


def test_generated_prefixes_carry_their_group_in_a_header() -> None:
    from inferometer.workload.session import workload_of

    prefix = {"tokens": 50, "suffix_tokens": 10, "groups": 4, "prompts": 3, "header": "X-Prefix-ID"}
    plan = plan_from({"workload": {"prefix": prefix}})
    workload = workload_of(plan.workload, 0, 0, "n")
    requests = [workload(index).turns[0] for index in range(12)]
    by_group: dict[str, set[str]] = {}
    for request in requests:
        by_group.setdefault(request.headers["X-Prefix-ID"], set()).add(" ".join(str(request.prompt).split()[:50]))
    assert len(by_group) == 4
    assert all(len(beginnings) == 1 for beginnings in by_group.values())
