"""Generated sessions of the requested lengths, optionally with shared prefixes, each a pure function of (seed, traffic,
index) and the run's nonce."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from inferometer.documents.document import Document
from inferometer.errors import PlanError
from inferometer.plan.workloads.synthetic import FixedText, Media, Prefix, Synthetic, Tools
from inferometer.wire.api import chat_text
from inferometer.workload.draws import (
    Draws,
    Numbers,
    Purpose,
    Quantile,
    longest_of,
    numbers,
    numbers_in_turn,
    pause_quantile,
    picker,
    quantile_of,
    zipf_picker,
)
from inferometer.workload.media import Maker, placed_in
from inferometer.workload.session import NOWHERE, Prompt, Request, Session, Workload, WorkloadContext
from inferometer.workload.writer import ids_writer, words, writer_of

# -- prefixes --------------------------------------------------------------------------------------------------------

GROUPS_KEPT = 256  # prefixes kept in memory; others are generated again, 10 us for 1000 tokens
SHUFFLED = 1 << 20  # groups x prompts up to this number are shuffled; more are drawn one by one


class Prefixes:
    """The shared prefixes of one traffic class. `longest` is the length of the longest prompt."""

    def __init__(self, spec: Prefix, draws: Draws, nonce: str, fresh: int, longest: int) -> None:
        self.spec = spec
        self._draws, self._nonce, self._fresh = draws, nonce.encode(), fresh
        self._length = None if spec.tokens is None else quantile_of(spec.tokens)
        self._longest = longest
        self._group = zipf_picker(spec.groups, spec.zipf or 0.0)
        self._order = self._shuffled()
        self.beginning = lru_cache(GROUPS_KEPT)(self._beginning)

    def place(self, index: int, u: float) -> tuple[int, int]:
        """The group of a prompt, and its number among all prompts: equal numbers are equal prompts."""
        spec = self.spec
        if spec.prompts is None:
            return self._group(u), index
        if self._order is not None:
            number = int(self._order[index % len(self._order)])
            return number // spec.prompts, number
        group = self._group(u)
        (again,) = self._draws.uniforms(Purpose.GROUP_LENGTH, index, 1, 1)
        return group, group * spec.prompts + int(again * spec.prompts)

    def taken(self, group: int, tokens: int, u: float) -> int:
        """The number of shared tokens of a prompt. With a hit rate h, a share h of all tokens on average, in whole
        blocks: a share of each prompt or, if the prefix length is set, the whole prefix in a share of the prompts."""
        rate, block = self.spec.hit_rate, self.spec.block
        if self._length is None:
            return min(int((rate or 0.0) * tokens / block + u) * block, tokens)
        length = min(self.length(group), tokens)
        if rate is None:
            return length
        cacheable = length // block * block
        return length if cacheable and u < rate * tokens / cacheable else 0

    def length(self, group: int) -> int:
        """The length of a group's prefix: as drawn, or as much as the longest prompt needs."""
        if self._length is None:
            block = self.spec.block
            return (int((self.spec.hit_rate or 0.0) * self._longest / block) + 1) * block
        return self._length(self._draws.uniforms(Purpose.GROUP_LENGTH, group, 0, 1)[0])

    def primes(self) -> Iterator[Numbers]:
        """The prefix of each group, once."""
        for group in range(self.spec.groups if self.spec.primed else 0):
            yield self.beginning(group)

    def _beginning(self, group: int) -> Numbers:
        """The prefix text; its first tokens are new in each run, so there are no cache hits from older runs."""
        length, key = self.length(group), self._draws.key(Purpose.GROUP_TEXT, group)
        fresh = min(self._fresh, length)
        return np.concatenate([numbers(self._nonce + key, fresh), numbers(key, length - fresh)])

    def _shuffled(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]] | None":
        """Groups x prompts in random order, each once before any repeats; with Zipf popularity they are drawn
        instead."""
        whole = self.spec.groups * (self.spec.prompts or 0)
        if not 0 < whole <= SHUFFLED or self.spec.zipf:
            return None
        seed = int.from_bytes(self._draws.key(Purpose.CHOICES, whole), "little")
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).permutation(whole)


