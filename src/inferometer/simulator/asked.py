"""What a request asks of the engine, and the sequence made of it; the same for the server and for virtual time."""

from dataclasses import dataclass

from inferometer.simulator.sequence import Sequence
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.tokens import Tokens, answer_words, fingerprint, natural_length


@dataclass(slots=True)
class Asked:
    """The prompt in tokens and the bounds of the answer."""

    tokens: Tokens
    max_tokens: int | None = None  # None: as many as fit
    min_tokens: int = 0
    ignore_eos: bool = False


def too_long(asked: Asked, settings: SimulatorSettings) -> str | None:
    """Why the model's context cannot hold it, and which parameter is to blame, as vLLM words it."""
    room, prompt = settings.max_model_len, len(asked.tokens)
    if asked.max_tokens is not None and asked.max_tokens > room:
        return (
            f"max_tokens={asked.max_tokens} cannot be greater than max_model_len=max_total_tokens={room}. "
            f"Please request fewer output tokens. (parameter=max_tokens, value={asked.max_tokens})"
        )
    if prompt + (asked.max_tokens or 1) > room:
        return (
            f"This model's maximum context length is {room} tokens. However, you requested "
            f"{asked.max_tokens or 1} output tokens and your prompt contains {prompt} input tokens, for a total of "
            f"{prompt + (asked.max_tokens or 1)} tokens. Please reduce the length of the input prompt or the number "
            f"of requested output tokens. (parameter=input_tokens, value={prompt})"
        )
    return None


def sequence_for(asked: Asked, settings: SimulatorSettings) -> tuple[Sequence, str]:
    """The sequence, with all it will say, and the finish reason it will end with."""
    print_ = fingerprint(asked.tokens, settings.seed)
    room = settings.max_model_len - len(asked.tokens)
    most = room if asked.max_tokens is None else min(asked.max_tokens, room)
    natural = most if asked.ignore_eos else max(natural_length(print_, settings.mean_output_tokens), asked.min_tokens)
    length = max(1, min(natural, most))
    reason = "stop" if natural < most else "length"
    return Sequence(asked.tokens or ("<|start|>",), answer_words(print_, length)), reason
