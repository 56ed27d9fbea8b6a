"""What the workloads of a plan have in common: lengths that are known before anything is read, where they are."""

from pydantic import Field

from inferometer.plan.fields import Section
from inferometer.plan.workloads.lengths import Lengths


class WorkloadSection(Section):
    """A kind of workload. Each has a `type` that names it."""

    type: str = Field(description="where prompts come from")

    @property
    def mean_input(self) -> float | None:
        """Mean tokens of a prompt, where the plan alone tells."""
        return None

    @property
    def mean_output(self) -> float | None:
        """Mean tokens asked of an answer, where the plan alone tells."""
        return None

    @property
    def shares_nothing(self) -> bool:
        """Whether its prompts are all new, so that what a prefix cache holds of them is there by accident."""
        return False

    @property
    def single_turns(self) -> bool:
        """Whether the plan alone tells that every session is one request."""
        return getattr(self, "turns", None) in ("single", "pieces")

    @property
    def asked_output(self) -> Lengths | None:
        """The lengths asked of answers, where the plan says them."""
        return None