def longest_prompt(prefix: Prefix | None, longest_input: int) -> int:
    """The longest prompt; the sum of prefix and suffix if these are set separately."""
    if prefix is None or prefix.suffix_tokens is None or prefix.tokens is None:
        return longest_input
    return longest_of(prefix.tokens) + longest_of(prefix.suffix_tokens)


# -- synthetic -------------------------------------------------------------------------------------------------------

__all__ = ["SyntheticTape", "synthetic", "words"]

Message = dict[str, Any]


class _Chosen(NamedTuple):
    """The uniform numbers for the draws of one turn."""

    input: float
    output: float
    group: float
    share: float
    model: float
    turns: float
    think: float


def synthetic(
    spec: Synthetic, seed: int, traffic: int, nonce: str, *, context: WorkloadContext = NOWHERE
) -> "SyntheticTape":
    """The sessions of the plan; prompts that do not fit the target and models that it does not serve are errors
    here."""
    tape = SyntheticTape(spec, seed, traffic, nonce, context)
    _check_context(spec, context)
    return tape


class SyntheticTape:
    """A function from an index to a session. The first `nonce_tokens` tokens are new in each run, so that no prompt is
    in the server's prefix cache by accident; the same nonce gives the same tape."""

    def __init__(self, spec: Synthetic, seed: int, traffic: int, nonce: str, context: WorkloadContext) -> None:
        self.spec = spec
        self.writer = writer_of(spec.prompt_as, spec.vocabulary, spec.tokenizer, context)
        self._draws, self._nonce = Draws(seed, traffic), nonce.encode()
        self._lengths = _Lengths(spec)
        self._turns, self._think = quantile_of(spec.turns), pause_quantile(spec.think)
        self._models = list(spec.models)
        self._model = picker(list(spec.models.values())) if spec.models else None
        self._media, self._media_maker = spec.media, Maker(self._draws, self._nonce)
        self._shared_media = (spec.prefix.media if spec.prefix else None) or Media()
        self._with_media = bool(self._media or self._shared_media)
        plain = not self._with_media and spec.tools is None and spec.documents is None
        self._simple = spec.turns.most == 1 and plain
        self._always = _Chosen(*[0.5] * len(_Chosen._fields)) if self._simple and _leaves_no_choice(spec) else None
        self._prefixes: Prefixes | None = None
        if spec.prefix is not None:
            longest = longest_prompt(spec.prefix, self._lengths.longest_input)
            self._prefixes = Prefixes(spec.prefix, self._draws, nonce, spec.nonce_tokens, longest)

    def __call__(self, index: int) -> Session:
        if self.spec.count is not None:
            index %= self.spec.count
        chosen = self._always or self._choose(index, 0)
        if self._simple:
            tokens, output, random = self._opening(index, chosen)
            headers = self._headers(index, chosen)
            return Session(
                [Request(self.writer.write(random), output, tokens, body=self._body(chosen), headers=headers)]
            )
        return self._session(index, chosen)

    def primes(self) -> Iterator[Request]:
        """Requests to send once before the load: the complete shared prefixes, for each model in use."""
        for beginning in self._prefixes.primes() if self._prefixes else ():
            written, tokens = self.writer.write(beginning), len(beginning) + self.writer.added
            for body in [{"model": name} for name in self._models] or [{}]:
                yield Request(written, 1, tokens, body=body)

    def _choose(self, index: int, turn: int) -> _Chosen:
        return _Chosen._make(self._draws.uniforms(Purpose.CHOICES, index, turn, len(_Chosen._fields)))

    def _body(self, chosen: _Chosen) -> dict[str, Any]:
        return {} if self._model is None else {"model": self._models[self._model(chosen.model)]}

    def _headers(self, index: int, chosen: _Chosen) -> dict[str, str]:
        """The header with the number of the group, if the plan names one."""
        if self._prefixes is None or self._prefixes.spec.header is None:
            return {}
        return {self._prefixes.spec.header: f"{self._prefixes.place(index, chosen.group)[0]:016x}"}

    def _opening(self, index: int, chosen: _Chosen) -> tuple[int, int | None, Numbers]:
        """The first prompt: its length, the output length, and the random numbers for its text."""
        tokens, output = self._lengths.draw(chosen)
        if self._prefixes is None:
            return tokens, output, self._fresh_text(index, 0, self.writer.room(tokens))
        group, number = self._prefixes.place(index, chosen.group)
        if self._lengths.suffix is not None:
            tokens = self._prefixes.length(group) + self._lengths.suffix(chosen.input)
        taken = min(self._prefixes.taken(group, tokens, chosen.share), self.writer.room(tokens))
        rest = self.writer.room(tokens) - taken
        if not taken:
            return tokens, output, self._fresh_text(number, 0, rest)
        own = numbers(self._draws.key(Purpose.TEXT, number), rest)
        return tokens, output, np.concatenate([self._prefixes.beginning(group)[:taken], own])

    def _fresh_text(self, index: int, turn: int, tokens: int) -> Numbers:
        """A text whose first tokens are new in each run."""
        key = self._draws.key(Purpose.TEXT, index) + (b"%d" % turn if turn else b"")
        fresh = min(self.spec.nonce_tokens, tokens) if not turn else 0
        if not fresh:
            return numbers(key, tokens)
        return numbers_in_turn(self._nonce + key, fresh, key, tokens - fresh)

    # -- several turns, images ---------------------------------------------------------------------------------

    def _session(self, index: int, chosen: _Chosen) -> Session:
        count = self._turns(chosen.turns)
        ids = self.spec.prompt_as == "token_ids"
        make = self._turns_of_ids if ids else self._turns_of_messages
        turns = list(self._due(self._fitting(make(index, chosen, count))))
        live = not ids and self.spec.history == "live" and len(turns) > 1
        return Session(turns, live=live)

    def _fitting(self, turns: Iterator[Request]) -> Iterator[Request]:
        """The turns that fit the context; the first is always sent."""
        most = self.spec.max_context
        for number, request in enumerate(turns):
            whole = (request.input_tokens or 0) + (request.output_tokens or 0)
            if most is not None and number and whole > most:
                return
            yield request

    def _due(self, turns: Iterator[Request]) -> Iterator[Request]:
        """Turns, each due a fixed time after the previous one was due."""
        every = self.spec.turn_interval
        for number, request in enumerate(turns):
            request.due_s = None if every is None or not number else number * every
            yield request

    def _turns_of_ids(self, index: int, chosen: _Chosen, count: int) -> Iterator[Request]:
        """Turns of token ids; answers in the history are replaced by generated ids of the same number."""
        history: list[int] = []
        headers = self._headers(index, chosen)
        for turn in range(count):
            output, random, think_s, _ = self._turn(index, turn, chosen)
            history = [*history, *self._written(random)]
            yield Request(history, output, len(history), think_s, self._body(chosen), headers)
            history = history + self._written(self._answer(index, turn, output))

    def _turns_of_messages(self, index: int, chosen: _Chosen, count: int) -> Iterator[Request]:
        """Turns of messages; later turns share the message objects of earlier ones, so an answer is put into all of
        them."""
        history: list[Message] = []
        headers = self._headers(index, chosen)
        input_tokens: int | None = 0
        tools = self.spec.tools
        for turn in range(count):
            output, random, think_s, tokens = self._turn(index, turn, chosen)
            input_tokens = None if input_tokens is None else input_tokens + tokens
            content = self._content(index, turn, random, chosen)
            history = [*history, {"role": "user", "content": content}]
            prompt: Prompt = content if count == 1 and not self._with_media and tools is None else history
            counted = None if self._with_media or tools else input_tokens
            calls = tools is not None and turn in tools.turns
            length = None if calls else output
            yield Request(prompt, length, counted, think_s, self._body(chosen) | self._tool_fields(turn), headers)
            if tools is not None and calls:
                history = [*history, *self._tool_answer(index, turn, tools)]
                yield Request(history, output, None, 0.0, self._body(chosen) | self._tool_fields(None), headers)
            answer = self.writer.write(self._answer(index, turn, output)) if self.spec.history == "made" else ""
            history = [*history, {"role": "assistant", "content": answer}]
            input_tokens = None if input_tokens is None or output is None else input_tokens + output

    def _tool_fields(self, turn: int | None) -> dict[str, Any]:
        """Body fields for tools: only selected turns may, and must, call a tool."""
        tools = self.spec.tools
        calls = tools is not None and turn in tools.turns
        if tools is None or not (calls or tools.sent_with == "all"):
            return {}
        return {"tools": tools.definitions or [_QUERY], "tool_choice": tools.choice if calls else "none"}

    def _tool_answer(self, index: int, turn: int, tools: Tools) -> list[Message]:
        """A generated tool call for the history, and a matching tool output."""
        name = Document((tools.definitions or [_QUERY])[0]).section("function").text("name") or "get_data"
        function = {"name": name, "arguments": '{"query": "data"}'}
        call = {"id": f"call_{index}_{turn}", "type": "function", "function": function}
        (u,) = self._draws.uniforms(Purpose.ANSWER, index, turn, 1)
        key = self._draws.key(Purpose.ANSWER, index) + b"tool %d" % turn
        random = numbers(key, quantile_of(tools.response_tokens)(u))
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": self.writer.write(random)},
        ]

    def _turn(self, index: int, turn: int, chosen: _Chosen) -> tuple[int | None, Numbers, float, int]:
        """One turn: output length, text, pause before it, and the tokens that it adds to the prompt."""
        if turn == 0:
            tokens, output, random = self._opening(index, chosen)
            return output, random, 0.0, tokens
        again = self._choose(index, turn)
        tokens, output = self._lengths.later(again)
        return output, self._fresh_text(index, turn, tokens), self._think(again.think), tokens + self.writer.between

    def _answer(self, index: int, turn: int, output: int | None) -> Numbers:
        key = self._draws.key(Purpose.ANSWER, index) + b"%d" % turn
        return numbers(key, output or round(self.spec.mean_output or 64))

    def _written(self, random: Numbers) -> list[int]:
        written = self.writer.write(random)
        assert isinstance(written, list)
        return written

    def _content(self, index: int, turn: int, random: Numbers, chosen: _Chosen) -> Any:
        if self.spec.documents is not None:
            return self._query(random, self.spec.documents)
        text = self.writer.write(random)
        if not self._with_media or turn:
            return text
        own = self._media_maker.of(self._media, index)
        if self._prefixes is None:
            return placed_in(text, own)
        group, _ = self._prefixes.place(index, chosen.group)
        shared = self._media_maker.of(self._shared_media, group, shared=True)
        beginning = min(self._prefixes.length(group) / max(len(random), 1), 1.0)
        return placed_in(text, own, shared, beginning)

    def _query(self, random: Numbers, documents: int) -> str:
        """A query and documents of the same length, one per line, for the rerank API."""
        lengths = [self.writer.write(random)]
        key = random.tobytes()
        lengths += [self.writer.write(numbers(key + b"%d" % at, len(random))) for at in range(documents)]
        return "\n".join(map(str, lengths))


