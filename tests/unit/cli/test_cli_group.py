"""The command group: lazy, fast, and clear about errors."""

import signal
import subprocess
import sys
import time

import click
import pytest

from inferometer import errors
from inferometer.cli import execute
from inferometer.cli.errors import report
from inferometer.cli.group import COMMANDS, group


def test_help_imports_nothing_but_click_and_answers_at_once() -> None:
    script = (
        "import sys; from inferometer.cli import execute; execute(['--help']);"
        "print([name for name in ('numpy', 'rich', 'pydantic', 'yaml', 'orjson', 'asyncio') if name in sys.modules])"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert time.monotonic() - began < 3  # 0.06 s on an idle core; CI is seldom idle


def test_help_of_a_run_imports_little_more() -> None:
    """Its conductor, the console and the parsers of answers take longer than all the rest of it."""
    heavy = ("numpy", "rich", "pydantic", "yaml", "orjson", "asyncio", "msgspec", "inferometer.wire.api")
    script = (
        "import sys; from inferometer.cli import execute; execute(['run', '--help']);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_help_that_the_list_promises(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([name, "--help"]) == 0
    assert "Usage: inferometer" in capsys.readouterr().out
    command = group.get_command(click.Context(group), name)
    assert command is not None and command.help
    assert all(isinstance(each, click.Argument) or each.help for each in command.params)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rum"], "error: no command 'rum'; did you mean run?"),
        (["--no-such"], "error: no such option"),
        (["show", "--slowest", "x"], "error: invalid value for '--slowest'"),
        (["run", "--sed", "4"], "error: no such option"),
    ],
)
def test_wrong_use_is_told_on_stderr(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(arguments) == 2
    told = capsys.readouterr()
    assert told.err.startswith(message)
    assert "hint: inferometer" in told.err
    assert told.out == ""


MISTAKES: list[tuple[Exception, int, str]] = [
    (errors.PlanError(["a: wrong", "b: too"], "fix it"), 2, "error: a: wrong\nerror: b: too\nhint: fix it\n"),
    (errors.TargetError("http://x refused"), 3, "error: http://x refused\n"),
    (errors.StoreError("x: full", "make room"), 2, "error: x: full\nhint: make room\n"),
    (
        PermissionError(13, "Permission denied", "/x/y"),
        2,
        "error: /x/y: permission denied\nhint: use a store that you can write to: --store FOLDER\n",
    ),
    (
        ZeroDivisionError("oh"),
        70,
        "error: ZeroDivisionError: oh\nhint: this is a bug in Inferometer; --traceback shows where it happened\n",
    ),
]


@pytest.mark.parametrize(("mistake", "code", "told"), MISTAKES)
def test_every_kind_of_mistake(mistake: Exception, code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(mistake) == code
    assert capsys.readouterr().err == told


def test_traceback_only_when_asked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    report(ZeroDivisionError("oh"))
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("INFEROMETER_TRACEBACK", "1")
    report(ZeroDivisionError("oh"))
    assert "ZeroDivisionError: oh" in capsys.readouterr().err


INTERRUPTED_COMMAND = """
import signal, sys, click
from inferometer.cli import main
from inferometer.cli.group import COMMANDS
COMMANDS["show"] = ("__main__:waiting", "")
@click.command()
def waiting():
    signal.raise_signal(int(sys.argv[1]))
main(["show"])
"""


@pytest.mark.parametrize(
    ("number", "code", "told"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_any_command_with_its_code(number: signal.Signals, code: int, told: str) -> None:
    """Also one that has no ending of its own for it."""
    command = [sys.executable, "-c", INTERRUPTED_COMMAND, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (code, f"warning: {told}")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["completion", shell]) == 0
    assert "_INFEROMETER_COMPLETE" in capsys.readouterr().out


def test_nothing_typed_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([]) == 2
    assert capsys.readouterr().out.startswith("Usage: inferometer")
