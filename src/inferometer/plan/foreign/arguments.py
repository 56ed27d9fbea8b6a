"""Another tool's command line by a table of its flags."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from inferometer.documents.json_text import json_value
from inferometer.plan.foreign.account import Account, Settings


@dataclass(frozen=True, slots=True)
class Flag:
    """How many values follow it (`maybe`: one, if it looks like one), and why it changes nothing of what is sent."""

    takes: Literal["one", "none", "many", "maybe"] = "one"
    unused: str | None = None


class Given(Settings):
    """The flags of a command line by name. A file that lists flags by name has no dashes before them."""

    def __init__(
        self, tool: str, values: Mapping[str, Any], prefix: str = "--", account: Account | None = None
    ) -> None:
        super().__init__(values, account or Account(tool), prefix)

    def fields(self, name: str) -> dict[str, Any]:
        """A JSON object."""
        value = self.value(name, {})
        try:
            value = json_value(value)[0] if isinstance(value, str) else value
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self.wrong(name, "must be a JSON object")
            return {}
        return value

    def pairs(self, name: str, between: str = "=") -> dict[str, str]:
        """`KEY=VALUE KEY=VALUE`."""
        pairs = {}
        for pair in self.several(name):
            key, sign, value = pair.partition(between)
            if not sign:
                self.wrong(name, f"must be KEY{between}VALUE")
            pairs[key.strip()] = value.strip()
        return pairs


def parse(
    tool: str,
    argv: Sequence[str],
    flags: Mapping[str, Flag],
    aliases: Mapping[str, str] | None = None,
    account: Account | None = None,
) -> Given:
    """What a command line gives. A flag that the table does not have is refused."""
    values: dict[str, Any] = {}
    account = account or Account(tool)
    at = 0
    while at < len(argv):
        name, sign, inline = argv[at].partition("=")
        known = _name_of(name, aliases or {})
        at += 1
        if known not in flags:
            account.mistakes.append(f"{tool}: {_unknown(argv[at - 1], known, flags)}")
            at = _next_flag(argv, at)
            continue
        taken, at = _values(flags[known], inline if sign else None, argv, at)
        if taken is None:
            account.mistakes.append(f"{tool}: --{known} needs a value")
        elif isinstance(taken, list) and isinstance(values.get(known), list):
            values[known] += taken
        else:
            values[known] = taken
    return given_of(tool, values, flags, account=account)


def given_of(
    tool: str, values: Mapping[str, Any], flags: Mapping[str, Flag], prefix: str = "--", account: Account | None = None
) -> Given:
    """The flags by name, those without an effect accounted for."""
    given = Given(tool, values, prefix, account)
    for name in values:
        flag = flags.get(name)
        if flag is not None and flag.unused is not None:
            given.no_effect(name, flag.unused)
    return given


def _name_of(arg: str, aliases: Mapping[str, str]) -> str:
    name = arg.lstrip("-").replace("_", "-") if arg.startswith("--") else arg
    return aliases.get(arg, aliases.get(name, name))


def _unknown(arg: str, name: str, flags: Mapping[str, Flag]) -> str:
    if not arg.startswith("-"):
        return f"expected a flag, got {arg}"
    close = difflib.get_close_matches(name, flags, n=1)
    return f"{arg} is not a known flag" + (f"; did you mean --{close[0]}?" if close else "")


def _next_flag(argv: Sequence[str], at: int) -> int:
    while at < len(argv) and not argv[at].startswith("--"):
        at += 1
    return at


def _values(flag: Flag, inline: str | None, argv: Sequence[str], at: int) -> tuple[Any, int]:
    """What belongs to a flag, and where the next one is."""
    if flag.takes == "none":
        return (True if inline is None else inline), at
    if flag.takes == "many":
        end = _next_flag(argv, at)
        return ([inline] if inline is not None else []) + list(argv[at:end]), end
    if inline is not None:
        return inline, at
    follows = at < len(argv) and not argv[at].startswith("--")
    if flag.takes == "maybe" and not follows:
        return True, at
    return (argv[at], at + 1) if follows else (None, at)
