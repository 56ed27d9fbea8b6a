"""What makes two runs comparable: the same workload and load, the same stack, the same hardware.

Versions and commits are no part of it, they are axes: the history of one identity is one line across upgrades. What
changes nothing that is measured (names, limits, outputs, seed, workers, what is sampled, addresses) is left out. Plans
are hashed as they are kept, without their defaults: a setting that a later version adds does not break the line.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inferometer.record.accelerators import accelerators, host_of, is_loopback
from inferometer.record.run import Run

HASH_DIGITS = 12  # 48 bits: in a million different workloads two clash with a chance of 1 in 500

# Parts of a plan that do not change what is asked of the target; what is not named here does, also what is new.
_NOT_MEASURED = {
    *("name", "about", "limits", "outputs", "save", "observe", "seed", "confidence", "workers", "traffic", "target"),
}
_STACK = {"server", "servers", "engine", "fleet", "router", "replicas", "model", "quantization", "dtype"}
_ASKED_OF_TARGET = {"api", "path", "body", "stream", "timeout"}
_VERSIONS = {"version", "versions", "commit", "tag", "digest", "inferometer"}
_PLACES = {
    *("port", "container_port", "host", "url", "urls", "folder", "log", "logs", "log_limit", "name", "key_env"),
    *("timeout", "startup_timeout", "ready", "ready_within", "grace", "pull", "exclusive"),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Three hashes, what they are made of, and the axes along which runs of one identity differ."""

    workload: str
    stack: str
    hardware: str
    parts: Mapping[str, Mapping[str, Any]]  # "workload", "stack", "hardware": what was hashed, to be read
    axes: Mapping[str, str | None]  # "engine_version", "commit", "inferometer"

    @property
    def key(self) -> str:
        """One word for all three: runs with the same key are one line of history."""
        return f"{self.workload}-{self.stack}-{self.hardware}"


def identity(run: Run) -> Identity:
    return identity_of(run.plan, run.environment, run.kind)


def identity_of(plan: Mapping[str, Any], environment: Mapping[str, Any], kind: str = "serving") -> Identity:
    """Of plain data: a plan as it is kept, and the environment beside it. Both may be of another tool."""
    parts = {
        "workload": _workload(plan, kind),
        "stack": _stack(plan, environment),
        "hardware": _hardware(plan, environment),
    }
    return Identity(**{name: _hash(part) for name, part in parts.items()}, parts=parts, axes=_axes(environment))


def differences(a: Identity, b: Identity) -> dict[str, list[str]]:
    """Where two identities differ, said per hash: `{"workload": ["load.rate: 10 and 20"]}`."""
    found = {name: _told(a.parts[name], b.parts[name]) for name in ("workload", "stack", "hardware")}
    return {name: texts for name, texts in found.items() if texts}


def _workload(plan: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """What is sent and when. Own benchmarks have nothing but their name to be told apart by."""
    said = {name: value for name, value in plan.items() if name not in _NOT_MEASURED | _STACK and value is not None}
    traffic = [_class(each) for each in plan.get("traffic") or []]
    asked = {name: value for name, value in _section(plan, "target").items() if name in _ASKED_OF_TARGET}
    named = {"name": plan.get("name")} if kind == "benchmark" else {}
    whole = {"kind": kind, **named, **said, "traffic": traffic, "asked": asked}
    return {name: value for name, value in whole.items() if value not in (None, [], {})}


def _class(traffic: Mapping[str, Any]) -> dict[str, Any]:
    """A traffic class keeps its name: its requests are told apart by it."""
    return {name: value for name, value in traffic.items() if name not in ("limits", "headers")}


def _stack(plan: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    target, facts = _section(plan, "target"), _section(environment, "target")
    urls = _urls(plan, environment)
    whole = {
        "model": target.get("model") or facts.get("model"),
        "engine": facts.get("server") or facts.get("engine"),
        "replicas": len(urls) if len(urls) > 1 else None,
        **{name: _without_versions(plan[name]) for name in sorted(_STACK) if plan.get(name) is not None},
        **_section(environment, "stack"),
    }
    return {name: value for name, value in whole.items() if value not in (None, {}, [])}


def _without_versions(value: Any) -> Any:
    """Settings of a server without what an upgrade or a move changes: versions, image tags, ports."""
    if isinstance(value, Mapping):
        kept = {str(name): each for name, each in value.items() if str(name) not in _VERSIONS | _PLACES}
        return {name: _image(each) if name == "image" else _without_versions(each) for name, each in kept.items()}
    return [_without_versions(each) for each in value] if isinstance(value, list | tuple) else value


def _image(value: Any) -> Any:
    """`vllm/vllm-openai:v0.24.0` and `vllm/vllm-openai@sha256:...` are one image; a registry's port stays."""
    if not isinstance(value, str):
        return value
    head, slash, last = value.partition("@")[0].rpartition("/")
    return head + slash + last.partition(":")[0]


def _hardware(plan: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """What the target runs on, as far as it is known: accelerators, else the machine, else the name of its host."""
    machine = _section(environment, "machine")
    away = sorted({host for url in _urls(plan, environment) if not is_loopback(host := host_of(url))})
    here = {name: machine.get(name) for name in ("architecture", "cpu", "cores")} if not away else {}
    said = environment.get("hardware")
    whole = {"hosts": away, "gpus": sorted(accelerators(environment)), **here, "said": said}
    return {name: value for name, value in whole.items() if value not in (None, [], {})}


def _axes(environment: Mapping[str, Any]) -> dict[str, str | None]:
    facts, git = _section(environment, "target"), _section(environment, "git")
    return {
        "engine_version": _text(facts.get("version") or environment.get("engine_version")),
        "commit": _text(facts.get("commit") or environment.get("commit") or git.get("commit")),
        "inferometer": _text(environment.get("inferometer")),
    }


def _urls(plan: Mapping[str, Any], environment: Mapping[str, Any]) -> list[str]:
    urls = _section(environment, "target").get("urls") or _section(plan, "target").get("url") or []
    return [urls] if isinstance(urls, str) else [str(url) for url in urls]


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _hash(part: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(part).encode()).hexdigest()[:HASH_DIGITS]


def _canonical(value: Any) -> str:
    """One text for equal data: keys sorted, 1.0 written as 1."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _told(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    flat_a, flat_b = _flat(a), _flat(b)
    names = [name for name in {**flat_a, **flat_b} if _canonical(flat_a.get(name)) != _canonical(flat_b.get(name))]
    return [f"{name}: {_word(flat_a.get(name))} and {_word(flat_b.get(name))}" for name in names]


def _flat(value: Any, at: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {
            path: leaf
            for name, each in value.items()
            for path, leaf in _flat(each, f"{at}.{name}" if at else str(name)).items()
        }
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        return {path: leaf for at_, each in enumerate(value) for path, leaf in _flat(each, f"{at}[{at_}]").items()}
    return {at: value}


def _word(value: Any) -> str:
    return "not said" if value is None else str(value)
