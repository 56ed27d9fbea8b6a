"""Media in addition to the text of a prompt, made up: images, videos and sound."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from inferometer.plan.fields import Count, Duration, Mistake, Number, Section
from inferometer.plan.workloads.lengths import Lengths

MOST_ITEMS = 1000
MOST_PIXELS = 1 << 28  # of all images or videos of a prompt: they are made in memory
MOST_SOUND_S = 3600.0

Content = Literal["noise", "gradient", "blank"]
_POSITION = "where in the text: 0 before it, 1 after it; default 0"


class ImageSize(Section):
    """One of several sizes."""

    width: Count = Field(ge=1, le=16384, description="pixels")
    height: Count = Field(ge=1, le=16384, description="pixels")
    weight: Number = Field(1.0, gt=0, description="relative weight")


class Images(Section):
    """Images in addition to the text; every image is new."""

    count: Lengths = Field(Lengths.of(1), description="images per prompt: a number, or a distribution such as 1-3")
    width: Count = Field(512, ge=1, le=16384, description="pixels")
    height: Count = Field(512, ge=1, le=16384, description="pixels")
    sizes: list[ImageSize] = Field([], description="several sizes with weights, instead of width and height")
    format: Literal["png", "jpeg"] = Field("png", description="image format")
    content: Content = Field("gradient", description="content of the images: noise hardly compresses")
    position: Number | None = Field(None, ge=0, le=1, description=_POSITION)

    def disagreements(self) -> Iterator[Mistake]:
        yield from _bounded(self, max(size.width * size.height for size in self.options), "images")

    @property
    def options(self) -> list[ImageSize]:
        """Its sizes, however they were given."""
        return self.sizes or [ImageSize(width=self.width, height=self.height)]


class VideoSize(Section):
    """One of several sizes and lengths."""

    width: Count = Field(ge=1, le=16384, description="pixels")
    height: Count = Field(ge=1, le=16384, description="pixels")
    frames: Count = Field(ge=1, le=10_000, description="number of frames")
    weight: Number = Field(1.0, gt=0, description="relative weight")


class Videos(Section):
    """Videos in addition to the text; every video is new."""

    count: Lengths = Field(Lengths.of(1), description="videos per prompt: a number, or a distribution such as 0-2")
    width: Count = Field(640, ge=1, le=16384, description="pixels")
    height: Count = Field(360, ge=1, le=16384, description="pixels")
    frames: Count = Field(16, ge=1, le=10_000, description="number of frames")
    sizes: list[VideoSize] = Field([], description="several sizes with weights, instead of width, height and frames")
    format: Literal["mp4", "png_frames", "jpeg_frames"] = Field(
        "mp4", description="one MP4 file of Motion JPEG, or every frame as an image"
    )
    frames_per_second: Number = Field(8.0, gt=0, le=240, description="of an MP4 file")
    content: Content = Field("noise", description="content of the frames")
    position: Number | None = Field(None, ge=0, le=1, description=_POSITION)

    def disagreements(self) -> Iterator[Mistake]:
        yield from _bounded(self, max(one.width * one.height * one.frames for one in self.options), "videos")

    @property
    def options(self) -> list[VideoSize]:
        return self.sizes or [VideoSize(width=self.width, height=self.height, frames=self.frames)]


class SoundLength(Section):
    """One of several durations."""

    duration: Duration = Field(gt=0, le=MOST_SOUND_S, description="length of the sound")
    weight: Number = Field(1.0, gt=0, description="relative weight")


class Sounds(Section):
    """Sound in addition to the text, as WAV; every sound is new."""

    count: Lengths = Field(Lengths.of(1), description="sounds per prompt: a number, or a distribution")
    duration: Duration = Field(1.0, gt=0, le=MOST_SOUND_S, description="length of each")
    durations: list[SoundLength] = Field([], description="several durations with weights, instead of duration")
    sampling: Count = Field(16_000, ge=8000, le=96_000, description="samples per second, 16 bits, one channel")
    position: Number | None = Field(None, ge=0, le=1, description=_POSITION)

    def disagreements(self) -> Iterator[Mistake]:
        if self.count.most is None or self.count.most > MOST_ITEMS:
            yield Mistake(("count",), f"must be at most {MOST_ITEMS:,} sounds per prompt")
        elif (seconds := self.count.most * max(one.duration for one in self.options)) > MOST_SOUND_S:
            yield Mistake((), f"must be at most {MOST_SOUND_S:g} s together, got {seconds:g} s")

    @property
    def options(self) -> list[SoundLength]:
        return self.durations or [SoundLength(duration=self.duration)]


class Media(Section):
    """What all prompts of a group have in their shared prefix."""

    images: Images | None = Field(None, description="images")
    videos: Videos | None = Field(None, description="videos")
    audio: Sounds | None = Field(None, description="sound")

    def __bool__(self) -> bool:
        return bool(self.images or self.videos or self.audio)


def _bounded(one: "Images | Videos", largest: int, what: str) -> Iterator[Mistake]:
    own = {"width", "height", "frames"} & set(type(one).model_fields)
    changed = {name for name in own if getattr(one, name) != type(one).model_fields[name].default}
    if one.sizes and changed & one.model_fields_set:
        yield Mistake(("sizes",), f"replace {' and '.join(sorted(changed))}: give one or the other")
    most = one.count.most
    if most is None or most > MOST_ITEMS:
        yield Mistake(("count",), f"must be at most {MOST_ITEMS:,} {what} per prompt")
    elif (pixels := most * largest) > MOST_PIXELS:
        text = f"must have at most {MOST_PIXELS:,} pixels together: {most} x {largest:,} are {pixels:,}"
        yield Mistake((), text)
