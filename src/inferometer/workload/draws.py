"""Random draws that are a pure function of (seed, traffic, index): no state, no order, the same on every machine."""

import hashlib
import struct
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint32]  # one for each token

_KEY = struct.Struct("<QIIQ")  # seed, traffic, purpose, index
_FRACTION = 2.0**-53


class Purpose(IntEnum):
    """Keeps the draws of a seed apart; arrivals have 1."""

    TEXT = 2
    CHOICES = 3
    GROUP_TEXT = 4
    GROUP_LENGTH = 5
    ANSWER = 6
    PIXELS = 7
    ORDER = 8
    VERSES = 9
    BLOCK = 10


class Draws:
    """The draws of one traffic class."""

    def __init__(self, seed: int, traffic: int) -> None:
        self._seed, self._traffic = seed % 2**64, traffic

    def key(self, purpose: Purpose, index: int) -> bytes:
        return _KEY.pack(self._seed, self._traffic, purpose, index)

    def uniforms(self, purpose: Purpose, index: int, turn: int, count: int) -> list[float]:
        """Numbers in (0, 1), 53 bits each."""
        random = hashlib.shake_128(self.key(purpose, index) + turn.to_bytes(4, "little")).digest(8 * count)
        return [((each >> 11) + 0.5) * _FRACTION for each in struct.unpack(f"<{count}Q", random)]


def numbers(key: bytes, count: int) -> Numbers:
    """SHAKE needs no seeding and can be cut anywhere: 10 us for the 4 kB of a prompt of 1000 tokens."""
    return np.frombuffer(hashlib.shake_128(key).digest(4 * count), "<u4")
