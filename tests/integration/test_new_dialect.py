"""A new dialect is one file and one line: a toy is added as a contributor would, and measured over HTTP."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from added_parts import AddedParts, RegistryLine

DIALECT = '''"""The toy's API: a question and a number of words in, a word per event out."""

from inferometer.wire.api import Answer, Api, Json, Manner, Prompt, count_in, plain_text


def _body(_model: str | None, prompt: Prompt) -> Json:
    return {"question": plain_text(prompt)}


def _fields(manner: Manner) -> Json:
    return {"hurry": True} | manner.extra


def _ask_length(fields: Json, tokens: int | None) -> None:
    fields["words"] = tokens


def _deltas(event: Json) -> tuple[str, bool]:
    return event.get("word", ""), False


def _note(answer: Answer, event: Json) -> None:
    if "spent" in event:
        answer.done, answer.finish_reason = True, "length"
        read, said = count_in(event["spent"], "read"), count_in(event["spent"], "said")
        answer.usage = {"prompt_tokens": read, "completion_tokens": said}


API = Api(
    path="/v1/toy",
    body=_body,
    deltas=_deltas,
    note=_note,
    fields=_fields,
    ask_length=_ask_length,
    credentials=lambda key: {"X-Toy-Key": key},
    key_env="TOY_KEY",
    needs_model=False,
)
'''
LINE = RegistryLine("wire/apis/__init__.py", "APIS = {", '"toy": "inferometer.wire.apis.toy:API",')


class Toy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(404, b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/toy" or not asked["hurry"] or self.headers["X-Toy-Key"] != "sesame":
            return self.answer(400, b'{"error": "not the toy\'s dialect"}')
        events: list[object] = [{"word": "word "}] * asked["words"]
        events.append({"spent": {"read": len(asked["question"].split()), "said": asked["words"]}})
        return self.answer(200, b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events))

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/event-stream" if status == 200 else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Toy) as toy:
        thread = threading.Thread(target=toy.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{toy.server_port}"
        toy.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> AddedParts:
    return AddedParts(tmp_path_factory.mktemp("added"), {"wire/apis/toy.py": DIALECT}, LINE)


@pytest.mark.parametrize("named", [True, False])
def test_it_is_measured(
    parts: AddedParts, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Named in the plan, or by the path of its requests behind the address."""
    monkeypatch.setenv("TOY_KEY", "sesame")
    plan = {
        "target": {"url": server, "api": "toy"} if named else f"{server}/v1/toy",
        "workload": {"input_tokens": 8, "output_tokens": 5},
        "load": {"concurrency": 2},
        "stop": {"requests": 20},
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = parts.python("-m", "inferometer", "run", str(tmp_path / "plan.json"), "--json")
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert document["plan"]["target"]["api"] == "toy"
    summary = document["summary"]
    assert summary["outcomes"] == {"ok": 20}, summary["errors"]
    assert summary["measures"]["output_tokens"]["mean"] == 5
    assert summary["measures"]["input_tokens"]["mean"] > 0
    assert summary["measures"]["ttft"]["count"] > 0


def test_the_plan_knows_its_name_and_what_it_takes(parts: AddedParts, tmp_path: Path) -> None:
    plan = {"target": {"url": "http://h", "api": "toy"}, "workload": {"prompt_as": "token_ids"}}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = parts.python("-m", "inferometer", "plan", "check", str(tmp_path / "plan.json"))
    assert (done.returncode, "workload.prompt_as must be text: api toy takes no token ids" in done.stderr) == (2, True)
    done = parts.python("-m", "inferometer", "run", "--help")
    assert "toy, completions, chat" in done.stdout
