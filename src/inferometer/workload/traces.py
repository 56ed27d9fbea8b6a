"""Requests as they were recorded elsewhere: their times, lengths, sessions, and what their prompts share.

Texts are not in these files (but where a column has them): they are made up, as long as recorded. A hash id always
gives the same block of tokens, and a turn begins with the turns before it, so that a server's prefix cache finds in
them what it found in the recorded traffic.
"""

from functools import lru_cache

import numpy as np

from inferometer.errors import DataError
from inferometer.plan.workloads.trace import TraceFile
from inferometer.workload.columns import MISSING
from inferometer.workload.draws import Draws, Numbers, Purpose, numbers
from inferometer.workload.recording import NANOSECONDS, Recording, recording_of
from inferometer.workload.session import Prompt, Request, Session, Workload, WorkloadContext
from inferometer.workload.writer import Writer, writer_of

KEPT_BLOCKS = 4096  # of 512 numbers each: 8 MB


def trace(spec: TraceFile, seed: int, traffic: int, nonce: str, context: WorkloadContext | None = None) -> Workload:
    """A session for each recorded one, in their order; behind the last it begins again, with other words."""
    known = context or WorkloadContext()
    recording = recording_of(spec, known.note)
    for note in recording.notes:
        known.note(note)
    _check_fits(recording, known.max_model_len)
    writer = writer_of(spec.prompt_as, spec.vocabulary, spec.tokenizer, known)
    return _Replay(recording, writer, Draws(seed, traffic), nonce.encode(), spec).session


def _check_fits(recording: Recording, context_tokens: int | None) -> None:
    """A prompt that the model cannot hold is an error of the plan, not thousands of failed requests."""
    if context_tokens is None:
        return
    wanted = np.maximum(recording.input_tokens, 0) + np.maximum(recording.output_tokens, 1)
    too_long = np.flatnonzero(wanted > context_tokens)
    if len(too_long):
        first = int(too_long[0])
        more = f" (and {len(too_long) - 1:,} more rows)" if len(too_long) > 1 else ""
        room = context_tokens - int(recording.output_tokens.max())
        hint = f"leave such rows out with --set workload.max_tokens={room}, or " if room > 0 else ""
        raise DataError(
            f"{recording.where(first)} needs {wanted[first]:,} tokens with its answer, the model's context has "
            f"{context_tokens:,}{more}",
            f"{hint}serve the model with a longer context",
        )


class _Replay:
    """What is needed to make any session of a recording."""

    def __init__(self, recording: Recording, writer: Writer, draws: Draws, nonce: bytes, spec: TraceFile) -> None:
        self._recording = recording
        self._writer = writer
        self._draws = draws
        self._nonce = nonce if spec.nonce_tokens else b""
        self._nonce_tokens = spec.nonce_tokens
        self._block_tokens: int = getattr(spec, "block_tokens", 0)
        self._block = lru_cache(KEPT_BLOCKS)(self._make_block)

    def session(self, index: int) -> Session:
        lap, number = divmod(index, len(self._recording))
        start, end = (int(edge) for edge in self._recording.sessions[number : number + 2])
        turns = [self._request(request, start, lap) for request in range(start, end)]
        return Session(turns, at_s=turns[0].at_s)

    def _request(self, request: int, first: int, lap: int) -> Request:
        recording = self._recording
        output = int(recording.output_tokens[request])
        length = int(recording.input_tokens[request])
        return Request(
            self._prompt(request, first, lap),
            None if output == MISSING else output,
            None if length == MISSING else length,
            think_s=self._think_s(request) if request > first else 0.0,
            at_s=int(recording.at[request]) / NANOSECONDS,
        )

    def _think_s(self, request: int) -> float:
        """From the end of the answer before, where the recording says how long that took; else from its start."""
        recording = self._recording
        since = int(recording.at[request] - recording.at[request - 1])
        return max(since - max(int(recording.elapsed[request - 1]), 0), 0) / NANOSECONDS

    def _prompt(self, request: int, first: int, lap: int) -> Prompt:
        if self._recording.prompt_column is not None:
            return str(self._recording.rows[int(self._recording.row[request])][self._recording.prompt_column])
        tokens = self._writer.room(int(self._recording.input_tokens[request]))
        if self._recording.hash_ends[request + 1] > self._recording.hash_ends[request]:
            return self._writer.write(self._blocks(request, tokens, lap))
        return self._writer.write(self._conversation(self._began(request, first), tokens, lap))

    def _began(self, request: int, first: int) -> int:
        """The turn that the conversation in this prompt began with. One that is too short to hold the turn before it
        and its answer holds no history."""
        recording = self._recording
        while request > first:
            before = int(recording.input_tokens[request - 1]) + max(int(recording.output_tokens[request - 1]), 0)
            if recording.input_tokens[request] < before:
                break
            request -= 1
        return request

    def _conversation(self, began: int, tokens: int, lap: int) -> Numbers:
        """The beginning of the conversation's words; the very first are new in each run."""
        key = self._draws.key(Purpose.TEXT, began) + lap.to_bytes(4, "little")
        fresh = min(self._nonce_tokens, tokens)
        return np.concatenate([numbers(self._nonce + key, fresh), numbers(key, tokens - fresh)])

    def _blocks(self, request: int, tokens: int, lap: int) -> Numbers:
        """The blocks of its hash ids, the last one cut; a prompt that is longer goes on with words of its own."""
        start, end = (int(edge) for edge in self._recording.hash_ends[request : request + 2])
        blocks = [self._block(int(hash_id), lap) for hash_id in self._recording.hash_ids[start:end]]
        known = np.concatenate(blocks)[:tokens]
        if len(known) == tokens:
            return known
        return np.concatenate([known, self._conversation(request, tokens - len(known), lap)])

    def _make_block(self, hash_id: int, lap: int) -> Numbers:
        """New in each run as a whole: what is shared is shared inside the run."""
        key = self._draws.key(Purpose.BLOCK, hash_id % 2**64) + lap.to_bytes(4, "little")
        return numbers(self._nonce + key, self._block_tokens)
