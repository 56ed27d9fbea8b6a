"""Foreign files are parsed within bounds: any file gives a value or an error with its position."""

import gzip
import os
import time
from pathlib import Path

import pytest

from inferometer.documents import files
from inferometer.documents.files import file_bytes, text_in, unpacked
from inferometer.documents.json_text import RefusedError, json_value
from inferometer.documents.yaml_text import yaml_value
from inferometer.errors import DataError, PlanError, TargetError
from inferometer.exchange.importing.importer import read_result
from inferometer.plan.fields import MOST_TOKENS
from inferometer.plan.reading import plan_from, read_plan
from inferometer.plan.workloads.recorded import Otel
from inferometer.target.startup import read_startup
from inferometer.wire.origin import tls_context
from inferometer.workload import files as packed
from inferometer.workload.files import local_file
from inferometer.workload.otel import documents
from inferometer.workload.tokenizers import tokenizer_named

BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
)
CHAIN = "\n".join(
    [f"a0: &a0 {'[' * 90}{']' * 90}"] + [f"a{n}: &a{n} {'[' * 90}*a{n - 1}{']' * 90}" for n in range(1, 9)]
)


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        (f"a: 1\nb: {'9' * 400}", (2, 4), "400 digits is beyond 64 bits"),
        ("a: 9223372036854775808", (1, 4), "beyond 64 bits"),
        ("a: 0xFFFFFFFFFFFFFFFFFF", (1, 4), "beyond 64 bits"),
        ("a: &x [1, *x]", (1, 11), "part of itself"),
        ("a: &x {b: {c: *x}}", (1, 15), "part of itself"),
        ("a: *x", (1, 4), "no anchor"),
        (BOMB, (7, 20), "more than 4,000,000 values"),
        (CHAIN, (2, 99), "deeper than 100"),
        ("[" * 100_000, (1, 101), "deeper than 100"),
        ("- " * 5000 + "x", (1, 201), "deeper than 100"),
        ("a: !!binary YQ==", (1, 4), "tag !!binary has no meaning here"),
        ("a: !!timestamp 2024-01-01", (1, 4), "tag !!timestamp"),
        ("a: !mine {b: 1}", (1, 4), "tag !mine"),
        ("a: !!int x", (1, 4), "x does not fit its tag, !!int"),
        ("? {a: 1}\n: 2", (1, 3), "a key must be a single value"),
        ("a: {<<: 1}", (1, None), "<< must be followed by a mapping"),
        ("a: 1\nb: \x1b[2J", (2, 4), "U+001B"),
        ("a: 1\n---\nb: 2", (2, 1), "single document"),
    ],
)
def test_yaml_that_is_refused(text: str, place: tuple[int, int | None], why: str) -> None:
    with pytest.raises(RefusedError) as caught:
        yaml_value(text)
    assert why in caught.value.text
    assert (caught.value.line, caught.value.column) == place


def test_yaml_is_that_of_version_1_2() -> None:
    text = "[no, on, 010, 0o10, 0x10, 1_000, 1e3, 1:30, 2024-01-01, .inf, ~, 'x', !!str 1, true]"
    assert yaml_value(text)[0] == [
        *("no", "on", 10, 8, 16, 1000, 1000.0, "1:30", "2024-01-01", float("inf"), None, "x", "1", True),
    ]
    assert yaml_value("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\nc: {<<: [*x, {r: 4}]}")[0] == {
        "a": {"p": 1, "q": 2},
        "b": {"p": 1, "q": 3},
        "c": {"p": 1, "q": 2, "r": 4},
    }
    assert yaml_value("a: 1\nb: 2\na: 3") == ({"a": 3, "b": 2}, ["a is given twice, on lines 1 and 3"])


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ('{"a": 1,\n "b": ' + "9" * 400 + "}", (2, 7), "400 digits is beyond 64 bits"),
        ('{"a": ' + "9" * 5000 + "}", (1, 7), "5,000 digits"),
        ("[" * 101 + "]" * 101, (None, None), "deeper than 100"),
        ("[" * 500_000, (None, None), "deeper than 100"),
        ('{"a": [1, 2', (1, 12), "it ends early"),
        ('{"a": "x', (1, 7), "it ends early"),
        ("{'a': 1}", (1, 2), "expecting property name"),
    ],
)
def test_json_that_is_refused(text: str, place: tuple[int | None, int | None], why: str) -> None:
    with pytest.raises(RefusedError) as caught:
        json_value(text)
    assert why in caught.value.text
    assert (caught.value.line, caught.value.column) == place


