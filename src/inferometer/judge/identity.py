"""What makes runs comparable: the same workload and load, the same stack, the same hardware; the reasons that forbid a
comparison, and those that a reader of it should know."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from inferometer.documents.document import Document, JsonObject, JsonValue
from inferometer.measure.values import quantities
from inferometer.plan.stored import stored
from inferometer.record.environment import Environment, Machine
from inferometer.record.run import KINDS, Run, Subject, subject_of

# -- identity --------------------------------------------------------------------------------------------------------

HASH_DIGITS = 12  # 48 bits: a million different workloads clash with a chance of 1 in 500

# Parts of a plan that do not change what is requested of the target; all other parts do, including future ones.
_NOT_MEASURED = {
    *("name", "about", "limits", "outputs", "save", "observe", "seed", "confidence", "workers", "traffic", "target"),
    *("place", "ray", "kubernetes"),
}
_STACK = {"server", "servers", "engine", "fleet", "router", "replicas", "model", "quantization", "dtype"}
_TARGET_FIELDS = {"api", "path", "body", "stream", "timeout"}
_VERSIONS = {"version", "versions", "commit", "tag", "digest", "inferometer"}
_PLACES = {
    *("port", "container_port", "host", "url", "urls", "folder", "log", "logs", "log_limit", "name", "key_env"),
    *("timeout", "startup_timeout", "ready", "ready_within", "grace", "pull", "exclusive"),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Three hashes, the data they are computed from, and the axes along which runs of one identity differ."""

    workload: str
    stack: str
    hardware: str
    parts: Mapping[str, JsonObject]  # "workload", "stack", "hardware": the hashed data in readable form
    axes: Mapping[str, str | None]  # "engine_version", "commit", "inferometer"

    @property
    def key(self) -> str:
        """One key for all three: runs with the same key form one history."""
        return f"{self.workload}-{self.stack}-{self.hardware}"


def identity(run: Run) -> Identity:
    return identity_of(run.plan, run.environment, run.kind)


def identity_of(plan: JsonObject, environment: Environment, kind: str = "serving") -> Identity:
    """The identity of a stored plan and its environment. Both may come from another tool."""
    plan, subject = stored(plan), subject_of(plan, environment)
    parts = {
        "workload": _workload(plan, kind),
        "stack": _stack(plan, environment, subject),
        "hardware": _hardware(environment, subject),
    }
    axes = {
        "engine_version": subject.engine_version,
        "commit": subject.commit,
        "inferometer": environment.inferometer,
    }
    return Identity(**{name: _hash(part) for name, part in parts.items()}, parts=parts, axes=axes)


def differences(a: Identity, b: Identity) -> dict[str, list[str]]:
    """Where two identities differ, per hash: `{"workload": ["load.rate: 10 vs 20"]}`."""
    by_part = {name: _difference_texts(a.parts[name], b.parts[name]) for name in ("workload", "stack", "hardware")}
    return {name: texts for name, texts in by_part.items() if texts}


def _workload(plan: JsonObject, kind: str) -> dict[str, JsonValue]:
    """What is sent and when. Users' own benchmarks are distinguished by name only."""
    settings = {name: value for name, value in plan.items() if name not in _NOT_MEASURED | _STACK and value is not None}
    traffic = [_class(entry) for entry in Document.of(plan).sections("traffic")]
    requested = {name: value for name, value in _section(plan, "target").items() if name in _TARGET_FIELDS}
    named = {"name": plan.get("name")} if kind == "benchmark" else {}
    whole = {"kind": kind, **named, **settings, "traffic": traffic, "asked": requested}
    return {name: value for name, value in whole.items() if value not in (None, [], {})}


def _class(traffic: JsonObject) -> dict[str, JsonValue]:
    """A traffic class includes its name, because its requests are distinguished by it."""
    return {name: value for name, value in traffic.items() if name not in ("limits", "headers")}


def _stack(plan: JsonObject, environment: Environment, subject: Subject) -> dict[str, JsonValue]:
    whole = {
        "model": subject.model,
        "engine": environment.known_target.shown_engine,
        "replicas": len(subject.urls) if len(subject.urls) > 1 else None,
        **{name: _without_versions(plan[name]) for name in sorted(_STACK) if plan.get(name) is not None},
        **environment.stack,
    }
    return {name: value for name, value in whole.items() if value not in (None, {}, [])}


