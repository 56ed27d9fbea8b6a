"""Engines that run in this process, without a server. An offline engine generates tokens for a batch of prompts and has
a clock of its own. Its harness starts it once for all batches, times every batch, and restarts an engine that died."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from inferometer.errors import InferometerError, MissingExtra, PlanError, TargetError
from inferometer.record.environment import MeasuredTarget
from inferometer.vocabulary import NANOSECONDS, attribute_at
from inferometer.wire.child import safe_path_for_children

# -- engine ----------------------------------------------------------------------------------------------------------

ENGINES = {
    "vllm": "inferometer.target.offline.vllm:VllmEngine",
    "transformers": "inferometer.target.offline.transformers:TransformersEngine",
    "simulator": "inferometer.target.offline.simulator:SimulatedEngine",
}


TokenIds = list[int]


Messages = list[dict[str, Any]]


Prompt = TokenIds | str | Messages


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine is started and how it samples tokens. `args` are the engine's own arguments."""

    model: str | None
    seed: int = 0
    n: int = 1  # answers to each prompt
    beam_search: bool = False
    detokenize: bool = True
    profile: Path | None = None  # folder for traces
    args: dict[str, Any] = field(default_factory=dict)
    adapter: str | None = None  # LoRA adapter for all prompts


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a started engine reports about itself; `None`: not reported."""

    engine: str
    version: str | None
    model: str
    device: str | None = None
    dtype: str | None = None
    max_model_len: int | None = None
    vocabulary: int | None = None  # token ids are below it
    time: str = "real"

    @property
    def measured(self) -> MeasuredTarget:
        """For the environment of a run."""
        facts = asdict(self)
        return MeasuredTarget(names=(*facts, "urls"), **facts)


class PromptTokens(NamedTuple):
    """Tokens of one prompt and of all answers to it, as counted by the engine."""

    input_tokens: int
    output_tokens: int


class OfflineEngine(Protocol):
    """Created with `EngineSettings`; importing its module is cheap, creating it imports the heavy packages."""

    facts: EngineFacts

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> list[PromptTokens]:
        """The requested number of tokens for each prompt, regardless of end-of-text tokens; returns when all are
        generated."""

    def now(self) -> int:
        """Nanoseconds on the engine's own clock, after its device has finished all work."""

    def profiled(self, folder: Path) -> AbstractContextManager[None]:
        """Writes a trace of the work inside the context into the folder."""

    def close(self) -> None: ...


def open_engine(name: str, settings: EngineSettings) -> OfflineEngine:
    """Start an engine by its name; an unknown or missing engine is an error."""
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
class BatchProgress:
    """Reported before each batch; `part` of `parts` of this phase are done, `case` of `cases` came before it."""

    phase: Phase
    what: str
    part: int = 0
    parts: int = 0
    case: int = 0
    cases: int = 0
    last_s: float | None = None


# -- output ----------------------------------------------------------------------------------------------------------


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """The output of this process, its libraries and the children it starts meanwhile is appended to `log`. Children
    continue to write there."""
    _flush()
    kept = [os.dup(1), os.dup(2)]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        _flush()
        for number, before in enumerate(kept, start=1):
            os.dup2(before, number)
            os.close(before)
        os.close(file)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or its reader has gone: not ours to fix
            stream.flush()


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, for an error message."""
    if not log.exists():
        return ""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return "\n".join(line.rstrip() for line in text if line.strip())


# -- the engine ------------------------------------------------------------------------------------------------------

MOST_STARTS = 2


@dataclass(frozen=True, slots=True)
class TimedBatch:
    """A finished batch: timed from its submission until all its tokens were generated."""

    elapsed_s: float
    answers: list[PromptTokens]


class EngineHolder:
    """Holds the engine. Its output goes to `log`. `facts` are those of its first start."""

    def __init__(self, start: Callable[[], OfflineEngine], log: Path) -> None:
        self._start, self._log = start, log
        self._engine: OfflineEngine | None = None
        self.starts = 0
        self._open()
        assert self._engine is not None
        self.facts: EngineFacts = self._engine.facts

    def timed(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> TimedBatch:
        """Run and time one batch. Errors of the engine are raised unchanged."""
        engine = self._running()
        with output_to(self._log):
            started_at = engine.now()
            answers = engine.generate(prompts, output_tokens)
            ended_at = engine.now()
        return TimedBatch((ended_at - started_at) / NANOSECONDS, answers)

    def profiled(self, folder: Path, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> None:
        """Run one batch, whose time does not count, with a trace of it in the folder."""
        engine = self._running()
        with output_to(self._log), engine.profiled(folder):
            engine.generate(prompts, output_tokens)

    def revived(self) -> str | None:
        """After a failure: make sure that an engine runs, and report whether it had to be restarted.

        Raises if it is dead and was restarted before, or cannot be restarted.
        """
        if self._answers():
            return None
        self.close()
        if self.starts >= MOST_STARTS:
            raise TargetError(f"the engine died {self.starts} times and is not restarted")
        self._open()
        return "the engine died and was restarted"

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            with output_to(self._log), suppress(Exception):  # it is given up in any case
                engine.close()

    def _answers(self) -> bool:
        """Whether it can still generate a token, by trying."""
        try:
            self.timed([[1]], [1])
        except Exception:
            return False
        return True

    def _running(self) -> OfflineEngine:
        if self._engine is None:
            raise TargetError("the engine is not running")
        return self._engine

    def _open(self) -> None:
        self.starts += 1
        try:
            with output_to(self._log):
                self._engine = self._start()
        except InferometerError:
            raise
        except Exception as error:
            raise TargetError(f"the engine did not start: {one_line(error)}", tail(self._log) or None) from error


def one_line(error: BaseException, most: int = 300) -> str:
    """`OutOfMemoryError: CUDA out of memory. Tried ...`"""
    message = " ".join(str(error).split())
    name = type(error).__name__
    text = message if isinstance(error, InferometerError) else f"{name}: {message}" if message else name
    return text if len(text) <= most else f"{text[: most - 1]}…"
