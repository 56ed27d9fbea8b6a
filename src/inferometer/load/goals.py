"""The word that a class's goal is reached, from whoever watches the records to the shards that make them: a file,
because shards may be processes anywhere that share the run's folder."""

from pathlib import Path
from typing import Any

import orjson

from inferometer.record.files import replacing

GOALS = "goals.json"

Goals = dict[str, dict[str, Any]]  # by traffic class: {"why", ...}


def read_goals(file: str | None) -> Goals:
    """None yet where there is no file; it is written in one piece."""
    if file is None:
        return {}
    try:
        found: Goals = orjson.loads(Path(file).read_bytes())
    except FileNotFoundError:
        return {}
    return found


def write_goals(file: Path, goals: Goals) -> None:
    with replacing(file) as draft:
        draft.write_bytes(orjson.dumps(goals))
