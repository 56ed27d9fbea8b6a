"""What `list --where` says: `model=~llama`, `ttft p99 < 500ms`, `plan.load.rate=10`, as conditions to be asked of the
index. What names mean is decided there, where the runs are known."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from inferometer.errors import PlanError
from inferometer.measure.values import canonical
from inferometer.store.entry import number_of

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "=~", "!~"]
_CONDITION = re.compile(r"\s*(.+?)\s*(=~|!~|!=|==|<=|>=|=|<|>)\s*(.*?)\s*", re.DOTALL)
_PER_SECOND = re.compile(r"\s*/\s*s$")
EXAMPLES = "write NAME OPERATOR VALUE, such as model=~llama, 'ttft.p99 < 500ms' or plan.load.rate=10"


@dataclass(frozen=True)
class Condition:
    name: str
    operator: Operator
    value: str

    @property
    def key(self) -> str:
        """As quantities are named: `TTFT p99` is `ttft.p99`."""
        return canonical(self.name)

    @property
    def number(self) -> float | None:
        """The value where it is one, in the unit that is kept: 0.5 for `500ms`, 0.01 for `1%`, 2000 for `2k/s`."""
        return number_of(_PER_SECOND.sub("", self.value))

    def __str__(self) -> str:
        return f"{self.name} {self.operator} {self.value}"


def condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise PlanError(f"--where: {text!r} is no condition", EXAMPLES)
    name, operator, value = match.groups()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    found = Condition(name, "=" if operator == "==" else operator, value)  # type: ignore[arg-type]
    if operator in ("=~", "!~"):
        _check_pattern(found)
    return found


def instant(text: str) -> str:
    """A date or a time as the index sorts it; a day begins at its midnight here."""
    try:
        return datetime.fromisoformat(text).astimezone().isoformat(timespec="milliseconds")
    except ValueError:
        raise PlanError(f"--where: not a date: {text!r}", "write 2026-11-15 or 2026-11-15T03:12") from None


def _check_pattern(found: Condition) -> None:
    try:
        re.compile(found.value)
    except re.error as error:
        raise PlanError(f"--where: {found}: not a regular expression: {error}") from None
