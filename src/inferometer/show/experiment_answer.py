"""The result of an experiment, in a sentence and a few tables: which side is better, how much load holds, which case is
best. Pages, reports and messages show the same; its numbers are those of `--json`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from inferometer.documents.document import Document, JsonObject
from inferometer.judge.compare import Comparison
from inferometer.judge.effect import Change
from inferometer.judge.search import SearchStep
from inferometer.measure.values import Quantity, alike
from inferometer.plan.cases import CASE
from inferometer.plan.text import as_written
from inferometer.record.encoding import document_of
from inferometer.record.run import Run
from inferometer.show.charts.chart import Cannot
from inferometer.show.charts.experiments import ChartedCase, joined_cases, readable, without_unscheduled
from inferometer.show.charts.trade_offs import front, speed_rows
from inferometer.show.comparison import comparison_rows
from inferometer.show.experiment import UNITS, attained_text
from inferometer.store.entry import flat
from inferometer.store.experiments import AbDefinition, AbResult, KeptExperiment, SearchDefinition, SearchOutcome
from inferometer.vocabulary import change_interval_text, change_text, number_text, value_text

Tone = Literal["", "good", "doubt", "bad"]
KINDS = {"ab": "A/B test", "search": "search", "sweep": "sweep"}
MOST_UNCLEAR = 3  # names in the sentence; the table lists all
_TONES: dict[str, Tone] = {"better": "good", "worse": "bad", "unclear": "doubt", "changed": "doubt"}
_BEST = (  # numbers for which a best case is named
    *("throughput_per_gpu", "output_rate", "cost_per_million_tokens", "goodput"),
    *("ttft_scheduled.p99", "ttft.p99", "ttft_scheduled.p50", "ttft.p50", "tpot.p50"),
    *("e2e_scheduled.p50", "e2e.p50", "latency.mean"),
)


@dataclass(frozen=True)
class AnswerTable:
    title: str
    head: list[str]
    rows: list[list[str]]
    right: list[int]  # columns of numbers
    runs: list[str | None] = field(default_factory=list)  # linked runs of the rows
    tones: list[Tone] = field(default_factory=list)  # of the last cell of each row


@dataclass(frozen=True)
class ExperimentAnswer:
    status: str
    tone: Tone
    headline: str
    tables: list[AnswerTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ExperimentRow:
    """An experiment as a line of a list, with its answer."""

    id: str
    kind: str
    name: str | None
    title: str
    started: str
    cases: int
    failed: int
    over: bool
    answer: str
    tone: Tone


def experiment_row(kept: KeptExperiment, answer: ExperimentAnswer | None = None) -> ExperimentRow:
    """A sweep's answer requires reading the runs of its cases: without it, the row shows the progress."""
    answer = answer or _short_answer(kept)
    return ExperimentRow(
        id=kept.id,
        kind=kept.kind,
        name=kept.name,
        title=title_of(kept),
        started=kept.started_at,
        cases=count_of(kept),
        failed=sum(1 for case in kept.latest if not case.run),
        over=kept.result is not None,
        answer=answer.headline,
        tone=answer.tone,
    )


COUNTED = {"ab": "runs", "search": "steps", "sweep": "cases"}


def count_of(kept: KeptExperiment) -> int:
    """For a search its steps, including retries of a load but not its probe."""
    if isinstance(kept.result, SearchOutcome):
        return len(kept.result.steps)
    return len(kept.latest)


def count_text(kept: KeptExperiment) -> str:
    """`9 steps`"""
    return f"{count_of(kept)} {COUNTED[kept.kind]}"


def answer_document(kept: KeptExperiment, answer: ExperimentAnswer) -> JsonObject:
    """For `show --json`: the sentence, its tables, and the result with all its numbers."""
    about = {"id": kept.id, "kind": kept.kind, "name": kept.name, "started": kept.started_at, "title": title_of(kept)}
    return {**about, "answer": asdict(answer), "result": document_of(kept.result)}


def title_of(kept: KeptExperiment) -> str:
    """The name that a person gave it, else the question it answers."""
    if kept.name:
        return kept.name
    match kept.definition:
        case AbDefinition() as definition:
            return f"A/B test: {_sides_text(definition)}"
        case SearchDefinition(axis=axis) as definition:
            return f"Search: highest {'request rate' if axis == 'rate' else axis} within {_limits_text(definition)}"
    varied = dict.fromkeys(name for case in kept.cases for name in case.parameters or {})
    return f"Sweep of {', '.join(map(readable, varied)) or 'cases'}"


