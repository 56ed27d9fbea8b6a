"""What several formats write in their own ways: instants, loads, lengths, results in rows; as a plan and an environment
have them."""

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from inferometer.errors import DataError
from inferometer.exchange.importing.requests import Told
from inferometer.exchange.importing.source import Found, ImportedRun, Row, Source
from inferometer.exchange.importing.units import is_endless, number, whole
from inferometer.plan.foreign.found import without_missing
from inferometer.plan.foreign.shapes import bell, load_of, tidy
from inferometer.plan.secrets import redacted_url

# -- sayings ---------------------------------------------------------------------------------------------------------

MADE_UP = ("random", "random-ids", "synthetic", "synthetic_text")  # datasets that are drawn, not read
_IN_NAME = re.compile(r"in_?(\d+)_out_?(\d+)")


MOST_GPUS = 100_000  # of one server: more is a mistake in the file, and each is a name in a list


def gpus(name: Any, count: Any) -> list[Any]:
    """The name of every device, as many times as there are of it; one where the file does not say."""
    found = whole(count) or 1
    if not 1 <= found <= MOST_GPUS:
        raise DataError(f"must have 1 to {MOST_GPUS:,} accelerators, got {count}")
    return [name] * found


def instant(said: Any) -> datetime | None:
    """A wall-clock instant: seconds since 1970, ISO 8601, `20261115-011711`. Without a zone it is taken as UTC."""
    if isinstance(said, datetime):
        return said if said.tzinfo else said.replace(tzinfo=UTC)
    seconds = number(said) if not isinstance(said, str) else None
    if seconds is not None:
        return datetime.fromtimestamp(seconds, UTC) if 0 < seconds < 1e11 else None
    return _written(said) if isinstance(said, str) else None


def _written(text: str) -> datetime | None:
    for form in ("%Y%m%d-%H%M%S", "%Y-%m-%d %H:%M:%S %Z"):
        try:
            return datetime.strptime(text.strip(), form).replace(tzinfo=UTC)
        except ValueError:
            continue
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def load(rate: Any, cap: Any, requests: int | None, burstiness: Any = 1.0) -> dict[str, Any] | None:
    """Poisson arrivals of a rate, under a cap where there is one; an endless rate is a closed loop."""
    burst = number(burstiness) or 1.0
    slots, pace = whole(cap), number(rate)
    if pace is not None and pace > 0:
        return load_of(pace, slots or None, 0, 1 / math.sqrt(burst))
    if is_endless(rate) and (slots or requests):
        return load_of(None, slots or None, requests or 1)
    return closed(slots)


def constant(rate: Any, cap: Any = None) -> dict[str, Any] | None:
    pace = number(rate)
    return {"type": "constant", "rate": tidy(pace), "max_concurrency": cap} if pace else None


def closed(concurrency: Any) -> dict[str, Any] | None:
    slots = whole(concurrency)
    return {"type": "concurrency", "concurrency": slots} if slots and slots > 0 else None


def lengths(inputs: Any, outputs: Any, input_std: Any = None, output_std: Any = None) -> dict[str, Any] | None:
    """A workload of prompts and answers of these lengths; `None` where none is told."""
    said = {"input_tokens": _length(inputs, input_std), "output_tokens": _length(outputs, output_std)}
    kept = {name: each for name, each in said.items() if each is not None}
    return {"type": "synthetic", **kept} if kept else None


def _length(mean: Any, std: Any) -> Any:
    middle = number(mean)
    if middle is None or middle < 1:
        return None
    deviation = number(std)
    return bell(middle, deviation, None, None) if deviation else round(middle)


def dataset(name: Any) -> dict[str, Any] | None:
    """A workload of somebody's dataset, by its name."""
    if not isinstance(name, str) or not name or name in MADE_UP:
        return None
    known = {"sharegpt": "sharegpt", "sonnet": "sonnet"}
    return {"type": known.get(name, "prompts"), "path": name}


def lengths_in_name(name: str) -> tuple[int, int] | None:
    """`in_300_out_100.json` says which lengths were asked."""
    match = _IN_NAME.search(name)
    return (int(match[1]), int(match[2])) if match else None


def plan_of(
    *,
    name: str | None = None,
    model: Any = None,
    url: Any = None,
    api: str | None = None,
    stream: bool | None = None,
    workload: dict[str, Any] | None = None,
    load: dict[str, Any] | None = None,
    requests: int | None = None,
    duration_s: float | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """What is told of a plan, under the names it has there."""
    address = redacted_url(url) if isinstance(url, str) and url.startswith(("http://", "https://")) else None
    target = {"url": address, "model": str(model) if model else None, "api": api}
    spoken = target if stream is not False else {**target, "stream": False}
    stop = {"requests": requests or None, "duration": f"{duration_s:g}s" if duration_s else None}
    said = {"name": name, "target": spoken, "workload": workload, "load": load, "stop": stop, "seed": seed or None}
    found: dict[str, Any] = without_missing(said)
    return found


def environment_of(
    *, engine: Any = None, version: Any = None, gpus: Any = None, hardware: Any = None, stack: Any = None, **more: Any
) -> dict[str, Any]:
    """What is told of the engine and of the hardware it ran on, under the names an environment has for them."""
    target = {"server": engine, "version": str(version) if version not in (None, "") else None}
    said = {"target": target, "gpus": gpus, "hardware": hardware, "stack": stack, **more}
    found: dict[str, Any] = without_missing(said)
    return found


# -- rows ------------------------------------------------------------------------------------------------------------

EPOCH_S = 1e9  # instants above it are seconds since 1970, below it of a clock of their own


def each_row(source: Source, make: Callable[[Row], ImportedRun], rows: Iterable[Row] | None = None) -> Found:
    """A run of every row. A single row is the whole file; of several each keeps its own."""
    every = list(source.rows() if rows is None else rows)
    runs, broken = [], []
    for row in every:
        try:
            run = make(row)
        except DataError as error:
            broken.append(f"{row.where}: {error.message}".lstrip(": "))
            continue
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            broken.append(f"{row.where}: {type(error).__name__}: {error}".lstrip(": "))
            continue
        runs.append(run if len(every) == 1 else part_of(run, row))
    return Found(runs, broken)


def requests_in(source: Source, make: Callable[[Row], Told]) -> tuple[list[Told], list[str]]:
    """A request of every row of one run, and the rows that are none."""
    requests, broken = [], []
    for row in source.rows():
        try:
            requests.append(make(row))
        except DataError as error:
            broken.append(f"{row.where}: {error.message}")
    return requests, broken


def started_at(first_s: float) -> datetime | None:
    """The start of a run whose instants are seconds since 1970; those of a clock of their own tell none."""
    return datetime.fromtimestamp(first_s, UTC) if first_s > EPOCH_S else None


def part_of(run: ImportedRun, row: Row) -> ImportedRun:
    original = json.dumps(row.said, indent=1, default=str).encode()
    return replace(run, part=run.part or row.where, original=original)
