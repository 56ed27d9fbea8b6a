"""Options and arguments of every command with nonsense values: each is accepted or refused with a message."""

import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from inferometer.cli import execute
from inferometer.cli.group import group
from inferometer.conduct.instrument import curve_of, keep_curve
from lengths import LONG
from mutated_inputs import NUMBERS, TEXTS, dumped

STAYING = {"serve", "route", "dashboard", "worker", "calibrate", "doctor"}  # run until they are ended, or measure
PLAIN = (
    "latest",
    "latest~99",
    "1s",
    "5",
    "0.5",
    "10%",
    "ttft p99 < 500ms",
    "model=x",
    "load.rate=5",
    "=",
    "a=b=c",
    "[",
)
LIMIT_S = 20.0  # after it a command that took its options to work is let go
LEFT_OUT = {"--help", "--version", "--store", "--records", "--traceback", "--notify", "--serve", "--email"}


class LetGoError(BaseException):
    """Nothing of ours catches it."""


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


def odd_value(draw: random.Random) -> str:
    kind = draw.random()
    odd = draw.choice(PLAIN) if kind < 0.4 else draw.choice(TEXTS) if kind < 0.7 else dumped(draw.choice(NUMBERS))
    return odd.replace("\0", "").encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


def words_for(path: tuple[str, ...], command: click.Command, draw: random.Random) -> list[str]:
    words = list(path)
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    words += [odd_value(draw) for _ in arguments if draw.random() < 0.7]
    options = [each for each in command.params if isinstance(each, click.Option) and not LEFT_OUT & set(each.opts)]
    for option in draw.sample(options, min(len(options), draw.choice((1, 1, 2, 3)))):
        words.append(draw.choice(option.opts))
        if not option.is_flag and not option.count:
            words += [odd_value(draw) for _ in range(max(option.nargs, 1))]
    return [*words, "--dry-run"] if path[0] in ("run", "rerun") and "--dry-run" not in words else words


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"INFEROMETER_STORE": "store", "HOME": "home", "XDG_CACHE_HOME": "cache"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    keep_curve(curve_of([]), tmp_path / "store")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_no_option_makes_a_mistake_of_ours(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(5)
    commands = [(path, command) for path, command in leaves(group) if path[0] not in STAYING]
    tried = [words_for(path, command, draw) for _ in range(20 if LONG else 4) for path, command in commands]
    tried += [
        ["import", "x", "--explain", "--format", "y"],
        ["startup", "/dev/zero"],
        ["k8s", "up", "--stack-timeout", ""],
    ]
    wrong = [(words, told) for words in tried if (told := complaint(words, capsys))]
    assert not wrong
    assert os.getcwd() == str(place / "here")  # noqa: PTH109


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> str | None:
    def let_go(*_: object) -> None:
        raise LetGoError

    before = signal.signal(signal.SIGALRM, let_go)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        code = execute(words)
    except LetGoError:
        capsys.readouterr()
        return None if words[0] in ("search", "sweep", "ab", "offline", "benchmark", "k8s") else "took too long"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    printed = capsys.readouterr()
    if code not in (0, 1, 2, 3, 4) or (code == 2 and "error: " not in printed.err):
        return f"exit {code}: {printed.err[-300:]}"
    return None
