"""What is watched beside the load: the `observe` of a plan."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from inferometer.plan.fields import Duration, Mistake, Section
from inferometer.plan.target import Url


def _switch(value: Any) -> Any:
    """YAML reads `on` and `off` as true and false; one entry may stand for a list of one."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int) or (isinstance(value, str) and value.startswith(("http://", "https://"))):
        return [value]
    return value


Gpu = Annotated[
    Literal["auto", "on", "off"] | list[Annotated[int, Field(ge=0, lt=1024)]],
    BeforeValidator(_switch, json_schema_input_type=Literal["auto", "on", "off"] | bool | int | list[int]),
]
Metrics = Annotated[
    Literal["auto", "off"] | list[Url],
    BeforeValidator(_switch, json_schema_input_type=Literal["auto", "off"] | Literal[False] | str | list[str]),
]


class Observe(Section):
    """What is sampled beside the load, in a process of its own; none of it can make a run fail."""

    short_forms: ClassVar[list[dict[str, Any]]] = [
        {"enum": ["off", False], "description": "nothing is sampled"},
    ]

    gpu: Gpu = Field(
        "auto", description="on, off, a list of indexes; auto: every GPU when the target is on this machine"
    )
    metrics: Metrics = Field(
        "auto", description="Prometheus endpoints, one per replica; off; auto: /metrics of each target URL"
    )
    host: bool = Field(True, description="sample this machine: cores, memory, network, what its hypervisor takes away")
    interval: Duration = Field(1.0, ge=0.1, le=600, description="between two samples of the same thing")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"gpu": "off", "metrics": "off", "host": False} if value is False or value == "off" else value

    def disagreements(self) -> Iterator[Mistake]:
        for name in ("gpu", "metrics"):
            chosen = getattr(self, name)
            if isinstance(chosen, list) and not chosen:
                yield Mistake((name,), "must name at least one, or be off")

    @property
    def nothing(self) -> bool:
        return self.gpu == "off" and self.metrics == "off" and not self.host
