"""The file of a server's model: the engine's limits and terms as settings of the simulator, their sources, the
errors of the fit, and the fitted range of load. It is readable, and `server.args` accepts its `settings`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import yaml
from pydantic import Field, ValidationError

from inferometer.documents.document import JsonValue
from inferometer.documents.files import file_bytes, text_in
from inferometer.documents.json_text import RefusedError
from inferometer.documents.yaml_text import yaml_value
from inferometer.errors import PlanError
from inferometer.measure.values import Quantity
from inferometer.plan.fields import Section
from inferometer.plan.text import refused
from inferometer.record.columns import Records, known
from inferometer.record.files import check_schema, schema_of
from inferometer.record.run import Run
from inferometer.simulator.fitting.calibration import Observed, Term
from inferometer.simulator.fitting.regression import Floats
from inferometer.simulator.settings import SimulatorSettings, settings_from
from inferometer.vocabulary import percent_text

MOST_BYTES = 1 << 20
Z95 = 1.96
T95 = {0: 12.7, 1: 12.7, 2: 4.3, 3: 3.2, 4: 2.8, 5: 2.6}  # Student's t, by degrees of freedom
LEAST_ERROR = 0.02  # minimum relative error of a model, even if it agrees better with its runs


class TermOfFile(Section):
    """A term in the file's format."""

    seconds: float
    error: float = Field(description="relative standard error")
    source: Literal["steps", "physics", "typical"] = Field(description="how it was estimated first")
    identified: bool = Field(True, description="false: not determined by the runs, it stayed near its first estimate")


class LoadRange(Section):
    """Minimum and maximum of the loads that the model was fitted on."""

    input_tokens: tuple[float, float]
    output_tokens: tuple[float, float]
    in_flight: tuple[float, float] = Field(description="mean requests in flight of the runs")
    most_in_flight: float | None = Field(None, description="at any instant of any run: bursts have many for a moment")
    cached_share: float | None = Field(None, description="of the prompt tokens, most of any run: found in the cache")

    @classmethod
    def of(cls, records: Sequence[Records]) -> Self:
        ends = [_extent(one) for one in records]
        spans = [
            (min(lows), max(highs)) for lows, highs in (zip(*column, strict=True) for column in zip(*ends, strict=True))
        ]
        return cls(
            input_tokens=spans[0],
            output_tokens=spans[1],
            in_flight=spans[2],
            most_in_flight=max(map(_most_in_flight, records)),
            cached_share=round(max(map(_cached_share, records)), 3),
        )

    def outside(self, other: "LoadRange") -> list[str]:
        """Descriptions of where another load leaves this range. A tenth beyond is still inside; for momentary maxima,
        which depend on chance, a quarter."""
        names = {"input_tokens": "input tokens", "output_tokens": "output tokens", "in_flight": "requests in flight"}
        notes = []
        for name, label in names.items():
            (low, high), (least, most) = getattr(self, name), getattr(other, name)
            if least < 0.9 * low or most > 1.1 * high:
                notes.append(f"{label} {_span(least, most)}, fitted on {_span(low, high)}")
        known_most, most_at_once = self.most_in_flight, other.most_in_flight
        if known_most and most_at_once and most_at_once > 1.25 * known_most and other.in_flight[1] <= self.in_flight[1]:
            notes.append(f"bursts of {most_at_once:,.0f} requests in flight, fitted on at most {known_most:,.0f}")
        if self.cached_share is not None and (other.cached_share or 0) > self.cached_share + 0.1:
            other_share, known_share = (
                percent_text(round(one or 0, 2)) for one in (other.cached_share, self.cached_share)
            )
            notes.append(f"{other_share} of the prompt tokens from the cache, fitted on {known_share}")
        return notes


def _most_in_flight(records: Records) -> float:
    edges = np.concatenate([records.sent_at, records.ended_at])
    changes = np.repeat([1, -1], len(records))
    return float(np.cumsum(changes[np.argsort(edges, kind="stable")]).max(initial=0))


def _cached_share(records: Records) -> float:
    good = known(records.input_tokens) & known(records.cached_tokens)
    prompts = float(records.input_tokens[good].sum())
    return float(records.cached_tokens[good].sum()) / prompts if prompts else 0.0


def _span(low: float, high: float) -> str:
    return f"{low:,.0f}" if round(low) == round(high) else f"{low:,.0f} to {high:,.0f}"


def _extent(records: Records) -> list[tuple[float, float]]:
    good = records.outcome.mask("ok")
    spans = []
    for column in (records.input_tokens, records.output_tokens):
        values = column[good & known(column)]
        spans.append((float(values.min()), float(values.max())) if len(values) else (0.0, 0.0))
    stay_ns = (records.ended_at - records.sent_at)[good].sum()
    whole_ns = max(int(records.ended_at.max() - records.sent_at.min()), 1)
    in_flight = float(stay_ns / whole_ns)
    return [*spans, (in_flight, in_flight)]


