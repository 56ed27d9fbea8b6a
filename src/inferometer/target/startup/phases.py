"""The marks of a start in a log (which process wrote them, where one start ends), and the phases between them: from the
seconds that a line reports, else from the timestamps of two lines. A phase without marks is unmatched, never 0."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from inferometer.target.startup.log import Message, Value, Wording, reading

MOST_OF_A_KIND = 100  # marks of the same meaning and process: an idle engine may log for days that it waits for work


MAIN = "main"  # the started process, until a line names it


_OPENING = ("platform_begins", "platform_ends", "imports_end", "no_platform")  # printed before a child has its name


@dataclass(slots=True)
class Mark:
    """A line with a known meaning, and the wording it matched."""

    name: str
    process: str
    at: float | None
    lines: tuple[int, int]
    values: dict[str, Value]
    wording: Wording
    text: str
    repeats: int = 1  # number of lines it stands for: Ray shows one of many, without naming the others' processes


@dataclass(slots=True)
class LoggedProcess:
    """A process with lines in the log, and the time of its first line."""

    name: str
    first_at: float | None = None


@dataclass(slots=True)
class Start:
    """One start of an engine, as far as the log contains it."""

    marks: list[Mark] = field(default_factory=list)
    processes: dict[str, LoggedProcess] = field(default_factory=dict)
    first_at: float | None = None
    stamped: int = 0  # messages with vLLM's format of timestamps

    def of(self, *names: str) -> list[Mark]:
        """The marks with these names, in the order of the log."""
        return [mark for mark in self.marks if mark.name in names]

    @property
    def is_over(self) -> bool:
        """Whether the engine was ready: later startup messages belong to another start."""
        return any(mark.name in ("api_ends", "routes", "engine_ends") for mark in self.marks)


def starts_of(messages: Iterable[Message], settled: Callable[[bool], None] = lambda _is: None) -> list[Start]:
    """Usually one; a restarted server continues the same log. `settled` is called whenever a server becomes ready, and
    when another start begins."""
    gathering = _Gathering(settled)
    for message in messages:
        gathering.take(message)
    return [*gathering.before, gathering.start]


class _Gathering:
    """A child's lines have no name until it has set up its logging. A second `platform_begins` comes from a child,
    which gets the next name that appears for the first time."""

    def __init__(self, settled: Callable[[bool], None]) -> None:
        self._settled = settled
        self.before: list[Start] = []
        self.start = Start()
        self._kept: dict[tuple[str, str], int] = defaultdict(int)
        self._nameless: list[str] = []  # children without a name so far, oldest first
        self._children = 0

    def take(self, message: Message) -> None:
        match = reading(message.text)
        if match is not None and match[0].mark == "serialized":
            self._begin_again()
            return
        process = message.process or self._nameless_process(match[0].mark if match else "")
        if match is not None and self._begins_again(match[0].mark, process):
            self._begin_again()
            process = message.process or self._nameless_process(match[0].mark)
        self._name(message.process)
        self._see(process, message)
        if match is not None:
            wording, values = match
            self._keep(
                Mark(wording.mark, process, message.at, message.lines, values, wording, message.text, message.repeats)
            )

    def _nameless_process(self, mark: str) -> str:
        """The process of a line without a name: the main process, or the youngest child while it detects its
        platform."""
        if mark == "platform_begins" and self.start.of("platform_begins"):
            self._children += 1
            self._nameless.append(f"child {self._children}")
        if mark in _OPENING and self._nameless:
            return self._nameless[-1]
        return self._main

    @property
    def _main(self) -> str:
        named = self.start.marks and self.start.marks[0].process
        return named if named and MAIN not in self.start.processes else MAIN

    def _name(self, process: str | None) -> None:
        """A new name belongs to the oldest child without one, or to the main process if no child appeared before;
        except for a worker's name if the main process has none at all (vLLM V0)."""
        if process is None or process in self.start.processes:
            return
        if self._nameless:
            self._rename(self._nameless.pop(0), process)
        elif MAIN in self.start.processes and len(self.start.processes) == 1 and "Worker" not in process:
            self._rename(MAIN, process)

    def _rename(self, old: str, new: str) -> None:
        for mark in self.start.marks:
            if mark.process == old:
                mark.process = new
        for process in self.start.processes.values():
            process.name = new if process.name == old else process.name
        self.start.processes = {process.name: process for process in self.start.processes.values()}

    def _see(self, process: str, message: Message) -> None:
        start = self.start
        start.stamped += message.stamped
        if process not in start.processes:
            start.processes[process] = LoggedProcess(process, message.at)
        if start.first_at is None:
            start.first_at = message.at

    def _keep(self, mark: Mark) -> None:
        key = (mark.name, mark.process)
        self._kept[key] += 1
        if self._kept[key] <= MOST_OF_A_KIND:
            self.start.marks.append(mark)
        if mark.name == "api_ends":
            self._settled(True)

    def _begins_again(self, mark: str, process: str) -> bool:
        """After it was ready, or when another process repeats its arguments."""
        if mark == "platform_begins":
            return self.start.is_over
        if mark not in ("arguments", "server_version"):
            return False
        earlier = self.start.of(mark)
        return self.start.is_over or any(other.process != process and _kin(other.process, process) for other in earlier)

    def _begin_again(self) -> None:
        """Keeps the lines of a child that turns out to be the main process of the new start."""
        nameless = set(self._nameless)
        moved = [mark for mark in self.start.marks if mark.process in nameless]
        self.start.marks = [mark for mark in self.start.marks if mark.process not in nameless]
        self.before.append(self.start)
        self.start = Start(marks=moved)
        for mark in moved:
            mark.process = MAIN
        if moved:
            self.start.first_at = moved[0].at
            self.start.processes[MAIN] = LoggedProcess(MAIN, moved[0].at)
        self._kept.clear()
        self._nameless.clear()
        self._settled(False)


