"""What can be set on the simulator: a section as in a plan, so that `server: {args: ...}` is checked like the rest."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from inferometer.errors import PlanError
from inferometer.plan.fields import Count, Duration, Section
from inferometer.plan.text import as_written
from inferometer.simulator.engine import Engine
from inferometer.simulator.faults import FaultShares
from inferometer.simulator.steptime import StepTime

_FITTED = StepTime()


class StepTimeSettings(Section):
    """Seconds of one step; the defaults are those of an 8B model on an H200 (simulator.steptime)."""

    base: Duration = Field(_FITTED.base_s, ge=0, description="of any step")
    prefill_token: Duration = Field(_FITTED.prefill_token_s, ge=0, description="more for each token of prefill")
    decode_sequence: Duration = Field(_FITTED.decode_sequence_s, ge=0, description="more for each decoding sequence")
    context_token: Duration = Field(_FITTED.context_token_s, ge=0, description="more for each cached token read")
    jitter: float = Field(0.0, ge=0, le=2, description="sigma of lognormal noise on each step, mean 1")


class SimulatorSettings(Section):
    """An engine, how fast it is, and how it misbehaves."""

    model: str = "simulated-8b"
    adapters: list[str] = Field([], description="LoRA adapters that may be asked for in place of the model")
    max_model_len: Count = Field(8192, ge=2, description="prompt and answer together, in tokens")
    blocks: Count = Field(56_916, ge=1, description="of the key-value cache")
    block_size: Count = Field(16, ge=1, description="tokens in a block")
    max_sequences: Count = Field(1024, ge=1, description="in one batch")
    max_batched_tokens: Count = Field(8192, ge=1, description="token budget of one step")
    prefix_caching: bool = True
    mean_output_tokens: Count = Field(256, ge=1, description="of answers that end by themselves")
    frontend: Duration = Field(0.008, ge=0, description="from the request's arrival to the engine")
    step_time: StepTimeSettings = StepTimeSettings()
    speed: float = Field(1.0, gt=0, description="how many times faster than these numbers")
    seed: int = Field(0, ge=0)
    prompt_tokens_details: bool = Field(True, description="say in the usage how many prompt tokens were cached")
    truth_events: Count = Field(
        20_000_000, ge=0, description="how many writes the truth log keeps; the oldest go first"
    )
    faults: FaultShares = FaultShares()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.max_batched_tokens < self.max_sequences:
            raise ValueError("max_batched_tokens must be at least max_sequences")
        if self.max_model_len > self.blocks * self.block_size:
            raise ValueError(
                f"max_model_len {self.max_model_len} does not fit into the cache of "
                f"{self.blocks} blocks of {self.block_size} tokens"
            )
        return self

    def build_engine(self) -> Engine:
        return Engine(self.blocks, self.block_size, self.max_sequences, self.max_batched_tokens, self.prefix_caching)

    def build_step_time(self) -> StepTime:
        each, speed = self.step_time, self.speed
        return StepTime(
            base_s=each.base / speed,
            prefill_token_s=each.prefill_token / speed,
            decode_sequence_s=each.decode_sequence / speed,
            context_token_s=each.context_token / speed,
            jitter=each.jitter,
            seed=self.seed,
        )

    @property
    def frontend_ns(self) -> int:
        return round(self.frontend / self.speed * 1e9)


def settings_from(args: Mapping[str, Any], where: str = "server.args") -> SimulatorSettings:
    """Settings as a plan gives them; every mistake at once."""
    try:
        return SimulatorSettings.model_validate(dict(args))
    except ValidationError as error:
        raise PlanError([_mistake(each, where) for each in error.errors()]) from None


def _mistake(error: ErrorDetails, above: str) -> str:
    where = ".".join(map(str, (above, *error["loc"])))
    if error["type"] == "extra_forbidden":
        return f"{where} is not a setting of the simulator"
    said = error["msg"].removeprefix("Value error, ").removeprefix("Input should ")
    if error["type"] == "value_error" and not said.startswith("must "):
        return f"{where}: {said}"  # a sentence of its own, which says what it got
    if error["type"] == "model_type":
        return f"{where} must be settings by name, got {as_written(error['input'])}"
    got = f", got {as_written(error['input'])}" if error["loc"] else ""
    return f"{where} {'must ' if error['msg'].startswith('Input should ') else ''}{said}{got}"
