"""The part of YAML that most plans need: nested mappings of words, numbers and URLs. Reading and writing it takes no
YAML library, whose import takes 10 ms of each start. `None` is returned for everything else."""

import re
from typing import Any

_KEY = r"[a-z][a-z_]{0,39}"
_LINE = re.compile(rf"(?P<blanks> *)(?P<key>{_KEY}):(?: (?P<value>\S+))?")
_WORD = re.compile(r"[A-Za-z](?:[A-Za-z0-9_./:-]*[A-Za-z0-9_/])?|[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h)")
_INT = re.compile(r"-?[1-9][0-9]{0,17}|0")
_FLOAT = re.compile(r"-?(?:[1-9][0-9]{0,15}|0)\.[0-9]{1,17}")
_OTHER = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))  # words with another meaning
_CONSTANTS = {"true": True, "false": False, "null": None}


def simple_text(mapping: dict[str, Any], indent: str = "") -> str | None:
    """The mapping exactly as PyYAML writes it in block style."""
    lines = []
    for key, value in mapping.items():
        if not isinstance(key, str) or not re.fullmatch(_KEY, key) or key in _OTHER:
            return None
        if isinstance(value, dict):
            inner = simple_text(value, f"{indent}  ") if value else None
            if inner is None:
                return None
            lines.append(f"{indent}{key}:\n{inner}")
        else:
            scalar = _scalar_text(value)
            if scalar is None:
                return None
            lines.append(f"{indent}{key}: {scalar}\n")
    return "".join(lines)


def _scalar_text(value: Any) -> str | None:
    if value is None or value is True or value is False:
        return "null" if value is None else str(value).lower()
    if type(value) is int or type(value) is float:
        text = repr(value)
        return text if (_INT if type(value) is int else _FLOAT).fullmatch(text) else None
    is_word = type(value) is str and _WORD.fullmatch(value) and value.lower() not in _OTHER
    return value if is_word else None


def simple_mapping(text: str) -> dict[str, Any] | None:
    """The content of such a text; comments only before the first line."""
    whole: dict[str, Any] = {}
    open_: list[dict[str, Any]] = [whole]  # by depth; a key without a value opens the next one
    for line in text.splitlines():
        if line.startswith("#") and not whole:
            continue
        match = _LINE.fullmatch(line)
        depth, odd = divmod(len(match["blanks"]), 2) if match else (0, 1)
        if match is None or odd or depth >= len(open_) or (depth < len(open_) - 1 and not open_[-1]):
            return None
        key, value = match["key"], match["value"]
        del open_[depth + 1 :]
        if key in _OTHER or key in open_[-1]:
            return None
        if value is None:
            open_[-1][key] = {}
            open_.append(open_[-1][key])
        elif value in _CONSTANTS:
            open_[-1][key] = _CONSTANTS[value]
        elif _INT.fullmatch(value):
            open_[-1][key] = int(value)
        elif _FLOAT.fullmatch(value):
            open_[-1][key] = float(value)
        elif _WORD.fullmatch(value) and value.lower() not in _OTHER:
            open_[-1][key] = value
        else:
            return None
    return whole if whole and open_[-1] else None
