"""The phases of a start, and how each is found among its marks: by the seconds that a line says, else by the stamps of
two lines. A phase that is not found is said to be unmatched; it is never 0."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from inferometer.target.startup.starts import Mark, Start


@dataclass(frozen=True, slots=True)
class Phase:
    """`said`: the marks that say the seconds; of several in a process the `last` counts, or their `sum`. `spans`: pairs
    of marks, the first that is there counts; `across` processes where it begins in one and ends in another."""

    name: str
    title: str
    said: tuple[str, ...] = ()
    spans: tuple[tuple[str, str], ...] = ()
    inside: str | None = None
    several: Literal["last", "sum"] = "last"
    across: bool = False
    expected: bool = True  # of every start; others are only told when found
    total: bool = False  # of what is inside of it: it explains nothing by itself


PHASES = (
    Phase("platform", "detect platform", spans=(("platform_begins", "platform_ends"),)),
    Phase(
        "imports",
        "imports",
        spans=tuple(("platform_ends", end) for end in ("imports_end", "init_awaited", "server_version", "arguments")),
    ),
    Phase(
        "arguments",
        "arguments",
        spans=(("imports_end", "server_version"), ("imports_end", "arguments")),
        expected=False,
    ),
    Phase("config", "model config", spans=(("arguments", "config_ends"),)),
    Phase(
        "engine_process",
        "engine process",
        spans=(("config_ends", "init_awaited"), ("config_ends", "engine_begins")),
        across=True,
        expected=False,
    ),
    Phase(
        "worker_init",
        "worker init",
        spans=(
            ("init_awaited", "weights_begin"),
            ("engine_begins", "weights_begin"),
            ("batched_tokens", "engine_begins"),
        ),
        across=True,
    ),
    Phase(
        "weights",
        "load weights",
        said=("weights_end",),
        spans=(
            ("weights_begin", "weights_end"),
            ("weights_begin", "weights_read"),
        ),  # on a CPU nothing is said at the end
    ),
    Phase("weights_empty", "make the model", said=("model_made",), inside="weights", several="sum", expected=False),
    Phase("weights_download", "download", said=("downloaded",), inside="weights", several="sum", expected=False),
    Phase("weights_read", "read", said=("weights_read",), inside="weights", several="sum", expected=False),
    Phase("weights_stream", "stream", said=("streamed",), inside="weights", several="sum", expected=False),
    Phase("engine_init", "engine init", said=("engine_ends",), total=True),
    Phase("profiling", "memory profiling", said=("profiled",), inside="engine_init"),
    Phase(
        "compile", "compile", said=("compile_ends",), spans=(("compile_begins", "compile_ends"),), inside="profiling"
    ),
    Phase("dynamo", "Dynamo transform", said=("dynamo",), inside="compile", several="sum"),
    Phase("inductor", "Inductor", said=("inductor",), inside="compile", several="sum", expected=False),
    Phase("compile_cache", "from the cache", said=("cache_read",), inside="compile", several="sum", expected=False),
    Phase("compile_save", "save", spans=(("graph_saved", "compile_ends"),), inside="compile", expected=False),
    Phase("first_run", "first run", said=("first_run",), inside="profiling", several="sum", expected=False),
    Phase(
        "graph_capture", "graph capture", said=("captured",), spans=(("capturing", "capturing"),), inside="engine_init"
    ),
    Phase("warmup", "warm-up", spans=(("warmup_begins", "warmup_ends"),), inside="engine_init", expected=False),
    Phase(
        "api_start",
        "API start",
        spans=tuple(
            (begin, end) for end in ("api_ends", "routes") for begin in ("engine_ready", "engine_ends", "api_begins")
        ),
        across=True,
    ),
    Phase("chat_template", "chat template", said=("template_tried",), inside="api_start", expected=False),
)


@dataclass(frozen=True, slots=True)
class Found:
    """A phase of a process: how long it took, by which lines. `by` stamps it is only as exact as they are."""

    phase: Phase
    process: str
    seconds: float
    by: Literal["said", "stamps"]
    began_at: float | None
    ended_at: float | None
    marks: tuple[Mark, ...]

    @property
    def lines(self) -> list[int]:
        return sorted({line for mark in self.marks for line in mark.lines})

    @property
    def versions(self) -> str:
        return self.marks[-1].wording.versions


def found_phases(start: Start) -> list[Found]:
    """In the order of the table, each once for every process that went through it."""
    return [found for phase in PHASES for found in _of_phase(phase, start)]


def _of_phase(phase: Phase, start: Start) -> Iterator[Found]:
    if phase.across:
        found = _by_stamps(phase, start.marks)
        if found is not None:
            yield found
        return
    for process in start.processes:
        marks = [mark for mark in start.marks if mark.process == process]
        found = _by_word(phase, marks) or _by_stamps(phase, marks)
        if found is not None:
            yield found


def _by_word(phase: Phase, marks: list[Mark]) -> Found | None:
    said = [mark for mark in marks if mark.name in phase.said and "seconds" in mark.values]
    if not said:
        return None
    counted = said if phase.several == "sum" else said[-1:]
    seconds = sum(float(mark.values["seconds"]) for mark in counted)
    ended = counted[-1].at
    began = _began(phase, marks, counted[-1])
    if began is None and ended is not None:
        began = ended - seconds
    return Found(phase, counted[-1].process, seconds, "said", began, ended, tuple(counted))


def _began(phase: Phase, marks: Iterable[Mark], end: Mark) -> float | None:
    begins = {begin for begin, _end in phase.spans}
    return next((mark.at for mark in marks if mark.name in begins and mark.lines <= end.lines), None)


def _by_stamps(phase: Phase, marks: list[Mark]) -> Found | None:
    pairs = (_pair(marks, *span) for span in phase.spans)
    pair = next((each for each in pairs if each is not None), None)
    if pair is None:
        return None
    begin, end = pair
    if begin.at is None or end.at is None or end.at < begin.at:
        return None  # no stamps, or a clock that was set back: nothing can be said
    return Found(phase, end.process, end.at - begin.at, "stamps", begin.at, end.at, pair)


def _pair(marks: list[Mark], begin: str, end: str) -> tuple[Mark, Mark] | None:
    """The first that begins it, and the first after it that ends it; a progress bar begins at 0% and ends at its last
    100%: there is one for each kind of graph."""
    if begin == end:
        bars = [mark for mark in marks if mark.name == begin]
        whole = [mark for mark in bars if mark.values.get("percent") == 100]
        return (bars[0], whole[-1]) if whole and bars[0].values.get("percent") != 100 else None
    for number, first in enumerate(marks):
        if first.name == begin:
            last = next((mark for mark in marks[number + 1 :] if mark.name == end), None)
            return None if last is None else (first, last)
    return None
