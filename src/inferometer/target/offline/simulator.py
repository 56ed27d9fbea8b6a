"""The simulator as an offline engine: batches in virtual time, identical to the nanosecond on every machine."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import version
from pathlib import Path

from inferometer.documents.document import JsonValue
from inferometer.errors import PlanError, TargetError
from inferometer.load.clock import Ticket, VirtualClock
from inferometer.record.record import Record
from inferometer.simulator.settings import settings_from
from inferometer.simulator.virtual import VirtualTransport
from inferometer.target.offline import EngineFacts, EngineSettings, Prompt, PromptTokens
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.session import Request

# As for other engines in this process: there is no HTTP frontend, and a prompt is computed in one step.
OFFLINE = {"frontend": 0, "prefix_caching": False}


class SimulatedEngine:
    """Continuous batching on a step-time model; `args` are the simulator's settings."""

    def __init__(self, settings: EngineSettings) -> None:
        if settings.beam_search:
            raise PlanError("--use-beam-search: not supported by the simulator; use vllm or transformers")
        if settings.profile is not None:
            raise PlanError("--profile: not supported by the simulator")
        chosen: dict[str, JsonValue] = OFFLINE | {"seed": settings.seed} | settings.args
        if settings.model is not None:
            chosen |= {"model": settings.model}
        made = settings_from(chosen, "--args")
        if made.faults.shares:
            raise PlanError("--args faults: only a simulated server has faults, not an engine in this process")
        self._clock = VirtualClock(NANOSECONDS)
        self._transport = VirtualTransport(self._clock, made)
        self._n = settings.n
        self.facts = EngineFacts(
            engine="simulator",
            version=version("inferometer"),
            model=made.model,
            device="simulated",
            max_model_len=made.max_model_len,
            time="virtual",
        )

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> list[PromptTokens]:
        """All requests arrive at once; the engine batches as many as fit."""
        done: dict[int, Record] = {}
        for number in range(len(prompts) * self._n):
            at = number // self._n
            request = Request(prompts[at], output_tokens[at], body={"ignore_eos": True})
            self._transport.send(request, self._ticket(number), _nothing, partial(_keep, done, number))
        self._clock.run()
        return [_answer([done[at * self._n + copy] for copy in range(self._n)]) for at in range(len(prompts))]

    def _ticket(self, number: int) -> Ticket:
        now = self._clock.now()
        return Ticket(number, 0, 1, "offline", 0, 0, scheduled_at=now, ready_at=now)

    def now(self) -> int:
        return self._clock.now()

    def profiled(self, folder: Path) -> AbstractContextManager[None]:
        raise PlanError("--profile: not supported by the simulator")

    def close(self) -> None:
        """Nothing to release."""


def _nothing(_ended_at: int) -> None:
    """No slot waits for the end of an answer: all requests are sent at once."""


def _keep(done: dict[int, Record], number: int, record: Record, _text: str) -> None:
    done[number] = record


def _answer(records: list[Record]) -> PromptTokens:
    for record in records:
        if record.outcome != "ok":
            raise TargetError(f"the simulator refused a prompt: {record.error or record.outcome}")
    return PromptTokens(records[0].input_tokens or 0, sum(record.output_tokens or 0 for record in records))
