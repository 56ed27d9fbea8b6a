"""`Subject`: who a run is about, derived in one place: model, engine, accelerators, workload and load in words. A run
of another tool may tell none of it: then None or nothing, never a default."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from inferometer.record.environment import Environment, host_of, is_loopback

SIMULATOR = "inferometer"  # what the built-in simulator's server calls itself
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "tgi": "TGI", "tensorrt_llm": "TensorRT-LLM"}  # as they call themselves
_VENDORS = ("NVIDIA ", "AMD Instinct ")  # in the names of their own accelerators


def engine_words(engine: str | None, version: str | None) -> str:
    """`vLLM 0.24.0`, however its source spells it; the simulator by its name: its version is that of the engine it
    imitates."""
    if engine == SIMULATOR:
        return "simulator"
    return " ".join(filter(None, (_ENGINES.get(engine or "", engine), version)))


@dataclass(frozen=True)
class Subject:
    """Of one run; `Run.subject` has it."""

    name: str | None  # of the plan
    model: str | None
    engine: str | None  # as it showed itself, else as the plan names it
    engine_version: str | None
    commit: str | None  # of the engine, else of the folder that the command was given in
    urls: tuple[str, ...]  # the addresses that answered, else those of the plan
    accelerators: tuple[str, ...]  # names, one per device
    hardware: str | None  # as the source names it
    started_at: str
    _plan: Mapping[str, Any] = field(repr=False, compare=False)
    _is_own: bool = field(repr=False, compare=False)  # a plan of ours, whose defaults were used

    @cached_property
    def workload(self) -> str:
        """`512 in, 128 out`: tokens of prompts and answers; empty where nobody tells."""
        return self._texts[0]

    @cached_property
    def load(self) -> str:
        """`20 req/s Poisson`, `16 in flight`; empty where nobody tells."""
        return self._texts[1]

    @cached_property
    def _texts(self) -> tuple[str, str]:
        from inferometer.plan.wording import plan_texts  # brings pydantic along, which a list of runs can do without

        return plan_texts(self._plan, self._is_own)

    @property
    def address(self) -> str | None:
        """The first of its addresses."""
        return self.urls[0] if self.urls else None

    @property
    def hosts_elsewhere(self) -> list[str]:
        """Hosts of its addresses that are not this machine's own."""
        return sorted({host for url in self.urls if not is_loopback(host := host_of(url))})

    @property
    def engine_text(self) -> str:
        return engine_words(self.engine, self.engine_version)

    @property
    def accelerator_counts(self) -> Counter[str]:
        """How many there are of each, in the order of the environment."""
        return Counter(self.accelerators)

    @property
    def accelerators_text(self) -> str:
        """`2 x NVIDIA H200`; a mix is spelled out."""
        return ", ".join(f"{count} x {name}" for name, count in self.accelerator_counts.items())

    @property
    def line(self) -> str:
        """`Llama-3.1-8B · vLLM 0.24.0 · 1 x H200 · 512 in, 128 out · 20 req/s Poisson`, as far as it is known."""
        model = self.model.rstrip("/").rpartition("/")[2] if self.model else None
        hardware = self.accelerators_text or self.hardware or ""
        for vendor in _VENDORS:
            hardware = hardware.replace(vendor, "")
        return " · ".join(filter(None, (model, self.engine_text, hardware, self.workload, self.load)))


def subject_of(
    plan: Mapping[str, Any], environment: Environment, started_at: str = "", is_own: bool = False
) -> Subject:
    """From a plan as it is kept, and the environment next to it; both may be of another tool."""
    target, answered, git = _section(plan, "target"), environment.known_target, environment.git
    urls = answered.urls or target.get("url") or []
    return Subject(
        name=_text(plan.get("name")) or (environment.imported.label if environment.imported else None),
        model=_text(plan.get("model") or target.get("model") or answered.model or environment.model),
        engine=_text(
            answered.shown_engine or _section(plan, "engine").get("type") or _section(plan, "server").get("type")
        ),
        engine_version=answered.version or environment.engine_version or None,
        commit=answered.commit or environment.commit or (git.commit if git else None) or None,
        urls=(urls,) if isinstance(urls, str) else tuple(map(str, urls)),
        accelerators=tuple(environment.accelerators),
        hardware=environment.hardware,
        started_at=started_at,
        _plan=plan,
        _is_own=is_own,
    )


def _section(plan: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = plan.get(name)
    return part if isinstance(part, Mapping) else {}


def _text(value: object) -> str | None:
    return str(value) if value else None