class RunOfFile(Section):
    """One run of the fit, and the model's relative errors for it: 0.05 is 5% too much."""

    name: str
    requests: int
    errors: dict[str, float] = Field({}, description="by measure")
    amplified: float = Field(1.0, ge=1, description="percent that E2E grows where the server is one percent slower")


class ServerModel(Section):
    """The settings for `server.args` that behave like a measured server, and the errors of this model."""

    schema_: str = Field(alias="schema")
    name: str
    origin: Literal["fitted", "physics"]
    engine: str | None = None
    model: str | None = None
    accelerators: list[str] = Field([])
    fitted_by: str | None = Field(None, description="version of Inferometer")
    runs: list[RunOfFile] = Field([])
    errors_are: Literal["in sample", "leave-one-out"] = "in sample"
    range: LoadRange | None = None
    steps: int | None = Field(None, description="engine steps that were read from the records")
    notes: list[str] = Field([])
    terms: dict[str, TermOfFile] = Field({})
    settings: dict[str, JsonValue] = Field(description="of the simulator")

    def simulator(self) -> SimulatorSettings:
        return settings_from(self.settings, f"{self.name}: settings")

    @property
    def predicts(self) -> str:
        """The engine name of runs with this model, so that they are not confused with the server itself."""
        return f"{self.engine or 'server'}, predicted by {self.name}"

    def error_of(self, measure: str) -> float | None:
        """Relative standard error of the model for a measure, without amplification by a queue: the root mean square of
        the runs' errors divided by their amplification, at least 2%."""
        errors = [run.errors[measure] / run.amplified for run in self.runs if measure in run.errors]
        if not errors:
            return None
        return max(LEAST_ERROR, float(np.sqrt(np.mean(np.square(errors)))))

    @property
    def reach(self) -> float:
        """The 95% factor for a standard error that is estimated from few runs (Student's t)."""
        return T95.get(len(self.runs) - 1, Z95 * (1 + 1.2 / max(len(self.runs) - 1, 1)))


def model_document(model: ServerModel) -> str:
    """The file's text."""
    plain = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    plain["terms"] = {name: _rounded(term) for name, term in plain["terms"].items()}
    plain["runs"] = [_rounded(run) for run in plain["runs"]]
    return yaml.safe_dump(_rounded(plain), sort_keys=False, allow_unicode=True, width=100)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return value


