"""The environment of a run: facts are recorded, secrets are not."""

import json
import os
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


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t.test", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def committed(folder: Path) -> Path:
    """A checkout of one file."""
    git(folder, "init")
    (folder / "file").write_text("1")
    git(folder, "add", "file")
    git(folder, "commit", "-m", "one")
    return folder


def test_git_state(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    committed(tmp_path)
    state = git_state(tmp_path)
    assert len(state.commit) == 40
    assert state.changed is False
    (tmp_path / "file").write_text("2")
    assert git_state(tmp_path).changed is True


def test_programs_that_a_checkout_names_are_not_run(tmp_path: Path) -> None:
    """`git status` would run each of them: the index is older than the file, so that its content is looked at."""
    folder = committed(tmp_path)
    marks = folder / ".git/ran"
    program = f"sh -c 'touch {marks}; cat'"
    for name in ("core.fsmonitor", "filter.a b.clean", "filter.lfs.clean", "filter.lfs.process"):
        git(folder, "config", name, program)
    (folder / ".git/info/attributes").write_text("file filter=lfs\n")
    hook = folder / ".git/hooks/post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch {marks}\n")
    hook.chmod(0o755)
    os.utime(folder / "file", (1, 1))
    assert git_state(folder).changed is False
    assert not marks.exists()
    git(folder, "config", "filter.a=b.clean", program)  # which no option of git can switch off
    assert git_state(folder).changed is None
    assert not marks.exists()
    subprocess.run(["git", "-C", str(folder), "status"], check=False, capture_output=True)
    assert marks.exists()  # as it is run otherwise
