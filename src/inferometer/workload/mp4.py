"""Made-up videos without a video library: JPEG frames in an MP4 file (Motion JPEG, ISO/IEC 14496-12 and -14). Every
frame is a key frame, so that decoding any of them costs the same."""

import struct
from collections.abc import Sequence

_MATRIX = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
_MOTION_JPEG = 0x6C  # object type of ISO/IEC 10918-1 in an `esds` box
_VISUAL = 0x11  # stream type 4, not upstream, and a bit that is always set
_SCALE = 1000  # ticks per second


def mp4(frames: Sequence[bytes], width: int, height: int, rate: float) -> bytes:
    """A file with one video track of these JPEG images, one after the other."""
    kind = _box(b"ftyp", b"isom", struct.pack(">I", 0x200), b"isommp41")
    data = b"".join(frames)
    offset = len(kind) + 8
    tick = max(1, round(_SCALE / rate))
    return kind + _box(b"mdat", data) + _movie(frames, (width, height), tick, offset)


def _movie(frames: Sequence[bytes], size: tuple[int, int], tick: int, offset: int) -> bytes:
    duration = tick * len(frames)
    header = struct.pack(">IIIIIH10x", 0, 0, _SCALE, duration, 0x10000, 0x100) + _MATRIX + bytes(24)
    track = struct.pack(">IIIII8xHHHH", 0, 0, 1, 0, duration, 0, 0, 0, 0) + _MATRIX
    track += struct.pack(">II", size[0] << 16, size[1] << 16)
    media = _box(
        b"mdia",
        _full(b"mdhd", struct.pack(">IIIIHH", 0, 0, _SCALE, duration, 0x55C4, 0)),
        _full(b"hdlr", struct.pack(">I4s12x", 0, b"vide"), b"video\x00"),
        _box(
            b"minf",
            _full(b"vmhd", bytes(8), flags=1),
            _box(b"dinf", _full(b"dref", struct.pack(">I", 1), _full(b"url ", flags=1))),
            _samples(frames, size, tick, offset),
        ),
    )
    return _box(
        b"moov", _full(b"mvhd", header, struct.pack(">I", 2)), _box(b"trak", _full(b"tkhd", track, flags=3), media)
    )


def _samples(frames: Sequence[bytes], size: tuple[int, int], tick: int, offset: int) -> bytes:
    entry = bytes(6) + struct.pack(">H16xHHIII", 1, *size, 0x480000, 0x480000, 0) + struct.pack(">H32xHh", 1, 24, -1)
    count, lengths = len(frames), [len(frame) for frame in frames]
    return _box(
        b"stbl",
        _full(b"stsd", struct.pack(">I", 1), _box(b"mp4v", entry, _full(b"esds", _description(max(lengths))))),
        _full(b"stts", struct.pack(">III", 1, count, tick)),
        _full(b"stsc", struct.pack(">IIII", 1, 1, count, 1)),
        _full(b"stsz", struct.pack(f">II{count}I", 0, count, *lengths)),
        _full(b"stco", struct.pack(">II", 1, offset)),
    )


def _description(largest: int) -> bytes:
    """An elementary stream of JPEG images: descriptors 3, 4 and 6, each with its length."""
    config = struct.pack(">BB3sII", _MOTION_JPEG, _VISUAL, largest.to_bytes(3, "big"), 0, 0)
    inner = struct.pack(">BB", 4, len(config)) + config + b"\x06\x01\x02"
    return struct.pack(">BBHB", 3, 3 + len(inner), 1, 0) + inner


def _box(kind: bytes, *parts: bytes) -> bytes:
    whole = b"".join(parts)
    return struct.pack(">I", 8 + len(whole)) + kind + whole


def _full(kind: bytes, *parts: bytes, flags: int = 0) -> bytes:
    return _box(kind, struct.pack(">I", flags), *parts)
