"""A startup for people: how long until ready, the tree of its phases, sizes and rates; several side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run
from inferometer.record.summary import Phase, Process, Startup
from inferometer.show.console import emit, facts_table, first_that_fits, on_a_screen, plain_table
from inferometer.show.summary import verdict_table
from inferometer.target.startup.phases import PHASES
from inferometer.target.startup.report import SIZES
from inferometer.vocabulary import duration_text, spread_text, value_text

BAR = 24
_ORDER = ["time_to_ready", *(f"{phase.name}_time" for phase in PHASES)]
_FORMAT_IS_NOT_READ = "dummy: random weights, not read"


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much is shown: the longer the log, the less of it."""

    phases: int | None = None  # the longest ones
    numbers: int | None = None
    brief: bool = False  # facts in one line
    doubts: int | None = None


_DETAILS = (
    _Detail(),
    _Detail(phases=14, brief=True, doubts=2),
    _Detail(phases=9, numbers=4, brief=True, doubts=1),
    _Detail(phases=8, numbers=3, brief=True, doubts=1),
    _Detail(phases=5, numbers=2, brief=True, doubts=1),
)


def print_startup(run: Run, to: Console, *, more: bool = False) -> None:
    """Verdict, what was started, the phases, what was not found, the rest; in the short form the longest phases."""
    variants = (list(_sections(run, to.width, detail)) for detail in (_DETAILS[:1] if more else _DETAILS))
    last_lines = list(_last_lines(run, more))
    for section in on_a_screen(variants, to.width, len(last_lines)):
        emit(section, to)
        to.print()
    for line in last_lines:
        to.print(line, soft_wrap=True)


def _last_lines(run: Run, more: bool) -> Iterator[Text]:
    if run.folder is not None:
        if more:
            yield Text.assemble(("stored in   ", "dim"), str(run.folder))
        flag = "--json" if more else "--more"
        yield Text.assemble(("see more    ", "dim"), f"inferometer show {run.id} {flag}")


def _sections(run: Run, width: int, detail: _Detail) -> Iterator[RenderableType]:
    startup = _startup(run)
    yield verdict_table(run, detail.doubts)
    yield _brief_about(run) if detail.brief else about_table(run)
    if startup.phases:
        yield phases_table(startup, width, detail.phases)
    if table := _rest(run, detail.numbers):
        yield table


def _startup(run: Run) -> Startup:
    return run.summary.startup or Startup()


def about_table(run: Run) -> Table:
    table = facts_table()
    for name, text in _about(run):
        table.add_row(name, text)
    return table


def _brief_about(run: Run) -> Table:
    """The time until ready, and the other facts in one line."""
    facts = dict(_about(run))
    table = facts_table()
    for name in ("ready after", "started"):
        if name in facts:
            table.add_row(name, facts.pop(name))
    if others := "; ".join(f"{name} {text}" for name, text in facts.items() if name != "processes"):
        table.add_row("", others)
    return table


def _about(run: Run) -> Iterator[tuple[str, str | Text]]:
    startup, ready = _startup(run), quantities(run.summary).get("time_to_ready")
    yield "ready after", Text(_time(ready), "bold") if ready else "-"
    engine = " ".join(filter(None, (startup.engine, startup.version)))
    model = startup.model or run.subject.model
    if engine or model:
        yield "started", ", ".join(filter(None, (engine, model)))
    if startup.load_format:
        dummy = startup.load_format == "dummy"
        yield "load format", _FORMAT_IS_NOT_READ if dummy else startup.load_format
    if startup.cache:
        yield (
            "compiled",
            {"hit": "from the cache", "miss": "not cached"}.get(startup.cache, "partly"),
        )
    if startup.why:  # its form is `FILE: description`
        yield "phases", f"unmatched: {startup.why.partition(': ')[2] or startup.why}"
    for missing in startup.missing_ranks:
        yield (
            SIZES[missing.name][0],
            f"unknown: {missing.reporting} of {missing.expected} workers report it in this log",
        )
    if len(startup.processes) > 1:
        yield "processes", ", ".join(_process_text(process) for process in startup.processes)


def _process_text(process: Process) -> str:
    return process.name if process.pid is None else f"{process.name} ({process.pid})"


def phases_table(startup: Startup, width: int, most: int | None = None) -> Table:
    """The tree of phases, or this many of the longest; bars show their position in time, if there is room."""
    variants = ((True, True), (False, True), (False, False))
    shown = _longest(startup.phases, most)
    table = first_that_fits((_phases(startup, shown, *look) for look in variants), width)
    if left := len(startup.phases) - len(shown):
        unmatched = f", {len(startup.unmatched)} unmatched" if startup.unmatched else ""
        table.caption, table.caption_justify = Text(f"{left} more phases{unmatched} with --more", style="dim"), "left"
    return table


def _longest(phases: Sequence[Phase], most: int | None) -> list[Phase]:
    """In their original order. An inner phase is no longer than its outer one, which is therefore included."""
    order = sorted(range(len(phases)), key=lambda at: -phases[at].seconds)
    return [phases[at] for at in sorted(order[:most])]


