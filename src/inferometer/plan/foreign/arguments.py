"""Another tool's command line by a table of its flags: every mistake is found, and nothing is dropped unsaid."""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from inferometer import vocabulary
from inferometer.documents.json_text import json_value
from inferometer.errors import PlanError

_ON = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Flag:
    """How many values follow it (`maybe`: one, if it looks like one), and what becomes of it where a plan has no
    place for it."""

    takes: Literal["one", "none", "many", "maybe"] = "one"
    unused: str | None = None


class Given:
    """What was typed, by the name of the flag. Values are read as their kind when they are asked for; each that cannot
    be is a mistake, raised all at once by `settle`."""

    def __init__(self, tool: str, values: Mapping[str, Any], mistakes: Sequence[str] = ()) -> None:
        self.tool = tool
        self.values = dict(values)
        self.mistakes = list(mistakes)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def wrong(self, name: str, must: str) -> None:
        """Note a mistake about a flag."""
        self.mistakes.append(f"{self.tool}: --{name} {must}, got {self.values.get(name)}")

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self.values.get(name)
        return default if value is None else str(value)

    def number(self, name: str, default: float | None = None) -> float | None:
        """A number; `inf` is one."""
        text = self.text(name)
        if text is None:
            return default
        try:
            value = math.inf if text.strip().lower() in ("inf", "infinity") else vocabulary.number(text)
        except ValueError:
            self.wrong(name, "must be a number")
            return default
        return value

    def count(self, name: str, default: int | None = None) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        try:
            return vocabulary.count(text)
        except ValueError:
            self.wrong(name, "must be a whole number")
            return default

    def on(self, name: str, default: bool = False) -> bool:
        """A switch: there or not, or followed by true or false, however it is spelled."""
        value = self.values.get(name, default)
        if isinstance(value, bool):
            return value
        if str(value).lower() not in _ON:
            self.wrong(name, "must be true or false")
            return default
        return _ON[str(value).lower()]

    def several(self, name: str) -> list[str]:
        value = self.values.get(name) or []
        return list(value) if isinstance(value, list) else str(value).split()

    def fields(self, name: str) -> dict[str, Any]:
        """A JSON object."""
        text = self.text(name)
        try:
            value = {} if text is None else json_value(text)[0]
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self.wrong(name, "must be a JSON object")
            return {}
        return value

    def pairs(self, name: str, between: str = "=") -> dict[str, str]:
        """`KEY=VALUE KEY=VALUE`."""
        found = {}
        for each in self.several(name):
            key, sign, value = each.partition(between)
            if not sign:
                self.wrong(name, f"must be KEY{between}VALUE")
            found[key.strip()] = value.strip()
        return found

    def settle(self) -> None:
        if self.mistakes:
            raise PlanError(self.mistakes)


def parse(
    tool: str, words: Sequence[str], flags: Mapping[str, Flag], aliases: Mapping[str, str] | None = None
) -> tuple[Given, list[str]]:
    """What a command line gives, and a note for each flag that a plan has no place for."""
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    at = 0
    while at < len(words):
        name, sign, inline = words[at].partition("=")
        known = _name_of(name, aliases or {})
        at += 1
        if known not in flags:
            mistakes.append(f"{tool}: {_unknown(words[at - 1], known, flags)}")
            at = _next_flag(words, at)
            continue
        taken, at = _values(flags[known], inline if sign else None, words, at)
        if taken is None:
            mistakes.append(f"{tool}: --{known} needs a value")
        elif isinstance(taken, list) and isinstance(values.get(known), list):
            values[known] += taken
        else:
            values[known] = taken
    notes = [f"--{name}: {flags[name].unused}" for name in values if flags[name].unused]
    return Given(tool, values, mistakes), notes


def _name_of(word: str, aliases: Mapping[str, str]) -> str:
    name = word.lstrip("-").replace("_", "-") if word.startswith("--") else word
    return aliases.get(word, aliases.get(name, name))


def _unknown(word: str, name: str, flags: Mapping[str, Flag]) -> str:
    if not word.startswith("-"):
        return f"{word} stands where a flag was expected"
    close = difflib.get_close_matches(name, flags, n=1)
    return f"{word} is not one of its flags" + (f"; did you mean --{close[0]}?" if close else "")


def _next_flag(words: Sequence[str], at: int) -> int:
    while at < len(words) and not words[at].startswith("--"):
        at += 1
    return at


def _values(flag: Flag, inline: str | None, words: Sequence[str], at: int) -> tuple[Any, int]:
    """What belongs to a flag, and where the next one stands."""
    if flag.takes == "none":
        return (True if inline is None else inline), at
    if flag.takes == "many":
        end = _next_flag(words, at)
        return ([inline] if inline is not None else []) + list(words[at:end]), end
    if inline is not None:
        return inline, at
    follows = at < len(words) and not words[at].startswith("--")
    if flag.takes == "maybe" and not follows:
        return True, at
    return (words[at], at + 1) if follows else (None, at)
