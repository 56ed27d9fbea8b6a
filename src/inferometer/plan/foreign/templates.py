"""llm-d's profile templates (`*.yaml.in`): variables filled in, `-o k=v` applied, and a note for each difference."""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.text import as_written, parse_yaml

_TOKEN = re.compile(r"REPLACE_ENV_([A-Z0-9_]+?)(?:\+\+\+\+default=([^\s\"'#]*))?(?=[^A-Z0-9_+]|$)")
_MODEL = "LLMDBENCH_DEPLOY_CURRENT_MODEL"
_FALLBACKS = {  # if the first is not set, the second is used
    _MODEL: "LLMDBENCH_DEPLOY_MODEL_LIST",
    "LLMDBENCH_DEPLOY_CURRENT_TOKENIZER": _MODEL,
}
NOT_NEEDED = {  # set by our flags or needed only in a cluster; omitted if unset
    _MODEL: "use --model, else the server's model is used",
    "LLMDBENCH_DEPLOY_CURRENT_TOKENIZER": "use workload.tokenizer",
    "LLMDBENCH_HARNESS_STACK_ENDPOINT_URL": "use --url",
    "LLMDBENCH_HARNESS_CONTAINER_IMAGE": "",
    "LLMDBENCH_HARNESS_SERVICE_ACCOUNT": "",
    "LLMDBENCH_HARNESS_PVC_NAME": "",
}
KeyPath = tuple[str | int, ...]


def rendered(text: str, environ: Mapping[str, str], where: str) -> tuple[Any, list[str]]:
    """A template with its variables filled in, and a note for each omitted variable."""
    missing: dict[str, None] = {}

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        setting = variable(name, environ)
        if setting is None and default is None:
            missing[name] = None
        return "null" if setting is None and default is None else (setting if setting is not None else default) or ""

    settings, twice = parse_yaml(_TOKEN.sub(value, _unquoted(text)), where)
    wrong = [f"{where}: {name} is not set, and REPLACE_ENV_{name} has no default" for name in missing]
    wrong = [line for name, line in zip(missing, wrong, strict=True) if name not in NOT_NEEDED]
    if wrong or twice:
        raise PlanError([*twice, *wrong], "set the variable, or append ++++default=VALUE to it in the template")
    return settings, [f"{name} is not set: {NOT_NEEDED[name]}" for name in missing if NOT_NEEDED[name]]


def _unquoted(text: str) -> str:
    """`"REPLACE_ENV_X"` without quotes, so that an unset variable is null and not the text "null"."""
    return re.sub(r"([\"'])(REPLACE_ENV_[A-Z0-9_]+(?:\+\+\+\+default=[^\"']*)?)\1", r"\2", text)


def variables_in(text: str) -> list[str]:
    """The variables that a template needs: those without a default."""
    return [match[1] for match in _TOKEN.finditer(text) if match[2] is None]


def has_variables(text: str) -> bool:
    """Whether a file without a template's name has a template's variables."""
    return "REPLACE_ENV_" in text


def variable(name: str, environ: Mapping[str, str]) -> str | None:
    if environ.get(name):
        return environ[name]
    if name in _FALLBACKS and (other := variable(_FALLBACKS[name], environ)):
        return other.replace(",", " ").split()[0]
    return None


def models_in(text: str) -> list[str]:
    """The models of a list, separated by commas or spaces."""
    return text.replace(",", " ").split()


def changes_in(texts: Sequence[str]) -> list[tuple[str, Any]]:
    """`k=v,k2=v2`, as llm-d writes it, once or several times; a comma within brackets belongs to the value."""
    changes, mistakes = [], []
    for text in texts:
        for part in _split(text):
            key, sign, value = part.partition("=")
            if not sign or not key.strip():
                mistakes.append(f"-o {part}: must be key=value, such as min=20 or load.stages.0.rate=5")
                continue
            changes.append((key.strip(), parse_yaml(value, f"-o {key}")[0]))
    if mistakes:
        raise PlanError(mistakes)
    return changes


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part for part in [*parts, text[start:]] if part.strip()]


def changed(
    settings: Any, texts: Sequence[str], where: str, may_have: Callable[[KeyPath], Collection[str]] = lambda _path: ()
) -> tuple[Any, list[str]]:
    """The settings with each `-o` applied, and the list of changes."""
    return made(settings, changes_in(texts), where, may_have)


def made(
    settings: Any,
    changes: Sequence[tuple[str, Any]],
    where: str,
    may_have: Callable[[KeyPath], Collection[str]] = lambda _path: (),
    flag: str = "-o ",
) -> tuple[Any, list[str]]:
    """The settings with each change applied, and the list of changes. A dotted path changes one setting, a bare key
    every setting of that name, as in llm-d. A missing key is an error, unless it is a path that its section allows."""
    notes, mistakes = [], []
    for key, value in changes:
        steps = tuple(int(step) if step.isdigit() else step for step in re.split(r"[.\[\]]+", key.rstrip("]")))
        named = [path for path in _paths(settings) if path == steps or (len(steps) == 1 and path[-1] == steps[0])]
        places = [path for path in named if not any(path[: len(other)] == other for other in named if other != path)]
        allowed = may_have(steps[:-1]) if isinstance(_at(settings, steps[:-1]), dict) else ()
        if not places and len(steps) > 1 and steps[-1] in allowed:
            places = [steps]
        if not places:
            mistakes.append(f"{flag}{key}: {where} has no such setting{_meant(key, settings, steps, allowed)}")
        for place in places:
            before = _at(settings, place)
            settings = _with(settings, place, value)
            notes.append(f"{_written(place)}: {as_written(before)} -> {as_written(value)}")
        if len(places) > 1:
            notes.append(
                f"{flag}{key} changed {len(places)} settings; use a dotted path for one: {_written(places[0])}"
            )
    if mistakes:
        raise PlanError(mistakes)
    return settings, notes


def _paths(settings: Any, above: KeyPath = ()) -> Iterator[KeyPath]:
    entries = (
        settings.items() if isinstance(settings, dict) else enumerate(settings) if isinstance(settings, list) else ()
    )
    for step, value in entries:
        yield (*above, step)
        yield from _paths(value, (*above, step))


def _at(settings: Any, path: KeyPath) -> Any:
    for step in path:
        try:
            settings = settings[step]
        except (LookupError, TypeError):
            return None
    return settings


def _with(settings: Any, path: KeyPath, value: Any) -> Any:
    if not path:
        return value
    if isinstance(settings, list):
        at = int(path[0])
        return [*settings[:at], _with(settings[at], path[1:], value), *settings[at + 1 :]]
    return {**settings, path[0]: _with(settings.get(path[0]), path[1:], value)}


def _written(path: KeyPath) -> str:
    return ".".join(str(step) for step in path)


def _meant(key: str, settings: Any, steps: KeyPath, allowed: Collection[str]) -> str:
    known = [_written(path) for path in _paths(settings)]
    if len(steps) > 1:
        known += [_written((*steps[:-1], name)) for name in allowed]
    close = difflib.get_close_matches(key, known, n=2, cutoff=0.6)
    last = {name.rpartition(".")[2]: name for name in reversed(known)}
    close += [last[name] for name in difflib.get_close_matches(key.rpartition(".")[2], list(last), n=1, cutoff=0.6)]
    return f"; did you mean {' or '.join(dict.fromkeys(close))}?" if close else ""
