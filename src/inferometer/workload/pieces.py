"""Made-up conversations cut into growing pieces: each group is one conversation, each prompt its beginning up to one of
its messages. Everything is a pure function of (seed, traffic, index) and the run's nonce."""

from functools import lru_cache

import numpy as np

from inferometer.errors import PlanError
from inferometer.plan.workloads.pieces import ConversationPieces
from inferometer.workload.draws import Draws, Numbers, Purpose, numbers, quantile_of
from inferometer.workload.session import NOWHERE, Request, Session, WorkloadContext
from inferometer.workload.writer import writer_of

LENGTHS_KEPT = 4096  # groups whose lengths are kept in memory


def conversation_pieces(
    spec: ConversationPieces, seed: int, traffic: int, nonce: str, *, context: WorkloadContext = NOWHERE
) -> "PiecesTape":
    """The prompts that the plan describes; what the target cannot hold is reported here."""
    longest = spec.max_tokens + (1 if spec.output_tokens is None else spec.output_tokens.most or 1)
    if context.max_model_len is not None and longest > context.max_model_len:
        raise PlanError(
            f"workload: prompt and answer can have up to {longest} tokens, the model's context is "
            f"{context.max_model_len}",
            "lower workload.max_tokens or workload.output_tokens",
        )
    return PiecesTape(spec, seed, traffic, nonce, context)


class PiecesTape:
    """From an index to a session of one request. All prompts come once, in a drawn order, before any comes again."""

    def __init__(self, spec: ConversationPieces, seed: int, traffic: int, nonce: str, context: WorkloadContext) -> None:
        self.spec = spec
        self.writer = writer_of("text", 0, spec.tokenizer, context)
        self._draws, self._nonce = Draws(seed, traffic), nonce.encode()
        self._question, self._answer = quantile_of(spec.question_tokens), quantile_of(spec.answer_tokens)
        self._output = None if spec.output_tokens is None else quantile_of(spec.output_tokens)
        keys = np.frombuffer(numbers(self._draws.key(Purpose.ORDER, 0), 2 * len(self)), "<u8")
        self._order = np.argsort(keys, kind="stable")
        self.lengths = lru_cache(LENGTHS_KEPT)(self._lengths)

    def __len__(self) -> int:
        """Prompts before they repeat."""
        return self.spec.groups * self.spec.pieces

    def __call__(self, index: int) -> Session:
        group, piece = divmod(int(self._order[index % len(self)]), self.spec.pieces)
        tokens = self.lengths(group)[piece]
        prompt = self.writer.write(self._text(group, self.writer.room(tokens)))
        headers = {self.spec.prefix_header: f"{group:016x}"} if self.spec.prefix_header else {}
        return Session([Request(prompt, self._requested(index % len(self)), tokens, headers=headers)])

    def _requested(self, index: int) -> int | None:
        return None if self._output is None else self._output(self._draws.uniforms(Purpose.ANSWER, index, 0, 1)[0])

    def _text(self, group: int, tokens: int) -> Numbers:
        """The first tokens of the conversation: a longer piece begins with every shorter one."""
        key = self._draws.key(Purpose.GROUP_TEXT, group)
        fresh = min(self.spec.nonce_tokens, tokens)
        return np.concatenate([numbers(self._nonce + key, fresh), numbers(key, tokens - fresh)])

    def _lengths(self, group: int) -> tuple[int, ...]:
        """As many ends of messages as there are pieces, drawn from those between the shortest and the longest prompt.
        How far a conversation goes is uniform; where it has too few messages for its pieces, it is cut in between."""
        least, most, pieces = self.spec.min_tokens, self.spec.max_tokens, self.spec.pieces
        (reach,) = self._draws.uniforms(Purpose.GROUP_LENGTH, group, 0, 1)
        longest = least + pieces - 1 + int(reach * (most - least - pieces + 2))
        ends = [end for end in self._message_ends(group, longest) if end >= least]
        chosen = self._some(ends, pieces, group)
        if len(chosen) < pieces:
            others = [length for length in range(least, longest + 1) if length not in chosen]
            chosen += self._some(others, pieces - len(chosen), group)
        return tuple(sorted(chosen))

    def _some(self, values: list[int], count: int, group: int) -> list[int]:
        """So many of the values, or all of them where there are fewer."""
        keys = numbers(self._draws.key(Purpose.GROUP_LENGTH, group) + b"some", len(values))
        return [values[at] for at in np.argsort(keys, kind="stable")[:count].tolist()]

    def _message_ends(self, group: int, longest: int) -> list[int]:
        ends, so_far, message = [], 0, 0
        while so_far < longest:
            question, answer = self._draws.uniforms(Purpose.CHOICES, group, message, 2)
            for length in (self._question(question), self._answer(answer)):
                so_far += length
                ends.append(so_far)
            message += 1
        return [end for end in ends if end <= longest]
