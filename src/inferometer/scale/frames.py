"""The messages between a worker process and its parent.

To the worker: its job as one line of JSON, then `start <ns>` when all are ready; end of file means that the parent is
gone. From the worker: frames of a length and msgpack.
"""

import struct
from collections.abc import Callable
from typing import Any, Literal, get_type_hints

import msgspec

from inferometer import errors
from inferometer.load.progress import Progress

Watch = Callable[[Progress], None]  # called a few times a second
Start = Callable[[], int]  # called once when the shard is ready; returns the start time
ShardFunction = Callable[[Any, Watch, Start], Any]  # runs a shard: from its job to its report

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode


class Frame(msgspec.Struct, array_like=True):
    kind: Literal["ready", "progress", "report", "error"]
    payload: msgspec.Raw = msgspec.Raw(b"\xc0")


class ShardError(msgspec.Struct, frozen=True):
    """An error that ended a shard, in a serializable form."""

    kind: str  # name of the class
    message: str
    hint: str | None = None

    def as_exception(self) -> BaseException:
        """The error as an exception."""
        if self.kind == "KeyboardInterrupt":
            return KeyboardInterrupt()
        kind = getattr(errors, self.kind, errors.InferometerError)
        return (
            kind(self.message, self.hint) if kind is not errors.MissingExtra else errors.InferometerError(self.message)
        )


_decoder = msgspec.msgpack.Decoder(Frame)


def packed(kind: Literal["ready", "progress", "report", "error"], content: Any = None) -> bytes:
    frame = _encode(Frame(kind, msgspec.Raw(_encode(content))))
    return _LENGTH.pack(len(frame)) + frame


class Unpacker:
    """Splits a byte stream, received in arbitrary pieces, into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        frame = _decoder.decode(bytes(self._buffer[_LENGTH.size : end]))
        del self._buffer[:end]
        return frame


def name_of(function: ShardFunction) -> str:
    """The name by which a worker imports a function."""
    return f"{function.__module__}:{function.__qualname__}"


def job_and_report_types(function: ShardFunction) -> tuple[Any, Any]:
    """The job and report types of a shard function, from its annotations, because messages are plain data."""
    hints = get_type_hints(function)
    report = hints.pop("return", Any)
    return next(iter(hints.values()), Any), report
