"""Media that a prompt has in addition to its text, made up from a seed, as parts of a chat message; and where in the
text they stand."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from inferometer.plan.workloads.media import Images, Media, Sounds, Videos, VideoSize
from inferometer.workload.draws import Draws, Purpose, numbers, picker, quantile_of
from inferometer.workload.images import Picture, image_url, jpeg
from inferometer.workload.media import wav
from inferometer.workload.mp4 import mp4

Part = dict[str, Any]


class Placed(NamedTuple):
    """Parts that stand together at a place of the text, 0 to 1."""

    position: float
    parts: list[Part]


class Maker:
    """Draws how many there are, of which size, and what they show; new in each run by its nonce."""

    def __init__(self, draws: Draws, nonce: bytes) -> None:
        self._draws, self._nonce = draws, nonce

    def of(self, media: Media, index: int, shared: bool = False) -> list[Placed]:
        """Those of a prompt, or of a group of prompts."""
        lane = 20 if shared else 0  # draws of their own: group 3 is not prompt 3
        placed = []
        if media.images is not None:
            parts = [
                part for key, at in self._items(media.images, index, lane) for part in _image(media.images, key, at)
            ]
            placed.append(Placed(media.images.position or 0.0, parts))
        if media.videos is not None:
            videos = self._items(media.videos, index, lane + 2)
            parts = [part for key, at in videos for part in _video(media.videos, key, at)]
            placed.append(Placed(media.videos.position or 0.0, parts))
        if media.audio is not None:
            parts = [_sound(media.audio, key, at) for key, at in self._items(media.audio, index, lane + 4)]
            placed.append(Placed(media.audio.position or 0.0, parts))
        return placed

    def _items(self, spec: Images | Videos | Sounds, index: int, lane: int) -> Iterator[tuple[bytes, int]]:
        """A key for the content of each, and the number of its size."""
        (u,) = self._draws.uniforms(Purpose.PIXELS, index, lane, 1)
        count = quantile_of(spec.count)(u)
        choose = picker([option.weight for option in spec.options])
        own = b"" if lane == 0 else b"lane %d " % lane
        for number, at in enumerate(self._draws.uniforms(Purpose.PIXELS, index, lane + 1, count) if count else ()):
            key = numbers(self._nonce + self._draws.key(Purpose.PIXELS, index) + own + b"%d" % number, 4)
            yield key.tobytes(), choose(at)


def _image(spec: Images, key: bytes, at: int) -> list[Part]:
    size = spec.options[at]
    return [_image_part(Picture(size.width, size.height, spec.format, spec.content), key)]


def _image_part(picture: Picture, key: bytes) -> Part:
    return {"type": "image_url", "image_url": {"url": image_url(picture, key)}}


def _video(spec: Videos, key: bytes, at: int) -> list[Part]:
    size: VideoSize = spec.options[at]
    keys = [numbers(key + b"%d" % frame, 4).tobytes() for frame in range(size.frames)]
    if spec.format != "mp4":
        picture = Picture(size.width, size.height, spec.format.removesuffix("_frames"), spec.content)
        return [_image_part(picture, one) for one in keys]
    picture = Picture(size.width, size.height, "jpeg", spec.content)
    data = mp4([jpeg(picture, one) for one in keys], size.width, size.height, spec.frames_per_second)
    return [{"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{base64.b64encode(data).decode()}"}}]


def _sound(spec: Sounds, key: bytes, at: int) -> Part:
    """Soft noise: silence would be cut off by many models."""
    count = round(spec.options[at].duration * spec.sampling)
    draw = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16].ljust(16), "little")))
    data = wav(draw.uniform(-0.2, 0.2, count), spec.sampling)
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}


def placed_in(text: Any, own: Sequence[Placed], shared: Sequence[Placed] = (), beginning: float = 0.0) -> list[Part]:
    """A message with media in its text: the shared ones within its `beginning`, a share of it, the others behind."""
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
