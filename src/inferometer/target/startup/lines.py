"""Lines of a log as the messages in it: wrapped lines joined, progress bars taken apart, each message with the process
that wrote it and its time. What a message means is in `wordings`."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from inferometer.target.startup.clock import LogClock

MOST_WRAPS = 60  # physical lines of one message

_PREFIX = r"(?:\([\w .=\-/]{1,60}? pid=\d+(?:, ip=[^)]*)?\)\s*)"
_LEVEL = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|TRACE)"
_STAMP = (
    r"(?:(?P<year>\d{4})-)?(?P<month>\d\d)-(?P<day>\d\d)[ T](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,6})\d*)?"
)
_PLACE = r"(?:\[?[\w./<>-]+\.py:\d+[\]:])"
_HEAD = re.compile(rf"(?P<prefix>{_PREFIX}*){_LEVEL}\s+{_STAMP}\s*{_PLACE}?\s*")
_PYTHON_HEAD = re.compile(rf"(?P<prefix>{_PREFIX}*)\[{_STAMP}\]\s*(?:{_LEVEL}\s+)?{_PLACE}?\s*")
_BARE_HEAD = re.compile(rf"(?P<prefix>{_PREFIX}*)(?:{_LEVEL}:\s+)?")
_OUTER = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)T(?P<time>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,6})\d*)?Z? "
)
_BEGINS = re.compile(  # a line that is no continuation of the one before
    rf"{_PREFIX}|{_LEVEL}:? +(?:\d|\w)|\[\d{{4}}-\d\d-\d\d|\[[WIEF]\d{{4}} |\[RunAI |(?:Start|End) model |Traceback "
)
_WITHIN = re.compile(rf"{_PREFIX}*{_LEVEL}\s+{_STAMP}")  # a message that begins behind a progress bar, or a torn one
_BAR = re.compile(r"[^|%\r]{0,200}?\s\d{1,3}%(?: Completed)?\s*\|[^|]*\|\s*[^\[\]]{0,40}\[[^\]]*\]")
_PROCESS = re.compile(r"\(([\w .=\-/]{1,60}?) pid=(\d+)")


class Message(NamedTuple):  # a frozen dataclass takes five times as long to make, and there are millions
    """`lines` are the first and the last physical line. `at` is that of the message, else of the one before it."""

    lines: tuple[int, int]
    process: str | None  # "EngineCore pid=780"; None where the line does not say
    at: float | None
    text: str
    stamped: bool  # by vLLM's own logging, or a tool's that looks like it


def messages(lines: Iterable[tuple[int, str]], clock: LogClock) -> Iterator[Message]:
    """Every message, in the order of the log."""
    last_at, last_process, drawing = None, None, None
    for numbers, text in _joined(_pieces(lines)):
        message = _parsed(text, numbers, clock, last_at)
        if message.process is None and _is_bar(text):  # written without a name: whose it is shows when it begins
            drawing = last_process if drawing is None or " 0%" in text[:80] else drawing
            message = message._replace(process=drawing)
        else:
            last_process = message.process
        yield message
        last_at = message.at


def _pieces(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Physical lines by number, cut where a progress bar or another message begins inside of one."""
    for number, line in lines:
        if "\r" not in line and "%|" not in line and line.count(" pid=") < 2:
            yield number, line
            continue
        for part in line.split("\r"):
            yield from ((number, piece) for piece in _cut(part) if piece.strip())


def _cut(part: str) -> Iterator[str]:
    start = 0
    for found in _WITHIN.finditer(part):
        if found.start() > start:
            yield part[start : found.start()]
        start = found.start()
    yield part[start:]


def _joined(pieces: Iterable[tuple[int, str]]) -> Iterator[tuple[tuple[int, int], str]]:
    """A piece that does not begin a message belongs to the one before it: it was wrapped."""
    first = last = 0
    held: list[str] = []
    for number, piece in pieces:
        if not held or _begins(piece) or len(held) >= MOST_WRAPS or _is_bar(held[0]):
            if held:
                yield (first, last), "".join(held)
            first, held = number, []
        last = number
        held.append(piece)
    if held:
        yield (first, last), "".join(held)


def _begins(piece: str) -> bool:
    return bool(_BEGINS.match(piece) or (piece[:1].isdigit() and _OUTER.match(piece))) or _is_bar(piece)


def _is_bar(piece: str) -> bool:
    return "%" in piece and "|" in piece and _BAR.match(piece) is not None


def _parsed(text: str, lines: tuple[int, int], clock: LogClock, last_at: float | None) -> Message:
    """A line without a time has that of the one before it."""
    outer = _OUTER.match(text) if text[:1].isdigit() else None
    if outer is not None:  # `docker logs --timestamps`, `kubectl logs --timestamps`: a year and parts of a second
        text = text[outer.end() :]
    inner = _HEAD.match(text) or _PYTHON_HEAD.match(text)
    head = inner or _BARE_HEAD.match(text)
    assert head is not None  # it may be empty
    stamp = outer or inner
    at = None if stamp is None else clock.at(*stamp.group("year", "month", "day", "time", "fraction"))
    process = _process(head["prefix"])
    return Message(lines, process, last_at if at is None else at, text[head.end() :], inner is not None)


@lru_cache(256)
def _process(prefix: str) -> str | None:
    """The innermost, which is the one that wrote it: `(EngineCore pid=1) (Worker_TP0 pid=2)`."""
    names = _PROCESS.findall(prefix)
    return f"{names[-1][0]} pid={names[-1][1]}" if names else None
