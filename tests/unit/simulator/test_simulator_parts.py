"""Tokens, faults, settings, bodies, histograms and the truth log."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from pydantic import ValidationError

from inferometer.errors import PlanError
from inferometer.simulator.answers import TruthLog, TruthOfRequest
from inferometer.simulator.dialects import Answering, TokenFrames, chunk
from inferometer.simulator.metrics import BucketCounts
from inferometer.simulator.requests import Generation, RefusalError, read_question, sequence_for
from inferometer.simulator.settings import NAMES, Faults, FaultShares, SimulatorSettings, parse_faults, settings_from
from inferometer.simulator.tokens import answer_text, answer_words, fingerprint, natural_length, tape, tokens_of
from inferometer.workload.session import TokenText


def test_a_token_is_a_word_or_an_id() -> None:
    assert tokens_of("one two\n three") == tokens_of(TokenText.of(["one", "two", "three"])) == ("one", "two", "three")
    assert tokens_of([5, 6, 7]) == (5, 6, 7)
    parts: list[dict[str, Any]] = [{"type": "text", "text": "a b"}, {"type": "image_url"}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": parts}]
    assert len(tokens_of(messages)) == 2 + 3 + 2


def test_a_chat_turn_with_its_answer_is_the_beginning_of_the_next() -> None:
    first: list[dict[str, Any]] = [{"role": "user", "content": "hello there"}]
    answer = answer_words(fingerprint(tokens_of(first), 0), 12)
    second = [*first, {"role": "assistant", "content": answer_text(answer)}, {"role": "user", "content": "more"}]
    before = tokens_of(first) + answer
    assert tokens_of(second)[: len(before)] == before


def test_answers_depend_on_the_prompt_and_seed_only() -> None:
    assert fingerprint(["a", "b"], 1) == fingerprint(["a", "b"], 1) != fingerprint(["a", "b"], 2)
    assert answer_words(70_000, 10) == answer_words(70_000, 100)[:10]
    assert len(answer_words(len(tape()) - 3, 200_000)) == 200_000
    assert any(not word.isascii() for word in answer_words(0, 50))
    assert not any(character in word for word in set(tape()) for character in ' "\\')


def test_natural_lengths_have_the_asked_mean() -> None:
    lengths = [natural_length(number, 100) for number in range(4000)]
    assert min(lengths) >= 1
    assert np.mean(lengths) == pytest.approx(100, rel=0.1)


def test_lengths_are_bounded_as_asked() -> None:
    settings = SimulatorSettings(mean_output_tokens=50, max_model_len=1000)
    prompt = tokens_of("some words to begin with")
    exact, reason = sequence_for(Generation(prompt, max_tokens=77, ignore_eos=True), settings)
    assert (len(exact.answer), reason) == (77, "length")
    free, reason = sequence_for(Generation(prompt), settings)
    assert (len(free.answer) < 995) == (reason == "stop")
    least, _ = sequence_for(Generation(prompt, min_tokens=900), settings)
    assert len(least.answer) >= 900
    everything, reason = sequence_for(Generation(prompt, ignore_eos=True), settings)
    assert (len(everything.answer), reason) == (995, "length")


def test_faults_are_read_as_written() -> None:
    faults = parse_faults("status=429, retry-after=2s")
    assert (faults.status, faults.retry_after_s) == (429, 2.0)
    assert parse_faults("stall=200ms").stall_s == pytest.approx(0.2)
    assert parse_faults("") == Faults()
    assert all(parse_faults(name) != Faults() for name in NAMES)
    with pytest.raises(ValueError, match="known: status"):
        parse_faults("explode")


def test_shares_of_faults_are_kept_and_repeatable() -> None:
    shares = FaultShares(shares={"cut=2": 0.2, "status=503": 0.1}, seed=1)
    draw, again = shares.drawer(), shares.drawer()
    drawn = [draw() for _ in range(5000)]
    assert drawn[:100] == [again() for _ in range(100)]
    assert sum(each.cut == 2 for each in drawn) == pytest.approx(1000, rel=0.15)
    assert sum(each.status == 503 for each in drawn) == pytest.approx(500, rel=0.2)


@pytest.mark.parametrize(
    "settings",
    [
        {"faults": {"shares": {"explode": 0.1}}},
        {"faults": {"shares": {"cut": 0.7, "stall": 0.7}}},
        {"max_batched_tokens": 10, "max_sequences": 20},
        {"max_model_len": "2k", "blocks": 10},
        {"sped": 2},
    ],
)
def test_impossible_settings_are_mistakes(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SimulatorSettings.model_validate(settings)


def test_settings_are_read_as_people_write_them() -> None:
    settings = SimulatorSettings.model_validate({"frontend": "2ms", "blocks": "1k", "speed": 2, "max_model_len": "4k"})
    assert (settings.frontend_ns, settings.blocks) == (1_000_000, 1000)
    assert settings.build_step_time().base_s == pytest.approx(4.75e-3 / 2)


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("continuous", [False, True])
def test_frames_from_a_template_are_what_encoding_gives(chat: bool, continuous: bool) -> None:
    answering = Answering(chat, "cmpl-1", "m", 7, include_usage=True, continuous_usage=continuous)
    frames = TokenFrames(answering, 2)
    for word, made in (("mä", 1), ("x", 12345)):
        assert frames.frame(word.encode(), made) == chunk(answering.token_event(2, f" {word}", made, None))


def test_events_have_the_fields_of_vllm_in_its_order() -> None:
    answering = Answering(False, "cmpl-8cd4", "llama", 8)
    answering.created = 1794705359
    assert answering.token_event(0, "onquer", 16, "length") == (
        b'data: {"id":"cmpl-8cd4","object":"text_completion","created":1794705359,"model":"llama","choices":[{'
        b'"index":0,"text":"onquer","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,'
        b'"token_ids":null}]}\n\n'
    )
    chat = Answering(True, "chatcmpl-8181", "llama", 13, continuous_usage=True)
    chat.created = 1794705359
    assert chat.role_event(0) == (
        b'data: {"id":"chatcmpl-8181","object":"chat.completion.chunk","created":1794705359,"model":"llama","choices":'
        b'[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":'
        b'{"prompt_tokens":13,"total_tokens":13,"completion_tokens":0},"prompt_token_ids":null,"prompt_text":null}\n\n'
    )
    assert chat.token_event(0, "chy", 16, "length").endswith(
        b'"choices":[{"index":0,"delta":{"content":"chy"},"logprobs":null,"finish_reason":"length","stop_reason":null,'
        b'"token_ids":null}],"usage":{"prompt_tokens":13,"total_tokens":29,"completion_tokens":16}}\n\n'
    )


@pytest.mark.parametrize(
    ("body", "chat", "status", "param"),
    [
        (b"{", False, 400, None),
        (b"[]", False, 400, None),
        (b'{"prompt": 5}', False, 400, "prompt"),
        (b'{"prompt": []}', False, 400, "prompt"),
        (b'{"prompt": ""}', False, 400, "prompt"),
        (b'{"prompt": "a", "max_tokens": "x"}', False, 400, "max_tokens"),
        (b'{"prompt": "a", "max_tokens": 0}', False, 400, "max_tokens"),
        (b'{"prompt": "a", "max_tokens": 100000}', False, 400, "max_tokens"),
        (b'{"prompt": "a b c", "max_tokens": 8190}', False, 400, "input_tokens"),
        (b'{"prompt": "a", "stream_options": {"include_usage": true}}', False, 400, "stream_options"),
        (b'{"prompt": "a", "model": "nope"}', False, 404, "model"),
        (b'{"prompt": "a"}', True, 400, "messages"),
    ],
)
def test_bad_bodies_are_refused(body: bytes, chat: bool, status: int, param: str | None) -> None:
    with pytest.raises(RefusalError) as refusal:
        read_question(body, chat, SimulatorSettings())
    assert (refusal.value.status, refusal.value.param) == (status, param)


def test_histograms_count_up_to_and_including_the_bound() -> None:
    histogram = BucketCounts((1, 2, 5))
    histogram.observe(1)
    histogram.observe(3, times=4)
    histogram.observe_all(np.array([2.0, 9.0]))
    assert histogram.buckets() == ([("1.0", 1), ("2.0", 2), ("5.0", 6), ("+Inf", 7)], 24.0)


def test_the_truth_log_forgets_the_oldest_and_can_be_read_both_ways(tmp_path: Path) -> None:
    log = TruthLog(most_events=5)
    for number in range(4):
        request = TruthOfRequest(f"r{number}", received_at=number)
        log.add(request)
        request.written_at.extend([10 * number, 10 * number + 1])
        log.ended(request, "ok")
    log.stepped(1000, 2000)
    assert [each.id for each in log.requests] == ["r2", "r3"]
    data = orjson.loads(log.to_json())
    assert data["requests"][0]["written_at"] == [20, 21]
    assert data["lateness"]["first_write_s"]["max"] == pytest.approx(1e-6)
    log.write(tmp_path / "truth.npz")
    columns = np.load(io.BytesIO((tmp_path / "truth.npz").read_bytes()))
    assert columns["written_at"][columns["offsets"][1] :].tolist() == [30, 31]
    assert columns["id"].tolist() == ["r2", "r3"]


def test_an_empty_truth_log_can_be_written(tmp_path: Path) -> None:
    TruthLog(5).write(tmp_path / "truth.npz")
    assert orjson.loads(TruthLog(5).to_json())["requests"] == []
    assert SimpleNamespace(**np.load(tmp_path / "truth.npz")).offsets.tolist() == [0]


@pytest.mark.parametrize(
    ("args", "mistake"),
    [
        (
            {"faults": {"shares": {"cut=5": 2}}},
            "server.args.faults: the share of 'cut=5' must be between 0 and 1, got 2",
        ),
        ({"faults": 5}, "server.args.faults must be settings by name, got 5"),
        ({"blocks": "x"}, "server.args.blocks must be a whole number such as 300, 2k or 4Ki, got x"),
        (
            {"max_model_len": 10**9},
            "server.args: max_model_len 1000000000 does not fit into the cache of 56916 blocks of 16 tokens",
        ),
    ],
)
def test_mistakes_in_settings_read_as_sentences(args: dict[str, Any], mistake: str) -> None:
    with pytest.raises(PlanError) as caught:
        settings_from(args)
    assert caught.value.mistakes == [mistake]
