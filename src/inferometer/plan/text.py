"""Plans as text: parsing of YAML and JSON, writing of a plan as text that reads back as the same plan (with secrets
starred), and its JSON schema."""

import json
import re
from typing import Any

import yaml

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.documents.json_text import RefusedError, json_value
from inferometer.documents.yaml_text import FLOAT, INT, yaml_value
from inferometer.errors import PlanError
from inferometer.plan import short
from inferometer.plan.fields import HUMAN, Section
from inferometer.plan.limit import Precision
from inferometer.plan.model import Load, Plan, Server, Traffic, WorkloadSection
from inferometer.plan.secrets import redacted
from inferometer.plan.workloads import Lengths, TraceFile
from inferometer.plan.workloads.lengths import Pause


def parse_yaml(text: str, where: str) -> tuple[JsonValue, list[str]]:
    """The parsed YAML, and its duplicate keys."""
    try:
        value, twice = yaml_value(text)
    except RefusedError as error:
        raise refused(error, where) from None
    return value, [f"{where}: {mistake}" for mistake in twice]


def parse_json(text: str, where: str) -> tuple[JsonValue, list[str]]:
    """The parsed JSON, and its duplicate keys."""
    try:
        value, twice = json_value(text)
    except RefusedError as error:
        raise refused(error, where) from None
    return value, [f"{where}: {name} is given twice" for name in twice]


def refused(error: RefusedError, where: str) -> PlanError:
    """The error for a plan's file that cannot be parsed, with file name and position."""
    return PlanError(f"{where}{error.position}: {error.text}", error.hint)


def as_written(value: JsonValue) -> str:
    """A value in the syntax of a plan, on one line."""
    if isinstance(value, str):
        plain = value and value == value.strip() and value.isprintable()
        return _cut(value if plain else json.dumps(value, ensure_ascii=False))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if value is None or isinstance(value, bool | int):  # nine of ten; PyYAML takes 0.3 ms for each
        return _cut("null" if value is None else str(value).lower())
    text = yaml.dump(value, Dumper=Dumper, default_flow_style=True, width=10**6, allow_unicode=True)
    return _cut(" ".join(text.removesuffix("...\n").split()))


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


class Dumper(yaml.SafeDumper):
    """Writes text that the loader above reads back, with quotes where YAML 1.1 or 1.2 would read another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None  # PyYAML quotes text that a block cannot hold
    if INT.fullmatch(text) or FLOAT.fullmatch(text):
        style = "'"
    if re.search("[\r\x85\u2028\u2029\ufeff]", text):  # other line breaks come back as spaces
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _represent_text)


# -- writing ---------------------------------------------------------------------------------------------------------


def to_yaml(plan: Plan, full: bool = False) -> str:
    """The effective plan: settings that differ from the defaults, or with `full` all settings."""
    mapping = to_mapping(plan, full)
    if not mapping:
        return "{}  # all defaults\n"
    return yaml.dump(mapping, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)


def to_mapping(plan: Plan, full: bool = False) -> dict[str, JsonValue]:
    """The effective plan as plain values in readable form: `60s`, `ttft p99 < 500ms`."""
    shown = redacted(plan)
    dumped: dict[str, Any] = shown.model_dump(context=HUMAN)
    if full:
        return dumped
    mapping = _lean(shown, None, dumped)
    if shown.traffic:
        classes = zip(shown.traffic, dumped["traffic"], strict=True)
        mapping["traffic"] = [_lean_class(traffic, shown, values) for traffic, values in classes]
    if any(isinstance(traffic.workload, TraceFile) for traffic in shown.classes):  # without a load, a trace is replayed
        mapping["load"] = _written("load", shown.load, None, dumped)
    return mapping


def _lean_class(traffic: Traffic, plan: Plan, dumped: JsonValue) -> dict[str, JsonValue]:
    """A class without inherited settings, so that it inherits them again when it is read back."""
    inherited = {name: getattr(plan, name) for name in short.INHERITED}
    return _lean(traffic, Traffic.model_construct(name="", headers={}, **inherited), dumped)


def _lean(section: Section, usual: Section | None, dumped: JsonValue) -> dict[str, JsonValue]:
    """The fields of a section that differ from the defaults, or from another section. `dumped` is the section as the
    plan's serializer wrote it: one of its own would have to be built at every start."""
    if not isinstance(dumped, dict) or not dumped.keys() >= type(section).model_fields.keys():  # a subclass
        dumped = section.model_dump(context=HUMAN)
    fields: dict[str, JsonValue] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        default = getattr(usual, name) if usual is not None else field.get_default(call_default_factory=True)
        if value != default and name not in section.derived():
            fields[name] = _written(name, value, default, dumped)
    return fields


def _written(name: str, value: Any, default: Any, dumped: dict[str, JsonValue]) -> JsonValue:
    plain = dumped[name]
    if isinstance(value, Load | Server):  # completely, with its type, because the fields belong to the type
        return {"type": value.type, **_lean(value, None, plain)}
    if isinstance(value, WorkloadSection) and type(value) is not type(default):
        return {"type": value.type, **_lean(value, None, plain)}
    if isinstance(value, Section) and not isinstance(value, Lengths | Pause | Precision):  # these write themselves
        return _lean(value, default if type(default) is type(value) else None, plain)
    if name == "stages":
        assert isinstance(plain, list)
        return [_lean(stage, None, values) for stage, values in zip(value, plain, strict=True)]
    if name == "url" and len(value) == 1:
        return str(value[0])
    return int(plain) if isinstance(plain, float) and plain.is_integer() and abs(plain) < 1e15 else plain


# -- schema ----------------------------------------------------------------------------------------------------------

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> JsonObject:
    """The schema of a plan as it may be written, short forms included (draft 2020-12)."""
    return {"$schema": DIALECT, **Plan.model_json_schema(), "title": "Inferometer plan"}
