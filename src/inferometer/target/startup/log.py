"""A server's log as messages: physical lines by number, wrapped ones joined, progress bars separated, each message with
its process and its time; and which engine wrote the log if it is not vLLM."""

import re
from calendar import isleap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from typing import BinaryIO, NamedTuple

from inferometer.target.launch import engines

# -- wordings ----------------------------------------------------------------------------------------------------------

# vLLM's messages while it starts: one row for the wording of each generation of versions. Wordings change between
# versions, so every row names the versions that use it (checked against vLLM's tags 0.6 to 0.27), and a new wording is
# a new row.
#
# A space matches any white space or none, since a line may have been wrapped anywhere. `{seconds:s}` reads a number,
# `{size:gib}` one in GiB as bytes, `{size:size}` one with its unit as bytes, `{tokens:n}` a count, `{model:word}` a
# word, `{arguments:rest}` the rest; `{:any}` skips. A wording must be at the start of a message, so that a request that
# quotes one does not match.

_KINDS = {
    "s": r"\d+(?:\.\d+)?",
    "gib": r"\d+(?:\.\d+)?",
    "size": r"\d+(?:\.\d+)?\s*(?:[KMGT]i?B|Bytes)",
    "n": r"\d[\d,]*",
    "word": r"\S+?",
    "rest": r".*",
    "any": r".*?",
}
_FIELD = re.compile(r"\{(\w*):(\w+)\}")
_UNITS = {"Bytes": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_KEY = 2  # letters by which a wording is looked up

Value = float | int | str


@dataclass(frozen=True)
class Wording:
    """`mark` is the meaning of the line, independent of its wording."""

    mark: str
    text: str
    versions: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("".join(_wording_pieces(self.text)), re.DOTALL)

    @cached_property
    def kinds(self) -> dict[str, str]:
        return dict(_FIELD.findall(self.text))

    def read(self, message: str) -> dict[str, Value] | None:
        """The values in a message with this wording; None for any other message."""
        match = self.pattern.match(message)
        if match is None:
            return None
        return {name: _value(text, self.kinds[name]) for name, text in match.groupdict().items()}


def reading(message: str) -> tuple[Wording, dict[str, Value]] | None:
    """The wording of a message and its values; None if it is not a startup message."""
    for wording in _BY_KEY.get(message[:_KEY], ()):
        values = wording.read(message)
        if values is not None:
            return wording, values
    return None


def _wording_pieces(text: str) -> Iterator[str]:
    end = 0
    for field in _FIELD.finditer(text):
        yield _spaced(text[end : field.start()])
        name, kind = field.groups()
        last = kind == "word" and field.end() == len(text)
        pattern = r"\S*[^\s.:,]" if last else _KINDS[kind]
        yield f"(?P<{name}>{pattern})" if name else pattern
        end = field.end()
    yield _spaced(text[end:])


def _spaced(literal: str) -> str:
    return r"\s*".join(map(re.escape, re.split(r" +", literal)))


def _value(text: str, kind: str) -> Value:
    match kind:
        case "s":
            return float(text)
        case "gib":
            return float(text) * 2**30
        case "size":
            number = re.match(r"[\d.]+", text)
            assert number is not None
            return float(number[0]) * _UNITS[text[number.end() :].strip()]
        case "n":
            return int(text.replace(",", ""))
    return text.strip()


_TABLE: tuple[tuple[str, str, str], ...] = (
    # platform, imports, arguments
    ("platform_begins", "No plugins for group vllm.platform_plugins found", "0.7-"),
    ("platform_begins", "Available plugins for group vllm.platform_plugins", "0.7-"),
    ("platform_ends", "Automatically detected platform {platform:word}", "0.7-"),
    ("platform_ends", "Platform plugin {platform:word} is activated", "0.7-"),
    ("no_platform", "No platform detected", "0.7-"),
    ("imports_end", "Available plugins for group vllm.general_plugins", "0.7-"),
    ("imports_end", "No plugins for group vllm.general_plugins found", "0.7-"),
    ("imports_end", "All plugins in this group will be loaded", "0.9-"),
    ("imports_end", "all available plugins for group vllm.general_plugins will be loaded", "0.7-0.8"),
    ("server_version", "vLLM API server version {version:word}", "0.6-0.24"),
    ("server_version", "▄▄ ▄█ █ █ █ ▀▄▀ █ version {version:word}", "0.15-"),
    ("arguments", "non-default args: {arguments:rest}", "0.9-"),
    ("arguments", "args: {arguments:rest}", "0.6-0.8"),
    # config, worker
    ("config_ends", "Using max model len {length:n}", "0.9-"),
    ("batched_tokens", "Setting max_num_batched_tokens to {tokens:n}", "0.6-0.10"),
    ("init_awaited", "Waiting for init message from front-end", "0.9-"),
    ("engine_begins", "Initializing a V1 LLM engine (v{version:word}) with config: {config:rest}", "0.7-"),
    ("engine_begins", "Initializing a V0 LLM engine (v{version:word}) with config: {config:rest}", "0.7-0.10"),
    ("engine_begins", "Initializing an LLM engine (v{version:word}) with config: {config:rest}", "0.6"),
    # weights
    ("weights_begin", "Starting to load model {model:word}...", "0.6-"),
    ("weights_begin", "Loading model from scratch...", "0.9-"),
    ("model_made", "Initializing model took {seconds:s} seconds", "0.32-"),
    ("downloaded", "Time spent downloading weights for {model:word}: {seconds:s} seconds", "0.7-"),
    ("weights_read", "Loading weights took {seconds:s} seconds", "0.8-"),
    ("weights_read", "Deserialized {size:size} in {seconds:s}s", "tensorizer"),
    ("streamed", "[RunAI Streamer] Overall time to stream {size:size}{:any}: {seconds:s}s", "runai_streamer"),
    (
        "streamed",
        "[RunAI Distributed Streamer] Overall time to stream {size:size}{:any}: {seconds:s}s",
        "runai_streamer",
    ),
    ("weights_end", "Model loading took {size:gib} GiB memory and {seconds:s} seconds", "0.11-"),
    ("weights_end", "Model loading took {size:gib} GiB and {seconds:s} seconds", "0.8-"),
    (
        "weights_end",
        "Model loading took {size:gib} GB and {seconds:s} seconds",
        "0.8",
    ),  # GiB in the code, although the message states GB
    ("weights_end", "Loading model weights took {size:gib} GiB", "0.8-0.9"),
    ("weights_end", "Loading model weights took {size:gib} GB", "0.6-0.7"),  # the same
    # compile
    ("compile_begins", "Start compiling function", "0.7-"),
    ("dynamo", "Dynamo bytecode transform time: {seconds:s} s", "0.6-"),
    ("inductor", "Compiling a graph for compile range {:any}takes {seconds:s} s", "0.13-"),
    ("inductor", "Compiling a graph for dynamic shape takes {seconds:s} s", "0.10-0.12"),
    ("inductor", "Compiling a graph for general shape takes {seconds:s} s", "0.6-0.9"),
    ("inductor", "Compiling a graph for shape {:any}takes {seconds:s} s", "0.6-0.12"),
    ("cache_read", "Directly load the compiled graph(s) for {:any}from the cache, took {seconds:s} s", "0.8-"),
    ("cache_read", "Directly load AOT compilation from path", "0.11-"),
    ("cache_read", "Directly load the compiled graph for shape {:any}from the cache", "0.7"),
    ("graph_saved", "Computation graph saved to", "0.7-"),
    ("compile_ends", "torch.compile took {seconds:s} s in total", "0.18-"),
    ("compile_ends", "torch.compile takes {seconds:s} s in total", "0.6-0.17"),
    ("first_run", "Initial profiling/warmup run took {seconds:s} s", "0.18-"),
    # memory, graphs
    ("free_before", "Initial free memory: {size:gib} GiB", "0.9-"),
    ("free_after", "Free memory after profiling: {size:gib} GiB", "0.10-"),
    ("profiled", "Memory profiling takes {seconds:s} seconds", "0.6-"),
    ("cache_memory", "Available KV cache memory: {size:gib} GiB", "0.9-"),
    ("cache_memory", "the rest of the memory reserved for KV Cache is {size:gib}GiB", "0.6-0.10"),
    ("cache_memory", "Explicitly set ({size:gib}/{:s}) GiB for KV cache", "0.32-, CPU"),
    ("cache_memory", "Auto set ({size:gib}/{:s}) GiB for KV cache", "0.32-, CPU"),
    ("cache_tokens", "GPU KV cache size: {tokens:n} tokens", "0.8-"),
    ("cache_tokens", "CPU KV cache size: {tokens:n} tokens", "0.32-, CPU"),
    ("cache_blocks", "# GPU blocks: {blocks:n}", "0.6-0.7"),
    ("cache_blocks", "# {:word} blocks: {blocks:n}, # CPU blocks", "0.8-0.10"),
    ("capturing", "Capturing CUDA graph{:any} {percent:n}%|", "0.6-"),
    ("captured", "Graph capturing finished in {seconds:s} secs, took {size:gib} GiB", "0.6-"),
    ("captured", "Graph capturing finished in {seconds:s} secs.", "0.4-0.6"),
    ("warmup_begins", "Warming up model for the compilation...", "0.9-"),
    ("warmup_ends", "Warming up done.", "0.9-"),
    # ready
    ("engine_ends", "init engine (profile, create kv cache, warmup model) took {seconds:s} s", "0.6-"),
    ("engine_ready", "READY from local core engine process", "0.9-"),
    ("engine_ready", "EngineCore waiting for work", "0.8-"),
    ("api_begins", "Starting vLLM server on {address:word}", "0.18-"),
    ("api_begins", "Starting vLLM API server {number:n} on {address:word}", "0.9-0.17"),
    ("api_begins", "Starting vLLM API server on {address:word}", "0.7-0.8"),
    ("template_tried", "Chat template warmup completed in {seconds:s}s", "0.24-"),
    ("routes", "Available routes are:", "0.6-"),
    ("api_ends", "Application startup complete", "0.6-"),
    # asleep
    ("asleep", "It took {seconds:s} seconds to fall asleep", "0.7-"),
    ("freed", "Sleep mode freed {freed:gib} GiB memory, {in_use:gib} GiB memory is still in use", "0.7-"),
    ("awake", "It took {seconds:s} seconds to wake up", "0.7-"),
    # printed by llm-d when it has serialized a model for tensorizer, before the start proper
    ("serialized", "End model {model:word} serialization", "llm-d"),
)

WORDINGS = tuple(Wording(*row) for row in _TABLE)


def _by_key() -> dict[str, list[Wording]]:
    wordings: dict[str, list[Wording]] = {}
    for wording in WORDINGS:
        wordings.setdefault(wording.text[:_KEY], []).append(wording)
    return wordings


_BY_KEY = _by_key()


# -- clock -----------------------------------------------------------------------------------------------------------

HALF_YEAR_S = 183 * 86400.0
DAY_S = 86400.0


class LogClock:
    """Timestamps in the order of the log, as seconds that are meaningful only as differences, or as `text`."""

    def __init__(self, latest_s: float) -> None:
        """`latest_s` on the wall clock: no line can be later."""
        self._latest = latest_s
        self._year: int | None = None
        self._last: float | None = None
        self.resolution_s: float | None = None

    def at(self, year: str | None, month: str, day: str, time: str, fraction: str | None) -> float | None:
        """Seconds since 1970 on the log's own clock; None if it is not a date."""
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
            self._year += 1  # 12-31 was followed by 01-01, and not by a line that is a second late
            at = _seconds(self._year, *parts)
        elif at is not None and self._last is not None and at > self._last + HALF_YEAR_S:
            at = _seconds(self._year - 1, *parts)  # a late line of the old year
        return at


def text(at: float) -> str:
    """`2026-11-15T01:14:00`, without a time zone, as in the log."""
    moment = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def _first_year(latest_s: float, parts: tuple[int, ...]) -> int:
    """The latest year in which these parts are a date that is not in the future; time zones differ by up to a day."""
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
_BEGINS = re.compile(  # a line that does not continue the previous one
    rf"{_PREFIX}|{_LEVEL}:? +(?:\d|\w)|\[\d{{4}}-\d\d-\d\d|\[[WIEF]\d{{4}} |\[RunAI |(?:Start|End) model |Traceback "
)
_WITHIN = re.compile(rf"{_PREFIX}*{_LEVEL}\s+{_STAMP}")  # a message that begins after a progress bar, or a torn one
_BAR = re.compile(r"[^|%\r]{0,200}?\s\d{1,3}%(?: Completed)?\s*\|[^|]*\|\s*[^\[\]]{0,40}\[[^\]]*\]")
_PROCESS = re.compile(r"\(([\w .=\-/]{1,60}?) pid=(\d+)(?:, ip=([^)\s]+))?")
_REPEATED = re.compile(r"\s*\[repeated (\d{1,6})x across cluster\].*", re.DOTALL)  # by Ray, with a hint the first time


class Message(NamedTuple):  # a frozen dataclass takes five times as long to make, and there are millions
    """`lines` are the first and the last physical line. `at` is the time of the message, else of the previous one."""

    lines: tuple[int, int]
    process: str | None  # "EngineCore pid=780"; None if the line does not name one
    at: float | None
    text: str
    stamped: bool  # by vLLM's own logging, or a similar format of another tool
    repeats: int = 1  # number of lines that Ray shows as this one, from unnamed processes


def messages(lines: Iterable[tuple[int, str]], clock: LogClock) -> Iterator[Message]:
    """Every message, in the order of the log."""
    last_at, last_process, drawing = None, None, None
    for numbers, text in _joined(_pieces(lines)):
        message = _parsed(text, numbers, clock, last_at)
        if message.process is None and _is_bar(text):  # printed without a name; its process shows when it begins
            drawing = last_process if drawing is None or " 0%" in text[:80] else drawing
            message = message._replace(process=drawing)
        else:
            last_process = message.process
        yield message
        last_at = message.at


def _pieces(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Physical lines by number, cut where a progress bar or another message starts inside a line."""
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
    """A piece that does not begin a message is a wrapped part of the previous one."""
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
    """A line without a time gets that of the previous line."""
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
    """The innermost prefix, which belongs to the writing process: `(EngineCore pid=1) (Worker_TP0 pid=2)`. On several
    nodes two processes may have the same pid: `(RayWorkerWrapper pid=344, ip=10.2.30.130)`."""
    names = _PROCESS.findall(prefix)
    if not names:
        return None
    host = next((ip for _name, _pid, ip in reversed(names) if ip), "")
    return f"{names[-1][0]} pid={names[-1][1]}" + (f" ip={host}" if host else "")


# -- physical --------------------------------------------------------------------------------------------------------

LONGEST_LINE = 64 * 1024  # bytes; longer lines are cut: no startup message is that long
SKIM_FROM = 16 * 2**20  # bytes; smaller logs are read completely, which takes two seconds
BLOCK = 2**20
MOST_LINES = 300_000  # read one by one, some 10 µs each: a log may have millions of blank ones
MOST_SKIMMED = 100_000  # further lines with a relevant word

_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_RELEVANT = re.compile(  # for sleep and wake-up, and for a new start
    rb"asleep|wake up|Sleep mode|plugins for group|detected platform|non-default args|API server version| version \d"
    rb"|args: Namespace|serialization"
)


class PhysicalLines:
    """Iterates over numbers and lines; the reader sets `settled` when the following lines may be skimmed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = 0
        self._bytes = 0
        self._read = self._picked = 0  # lines read one by one, and lines read while skimming
        self.settled = False

    def __iter__(self) -> Iterator[tuple[int, str]]:
        while True:
            if self._read >= MOST_LINES or (self.settled and self._bytes > SKIM_FROM):
                yield from self._skimmed()
            raw = self._next()
            if not raw or self._picked >= MOST_SKIMMED:
                return
            self._read += 1
            yield self._number, _text(raw)

    def _next(self) -> bytes:
        raw = rest = self._file.readline(LONGEST_LINE)
        while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            rest = self._file.readline(LONGEST_LINE)
        self._number += 1
        self._bytes += len(raw)
        return raw

    def _skimmed(self) -> Iterator[tuple[int, str]]:
        """Lines with a relevant word and their neighbours, because a line may be wrapped; until a new start begins."""
        while block := self._file.read(BLOCK) + self._file.readline(LONGEST_LINE):
            at = 0
            for start, end in _around(block):
                self._number += block.count(b"\n", at, start)
                for raw in block[start:end].splitlines():
                    self._number += 1
                    self._picked += 1
                    yield self._number, _text(raw)
                at = end
                if self._picked >= MOST_SKIMMED:
                    return
                if not self.settled and self._read < MOST_LINES:
                    self._file.seek(end - len(block), 1)
                    return
            self._number += block.count(b"\n", at)


def _around(block: bytes) -> Iterator[tuple[int, int]]:
    """Ranges around the matches, without overlaps."""
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

_SIGNS = {  # of servers that we do not start, or not as an engine
    "TensorRT-LLM": r"\[TensorRT-LLM\]|\[TRT-LLM\]|trtllm-serve",
    "Ollama": r"msg=\"Listening on .*ollama|ollama runner|GIN-debug.*api/generate",
    "transformers": r"transformers serve|transformers/commands/serving|\[transformers\]",
    "Ray Serve": r"ray::ServeController|serve\.run|ServeController",
    "the simulator of this program": r'^\{("port": ?\d+, ?)?"url": ?"http',
}


def engine_of(sample: str) -> str | None:
    """The engine that writes this kind of log; None if it is unknown."""
    return next((name for name, pattern in _patterns().items() if pattern.search(sample)), None)


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    own = {engine.title: engine.log_signs for engine in engines().values() if engine.log_signs}
    return {name: re.compile(signs, re.IGNORECASE | re.MULTILINE) for name, signs in (own | _SIGNS).items()}
