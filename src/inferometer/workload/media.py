"""Images, sound and videos of a dataset's rows as parts of a chat message: URLs as they are, files as data."""

import base64
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.plan.workloads.dataset import MEDIA
from inferometer.workload.rows import MISSING, RowError, reached

Json = dict[str, Any]

_TYPES = (  # of a file, by its first bytes
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "audio/wav"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
)
_USUAL = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}


def media_parts(row: Json, columns: Mapping[str, str]) -> list[Json]:
    """The parts of a message that the columns of media hold, in the order image, audio, video."""
    parts = []
    for kind in MEDIA:
        if kind not in columns:
            continue
        value = reached(row, columns[kind])
        if value is MISSING or value is None:
            raise RowError(f"has no {columns[kind]!r}")
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
    """A file's bytes and what they are: given, or at a path."""
    data = value.get("bytes") if isinstance(value, Mapping) else value
    if data is None and isinstance(value, Mapping):
        data = value.get("path")
    if isinstance(data, str):
        try:
            data = Path(data.removeprefix("file://")).read_bytes()
        except OSError as error:
            raise RowError(f"has {kind} {data!r}, which cannot be read: {error.strerror}") from None
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
