"""The command group: lazy, fast, and clear about errors."""

import inspect
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from inferometer import errors
from inferometer.cli import execute
from inferometer.cli.errors import report
from inferometer.cli.group import COMMANDS, group
from inferometer.cli.options import work_in
from inferometer.vocabulary import attribute_at


def test_help_imports_nothing_but_click_and_answers_at_once() -> None:
    script = (
        "import sys; from inferometer.cli import execute; execute(['--help']);"
        "print([name for name in ('numpy', 'rich', 'pydantic', 'yaml', 'orjson', 'asyncio') if name in sys.modules])"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert time.monotonic() - began < 3  # 0.06 s on an idle core; CI is seldom idle


def commands_with_options() -> dict[str, click.Command]:
    """Every command, also those of groups."""
    whole: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        whole[name] = command
        if isinstance(command, click.Group):
            whole |= {f"{name} {inner}": sub for inner, sub in command.commands.items()}
    return whole


def test_help_of_all_commands_imports_little_more() -> None:
    """Conductors, the console and the parsers of answers take longer than all the rest of it. All in one process: what
    any of them imports is seen."""
    heavy = ("numpy", "rich", "pydantic", "yaml", "orjson", "asyncio", "msgspec", "inferometer.wire.api", "email")
    lines = [[*name.split(), "--help"] for name in commands_with_options()]
    script = (
        f"import sys; from inferometer.cli import execute; codes = [execute(line) for line in {lines}];"
        f"loaded = [name for name in sys.modules if name in {heavy} or name.startswith('inferometer.cli.work')];"
        "print(max(codes), loaded)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n0 []\n")


@pytest.mark.parametrize("name", commands_with_options())
def test_the_work_of_a_command_takes_the_parameters_that_it_declares(name: str) -> None:
    command = commands_with_options()[name]
    place = getattr(command.callback, "place", None)
    if place is None:
        assert isinstance(command, click.Group) or name == "completion"
        return
    declared = {parameter.name or "": None for parameter in command.params if parameter.expose_value}
    inspect.signature(attribute_at(place)).bind(**declared)


def test_work_whose_packages_are_not_installed_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work_of_a_test.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    declared = click.command()(work_in("work_of_a_test:work", extra=("talking to it", "it"))(lambda: None))
    with pytest.raises(errors.MissingExtra, match="talking to it needs the extra 'it'"):
        declared.main([], standalone_mode=False)
    (tmp_path / "work_of_a_test.py").write_text("import inferometer.no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        declared.main([], standalone_mode=False)


def test_completion_of_runs_opens_the_store_and_imports_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "runs" / "20261119-0001").mkdir(parents=True)
    words = {"_INFEROMETER_COMPLETE": "bash_complete", "COMP_WORDS": "inferometer show 2026", "COMP_CWORD": "2"}
    script = (
        "import sys; from inferometer.cli.group import group\n"
        "try: group.main(prog_name='inferometer')\n"
        "except SystemExit: print([name for name in sys.modules if name in ('rich', 'pydantic', 'sqlalchemy')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **words, "INFEROMETER_STORE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "plain,20261119-0001\n[]\n"


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


ENDING_COMMAND = """
import atexit, sys, threading, click
from inferometer.cli import main
from inferometer.cli.group import COMMANDS
COMMANDS["show"] = ("__main__:printing", "")
atexit.register(print, "exit handler")
@click.command()
def printing():
    print("printed")
    return 4
{before}
sys.argv = ["inferometer", "show"]
try:
    main()
finally:
    print("continued")
    sys.setprofile(None)
"""
THREAD = "threading.Timer(0.0, threading.main_thread().join).start()"


@pytest.mark.parametrize(
    ("before", "continued"),
    [("", ""), ("sys.setprofile(lambda *event: None)", "continued\n"), (THREAD, "continued\n")],
    ids=["alone", "profiler", "thread"],
)
def test_a_command_ends_the_process_at_once_but_with_its_exit_handlers(before: str, continued: str) -> None:
    """Unless a profiler or another thread still has work to do."""
    command = [sys.executable, "-c", ENDING_COMMAND.format(before=before)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (4, f"printed\n{continued}exit handler\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["completion", shell]) == 0
    assert "_INFEROMETER_COMPLETE" in capsys.readouterr().out


def test_nothing_typed_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([]) == 2
    assert capsys.readouterr().out.startswith("Usage: inferometer")
