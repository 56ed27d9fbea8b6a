"""Calls a Python function in a process of its own and writes its return value as JSON:
`python -m inferometer.target.entry package.module:function ARGS RESULT`. The parent handles the time limit and the
log."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from inferometer.vocabulary import attribute_at
from inferometer.wire.child import import_from

NOT_FOUND = 78  # sysexits.h EX_CONFIG: there is no such function


def main(arguments: list[str]) -> int:
    where, args, result = arguments
    import_from(os.getcwd())  # noqa: PTH109  (the function is the user's own, and so are the modules it imports)
    try:
        function: Any = attribute_at(where)
    except ImportError as error:
        sys.stderr.write(f"{where}: there is no such function: {error}\n")
        return NOT_FOUND
    returned: Any = function(**json.loads(args))
    Path(result).write_text(json.dumps(_plain(returned), default=_plain), encoding="utf-8")
    return 0


def _plain(value: Any) -> Any:
    """Converts what a user's function may return besides plain data: a generator, a tuple, a dataclass, a number of
    another library."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Iterator | set):
        return list(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict | list | tuple | str | int | float | None):
        return value
    raise TypeError(f"cannot be written as JSON: {value!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
