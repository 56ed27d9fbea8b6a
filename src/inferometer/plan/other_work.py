"""Work of a case that is no plan, an offline measurement or a benchmark of one's own: checked by its section."""

import difflib
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from inferometer.errors import PlanError
from inferometer.plan.experiment import Work
from inferometer.plan.fields import Section, SectionError
from inferometer.plan.offline import LatencyPlan, ThroughputPlan
from inferometer.plan.offline import written as offline_written
from inferometer.plan.overrides import Override, parse_override
from inferometer.plan.paths import written
from inferometer.plan.secrets import redacted_fields
from inferometer.plan.text import as_written

SECTIONS = {  # what it is checked by
    "latency": "inferometer.plan.offline_case:Latency",
    "throughput": "inferometer.plan.offline_case:Throughput",
    "benchmark": "inferometer.plan.benchmark:Benchmark",
}


def checked(
    work: Work, base: Mapping[str, Any], settings: Mapping[str, Any], where: str
) -> tuple[Any, Mapping[str, Any], str]:
    """Its plan, the same as it may be kept, and which engine it is on; none where it needs none."""
    section = _section(work)
    for path, value in settings.items():
        base = _with(base, path, value, section, f"{where}: {work}")
    made = _validated(section, base, f"{where}: {work}")
    plan = made.planned() if hasattr(made, "planned") else made
    if isinstance(plan, LatencyPlan | ThroughputPlan):
        return plan, offline_written(plan), str(plan.on)
    return plan, redacted_fields(made.model_dump(mode="json", exclude_defaults=True)), ""


def path_override(path: str, value: Any, origin: str) -> Override:
    try:
        return Override(parse_override(f"{path}=0").path, value, path)
    except PlanError:
        raise PlanError(f"{origin}: {path} is not a path such as load.rate or server.args.max-num-seqs") from None


def _section(work: Work) -> type[Section]:
    module, _, attribute = SECTIONS[work].partition(":")
    found: type[Section] = getattr(import_module(module), attribute)
    return found


def _with(said: Mapping[str, Any], path: str, value: Any, section: type[Section], where: str) -> dict[str, Any]:
    """With the value at a path, the first step of which is a setting and the others free keys."""
    first, *below = (str(step) for step in path_override(path, value, where).path)
    known = section.model_fields
    if first not in known:
        close = difflib.get_close_matches(first, known, n=1)
        told = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise PlanError(f"{where}: {path} is not a setting; {told}")
    if not below:
        return {**said, first: value}
    there = said.get(first, known[first].default)
    return {**said, first: _deep(dict(there) if isinstance(there, Mapping) else {}, below, value)}


def _deep(said: dict[str, Any], steps: list[str], value: Any) -> dict[str, Any]:
    first, *below = steps
    return {**said, first: _deep(said.get(first) or {}, below, value) if below else value}


def _validated(section: type[Section], said: Mapping[str, Any], where: str) -> Any:
    try:
        return section.model_validate(dict(said))
    except ValidationError as error:
        raise PlanError([f"{where}: {text}" for text in _told(error, section)]) from None


def _told(error: ValidationError, section: type[Section]) -> Iterator[str]:
    for each in error.errors(include_url=False):
        cause, loc = each.get("ctx", {}).get("error"), each["loc"]
        if isinstance(cause, SectionError):
            yield from (f"{written((*loc, *found.path))} {found.text}".strip() for found in cause.mistakes)
        elif each["type"] == "extra_forbidden":
            close = difflib.get_close_matches(str(loc[-1]), section.model_fields, n=1)
            yield f"{written(loc)} is not a setting" + (f"; did you mean {close[0]}?" if close else "")
        else:
            said = each["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
            yield f"{written(loc)} {said}, got {as_written(each['input'])}"
