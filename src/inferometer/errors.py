"""Errors whose messages name the remedy; each kind has its exit code."""

import signal

LIMIT_FAILED, WRONG_USE, UNREACHABLE, INVALID = 1, 2, 3, 4  # exit codes


class InferometerError(Exception):
    """`where: what is wrong, what we got`, with a hint of what to do."""

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class PlanError(InferometerError):
    """The plan or the command line requests something impossible; lists every mistake at once."""

    def __init__(self, mistakes: list[str] | str, hint: str | None = None) -> None:
        self.mistakes = [mistakes] if isinstance(mistakes, str) else mistakes
        super().__init__("\n".join(self.mistakes), hint)

    def name(self, where: str) -> None:
        """Put the file's name in front of every mistake; those of the command line, `-o x: ...`, have their own."""
        self.mistakes = [
            text if where in text or text.startswith("-") else f"{where}: {text}" for text in self.mistakes
        ]
        self.message = "\n".join(self.mistakes)
        self.args = (self.message,)


class TargetError(InferometerError):
    """The target could not be reached, or does not support the API."""

    exit_code = 3


class LostError(InferometerError):
    """The server or a worker was lost during the run: what was measured before is stored, but incomplete."""

    exit_code = INVALID


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends the process like Ctrl-C, storing what was measured; only the exit code differs."""

    number = signal.SIGTERM


class StoreError(InferometerError):
    """A run could not be read or stored."""


class MissingExtra(InferometerError):
    """An optional part of Inferometer is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}'", f"pip install 'inferometer[{extra}]'")


class DataError(InferometerError):
    """A data file cannot be used: names the file and row, the problem, and the remedy."""