def answer_of(kept: KeptExperiment, cases: Sequence[ChartedCase]) -> ExperimentAnswer:
    """With all its tables; `cases` are those with readable runs."""
    if kept.kind == "sweep":
        return _of_sweep(kept, cases)
    match kept.result:
        case AbResult() as result:
            return _of_ab(kept, result)
        case SearchOutcome() as result:
            return _of_search(result)
    return ExperimentAnswer("running", "", "in progress")


def _short_answer(kept: KeptExperiment) -> ExperimentAnswer:
    if kept.kind == "sweep":
        done = sum(1 for case in kept.latest if case.run)
        state = "" if kept.result is not None else ", in progress"
        return ExperimentAnswer("", "", f"{done} of {len(kept.latest)} cases have a run{state}")
    return answer_of(kept, [])


# -- A/B -------------------------------------------------------------------------------------------------------------


def _of_ab(kept: KeptExperiment, comparison: AbResult) -> ExperimentAnswer:
    status = "not comparable" if comparison.refused else comparison.status
    rows = comparison_rows(comparison)
    table = AnswerTable(
        title="Measures",
        head=["measure", "A", "B", "change", "interval", "detectable", ""],
        rows=[[row.title, row.before, row.after, row.change, row.interval, row.could_see, row.status] for row in rows],
        right=[1, 2, 3, 4, 5],
        tones=[_TONES.get(row.status, "") for row in rows],
    )
    differ = []  # else it is in the title
    if kept.name and isinstance(kept.definition, AbDefinition):
        differ = [f"A and B differ in {_sides_text(kept.definition)}"]
    # the sentence contains the objections
    objections = [objection.text for objection in comparison.objections if objection.severity != "refuse"]
    notes = [*differ, *objections]
    tone = "bad" if comparison.refused else _TONES.get(status, "")
    return ExperimentAnswer(status, tone, ab_sentence(comparison), [table], notes)


def ab_sentence(comparison: Comparison) -> str:
    """`B is better: output throughput +6.1% (+4.9..+7.3%); unclear: TTFT p99`."""
    if comparison.refused:
        return "Not decided, because A and B cannot be compared: " + "; ".join(
            objection.text for objection in comparison.objections if objection.severity == "refuse"
        )
    opening = {
        "better": "B is better",
        "worse": "B is worse",
        "same": "A and B are the same",
        "unclear": "No difference was shown",
        "changed": "B differs",
    }[comparison.status]
    decided = [change for change in comparison.changes if change.status in ("worse", "better", "changed")]
    ordered = sorted(decided, key=lambda change: (change.status != comparison.status, -abs(change.change)))
    changes = [_change_sentence(change, comparison.status) for change in ordered]
    unclear = [_plain_title(change.title) for change in comparison.changes if change.status == "unclear"]
    more = f" and {len(unclear) - MOST_UNCLEAR} more" if len(unclear) > MOST_UNCLEAR else ""
    open_ = f"unclear: {', '.join(unclear[:MOST_UNCLEAR])}{more}" if unclear else ""
    return "; ".join(filter(None, (f"{opening}: {', '.join(changes)}" if changes else opening, open_)))


def _change_sentence(change: Change, status: str) -> str:
    interval = change_interval_text(change.interval, change.relative, change.unit)
    other = f" {change.status}" if change.status != status else ""
    known = f" ({interval})" if interval != "-" else ""
    return f"{_plain_title(change.title)}{other} {change_text(change.change, change.relative, change.unit)}{known}"


def _plain_title(title: str) -> str:
    """As used inside a sentence: `scheduled TTFT p50`, because a comma would look like a separator in a list;
    `output token throughput`."""
    plain = f"scheduled {title.replace(', scheduled', '')}" if ", scheduled" in title else title
    return _lowered(plain)


def _lowered(title: str) -> str:
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def _sides_text(definition: AbDefinition) -> str:
    """`speed 4 vs 5`: the differences between the plans of the sides, without addresses."""
    a, b = flat(definition.a), flat(definition.b)
    paths = [path for path in dict.fromkeys([*a, *b]) if a.get(path) != b.get(path) and "url" not in path]
    texts = [f"{readable(path)} {a.get(path, 'unset')} vs {b.get(path, 'unset')}" for path in paths[:3]]
    more = f" and {len(paths) - 3} more settings" if len(paths) > 3 else ""
    return f"{', '.join(texts)}{more}" if texts else "two targets of one plan"


# -- search ----------------------------------------------------------------------------------------------------------


def _of_search(result: SearchOutcome) -> ExperimentAnswer:
    outcome = result.outcome
    tone: Tone = "good" if outcome == "found" else "bad" if outcome == "none meets" else "doubt"
    more = [] if outcome == "found" else [result.text]  # why there is no answer
    return ExperimentAnswer(outcome, tone, search_sentence(result), [_steps_table(result.steps, result.axis)], more)


