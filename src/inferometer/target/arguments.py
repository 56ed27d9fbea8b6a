"""Settings by name as the flags of a command line, spelled as each engine wants them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Spelling:
    """What engines do differently."""

    hyphens: bool = True  # max_model_len is --max-model-len
    negated: bool | frozenset[str] = False  # which switches have an opposite, --no-NAME; of the others false is nothing
    short: frozenset[str] = frozenset()  # names of several letters behind one dash
    repeated: bool = False  # a list is --name a --name b, and not --name a b


AS_WRITTEN = Spelling(hyphens=False)


def flags_of(args: Mapping[str, Any], spelling: Spelling = AS_WRITTEN) -> list[str]:
    """`{max-model-len: 4096, enforce-eager: true}` as `--max-model-len 4096 --enforce-eager`.

    True and nothing at all are the flag alone, a list is several values, a mapping is JSON.
    """
    return [word for name, value in args.items() for word in _flag(str(name), value, spelling)]


def _flag(name: str, value: Any, spelling: Spelling) -> Iterator[str]:
    flag = _spelled(name, spelling)
    if value is False:
        yield from _negated(flag, spelling)
    elif value is None or value is True:
        yield flag
    elif isinstance(value, list):
        yield from _several(flag, [_text(each) for each in value], spelling)
    else:
        yield from (flag, _text(value))


def _spelled(name: str, spelling: Spelling) -> str:
    if name.startswith("-"):
        return name
    bare = name.replace("_", "-") if spelling.hyphens else name
    return f"-{bare}" if len(bare) == 1 or bare in spelling.short else f"--{bare}"


def _negated(flag: str, spelling: Spelling) -> Iterator[str]:
    bare = flag.removeprefix("--")
    has_opposite = spelling.negated if isinstance(spelling.negated, bool) else bare in spelling.negated
    if has_opposite and flag.startswith("--"):
        yield flag.replace("--no-", "--", 1) if bare.startswith("no-") else f"--no-{bare}"


def _several(flag: str, values: list[str], spelling: Spelling) -> Iterator[str]:
    if not spelling.repeated:
        yield from (flag, *values) if values else ()
        return
    for value in values:
        yield from (flag, value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return orjson.dumps(value).decode() if isinstance(value, Mapping | list) else str(value)