_QUERY: Message = {
    "type": "function",
    "function": {
        "name": "get_data",
        "description": "Retrieve data from the system",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "The query"}},
            "required": ["query"],
        },
    },
}


def fixed_text(
    spec: FixedText, seed: int, traffic: int, _nonce: str, *, context: WorkloadContext = NOWHERE
) -> Callable[[int], Session]:
    """Sessions of one text with a number in it. Nothing is new per run, so a prefix cache may already contain it."""
    draws = Draws(seed, traffic)
    output = None if spec.output_tokens is None else quantile_of(spec.output_tokens)

    def session(index: int) -> Session:
        text = spec.text.replace("{index}", str(index)) * spec.repeat
        tokens = None if output is None else output(draws.uniforms(Purpose.ANSWER, index, 0, 1)[0])
        return Session([Request(text, tokens)])

    return session


def _leaves_no_choice(spec: Synthetic) -> bool:
    """Whether only the text is random."""
    lengths = (spec.input_tokens, *([spec.output_tokens] if spec.output_tokens else []))
    drawn = spec.pairs or spec.prefix or spec.models
    return not drawn and all(length.type == "fixed" for length in lengths)


class _Lengths:
    """Input and output lengths, drawn independently or as pairs."""

    def __init__(self, spec: Synthetic) -> None:
        self._input = quantile_of(spec.input_tokens)
        self._output = None if spec.output_tokens is None else quantile_of(spec.output_tokens)
        self._pairs = [(pair.input, pair.output) for pair in spec.pairs]
        self._pair = picker([pair.weight for pair in spec.pairs]) if spec.pairs else None
        apart = spec.prefix.suffix_tokens if spec.prefix else None
        self.suffix: Quantile | None = None if apart is None else quantile_of(apart)
        self.longest_input = max((pair.input for pair in spec.pairs), default=longest_of(spec.input_tokens))
        added = spec.turn_tokens or apart
        self._added: Quantile | None = None if added is None else quantile_of(added)
        self.longest_added = self.longest_input if added is None else longest_of(added)
        outputs = spec.output_tokens
        self.longest_output = max((pair.output for pair in spec.pairs), default=longest_of(outputs) if outputs else 1)

    def draw(self, chosen: _Chosen) -> tuple[int, int | None]:
        if self._pair is not None:
            return self._pairs[self._pair(chosen.input)]
        return self._input(chosen.input), None if self._output is None else self._output(chosen.output)

    def later(self, chosen: _Chosen) -> tuple[int, int | None]:
        """Input tokens that a later turn adds, and its requested output."""
        tokens, output = self.draw(chosen)
        return (tokens if self._added is None else self._added(chosen.input)), output


