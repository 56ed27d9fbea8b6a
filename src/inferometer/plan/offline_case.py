"""Offline work as an experiment writes it: `latency: {engine: simulator, batch_size: 8}`; made the plan of
`inferometer offline`."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from inferometer.errors import PlanError
from inferometer.plan.fields import Count, Section
from inferometer.plan.offline import EngineChoice, LatencyPlan, ThroughputPlan, sizes


def _sizes(value: Any) -> Any:
    """`8`, `[1, 2]`, `1-8`, as on the command line."""
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, bool) or not isinstance(part, int | str) for part in parts):
        raise ValueError("must be sizes such as 8, 1,2,4, 1-8 or 1-64:8")
    try:
        return list(sizes(",".join(map(str, parts)), ""))
    except PlanError as error:
        raise ValueError(error.message.removeprefix(": ").partition(", got")[0]) from None


Sizes = Annotated[list[int], BeforeValidator(_sizes, json_schema_input_type=int | str | list[int])]


class EngineCase(Section):
    """Which engine, and how it is started."""

    engine: str = Field("simulator", description="vllm, transformers or simulator")
    model: str | None = Field(None, description="its name or folder; the simulator needs none")
    args: dict[str, Any] = Field({}, description="settings of the engine's own")
    seed: Count = Field(0, ge=0, description="the same seed makes the same prompts")
    n: Count = Field(1, ge=1, description="answers to each prompt")

    def choice(self) -> EngineChoice:
        return EngineChoice(self.engine, self.model, self.seed, self.n, args=self.args)


class Latency(EngineCase):
    """Batches of one size, again and again."""

    batch_size: Sizes = Field([1], description="prompts at once: 8, or several as 1-8")
    input_len: Sizes = Field([512], description="tokens of each prompt")
    output_len: Sizes = Field([128], description="tokens of each answer")
    iters: Count = Field(30, ge=1, description="batches measured")
    warmup: Count = Field(10, ge=0, description="batches before them")

    def planned(self) -> LatencyPlan:
        lens = tuple(self.input_len), tuple(self.output_len)
        return LatencyPlan(self.choice(), tuple(self.batch_size), *lens, iters=self.iters, warmup=self.warmup)


class Throughput(EngineCase):
    """A whole workload at once."""

    workload: dict[str, Any] = Field(
        {"type": "synthetic", "prompt_as": "token_ids", "input_tokens": 512, "output_tokens": 128},
        description="as in a plan",
    )
    num_prompts: Count = Field(1000, ge=1, description="how many, all at once")
    warmup: Count = Field(8, ge=0, description="prompts before them")
    passes: Count = Field(1, ge=1, description="how often; several give an interval")

    def planned(self) -> ThroughputPlan:
        return ThroughputPlan(self.choice(), self.workload, self.num_prompts, self.warmup, self.passes)
