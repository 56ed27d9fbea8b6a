"""The examples with datasets run as they are, and say what they send."""

from pathlib import Path

import pytest

import command_line
from measured import assert_ran

ROOT = Path(__file__).parents[2]
SAID = {
    "conversations": "examples/data/conversations.json: 8 prompts in 3 sessions",
    "conversation-pieces": "unique prefixes",
    "questions": "output tokens 190, mean 47.5",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs(name, home: Path):
    words = ("run", f"examples/{name}.yaml")
    done = command_line.command(*words, store=home / "store", cwd=ROOT, environ={"HOME": str(home)})
    assert_ran(done.returncode, done.stderr)
    assert SAID[name] in done.stderr
    assert done.stdout.strip()
