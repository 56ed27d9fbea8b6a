"""The secrets of a run, the encodings in which they are hidden, and harmless texts."""

import base64
import html
import json
import os
import subprocess
import sys
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from inferometer.errors import PlanError, TargetError
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.plan.redactor import PIECE, Redactor
from inferometer.plan.secrets import hiding, key_of, redacted, redacted_argv, redacted_line, redactor_of
from inferometer.record.sanitize import cell, file_name_part, harmless, is_harmless, json_text, one_line
from inferometer.target import logkeeper
from inferometer.target.logkeeper import SecretMask

SECRET = 'Zq7/Wx9+Lm"2Kp&4Vt=6'


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        quote(SECRET, safe=""),
        html.escape(SECRET),
        json.dumps(SECRET)[1:-1],
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"me:{SECRET}".encode()).decode(),
        base64.urlsafe_b64encode(f"you:{SECRET}".encode()).decode(),
    ],
)
def test_a_secret_is_hidden_in_every_form(written: str) -> None:
    hidden = Redactor([SECRET]).hide(f"no such key: {written}!")
    assert "***" in hidden and hidden.startswith("no such key: ")
    assert not any(written[at : at + PIECE] in hidden for at in range(len(written) - PIECE))


@pytest.mark.parametrize("most", range(1, 120, 7))
def test_it_is_hidden_before_the_text_is_cut(most: int) -> None:
    message = Redactor([SECRET]).message(f"{'x' * 50}{SECRET}{SECRET} and {SECRET[:11]}", most)
    assert len(message) <= most
    assert not any(SECRET[at : at + 4] in message for at in range(len(SECRET) - 4))


def test_words_that_are_no_secret_stay() -> None:
    kept = "the model vllm at http://localhost answered 401: EMPTY"
    assert Redactor(["EMPTY", "vllm", "", "abc", "***"]).hide(kept) == kept


def test_an_id_is_seen_through_at_once() -> None:
    redactor = Redactor([SECRET, "short7"])
    assert not redactor.may_hold("cmpl-0123456789abcdef0123456789abcdef")
    assert redactor.may_hold(f"cmpl-{SECRET}") and redactor.may_hold("cmpl-short7")


PLAN: dict[str, Any] = {
    "target": {
        "url": "http://me:pass-in-url@127.0.0.1:1/v1?api_key=key-in-query",
        "headers": {
            "X-Api-Key": "key-in-header",
            "Cookie": "session=cookie-of-ours; theme=dark",
            "x-who": "${WHO_AM_I}",
        },
    },
    "sampling": {"extra": {"deep": [{"auth_token": "token-in-extra"}], "openai_key": "a1b2c3d4e5f6g7h8i9j0k"}},
    "server": {
        "type": "command",
        "command": ["bash", "-c", "FOO_TOKEN=token-of-shell serve --port {port} --api-key key-in-command"],
        "flags": ["--password", "password-of-flag"],
        "env": {"MY_SECRET": "secret-of-server", "HUGGING": "${HF_TOKEN}"},
    },
    "observe": {"metrics": ["http://scrape:pass-of-scrape@127.0.0.1:2/metrics"]},
    "traffic": [{"name": "a", "headers": {"authorization": "Bearer bearer-of-class"}}],
}
ENVIRONMENT = {"OPENAI_API_KEY": "key-of-environment", "WHO_AM_I": "who-is-it", "HF_TOKEN": "token-of-hugging-face"}
KNOWN = [
    *("pass-in-url", "key-in-query", "key-in-header", "cookie-of-ours", "token-in-extra", "a1b2c3d4e5f6g7h8i9j0k"),
    *("token-of-shell", "key-in-command", "password-of-flag", "secret-of-server", "pass-of-scrape", "bearer-of-class"),
    *ENVIRONMENT.values(),
]


def test_all_secrets_of_a_plan_are_known() -> None:
    hidden = redactor_of(plan_from(PLAN), environ=ENVIRONMENT).hide(" ".join(KNOWN))
    assert set(hidden) == {"*", " "}


def test_a_kept_plan_has_none_of_them() -> None:
    said = str(redacted(plan_from(PLAN)).model_dump())
    assert not [each for each in KNOWN if each in said and each not in ENVIRONMENT.values()]
    assert "--port {port}" in said and "${WHO_AM_I}" in said


@pytest.mark.parametrize(
    ("line", "starred"),
    [
        ("vllm serve m --api-key abc --port 1", "vllm serve m --api-key *** --port 1"),
        ("curl -H 'X-Api-Key: abc' -u me:pw http://h", "curl -H 'X-Api-Key: *** -u me:*** http://h"),
        ("A_TOKEN=abc; B=1 run", "A_TOKEN=***; B=1 run"),
        ("run --verbose --token=${T} --max-tokens 5", "run --verbose --token=${T} --max-tokens 5"),
        ("git clone https://me:pw@h/r", "git clone https://***@h/r"),
    ],
)
def test_lines_for_a_shell(line: str, starred: str) -> None:
    assert redacted_line(line) == starred
    assert redacted_argv(["bash", "-c", line]) == ["bash", "-c", starred]


