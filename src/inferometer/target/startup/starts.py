"""The marks of a start, gathered from a log: which process made them, and where one start ends and the next begins."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from inferometer.target.startup.log import Message
from inferometer.target.startup.wordings import Value, Wording, reading

MOST_OF_A_KIND = 100  # marks of one meaning and process: an idle engine says that it waits for work for days
MAIN = "main"  # the process that was started, until a line names it
_OPENING = ("platform_begins", "platform_ends", "imports_end", "no_platform")  # said before a child has its name


@dataclass(slots=True)
class Mark:
    """A line that means something, and by which wording."""

    name: str
    process: str
    at: float | None
    lines: tuple[int, int]
    values: dict[str, Value]
    wording: Wording
    text: str


@dataclass(slots=True)
class Process:
    """Whose lines there were, and when the first of them was written."""

    name: str
    first_at: float | None = None


@dataclass(slots=True)
class Start:
    """One start of an engine, as far as the log goes."""

    marks: list[Mark] = field(default_factory=list)
    processes: dict[str, Process] = field(default_factory=dict)
    first_at: float | None = None
    stamped: int = 0  # messages with vLLM's kind of stamp

    def of(self, *names: str) -> list[Mark]:
        """In the order of the log."""
        return [mark for mark in self.marks if mark.name in names]

    @property
    def is_over(self) -> bool:
        """Whether the engine was ready: what begins after that is another start."""
        return any(mark.name in ("api_ends", "routes", "engine_ends") for mark in self.marks)


def starts_of(messages: Iterable[Message], settled: Callable[[bool], None] = lambda _is: None) -> list[Start]:
    """Usually one; a server that was started again writes on into the same log. `settled` is told whenever a server
    gets ready, and when another start begins."""
    gathering = _Gathering(settled)
    for message in messages:
        gathering.take(message)
    return [*gathering.before, gathering.start]


class _Gathering:
    """Lines of a child come without a name until it has set up its logging. A second `platform_begins` is that of a
    child; it gets the next name that appears for the first time."""

    def __init__(self, settled: Callable[[bool], None]) -> None:
        self._settled = settled
        self.before: list[Start] = []
        self.start = Start()
        self._kept: dict[tuple[str, str], int] = defaultdict(int)
        self._nameless: list[str] = []  # children that are still to be named, the oldest first
        self._children = 0

    def take(self, message: Message) -> None:
        found = reading(message.text)
        if found is not None and found[0].mark == "serialized":
            self._begin_again()
            return
        process = message.process or self._nameless_process(found[0].mark if found else "")
        if found is not None and self._begins_again(found[0].mark, process):
            self._begin_again()
            process = message.process or self._nameless_process(found[0].mark)
        self._name(message.process)
        self._see(process, message)
        if found is not None:
            self._keep(Mark(found[0].mark, process, message.at, message.lines, found[1], found[0], message.text))

    def _nameless_process(self, mark: str) -> str:
        """Of a line without a name: the main process, or the youngest child while it detects its platform."""
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
        """A name that appears for the first time is that of the oldest child without one, or of the main process
        where no child was seen before it."""
        if process is None or process in self.start.processes:
            return
        if self._nameless:
            self._rename(self._nameless.pop(0), process)
        elif MAIN in self.start.processes and len(self.start.processes) == 1:
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
            start.processes[process] = Process(process, message.at)
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
        """After it was ready, or when another process says again what its arguments are."""
        if mark == "platform_begins":
            return self.start.is_over
        if mark not in ("arguments", "server_version"):
            return False
        said = self.start.of(mark)
        return self.start.is_over or any(each.process != process and _kin(each.process, process) for each in said)

    def _begin_again(self) -> None:
        """With what a child said that turns out to be the main process of the new start."""
        nameless = set(self._nameless)
        moved = [mark for mark in self.start.marks if mark.process in nameless]
        self.start.marks = [mark for mark in self.start.marks if mark.process not in nameless]
        self.before.append(self.start)
        self.start = Start(marks=moved)
        for mark in moved:
            mark.process = MAIN
        if moved:
            self.start.first_at = moved[0].at
            self.start.processes[MAIN] = Process(MAIN, moved[0].at)
        self._kept.clear()
        self._nameless.clear()
        self._settled(False)


def _kin(one: str, other: str) -> bool:
    """Two processes of one role: a server that was started twice has two API servers with two pids."""
    return one.partition(" pid=")[0] == other.partition(" pid=")[0]
