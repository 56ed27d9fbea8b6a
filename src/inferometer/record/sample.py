"""`Sample`: a value that something beside the requests had at an instant: a GPU, an endpoint, the host."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Self

import msgspec

from inferometer.record.record import Whole

if TYPE_CHECKING:  # the observer's process writes samples and never needs columns: numpy would triple its start
    from inferometer.record.columns import Categorical, Floats, Ints


class Sample(msgspec.Struct, array_like=True, frozen=True, gc=False):
    source: str  # who was asked: "gpu:0", "http://host:8000/metrics", "host", "client"
    name: str  # what: "power_w", "vllm:num_requests_running"
    at: Whole  # nanoseconds on the monotonic clock of the records
    value: float
    labels: dict[str, str] = {}


@dataclass(frozen=True, eq=False, slots=True)
class Samples:
    """Many samples as columns, in order of time. `labels` are JSON objects, few different ones."""

    source: "Categorical"
    name: "Categorical"
    at: "Ints"
    value: "Floats"
    labels: "Categorical"

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Self:
        import numpy as np

        from inferometer.record.columns import Categorical

        samples = sorted(samples, key=lambda sample: sample.at)
        written = cache(lambda *labels: json.dumps(dict(labels), sort_keys=True))  # the same ones again and again
        return cls(
            source=Categorical.of([sample.source for sample in samples]),
            name=Categorical.of([sample.name for sample in samples]),
            at=np.array([sample.at for sample in samples], np.int64),
            value=np.array([sample.value for sample in samples], np.float64),
            labels=Categorical.of([written(*sample.labels.items()) for sample in samples]),
        )

    def __len__(self) -> int:
        return len(self.at)

    def sample(self, i: int) -> Sample:
        labels = json.loads(self.labels[i] or "{}")
        return Sample(str(self.source[i]), str(self.name[i]), int(self.at[i]), float(self.value[i]), labels)

    def series(self, name: str, source: str | None = None) -> "tuple[Ints, Floats]":
        """The instants and values under a name, of one source or of all."""
        chosen = self.name.mask(name)
        if source is not None:
            chosen &= self.source.mask(source)
        return self.at[chosen], self.value[chosen]
