"""The harness of an offline engine: started once for all batches, each of which is timed; one that dies is started
again, once; what it prints is kept out of the way."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from inferometer.errors import InferometerError, TargetError
from inferometer.target.offline.engine import Answer, EngineFacts, OfflineEngine, Prompt
from inferometer.vocabulary import NANOSECONDS

# -- output ----------------------------------------------------------------------------------------------------------


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Whatever this process, its libraries and the children that it starts meanwhile print goes to the end of `log`.
    Children go on writing there."""
    _flush()
    kept = [os.dup(1), os.dup(2)]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        _flush()
        for number, before in enumerate(kept, start=1):
            os.dup2(before, number)
            os.close(before)
        os.close(file)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or its reader has gone: not ours to mend
            stream.flush()


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, for an error message."""
    if not log.exists():
        return ""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return "\n".join(line.rstrip() for line in text if line.strip())


# -- stand -----------------------------------------------------------------------------------------------------------

MOST_STARTS = 2


@dataclass(frozen=True, slots=True)
class Timed:
    """A batch that was made: from handing it over to having all its tokens."""

    elapsed_s: float
    answers: list[Answer]


class Stand:
    """Holds the engine. What it prints goes to `log`. `facts` are those of its first start."""

    def __init__(self, start: Callable[[], OfflineEngine], log: Path) -> None:
        self._start, self._log = start, log
        self._engine: OfflineEngine | None = None
        self.starts = 0
        self._open()
        assert self._engine is not None
        self.facts: EngineFacts = self._engine.facts

    def timed(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> Timed:
        """One batch. Whatever goes wrong is the engine's and is raised as it comes."""
        engine = self._running()
        with output_to(self._log):
            started_at = engine.now()
            answers = engine.generate(prompts, output_tokens)
            ended_at = engine.now()
        return Timed((ended_at - started_at) / NANOSECONDS, answers)

    def profiled(self, folder: Path, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> None:
        """One batch, whose time does not count, with a trace of it in the folder."""
        engine = self._running()
        with output_to(self._log), engine.profiled(folder):
            engine.generate(prompts, output_tokens)

    def revived(self) -> str | None:
        """After a failure: make sure of a running engine, and say so where it had to be started again.

        Raises where it is dead and was started again before, or cannot be."""
        if self._answers():
            return None
        self.close()
        if self.starts >= MOST_STARTS:
            raise TargetError(f"the engine died {self.starts} times and is not started again")
        self._open()
        return "the engine had died and was started again"

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            with output_to(self._log), suppress(Exception):  # it is given up in any case
                engine.close()

    def _answers(self) -> bool:
        """Whether it still makes a token, which only a try can tell."""
        try:
            self.timed([[1]], [1])
        except Exception:
            return False
        return True

    def _running(self) -> OfflineEngine:
        if self._engine is None:
            raise TargetError("the engine is not running")
        return self._engine

    def _open(self) -> None:
        self.starts += 1
        try:
            with output_to(self._log):
                self._engine = self._start()
        except InferometerError:
            raise
        except Exception as error:
            raise TargetError(f"the engine did not start: {one_line(error)}", tail(self._log) or None) from error


def one_line(error: BaseException, most: int = 300) -> str:
    """`OutOfMemoryError: CUDA out of memory. Tried ...`"""
    said = " ".join(str(error).split())
    name = type(error).__name__
    text = said if isinstance(error, InferometerError) else f"{name}: {said}" if said else name
    return text if len(text) <= most else f"{text[: most - 1]}…"