def _kin(one: str, other: str) -> bool:
    """Whether two processes have the same role: a server that was started twice has two API servers with two pids."""
    return one.partition(" pid=")[0] == other.partition(" pid=")[0]


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """`reported_by`: the marks that state the seconds; among several in a process the `last` counts, or their `sum`.
    `spans`: pairs of marks, of which the first existing one counts; `across` processes if it begins in one and ends in
    another."""

    name: str
    title: str
    reported_by: tuple[str, ...] = ()
    spans: tuple[tuple[str, str], ...] = ()
    inside: str | None = None
    several: Literal["last", "sum"] = "last"
    across: bool = False
    expected: bool = True  # occurs in every start; other phases are only reported if found
    total: bool = False  # it contains other phases and explains nothing by itself


PHASES = (
    PhaseRule("platform", "detect platform", spans=(("platform_begins", "platform_ends"),)),
    PhaseRule(
        "imports",
        "imports",
        spans=tuple(("platform_ends", end) for end in ("imports_end", "init_awaited", "server_version", "arguments")),
    ),
    PhaseRule(
        "arguments",
        "arguments",
        spans=(("imports_end", "server_version"), ("imports_end", "arguments")),
        expected=False,
    ),
    PhaseRule("config", "model config", spans=(("arguments", "config_ends"),)),
    PhaseRule(
        "engine_process",
        "engine process",
        spans=(("config_ends", "init_awaited"), ("config_ends", "engine_begins")),
        across=True,
        expected=False,
    ),
    PhaseRule(
        "worker_init",
        "worker init",
        spans=(
            ("init_awaited", "weights_begin"),
            ("engine_begins", "weights_begin"),
            ("batched_tokens", "engine_begins"),
        ),
        across=True,
    ),
    PhaseRule(
        "weights",
        "load weights",
        reported_by=("weights_end",),
        spans=(
            ("weights_begin", "weights_end"),
            ("weights_begin", "weights_read"),
        ),  # on a CPU nothing is printed at the end
    ),
    PhaseRule(
        "weights_empty", "make the model", reported_by=("model_made",), inside="weights", several="sum", expected=False
    ),
    PhaseRule(
        "weights_download", "download", reported_by=("downloaded",), inside="weights", several="sum", expected=False
    ),
    PhaseRule("weights_read", "read", reported_by=("weights_read",), inside="weights", several="sum", expected=False),
    PhaseRule("weights_stream", "stream", reported_by=("streamed",), inside="weights", several="sum", expected=False),
    PhaseRule("engine_init", "engine init", reported_by=("engine_ends",), total=True),
    PhaseRule("profiling", "memory profiling", reported_by=("profiled",), inside="engine_init"),
    PhaseRule(
        "compile",
        "compile",
        reported_by=("compile_ends",),
        spans=(("compile_begins", "compile_ends"),),
        inside="profiling",
    ),
    PhaseRule("dynamo", "Dynamo transform", reported_by=("dynamo",), inside="compile", several="sum"),
    PhaseRule("inductor", "Inductor", reported_by=("inductor",), inside="compile", several="sum", expected=False),
    PhaseRule(
        "compile_cache", "from the cache", reported_by=("cache_read",), inside="compile", several="sum", expected=False
    ),
    PhaseRule("compile_save", "save", spans=(("graph_saved", "compile_ends"),), inside="compile", expected=False),
    PhaseRule("first_run", "first run", reported_by=("first_run",), inside="profiling", several="sum", expected=False),
    PhaseRule(
        "graph_capture",
        "graph capture",
        reported_by=("captured",),
        spans=(("capturing", "capturing"),),
        inside="engine_init",
    ),
    PhaseRule("warmup", "warm-up", spans=(("warmup_begins", "warmup_ends"),), inside="engine_init", expected=False),
    PhaseRule(
        "api_start",
        "API start",
        spans=tuple(
            (begin, end) for end in ("api_ends", "routes") for begin in ("engine_ready", "engine_ends", "api_begins")
        ),
        across=True,
    ),
    PhaseRule("chat_template", "chat template", reported_by=("template_tried",), inside="api_start", expected=False),
)


