"""Conducts `inferometer doctor` and `inferometer calibrate`: whether this machine and target are ready for a
measurement, and the error of our own client by number of streams and event rate."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from msgspec import structs

from inferometer.conduct.curves import keep_curve as keep_curve
from inferometer.conduct.curves import load_curve, machine
from inferometer.documents.document import JsonObject
from inferometer.errors import InferometerError
from inferometer.load.shard import ShardJob, ShardReport, run_shard
from inferometer.observe import doctor as checks
from inferometer.observe.doctor import Check, Tried, device_checks, device_facts, extras, extras_installed, worst
from inferometer.observe.machine import MachineLook, clock_checks, machine_checks, network_checks, network_facts
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.columns import Records
from inferometer.record.environment import CalibrationPoint, Curve
from inferometer.record.files import schema_of
from inferometer.record.gather import read_logs
from inferometer.simulator.metronome_process import (
    MODEL,
    RunningMetronome,
    Truth,
    compare,
    quantile_s,
    running_metronome,
)
from inferometer.store.folder import check_writable
from inferometer.store.store import Place, open_store
from inferometer.target.launch import engines, port_is_free
from inferometer.target.probe import probe
from inferometer.vocabulary import duration_text
from inferometer.workload.tokenizers import tokenizer_named

POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """The planned measurement, as far as the command line states it."""

    url: tuple[str, ...] = ()
    model: str | None = None
    api: str | None = None
    server: str | None = None
    tokenizer: str | None = None
    concurrency: int = 256
    ports: tuple[int, ...] = ()


def examine(
    options: DoctorOptions, store: Place = None, *, root: Path = Path("/"), look_s: float = POLL_S
) -> dict[str, list[Check]]:
    """All checks by group. Nothing is changed, except that the folder of the store is created."""
    look = MachineLook(root)
    taken = [port for port in options.ports if not port_is_free("127.0.0.1", port)]
    network = list(network_checks(network_facts(root, options.ports, taken), options.concurrency))
    program = known.program if (known := engines().get(options.server or "")) else None
    devices = list(device_checks(device_facts(root, program), options.server))
    named = [checks.endpoint(_endpoint(options)), checks.tokenizer(_tokenizer(options))]
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


def document(groups: dict[str, list[Check]]) -> JsonObject:
    """The `--json` document."""
    checks = [{"group": group, **asdict(check)} for group, group_checks in groups.items() for check in group_checks]
    return {
        "schema": schema_of("doctor"),
        "status": worst([check for group_checks in groups.values() for check in group_checks]),
        "checks": checks,
    }


def _endpoint(options: DoctorOptions) -> Tried | None:
    """Whether the endpoint answers, and serves the model."""
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
        yield checks.store(Tried(trouble=error.message, remedy=error.hint))
        return
    yield checks.store(Tried(finding=f"{store}, can be written"))
    yield checks.disk(_free(store.home), str(store))
    try:
        runs = len(store.runs())
    except InferometerError as error:
        yield checks.index(Tried(trouble=error.message, remedy=error.hint))
    else:
        yield checks.index(Tried(finding=f"{runs:,} runs in it"))
    yield checks.calibration(_calibration_age_s(store.home))


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


FIRST_S = 0.05
METRONOME_PER_S = 200_000  # events that the metronome can send on one core
ALLOWANCE_NS = 100_000  # for the way from send to receive over loopback, when counting reads within their uncertainty

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CalibrationLoad:
    """One load for the calibration: each stream receives a token per interval, in `rounds` answers one after the
    other."""

    streams: int
    interval_s: float
    tokens: int
    rounds: int = 2

    @classmethod
    def lasting(cls, streams: int, interval_s: float, seconds: float, rounds: int = 2) -> "CalibrationLoad":
        """With answers long enough to fill the time, also if more is requested than the metronome can send."""
        pace_s = max(interval_s, streams / METRONOME_PER_S)
        tokens = round((seconds / rounds - FIRST_S) / pace_s)
        return cls(streams, interval_s, max(tokens, 10), rounds)


QUICK = [
    CalibrationLoad.lasting(8, 0.004, 0.6, 1),
    CalibrationLoad.lasting(128, 0.0054, 0.6, 1),
    CalibrationLoad.lasting(1024, 0.0054, 0.8, 1),
]
FULL = [
    *(CalibrationLoad.lasting(streams, 0.02, 2.0) for streams in (1, 8, 32, 128, 512, 1024)),
    *(CalibrationLoad.lasting(streams, 0.0054, 2.2) for streams in (8, 32, 128, 512, 1024)),
    *(CalibrationLoad.lasting(streams, 0.002, 1.2) for streams in (1, 8, 32)),
    *(CalibrationLoad.lasting(1024, interval_s, 2.4) for interval_s in (0.004, 0.002)),
]


def calibrate(
    points: Sequence[CalibrationLoad] | None = None,
    quick: bool = False,
    progress: Notify | None = None,
    store: Path | None = None,
) -> Curve:
    """Measure this machine's curve, in about 45 s, or 4 s with `quick`; stored if a folder is given."""
    on_progress = progress or (lambda _text: None)
    measured = []
    for number, point in enumerate(points := points or (QUICK if quick else FULL), 1):
        pace = f"{point.streams} streams, one token every {duration_text(point.interval_s)}"
        on_progress(f"calibrating {number}/{len(points)}: {pace}")
        measured.append(measure_point(point))
    curve = curve_of(measured)
    if store is not None:
        keep_curve(curve, store)
    return curve


