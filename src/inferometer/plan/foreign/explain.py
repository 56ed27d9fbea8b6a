"""The effect of each key of another tool's plan: the source is read again without the key, or with another value, and
the plans are compared. A key without effect and without a note was lost."""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from inferometer.documents.json_text import json_value
from inferometer.errors import InferometerError, PlanError
from inferometer.plan.cases import cases_of
from inferometer.plan.experiment import experiment_from
from inferometer.plan.foreign import recognise, templates
from inferometer.plan.foreign.common import AccountEntry, Foreign, NeedsFileError, NoPlanError
from inferometer.plan.reading import file_text, plan_from
from inferometer.plan.text import parse_json, parse_yaml

Read = Callable[[], Foreign]
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_ONE_OF = re.compile(r"(?<=[a-z])\.\d+(?=\.)")
_MOST_PLACES = 4
_ALIKE = 4
REQUIRED = "required"  # the source is refused without this key and with every other value tried
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """The source without one of its parts, and with another value for it. `name` is the name of the part."""

    name: str
    without: Read
    changed: Read | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """Another tool's plan, and the account of its source; `lost` names keys that were read but have no effect."""

    foreign: Foreign
    entries: list[AccountEntry]
    lost: list[str]


def explained(read: Read, variants: Iterator[Variant]) -> Explained:
    """Read the source once for each of its parts."""
    whole = read()
    before = _settings(whole)
    values = {entry.source: entry.value for entry in whole.entries}
    places: dict[str, dict[str, None]] = {}
    checked: set[str] = set()
    for variant in variants:
        touched, paths, required = _effect(variant.without, values, before)
        raised = required
        if not paths and variant.changed is not None:
            again, paths, failed = _effect(variant.changed, values, before)
            touched, raised = touched | again, raised or failed
        if raised and not paths:
            touched = touched or _named(variant.name, values)
            checked |= touched
            paths = [REQUIRED] if required else []
        for source in touched:
            places.setdefault(source, {}).update(dict.fromkeys(paths))
    entries = [replace(entry, where=tuple(places.get(entry.source, ()))) for entry in whole.entries]
    lost = [
        entry.source
        for entry in entries
        if entry.outcome == "translated" and not entry.where and entry.source in places and entry.source not in checked
    ]
    return Explained(whole, entries, lost)


def _named(name: str, values: Mapping[str, str]) -> set[str]:
    """The keys of a required part, matched by name, because without it there is no plan to compare. In a suite or a
    template the part may be below another key."""
    same = {source for source in values if source == name}
    same = same or {source for source in values if source == _ONE_OF.sub("", name, count=1)}  # a flag given once
    return same or {source for source in values if source.endswith(f".{name}") or name.endswith(f".{source}")}


def _effect(read: Read, values: Mapping[str, str], before: Mapping[str, str]) -> tuple[set[str], list[str], bool]:
    """The keys that differ, the settings that differ, and whether it could not be read at all."""
    try:
        other = read()
    except PlanError:
        return set(), [], True
    after = {entry.source: entry.value for entry in other.entries}
    touched = {source for source, value in values.items() if after.get(source) != value}
    settings = _settings(other)
    paths = [path for path in {**before, **settings} if before.get(path) != settings.get(path)]
    return touched, _short(paths), False


def _short(paths: Sequence[str]) -> list[str]:
    """The path without the numbers of cases and stages, so that each key is one line."""
    plain = dict.fromkeys(re.sub(r"^cases\.\d+\.(plan|throughput|latency|set)\.", "", path) for path in paths)
    kept = [path for path in plain if not path.startswith("cases.")]
    return kept[:_MOST_PLACES] or list(plain)[:_MOST_PLACES]


def _settings(foreign: Foreign) -> dict[str, str]:
    return dict(_leaves(foreign.plan or foreign.experiment, ""))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        for at, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{at}")
    else:
        yield path, json.dumps(value, sort_keys=True, default=str)


# -- what can be read again ------------------------------------------------------------------------------------------


def explain_command(argv: Sequence[str]) -> Explained:
    """The account of a command line."""
    words = list(argv)
    return explained(lambda: recognise.from_command(words), _of_command(words))