def test_an_error_is_told_without_secrets() -> None:
    with pytest.raises(TargetError) as caught, hiding(Redactor([SECRET])):
        raise TargetError(f"it answered {SECRET}", f"look at {SECRET}")
    assert (caught.value.message, caught.value.hint) == ("it answered ***", "look at ***")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "mapping",
    [
        {"target": {"path": "/v1/completions\r\nX-Evil: 1"}},
        {"target": {"path": "/v1/a b"}},
        {"target": {"model": "a\nb"}},
        {"target": {"url": "http://h:1/\x00"}},
        {"target": {"headers": {"x": "a\r\nb"}}},
        {"target": {"headers": {"x": "\u20ac"}}},
        {"server": {"type": "vllm", "model": "a\x00b"}},
        {"server": {"type": "vllm", "model": "m", "ready": {"path": "/h\r\n"}}},
        {"server": {"type": "command", "command": ["a\x00", "{port}"]}},
    ],
)
def test_what_cannot_be_sent_is_a_mistake_of_the_plan(mapping: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as caught:
        plan_from(mapping)
    section, field = next((name, next(reversed(inner))) for name, inner in mapping.items())
    assert all(f"{section}.{field}" in mistake and is_harmless(mistake) for mistake in caught.value.mistakes)


def test_a_key_of_several_lines_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match="OPENAI_API_KEY must hold a key on a single line"):
        key_of(Plan().target, {"OPENAI_API_KEY": "abc\r\nX-Evil: 1"})
    assert key_of(Plan().target, {"OPENAI_API_KEY": " abc\n"}) == "abc"


# -- a log that is copied as it comes --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(1, 30))
def test_a_secret_in_two_reads_is_starred(size: int) -> None:
    text = b"before " + SECRET.encode() + b" and " + SECRET.encode()[:9]
    stars = SecretMask([SECRET.encode()])
    copied = b"".join(stars.add(text[at : at + size]) for at in range(0, len(text), size)) + stars.rest()
    assert copied == b"before *** and " + SECRET.encode()[:9]


def test_a_line_is_not_held_back_without_need() -> None:
    assert SecretMask([SECRET.encode()]).add(b"ready\n") == b"ready\n"


def test_an_echoed_log_commands_no_terminal(tmp_path: Any) -> None:
    env = {**os.environ, logkeeper.HIDDEN: SECRET.encode().hex()}
    command = [sys.executable, "-I", "-S", logkeeper.__file__, str(tmp_path / "log"), "4096", "echo"]
    done = subprocess.run(
        command,
        input=f"\x1b[31mred\x1b]0;own\x07 {SECRET}\x9b2J\n".encode(),
        stderr=subprocess.PIPE,
        env=env,
        timeout=30,
    )
    assert done.stderr == b"red ***2J\n"
    assert SECRET.encode() not in (tmp_path / "log").read_bytes()


# -- harmless to show --------------------------------------------------------------------------------------------------

HOSTILE = "a\x1b[2J\x9b\u202eb\ud800\r\n\tc\x00\u2028"


def test_lines_and_tabs_stay_and_commands_go() -> None:
    assert harmless(HOSTILE) == "a\ufffd[2J\ufffd\ufffdb\ufffd\n\tc\ufffd\ufffd"
    assert "\n" not in one_line(HOSTILE) and is_harmless(one_line(HOSTILE)) and not is_harmless(HOSTILE)


def test_json_means_the_same() -> None:
    content = {"a\u202e": ["\x1b\x9b\u2028", 1, None]}
    text = json_text(content, orjson.OPT_INDENT_2)
    assert is_harmless(text) and json.loads(text) == content
    assert json.loads(json_text({"a": "\ud800"})) == {"a": "\ufffd"}


@pytest.mark.parametrize("text", ["=1+1", "@x", "+1+1", "-1+1", "\t=1", "\uff1d1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-1.5", "1e-3", "a=1", 5, None, -2.5])
def test_other_cells_stay(value: Any) -> None:
    assert cell(value) == value


@pytest.mark.parametrize(
    ("name", "word"), [("../../etc/x", "__.._etc_x"), ("a/b\x00", "a_b_"), ("opt-125m", "opt-125m")]
)
def test_a_name_leads_to_no_other_folder(name: str, word: str) -> None:
    assert file_name_part(name) == word and "/" not in file_name_part(name)
