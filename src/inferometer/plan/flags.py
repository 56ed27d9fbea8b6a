"""The flags that people type daily, folded into a plan: `--rate 10 --requests 500`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan import short
from inferometer.plan.limit import measure_and_stat


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What was typed; values as they were written, `None` and empty where a flag was not given."""

    url: Sequence[str] = ()
    server: str | None = None
    model: str | None = None
    api: str | None = None
    rate: str | float | None = None
    concurrency: str | int | None = None
    requests: str | int | None = None
    duration: str | float | None = None
    warmup: str | float | None = None
    input_tokens: str | int | None = None
    output_tokens: str | int | None = None
    workers: str | int | None = None
    seed: str | int | None = None
    limit: Sequence[str] = ()


def with_flags(plan: Mapping[str, Any], flags: Flags) -> dict[str, Any]:
    """The plan as the flags change it. A flag wins over the file; a new load drops what belonged to the old one."""
    folded = _aimed(short.long(plan), flags)
    lengths = _given(flags, "input_tokens", "output_tokens")
    sections: dict[str, Any] = {
        "load": _load(folded, flags),
        "stop": _stop(folded, flags),
        "limits": _limits(folded, flags),
        "workload": {**_mapping(folded, "workload"), **lengths} if lengths else {},
    }
    changed = {name: section for name, section in sections.items() if section}
    _reach_a_class(folded, set(changed))
    return {**folded, **changed, **_given(flags, "warmup", "workers", "seed")}


def _given(flags: Flags, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(flags, name)) is not None}


def _mapping(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = plan.get(name)
    return dict(section) if isinstance(section, Mapping) else {}


def _aimed(plan: dict[str, Any], flags: Flags) -> dict[str, Any]:
    """A URL and a server to start exclude each other: the one that was typed takes the other's place."""
    if flags.url and flags.server:
        raise PlanError("--url and --server exclude each other: a server that is started has a URL of its own")
    urls = [flags.url] if isinstance(flags.url, str) else list(flags.url)
    target = {**_mapping(plan, "target"), **_given(flags, "model", "api"), **({"url": urls} if urls else {})}
    if urls:
        plan = {**plan, "server": None}
    if flags.server is not None:
        target.pop("url", None)
        kept = _mapping(plan, "server")
        plan = {**plan, "server": kept if kept.get("type") == flags.server else {"type": flags.server}}
    return {**plan, "target": target} if target or "target" in plan else plan


def _load(plan: Mapping[str, Any], flags: Flags) -> dict[str, Any]:
    if flags.rate is None:
        return {} if flags.concurrency is None else {"type": "concurrency", "concurrency": flags.concurrency}
    if _is_endless(flags.rate):
        hint = "--concurrency 64 sends as fast as answers come"
        raise PlanError(f"--rate must be finite, got {flags.rate}", hint)
    old = _mapping(plan, "load")
    kind = short.load_type(old)
    new: dict[str, Any] = {"type": "poisson", "rate": flags.rate}
    if kind in short.RATE_TYPES:
        new = {"type": kind, "rate": flags.rate}
        new |= {name: value for name, value in old.items() if name in ("cv", "max_concurrency")}
    return new if flags.concurrency is None else {**new, "max_concurrency": flags.concurrency}


def _is_endless(rate: str | float) -> bool:
    if isinstance(rate, str):
        return rate.strip().lower().lstrip("+") in ("inf", ".inf", "infinity", "max", "∞")
    return math.isinf(rate)


def _stop(plan: Mapping[str, Any], flags: Flags) -> dict[str, Any]:
    """`--requests` or `--duration` is how the run ends, in place of how the file ends it."""
    ends = _given(flags, "requests", "duration")
    kept = {name: value for name, value in _mapping(plan, "stop").items() if name in ("errors", "drain")}
    return {**kept, **ends} if ends else {}


def _limits(plan: Mapping[str, Any], flags: Flags) -> list[Any]:
    """A typed limit replaces the file's on the same measure and statistic; the others stay."""
    if not flags.limit:
        return []
    typed = [flags.limit] if isinstance(flags.limit, str) else list(flags.limit)
    replaced = {measure_and_stat(each) for each in typed} - {None}
    filed = plan.get("limits")
    kept = filed if isinstance(filed, list) else []
    return [*(each for each in kept if measure_and_stat(each) not in replaced), *typed]


def _reach_a_class(plan: Mapping[str, Any], changed: set[str]) -> None:
    """With traffic classes, a flag must change something: a section that no class inherits is out of its reach."""
    classes = [each for each in plan.get("traffic") or [] if isinstance(each, Mapping)]
    mistakes = [
        f"every traffic class has its own {name}, so that no flag reaches it; use --set traffic[0].{name}=..."
        for name in sorted(changed)
        if classes and all(name in each for each in classes)
    ]
    if mistakes:
        raise PlanError(mistakes)
