"""The command line. Each module declares a few commands: their options, examples and help. The functions that do the
work are in `inferometer.cli.work` and are only imported when a command runs, so that help is fast."""

import atexit
import gc
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

import click

from inferometer.cli.errors import BROKEN_PIPE, TERMINATED, end_on_term, interrupted_code, print_message, report
from inferometer.cli.group import ReaderGoneError, WrongUseError, group, unknown_option
from inferometer.documents.document import is_unicode
from inferometer.errors import InferometerError, Terminated

# New objects between two garbage collections. Collections traverse everything that imports created: with Python's
# default of 700 they take an eighth of the time of a short command, with 100,000 a twentieth.
GARBAGE_AT = 500_000


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `inferometer` command; ends the process with the exit code."""
    _open_standard_files()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's idle threads would spin during the load
    gc.set_threshold(GARBAGE_AT)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # if the encoding has no µ, a ? is better than no result
    end_on_term()
    code = execute(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
        _forget_stdout()
    if arguments is None and _is_alone():
        _end(code)
    gc.freeze()  # else Python would traverse all objects twice more at exit
    sys.exit(code)


def _is_alone() -> bool:
    """Whether nothing follows the command in this process: no thread to wait for, and no profiler, debugger or prompt
    that continues after it."""
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    observed = sys.getprofile() or sys.gettrace() or (monitoring and any(map(monitoring.get_tool, range(6))))
    return threading.active_count() == 1 and not observed and not sys.flags.inspect


def _end(code: int) -> NoReturn:
    """Ends the process after its exit handlers. Otherwise Python would free every module and object first, which takes
    a thirtieth of a short run."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed by its reader
            stream.flush()
    os._exit(code)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are printed on stderr."""
    if "inferometer.store.folder" in sys.modules:  # cached by an earlier command of this process
        sys.modules["inferometer.store.folder"].FOLDERS_READ.clear()
    typed = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _check_arguments(typed)
        code = group.main(typed, prog_name="inferometer", standalone_mode=False)
    except ReaderGoneError:
        _forget_stdout()
        return BROKEN_PIPE
    except click.Abort as aborted:  # click raises it for a KeyboardInterrupt
        return _interrupted(aborted.__cause__)
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt)
    except click.NoSuchOption as mistake:
        return report(unknown_option(mistake, typed))
    except Exception as mistake:
        return report(_cause_of(mistake))
    return code if isinstance(code, int) else 0


def _check_arguments(typed: Sequence[str]) -> None:
    """Arguments are stored, sent and printed, which is not possible with bytes that are not UTF-8."""
    if broken := [argument for argument in typed if not is_unicode(argument)]:
        hint = "rename files with such names"
        raise WrongUseError(f"an argument must be text in UTF-8, got {broken[0][:200]!a}", hint)


def _open_standard_files() -> None:
    """Opens stdin, stdout and stderr on /dev/null if they are closed, as some services start us: else the next opened
    file, such as a log, would get their number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115 - open until exit
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115


def _interrupted(cause: BaseException | None) -> int:
    code = TERMINATED if isinstance(cause, Terminated) else interrupted_code()
    print_message("warning", "terminated" if code == TERMINATED else "interrupted")
    return code


def _cause_of(mistake: Exception) -> Exception:
    """If this command has read a damaged run, an unexpected error is reported as that damage."""
    if isinstance(mistake, InferometerError | click.exceptions.ClickException | OSError):
        return mistake
    if "inferometer.store.folder" not in sys.modules:
        return mistake
    from inferometer.store.upkeep import damaged_runs  # only after an unexpected error

    return next((damaged.error for damaged in damaged_runs(mistake)), mistake)


def _forget_stdout() -> None:
    """Prevents a second error about the pipe when the interpreter flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
