"""The command line: one thin file per command, imported only when it is called, so that help answers at once."""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import NoReturn

from inferometer.cli.group import ReaderGoneError, group
from inferometer.cli.mistakes import BROKEN_PIPE, TERMINATED, end_on_term, interrupted_code, report, say
from inferometer.errors import Terminated


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `inferometer` command; ends the process with the exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's idle threads would spin beside the load
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where there is no µ, a ? is better than no result
    end_on_term()
    code = execute(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
        _forget_stdout()
    sys.exit(code)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code; what went wrong is said on stderr."""
    try:
        code = group.main(arguments, prog_name="inferometer", standalone_mode=False)
    except ReaderGoneError:
        _forget_stdout()
        return BROKEN_PIPE
    except Terminated:
        say("warning", "terminated")
        return TERMINATED
    except KeyboardInterrupt:
        say("warning", "interrupted")
        return interrupted_code()
    except Exception as mistake:
        return report(mistake)
    return code if isinstance(code, int) else 0


def _forget_stdout() -> None:
    """Keeps the interpreter from complaining about the pipe once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