@dataclass(frozen=True, slots=True)
class PhaseTiming:
    """A phase of a process: its duration, and the lines it comes from. `by` stamps it is only as exact as the
    timestamps."""

    phase: PhaseRule
    process: str
    seconds: float
    by: Literal["stated", "stamps"]
    began_at: float | None
    ended_at: float | None
    marks: tuple[Mark, ...]

    @property
    def lines(self) -> list[int]:
        return sorted({line for mark in self.marks for line in mark.lines})

    @property
    def versions(self) -> str:
        return self.marks[-1].wording.versions


def phase_timings(start: Start) -> list[PhaseTiming]:
    """In the order of the table, once for every process that went through the phase."""
    return [timing for phase in PHASES for timing in _of_phase(phase, start)]


def _of_phase(phase: PhaseRule, start: Start) -> Iterator[PhaseTiming]:
    if phase.across:
        timing = _by_stamps(phase, start.marks)
        if timing is not None:
            yield timing
        return
    for process in start.processes:
        marks = [mark for mark in start.marks if mark.process == process]
        timing = _by_report(phase, marks) or _by_stamps(phase, marks)
        if timing is not None:
            yield timing


def _by_report(phase: PhaseRule, marks: list[Mark]) -> PhaseTiming | None:
    reported = [mark for mark in marks if mark.name in phase.reported_by and "seconds" in mark.values]
    if not reported:
        return None
    counted = reported if phase.several == "sum" else reported[-1:]
    seconds = sum(float(mark.values["seconds"]) for mark in counted)
    ended = counted[-1].at
    began = _began(phase, marks, counted[-1])
    if began is None and ended is not None:
        began = ended - seconds
    return PhaseTiming(phase, counted[-1].process, seconds, "stated", began, ended, tuple(counted))


def _began(phase: PhaseRule, marks: Iterable[Mark], end: Mark) -> float | None:
    begins = {begin for begin, _end in phase.spans}
    return next((mark.at for mark in marks if mark.name in begins and mark.lines <= end.lines), None)


def _by_stamps(phase: PhaseRule, marks: list[Mark]) -> PhaseTiming | None:
    pairs = (_pair(marks, *span) for span in phase.spans)
    pair = next((candidate for candidate in pairs if candidate is not None), None)
    if pair is None:
        return None
    begin, end = pair
    if begin.at is None or end.at is None or end.at < begin.at:
        return None  # no timestamps, or a clock that was set back: unknown
    return PhaseTiming(phase, end.process, end.at - begin.at, "stamps", begin.at, end.at, pair)


def _pair(marks: list[Mark], begin: str, end: str) -> tuple[Mark, Mark] | None:
    """The first mark that begins it, and the first mark after it that ends it; a progress bar begins at 0% and ends at
    its last 100%: there is one for each kind of graph."""
    if begin == end:
        bars = [mark for mark in marks if mark.name == begin]
        whole = [mark for mark in bars if mark.values.get("percent") == 100]
        return (bars[0], whole[-1]) if whole and bars[0].values.get("percent") != 100 else None
    for number, first in enumerate(marks):
        if first.name == begin:
            last = next((mark for mark in marks[number + 1 :] if mark.name == end), None)
            return None if last is None else (first, last)
    return None
