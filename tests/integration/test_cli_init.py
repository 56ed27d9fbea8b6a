"""`inferometer init`: its file is a plan, runs as it is, and every setting in its comments can be taken; a run with
the flags that people know from other tools; and a server that only chats."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

import command_line
from inferometer.cli import execute
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.errors import TargetError
from inferometer.plan.model import Target
from inferometer.plan.reading import plan_from, read_plan
from inferometer.store.store import open_store
from inferometer.target.probe import probe
from measured import assert_ran


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INFEROMETER_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("INFEROMETER_URL", raising=False)
    keep_curve(curve_of([]), tmp_path / "store")
    return tmp_path


def test_it_writes_a_plan_and_never_over_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["init"]) == 0
    assert capsys.readouterr().out == "wrote plan.yaml\n"
    written = (folder / "plan.yaml").read_text()
    assert execute(["plan", "check", "plan.yaml"]) == 0
    assert execute(["init", "--rate", "77"]) == 2
    assert "plan.yaml: already exists\nhint: overwrite it with --force" in capsys.readouterr().err
    assert (folder / "plan.yaml").read_text() == written
    assert execute(["init", "--rate", "77", "--force"]) == 0
    assert read_plan("plan.yaml").load.rate == 77


@pytest.mark.usefixtures("folder")
def test_flags_and_profiles_are_written_into_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--profile",
        "chat",
        "--url",
        "localhost:8000/v1/chat/completions",
        "--rate",
        "3",
        "--limit",
        "e2e p50 < 9s",
    ]
    assert execute(["init", "-", *words]) == 0
    said = yaml.safe_load(capsys.readouterr().out)
    assert said["target"] == {"url": "http://localhost:8000", "api": "chat"}
    assert said["name"] == "chat" and said["load"] == {"type": "poisson", "rate": 3}
    assert "e2e p50 < 9s" in said["limits"] and len(said["limits"]) == 4
    assert execute(["init", "-", "--header", "Authorization: Bearer sk-1234567890"]) == 2
    told = capsys.readouterr()
    assert "secrets are not written" in told.err and "sk-1234567890" not in told.err + told.out


@pytest.mark.parametrize("words", [[], ["--profile", "rag"], ["--server", "simulator", "--requests", "9"]], ids=str)
@pytest.mark.usefixtures("folder")
def test_every_comment_that_is_a_setting_can_be_taken(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["init", "-", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    taken = 0
    for at, line in enumerate(lines):
        if (match := re.fullmatch(r"( *)# (\w+): (\S.*)", line)) and not lines[at - 1].startswith("#   "):
            changed = [*lines[:at], f"{match[1]}{match[2]}: {match[3]}", *lines[at + 1 :]]
            plan_from(yaml.safe_load("\n".join(changed)), where=line)
            taken += 1
        elif match := re.fullmatch(r"# (\w+):", line):
            inner = [re.sub("^# ", "", later) for later in lines[at + 1 :] if later.startswith("#   ")]
            section = next(index for index, later in enumerate(lines[at + 1 :]) if not later.startswith("#   "))
            for choice in inner[:section] if lines[at + 1].startswith("#   ") else []:
                changed = [*lines[:at], f"{match[1]}:", choice.replace("#   ", "  ", 1), *lines[at + 1 :]]
                plan_from(yaml.safe_load("\n".join(changed)), where=choice)
                taken += 1
    assert taken >= 12


def test_it_runs_on_the_simulator_with_what_people_type_daily(folder: Path) -> None:
    assert execute(["init"]) == 0
    words = ["--duration", "8s", "--name", "first try", "--tag", "nightly", "--tag", "v1", "-H", "X-Tenant: blue"]
    done = command_line.command("run", "plan.yaml", *words, "--output", "result.json")
    assert_ran(done.returncode, done.stderr)
    entry = open_store(folder / "store").runs()[0]
    assert entry.tags == ("nightly", "v1")
    document = json.loads((folder / "result.json").read_text())
    assert "first try" in json.dumps(document)
    assert "progress:" not in done.stderr  # so short a run has none


@pytest.mark.usefixtures("folder")
def test_a_tag_that_cannot_be_one_is_told_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["run", "--url", "http://127.0.0.1:9", "--tag", "two words"]) == 2
    assert "tag 'two words' is not a valid name" in capsys.readouterr().err


# -- a server that only chats


@contextmanager
def answering(status_of: Callable[[str], int]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200 if self.path == "/v1/models" else 404, b'{"data": [{"id": "m"}]}')

        def do_POST(self) -> None:
            self._answer(status_of(self.path), b"{}")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_server_that_only_chats_is_found_out_before_the_load() -> None:
    with answering(lambda path: 400 if "chat" in path else 404) as url:
        with pytest.raises(TargetError) as caught:
            probe(Target(url=[url]))
        assert caught.value.message == f"{url} has no /v1/completions (404), but /v1/chat/completions is there"
        assert caught.value.hint == "--api chat"
        assert probe(Target(url=[url], api="chat")).model == "m"
        assert probe(Target(url=[url], path="/other")).model == "m"


@pytest.mark.parametrize("status", [400, 401, 404, 422, 500])
def test_a_server_that_treats_both_alike_is_measured(status: int) -> None:
    with answering(lambda _path: status) as url:
        assert probe(Target(url=[url])).model == "m"
