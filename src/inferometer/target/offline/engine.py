"""What an offline engine is: it makes tokens for a batch of prompts, and has a clock that knows when they are made; and
how far an offline run is."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from inferometer.errors import MissingExtra, PlanError
from inferometer.vocabulary import attribute_at
from inferometer.wire.child import safe_path_for_children

# -- engine ----------------------------------------------------------------------------------------------------------

ENGINES = {
    "vllm": "inferometer.target.offline.vllm:VllmEngine",
    "transformers": "inferometer.target.offline.transformers:TransformersEngine",
    "simulator": "inferometer.target.offline.simulator:SimulatedEngine",
}

TokenIds = list[int]
Prompt = TokenIds | str


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine is started and how it draws tokens. `args` are its own, by their own names."""

    model: str | None
    seed: int = 0
    n: int = 1  # answers to each prompt
    beam_search: bool = False
    detokenize: bool = True
    profile: Path | None = None  # the folder that traces are to be written to
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a started engine says of itself; `None`: it does not."""

    engine: str
    version: str | None
    model: str
    device: str | None = None
    dtype: str | None = None
    max_model_len: int | None = None
    vocabulary: int | None = None  # token ids are below it
    time: str = "real"


class Answer(NamedTuple):
    """Tokens of one prompt and of all answers to it, as the engine counted them."""

    input_tokens: int
    output_tokens: int


class OfflineEngine(Protocol):
    """Made with `EngineSettings`; importing its module imports nothing heavy, making it does."""

    facts: EngineFacts

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> list[Answer]:
        """As many tokens as asked for each prompt, whatever the model would like: returns when all are made."""

    def now(self) -> int:
        """Nanoseconds on the engine's own clock, once everything asked of its device is done."""

    def profiled(self, folder: Path) -> AbstractContextManager[None]:
        """Writes a trace of what happens meanwhile into the folder."""

    def close(self) -> None: ...


def open_engine(name: str, settings: EngineSettings) -> OfflineEngine:
    """Start an engine by its name; one that is not there or not installed is said."""
    if name not in ENGINES:
        raise PlanError(f"--engine: must be one of {', '.join(ENGINES)}, got {name}")
    with safe_path_for_children():  # vLLM and torch start processes of their own
        made: OfflineEngine = attribute_at(ENGINES[name])(settings)
    return made


def needed(module: str, extra: str, what: str) -> Any:
    """A package that only this engine needs."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtra(what, extra) from None


def named_model(engine: str, model: str | None) -> str:
    if model is None:
        raise PlanError(f"--model: is missing: the engine {engine} needs a model's name or folder")
    return model


# -- progress --------------------------------------------------------------------------------------------------------

Phase = Literal["load", "warmup", "measure", "profile"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Said before each batch; `part` of `parts` are done of this phase, `case` of `cases` before it."""

    phase: Phase
    what: str
    part: int = 0
    parts: int = 0
    case: int = 0
    cases: int = 0
    last_s: float | None = None
