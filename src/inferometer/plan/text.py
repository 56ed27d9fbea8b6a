"""YAML and JSON as people write plans: without YAML 1.1's surprises, and a key given twice is a mistake.

Only `true` and `false` are booleans (`model: no` is a name), `1e3` is a number, `010` is ten, `1:30` and dates are
text, as in YAML 1.2.
"""

import json
import re
from typing import Any

import yaml

from inferometer.errors import PlanError

_INT = re.compile(r"[-+]?(?:[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))"
    r"|\.(?:nan|NaN|NAN)"
)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2 that remembers keys given twice."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (PyYAML's own way to keep them per class)

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.twice: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, int] = {}
        for key, _ in node.value:
            name, line = (key.tag, key.value), key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and name in seen and key.value != "<<":
                self.twice.append(f"{key.value} is given twice, on lines {seen[name]} and {line}")
            elif isinstance(key, yaml.ScalarNode):
                seen[name] = line
        return super().construct_mapping(node, deep)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    return int(text, 0) if re.match(r"[-+]?0[ox]", text) else int(text)


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node).replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))


def _teach(loader: type[_Loader]) -> None:
    for tag, pattern, first in (
        ("bool", re.compile(r"true|True|TRUE|false|False|FALSE"), "tTfF"),
        ("null", re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
        ("merge", re.compile(r"<<"), "<"),
        ("int", _INT, "-+0123456789"),
        ("float", _FLOAT, "-+.0123456789"),
    ):
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern.pattern})$"), list(first))
    loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
    loader.add_constructor("tag:yaml.org,2002:float", _construct_float)


_teach(_Loader)


def parse_yaml(text: str, where: str) -> tuple[Any, list[str]]:
    """What the text says, and the keys that it gives twice."""
    try:
        loader = _Loader(text)
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise PlanError(f"{where}{_position(error)}: {_complaint(error)}", "see https://yaml.org for YAML") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PlanError(f"{where}: is not YAML: {' '.join(str(error).split())}") from None
    return value, [f"{where}: {mistake}" for mistake in loader.twice]


def _position(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""


def _complaint(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    text = ", ".join(parts)
    if "'\\t'" in text:
        return f"{text} (YAML is indented with spaces, not tabs)"
    return text


def parse_json(text: str, where: str) -> tuple[Any, list[str]]:
    """What the text says, and the keys that it gives twice."""
    twice: list[str] = []

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice.extend(f"{where}: {name} is given twice" for name in dict.fromkeys(names) if names.count(name) > 1)
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=mapping), twice
    except json.JSONDecodeError as error:
        raise PlanError(f"{where}:{error.lineno}:{error.colno}: {error.msg[0].lower()}{error.msg[1:]}") from None
    except RecursionError:
        raise PlanError(f"{where}: is nested too deeply") from None


def as_written(value: Any) -> str:
    """A value as a plan would hold it, on one line."""
    if isinstance(value, str):
        plain = value and value == value.strip() and value.isprintable()
        return _cut(value if plain else json.dumps(value, ensure_ascii=False))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
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
    if _INT.fullmatch(text) or _FLOAT.fullmatch(text):
        style = "'"
    if re.search("[\r\x85\u2028\u2029\ufeff]", text):  # other line breaks come back as spaces
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _represent_text)