def search_sentence(result: SearchOutcome) -> str:
    """`sustains 38.2 req/s (37.1 to 39.0) within ttft p99 < 500ms; first broken by tpot p90 < 10ms at 39.8 req/s`."""
    unit, low, high = UNITS.get(result.axis, ""), result.low, result.high
    limits, broken = ", ".join(result.limits), _first_broken(result.steps, unit)
    if low is None:
        shown = "no load meets" if result.outcome == "none meets" else "no load was shown to meet"
        tried = f"; the lowest load tried is {number_text(high)} {unit}" if high is not None else ""
        return f"{shown} {limits}{tried}{broken}"
    ends = result.likely or (low, high)
    interval = f" ({number_text(ends[0])} to {number_text(ends[1])})" if ends[1] is not None else " or more"
    return f"sustains {number_text(low)} {unit}{interval} within {limits}{broken}"


def _first_broken(steps: Sequence[SearchStep], unit: str) -> str:
    """From the lowest load that does not hold: which limit, and at which load."""
    missed = [step for step in steps if step.status == "misses"]
    if not missed:
        return ""
    step = min(missed, key=lambda step: step.load)
    limit = next((limit.limit for limit in step.attained if limit.status == "misses"), "failed requests")
    return f"; first broken by {limit} at {number_text(step.load)} {unit}"


def _steps_table(steps: Sequence[SearchStep], axis: str) -> AnswerTable:
    final = {step.load: step for step in steps}
    ordered = [final[load] for load in sorted(final)]
    tones: dict[str, Tone] = {"meets": "good", "misses": "bad", "unclear": "doubt"}
    return AnswerTable(
        title="Loads that were tried",
        head=[UNITS.get(axis, axis), "output tok/s", "TTFT p50", "TTFT p99", "TPOT p50", "limits", ""],
        rows=[_step_cells(step) for step in ordered],
        right=[0, 1, 2, 3, 4],
        runs=[step.run for step in ordered],
        tones=[tones[step.status] for step in ordered],
    )


def _step_cells(step: SearchStep) -> list[str]:
    def first(unit: str, *keys: str) -> str:
        return value_text(next((step.values[key] for key in keys if key in step.values), None), unit)

    limits = "; ".join(attained_text(limit) for limit in step.attained)
    numbers = [
        first("", "output_rate"),
        first("s", "ttft_scheduled.p50", "ttft.p50"),
        first("s", "ttft_scheduled.p99", "ttft.p99"),
        first("s", "tpot.p50"),
    ]
    return [number_text(step.load), *numbers, limits, step.status]


def _limits_text(definition: SearchDefinition) -> str:
    limits = Document(definition.plan).values_of("limits")
    return ", ".join(map(as_written, limits)) or "its limits"


# -- sweep -----------------------------------------------------------------------------------------------------------


def _of_sweep(kept: KeptExperiment, cases: Sequence[ChartedCase]) -> ExperimentAnswer:
    done, missing = len(cases), len(kept.latest) - len(cases)
    tone: Tone = "doubt" if missing else ""
    if not cases:
        return ExperimentAnswer("nothing", "bad", "no case has a run that can be read")
    joined = joined_cases(cases)
    by_case = alike([run.summary for _, run in joined])
    names = _case_names([settings for settings, _ in joined])
    tables = [
        AnswerTable(title, head, rows, right, runs)
        for title, (head, rows, right, runs) in (
            ("Best case within each limit", _limit_rows(joined, names, by_case)),
            ("Best case for each measure", _best_rows(joined, names, by_case)),
            ("Pareto front: no other case has more throughput and a faster user", _front_rows(joined, names)),
        )
        if rows
    ]
    counted = f"{done} cases" + (f", {missing} without a run" if missing else "")
    best = _best_sentence(joined, names, by_case)
    going = "" if kept.result is not None else ", in progress"
    headline = f"{best} ({counted}{going})" if best else f"{counted}{going}"
    return ExperimentAnswer("done", tone, headline, tables)


_IN_WORDS = {"rate": "req/s", "concurrency": "in flight", "input_tokens": "in", "output_tokens": "out"}


def _case_names(settings: Sequence[JsonObject]) -> list[str]:
    """Cases with names are called by them; settings that the name determines are not repeated after it."""
    names = {str(own.get(CASE)) for own in settings}
    decided = {
        path
        for path in dict.fromkeys(path for own in settings for path in own)
        if path != CASE and len({(str(own.get(CASE)), str(own.get(path))) for own in settings}) == len(names)
    }
    if not all(CASE in own for own in settings):
        decided = set()
    return [case_name({path: value for path, value in own.items() if path not in decided}) for own in settings]


