"""What a model says: a predicted run with its intervals, predictions beside measurements, and capacities."""

from dataclasses import dataclass

from inferometer.measure.values import Quantity
from inferometer.record.run import Run
from inferometer.simulator.fitting.server_model import ServerModel
from inferometer.simulator.fitting.steps import Floats


@dataclass(slots=True, frozen=True)
class Predicted:
    """One number, with the interval that holds it with 95% confidence, as far as the model's errors are known."""

    quantity: Quantity
    model_error: float | None  # relative standard error of the model
    low: float | None
    high: float | None


@dataclass(slots=True, frozen=True)
class Prediction:
    """The run that a plan would give, by a model."""

    model: ServerModel
    run: Run
    numbers: list[Predicted]
    notes: list[str]


@dataclass(slots=True, frozen=True)
class RunSteps:
    """Times from one engine step to the next, in seconds: as a run shows them, and as its plan gives on the model."""

    name: str
    measured_s: Floats
    modelled_s: Floats


@dataclass(slots=True, frozen=True)
class Validated:
    """A measured run beside its prediction."""

    name: str
    measured: dict[str, float]
    predicted: dict[str, float]
    outside: list[str]  # where its load leaves the range that the model was fitted on
    intervals: dict[str, tuple[float, float]]  # of the prediction, 95%; empty: the model states no errors
    aiconfigurator: dict[str, float] | None = None  # its estimates, where it is installed and knows the server

    @property
    def errors(self) -> dict[str, float]:
        return {name: self.predicted[name] / self.measured[name] - 1 for name in self.measured}

    @property
    def inside(self) -> dict[str, bool]:
        """Whether the measured value is in the interval of the prediction."""
        return {name: low <= self.measured[name] <= high for name, (low, high) in self.intervals.items()}


@dataclass(slots=True, frozen=True)
class Capacity:
    """The highest request rate within the plan's limits, by a model; None: not even the lowest that was tried."""

    replicas: int
    settings: dict[str, int]
    rate: float | None
    sure_rate: float | None  # the same of a server slower than the model by its error: 95% of errors are less
    broken_at: float | None  # the lowest rate that was tried and breaks a limit
    output_rate: float | None
    dollars_per_million: float | None  # output tokens