def test_brackets_in_the_texts_of_json_have_no_depth() -> None:
    assert json_value('{"a": "' + "[" * 500 + '\\"{"}')[0] == {"a": "[" * 500 + '"{'}
    assert json_value('{"a": 1, "a": 2}') == ({"a": 2}, ["a"])


def test_text_in_every_encoding() -> None:
    assert text_in("a: µ".encode("utf-8-sig")) == text_in("a: µ".encode("utf-16")) == text_in("a: µ".encode()) == "a: µ"
    for content, why in (
        (b"a: 1\nb: \xff\n", "line 2: is not text in UTF-8"),
        (b"a: 1\n\nb: \x00\n", "line 3: is not text: it contains a zero byte"),
        (b"\x1f\x8b\x08\xff", "is not text but gzip"),
        (b"\xff\xfea", "is not text in UTF-8 or UTF-16"),
    ):
        with pytest.raises(RefusedError) as caught:
            text_in(content)
        assert caught.value.sentence == why


def test_no_file_holds_us_or_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SILENCE_S", 0.2)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 2000)
    for path, why in (
        (Path("/dev/zero"), "does not end"),
        (tmp_path / "pipe", "sent nothing"),
        (tmp_path / "large", "0.0 MiB"),
    ):
        with pytest.raises(RefusedError, match=why):
            file_bytes(path, 1000)
    with pytest.raises(PlanError, match="is a folder"):
        read_plan(tmp_path)
    with pytest.raises(PlanError, match="cannot be the name of a file"):
        read_plan("a\0b.yaml")


@pytest.mark.parametrize(
    "workload",
    [
        {"input_tokens": {"alpha": 1.1, "max": 10**12}},
        {"input_tokens": {"alpha": 1e9, "max": 100}},
        {"input_tokens": {"type": "lognormal", "mean": 1, "std": 10**6}},
        {"input_tokens": {"mean": 1e300, "std": 1}},
        {"input_tokens": "1-1e15"},
        {"input_tokens": 10**15},
        {"input_tokens": [1, 10**15]},
        {"input_tokens": {"parts": [{"alpha": 2, "max": 10**12}]}},
        {"turns": 10**12},
        {"prefix": {"tokens": 8, "groups": 10**12, "zipf": 1}},
        {"images": {"count": 1000, "width": 16384, "height": 16384}},
        {"pairs": ["1e15:1"]},
        {"nonce_tokens": 10**12},
    ],
)
def test_absurd_workloads_are_mistakes_of_the_plan(workload: dict[str, object]) -> None:
    begun_at = time.monotonic()
    with pytest.raises(PlanError, match=r"must (be|have) at most"):
        plan_from({"workload": workload, "target": {"api": "chat"}})
    assert time.monotonic() - begun_at < 10


@pytest.mark.parametrize(
    "mapping",
    [
        {"stop": {"requests": 10**18}},
        {"stop": {"duration": "1e9d"}},
        {"load": {"rate": 1e300}},
        {"load": {"tokens_per_s": 1e300}},
        {"load": {"type": "gamma", "rate": 1, "cv": 1e9}},
        {"load": {"rate": 1, "max_concurrency": 10**15}},
        {"workers": 10**9, "load": {"rate": 1}},
        {"sampling": {"temperature": 1e100}},
        {"target": {"timeout": {"request": 1e300}}},
    ],
)
def test_numbers_of_a_plan_have_bounds(mapping: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=r"must be at most [0-9,]+d?, got"):
        plan_from(mapping)


