"""Images, sound and videos of a dataset's rows as parts of a chat message: URLs as they are, files as data."""

import base64
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inferometer.documents.files import file_bytes
from inferometer.plan.workloads.recorded import MEDIA
from inferometer.plan.workloads.synthetic import Images, Media, Sounds, Videos, VideoSize
from inferometer.workload.draws import Draws, Purpose, numbers, picker, quantile_of
from inferometer.workload.rows import MISSING, RowError, reached

Json = dict[str, Any]

_TYPES = (  # by the first bytes of a file
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "audio/wav"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
)
MOST_BYTES = 256 << 20  # of a file: it is sent as text in one request
_USUAL = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}


def media_parts(row: Json, columns: Mapping[str, str]) -> list[Json]:
    """The message parts in the media columns, in the order image, audio, video. A column whose name ends in a question
    mark is optional."""
    parts = []
    for kind in MEDIA:
        if kind not in columns:
            continue
        name = columns[kind].removesuffix("?")
        value = reached(row, name)
        if value is MISSING or value is None or value == "":
            if name != columns[kind]:
                continue
            raise RowError(f"has no {name!r}")
        values = value if isinstance(value, list) else [value]
        parts += [_PARTS[kind](one) for one in values]
    return parts


def _image(value: Any) -> Json:
    return {"type": "image_url", "image_url": {"url": _url("image", value)}}


def _video(value: Any) -> Json:
    return {"type": "video_url", "video_url": {"url": _url("video", value)}}


def _audio(value: Any) -> Json:
    if isinstance(value, Mapping) and value.get("array") is not None:
        data, kind = wav(np.asarray(value["array"], np.float64), int(value.get("sampling_rate") or 16000)), "audio/wav"
    else:
        data, kind = _bytes("audio", value)
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": _format(kind)}}


def _format(kind: str) -> str:
    return {"audio/mpeg": "mp3"}.get(kind, kind.partition("/")[2])


def _url(kind: str, value: Any) -> str:
    if isinstance(value, str) and value.startswith(("http://", "https://", "data:")):
        return value
    data, media_type = _bytes(kind, value)
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def _bytes(kind: str, value: Any) -> tuple[bytes, str]:
    """The bytes and type of a file, which is given directly or by path."""
    data = value.get("bytes") if isinstance(value, Mapping) else value
    if data is None and isinstance(value, Mapping):
        data = value.get("path")
    if isinstance(data, str):
        try:
            data = file_bytes(data.removeprefix("file://"), MOST_BYTES)
        except OSError as error:
            raise RowError(f"has {kind} {data!r}, which cannot be read: {error.strerror}") from None
        except ValueError as error:  # too large, endless, or with a zero byte in its name
            raise RowError(f"has {kind} {data!r}, which cannot be read: {error}") from None
    if not isinstance(data, bytes) or not data:
        raise RowError(f"has no {kind} that can be sent: neither a URL, a path nor bytes")
    named = next((media_type for start, media_type in _TYPES if data.startswith(start)), _USUAL[kind])
    return data, named


def wav(samples: "np.ndarray[Any, np.dtype[np.float64]]", rate: int) -> bytes:
    """Samples between -1 and 1 as a WAV file: 16 bits, one channel."""
    data: bytes = (np.clip(samples, -1.0, 1.0) * 32767).astype("<i2").tobytes()
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16)
    parts = (b"RIFF", struct.pack("<I", 36 + len(data)), b"WAVEfmt ", form, b"data", struct.pack("<I", len(data)), data)
    return b"".join(parts)


_PARTS: dict[str, Callable[[Any], Json]] = {"image": _image, "audio": _audio, "video": _video}


Bytes = NDArray[np.uint8]

_FILTER_NONE = 0
_FAST = 1  # zlib level: noise does not compress, a gradient does at any level


@dataclass(frozen=True, slots=True)
class Picture:
    """Size and content of an image."""

    width: int
    height: int
    format: str
    content: str


def image_url(spec: Picture, key: bytes) -> str:
    """An image of the requested size, unique per key, as a data URL for a chat message."""
    data = png(spec, key) if spec.format == "png" else jpeg(spec, key)
    return f"data:image/{spec.format};base64,{base64.b64encode(data).decode()}"


def pixels(spec: Picture, key: bytes) -> Bytes:
    """Rows of RGB pixels. Gradients and single colors get a few pixels of noise, so that no two images are equal and
    encoder caches do not help."""
    draw = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16].ljust(16), "little")))
    if spec.content == "noise":
        return draw.integers(0, 256, (spec.height, spec.width, 3), np.uint8)
    if spec.content == "blank":
        return np.full((spec.height, spec.width, 3), 255, np.uint8)
    if spec.content == "solid":
        image = np.full((spec.height, spec.width, 3), draw.integers(0, 256, 3, np.uint8), np.uint8)
    else:
        image = _gradient(spec, draw.random((3, 2), np.float32))
    image[:1, : min(16, spec.width)] = draw.integers(0, 256, (1, min(16, spec.width), 3), np.uint8)
    return image


