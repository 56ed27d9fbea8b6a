"""A server's log as the messages in it: physical lines by number, wrapped ones joined, progress bars taken apart, each
message with its process and its time; and whose log it is when it is not vLLM's."""

import re
from calendar import isleap
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import BinaryIO, NamedTuple

from inferometer.target.launch import engines

# -- clock -----------------------------------------------------------------------------------------------------------

HALF_YEAR_S = 183 * 86400.0
DAY_S = 86400.0


class LogClock:
    """Stamps in the order of the log, as seconds that only make sense as differences, or as `text`."""

    def __init__(self, latest_s: float) -> None:
        """`latest_s` on the wall clock: no line can be younger."""
        self._latest = latest_s
        self._year: int | None = None
        self._last: float | None = None
        self.resolution_s: float | None = None

    def at(self, year: str | None, month: str, day: str, time: str, fraction: str | None) -> float | None:
        """Seconds since 1970 on the log's own clock; None for what is no date."""
        parts = (int(month), int(day), *map(int, time.split(":")))
        at = _seconds(int(year), *parts) if year else self._without_year(*parts)
        if at is None:
            return None
        self._last = at
        self.resolution_s = 10.0 ** -len(fraction) if fraction else 1.0
        return at + float(f"0.{fraction}") if fraction else at

    def _without_year(self, *parts: int) -> float | None:
        if self._year is None:
            self._year = _first_year(self._latest, parts)
        at = _seconds(self._year, *parts)
        if at is not None and self._last is not None and at < self._last - HALF_YEAR_S:
            self._year += 1  # 12-31 was followed by 01-01; a line that is a second late is not
            at = _seconds(self._year, *parts)
        elif at is not None and self._last is not None and at > self._last + HALF_YEAR_S:
            at = _seconds(self._year - 1, *parts)  # a late line of the old year
        return at


def text(at: float) -> str:
    """`2026-11-15T01:14:00`, without a zone: the log has none."""
    moment = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def _first_year(latest_s: float, parts: tuple[int, ...]) -> int:
    """The latest year in which these parts are a date that is not in the future; a zone may be a day apart."""
    year = datetime.fromtimestamp(latest_s, UTC).year
    if parts[:2] == (2, 29):
        while not isleap(year):
            year -= 1
    at = _seconds(year, *parts)
    return year if at is None or at <= latest_s + DAY_S else year - 1


@lru_cache(64)
def _seconds(year: int, *parts: int) -> float | None:
    try:
        return datetime(year, *parts, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]
    except ValueError:
        return None


# -- lines -----------------------------------------------------------------------------------------------------------

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
_PROCESS = re.compile(r"\(([\w .=\-/]{1,60}?) pid=(\d+)(?:, ip=([^)\s]+))?")
_REPEATED = re.compile(r"\s*\[repeated (\d{1,6})x across cluster\].*", re.DOTALL)  # by Ray, with a hint the first time


class Message(NamedTuple):  # a frozen dataclass takes five times as long to make, and there are millions
    """`lines` are the first and the last physical line. `at` is that of the message, else of the one before it."""

    lines: tuple[int, int]
    process: str | None  # "EngineCore pid=780"; None if the line does not name one
    at: float | None
    text: str
    stamped: bool  # by vLLM's own logging, or a tool's that looks like it
    repeats: int = 1  # lines that Ray shows as this one, of processes that it does not name


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
    for match in _WITHIN.finditer(part):
        if match.start() > start:
            yield part[start : match.start()]
        start = match.start()
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
    body, repeats = text[head.end() :], 1
    if "[repeated " in body and (repeated := _REPEATED.search(body)) is not None:
        body, repeats = body[: repeated.start()], int(repeated[1])
    return Message(lines, process, last_at if at is None else at, body, inner is not None, repeats)