def read_model(path: Path) -> ServerModel:
    """Read a model from its file; errors name the file."""
    try:
        document, twice = yaml_value(text_in(file_bytes(path, MOST_BYTES)))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}", "make a model: inferometer fit RUN... -o MODEL.yaml") from None
    except RefusedError as error:
        raise refused(error, str(path)) from None
    if twice:
        raise PlanError([f"{path}: {mistake}" for mistake in twice])
    if not isinstance(document, dict):
        raise PlanError(f"{path}: a model is a mapping, got {type(document).__name__}")
    check_schema(path, "server-model", document.get("schema"))
    try:
        model = ServerModel.model_validate(document)
    except ValidationError as error:
        raise PlanError([f"{path}: {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]) from None
    settings_from(model.settings, f"{path}: settings")
    return model


def settings_of_file(path: str) -> dict[str, JsonValue]:
    """The settings in `server.args.model_file`, and the model's name."""
    try:
        model = read_model(Path(path).expanduser())
    except PlanError as error:
        raise ValueError(error.message) from None  # reported with the setting that names the file
    named = {"model": model.model} if model.model else {}
    return {**model.settings, **named, "predicts": model.predicts}


def new_model(
    name: str, origin: Literal["fitted", "physics"], settings: SimulatorSettings, **facts: Any
) -> ServerModel:
    plain = settings.model_dump(mode="json", exclude_defaults=True)
    return ServerModel.model_validate(
        {"schema": schema_of("server-model"), "name": name, "origin": origin, "settings": plain, **facts}
    )


def terms_of_file(terms: Mapping[str, Term]) -> dict[str, TermOfFile]:
    return {
        name: TermOfFile(seconds=term.value, error=term.spread, source=term.source, identified=term.identified)
        for name, term in terms.items()
    }


def runs_of_file(
    observed: Sequence[Observed], errors: Mapping[str, Mapping[str, float]], amplified: Mapping[str, float]
) -> list[RunOfFile]:
    return [
        RunOfFile(
            name=run.name,
            requests=len(run.records),
            errors=dict(errors.get(run.name, {})),
            amplified=amplified.get(run.name, 1.0),
        )
        for run in observed
    ]


# -- limits of the engine, from its log or its metrics -----------------------------------------------------------------

BLOCK = 16
_IN_LOG = {  # in the startup logs of vLLM and SGLang
    "cache_tokens": re.compile(r"KV cache size: ([\d,]+) tokens|max_total_num_tokens=(\d+)"),
    "max_batched_tokens": re.compile(r"max_num_batched_tokens['\"]?\s*[=:]\s*(\d+)|chunked_prefill_size=(\d+)"),
    "max_sequences": re.compile(r"max_num_seqs['\"]?(?:\s*[=:]\s*|\s+to\s+)(\d+)|max_running_requests=(\d+)"),
    "max_model_len": re.compile(r"max_(?:model|seq)_len['\"]?\s*[=:]\s*(\d+)|context_len=(\d+)"),
    "graph_tokens": re.compile(r"max_cudagraph_capture_size['\"]?\s*[=:]\s*(\d+)"),
    "prefix_caching": re.compile(r"enable_prefix_caching['\"]?\s*[=:]\s*(True|False)"),
    "chunked_prefill": re.compile(r"enable_chunked_prefill['\"]?\s*[=:]\s*(True|False)"),
}
_FLAGS = {"True": 1, "False": 0}


def limits_in_log(text: str) -> dict[str, int]:
    """The engine's limits from its startup log; limits that it does not log are missing."""
    matches = {name: pattern.search(text) for name, pattern in _IN_LOG.items()}
    return {name: _limit(next(filter(None, match.groups()))) for name, match in matches.items() if match}


def limits_in_metrics(run: Run) -> dict[str, int]:
    """The engine's limits from its metrics and its list of models, for a single server only."""
    limits: dict[str, int] = {}
    if (length := run.environment.known_target.max_model_len) is not None:
        limits["max_model_len"] = length
    sources = run.summary.server.sources if run.summary.server else []
    configs = [source.config for source in sources if source.config]
    if len(configs) != 1:
        return limits
    numbers = {name: _limit(text) for name, text in configs[0].items() if text.isdecimal() or text in _FLAGS}
    if numbers.get("num_gpu_blocks") and numbers.get("block_size"):
        limits["cache_tokens"] = numbers["num_gpu_blocks"] * numbers["block_size"]
        limits["block_size"] = numbers["block_size"]
    if "enable_prefix_caching" in numbers:
        limits["prefix_caching"] = numbers["enable_prefix_caching"]
    return limits


def _limit(text: str) -> int:
    return _FLAGS[text] if text in _FLAGS else int(text.replace(",", ""))


def limited_settings(limits: Mapping[str, int]) -> SimulatorSettings:
    """Settings of a pipelined engine with these limits; others stay at the defaults of the simulator."""
    args = {name: limits[name] for name in ("max_batched_tokens", "max_sequences") if name in limits}
    block = limits.get("block_size", BLOCK)
    if "cache_tokens" in limits:
        args |= {"blocks": limits["cache_tokens"] // block, "block_size": block}
    if "prefix_caching" in limits:
        args["prefix_caching"] = bool(limits["prefix_caching"])
    if "max_batched_tokens" in args:
        args["max_sequences"] = min(args.get("max_sequences", 1024), args["max_batched_tokens"])
    room = args.get("blocks", 56_916) * args.get("block_size", BLOCK)
    args["max_model_len"] = min(limits.get("max_model_len", 16_384), room)
    ahead = {"graph_tokens": limits["graph_tokens"]} if "graph_tokens" in limits else {}
    return settings_from({**args, "pipeline": ahead}, "limits")


@dataclass(slots=True, frozen=True)
class Predicted:
    """One predicted number, with its 95% interval if the model's errors are known."""

    quantity: Quantity
    model_error: float | None  # relative standard error of the model
    low: float | None
    high: float | None


@dataclass(slots=True, frozen=True)
class Prediction:
    """The predicted results of a plan."""

    model: ServerModel
    run: Run
    numbers: list[Predicted]
    notes: list[str]


@dataclass(slots=True, frozen=True)
class RunSteps:
    """Times from one engine step to the next, in seconds: measured in a run, and simulated with its plan."""

    name: str
    measured_s: Floats
    modelled_s: Floats


@dataclass(slots=True, frozen=True)
class Validated:
    """A measured run and its prediction."""

    name: str
    measured: dict[str, float]
    predicted: dict[str, float]
    outside: list[str]  # where its load leaves the fitted range
    intervals: dict[str, tuple[float, float]]  # of the prediction, 95%; empty: the model states no errors
    aiconfigurator: dict[str, float] | None = None  # its estimates, if it is installed and supports the server

    @property
    def errors(self) -> dict[str, float]:
        return {name: self.predicted[name] / self.measured[name] - 1 for name in self.measured}

    @property
    def inside(self) -> dict[str, bool]:
        """Whether the measured value is in the interval of the prediction."""
        return {name: low <= self.measured[name] <= high for name, (low, high) in self.intervals.items()}


@dataclass(slots=True, frozen=True)
class Capacity:
    """The highest request rate within the plan's limits, by a model; None: even the lowest simulated rate fails."""

    replicas: int
    settings: dict[str, int]
    rate: float | None
    sure_rate: float | None  # the same for a server that is slower by the model's error (95% bound)
    broken_at: float | None  # the lowest simulated rate that breaks a limit
    output_rate: float | None
    dollars_per_million: float | None  # output tokens
    outside: list[str]  # where the load at this rate leaves the fitted range