def explain_file(
    path: Path, changes: Sequence[str] = (), around: recognise.Surroundings | None = None
) -> Explained | None:
    """The account of a file; None if it does not belong to another tool."""
    around = around or recognise.Surroundings()
    foreign = recognise.from_file(path, changes, around)
    if foreign is None:
        return None
    where = str(path)
    if where.endswith(".txt"):
        return Explained(foreign, foreign.entries, [])
    value = _document(path, changes, around)

    def read(other: Any) -> Read:
        def once() -> Foreign:
            made = recognise.from_value(other, where, (), around)
            if made is None:
                raise PlanError(f"{where}: is not another tool's plan any more")
            return made

        return once

    result = explained(read(value), _of_document(value, read))
    return replace(result, foreign=replace(result.foreign, notes=foreign.notes))


def _document(path: Path, changes: Sequence[str], around: recognise.Surroundings) -> Any:
    text, where = file_text(path), str(path)
    if recognise.is_template(where) or templates.has_variables(text):
        value, _ = templates.rendered(text, around.environ, where)
    else:
        is_json = where.endswith(".json")
        value, _ = (parse_json if is_json else parse_yaml)(text, where)
    return recognise.changed(value, changes, where)


def _of_document(value: Any, read: Callable[[Any], Read]) -> Iterator[Variant]:
    for path in _paths(value):
        other = another(_at(value, path))
        changed = None if other is None else read(_with(value, path, other))
        yield Variant(".".join(map(str, path)), read(_without(value, path)), changed)


def _paths(value: Any, above: KeyPath = ()) -> Iterator[KeyPath]:
    entries: Any = value.items() if isinstance(value, Mapping) else ()
    if isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        entries = enumerate(value)
    for step, inner in _some(list(entries)):
        below = list(_paths(inner, (*above, step)))
        yield from below
        if not below:
            yield (*above, step)


