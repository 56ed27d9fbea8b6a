"""Another tool's plan as text for people: what it said is shown, also where it is our default."""

from typing import Any

import yaml

from inferometer.plan.model import Plan
from inferometer.plan.text import Dumper
from inferometer.plan.writing import to_mapping


def to_yaml(plan: Plan, said: dict[str, Any]) -> str:
    """What differs from our defaults, and what the other tool's reader set."""
    shown = _beside(to_mapping(plan), said, to_mapping(plan, full=True))
    return yaml.dump(shown, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)


def _beside(lean: dict[str, Any], said: dict[str, Any], full: dict[str, Any]) -> dict[str, Any]:
    """The lean mapping with the values of the full one wherever something was said, in its order."""
    found: dict[str, Any] = {}
    for name, value in full.items():
        own, shown = said.get(name), lean.get(name)
        if isinstance(value, dict) and isinstance(own, dict) and isinstance(shown, dict | None):
            inner = _beside(shown or {}, own, value)
            found |= {name: inner} if inner else {}
        elif name in lean:
            found[name] = shown
        elif own is not None and value is not None:
            found[name] = value
    return found | {name: value for name, value in lean.items() if name not in found}