@lru_cache(256)
def _process(prefix: str) -> str | None:
    """The innermost, which is the one that wrote it: `(EngineCore pid=1) (Worker_TP0 pid=2)`. On several nodes two
    processes may have one pid: `(RayWorkerWrapper pid=344, ip=10.2.30.130)`."""
    names = _PROCESS.findall(prefix)
    if not names:
        return None
    host = next((ip for _name, _pid, ip in reversed(names) if ip), "")
    return f"{names[-1][0]} pid={names[-1][1]}" + (f" ip={host}" if host else "")


# -- physical --------------------------------------------------------------------------------------------------------

LONGEST_LINE = 64 * 1024  # bytes; the rest of a longer one is not read: nothing of a start is that long
SKIM_FROM = 16 * 2**20  # bytes; below, all is read: it takes two seconds
BLOCK = 2**20

_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_RELEVANT = re.compile(  # of sleep and wake, and of a new start
    rb"asleep|wake up|Sleep mode|plugins for group|detected platform|non-default args|API server version| version \d"
    rb"|args: Namespace|serialization"
)


class PhysicalLines:
    """Iterates over numbers and lines; `settled` is set by the reader when what comes can be skimmed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = 0
        self._bytes = 0
        self.settled = False

    def __iter__(self) -> Iterator[tuple[int, str]]:
        while True:
            if self.settled and self._bytes > SKIM_FROM:
                yield from self._skimmed()
            raw = self._next()
            if not raw:
                return
            yield self._number, _text(raw)

    def _next(self) -> bytes:
        raw = rest = self._file.readline(LONGEST_LINE)
        while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            rest = self._file.readline(LONGEST_LINE)
        self._number += 1
        self._bytes += len(raw)
        return raw

    def _skimmed(self) -> Iterator[tuple[int, str]]:
        """Lines with a telling word and their neighbours, for a line may be wrapped; until a new start begins."""
        while block := self._file.read(BLOCK) + self._file.readline(LONGEST_LINE):
            at = 0
            for start, end in _around(block):
                self._number += block.count(b"\n", at, start)
                for raw in block[start:end].splitlines():
                    self._number += 1
                    yield self._number, _text(raw)
                at = end
                if not self.settled:
                    self._file.seek(end - len(block), 1)
                    return
            self._number += block.count(b"\n", at)


def _around(block: bytes) -> Iterator[tuple[int, int]]:
    """From where to where, without overlaps."""
    done = 0
    for match in _RELEVANT.finditer(block):
        if match.start() < done:
            continue
        line = block.rfind(b"\n", done, match.start())
        before = block.rfind(b"\n", done, max(line, done))
        start = max(before + 1, done)
        line_end = block.find(b"\n", match.end())
        after = block.find(b"\n", line_end + 1) if line_end >= 0 else -1
        done = after + 1 if after >= 0 else len(block)
        yield start, done


def _text(raw: bytes) -> str:
    line = raw.decode("utf-8", "replace").rstrip("\n")
    return _COLOUR.sub("", line) if "\x1b" in line else line


# -- foreign ---------------------------------------------------------------------------------------------------------

_SIGNS = {  # of servers that are not started here, or not as an engine
    "TensorRT-LLM": r"\[TensorRT-LLM\]|\[TRT-LLM\]|trtllm-serve",
    "Ollama": r"msg=\"Listening on .*ollama|ollama runner|GIN-debug.*api/generate",
    "transformers": r"transformers serve|transformers/commands/serving|\[transformers\]",
    "Ray Serve": r"ray::ServeController|serve\.run|ServeController",
    "the simulator of this program": r'^\{("port": ?\d+, ?)?"url": ?"http',
}


def engine_of(sample: str) -> str | None:
    """The engine that writes like this; None where it is not one that we know."""
    return next((name for name, pattern in _patterns().items() if pattern.search(sample)), None)


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    own = {engine.title: engine.log_signs for engine in engines().values() if engine.log_signs}
    return {name: re.compile(signs, re.IGNORECASE | re.MULTILINE) for name, signs in (own | _SIGNS).items()}
