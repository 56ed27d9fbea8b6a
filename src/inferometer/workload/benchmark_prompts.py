"""Prompts of other benchmarks: vLLM's lines of verse after a shared prefix, and Ray's conversations cut into growing
pieces."""

from functools import cached_property, lru_cache

import numpy as np

from inferometer.errors import DataError, PlanError
from inferometer.plan.workloads.recorded import Sonnet
from inferometer.plan.workloads.synthetic import ConversationPieces
from inferometer.workload.draws import Draws, Numbers, Purpose, longest_of, numbers, quantile_of
from inferometer.workload.files import open_rows
from inferometer.workload.rows import RowError
from inferometer.workload.session import NOWHERE, Request, Session, WorkloadContext
from inferometer.workload.writer import TokenCounter, token_count, writer_of

TASK = "Pick as many lines as you can from these poem lines:\n"  # vLLM's text


def sonnet(spec: Sonnet, seed: int, traffic: int, nonce: str, context: WorkloadContext = NOWHERE) -> "Verses":
    """Sessions of one turn, each with a new selection of lines."""
    rows = open_rows(spec.path or spec.url or "", as_lines=True, sha256=spec.sha256, notify=context.note)
    try:
        lines = [line for line in (rows[number] for number in range(len(rows))) if line.strip()]
    except RowError as error:
        raise DataError(f"{rows.name}: a line {error}", "sonnet needs a text file, such as vLLM's sonnet.txt") from None
    if not lines:
        raise DataError(f"{rows.name}: has no lines", "sonnet needs a text file, such as vLLM's sonnet.txt")
    verses = Verses(spec, rows.name, lines, token_count(spec.tokenizer, context), Draws(seed, traffic))
    verses.check(context.max_model_len)
    context.note(f"{rows.name}: {len(lines):,} lines, prompts share a prefix of {verses.shared_tokens} tokens")
    return verses


class Verses:
    """A function from an index to a session, without end: each index draws new lines."""

    def __init__(self, spec: Sonnet, name: str, lines: list[str], count: TokenCounter, draws: Draws) -> None:
        self.spec, self.name, self.lines = spec, name, lines
        self.count = count
        self._draws = draws
        self._tokens = [count.count(f"{line}\n") for line in lines]
        self._input = quantile_of(spec.input_tokens)
        self._output = None if spec.output_tokens is None else quantile_of(spec.output_tokens)

    def check(self, context: int | None) -> None:
        """Check before the load that the lines suffice for the lengths, and the model's context too."""
        least = self._input(1e-12)
        if least < self.shared_tokens or least < self.spec.prefix_tokens:
            raise DataError(
                f"{self.name}: prompts of {least} tokens are shorter than the shared prefix",
                "workload.prefix_tokens must be less than workload.input_tokens",
            )
        most = longest_of(self.spec.input_tokens)
        answer = 1 if self.spec.output_tokens is None else longest_of(self.spec.output_tokens)
        if context is not None and most + answer > context:
            raise DataError(
                f"{self.name}: a prompt of {most:,} tokens and its answer of {answer:,} are longer than the model's "
                f"context of {context:,}",
                "lower workload.input_tokens",
            )

    @property
    def shared_tokens(self) -> int:
        """Tokens of the prefix that all prompts share."""
        return self._shared[1]

    @cached_property
    def _shared(self) -> tuple[str, int]:
        """The task and the first lines, up to `prefix_tokens`; and their number of tokens."""
        tokens, chosen = self.count.added + self.count.count(TASK), 0
        while chosen < len(self.lines) and tokens + self._tokens[chosen] <= self.spec.prefix_tokens:
            tokens += self._tokens[chosen]
            chosen += 1
        return TASK + _joined(self.lines[:chosen]), tokens

    def __call__(self, index: int) -> Session:
        lengths = self._draws.uniforms(Purpose.CHOICES, index, 0, 2)
        prompt, tokens = self._prompt(index, self._input(lengths[0]))
        output = None if self._output is None else self._output(lengths[1])
        return Session([Request(prompt, output, tokens if self.count.exact else None)])

    def _prompt(self, index: int, requested: int) -> tuple[str, int]:
        """As many lines as fit. Token counts of lines are added, which ignores effects of the tokenizer at line
        ends."""
        text, tokens = self._shared
        chosen = []
        least = max(min(self._tokens), 1)
        for number in numbers(self._draws.key(Purpose.VERSES, index), (requested - tokens) // least + 1).tolist():
            line = number % len(self.lines)
            if tokens + self._tokens[line] > requested:
                break
            tokens += self._tokens[line]
            chosen.append(self.lines[line])
        while self.count.exact and (tokens := self._exact(text, chosen)) > requested and chosen:
            chosen.pop()
        return text + _joined(chosen), tokens

    def _exact(self, text: str, chosen: list[str]) -> int:
        return self.count.added + self.count.count(text + _joined(chosen))


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


LENGTHS_KEPT = 4096  # groups whose lengths are kept in memory


def conversation_pieces(
    spec: ConversationPieces, seed: int, traffic: int, nonce: str, *, context: WorkloadContext = NOWHERE
) -> "PiecesTape":
    """The prompts of the plan; prompts that the target cannot hold are an error here."""
    longest = spec.max_tokens + (1 if spec.output_tokens is None else spec.output_tokens.most or 1)
    if context.max_model_len is not None and longest > context.max_model_len:
        raise PlanError(
            f"workload: prompt and answer can have up to {longest} tokens, the model's context is "
            f"{context.max_model_len}",
            "lower workload.max_tokens or workload.output_tokens",
        )
    return PiecesTape(spec, seed, traffic, nonce, context)


class PiecesTape:
    """From an index to a session of one request. All prompts are sent once, in random order, before any repeats."""

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
        """The first tokens of the conversation: a longer piece starts with every shorter one."""
        key = self._draws.key(Purpose.GROUP_TEXT, group)
        fresh = min(self.spec.nonce_tokens, tokens)
        return np.concatenate([numbers(self._nonce + key, fresh), numbers(key, tokens - fresh)])

    def _lengths(self, group: int) -> tuple[int, ...]:
        """The lengths of the pieces: random message ends between the shortest and the longest prompt. The length of a
        conversation is uniform; if it has too few messages for its pieces, it is also cut inside messages."""
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
        """A number of the values, or all if there are fewer."""
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