def _some(entries: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """All parts; of a long list of equal parts only the first, the second and the last."""
    alike = len(entries) > _ALIKE and isinstance(entries[0][0], int)
    return [*entries[:2], entries[-1]] if alike else entries


def _at(value: Any, path: KeyPath) -> Any:
    for step in path:
        value = value[step]
    return value


def _without(value: Any, path: KeyPath) -> Any:
    first, *rest = path
    if rest:
        return _replaced(value, first, _without(value[first], tuple(rest)))
    if isinstance(value, list):
        return [entry for at, entry in enumerate(value) if at != first]
    return {name: entry for name, entry in value.items() if name != first}


def _with(value: Any, path: KeyPath, new: Any) -> Any:
    first, *rest = path
    return _replaced(value, first, _with(value[first], tuple(rest), new) if rest else new)


def _replaced(value: Any, step: str | int, new: Any) -> Any:
    if isinstance(value, list):
        return [new if at == step else entry for at, entry in enumerate(value)]
    return {name: new if name == step else entry for name, entry in value.items()}


def another(value: Any) -> Any:
    """Another value of the same kind; None if there is none to try."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value * 2 + 1
    if isinstance(value, float):
        return value * 2 + 1
    if isinstance(value, list):
        return [*value, another(value[-1])] if value and another(value[-1]) is not None else None
    if isinstance(value, str):
        return _other_text(value)
    return None


def _other_text(text: str) -> str:
    if text in ("inf", "none", "true", "false"):
        return {"inf": "7", "none": "false", "true": "false", "false": "true"}[text]
    if _NUMBER.fullmatch(text):
        return str(int(text) * 2 + 1) if text.lstrip("-").isdigit() else str(float(text) / 2 + 0.001)
    return f"{text}x"


# -- command lines -------------------------------------------------------------------------------------------------


def _of_command(argv: list[str]) -> Iterator[Variant]:
    """The parts of a command line: each flag with its values, and each key of `kind=NAME,key=value` and JSON."""
    for begin, end in _groups(argv):
        inner = list(_inner(argv, begin, end))
        if inner:
            yield from inner
            continue
        without = argv[:begin] + argv[end:]
        changed = _changed(argv, begin, end)
        yield Variant(_flag(argv[begin]), _command(without), _command(changed) if changed else None)


def _flag(word: str) -> str:
    return word.partition("=")[0]


def _command(argv: list[str]) -> Read:
    return lambda: recognise.from_command(argv)


def _groups(argv: list[str]) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(argv) and not (argv[at].startswith("-") and len(argv[at]) > 1 and argv[at] not in ("-m", "-u")):
        at += 1
    while at < len(argv):
        end = at + 1
        while end < len(argv) and (not argv[end].startswith("-") or _NUMBER.fullmatch(argv[end])):
            end += 1
        yield at, end
        at = end


def _changed(argv: list[str], begin: int, end: int) -> list[str] | None:
    if end > begin + 1:
        return [*argv[: end - 1], _other_text(argv[end - 1]), *argv[end:]]
    name, sign, value = argv[begin].partition("=")
    return [*argv[:begin], f"{name}={_other_text(value) if sign else 'false'}", *argv[end:]]


def _inner(argv: list[str], begin: int, end: int) -> Iterator[Variant]:
    for at in range(begin + 1, end):
        text = argv[at]
        if text.startswith("kind="):
            parts = text.split(",")
            for number, part in enumerate(parts[1:], 1):
                key, sign, value = part.partition("=")
                if not sign:
                    return
                without = ",".join(parts[:number] + parts[number + 1 :])
                changed = ",".join([*parts[:number], f"{key}={_other_text(value)}", *parts[number + 1 :]])
                name = f"{_place(argv, begin, at)}.{key}"
                yield Variant(name, _command(_put(argv, at, without)), _command(_put(argv, at, changed)))
        elif text.startswith("{"):
            try:
                value = json_value(text)[0]
            except ValueError:
                return
            for path in _paths(value):
                if path == ("kind",):
                    continue
                new = another(_at(value, path))
                other = None if new is None else _command(_put(argv, at, json.dumps(_with(value, path, new))))
                name = ".".join(map(str, (_place(argv, begin, at), *path)))
                yield Variant(name, _command(_put(argv, at, json.dumps(_without(value, path)))), other)


def _place(argv: list[str], begin: int, at: int) -> str:
    """`--data.1` is the second value of a flag, also where it is given several times."""
    flag = _flag(argv[begin])
    earlier = sum(end - start - 1 for start, end in _groups(argv) if start < begin and _flag(argv[start]) == flag)
    return f"{flag}.{earlier + at - begin - 1}"


def _put(argv: list[str], at: int, text: str) -> list[str]:
    return [*argv[:at], text, *argv[at + 1 :]]


PlanStatus = Literal["understood", "refused", "wrong", "no plan"]
STATUSES: tuple[PlanStatus, ...] = ("understood", "refused", "wrong", "no plan")
_PLANS = (".yaml", ".yml", ".json", ".yaml.in", ".yml.in", ".json.in")
_TEXTS = (".txt", ".md", ".sh", ".rst")
_LARGEST = 4 * 1024**2  # bytes: no plan is larger
_MOST_CASES = 100_000
_TOOLS = (
    *("vllm bench ", "vllm-bench ", "guidellm run", "guidellm benchmark", "aiperf profile", "genai-perf profile"),
    *("genai-bench benchmark", "inference-perf ", "llmdbenchmark run", "./run.sh "),
)
_MODULES = re.compile(
    r"^python3? (-m )?\S*(sglang\.bench_serving|benchmark_serving|benchmark_latency|benchmark_throughput)"
)
_OF_PLANS = re.compile(  # keys at the top of a file, or of a suite in JSON
    r"^(load|api|data|server|target|profile|benchmarks|executable|dataset-name|treatments|trafficClasses)\s*:"
    r'|"(test_name|qps_list|benchmarks|profile|data)"\s*:',
    re.MULTILINE,
)
_PATTERNS = (
    r"[\s,]\.\.\.(\s|$)|\.\.\.\]",
    r"(^|\s)--?<|=<[A-Z_]+>",
    r"\s\w+(\|\w+){2,}(\s|$)",
    r"\s\{\w+(, ?\w+)+\}",
    r"^\S+ \S+ \w+:$",
)
_PATTERN = re.compile("|".join(_PATTERNS))
_VARIABLE = re.compile(r"\$[A-Za-z_({0-9][\w}]*")
_PLACEHOLDER = re.compile(r"<[^<>]*>")
_PLACEHOLDER_VALUES = {"LLMDBENCH_DEPLOY_CURRENT_MODEL": "model", "LLMDBENCH_DEPLOY_CURRENT_MAX_MODEL_LEN": "32768"}


@dataclass(frozen=True, slots=True)
class AuditResult:
    """One file or command, and whether it was understood."""

    name: str
    status: PlanStatus
    cause: str = ""
    tool: str = ""


def audit(folder: Path) -> Iterator[AuditResult]:
    """Every plan and command below a folder, in the order of their names."""
    for path in sorted(place for place in folder.rglob("*") if place.is_file() and ".git" not in place.parts):
        name = str(path.relative_to(folder))
        if path.stat().st_size > _LARGEST:
            continue
        if path.suffix in _TEXTS:
            yield from _commands(path, name)
        elif name.endswith(_PLANS):
            yield _file(path, name)


def _file(path: Path, name: str) -> AuditResult:
    try:
        text = file_text(path)
        around = recognise.Surroundings(_environ(text), run_only=False)
        explained = explain_file(path, (), around)
    except (NoPlanError, NeedsFileError) as error:
        return AuditResult(name, "no plan", _line(error))
    except PlanError as error:
        cause = _line(error).removeprefix(f"{path}: ")
        return AuditResult(name, "no plan" if _is_something_else(path) else "refused", cause)
    if explained is None:
        return AuditResult(name, "no plan", "is not another tool's plan")
    return _judged(explained, name)


def _is_something_else(path: Path) -> bool:
    """Whether a file cannot be parsed and is not a plan: a chart's template, several documents in one file."""
    where = str(path)
    try:
        text = file_text(path)
        if recognise.is_template(where) or templates.has_variables(text):
            return False
        (parse_json if where.endswith(".json") else parse_yaml)(text, where)
    except PlanError:
        return "apiVersion:" in text or not _OF_PLANS.search(text)
    return False


def _environ(text: str) -> Mapping[str, str]:
    """A value for every variable of a template, because the cluster's variables are not set here."""
    names = dict.fromkeys(templates.variables_in(text))
    return {**{name: _PLACEHOLDER_VALUES.get(name, "http://localhost:8000") for name in names}, **os.environ}


def _commands(path: Path, name: str) -> Iterator[AuditResult]:
    try:
        text = file_text(path)
    except PlanError:
        return
    for line in _joined(text):
        words = line.strip().removeprefix("$ ").strip()
        if words.startswith(_TOOLS) or _MODULES.match(words):
            yield _command_line(words, f"{name}: {words}")


def _joined(text: str) -> Iterator[str]:
    """Lines; a line that ends in a backslash is joined with the next."""
    whole = ""
    for line in text.splitlines():
        if line.rstrip().endswith("\\"):
            whole += line.rstrip()[:-1] + " "
            continue
        if whole and line.lstrip().startswith("```"):  # the last line of an example has no continuation
            line = ""
        yield whole + line
        whole = ""


def _command_line(line: str, name: str) -> AuditResult:
    if _PATTERN.search(line):
        return AuditResult(name, "no plan", "a pattern, not a command")
    try:
        argv = _words(_PLACEHOLDER.sub(lambda match: match[0].strip("<>").replace(" ", "_"), line))
    except ValueError:
        return AuditResult(name, "no plan", "continues in lines that are missing here")
    try:
        return _judged(explain_command(argv), name)
    except (NoPlanError, NeedsFileError) as error:
        return AuditResult(name, "no plan", _line(error))
    except PlanError as error:
        if variables := _VARIABLE.findall(" ".join(error.mistakes)):
            return AuditResult(
                name, "no plan", f"its values are variables of a shell: {', '.join(dict.fromkeys(variables))}"
            )
        return AuditResult(name, "refused", _line(error))


def _words(line: str) -> list[str]:
    """The words of the command, up to a comment, a pipe, a redirection or another command."""
    words = shlex.shlex(line, posix=True, punctuation_chars=";<>|&")
    words.whitespace_split, words.commenters = True, ""
    argv: list[str] = []
    for word in words:
        if word.startswith("#"):
            break
        if word and not word.strip(";<>|&"):
            number = argv[-1] if argv and f"{argv[-1]}{word}" in line else ""
            return argv[:-1] if number.isdigit() and word.startswith(">") else argv
        argv.append(word)
    return argv


def _judged(explained: Explained, name: str) -> AuditResult:
    tool = explained.foreign.tool
    try:
        _check(explained.foreign)
    except InferometerError as error:
        return AuditResult(name, "refused", _line(error), tool)
    if explained.lost:
        return AuditResult(name, "wrong", f"read, but without effect: {', '.join(explained.lost)}", tool)
    return AuditResult(name, "understood", "", tool)


def _check(foreign: Foreign) -> None:
    """Validate it like any plan or experiment."""
    if foreign.is_experiment:
        cases_of(experiment_from(foreign.experiment, (), foreign.tool), foreign.tool, _MOST_CASES)
    else:
        plan_from(foreign.plan, (), foreign.tool)


def _line(error: InferometerError) -> str:
    mistakes = error.mistakes if isinstance(error, PlanError) else [str(error)]
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return f"{mistakes[0]}{more}"
