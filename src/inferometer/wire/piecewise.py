"""Work on an answer that pauses, so that time limits and signals act meanwhile.

A hostile server sends half a million events, lines or chunks in one answer, and reading them takes seconds. What walks
through them is a generator that pauses after `AT_ONCE` of them and returns its result at the end.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Piecewise = Generator[None, None, T]

AT_ONCE = 4096  # events, lines or chunks between two pauses: some 40 ms of the slowest dialect
BYTES_AT_ONCE = 1 << 18  # of JSON, likewise: up to 60 ms where all of it is empty lists


def whole(work: Piecewise[T]) -> T:
    """The result, without pauses."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
