"""A plan as text that reads back as the same plan, with secrets starred on the way; and its JSON schema."""

from typing import Any

import yaml

from inferometer.plan import short
from inferometer.plan.fields import HUMAN, Section
from inferometer.plan.known_secrets import redactor_of
from inferometer.plan.limit import Precision
from inferometer.plan.model import Load, Plan, Server, Traffic, WorkloadSection
from inferometer.plan.secrets import redacted
from inferometer.plan.text import Dumper
from inferometer.plan.workloads import Lengths, TraceFile
from inferometer.plan.workloads.lengths import Pause

# -- writing ---------------------------------------------------------------------------------------------------------


def to_yaml(plan: Plan, full: bool = False) -> str:
    """The effective plan: what differs from the defaults, or with `full` every setting."""
    mapping = to_mapping(plan, full)
    if not mapping:
        return "{}  # all defaults\n"
    return yaml.dump(mapping, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)


def to_mapping(plan: Plan, full: bool = False) -> dict[str, Any]:
    """The effective plan as plain values, written as people write them: `60s`, `ttft p99 < 500ms`."""
    shown = redacted(plan)
    if full:
        return _hidden(plan, shown.model_dump(context=HUMAN))
    mapping = _lean(shown, None)
    if shown.traffic:
        mapping["traffic"] = [_lean_class(traffic, shown) for traffic in shown.traffic]
    if any(isinstance(traffic.workload, TraceFile) for traffic in shown.classes):  # without a load, a trace is replayed
        mapping["load"] = _written(shown, "load", shown.load, None)
    return _hidden(plan, mapping)


def _hidden(plan: Plan, mapping: dict[str, Any]) -> dict[str, Any]:
    """A secret that is starred at its place must not stand at another: in a name, or a command."""
    hidden: dict[str, Any] = redactor_of(plan).hide_within(mapping)
    return hidden


def _lean_class(traffic: Traffic, plan: Plan) -> dict[str, Any]:
    """A class without what it inherits, so that reading it back inherits the same."""
    inherited = {name: getattr(plan, name) for name in short.INHERITED}
    return _lean(traffic, Traffic.model_construct(name="", headers={}, **inherited))


def _lean(section: Section, usual: Section | None) -> dict[str, Any]:
    """The fields of a section that are not as usual: not the default, or not as in another section."""
    fields = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        default = getattr(usual, name) if usual is not None else field.get_default(call_default_factory=True)
        if value != default and name not in section.derived():
            fields[name] = _written(section, name, value, default)
    return fields


def _written(section: Section, name: str, value: Any, default: Any) -> Any:
    if isinstance(value, Load | Server):  # all of it, with its type: the fields belong to that
        return {"type": value.type, **_lean(value, None)}
    if isinstance(value, WorkloadSection) and type(value) is not type(default):
        return {"type": value.type, **_lean(value, None)}
    if isinstance(value, Section) and not isinstance(value, Lengths | Pause | Precision):  # these write themselves
        return _lean(value, default if type(default) is type(value) else None)
    if name == "stages":
        return [_lean(stage, None) for stage in value]
    if name == "url" and len(value) == 1:
        return value[0]
    plain = section.model_dump(context=HUMAN, include={name})[name]
    return int(plain) if isinstance(plain, float) and plain.is_integer() and abs(plain) < 1e15 else plain


# -- schema ----------------------------------------------------------------------------------------------------------

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema of a plan as it may be written, short forms included (draft 2020-12)."""
    return {"$schema": DIALECT, **Plan.model_json_schema(), "title": "Inferometer plan"}
