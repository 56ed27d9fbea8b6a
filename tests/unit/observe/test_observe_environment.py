"""The environment of a run: what is there is told, what is secret is not."""

import json
import subprocess
from pathlib import Path

import pytest

from inferometer.observe.environment import command_line, environment, git_state
from inferometer.plan.model import Plan
from inferometer.record.encoding import document_of, environment_document
from inferometer.record.environment import MeasuredTarget

KEY = "sk-very-secret-0123456789"


def test_it_is_plain_data_without_secrets(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("sys.argv", ["/usr/bin/inferometer", "run", "--set", f"target.headers.x-api-key={KEY}"])
    found = environment(Plan(), MeasuredTarget(urls=[f"http://me:{KEY}@host:8000"], model="tiny"))
    text = json.dumps(environment_document(found))
    assert KEY not in text
    assert document_of(found.target) == {"urls": ["http://***@host:8000"], "model": "tiny"}
    assert found.machine.cores >= found.machine.usable_cores >= 1
    assert found.python.packages["numpy"]
    assert environment(Plan()).target is None


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], ""),
        (["/a/b/inferometer", "run", "--rate", "5"], "inferometer run --rate 5"),
        (["i", "--api-key", KEY, "x"], "i --api-key '***' x"),
        (["i", f"--api-key={KEY}"], "i '--api-key=***'"),
        (["i", "--set", f"target.headers.Authorization=Bearer {KEY}"], "i --set 'target.headers.Authorization=***'"),
        (["i", "--url", f"http://me:{KEY}@host:1/v1"], "i --url 'http://***@host:1/v1'"),
        (["i", f"--set=target.url=http://me:{KEY}@host"], "i '--set=target.url=http://***@host'"),
        (
            ["i", "--set", "target.headers={authorization: abc, x-team: blue}"],
            "i --set 'target.headers={authorization: ***, x-team: blue}'",
        ),
        (
            ["i", "--set", f'target.headers={{"x-team": "Bearer {KEY}"}}'],
            """i --set 'target.headers={"x-team": "***"}'""",
        ),
        (["i", "--set", f"target.headers.x-team=Bearer {KEY}"], "i --set 'target.headers.x-team=***'"),
        (
            ["i", "--set", f'target.body={{"api_key": "{KEY}", "n": 1}}'],
            """i --set 'target.body={"api_key": ***, "n": 1}'""",
        ),
        (["i", "--header", f"x-team={KEY}"], "i --header 'x-team=***'"),
        (["i", "--limit", "ttft p99 < 500ms"], "i --limit 'ttft p99 < 500ms'"),
    ],
)
def test_the_command_is_shown_without_secrets(arguments, shown: str):
    assert command_line(arguments) == shown


def test_git_state(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None

    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t.test", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "one")
    state = git_state(tmp_path)
    assert len(state.commit) == 40
    assert state.changed is False
    (tmp_path / "file").write_text("2")
    assert git_state(tmp_path).changed is True
