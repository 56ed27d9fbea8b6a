"""The conductor of `inferometer doctor`: reads the facts, tries what was named, and has each checked."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inferometer.conduct.calibrate import load_curve
from inferometer.errors import InferometerError
from inferometer.observe.doctor import named as tell
from inferometer.observe.doctor.check import Check, extras, extras_installed, worst
from inferometer.observe.doctor.devices import device_checks, device_facts
from inferometer.observe.doctor.machine import MachineLook, clock_checks, machine_checks
from inferometer.observe.doctor.named import Tried
from inferometer.observe.doctor.network import network_checks, network_facts
from inferometer.plan.reading import plan_from
from inferometer.store.folder import check_writable
from inferometer.store.store import Place, open_store
from inferometer.target.launch import engines, port_is_free
from inferometer.target.probe import probe
from inferometer.vocabulary import duration_text
from inferometer.workload.tokenizers import tokenizer_named

SCHEMA = "inferometer/doctor/1"
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person wants to do, as far as it was said."""

    url: tuple[str, ...] = ()
    model: str | None = None
    api: str | None = None
    server: str | None = None
    tokenizer: str | None = None
    concurrency: int = 256
    ports: tuple[int, ...] = ()


def examine(
    asked: Asked, store: Place = None, *, root: Path = Path("/"), look_s: float = LOOK_S
) -> dict[str, list[Check]]:
    """Every check by group. Nothing is changed but for the folder of the store, which is made."""
    look = MachineLook(root)
    taken = [port for port in asked.ports if not port_is_free("127.0.0.1", port)]
    network = list(network_checks(network_facts(root, asked.ports, taken), asked.concurrency))
    program = known.program if (known := engines().get(asked.server or "")) else None
    devices = list(device_checks(device_facts(root, program), asked.server))
    named = [tell.endpoint(_endpoint(asked)), tell.tokenizer(_tokenizer(asked))]
    kept = [*_store_checks(store), extras(extras_installed())]
    machine = look.facts(look_s)
    return {
        "machine": list(machine_checks(machine)),
        "clocks": list(clock_checks(machine)),
        "connections": network,
        "GPUs and containers": devices,
        "what is measured": named,
        "this program": kept,
    }


def document(groups: dict[str, list[Check]]) -> dict[str, Any]:
    """What `--json` prints."""
    checks = [{"group": group, **asdict(check)} for group, found in groups.items() for check in found]
    return {"schema": SCHEMA, "word": worst([check for found in groups.values() for check in found]), "checks": checks}


def _endpoint(asked: Asked) -> Tried | None:
    """Whether it answers, and serves the model."""
    if not asked.url:
        return None
    said = {"url": list(asked.url), "model": asked.model, "api": asked.api}
    began = time.monotonic()
    try:
        target = plan_from({"target": {name: value for name, value in said.items() if value}}, where="doctor").target
        facts = probe(target)
    except InferometerError as error:
        return Tried(trouble=error.message, remedy=error.hint)
    engine = " ".join(filter(None, (facts.server, facts.version))) or "a server"
    room = f", context {facts.max_model_len:,}" if facts.max_model_len else ""
    found = f"{engine} serves {facts.model}{room}; answered within {duration_text(time.monotonic() - began)}"
    return Tried(
        found=found, notes=tuple(facts.notes), remedy="say which is meant: --model NAME" if facts.notes else None
    )


def _tokenizer(asked: Asked) -> Tried | None:
    if asked.tokenizer is None:
        return None
    try:
        found = tokenizer_named(asked.tokenizer)
        made = found.decode(found.encode("one two three"))
    except InferometerError as error:
        return Tried(trouble=error.message, remedy=error.hint)
    if made.strip() != "one two three":
        return Tried(trouble=f"{asked.tokenizer}: does not give back the text it was given", remedy="name another")
    return Tried(found=f"{asked.tokenizer}, {found.size:,} entries")


def _store_checks(place: Place) -> Iterator[Check]:
    try:
        store = open_store(place)
        check_writable(store.home)
        store.check_writable()
    except InferometerError as error:
        yield tell.store(Tried(trouble=error.message, remedy=error.hint))
        return
    yield tell.store(Tried(found=f"{store}, can be written"))
    yield tell.disk(_free(store.home), str(store))
    try:
        runs = len(store.runs())
    except InferometerError as error:
        yield tell.index(Tried(trouble=error.message, remedy=error.hint))
    else:
        yield tell.index(Tried(found=f"{runs:,} runs in it"))
    yield tell.calibration(_calibration_age_s(store.home))


def _free(folder: Path) -> float | None:
    try:
        return float(shutil.disk_usage(folder).free)
    except OSError:
        return None


def _calibration_age_s(home: Path) -> float | None:
    curve = load_curve(home)
    if curve is None:
        return None
    try:
        made = datetime.fromisoformat(str(curve.get("made")))
    except ValueError:
        return None
    return max(0.0, (datetime.now(UTC) - made).total_seconds())


def has_error(groups: dict[str, list[Check]]) -> bool:
    return any(check.word == "error" for checks in groups.values() for check in checks)
