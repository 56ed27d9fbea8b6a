"""Changes to a plan from the command line: `--set path=value`, and the common flags."""

import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Union, get_args

from inferometer.documents.document import Document, JsonObject, JsonValue
from inferometer.errors import PlanError
from inferometer.plan import short
from inferometer.plan.fields import Section
from inferometer.plan.limit import measure_and_stat
from inferometer.plan.model import OutputFormat, Plan
from inferometer.plan.text import parse_yaml
from inferometer.plan.workloads import TYPES, section_of

# -- paths into a plan -------------------------------------------------------------------------------------------------

# Paths into a plan, `load.stages[1].rate`: syntax, the type at their end, and suggestions for typos.

PlanPath = tuple[str | int, ...]
ANYTHING = object()  # below `extra`, `args` and `headers` every key is allowed


def written(path: Sequence[str | int]) -> str:
    """`("load", "stages", 1, "rate")` as `load.stages[1].rate`; keys with dots are quoted."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (f'"{step}"' if not step or set(step) & set('.[]"=') else step)
    return text


def kind_at(path: Sequence[str | int]) -> Any:
    """The type at the end of a path, `ANYTHING` below free keys, `None` if the plan has no such path."""
    kinds = _kinds_at(path)
    return next((kind for kind in kinds if kind is ANYTHING), kinds[0] if kinds else None)


def _kinds_at(path: Sequence[str | int]) -> list[Any]:
    """The possible types at the end of a path; for a union of sections, those of any of them."""
    kinds: list[Any] = [Plan]
    for step in path:
        kinds = [part for kind in kinds for part in _members(_below(kind, step))]
    return kinds


def _below(kind: Any, step: str | int) -> Any:
    if _is_section(kind):
        field = kind.model_fields.get(str(step))
        return None if field is None else field.annotation
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return inner[0] if isinstance(step, int) else None
    return ANYTHING if origin is dict or kind is ANYTHING else None


def _members(kind: Any) -> list[Any]:
    """The members of a union without `Annotated` and `None`; any other type itself."""
    if kind is None or kind is types.NoneType:
        return []
    if typing.get_origin(kind) is Annotated:
        return _members(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (Union, types.UnionType):
        return [part for member in typing.get_args(kind) for part in _members(member)]
    return [kind]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def sections_at(path: Sequence[str | int]) -> list[type[Section]]:
    """The possible sections at the end of a path."""
    return list(dict.fromkeys(kind for kind in _kinds_at(path) if _is_section(kind)))


def section_at(path: Sequence[str | int], plan: Any = None) -> type[Section] | None:
    """The section at the end of a path, if there is one; of several kinds, the kind that the plan uses."""
    sections = sections_at(path)
    if len(sections) < 2:
        return sections[0] if sections else None
    try:
        section = section_of(value_at(plan, path))
    except KeyError:
        section = None
    return section if section in sections else sections[0]


def holds_list(path: Sequence[str | int]) -> bool:
    """Whether there is a list at the end of a path, or may be one below free keys."""
    return any(kind is ANYTHING or typing.get_origin(kind) is list for kind in _kinds_at(path))


def holds_text(path: Sequence[str | int]) -> bool:
    """Whether only text is allowed at the end of a path."""
    kinds = _kinds_at(path)
    return bool(kinds) and all(kind is str for kind in kinds)


def meant(path: Sequence[str | int], plan: Any = None) -> list[str]:
    """Similar existing paths for an unknown path, best first."""
    above, last = path[:-1], str(path[-1])
    section = section_at(above, plan)
    sections = [section] if section and plan is not None else sections_at(above)
    siblings = list(dict.fromkeys(name for candidate in sections for name in candidate.model_fields))
    close = [written((*above, name)) for name in difflib.get_close_matches(last, siblings, n=3, cutoff=0.6)]
    elsewhere = [
        known
        for known in known_paths()
        if known.rpartition(".")[2] == last and "[" not in known and known != written(path)
    ]
    return (close + elsewhere)[:3] or difflib.get_close_matches(written(path), known_paths(), n=2, cutoff=0.7)


@cache
def known_paths() -> tuple[str, ...]:
    """Every path of a plan, with `[0]` for the entries of a list."""
    return tuple(dict.fromkeys(written(path) for path in _walk(Plan, ())))


def _walk(kind: Any, path: PlanPath, above: tuple[Any, ...] = ()) -> Iterator[PlanPath]:
    """Walk all paths; a section nested in itself, such as the server of a fleet's replicas, is not entered again."""
    if path:
        yield path
    for member in _members(kind):
        if member in above:
            continue
        if _is_section(member):
            for name, field in member.model_fields.items():
                yield from _walk(field.annotation, (*path, name), (*above, member))
        elif typing.get_origin(member) is list and section_at((*path, 0)):
            yield from _walk(typing.get_args(member)[0], (*path, 0), above)