def _gradient(spec: Picture, tints: NDArray[np.float32]) -> Bytes:
    across = np.linspace(0, 255, spec.width, dtype=np.float32)
    down = np.linspace(0, 255, spec.height, dtype=np.float32)
    made = np.stack([down[:, None] * a + across[None, :] * b for a, b in tints], axis=2) / 2
    return made.astype(np.uint8)


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
    """A mosaic: a small file that decodes to an image of the requested size."""
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
    """(value, bits) of each square: the difference to the previous one, then the end of the block."""
    before = 128
    for level in squares:
        difference, before = level - before, level
        size = abs(difference).bit_length()
        yield _DC_CODES[size]
        if size:
            yield (difference if difference > 0 else difference + (1 << size) - 1), size
        yield _END_OF_BLOCK


def _packed(bits: Iterator[tuple[int, int]]) -> bytes:
    """The packed bits, padded with ones; a 0xFF byte is followed by a zero, so that it is not a marker."""
    whole = "".join(f"{value:0{size}b}" for value, size in bits)
    whole += "1" * (-len(whole) % 8)
    return int(whole, 2).to_bytes(len(whole) // 8, "big").replace(b"\xff", b"\xff\x00")


_MATRIX = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
_MOTION_JPEG = 0x6C  # object type of ISO/IEC 10918-1 in an `esds` box
_VISUAL = 0x11  # stream type 4, not upstream, and a bit that is always set
_SCALE = 1000  # ticks per second


def mp4(frames: Sequence[bytes], width: int, height: int, rate: float) -> bytes:
    """An MP4 file with one video track of these JPEG images."""
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


Part = dict[str, Any]


class Placed(NamedTuple):
    """Message parts at a relative position in the text, 0 to 1."""

    position: float
    parts: list[Part]


class Maker:
    """Draws number, sizes and content of media; the nonce makes them new in each run."""

    def __init__(self, draws: Draws, nonce: bytes) -> None:
        self._draws, self._nonce = draws, nonce

    def of(self, media: Media, index: int, shared: bool = False) -> list[Placed]:
        """The media of a prompt, or of a group of prompts."""
        lane = 20 if shared else 0  # separate draws: group 3 is not prompt 3
        placed = []
        if media.images is not None:
            parts = [
                part
                for key, at in self._items(media.images, index, lane)
                for part in _made_image(media.images, key, at)
            ]
            placed.append(Placed(media.images.position or 0.0, parts))
        if media.videos is not None:
            videos = self._items(media.videos, index, lane + 2)
            parts = [part for key, at in videos for part in _made_video(media.videos, key, at)]
            placed.append(Placed(media.videos.position or 0.0, parts))
        if media.audio is not None:
            parts = [_sound(media.audio, key, at) for key, at in self._items(media.audio, index, lane + 4)]
            placed.append(Placed(media.audio.position or 0.0, parts))
        return placed

    def _items(self, spec: Images | Videos | Sounds, index: int, lane: int) -> Iterator[tuple[bytes, int]]:
        """The content key and size index of each item."""
        (u,) = self._draws.uniforms(Purpose.PIXELS, index, lane, 1)
        count = quantile_of(spec.count)(u)
        choose = picker([option.weight for option in spec.options])
        own = b"" if lane == 0 else b"lane %d " % lane
        for number, at in enumerate(self._draws.uniforms(Purpose.PIXELS, index, lane + 1, count) if count else ()):
            key = numbers(self._nonce + self._draws.key(Purpose.PIXELS, index) + own + b"%d" % number, 4)
            yield key.tobytes(), choose(at)


def _made_image(spec: Images, key: bytes, at: int) -> list[Part]:
    size = spec.options[at]
    return [_image_part(Picture(size.width, size.height, spec.format, spec.content), key)]


def _image_part(picture: Picture, key: bytes) -> Part:
    return {"type": "image_url", "image_url": {"url": image_url(picture, key)}}


def _made_video(spec: Videos, key: bytes, at: int) -> list[Part]:
    size: VideoSize = spec.options[at]
    keys = [numbers(key + b"%d" % frame, 4).tobytes() for frame in range(size.frames)]
    if spec.format != "mp4":
        picture = Picture(size.width, size.height, spec.format.removesuffix("_frames"), spec.content)
        return [_image_part(picture, one) for one in keys]
    picture = Picture(size.width, size.height, "jpeg", spec.content)
    data = mp4([jpeg(picture, one) for one in keys], size.width, size.height, spec.frames_per_second)
    return [{"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{base64.b64encode(data).decode()}"}}]


def _sound(spec: Sounds, key: bytes, at: int) -> Part:
    """Sound; by default soft noise, because many models cut silence off."""
    count = round(spec.options[at].duration * spec.sampling)
    draw = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16].ljust(16), "little")))
    samples = draw.uniform(-0.2, 0.2, count) if spec.content == "noise" else np.zeros(count)
    data = wav(samples, spec.sampling)
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}


def placed_in(text: Any, own: Sequence[Placed], shared: Sequence[Placed] = (), beginning: float = 0.0) -> list[Part]:
    """A message with media in its text: shared ones within its `beginning` (a share of the text), others after it."""
    scaled = [Placed(beginning * part.position, part.parts) for part in shared]
    scaled += [Placed(beginning + (1 - beginning) * part.position, part.parts) for part in own]
    words = str(text).split(" ")
    message: list[Part] = []
    before = 0
    for place in sorted((place for place in scaled if place.parts), key=lambda place: place.position):
        at = round(len(words) * place.position)
        if at > before:
            message.append({"type": "text", "text": " ".join(words[before:at])})
        message += place.parts
        before = at
    if before < len(words):
        message.append({"type": "text", "text": " ".join(words[before:])})
    return message
