"""Tokenizers by name: every kind of file is detected by its content, and missing files are reported with a remedy."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

from inferometer.errors import MissingExtra, PlanError, TargetError
from inferometer.workload import tokenizers
from inferometer.workload.draws import numbers
from inferometer.workload.session import NOWHERE, WorkloadContext
from inferometer.workload.tokenizers import ServerTokenizer, count_tokens, tokenizer_named
from inferometer.workload.writer import lexicon_for, words, writer_of
from receivers import receiving


def ranks():
    """Bytes, and our words with a space before them, built up from pairs as merges need it."""
    found = {bytes([each]): each for each in range(256)}
    for word in words()[:200]:
        for whole in (word.encode(), b" " + word.encode()):
            for end in range(2, len(whole) + 1):
                found.setdefault(whole[:end], len(found))
    return found


def written_ranks(path):
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks().items()))
    return path


@pytest.fixture
def tekken(tmp_path: Path) -> Path:
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode()} for token, rank in ranks().items()]
    config = {"pattern": r"[^\r\n\p{L}\p{N}]?\p{L}+|\s+", "default_num_special_tokens": 100}
    config["default_vocab_size"] = len(vocab) + 100
    (tmp_path / "tekken.json").write_text(json.dumps({"config": config, "vocab": vocab}))
    return tmp_path


@pytest.fixture(scope="module")
def sentencepiece_file(tmp_path_factory) -> Path:
    import sentencepiece

    model = io.BytesIO()
    text = [" ".join(words()[start : start + 16]) for start in range(0, len(words()), 16)] * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, vocab_size=1200, model_type="bpe", minloglevel=2
    )
    path = tmp_path_factory.mktemp("model") / "tokenizer.model"
    path.write_bytes(model.getvalue())
    return path


def test_mistrals_file_shifts_ids_behind_its_special_tokens(tekken: Path) -> None:
    tokenizer = tokenizer_named(str(tekken))
    ids = tokenizer.encode(" ".join(words()[:3]))
    assert len(ids) == 3 and min(ids) >= 100
    assert tokenizer.decode(ids) == " ".join(words()[:3])
    assert tokenizer.added == 1 and count_tokens(tokenizer, words()[0]) == 2


def test_llama_3s_model_file_is_one_of_ranks(tmp_path: Path) -> None:
    tokenizer = tokenizer_named(str(written_ranks(tmp_path / "tokenizer.model")))
    assert (len(tokenizer.encode(words()[0])), tokenizer.added) == (1, 1)


def test_a_file_of_sentencepiece_is_exact_with_its_first_token(sentencepiece_file: Path) -> None:
    writer = writer_of("text", 0, str(sentencepiece_file.parent), NOWHERE)
    tokenizer = tokenizer_named(str(sentencepiece_file))
    for tokens in (2, 3, 50, 400):
        text = writer.write(numbers(b"%d" % tokens, writer.room(tokens)))
        assert count_tokens(tokenizer, text) == tokens  # type: ignore[arg-type]
    assert writer.added == 1


def test_a_tokenizer_with_few_whole_words_is_mended_prompt_by_prompt(tmp_path: Path) -> None:
    letters = {bytes([each]): each for each in range(256)}
    path = tmp_path / "letters.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in letters.items()))
    notes: list[Any] = []
    writer = writer_of("text", 0, str(path), WorkloadContext(note=notes.append))
    assert "every prompt is counted and corrected" in notes[0]
    for tokens in (1, 2, 9, 100):
        assert len(writer.write(numbers(b"x", tokens)).encode()) == tokens


def test_words_that_are_not_single_are_left_out() -> None:
    odd = set(words()[::3])
    lexicon = lexicon_for(lambda text: 3 + sum(2 if word in odd else 1 for word in text.split()))
    assert lexicon is not None and lexicon.added == 3
    assert set(lexicon.rest) == set(words()) - odd and not set(lexicon.first) & odd


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "a/b/c"])
def test_a_folder_that_is_not_there_is_said(name: str) -> None:
    with pytest.raises(PlanError, match="there is no file or folder") as raised:
        tokenizer_named(name)
    assert "server" in (raised.value.hint or "")


def test_a_folder_without_a_tokenizer_is_said(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"has none of tokenizer.json, tekken.json"):
        tokenizer_named(str(tmp_path))


@pytest.mark.parametrize(
    "file, content", [("tokenizer.json", b"{}"), ("tekken.json", b"{}"), ("x.model", b"\x0anonsense")]
)
def test_a_broken_file_is_named(tmp_path: Path, file: str, content: bytes) -> None:
    path = tmp_path / file
    path.write_bytes(content)
    with pytest.raises(PlanError, match=f"{file} cannot be read"):
        tokenizer_named(str(path))


def test_ranks_that_the_package_cannot_take_are_a_mistake_of_the_file(tmp_path: Path) -> None:
    """It panics: what it raises is no Exception."""
    lines = written_ranks(tmp_path / "whole.tiktoken").read_bytes().splitlines(keepends=True)
    doubled, lacking = tmp_path / "doubled.tiktoken", tmp_path / "lacking.tiktoken"
    doubled.write_bytes(b"".join(lines[:-1]) + lines[-1].replace(b" %d\n" % (len(lines) - 1), b" 7\n"))
    lacking.write_bytes(b"".join(lines[:32] + lines[33:]))
    with pytest.raises(PlanError, match=r"doubled.tiktoken cannot be used: .*equal length"):
        tokenizer_named(str(doubled))
    with pytest.raises(PlanError, match=r"lacking.tiktoken cannot be read: it has no token for the byte 0x20"):
        tokenizer_named(str(lacking))


@pytest.mark.parametrize("known, said", [(False, "and there is no network"), (True, "cannot be downloaded: no route")])
def test_without_a_network_a_name_on_the_hub_is_said_with_a_remedy(monkeypatch, known: bool, said: str):
    import huggingface_hub

    def refuse(*_arguments, **_options):
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr(tokenizers, "_is_reachable", lambda _endpoint: known)
    with pytest.raises(PlanError, match=rf"someone/some-model is .*not in the hub's cache.* {said}"):
        tokenizer_named("someone/some-model")


def test_a_model_in_the_hubs_cache_needs_no_network(monkeypatch, tmp_path: Path):
    import huggingface_hub

    file = str(written_ranks(tmp_path / "qwen.tiktoken"))
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda _name, wanted: file if "qwen" in wanted else None
    )
    assert tokenizer_named("someone/cached-model").name == file


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch):
    def missing(_name):
        raise ImportError

    monkeypatch.setattr(tokenizers, "import_module", missing)
    with pytest.raises(MissingExtra, match="extra 'tokenizers'"):
        tokenizer_named(str(written_ranks(tmp_path / "some.tiktoken")))


def test_a_server_that_is_not_there_is_named() -> None:
    context = WorkloadContext(url="http://127.0.0.1:1", model="m")
    with pytest.raises(TargetError, match=r"http://127.0.0.1:1: /tokenize cannot be used"):
        ServerTokenizer(context).count("a")


def test_a_proxy_in_front_of_the_server_gets_its_key() -> None:
    with receiving() as proxy:
        context = WorkloadContext(url="http://model.test", model="m", proxy=proxy.url.replace("//", "//me:pass@"))
        with pytest.raises(TargetError, match="not JSON"), ServerTokenizer(context) as tokenizer:
            tokenizer.count("a b c")
    assert proxy.messages == [{"model": "m", "prompt": "a b c"}]
    assert proxy.headers[0]["Proxy-Authorization"] == "Basic bWU6cGFzcw=="


def test_without_a_server_to_ask_lengths_are_about_right() -> None:
    notes: list[Any] = []
    writer = writer_of("text", 0, "server", WorkloadContext(note=notes.append))
    assert not writer.exact and "no server is available" in notes[0]
    assert len(writer.write(numbers(b"", 7)).split()) == 7
