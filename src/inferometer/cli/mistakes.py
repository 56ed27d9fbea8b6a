"""What went wrong, said on stderr as `error: ...` and `hint: ...`, and the exit code it means."""

import errno
import os
import sys
import traceback
from collections.abc import Callable

import click

from inferometer.errors import InferometerError, PlanError

LIMIT_FAILED, WRONG_USE, UNREACHABLE, INVALID = 1, 2, 3, 4
UNEXPECTED = 70  # sysexits.h EX_SOFTWARE: a mistake of ours
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + the signal, as shells say it
EXIT_CODES = {
    0: "fine; a doubtful run is warned of on stderr",
    LIMIT_FAILED: "a limit failed, or a run is worse than what it is compared with",
    WRONG_USE: "wrong use, a wrong plan, or a store that cannot be used",
    UNREACHABLE: "the target could not be reached, does not speak the API, or answered no request",
    INVALID: "the run is not valid as a measurement, or not of one of its limits: it cannot be told",
    UNEXPECTED: "a mistake of ours; `--traceback` shows where",
    INTERRUPTED: "ended by Ctrl-C, the run is kept",
    BROKEN_PIPE: "whoever read our output has gone (`| head`)",
}

_COLOURS = {"error": "red", "warning": "yellow", "hint": "cyan", "note": "cyan"}


def report(mistake: Exception) -> int:
    """Tell a person what went wrong and give the exit code."""
    if os.environ.get("INFEROMETER_TRACEBACK"):
        traceback.print_exception(mistake)
    match mistake:
        case PlanError():
            return _tell(mistake.mistakes, mistake.hint, mistake.exit_code)
        case InferometerError():
            return _tell([mistake.message], mistake.hint, mistake.exit_code)
        case click.Abort():
            return INTERRUPTED
        case click.UsageError() if type(mistake).__name__ == "NoArgsIsHelpError":  # since click 8.2
            click.echo(mistake.format_message())
            return WRONG_USE
        case click.UsageError():
            return _tell([_sentence(mistake.format_message())], _help_of(mistake), WRONG_USE)
        case click.ClickException():
            return _tell([mistake.format_message()], None, WRONG_USE)
        case OSError():
            return _tell([_file_trouble(mistake)], _file_hint(mistake), WRONG_USE)
    hint = "this is a mistake of ours; --traceback shows where it happened"
    return _tell([f"{type(mistake).__name__}: {mistake}"], hint, UNEXPECTED)


def say(kind: str, text: str) -> None:
    """One line on stderr: `note: ...`, `warning: ...`."""
    word = click.style(f"{kind}:", fg=_COLOURS[kind], bold=kind != "note") if _coloured() else f"{kind}:"
    click.echo(f"{word} {text}", err=True)


def notes_once(above: Callable[[Callable[[], None]], None] = lambda speak: speak()) -> Callable[[str], None]:
    """Says notes, each once: what every step or case would say again. `above` speaks where a live table stands."""
    said: set[str] = set()

    def note(text: str) -> None:
        if text not in said:
            said.add(text)
            above(lambda: say("note", text))

    return note


def _tell(mistakes: list[str], hint: str | None, code: int) -> int:
    for mistake in mistakes:
        say("error", mistake)
    if hint:
        say("hint", hint)
    return code


def _coloured() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def _sentence(text: str) -> str:
    """click's messages in our style: no capital, no full stop."""
    return text[:1].lower() + text[1:].removesuffix(".")


def _help_of(mistake: click.UsageError) -> str:
    path = mistake.ctx.command_path if mistake.ctx else "inferometer"
    return f"{path} --help"


def _file_trouble(mistake: OSError) -> str:
    where = f"{mistake.filename}: " if mistake.filename else ""
    return f"{where}{(mistake.strerror or str(mistake)).lower()}"


def _file_hint(mistake: OSError) -> str | None:
    if mistake.errno == errno.ENOSPC:
        return "make room on the disk, or keep runs elsewhere: --store FOLDER"
    if mistake.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return "keep runs where you may write: --store FOLDER"
    return None
