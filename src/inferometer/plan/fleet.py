"""What is in front of a fleet: the `router` of a server of type fleet. Policies and their settings are checked by
`router.policy` for our own router, by `target.routers` for those of others."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from inferometer.plan.fields import Argv, Count, Line, Mistake, Section

MOST_REPLICAS = 1000
DEFAULT_POLICY = "prefix_aware"
OWN = "inferometer"
_HERE = "inferometer.target.routers"
ROUTERS: dict[str, str] = {  # a router is added here and as a file of target/routers
    OWN: f"{_HERE}.own:ROUTER",
    "nginx": f"{_HERE}.nginx:ROUTER",
    "haproxy": f"{_HERE}.haproxy:ROUTER",
    "vllm-router": f"{_HERE}.sglang_family:VLLM_ROUTER",
    "sglang-router": f"{_HERE}.sglang_family:SGLANG_ROUTER",
    "smg": f"{_HERE}.sglang_family:SMG",
    "litellm": f"{_HERE}.litellm:ROUTER",
}
if TYPE_CHECKING:
    RouterType = str
else:
    RouterType = Literal[tuple(ROUTERS)]


class Router(Section):
    """The router of a fleet: its policy, by name, and the policy's settings."""

    short_forms: ClassVar[list[dict[str, Any]]] = [{"type": "string", "description": "its policy"}]

    type: RouterType = Field(OWN, description="which router; all but ours must be installed")
    policy: Line = Field(
        DEFAULT_POLICY,
        min_length=1,
        description="routing policy, such as prefix_aware or power_of_two; of another router: default is its own",
    )
    settings: dict[str, Any] = Field({}, description="settings of the policy, by name")
    seed: Count = Field(0, ge=0, description="seed of the policy's random choices")
    max_in_flight: Count | None = Field(
        None, ge=1, description="requests that a replica gets at once; more wait in the router; default: no limit"
    )
    args: dict[str, Any] = Field({}, description="settings of the router by name; of another router: its flags")
    flags: Argv = Field([], description="extra command line arguments of another router, passed unchanged")
    command: Argv = Field([], description="program of another router; default: found on PATH")

    def disagreements(self) -> Iterator[Mistake]:
        if self.type == OWN:
            for name in ("flags", "command"):
                if getattr(self, name):
                    yield Mistake((name,), f"belongs to the routers of others, but type is {OWN}")
            return
        for name in ("settings", "max_in_flight"):
            if getattr(self, name) not in ({}, None):
                yield Mistake((name,), f"belongs to type {OWN}, but type is {self.type}: use args or flags")