def _without_versions(value: Any) -> Any:
    """Settings of a server without those that an upgrade or a move changes: versions, image tags, ports."""
    if isinstance(value, Mapping):
        kept = {str(name): part for name, part in value.items() if str(name) not in _VERSIONS | _PLACES}
        return {name: _image(part) if name == "image" else _without_versions(part) for name, part in kept.items()}
    return [_without_versions(part) for part in value] if isinstance(value, list | tuple) else value


def _image(value: Any) -> Any:
    """`vllm/vllm-openai:v0.24.0` and `vllm/vllm-openai@sha256:...` are one image; a registry's port stays."""
    if not isinstance(value, str):
        return value
    head, slash, last = value.partition("@")[0].rpartition("/")
    return head + slash + last.partition(":")[0]


def _hardware(environment: Environment, subject: Subject) -> dict[str, JsonValue]:
    """What the target runs on, as far as known: accelerators, else the machine, else the name of its host."""
    machine = environment.machine or Machine()
    away = subject.hosts_elsewhere
    here = {} if away else {"architecture": machine.architecture, "cpu": machine.cpu, "cores": machine.cores}
    whole = {"hosts": away, "gpus": sorted(subject.accelerators), **here, "said": subject.hardware}
    return {name: value for name, value in whole.items() if value not in (None, [], {})}


def _section(content: JsonObject, name: str) -> JsonObject:
    section = content.get(name)
    return section if isinstance(section, Mapping) else {}


def _hash(part: JsonObject) -> str:
    return hashlib.sha256(_canonical(part).encode()).hexdigest()[:HASH_DIGITS]


