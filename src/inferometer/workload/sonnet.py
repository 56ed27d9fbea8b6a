"""Prompts of lines of verse: a beginning that all share, then lines drawn until the asked length is reached."""

from functools import cached_property

from inferometer.errors import DataError
from inferometer.plan.workloads.dataset import Sonnet
from inferometer.workload.draws import Draws, Purpose, longest_of, numbers, quantile_of
from inferometer.workload.files import open_rows
from inferometer.workload.rows import RowError
from inferometer.workload.session import NOWHERE, Request, Session, WorkloadContext
from inferometer.workload.writer import TokenCount, token_count

TASK = "Pick as many lines as you can from these poem lines:\n"  # vLLM's words


def sonnet(spec: Sonnet, seed: int, traffic: int, nonce: str, context: WorkloadContext = NOWHERE) -> "Verses":
    """Sessions of one turn, each a new selection of lines."""
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
    """A function from an index to a session. It has no end: each index draws lines of its own."""

    def __init__(self, spec: Sonnet, name: str, lines: list[str], count: TokenCount, draws: Draws) -> None:
        self.spec, self.name, self.lines = spec, name, lines
        self.count = count
        self._draws = draws
        self._tokens = [count.count(f"{line}\n") for line in lines]
        self._input = quantile_of(spec.input_tokens)
        self._output = None if spec.output_tokens is None else quantile_of(spec.output_tokens)

    def check(self, context: int | None) -> None:
        """Before the load: lengths that the lines can make and the model can take."""
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
        """Tokens of the beginning that all prompts share."""
        return self._shared[1]

    @cached_property
    def _shared(self) -> tuple[str, int]:
        """The task and the first lines, up to `prefix_tokens`; and the tokens of it all."""
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
        """Lines as long as they fit. Tokens add up line by line, but for what a tokenizer does at a seam."""
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
