"""What the workloads of a plan have in common: lengths that are known before anything is read, where they are."""

from collections.abc import Iterator

from pydantic import Field

from inferometer.plan.fields import Mistake, Section
from inferometer.plan.workloads.lengths import Lengths


class WorkloadSection(Section):
    """A kind of workload. Each has a `type` that names it."""

    type: str = Field(description="source of the prompts")

    @property
    def mean_input(self) -> float | None:
        """Mean tokens of a prompt, if the plan alone determines it."""
        return None

    @property
    def mean_output(self) -> float | None:
        """Mean tokens requested of an answer, if the plan alone determines it."""
        return None

    @property
    def shares_nothing(self) -> bool:
        """Whether its prompts are all new, so that what a prefix cache holds of them is there by accident."""
        return False

    @property
    def single_turns(self) -> bool:
        """Whether the plan alone guarantees that every session is one request."""
        return getattr(self, "turns", None) in ("single", "pieces", "questions")

    @property
    def is_finite(self) -> bool:
        """Whether its last session ends the load."""
        return bool(getattr(self, "once", False))

    @property
    def requested_output(self) -> Lengths | None:
        """The requested lengths of answers, if the plan has them."""
        return None


class FileSection(WorkloadSection):
    """A workload that is read from a file, here or fetched."""

    path: str | None = Field(None, min_length=1, description="the file")
    url: str | None = Field(None, min_length=1, description="URL to download it from, once")
    checksum: str | None = Field(None, description="expected sha256 of the file")

    def disagreements(self) -> Iterator[Mistake]:
        yield from self._of_place()
        if self.checksum is not None and not _is_sha256(self.checksum):
            yield Mistake(("checksum",), "must be the 64 hexadecimal digits of a sha256")

    def _of_place(self) -> Iterator[Mistake]:
        if self.path is None and self.url is None:
            yield Mistake(("path",), "is missing: give the file, or the url to download it from")
        if self.path is not None and self.url is not None:
            yield Mistake(("url",), "cannot be combined with path: give one or the other")

    @property
    def sha256(self) -> str | None:
        """The digits of the checksum."""
        return None if self.checksum is None else self.checksum.removeprefix("sha256:").lower()


def _is_sha256(text: str) -> bool:
    digits = text.removeprefix("sha256:").lower()
    return len(digits) == 64 and set(digits) <= set("0123456789abcdef")