def test_what_json_cannot_say_is_not_sent() -> None:
    with pytest.raises(PlanError, match=r"sampling.extra must not hold .inf or .nan"):
        plan_from({"sampling": {"extra": {"a": [{"b": float("nan")}]}}})


def test_the_longest_prompt_is_allowed() -> None:
    assert plan_from({"workload": {"input_tokens": MOST_TOKENS}}).workload.mean_input == MOST_TOKENS


def test_twenty_thousand_classes_take_seconds(tmp_path: Path) -> None:
    """Linear: two thousand here, with a generous limit that a quadratic reader does not keep."""
    rows = [f"- {{name: c{n}, workload: {{input_tokens: {n + 1}}}, load: {{rate: -1}}}}" for n in range(2000)]
    (tmp_path / "plan.yaml").write_text("traffic:\n" + "\n".join(rows))
    begun_at = time.monotonic()
    with pytest.raises(PlanError) as caught:
        read_plan(tmp_path / "plan.yaml")
    assert len(caught.value.mistakes) == 2000
    assert time.monotonic() - begun_at < 60


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_plans_in_utf_16_and_gzip_are_the_plain_ones(tmp_path: Path, encoding: str) -> None:
    text = "name: µ\ntarget: {url: http://127.0.0.1:9}\nload: {type: constant, rate: 2}\n"
    (tmp_path / "plain.yaml").write_text(text, "utf-8")
    (tmp_path / "plan.yaml").write_bytes(text.encode(encoding))
    (tmp_path / "plan.yaml.gz").write_bytes(gzip.compress(text.encode(encoding)))
    for name in ("plan.yaml", "plan.yaml.gz"):
        assert read_plan(tmp_path / name) == read_plan(tmp_path / "plain.yaml")
    (tmp_path / "cut.yaml.gz").write_bytes(gzip.compress(text.encode())[:30])
    with pytest.raises(PlanError, match="damaged gzip"):
        read_plan(tmp_path / "cut.yaml.gz")


def test_a_pipe_without_a_writer_is_no_certificate_tokenizer_or_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SILENCE_S", 0.05)
    for name in ("ca.pem", "tokenizer.json", "trace.json", "server.log"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(TargetError, match="not a plain file"):
        tls_context(True, str(tmp_path / "ca.pem"), None, None)
    with pytest.raises(PlanError, match="not a plain file"):
        tokenizer_named(str(tmp_path))
    with pytest.raises(DataError, match="cannot be read: not a plain file"):
        list(documents(Otel(type="otel", path=str(tmp_path / "trace.json"))))
    with pytest.raises(DataError, match="sent nothing for"):
        read_startup(tmp_path / "server.log")
    with pytest.raises(DataError, match="sent nothing for"):
        read_result(tmp_path / "trace.json", "vllm-bench-serve")


def test_packed_files_that_are_damaged_or_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    whole = gzip.compress(os.urandom(5000))
    for name, content in (
        ("cut", whole[:2000]),
        ("flipped", whole[:500] + b"\xff\xff\xff" + whole[503:]),
        ("no", b"x"),
    ):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(content)
        with pytest.raises(DataError, match=f"{name}.jsonl.gz: cannot be unpacked"):
            local_file(str(tmp_path / f"{name}.jsonl.gz"), None, lambda _text: None)
    monkeypatch.setattr(packed, "MOST_UNPACKED", 1 << 20)
    monkeypatch.setattr(files, "MOST_PLAN_BYTES", 1 << 20)
    with pytest.raises(RefusedError, match="it grows to more than 200 times its size"):
        unpacked(gzip.compress(bytes(50 << 20)), 1 << 30)
    assert unpacked(gzip.compress(os.urandom(2 << 20)), 1 << 30) != b""
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(bytes(50 << 20)))
    with pytest.raises(DataError, match=r"bomb.jsonl.gz: cannot be unpacked: it grows"):
        local_file(str(tmp_path / "bomb.jsonl.gz"), None, lambda _text: None)
