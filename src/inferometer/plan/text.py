"""YAML and JSON as people write plans: a key given twice is a mistake. What may stand in them is in `documents`."""

import json
import re
from typing import Any

import yaml

from inferometer.documents.json_text import RefusedError, json_value
from inferometer.documents.yaml_text import FLOAT, INT, yaml_value
from inferometer.errors import PlanError


def parse_yaml(text: str, where: str) -> tuple[Any, list[str]]:
    """What the text says, and the keys that it gives twice."""
    try:
        value, twice = yaml_value(text)
    except RefusedError as error:
        raise refused(error, where) from None
    return value, [f"{where}: {mistake}" for mistake in twice]


def parse_json(text: str, where: str) -> tuple[Any, list[str]]:
    """What the text says, and the keys that it gives twice."""
    try:
        value, twice = json_value(text)
    except RefusedError as error:
        raise refused(error, where) from None
    return value, [f"{where}: {name} is given twice" for name in twice]


def refused(error: RefusedError, where: str) -> PlanError:
    """Why a plan's file cannot be read, with its name and the place in it."""
    return PlanError(f"{where}{error.position}: {error.text}", error.hint)


def as_written(value: Any) -> str:
    """A value as a plan would hold it, on one line."""
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
    """Writes what the loader above reads back: quotes what either YAML would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None  # PyYAML quotes what a block cannot hold
    if INT.fullmatch(text) or FLOAT.fullmatch(text):
        style = "'"
    if re.search("[\r\x85\u2028\u2029\ufeff]", text):  # other line breaks come back as spaces
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _represent_text)
