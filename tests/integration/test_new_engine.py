"""A new engine is one file and one line: a toy is added as a contributor would, started, measured and stopped."""

import json
from pathlib import Path

import pytest
from added_parts import AddedParts, RegistryLine
from small_engines import eventually, running_with

ENGINE = '''"""How the toy engine is launched: `toy-engine --model NAME --port N`."""

from inferometer.plan.model import Server
from inferometer.target.launch import (
    OTHER_READY_S,
    Engine,
    Image,
    Launch,
    LaunchPlace,
    Spelling,
    flags_of,
    served_names,
)

SPELLING = Spelling()


def launch(server: Server, place: LaunchPlace) -> Launch:
    program = server.command or ["toy-engine"]
    argv = [*program, "--model", str(place.model), "--port", str(place.port), *flags_of(server.args, SPELLING)]
    return Launch(
        "the toy engine",
        place.url,
        argv,
        names=served_names(argv, place),
        health=("/alive",),
        ready_s=OTHER_READY_S,
        version=("/version", "version"),
        missing="write it",
    )


ENGINE = Engine(
    launch=launch,
    title="Toy",
    owners=("toy",),
    program="toy-engine",
    image=Image(name="toy-engine", port=9000, model_flag="--model", spelling=SPELLING),
    log_signs="toy engine at work",
)
'''
LINE = RegistryLine(
    "plan/server.py",
    "ENGINES: dict[str, EngineName] = {  # an engine is added here and as a file of target/engines",
    '"toy": EngineName(f"{_HERE}.toy:ENGINE"),',
)
SERVER = '''"""Answers completions with as many words as are asked for."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))


class Toy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        answers = {
            "/alive": {},
            "/version": {"version": "0.0.7"},
            "/v1/models": {"data": [{"id": WORDS["--model"], "owned_by": "toy"}]},
        }
        self.say(200 if self.path in answers else 404, json.dumps(answers.get(self.path)).encode())

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        events = [{"choices": [{"text": WORDS["--max-word"]}]}] * asked["max_tokens"]
        data = b"".join(b"data: %b\\n\\n" % json.dumps(event).encode() for event in events)
        self.say(200, data + b"data: [DONE]\\n\\n", "text/event-stream")

    def say(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


print("toy engine at work", flush=True)
try:
    ThreadingHTTPServer(("127.0.0.1", int(WORDS["--port"])), Toy).serve_forever()
except KeyboardInterrupt:
    pass
'''


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> AddedParts:
    return AddedParts(tmp_path_factory.mktemp("added"), {"target/engines/toy.py": ENGINE}, LINE)


def test_it_is_started_measured_and_stopped(parts: AddedParts, tmp_path: Path) -> None:
    program = tmp_path / "toy_engine.py"
    program.write_text(SERVER)
    plan = {
        "server": {
            "type": "toy",
            "model": "tiny",
            "command": ["python3", str(program)],
            "args": {"max_word": "word"},
        },
        "workload": {"input_tokens": 8, "output_tokens": 5},
        "load": {"concurrency": 2},
        "stop": {"requests": 20},
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = parts.python("-m", "inferometer", "run", str(tmp_path / "plan.json"), "--json")
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert document["summary"]["outcomes"] == {"ok": 20}
    server = document["environment"]["server"]
    assert (server["type"], server["name"], server["model"], server["version"]) == (
        *("toy", "the toy engine", "tiny"),
        "0.0.7",
    )
    assert server["argv"][-2:] == ["--max-word", "word"]
    assert document["environment"]["target"]["server"] == "Toy"
    assert eventually(lambda: not running_with(str(program)))


def test_the_rest_knows_it_too(parts: AddedParts) -> None:
    asked = """
import json
from inferometer.plan.model import Plan
from inferometer.target.container import image_named
from inferometer.target.startup.log import engine_of
print(image_named("registry/toy-engine:1").port, engine_of("toy engine at work"))
print('"toy"' in json.dumps(Plan.model_json_schema()))
"""
    assert parts.python("-c", asked).stdout.split() == ["9000", "Toy", "True"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"model": "m", "args": {"port": 1}}, "server.args.port is a setting of its own: server.port"),
        ({}, "server.model is missing: toy needs a model to serve"),
        ({"model": "m", "image": "i"}, "server.image belongs to type container, but type is toy"),
    ],
)
def test_the_plan_checks_it_as_any_engine(
    parts: AddedParts, tmp_path: Path, settings: dict[str, object], text: str
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"server": {"type": "toy"} | settings}))
    done = parts.python("-m", "inferometer", "plan", "check", str(tmp_path / "plan.json"))
    assert done.returncode == 2
    assert text in done.stderr