def _canonical(value: Any) -> str:
    """One text for equal data: keys sorted, 1.0 written as 1."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _difference_texts(a: JsonObject, b: JsonObject) -> list[str]:
    flat_a, flat_b = _flat(a), _flat(b)
    names = [name for name in {**flat_a, **flat_b} if _canonical(flat_a.get(name)) != _canonical(flat_b.get(name))]
    return [f"{name}: {_value_text(flat_a.get(name))} vs {_value_text(flat_b.get(name))}" for name in names]


def _flat(value: Any, at: str = "") -> dict[str, JsonValue]:
    if isinstance(value, Mapping):
        return {
            path: leaf
            for name, part in value.items()
            for path, leaf in _flat(part, f"{at}.{name}" if at else str(name)).items()
        }
    if isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        return {path: leaf for at_, part in enumerate(value) for path, leaf in _flat(part, f"{at}[{at_}]").items()}
    return {at: value}


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "not set" if value is None else str(value)


# -- comparable ------------------------------------------------------------------------------------------------------

MOST_LISTED = 4


class Objection(msgspec.Struct, frozen=True):
    """`refuse`: comparing would be wrong; `warn`: it may mislead."""

    severity: Literal["refuse", "warn"]
    code: str
    text: str


def objections(before: Sequence[Run], after: Sequence[Run]) -> list[Objection]:
    """The worst first."""
    raised = [*_kinds(before, after), *_empty([*before, *after]), *_units(before, after)]
    raised += [*_verdicts([*before, *after]), *_predictions([*before, *after]), *_same_runs(before, after)]
    raised += [*_identities(before, after), *_definitions(before, after), *_calibrations([*before, *after])]
    return sorted(raised, key=lambda objection: objection.severity != "refuse")


def _kinds(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Objection]:
    kinds = {run.kind for run in (*before, *after)}
    if len(kinds) > 1:
        text = "; ".join(f"{kind}: {KINDS[kind]}" for kind in sorted(kinds))
        yield Objection("refuse", "kind", f"The runs are of different kinds ({text}).")


def _empty(runs: Sequence[Run]) -> Iterator[Objection]:
    for run in runs:
        if not quantities(run.summary):
            yield Objection("refuse", "no_numbers", f"{run.id} has no numbers: it is {run.state}.")


def _units(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Objection]:
    """Refused even with force: a ratio of seconds and milliseconds means nothing."""
    seen: dict[str, tuple[str, str]] = {}
    reported: set[str] = set()
    for run in (*before, *after):
        for key, quantity in quantities(run.summary).items():
            unit, first = seen.setdefault(quantity.name, (quantity.unit, run.id))
            if unit != quantity.unit and quantity.name not in reported:
                reported.add(quantity.name)
                text = f"{key} is in {quantity.unit or 'no unit'} in {run.id} and in {unit or 'no unit'} in {first}."
                yield Objection("refuse", "units", text)


def _verdicts(runs: Sequence[Run]) -> Iterator[Objection]:
    severity: dict[str, Literal["refuse", "warn"]] = {"invalid": "refuse", "doubtful": "warn"}
    for status, refused in severity.items():
        if affected := [run for run in runs if run.status == status]:
            more = f" and {len(affected) - 1} more are" if len(affected) > 1 else " is"
            first = next((reason.text for reason in affected[0].doubts), "")
            yield Objection(refused, status, f"{affected[0].id}{more} {status}: {first}")
    for run in runs:
        if run.state in ("interrupted", "failed"):
            yield Objection("warn", run.state, f"{run.id} was {run.state}: the run is shorter than planned.")


def _predictions(runs: Sequence[Run]) -> Iterator[Objection]:
    """Runs in virtual time on the model of a server."""
    by_engine: dict[str, list[str]] = {}
    for run in runs:
        if run.environment.known_target.is_predicted:
            by_engine.setdefault(run.subject.engine_text, []).append(run.id)
    for engine, ids in by_engine.items():
        are = "is" if len(ids) == 1 else "are"
        text = f"{_listed(ids)} {are} of {engine}: nothing was measured, and intervals leave out the model's error."
        yield Objection("warn", "predicted", text)


def _same_runs(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Objection]:
    both = sorted({run.id for run in before} & {run.id for run in after})
    if both:
        yield Objection("refuse", "same_run", f"{', '.join(both)} appears on both sides.")


_DIFFERENCES = {
    "workload": "The workloads differ",
    "stack": "The stacks differ, which may be intended",
    "hardware": "The hardware differs",
}


def _identities(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Objection]:
    """Different identities between the sides, and among the runs of a side."""
    first, other = identity(before[0]), identity(after[0])
    for part, texts in differences(first, other).items():
        yield Objection("warn", part, f"{_DIFFERENCES[part]}: {_listed(texts)}.")
    for side, of in ((before, first), (after, other)):
        for run in side[1:]:
            differing = differences(of, identity(run))
            if differing:
                listed = _listed([text for texts in differing.values() for text in texts])
                yield Objection("warn", "mixed_group", f"{run.id} is not a repeat of {side[0].id}: {listed}.")


def _definitions(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Objection]:
    sources = {run.source or "inferometer" for run in (*before, *after)}
    if len(sources) > 1:
        yield Objection("warn", "source", f"Other tools define measures differently: {', '.join(sorted(sources))}.")
    limits = [run.summary.goodput and run.plan.get("limits") for run in (before[0], after[0])]
    if limits[0] != limits[1] and all(run.summary.goodput for run in (before[0], after[0])):
        yield Objection("warn", "limits", "The limits differ, and goodput depends on the limits.")


def _calibrations(runs: Sequence[Run]) -> Iterator[Objection]:
    instruments = [run.summary.instrument for run in runs if run.summary.instrument]
    calibrated = {instrument.calibrated for instrument in instruments}
    if len(calibrated) > 1:
        yield Objection("warn", "calibration", "The load generator's own error is known for only some of the runs.")
    stamps = {str(instrument.stamps) for instrument in instruments}
    if len(stamps) > 1:
        yield Objection("warn", "stamps", f"The runs use different sources of timestamps: {', '.join(sorted(stamps))}.")


def _listed(texts: Sequence[str]) -> str:
    rest = len(texts) - MOST_LISTED
    return "; ".join(texts[:MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def axes_text(before: Identity, after: Identity) -> str | None:
    """`engine 0.24.0 to 0.25.0, commit 1a2b3c4 to 5d6e7f8`; None if no difference is known."""
    names = {"engine_version": "engine", "commit": "commit", "inferometer": "Inferometer"}
    parts = [
        f"{names[name]} {_short(name, before.axes[name])} to {_short(name, after.axes[name])}"
        for name in names
        if before.axes[name] != after.axes[name]
    ]
    return ", ".join(parts) or None


def _short(name: str, value: str | None) -> str:
    return "unknown" if value is None else value[:9] if name == "commit" else value
