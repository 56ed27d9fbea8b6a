"""`Entry`: a run as one line of a list."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferometer.errors import StoreError
from inferometer.record.run import Run
from inferometer.store.folder import load_run

_MEASURES = ("ttft", "ttft_scheduled", "tpot", "itl", "e2e", "e2e_scheduled")


@dataclass(frozen=True)
class Entry:
    id: str
    started_at: str
    state: str  # of the run, or "unreadable"
    verdict: str | None
    name: str | None
    model: str | None
    target: str | None
    requests: int | None
    headline: dict[str, float]  # "ttft p50": 0.12, and the rates of the window; seconds and per second
    folder: Path


def entry_of(run: Run, folder: Path) -> Entry:
    outcomes = run.summary.get("outcomes")
    return Entry(
        id=run.id,
        started_at=run.started_at,
        state=run.state,
        verdict=run.verdict.get("word"),
        name=run.plan.get("name"),
        model=_section(run.plan, "target").get("model") or _section(run.environment, "target").get("model"),
        target=_target(run.plan),
        requests=None if outcomes is None else sum(outcomes.values()),
        headline=_headline(run.summary),
        folder=folder,
    )


def entry_at(folder: Path) -> Entry | None:
    """The entry of a run folder. None for a folder that was just made, and has nothing in it yet."""
    try:
        return entry_of(load_run(folder), folder)
    except StoreError:
        if not any(folder.glob("[!.]*")):
            return None
        return Entry(folder.name, "", "unreadable", None, None, None, None, None, {}, folder)


def _target(plan: Mapping[str, Any]) -> str | None:
    urls = _section(plan, "target").get("url") or []
    if urls:
        return urls if isinstance(urls, str) else ", ".join(urls)
    return _section(plan, "server").get("type")


def _headline(summary: Mapping[str, Any]) -> dict[str, float]:
    measures, rates = _section(summary, "measures"), _section(summary, "rates")
    values = {f"{name} {q}": _section(measures, name).get(q) for name in _MEASURES for q in ("p50", "p99")}
    values |= {name: rate.get("window") if isinstance(rate, Mapping) else rate for name, rate in rates.items()}
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of plain data, empty where it is missing or null."""
    return content.get(name) or {}