def value_at(mapping: Any, path: Sequence[str | int]) -> Any:
    """The value at a path as written; `KeyError` if there is none."""
    for step in path:
        try:
            below = mapping[step]
        except (LookupError, TypeError):
            raise KeyError(written(path)) from None
        if isinstance(mapping, str):  # a text can be indexed, but has no settings
            raise KeyError(written(path))
        mapping = below
    return mapping


# -- overrides ---------------------------------------------------------------------------------------------------------

# -- overrides -------------------------------------------------------------------------------------------------------

APPEND: Final = "[+]"
_STEP = re.compile(r'\.?(?:"((?:[^"\\]|\\.)*)"|\[(\d+|\+)\]|([^.\[\]"=\s]+))')


@dataclass(frozen=True, slots=True)
class Override:
    """A path and its new value; a step is a key, an index or `[+]` (a new entry)."""

    path: PlanPath
    value: Any
    name: str  # the path as it was typed


def parse_override(text: str) -> Override:
    """`load.stages[0].rate=5`, `outputs[+]={format: csv, path: x.csv}`, `target.headers."x.y"=1`."""
    path, at = _parse_path(text)
    if not path or text[at : at + 1] != "=":
        raise PlanError(f"--set {text}: must be path=value, such as load.rate=5")
    return Override(path, _value(path, text[at + 1 :], f"--set {text[:at]}"), text[:at])


def _value(path: PlanPath, text: str, where: str) -> Any:
    """The value as YAML reads it; if the plan only allows text there, the text as typed."""
    wants_text = holds_text(tuple(0 if step == APPEND else step for step in path))
    try:
        value, twice = parse_yaml(text, where)
    except PlanError:
        if wants_text:
            return text.strip()
        raise
    if wants_text and not isinstance(value, str | None):
        return text.strip()
    if twice:
        raise PlanError(twice)
    return value