def _phases(startup: Startup, shown: Sequence[Phase], bars: bool, processes: bool) -> Table:
    columns = ["phase", "took", *(["process"] if processes else []), *(["when"] if bars else [])]
    table = plain_table(*columns, right=("took",))
    span = _span(startup)
    for phase in shown:
        cells: list[str | Text] = [_indented(phase, startup), _phase_time(phase, startup)]
        cells += [Text(phase.process or "", "dim")] if processes else []
        cells += [_bar(phase, span)] if bars else []
        table.add_row(*cells)
    for missing in startup.unmatched if len(shown) == len(startup.phases) else ():
        table.add_row(Text(missing.title), Text("unmatched", "yellow"))
    if startup.before_log_s:  # interpreter and imports, if the engine does not log them
        table.add_row(Text("before the first log line", "dim"), Text(f"~{duration_text(startup.before_log_s)}", "dim"))
    if startup.unexplained_s:
        table.add_row(Text("outside all phases", "dim"), Text(duration_text(startup.unexplained_s), "dim"))
    return table


def _indented(phase: Phase, startup: Startup) -> Text:
    """Below its outer phase, if that was found."""
    inside = {other.name: other.inside for other in startup.phases}
    depth, name = 0, phase.inside
    while name in inside:
        depth, name = depth + 1, inside[name]
    return Text("  " * depth + phase.title)


def _phase_time(phase: Phase, startup: Startup) -> str:
    """Timestamps of whole seconds cannot resolve less than a second."""
    if phase.by == "stamps" and phase.seconds == 0:
        return f"< {duration_text(startup.resolution_s)}"
    return f"{'~' if phase.by == 'stamps' else ''}{duration_text(phase.seconds)}"


def _span(startup: Startup) -> float:
    ends = [phase.began_s + phase.seconds for phase in startup.phases if phase.began_s is not None]
    return max([*ends, startup.ready_in_log_s or 0.0])


def _bar(phase: Phase, span: float) -> Text:
    if phase.began_s is None or span <= 0:
        return Text("")
    first = min(int(phase.began_s / span * BAR), BAR - 1)
    last = min(int((phase.began_s + phase.seconds) / span * BAR), BAR - 1)
    return Text(" " * first + "━" * (last - first + 1), "cyan")


def _rest(run: Run, most: int | None = None) -> Table | None:
    """Sizes, rates and sleeps: all of them, or the first ones and their total number."""
    numbers = quantities(run.summary)
    shown = [
        quantity for quantity in numbers.values() if quantity.unit != "s" or quantity.name.startswith(("sleep", "wake"))
    ]
    if not shown:
        return None
    shown.sort(key=lambda quantity: quantity.unit != "s")  # sleeps, which were requested, first
    table = facts_table()
    for quantity in shown[:most]:
        table.add_row(quantity.title, value_text(quantity.value, quantity.unit))
    if left := len(shown[most:]) if most is not None else 0:
        table.add_row(Text(f"{left} more with --more", style="dim"), "")
    return table


def _time(quantity: Quantity | None) -> str:
    """`118 s ±1`, with the resolution of the timestamps."""
    if quantity is None:
        return "-"
    return f"{duration_text(quantity.value)} {spread_text(quantity.value, quantity.interval, 's')}".rstrip()


# -- several -----------------------------------------------------------------------------------------------------


def print_startups(runs: Sequence[Run], to: Console) -> None:
    """A column for each startup, the best of each row marked."""
    emit(comparison_table(runs, to.width), to)
    to.print()
    for run in runs:
        to.print(Text.assemble((f"{label_of(run, runs)}  ", "dim"), run.id), soft_wrap=True)


def comparison_table(runs: Sequence[Run], width: int) -> Table:
    tables = (_compared(runs, room) for room in (40, 24, 16, 12, 9))
    return first_that_fits(tables, width)


def _compared(runs: Sequence[Run], room: int) -> Table:
    names = [_cut(label_of(run, runs), room) for run in runs]
    table = plain_table("", *names, right=tuple(names))
    starts = [_startup(run) for run in runs]
    facts = {
        "load format": [start.load_format or "-" for start in starts],
        "compiled graphs": [start.cache or "-" for start in starts],
        "version": [start.version or "-" for start in starts],
    }
    for name, texts in facts.items():
        if len(set(texts)) > 1 or name == "load format":
            table.add_row(name, *(_cut(text, room) for text in texts))
    every = [quantities(run.summary) for run in runs]
    for key in sorted(dict.fromkeys(key for numbers in every for key in numbers), key=_place):
        table.add_row(*_row([numbers.get(key) for numbers in every]))
    return table


def _place(key: str) -> int:
    """Sort key: phases in the order of their occurrence, other values after them in their own order."""
    return _ORDER.index(key) if key in _ORDER else len(_ORDER)


def _row(cells: Sequence[Quantity | None]) -> Iterator[str | Text]:
    known = [cell for cell in cells if cell is not None]
    yield known[0].title
    best = _best(known) if len(known) > 1 else None
    for cell in cells:
        text = "-" if cell is None else _cell(cell)
        yield Text(text, "bold green") if cell is not None and cell.value == best else text


def _best(known: Sequence[Quantity]) -> float | None:
    """None if neither direction is better, or the difference is not significant."""
    values = [quantity.value for quantity in known]
    if known[0].direction is None or min(values) == max(values):
        return None
    return min(values) if known[0].direction == "lower" else max(values)


def _cell(cell: Quantity) -> str:
    if cell.unit == "s" and cell.interval is not None and cell.interval[1] is not None and cell.value == 0:
        return f"< {duration_text(cell.interval[1])}"
    return value_text(cell.value, cell.unit)


def label_of(run: Run, runs: Sequence[Run]) -> str:
    """The load format if it distinguishes the runs, else the name of the log or the plan."""
    formats = [_startup(other).load_format for other in runs]
    if None not in formats and len(set(formats)) == len(runs) > 1:
        return str(_startup(run).load_format)
    names = [other.plan.get("name") for other in runs]
    named = run.plan.name
    return str(named) if named and names.count(named) == 1 else run.id


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"