def curve_of(points: Sequence[CalibrationPoint]) -> Curve:
    """The points, where and when they were measured, and the highest rate of events per second that the client kept up
    with: its limit if it fell behind at a higher one, else a lower bound of it."""
    points = [structs.replace(point, metronome_late=point.sent_late()) for point in points]
    kept_up = [point.events_per_s for point in points if point.kept_up()]
    fell_behind = [point.events_per_s for point in points if not point.kept_up() and not point.metronome_late]
    return Curve(
        machine=machine(),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        points=points,
        ceiling_events_per_s=max(kept_up, default=None),
        ceiling_is_at_least=bool(kept_up) and max(fell_behind, default=0.0) <= max(kept_up),
    )


def measure_point(point: CalibrationLoad) -> CalibrationPoint:
    """Run the real client against the metronome, in this process, and compare."""
    with running_metronome(FIRST_S, point.interval_s) as metronome, tempfile.TemporaryDirectory() as folder:
        report, records = drive(point, metronome, Path(folder) / "calibration.log")
        truth = metronome.truth()
    return compared_point(point, report, records, truth)


def drive(point: CalibrationLoad, metronome: RunningMetronome, log: Path) -> tuple[ShardReport, Records]:
    """The load itself, as in any run."""
    job = ShardJob(plan=plan_of(point, metronome.url).model_dump(mode="json"), log=str(log), nonce="", model=MODEL)
    report = run_shard(job)
    if report.interrupted:
        raise KeyboardInterrupt
    return report, read_logs([log])[0]


def plan_of(point: CalibrationLoad, url: str) -> Plan:
    return Plan.model_validate(
        {
            "target": {"url": url, "model": MODEL, "timeout": {"request": "60s"}},
            "workload": {"type": "synthetic", "input_tokens": 16, "output_tokens": point.tokens, "nonce_tokens": 0},
            "load": {"type": "concurrency", "concurrency": point.streams},
            "stop": {"requests": point.streams * point.rounds},
        }
    )


def compared_point(point: CalibrationLoad, report: ShardReport, records: Records, truth: Truth) -> CalibrationPoint:
    compared = compare(records, truth)
    first, reads = np.abs(compared.request_error), np.abs(compared.read_error)
    inside = compared.inside(ALLOWANCE_NS)
    return CalibrationPoint(
        streams=point.streams,
        interval=point.interval_s,
        events=len(truth.sent_at),
        events_per_s=truth.events_per_s(),
        ttft_error_p50=quantile_s(first, 0.5),
        ttft_error_p99=quantile_s(first, 0.99),
        read_error_p50=quantile_s(reads, 0.5),
        read_error_p99=quantile_s(reads, 0.99),
        inside_share=float(inside.mean()) if len(inside) else None,
        unmatched=compared.unmatched,
        cpu_s_per_million=report.cpu_s / len(truth.sent_at) * 1e6 if len(truth.sent_at) else None,
        stamps=report.stamps,
        metronome_late_p99=quantile_s(truth.lateness(), 0.99),
    )