def _parse_path(text: str) -> tuple[PlanPath, int]:
    steps: list[str | int] = []
    at = 0
    while match := _STEP.match(text, at):
        if bool(steps) != match[0].startswith((".", "[")):
            break
        quoted, index, plain = match.groups()
        if index is not None:
            steps.append(APPEND if index == "+" else int(index))
        else:
            steps.append(plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
    return tuple(steps), at


def override(plan: JsonObject, overrides: Iterable[str | Override]) -> dict[str, JsonValue]:
    """The plan with all overrides applied (the last one wins); errors of all of them are raised together."""
    changed, mistakes = short.long(plan), []
    for change in overrides:
        try:
            made = parse_override(change) if isinstance(change, str) else change
            changed = short.long(_with(changed, made.path, (), made))
        except PlanError as error:
            mistakes += error.mistakes
    if mistakes:
        raise PlanError(mistakes)
    return changed


def _with(there: Any, steps: PlanPath, above: PlanPath, made: Override) -> Any:
    """A copy with the value set at the end of the steps."""
    if not steps:
        return made.value
    if _is_list(there, above, steps[0]):
        return _with_entry([] if there is None else there, steps, above, made)
    if isinstance(steps[0], int) or steps[0] == APPEND:
        raise PlanError(f"--set {made.name}: {written(above) or 'the plan'} is not a list")
    if there is not None and not isinstance(there, Mapping):
        raise PlanError(f"--set {made.name}: {written(above)} has nothing below it")
    name = steps[0]
    path = (*above, name)
    if kind_at(path) is None:
        raise PlanError(f"--set {made.name}: {written(path)} is not a setting{_meant(path)}")
    return {**(there or {}), name: _with((there or {}).get(name), steps[1:], path, made)}


def _is_list(there: Any, above: PlanPath, step: str | int) -> bool:
    """Whether a step indexes a list; free keys may be digits, so below them only `[0]` and `[+]` do."""
    if there is not None:
        return isinstance(there, list)
    numbered = isinstance(step, int) or step == APPEND or (step.isdigit() and kind_at(above) is not ANYTHING)
    return numbered and holds_list(above)


def _with_entry(entries: list[Any], steps: PlanPath, above: PlanPath, made: Override) -> list[Any]:
    at = _index(entries, steps[0], above, made)
    present = entries[at] if at < len(entries) else None
    return [*entries[:at], _with(present, steps[1:], (*above, at), made), *entries[at + 1 :]]


def _index(entries: list[Any], step: str | int, above: PlanPath, made: Override) -> int:
    """The index of an entry: by number, by `[+]` for a new one, or by name."""
    if step == APPEND:
        return len(entries)
    named = [at for at, entry in enumerate(entries) if isinstance(entry, Mapping) and entry.get("name") == step]
    if named:
        return named[0]
    if isinstance(step, int) or step.isdigit():
        if int(step) < len(entries):
            return int(step)
        has = f"has {len(entries)} entries, the first is [0]" if entries else "has no entries"
        raise PlanError(f"--set {made.name}: {written(above)} {has}; [+] adds one")
    raise PlanError(f"--set {made.name}: {written(above)} is a list: write {written(above)}[0]")


def _meant(path: PlanPath) -> str:
    close = meant(path)
    return f"; did you mean {' or '.join(close)}?" if close else ""


# -- flags -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults for settings that neither the plan nor a flag sets."""

    url: Sequence[str] = ()
    model: str | None = None
    key_env: str | None = None


def defaults_in(environ: Mapping[str, str]) -> Defaults:
    """`INFEROMETER_URL` (several with spaces between them), `INFEROMETER_MODEL`, `INFEROMETER_KEY_ENV`."""
    return Defaults(
        url=environ.get("INFEROMETER_URL", "").split(),
        model=environ.get("INFEROMETER_MODEL") or None,
        key_env=environ.get("INFEROMETER_KEY_ENV") or None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags as typed; `None` or empty if a flag was not given."""

    name: str | None = None
    url: Sequence[str] = ()
    server: str | None = None
    model: str | None = None
    api: str | None = None
    rate: str | float | None = None
    concurrency: str | int | None = None
    requests: str | int | None = None
    duration: str | float | None = None
    warmup: str | float | None = None
    input_tokens: str | int | None = None
    output_tokens: str | int | None = None
    workers: str | int | None = None
    on: str | None = None
    ray_address: str | None = None
    seed: str | int | None = None
    limit: Sequence[str] = ()
    dataset: str | None = None
    tokenizer: str | None = None
    header: Sequence[str] = ()
    output: Sequence[str] = ()
    defaults: Defaults = Defaults()


def with_flags(plan: JsonObject, flags: Flags) -> dict[str, JsonValue]:
    """The plan changed by the flags. A flag overrides the file; a new load drops the settings of the old one."""
    folded = _with_defaults(_aimed(short.long(plan), flags), flags.defaults)
    sections: dict[str, JsonValue] = {
        "load": _load(folded, flags),
        "stop": _stop(folded, flags),
        "limits": _limits(folded, flags),
        "workload": _workload(folded, flags),
    }
    changed = {name: section for name, section in sections.items() if section}
    _reach_a_class(folded, set(changed))
    outputs = {"outputs": _outputs(folded, flags)} if flags.output else {}
    place = _place(folded, flags)
    return {**folded, **changed, **outputs, **place, **_given(flags, "name", "warmup", "workers", "seed")}


def _place(folded: JsonObject, flags: Flags) -> dict[str, JsonValue]:
    """`--on`, and `--ray-address`, which implies `--on ray`; settings of other places are removed."""
    on = flags.on or ("ray" if flags.ray_address else None)
    if on is None:
        return {}
    others: dict[str, JsonValue] = {name: {} for name in ("ray", "kubernetes") if name != on and name in folded}
    if flags.ray_address is not None:
        others["ray"] = {**_mapping(folded, "ray"), "address": flags.ray_address}
    return {"place": on, **others}


def _given(flags: Flags, *names: str) -> dict[str, JsonValue]:
    return {name: value for name in names if (value := getattr(flags, name)) is not None}


def _mapping(plan: JsonObject, name: str) -> dict[str, JsonValue]:
    section = plan.get(name)
    return dict(section) if isinstance(section, Mapping) else {}


def _aimed(plan: dict[str, JsonValue], flags: Flags) -> dict[str, JsonValue]:
    """A URL and a server to start exclude each other: a typed one replaces the other."""
    if flags.url and flags.server:
        raise PlanError("--url and --server exclude each other: a server that is started has a URL of its own")
    urls = [flags.url] if isinstance(flags.url, str) else list(flags.url)
    typed = _given(flags, "model", "api")
    target = {**_mapping(plan, "target"), **(short.target({**typed, "url": urls}) if urls else typed)}
    if flags.header:
        target["headers"] = _headers(target.get("headers"), flags.header)
    if urls:
        plan = {**plan, "server": None}
    if flags.server is not None:
        target.pop("url", None)
        kept = _mapping(plan, "server")
        plan = {**plan, "server": kept if kept.get("type") == flags.server else {"type": flags.server}}
    return {**plan, "target": target} if target or "target" in plan else plan


def _with_defaults(plan: dict[str, JsonValue], usual: Defaults) -> dict[str, JsonValue]:
    """Set the default URL if neither URL nor server is set, and the default model unless the simulator is measured."""
    target, server = _mapping(plan, "target"), _mapping(plan, "server")
    added: dict[str, JsonValue] = {}
    if usual.url and not target.get("url") and not server:
        added = dict(short.target({**target, "url": list(usual.url)}))
    is_ours = server.get("type") == "simulator" if server else not (added or target).get("url")
    if usual.model is not None and target.get("model") is None and not is_ours:
        added["model"] = usual.model
    if usual.key_env is not None and target.get("key_env") is None and not is_ours:
        added["key_env"] = usual.key_env
    return {**plan, "target": {**target, **added}} if added else plan


def _headers(filed: Any, typed: Sequence[str]) -> dict[str, JsonValue]:
    """`Name: value` as in curl, or `Name=value`; replaces the file's header of that name, ignoring case."""
    new: dict[str, JsonValue] = {}
    for text in typed:
        match = re.match(r"\s*([^\s:=]+)\s*[:=]\s*(.*)", text, re.DOTALL)
        if match is None:  # the text may be a secret: it is not repeated
            raise PlanError("--header must be 'Name: value', such as 'X-Tenant: blue', got no colon")
        new[match[1]] = match[2].strip()
    names = {name.lower() for name in new}
    kept = filed if isinstance(filed, Mapping) else {}
    return {**{name: value for name, value in kept.items() if str(name).lower() not in names}, **new}


def _workload(plan: JsonObject, flags: Flags) -> dict[str, JsonValue]:
    """A new dataset replaces the workload, except for its tokenizer."""
    typed = _given(flags, "input_tokens", "output_tokens", "tokenizer")
    filed = _mapping(plan, "workload")
    if flags.dataset is None:
        return {**filed, **typed} if typed else {}
    counted = {name: filed[name] for name in ("tokenizer",) if name in filed}
    return {**_dataset(flags.dataset), **counted, **typed}


_DATA_ENDINGS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".txt", ".gz", ".zst", ".arrow")


def _dataset(text: str) -> dict[str, str]:
    """A file, a URL, or `owner/name` on the Hugging Face hub; `sharegpt=FILE` if the name does not imply the type."""
    kind, place = _typed_place(text, tuple(TYPES))
    if place in TYPES and kind is None:
        raise PlanError(f"--dataset {text}: is a dataset type; name a file too", f"--dataset {text}=FILE")
    fields = {"type": kind} if kind else {}
    if place.startswith(("http://", "https://")):
        return {**fields, "url": place}
    named = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", place) and not place.lower().endswith(_DATA_ENDINGS)
    if kind == "huggingface" or (kind is None and named):
        return {**fields, "repo": place}
    return {**fields, "path": place}


_FORMATS = {".json": "json", ".csv": "csv", ".parquet": "parquet"}


def _outputs(plan: JsonObject, flags: Flags) -> list[Any]:
    """More output files; one with the path of an output in the plan replaces it."""
    new = [_output(text) for text in flags.output]
    paths_ = {output["path"] for output in new}
    filed = plan.get("outputs")
    kept = filed if isinstance(filed, list) else []
    return [*(one for one in kept if not isinstance(one, Mapping) or one.get("path") not in paths_), *new]


def _output(text: str) -> dict[str, str]:
    format_, path = _typed_place(text, get_args(OutputFormat))
    format_ = format_ or next((name for end, name in _FORMATS.items() if path.lower().endswith(end)), None)
    if format_ is None:
        hint = f"--output FORMAT=FILE, with FORMAT one of {', '.join(get_args(OutputFormat))}"
        raise PlanError(f"--output {text}: the name must end in {', '.join(_FORMATS)}, or name the format", hint)
    return {"format": format_, "path": path}


def _typed_place(text: str, types: Sequence[str]) -> tuple[str | None, str]:
    """`vllm=result.json` is a format and a path; a path may contain an equals sign."""
    kind, equals, place = text.partition("=")
    return (kind, place) if equals and kind in types and place else (None, text)


def _load(plan: JsonObject, flags: Flags) -> dict[str, JsonValue]:
    cancel = {name: value for name, value in _mapping(plan, "load").items() if name == "cancel"}
    if flags.rate is None:
        return {} if flags.concurrency is None else {"type": "concurrency", "concurrency": flags.concurrency, **cancel}
    if _is_endless(flags.rate):
        hint = "use --concurrency 64 for a closed loop"
        raise PlanError(f"--rate must be finite, got {flags.rate}", hint)
    old = _mapping(plan, "load")
    kind = short.load_type(old)
    new: dict[str, JsonValue] = {"type": "poisson", "rate": flags.rate, **cancel}
    if kind in short.RATE_TYPES:
        new = {"type": kind, "rate": flags.rate, **cancel}
        new |= {name: value for name, value in old.items() if name in ("cv", "max_concurrency")}
    return new if flags.concurrency is None else {**new, "max_concurrency": flags.concurrency}


def _is_endless(rate: str | float) -> bool:
    if isinstance(rate, str):
        return rate.strip().lower().lstrip("+") in ("inf", ".inf", "infinity", "max", "∞")
    return math.isinf(rate)


def _stop(plan: JsonObject, flags: Flags) -> dict[str, JsonValue]:
    """`--requests` or `--duration` replaces the file's stop rule."""
    ends = _given(flags, "requests", "duration")
    kept = {name: value for name, value in _mapping(plan, "stop").items() if name in ("errors", "drain")}
    return {**kept, **ends} if ends else {}


def _limits(plan: JsonObject, flags: Flags) -> list[Any]:
    """A typed limit replaces the file's on the same measure and statistic; the others stay."""
    if not flags.limit:
        return []
    typed = [flags.limit] if isinstance(flags.limit, str) else list(flags.limit)
    replaced = {measure_and_stat(limit) for limit in typed} - {None}
    filed = plan.get("limits")
    kept = filed if isinstance(filed, list) else []
    return [*(limit for limit in kept if measure_and_stat(limit) not in replaced), *typed]


def _reach_a_class(plan: JsonObject, changed: set[str]) -> None:
    """With traffic classes, check that a flag has an effect: a section that no class inherits has none."""
    classes = Document(plan).sections("traffic")
    mistakes = [
        f"every traffic class has its own {name}, so flags do not apply; use --set traffic[0].{name}=..."
        for name in sorted(changed)
        if classes and all(name in traffic for traffic in classes)
    ]
    if mistakes:
        raise PlanError(mistakes)
