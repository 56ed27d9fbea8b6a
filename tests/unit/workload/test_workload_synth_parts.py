"""The parts of generated sessions: pairs, shared prefixes, turns, models and images."""

import base64
import struct
import zlib
from collections import Counter

import numpy as np
import pytest

from inferometer.errors import PlanError
from inferometer.plan.model import Plan
from inferometer.plan.workloads.synthetic import Synthetic
from inferometer.workload.media import Picture, jpeg, pixels, png
from inferometer.workload.session import WorkloadContext, workload_of


def tape_of(seed=0, nonce="nonce", context=None, **fields):
    extra = () if context is None else (context,)
    return workload_of(Synthetic(**fields), seed, 0, nonce, *extra)


def prompts(tape, count):
    return [tape(index).turns[0].prompt.split() for index in range(count)]


def shared(first, second):
    """How many leading words two prompts have in common."""
    return next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def test_pairs_belong_together_in_their_proportions() -> None:
    tape = tape_of(pairs=["300:100:3", "20:5"])
    drawn = Counter((turn.input_tokens, turn.output_tokens) for i in range(2000) for turn in tape(i).turns)
    assert set(drawn) == {(300, 100), (20, 5)}
    assert drawn[300, 100] / 2000 == pytest.approx(0.75, abs=0.03)


def test_so_many_prompts_come_again() -> None:
    tape = tape_of(count=7)
    assert tape(0) == tape(7) == tape(70) != tape(1)


# -- shared beginnings -----------------------------------------------------------------------------------------


def test_groups_share_their_beginning_and_nothing_else() -> None:
    made = prompts(tape_of(input_tokens=60, prefix={"tokens": 40, "groups": 3}), 60)
    groups = Counter(tuple(words[:40]) for words in made)
    assert len(groups) == 3
    assert all(len(words) == 60 for words in made)
    assert max(shared(a, b) for n, a in enumerate(made) for b in made[:n]) in range(40, 45)


def test_a_suffix_has_a_length_of_its_own() -> None:
    tape = tape_of(prefix={"tokens": 40, "suffix_tokens": "10-20", "groups": 2})
    assert {turn.input_tokens for i in range(300) for turn in tape(i).turns} == set(range(50, 61))


def test_popular_groups_come_more_often() -> None:
    made = prompts(tape_of(input_tokens=20, prefix={"tokens": 16, "groups": 4, "zipf": 1.0}), 3000)
    counts = [count for _, count in Counter(tuple(words[:16]) for words in made).most_common()]
    wanted = np.array([1, 1 / 2, 1 / 3, 1 / 4])
    assert np.array(counts) / 3000 == pytest.approx(wanted / wanted.sum(), abs=0.03)


def test_groups_by_prompts_come_each_once_before_any_comes_again() -> None:
    made = [
        tuple(words)
        for words in prompts(tape_of(input_tokens=30, prefix={"tokens": 20, "groups": 5, "prompts": 4}), 40)
    ]
    assert len(set(made[:20])) == 20 and made[20:] == made[:20]
    assert set(Counter(words[:20] for words in made[:20]).values()) == {4}


