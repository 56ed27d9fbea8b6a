"""llm-d's scenario files: shell scripts that set variables. They are read, never executed: assignments are taken over,
everything else in them is listed for a person to see."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inferometer.errors import PlanError

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<-?\s*[\"']?([A-Za-z_][A-Za-z0-9_]*)[\"']?")
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")
_PROGRAM = re.compile(r"\$\(|`|<\(")


@dataclass(frozen=True, slots=True)
class Scenario:
    """The variables that a script sets, and what in it was passed over."""

    variables: dict[str, str]
    notes: list[str] = field(default_factory=list)


def read_scenario(name: str, environ: Mapping[str, str]) -> Scenario:
    """By its path, or below `scenarios` of a folder above, with or without `.sh`; later lines see earlier ones."""
    path = _file(name)
    try:
        text = path.read_text()
    except OSError as error:
        raise PlanError(f"-c {name}: {error.strerror}") from error
    return scenario_in(text, str(path), environ)


def _file(name: str) -> Path:
    names = [name, f"{name}.sh"]
    folders = [Path(), *(above / part for above in [Path(), *Path().resolve().parents] for part in ("scenarios",))]
    places = [folder / candidate for folder in folders for candidate in names]
    for place in places:
        if place.is_file():
            return place
    raise PlanError(f"-c {name}: no such scenario file", "give its path; a scenario sets LLMDBENCH_* variables")


def scenario_in(text: str, where: str, environ: Mapping[str, str]) -> Scenario:
    variables: dict[str, str] = {}
    notes: list[str] = []
    for number, statement in _statements(text):
        assignment = _ASSIGNMENT.fullmatch(statement)
        if assignment is None or _PROGRAM.search(assignment[2]):
            notes.append(f"{where}:{number}: not read, only assignments are: {_short(statement)}")
            continue
        try:
            variables[assignment[1]] = _value(assignment[2], {**environ, **variables})
        except ValueError as error:
            notes.append(f"{where}:{number}: not read: {error}: {_short(statement)}")
    return Scenario(variables, notes)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, joined where one ends in a backslash or within quotes; the text of a here document
    belongs to its command."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        while line.endswith("\\") or _open_quote(line):
            following = next(lines, None)
            if following is None:
                break
            line = line[:-1] + following[1] if line.endswith("\\") else f"{line}\n{following[1]}"
        if (document := _HERE_DOCUMENT.search(line)) and _open_quote(line) is None:
            for _, inner in lines:
                if inner.strip() == document[1]:
                    break
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _open_quote(line: str) -> str | None:
    quote = None
    for at, letter in enumerate(line):
        if quote is None and letter == "#" and (at == 0 or line[at - 1].isspace()):
            return None
        if quote is None and letter in "\"'":
            quote = letter
        elif letter == quote and line[at - 1 : at] != "\\":
            quote = None
    return quote


def _value(text: str, environ: Mapping[str, str]) -> str:
    """What the shell would put into the variable, without running anything: one word, its variables replaced."""
    if text.lstrip().startswith("'"):
        words = shlex.split(text, comments=True)
    else:
        words = shlex.split(_REFERENCE.sub(lambda match: _referenced(match, environ), text), comments=True)
    if len(words) > 1:
        raise ValueError("more than one word")
    return words[0] if words else ""


def _referenced(match: re.Match[str], environ: Mapping[str, str]) -> str:
    value = environ.get(match[1] or match[3]) or match[2] or ""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _short(statement: str) -> str:
    first = statement.strip().splitlines()[0]
    return first if len(first) <= 60 else f"{first[:57]}..."
