"""Writes the tokens of a step. Plain ones, nearly all, go out by one call into the compiled reader, and their bytes are
made before their time has come: sends that follow each other at once find their readers awake and cost half."""

from array import array
from typing import NamedTuple

from inferometer.simulator.answers import Part
from inferometer.simulator.engine import Batch
from inferometer.wire.compiled import compiled
from inferometer.wire.reactor import now


class Row(NamedTuple):
    """Who gets a token in a step: `parts` with their sockets and chunks, and those that take more than a send."""

    batch: Batch
    step: int  # of the batch
    parts: list[Part]
    fds: "array[int]"
    chunks: list[bytes]
    others: list[Part]


class StepWriter:
    """Keeps the row of the next step ready, as long as nobody leaves."""

    def __init__(self) -> None:
        self._reader = compiled()
        self._ahead: Row | None = None

    def write(self, batch: Batch, index: int) -> int:
        """One token for each that decodes, and the first one for each whose prompt is computed; returns when the first
        was written."""
        row, self._ahead = self._ahead, None
        if row is None or row.batch is not batch or row.step != index:
            row = self._row(batch, index)
        first_at = now()
        if row.parts:
            first_at = self._send(row)
        for part in row.others:
            if not part.sequence.aborted:  # its client may have left a moment ago
                part.token()
        return first_at

    def prepare(self, batch: Batch, index: int) -> None:
        """The step begins: make what will be sent when it ends."""
        if self._reader is not None:
            self._ahead = self._row(batch, index)

    def forget(self) -> None:
        """Somebody left: their socket may soon be another's."""
        self._ahead = None

    def _row(self, batch: Batch, index: int) -> Row:
        row = Row(batch, index, [], array("i"), [], [])
        for part in _parts(batch):
            chunk = part.plain_chunk() if self._reader is not None else None
            fd = -1 if chunk is None else part.answer.reply.fileno()
            if chunk is None or fd < 0:
                row.others.append(part)
            else:
                row.parts.append(part)
                row.fds.append(fd)
                row.chunks.append(chunk)
        return row

    def _send(self, row: Row) -> int:
        assert self._reader is not None
        stamps, sizes = self._reader.send_each(row.fds, row.chunks)
        instants = memoryview(stamps).cast("q")
        for part, at in zip(row.parts, instants, strict=False):  # the last instant is after all sends
            part.written(at)
        if sizes:
            self._send_rest(row, memoryview(sizes).cast("q"))
        return instants[0]

    def _send_rest(self, row: Row, sizes: "memoryview[int]") -> None:
        """What a socket did not take waits in the reply's buffer; a client that is gone is noticed there."""
        for part, chunk, size in zip(row.parts, row.chunks, sizes, strict=True):
            if size < len(chunk):
                part.answer.reply.raw(chunk[size:])


def _parts(batch: Batch) -> list[Part]:
    parts = [sequence.waiter for sequence in batch.decodes if not sequence.aborted]
    parts += [
        sequence.waiter
        for sequence, tokens in batch.chunks
        if sequence.computed + tokens == sequence.length and not sequence.aborted
    ]
    return parts
