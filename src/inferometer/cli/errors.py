"""Prints errors on stderr as `error: ...` and `hint: ...` with their exit code; and plain lines on stdout, for
commands that need no console."""

import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

import click

from inferometer.errors import INVALID as INVALID
from inferometer.errors import LIMIT_FAILED as LIMIT_FAILED
from inferometer.errors import UNREACHABLE as UNREACHABLE
from inferometer.errors import WRONG_USE as WRONG_USE
from inferometer.errors import InferometerError, PlanError, Terminated
from inferometer.plan.redactor import environment_redactor
from inferometer.record.sanitize import harmless

# -- echo ------------------------------------------------------------------------------------------------------------


def echo(text: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Prints text without control sequences: names of models, plans and files may contain any characters."""
    click.echo(harmless(str(text)), nl=nl, err=err)


# -- errors ----------------------------------------------------------------------------------------------------------

UNEXPECTED = 70  # sysexits.h EX_SOFTWARE: a bug of ours
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143  # 128 + the signal, as in shells
EXIT_CODES = {
    0: "success: all limits are met, or none were set; a doubtful run prints a warning on stderr",
    LIMIT_FAILED: "a limit failed, or a comparison or check found a regression; failed requests count against limits",
    WRONG_USE: "usage error, invalid plan, or unusable store",
    UNREACHABLE: "the target could not be reached or does not support the API: no request was answered",
    INVALID: "not valid as a measurement: more than 10% of requests failed and no limit on `failure_rate` was set, the "
    "server or a worker was lost during the run, or another cause; or too few samples to decide a limit",
    UNEXPECTED: "internal error; `--traceback` shows where",
    INTERRUPTED: "interrupted by Ctrl-C; the run is stored",
    BROKEN_PIPE: "the reader of stdout closed the pipe (`| head`)",
    TERMINATED: "terminated by SIGTERM; the run is stored",
}
_signals: list[int] = []  # received: the signals that end this process

_MEMORY_HINT = "use a machine with more free memory, or allow this process more (ulimit -v, the limit of a container)"
_COLOURS = {"error": "red", "warning": "yellow", "hint": "cyan", "note": "cyan"}


def end_on_term() -> None:
    """SIGTERM ends a command as Ctrl-C does: every `finally` runs, and the measurements so far are stored."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, _frame: object) -> None:
    _signals.append(number)
    raise Terminated


def interrupted_code() -> int:
    """The exit code of a command that was ended by a signal."""
    return 128 + _signals[-1] if _signals else INTERRUPTED


def report(mistake: Exception) -> int:
    """Print the error on stderr and return the exit code."""
    if os.environ.get("INFEROMETER_TRACEBACK"):
        shown = "".join(traceback.format_exception(mistake))
        click.echo(harmless(environment_redactor(os.environ).hide(shown)), err=True)
    match mistake:
        case PlanError():
            return _print_mistakes(mistake.mistakes, mistake.hint, mistake.exit_code)
        case InferometerError():
            return _print_mistakes([mistake.message], mistake.hint, mistake.exit_code)
        case click.UsageError() if type(mistake).__name__ == "NoArgsIsHelpError":  # since click 8.2
            echo(mistake.format_message())
            return WRONG_USE
        case click.UsageError():
            return _print_mistakes([_sentence(mistake.format_message())], _help_of(mistake), WRONG_USE)
        case click.ClickException():
            return _print_mistakes([mistake.format_message()], None, WRONG_USE)
        case MemoryError():
            return _print_mistakes(["out of memory"], _MEMORY_HINT, WRONG_USE)
        case ImportError() if "failed to map" in str(mistake) or "cannot allocate memory" in str(mistake):
            return _print_mistakes([f"out of memory: {mistake}"], _MEMORY_HINT, WRONG_USE)
        case OSError():
            return _print_mistakes([_file_trouble(mistake)], _file_hint(mistake), WRONG_USE)
    hint = "this is a bug in Inferometer; --traceback shows where it happened"
    return _print_mistakes([f"{type(mistake).__name__}: {mistake}"], hint, UNEXPECTED)


def print_message(kind: str, text: str) -> None:
    """One line on stderr: `note: ...`, `warning: ...`."""
    prefix = click.style(f"{kind}:", fg=_COLOURS[kind], bold=kind != "note") if _coloured() else f"{kind}:"
    safe = environment_redactor(os.environ).hide(text)  # last safeguard: an unforeseen message may contain a secret
    click.echo(f"{prefix} {harmless(safe)}", err=True)


def notes_once(above: Callable[[Callable[[], None]], None] = lambda speak: speak()) -> Callable[[str], None]:
    """Prints every note only once, although every step or case repeats it. `above` prints above a live table."""
    seen: set[str] = set()

    def note(text: str) -> None:
        if text not in seen:
            seen.add(text)
            above(lambda: print_message("note", text))

    return note


def _print_mistakes(mistakes: list[str], hint: str | None, code: int) -> int:
    for mistake in mistakes:
        print_message("error", mistake)
    if hint:
        print_message("hint", hint)
    return code


def _coloured() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def _sentence(text: str) -> str:
    """click's message in our style: no capital at the start, no full stop."""
    return text[:1].lower() + text[1:].removesuffix(".")


def _help_of(mistake: click.UsageError) -> str:
    path = mistake.ctx.command_path if mistake.ctx else "inferometer"
    return f"{path} --help"


def _file_trouble(mistake: OSError) -> str:
    where = f"{mistake.filename}: " if mistake.filename else ""
    return f"{where}{(mistake.strerror or str(mistake)).lower()}"


def _file_hint(mistake: OSError) -> str | None:
    if mistake.errno == errno.ENOSPC:
        return "free some disk space, or use another store: --store FOLDER"
    if mistake.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return "use a store that you can write to: --store FOLDER"
    return None