def case_name(settings: JsonObject) -> str:
    """`64 in flight, 256 in`: workload and load as written elsewhere; other settings by their name."""
    return ", ".join(_setting_text(name, value) for name, value in settings.items()) or "the only case"


def _setting_text(name: str, value: Any) -> str:
    if name == CASE:
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{readable(name)} {as_written(value)}"
    words = _IN_WORDS.get(name.rpartition(".")[2])
    return f"{number_text(value)} {words}" if words else f"{readable(name)} {number_text(value)}"


Rows = tuple[list[str], list[list[str]], list[int], list[str | None]]
Numbers = Sequence[Mapping[str, Quantity]]


def _known_keys(by_case: Numbers) -> list[str]:
    """Numbers that every case has; scheduled latencies replace the others."""
    keys = [key for key in _BEST if all(key in numbers for numbers in by_case)]
    return without_unscheduled(keys)


def _best_at(by_case: Numbers, key: str, among: Sequence[int]) -> int:
    sign = -1 if by_case[0][key].direction == "lower" else 1
    return max(among, key=lambda at: sign * by_case[at][key].value)


def _best_rows(cases: Sequence[ChartedCase], names: Sequence[str], by_case: Numbers) -> Rows:
    rows, runs = [], []
    for key in _known_keys(by_case):
        at = _best_at(by_case, key, range(len(cases)))
        quantity = by_case[at][key]
        sense = "lowest" if quantity.direction == "lower" else "highest"
        rows.append([f"{sense} {_title(quantity)}", names[at], value_text(quantity.value, quantity.unit)])
        runs.append(cases[at][1].id)
    return ["measure", "case", "value"], rows, [2], list(runs)


def _limit_rows(cases: Sequence[ChartedCase], names: Sequence[str], by_case: Numbers) -> Rows:
    """Of the cases that meet a limit, the one with the highest throughput."""
    key = next((key for key in ("throughput_per_gpu", "output_rate", "request_rate") if key in by_case[0]), None)
    limits = list(dict.fromkeys(limit.limit for _, run in cases for limit in run.summary.limits))
    rows: list[list[str]] = []
    runs: list[str | None] = []
    for text in limits if key else []:
        kept = [at for at, (_, run) in enumerate(cases) if _keeps(run, text) and key in by_case[at]]
        if not kept:
            rows.append([text, "no case meets it", "-", "0"])
            runs.append(None)
            continue
        at = _best_at(by_case, str(key), kept)
        quantity = by_case[at][str(key)]
        rows.append([text, names[at], value_text(quantity.value, quantity.unit), f"{len(kept)} of {len(cases)}"])
        runs.append(cases[at][1].id)
    title = _title(by_case[0][key]) if key else ""
    return ["limit", "best case", title, "cases that meet it"], rows, [2, 3], runs


def _keeps(run: Run, text: str) -> bool:
    return any(limit.limit == text and limit.met is True for limit in run.summary.limits)


def _front_rows(cases: Sequence[ChartedCase], names: Sequence[str]) -> Rows:
    """The points of the chart next to it."""
    named = {run.id: name for (_, run), name in zip(cases, names, strict=True)}
    try:
        points, axis = speed_rows([run for _, run in cases])
    except Cannot:
        points, axis = [], ""
    best = front([(point["speed"], point["throughput"]) for point in points])
    chosen = sorted((points[at] for at in best), key=lambda point: point["speed"])
    rows = [[named[p["run"]], number_text(p["throughput"]), number_text(p["speed"])] for p in chosen]
    runs: list[str | None] = [point["run"] for point in chosen]
    title = f"{axis.lower().replace('gpu', 'GPU')}, input + output"
    return ["case", title, "tok/s of one user"], rows, [1, 2], runs


def _best_sentence(cases: Sequence[ChartedCase], names: Sequence[str], by_case: Numbers) -> str:
    """Of the cases that meet every limit, the one with the highest throughput; without limits, of all."""
    limits = list(dict.fromkeys(limit.limit for _, run in cases for limit in run.summary.limits))
    kept = [at for at, (_, run) in enumerate(cases) if all(_keeps(run, limit) for limit in limits)]
    within = f" within {' and '.join(limits)}" if limits and kept else ""
    key = next(iter(_known_keys(by_case)), None)
    if key is None:
        return ""
    at = _best_at(by_case, key, kept or range(len(cases)))
    quantity = by_case[at][key]
    sense = "lowest" if quantity.direction == "lower" else "highest"
    best = f"{sense} {_title(quantity)}{within}: {value_text(quantity.value, quantity.unit)} at {names[at]}"
    return best if kept else f"no case was shown to meet {' and '.join(limits)}; {best}"


def _title(quantity: Quantity) -> str:
    title = _plain_title(quantity.title)
    return title if quantity.statistic is None else f"{title} {quantity.statistic}"
