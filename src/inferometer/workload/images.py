"""Made-up images as data URLs, without an imaging library: PNG through zlib, and the simplest JPEG there is."""

import base64
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_FILTER_NONE = 0
_FAST = 1  # zlib level: noise does not compress, a gradient does at any level


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn."""

    width: int
    height: int
    format: str
    content: str


def image_url(spec: Picture, key: bytes) -> str:
    """An image of the asked size that no other key gives, as a chat message holds it."""
    data = png(spec, key) if spec.format == "png" else jpeg(spec, key)
    return f"data:image/{spec.format};base64,{base64.b64encode(data).decode()}"


def pixels(spec: Picture, key: bytes) -> Bytes:
    """Rows of RGB. A gradient has a few pixels of noise, so that no two are equal and no encoder cache helps."""
    draw = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16].ljust(16), "little")))
    if spec.content == "noise":
        return draw.integers(0, 256, (spec.height, spec.width, 3), np.uint8)
    if spec.content == "blank":
        return np.full((spec.height, spec.width, 3), 255, np.uint8)
    across = np.linspace(0, 255, spec.width, dtype=np.float32)
    down = np.linspace(0, 255, spec.height, dtype=np.float32)
    tints = draw.random((3, 2), np.float32)
    made = np.stack([down[:, None] * a + across[None, :] * b for a, b in tints], axis=2) / 2
    image = made.astype(np.uint8)
    image[:1, : min(16, spec.width)] = draw.integers(0, 256, (1, min(16, spec.width), 3), np.uint8)
    return image


# -- PNG -----------------------------------------------------------------------------------------------------


def png(spec: Picture, key: bytes) -> bytes:
    """Eight bits of RGB, no filter."""
    rows = np.empty((spec.height, 1 + 3 * spec.width), np.uint8)
    rows[:, 0] = _FILTER_NONE
    rows[:, 1:] = pixels(spec, key).reshape(spec.height, -1)
    header = struct.pack(">IIBBBBB", spec.width, spec.height, 8, 2, 0, 0, 0)
    level = 0 if spec.content == "noise" else _FAST
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), level)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# -- JPEG: baseline, grey, one value for each square of 8 x 8 pixels ---------------------------------------------

_QUANTUM = 8  # a DC coefficient of 1 is one grey level: 8 x mean / 8
_DC_LENGTHS = bytes([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0])  # ITU T.81, table K.3
_DC_CODES = (  # size of a difference -> (code, bits)
    (0b00, 2), (0b010, 3), (0b011, 3), (0b100, 3), (0b101, 3), (0b110, 3),
    (0b1110, 4), (0b11110, 5), (0b111110, 6), (0b1111110, 7), (0b11111110, 8), (0b111111110, 9),
)  # fmt: skip
_AC_LENGTHS = bytes([1] + [0] * 15)  # a single code: the end of a block
_END_OF_BLOCK = (0b0, 1)


def jpeg(spec: Picture, key: bytes) -> bytes:
    """A mosaic: decoders see an image of the asked size; the file is small."""
    squares = pixels(spec, key)[::8, ::8].mean(axis=2).astype(int).ravel().tolist()
    frame = struct.pack(">BHHB", 8, spec.height, spec.width, 1) + bytes([1, 0x11, 0])
    parts = (
        (0xE0, b"JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"),
        (0xDB, bytes([0]) + bytes([_QUANTUM] * 64)),
        (0xC0, frame),
        (0xC4, bytes([0x00]) + _DC_LENGTHS + bytes(range(12))),
        (0xC4, bytes([0x10]) + _AC_LENGTHS + bytes([0])),
        (0xDA, bytes([1, 1, 0x00, 0, 63, 0])),
    )
    headers = b"".join(struct.pack(">BBH", 0xFF, mark, len(data) + 2) + data for mark, data in parts)
    return b"\xff\xd8" + headers + _packed(_bits(squares)) + b"\xff\xd9"


def _bits(squares: list[int]) -> Iterator[tuple[int, int]]:
    """(value, bits) of each square: the difference to the one before, then the end of the block."""
    before = 128
    for level in squares:
        difference, before = level - before, level
        size = abs(difference).bit_length()
        yield _DC_CODES[size]
        if size:
            yield (difference if difference > 0 else difference + (1 << size) - 1), size
        yield _END_OF_BLOCK


def _packed(bits: Iterator[tuple[int, int]]) -> bytes:
    """The bits in a row, filled up with ones; a byte of ones is followed by a zero, so that it is no mark."""
    whole = "".join(f"{value:0{size}b}" for value, size in bits)
    whole += "1" * (-len(whole) % 8)
    return int(whole, 2).to_bytes(len(whole) // 8, "big").replace(b"\xff", b"\xff\x00")