def test_the_beginning_of_a_group_is_new_in_each_run() -> None:
    fields = {"input_tokens": 40, "prefix": {"tokens": 30}, "nonce_tokens": 8}
    first, again, other = (prompts(tape_of(nonce=nonce, **fields), 1)[0] for nonce in ("a", "a", "b"))
    assert first == again
    assert shared(first, other) < 8 and first[8:] == other[8:]


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.6, 0.95])
def test_a_hit_rate_is_the_share_of_tokens_that_are_primed(rate: float) -> None:
    tape = tape_of(input_tokens={"type": "lognormal", "mean": 400, "std": 200, "min": 30, "max": 2000},
                   prefix={"hit_rate": rate, "groups": 3})  # fmt: skip
    primed = [request.prompt.split() for request in tape.primes()]
    made = prompts(tape, 600)
    hits = [max(shared(words, each) for each in primed) // 16 * 16 for words in made]
    assert len(primed) == 3
    assert sum(hits) / sum(map(len, made)) == pytest.approx(rate, abs=0.01)


def test_with_a_length_given_a_hit_rate_is_reached_by_enough_prompts() -> None:
    tape = tape_of(input_tokens=300, prefix={"tokens": 200, "groups": 2, "hit_rate": 0.4})
    primed = [request.prompt.split() for request in tape.primes()]
    hits = [max(shared(words, each) for each in primed) // 16 * 16 for words in prompts(tape, 1500)]
    assert set(hits) == {0, 192}
    assert sum(hits) / (300 * 1500) == pytest.approx(0.4, abs=0.02)


def test_primes_ask_for_one_token_of_every_model() -> None:
    tape = tape_of(prefix={"hit_rate": 0.5, "groups": 2}, models={"base": 1, "lora": 1})
    assert [(each.output_tokens, each.body["model"]) for each in tape.primes()] == [(1, "base"), (1, "lora")] * 2
    assert list(tape_of().primes()) == []


@pytest.mark.parametrize(
    "workload, said",
    [
        ({"prefix": {}}, "tokens is missing: give the length"),
        ({"input_tokens": 100, "prefix": {"tokens": 200}}, "prefix.tokens must be less than the shortest prompt, 100"),
        ({"input_tokens": 100, "prefix": {"tokens": 50, "hit_rate": 0.8}}, "hit_rate cannot be reached"),
        ({"turns": 3, "prefix": {"hit_rate": 0.5}}, "hit_rate needs single turns"),
        ({"prefix": {"tokens": 9, "suffix_tokens": 9}, "input_tokens": 99}, "replace input_tokens"),
        ({"images": {}}, "images need api chat"),
    ],
)
def test_what_does_not_fit_together_is_a_mistake(workload, said: str):
    with pytest.raises(ValueError, match=said):
        Plan(workload=workload)


# -- turns -----------------------------------------------------------------------------------------------------


def test_turns_hold_what_was_said_and_share_the_live_answer() -> None:
    session = tape_of(input_tokens=20, output_tokens=5, turns=3, think="1s-2s")(4)
    assert session.live and len(session.turns) == 3
    assert [turn.input_tokens for turn in session.turns] == [20, 45, 70]
    assert [len(turn.prompt) for turn in session.turns] == [1, 3, 5]
    assert session.turns[0].think_s == 0 and all(1 <= turn.think_s <= 2 for turn in session.turns[1:])
    session.turns[1].prompt[1]["content"] = "the answer"
    assert session.turns[2].prompt[1]["content"] == "the answer"


def test_made_up_answers_have_the_asked_length() -> None:
    session = tape_of(input_tokens=20, output_tokens=5, turns=2, history="made")(0)
    assert not session.live
    assert len(session.turns[1].prompt[1]["content"].split()) == 5


def test_later_turns_have_the_length_of_the_suffix_or_their_own() -> None:
    shared = {"tokens": 100, "suffix_tokens": 10}
    turns = tape_of(prefix=shared, output_tokens=5, turns=3)(0).turns
    assert [turn.input_tokens for turn in turns] == [110, 125, 140]
    turns = tape_of(prefix=shared, output_tokens=5, turns=3, turn_tokens=2)(0).turns
    assert [turn.input_tokens for turn in turns] == [110, 117, 124]
    with pytest.raises(ValueError, match="turn_tokens belong to later turns"):
        tape_of(turn_tokens=2)
    with pytest.raises(ValueError, match="less than the shortest prompt, 100"):
        tape_of(input_tokens=100, prefix={"tokens": 100})


def test_turns_of_token_ids_continue_each_other() -> None:
    first, second = tape_of(input_tokens=20, output_tokens=5, turns=2, prompt_as="token_ids")(0).turns
    assert second.prompt[:20] == first.prompt
    assert len(second.prompt) == second.input_tokens == 45


def test_numbers_of_turns_are_drawn() -> None:
    tape = tape_of(turns=[1, 2, 5])
    assert {len(tape(index).turns) for index in range(100)} == {1, 2, 5}


# -- models ----------------------------------------------------------------------------------------------------


def test_models_are_asked_in_their_proportions() -> None:
    tape = tape_of(models={"base": 3, "lora": 1})
    asked = Counter(tape(index).turns[0].body["model"] for index in range(2000))
    assert asked["lora"] / 2000 == pytest.approx(0.25, abs=0.03)


def test_a_model_that_is_not_served_is_said_before_the_load() -> None:
    with pytest.raises(PlanError, match="does not serve lora, it serves base"):
        tape_of(models={"base": 1, "lora": 1}, context=WorkloadContext(models=("base",)))


@pytest.mark.parametrize(
    "fields, longest",
    [
        ({"input_tokens": 900, "output_tokens": 200}, 1100),
        ({"input_tokens": 300, "output_tokens": 50, "turns": 3}, 1050),
        ({"prefix": {"tokens": 500, "suffix_tokens": 500}, "output_tokens": 1}, 1001),
    ],
)
def test_a_prompt_longer_than_the_context_is_said_and_not_shortened(fields, longest: int):
    with pytest.raises(PlanError, match=f"up to {longest} tokens.* context is 1000"):
        tape_of(context=WorkloadContext(max_model_len=1000), **fields)
    tape_of(context=WorkloadContext(max_model_len=longest), **fields)


def test_sessions_that_end_at_a_full_context_fit_into_it() -> None:
    lengths = {"input_tokens": 300, "output_tokens": 50, "turns": 20}
    tape = tape_of(context=WorkloadContext(max_model_len=1000), max_context=1000, **lengths)
    assert {len(tape(i).turns) for i in range(5)} == {2}
    with pytest.raises(PlanError, match="up to 350 tokens"):  # the first turn is sent in any case
        tape_of(context=WorkloadContext(max_model_len=340), max_context=100, **lengths)


# -- images ----------------------------------------------------------------------------------------------------


def decoded_png(data):
    """Width, height and pixels, by the format's definition."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(kind + body)
        parts[kind], at = body, at + 12 + length
    width, height, *form = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert form == [8, 2, 0, 0, 0]
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


@pytest.mark.parametrize("content", ["noise", "gradient", "solid"])
def test_a_png_has_the_asked_size_and_pixels(content: str) -> None:
    spec = Picture(33, 20, "png", content)
    assert (decoded_png(png(spec, b"key")) == pixels(spec, b"key")).all()
    assert png(spec, b"key") != png(spec, b"other")


@pytest.mark.parametrize("size", [(8, 8), (33, 20), (1, 1)])
def test_a_jpeg_is_a_mosaic_of_the_image(size):
    spec = Picture(size[0], size[1], "jpeg", "noise")
    wanted = pixels(spec, b"key")[::8, ::8].mean(axis=2).astype(int).ravel().tolist()
    assert decoded_jpeg(jpeg(spec, b"key")) == (*size, wanted)


def decoded_jpeg(data):
    """Size and the grey level of each square: a decoder for what we write, and no more."""
    assert data[:2] == b"\xff\xd8" and data[-2:] == b"\xff\xd9"
    at, size = 2, (0, 0)
    while data[at + 1] != 0xDA:
        length = struct.unpack_from(">H", data, at + 2)[0]
        if data[at + 1] == 0xC0:
            size = struct.unpack_from(">HH", data, at + 5)[::-1]
        at += 2 + length
    at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    bits = "".join(f"{byte:08b}" for byte in data[at:-2].replace(b"\xff\x00", b"\xff"))
    codes = {f"{code:0{n}b}": length for length, (code, n) in enumerate(dc_codes())}
    levels, before, place = [], 128, 0
    for _ in range(-(-size[0] // 8) * -(-size[1] // 8)):
        end = next(end for end in range(place + 2, place + 10) if bits[place:end] in codes)
        length = codes[bits[place:end]]
        value = int(bits[end : end + length] or "0", 2)
        before += value if not length or value >> (length - 1) else value - (1 << length) + 1
        levels.append(before)
        place = end + length + 1  # and the bit that ends the block
    return (*size, levels)


def dc_codes():
    """Huffman codes from the counts of the table that stands in the file (ITU T.81, annex C)."""
    code, found = 0, []
    for bits, count in enumerate([0, 1, 5, 1, 1, 1, 1, 1, 1], 1):
        for _ in range(count):
            found.append((code, bits))
            code += 1
        code <<= 1
    return found


def test_images_stand_beside_the_text_and_no_two_are_equal() -> None:
    tape = tape_of(input_tokens=10, images={"count": 2, "width": 16, "height": 16})
    urls = []
    for index in range(3):
        (message,) = tape(index).turns[0].prompt
        *images, text = message["content"]
        assert text["type"] == "text" and len(text["text"].split()) == 10
        urls += [image["image_url"]["url"] for image in images]
    assert len(set(urls)) == 6
    assert decoded_png(base64.b64decode(urls[0].removeprefix("data:image/png;base64,"))).shape == (16, 16, 3)
    assert tape(0).turns[0].input_tokens is None  # what an image counts for only the server knows
