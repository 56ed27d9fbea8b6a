"""What went wrong, printed on stderr as `error: ...` and `hint: ...`, and the exit code it means; and plain lines on
stdout, the one place where text goes out without a console."""

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
    """Names of models, plans and files may hold anything: nothing in them commands the terminal."""
    click.echo(harmless(str(text)), nl=nl, err=err)


# -- mistakes --------------------------------------------------------------------------------------------------------

UNEXPECTED = 70  # sysexits.h EX_SOFTWARE: a mistake of ours
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143  # 128 + the signal, as shells say it
EXIT_CODES = {
    0: "measured, limits met or none asked for; a doubtful run is warned of on stderr",
    LIMIT_FAILED: "a limit is broken, also by failed requests; or a run is worse than what it is compared with",
    WRONG_USE: "wrong use, a wrong plan, or a store that cannot be used",
    UNREACHABLE: "the target could not be reached or does not speak the API: nothing was ever answered",
    INVALID: "not valid as a measurement: over 10% of requests failed and no limit on `failure_rate` judges that, the "
    "server or a worker was lost on the way, or another cause; or a limit can neither be shown met nor broken",
    UNEXPECTED: "a mistake of ours; `--traceback` shows where",
    INTERRUPTED: "ended by Ctrl-C, the run is kept",
    BROKEN_PIPE: "whoever read our output has gone (`| head`)",
    TERMINATED: "ended by TERM, the run is kept",
}
_signals: list[int] = []  # that ended this process, as far as it went on after them

_COLOURS = {"error": "red", "warning": "yellow", "hint": "cyan", "note": "cyan"}


def end_on_term() -> None:
    """TERM ends a command as Ctrl-C does: through every `finally`, with what was measured kept."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, _frame: object) -> None:
    _signals.append(number)
    raise Terminated


def interrupted_code() -> int:
    """The exit code of a command that was ended by a signal."""
    return 128 + _signals[-1] if _signals else INTERRUPTED


def report(mistake: Exception) -> int:
    """Tell a person what went wrong and give the exit code."""
    if os.environ.get("INFEROMETER_TRACEBACK"):
        shown = "".join(traceback.format_exception(mistake))
        click.echo(harmless(environment_redactor(os.environ).hide(shown)), err=True)
    match mistake:
        case PlanError():
            return _tell(mistake.mistakes, mistake.hint, mistake.exit_code)
        case InferometerError():
            return _tell([mistake.message], mistake.hint, mistake.exit_code)
        case click.Abort():
            return INTERRUPTED
        case click.UsageError() if type(mistake).__name__ == "NoArgsIsHelpError":  # since click 8.2
            echo(mistake.format_message())
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
    safe = environment_redactor(os.environ).hide(text)  # the last edge: a message of whatever was not foreseen
    click.echo(f"{word} {harmless(safe)}", err=True)


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