def _check_context(spec: Synthetic, context: WorkloadContext) -> None:
    """Check that prompts and answers fit the model's context; nothing is shortened."""
    room, lengths = context.max_model_len, _Lengths(spec)
    turns = longest_of(spec.turns)
    longest = longest_prompt(spec.prefix, lengths.longest_input)
    whole = longest + lengths.longest_output + (turns - 1) * (lengths.longest_added + lengths.longest_output)
    if spec.max_context is not None:  # sessions end before the limit, but the first turn is always sent
        whole = min(whole, max(spec.max_context, longest + lengths.longest_output))
    if room is not None and whole > room:
        several = f" in {turns} turns" if turns > 1 else ""
        raise PlanError(
            f"workload: prompt and answer can have up to {whole} tokens{several}, the model's context is {room}",
            "request fewer tokens, or set a maximum: workload.input_tokens.max",
        )


# -- batches for an engine without a server ----------------------------------------------------------------------------

# Input of an engine without a server: batches of random token ids, and the requests of a workload in sequence.

VOCABULARY = 10_000  # token ids are drawn below this number, as in `vllm bench`; models have more


def random_batches(
    batch_size: int, input_len: int, output_len: int, seed: int, vocabulary: int | None
) -> Callable[[int], list[list[int]]]:
    """A function from a number to a batch; every number, seed and shape gives new prompts, so caches do not hit."""
    write = ids_writer(min(vocabulary or VOCABULARY, VOCABULARY))

    def batch(number: int) -> list[list[int]]:
        key = f"offline {seed} {number} {batch_size} {input_len} {output_len}".encode()
        ids = write(numbers(key, batch_size * input_len))
        return [ids[at * input_len : (at + 1) * input_len] for at in range(batch_size)]

    return batch


