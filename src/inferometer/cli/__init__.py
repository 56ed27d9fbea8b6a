"""The command line. Each module declares a few commands: their options, examples and help. The functions that do the
work are in `inferometer.cli.work` and are imported when a command runs, so that help is fast."""

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

# Objects between two collections: Python's own 700 take an eighth of a short command, because all that imports made is
# looked through, and 100,000 a twentieth.
GARBAGE_AT = 500_000


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `inferometer` command; ends the process with the exit code."""
    _open_standard_files()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's idle threads would spin during the load
    gc.set_threshold(GARBAGE_AT)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where there is no µ, a ? is better than no result
    end_on_term()
    code = execute(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
        _forget_stdout()
    if arguments is None and _is_alone():
        _end(code)
    gc.freeze()  # at its end Python would look through all objects twice more
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
    """Run one command line and give its exit code; what went wrong is printed on stderr."""
    if "inferometer.store.folder" in sys.modules:  # by a command before this one
        sys.modules["inferometer.store.folder"].FOLDERS_READ.clear()
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _check_words(words)
        code = group.main(words, prog_name="inferometer", standalone_mode=False)
    except ReaderGoneError:
        _forget_stdout()
        return BROKEN_PIPE
    except click.Abort as aborted:  # what click makes of an interrupt
        return _interrupted(aborted.__cause__)
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt)
    except click.NoSuchOption as mistake:
        return report(unknown_option(mistake, words))
    except Exception as mistake:
        return report(_blamed(mistake))
    return code if isinstance(code, int) else 0


def _check_words(words: Sequence[str]) -> None:
    """What is typed is stored, sent and printed: bytes that are no text could be none of these."""
    if broken := [word for word in words if not is_unicode(word)]:
        hint = "rename files with such names"
        raise WrongUseError(f"an argument must be text in UTF-8, got {broken[0][:200]!a}", hint)


def _open_standard_files() -> None:
    """Whoever starts us with one of them closed, as some services do, wants nothing of it; what is opened next, such as
    a log, must not get its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115 - for as long as we live
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115


def _interrupted(cause: BaseException | None) -> int:
    code = TERMINATED if isinstance(cause, Terminated) else interrupted_code()
    print_message("warning", "terminated" if code == TERMINATED else "interrupted")
    return code


def _blamed(mistake: Exception) -> Exception:
    """An unexpected error is the fault of a run that is not as it was written, if this command has read one."""
    if isinstance(mistake, InferometerError | click.exceptions.ClickException | OSError):
        return mistake
    if "inferometer.store.folder" not in sys.modules:
        return mistake
    from inferometer.store.upkeep import damaged_runs  # only after an unexpected error

    return next((damaged.error for damaged in damaged_runs(mistake)), mistake)


def _forget_stdout() -> None:
    """Keeps the interpreter from complaining about the pipe once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
