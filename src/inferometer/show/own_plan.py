"""The plan of a kept run, as far as this version knows it; else what it says, word by word."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from inferometer.plan.model import Plan
from inferometer.record.run import Run


def own_plan(run: Run) -> Plan | None:
    """None of a run without requests of ours, and of one whose plan another version of us wrote."""
    if run.kind != "serving" or run.source is not None:
        return None
    try:
        return Plan.model_validate(run.plan)
    except ValidationError:
        return None


def plan_in_words(run: Run) -> Iterator[tuple[str, str]]:
    """What its plan and its file say, word by word."""
    imported = run.environment.get("imported") or {}
    if run.source:
        yield (
            "imported",
            ", ".join(str(each) for each in (run.source, imported.get("file"), imported.get("part")) if each),
        )
    for name, said in run.plan.items():
        if said not in (None, "", [], {}):
            yield str(name), _in_words(said)
    startup = run.summary.get("startup") or {}
    for name in ("engine", "version", "model", "load_format"):
        if startup.get(name):
            yield name.replace("_", " "), str(startup[name])


def _in_words(said: Any) -> str:
    if isinstance(said, Mapping):
        return ", ".join(f"{name} {_in_words(value)}" for name, value in said.items() if value not in (None, {}, []))
    return ", ".join(map(_in_words, said)) if isinstance(said, list) else str(said)