def requests_of(workload: Workload, first: int, wanted: int) -> list[Request]:
    """A number of requests, starting at a session. If a session needs live answers, only its first turn is used."""
    requests: list[Request] = []
    session = first
    while len(requests) < wanted:
        made = workload(session)
        requests += made.turns[:1] if made.live else made.turns
        session += 1
    if any(request.output_tokens is None for request in requests[:wanted]):
        text = "workload: output lengths are missing; an engine without a server needs them"
        raise PlanError(text, "give --output-len")
    return requests[:wanted]


OfflinePrompt = list[int] | str | list[dict[str, Any]]


def as_batch(requests: list[Request], chat: bool = False) -> tuple[list[OfflinePrompt], list[int]]:
    """Prompts as text or token ids, and the output lengths. Messages are converted to text unless the engine accepts
    chats."""
    prompts = [_messages(request) if chat else _plain(request) for request in requests]
    return prompts, [request.output_tokens or 1 for request in requests]


def _messages(request: Request) -> OfflinePrompt:
    prompt = request.prompt
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    messages = [part for part in prompt if isinstance(part, dict)]
    return messages or [part for part in prompt if isinstance(part, int)]


def _plain(request: Request) -> list[int] | str:
    prompt = request.prompt
    if isinstance(prompt, str):
        return prompt
    messages = [part for part in prompt if isinstance(part, dict)]
    return chat_text(messages) if messages else [part for part in prompt if isinstance(part, int)]
