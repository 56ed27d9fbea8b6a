"""The conductor of `inferometer doctor`: reads the facts, tries what was named, and has each checked."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inferometer.conduct.curves import load_curve
from inferometer.errors import InferometerError
from inferometer.observe.doctor import check as named_checks
from inferometer.observe.doctor.check import Check, Tried, extras, extras_installed, worst
from inferometer.observe.doctor.devices import device_checks, device_facts
from inferometer.observe.doctor.machine import MachineLook, clock_checks, machine_checks
from inferometer.observe.doctor.network import network_checks, network_facts
from inferometer.plan.reading import plan_from
from inferometer.record.schema import schema_of
from inferometer.store.folder import check_writable
from inferometer.store.store import Place, open_store
from inferometer.target.launch import engines, port_is_free
from inferometer.target.probe import probe
from inferometer.vocabulary import duration_text
from inferometer.workload.tokenizers import tokenizer_named

LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What a person wants to do, as far as it was said."""

    url: tuple[str, ...] = ()
    model: str | None = None
    api: str | None = None
    server: str | None = None
    tokenizer: str | None = None
    concurrency: int = 256
    ports: tuple[int, ...] = ()


def examine(
    options: DoctorOptions, store: Place = None, *, root: Path = Path("/"), look_s: float = LOOK_S
) -> dict[str, list[Check]]:
    """Every check by group. Nothing is changed but for the folder of the store, which is made."""
    look = MachineLook(root)
    taken = [port for port in options.ports if not port_is_free("127.0.0.1", port)]
    network = list(network_checks(network_facts(root, options.ports, taken), options.concurrency))
    program = known.program if (known := engines().get(options.server or "")) else None
    devices = list(device_checks(device_facts(root, program), options.server))
    named = [named_checks.endpoint(_endpoint(options)), named_checks.tokenizer(_tokenizer(options))]
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
    checks = [{"group": group, **asdict(check)} for group, group_checks in groups.items() for check in group_checks]
    return {
        "schema": schema_of("doctor"),
        "status": worst([check for group_checks in groups.values() for check in group_checks]),
        "checks": checks,
    }


def _endpoint(options: DoctorOptions) -> Tried | None:
    """Whether it answers, and serves the model."""
    if not options.url:
        return None
    fields = {"url": list(options.url), "model": options.model, "api": options.api}
    began = time.monotonic()
    try:
        target = plan_from({"target": {name: value for name, value in fields.items() if value}}, where="doctor").target
        facts = probe(target)
    except InferometerError as error:
        return Tried(trouble=error.message, remedy=error.hint)
    engine = " ".join(filter(None, (facts.server, facts.version))) or "a server"
    room = f", context {facts.max_model_len:,}" if facts.max_model_len else ""
    text = f"{engine} serves {facts.model}{room}; answered within {duration_text(time.monotonic() - began)}"
    return Tried(finding=text, notes=tuple(facts.notes), remedy="name the model: --model NAME" if facts.notes else None)


def _tokenizer(options: DoctorOptions) -> Tried | None:
    if options.tokenizer is None:
        return None
    try:
        tokenizer = tokenizer_named(options.tokenizer)
        made = tokenizer.decode(tokenizer.encode("one two three"))
    except InferometerError as error:
        return Tried(trouble=error.message, remedy=error.hint)
    if made.strip() != "one two three":
        return Tried(trouble=f"{options.tokenizer}: decoding does not return the original text", remedy="name another")
    return Tried(finding=f"{options.tokenizer}, {tokenizer.size:,} entries")


def _store_checks(place: Place) -> Iterator[Check]:
    try:
        store = open_store(place)
        check_writable(store.home)
        store.check_writable()
    except InferometerError as error:
        yield named_checks.store(Tried(trouble=error.message, remedy=error.hint))
        return
    yield named_checks.store(Tried(finding=f"{store}, can be written"))
    yield named_checks.disk(_free(store.home), str(store))
    try:
        runs = len(store.runs())
    except InferometerError as error:
        yield named_checks.index(Tried(trouble=error.message, remedy=error.hint))
    else:
        yield named_checks.index(Tried(finding=f"{runs:,} runs in it"))
    yield named_checks.calibration(_calibration_age_s(store.home))


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
        made = datetime.fromisoformat(curve.made)
    except ValueError:
        return None
    return max(0.0, (datetime.now(UTC) - made).total_seconds())


def has_error(groups: dict[str, list[Check]]) -> bool:
    return any(check.status == "error" for checks in groups.values() for check in checks)
