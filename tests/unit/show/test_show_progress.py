"""The progress line: merges shards, fits the terminal, stays quiet in a pipe, never waits for a stalled terminal."""

import io
import os
import pty
import termios
from collections.abc import Iterator

import pytest

from inferometer.load.progress import Progress
from inferometer.show.progress import ProgressLine, line, merged
from inferometer.vocabulary import NANOSECONDS


def shard(number: int, **fields: object) -> Progress:
    return Progress(shard=number, **fields)  # type: ignore[arg-type]


@pytest.fixture
def terminal() -> Iterator[tuple[io.TextIOWrapper, int]]:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as file:
        yield file, ours
    os.close(ours)


def read_until(terminal: int, end: bytes) -> str:
    """What was written, up to the given end; the kernel hands it over in pieces."""
    read = b""
    while not read.endswith(end):
        read += os.read(terminal, 65536)
    return read.decode()


def test_shards_are_summed_and_the_slowest_names_the_phase() -> None:
    counts = merged(
        [
            shard(0, at=5, done=3, failed=1, in_flight=2, output_tokens=10, planned=6, phase="drain"),
            shard(1, at=7, done=4, failed=0, in_flight=5, output_tokens=20, planned=8, phase="load"),
        ]
    )
    assert (counts.at, counts.done, counts.failed, counts.in_flight, counts.output_tokens) == (7, 7, 1, 7, 30)
    assert (counts.planned, counts.share, counts.phase) == (14, 0.5, "load")


def test_one_shard_without_a_plan_makes_the_total_unknown() -> None:
    assert merged([shard(0, planned=5), shard(1, planned=None)]).planned is None


def test_time_left_by_the_clock_and_by_the_pace() -> None:
    ends_at = 20 * NANOSECONDS
    clock = merged([shard(0, at=10 * NANOSECONDS, ends_at=ends_at)], started_at=0)
    assert clock.left_s(clock) == 10
    assert clock.share == 0.5
    before = merged([shard(0, at=0, done=0, planned=40)])
    paced = merged([shard(0, at=10 * NANOSECONDS, done=10, planned=40)])
    assert paced.left_s(before) == pytest.approx(30)
    assert paced.left_s(paced) is None  # no pace yet


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_the_line_fits(width: int) -> None:
    before = merged([shard(0, at=0)])
    now = merged(
        [
            shard(
                0,
                at=NANOSECONDS,
                done=12_345,
                planned=99_999,
                failed=77,
                in_flight=1024,
                waiting=9,
                output_tokens=999_999,
            )
        ]
    )
    text = line(now, before, [0.412] * 9, width)
    assert len(text) <= width
    if width >= 80:
        assert "77 failed" in text and "in flight" in text


def test_a_pipe_gets_nothing() -> None:
    pipe = io.StringIO()
    watch = ProgressLine(pipe)
    watch(shard(0, at=1, done=5))
    watch.clear()
    assert pipe.getvalue() == ""
    watch.message("calibrating 1/3")
    assert pipe.getvalue() == ""


def test_draws_on_a_terminal_at_most_five_times_a_second(terminal: tuple[io.TextIOWrapper, int]) -> None:
    file, ours = terminal
    instants = iter(range(NANOSECONDS, 2 * NANOSECONDS, NANOSECONDS // 100))
    watch = ProgressLine(file, now=lambda: next(instants))
    for i in range(100):
        watch(shard(0, at=i * NANOSECONDS // 100, done=i, in_flight=4, ttft_s=[0.1]))
    watch.clear()
    drawn = read_until(ours, b"\r\x1b[K")
    assert drawn.count("in flight") == 5
    assert "TTFT 100 ms" in drawn


def test_a_stopped_terminal_is_not_waited_for(terminal: tuple[io.TextIOWrapper, int]) -> None:
    file, ours = terminal
    termios.tcflow(file.fileno(), termios.TCOOFF)  # as Ctrl-S does
    instants = iter(range(NANOSECONDS, 10**15, NANOSECONDS))
    watch = ProgressLine(file, now=lambda: next(instants))
    for i in range(2000):  # far more than a terminal buffers: would block for ever
        watch(shard(0, at=i, done=i))
    termios.tcflow(file.fileno(), termios.TCOON)
    file.write("the end")
    file.flush()
    assert len(read_until(ours, b"the end")) < 4096
