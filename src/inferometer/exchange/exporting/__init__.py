"""Exports of runs to other tools' formats, one module per format. This module has the registry of formats, the input
and output of an exporter, and writing: to a file, into a folder, to a stream, or as a plan's `outputs`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

import orjson
from pydantic import ValidationError

from inferometer.documents.document import Document, JsonValue
from inferometer.errors import PlanError, StoreError
from inferometer.measure.inputs import Facts
from inferometer.measure.rosetta import SeenRequests
from inferometer.measure.server import SourceSeries, all_series
from inferometer.measure.values import quantities
from inferometer.measure.window import warmup_end
from inferometer.plan.model import Lengths, Output, Plan
from inferometer.record.columns import Records
from inferometer.record.files import replacing, translated_errors
from inferometer.record.run import Run
from inferometer.record.sanitize import harmless, json_text
from inferometer.vocabulary import attribute_at

# -- pieces ----------------------------------------------------------------------------------------------------------

ExportChunks = Callable[[], Iterable[bytes]]  # generates a file while it is written, anew for each call


@dataclass(frozen=True, eq=False, slots=True)
class DocumentPiece:
    name: str  # of the file, if the output path does not name one
    made: bytes | ExportChunks

    def chunks(self) -> Iterable[bytes]:
        return [self.made] if isinstance(self.made, bytes) else self.made()

    @property
    def content(self) -> bytes:
        return b"".join(self.chunks())


@dataclass(frozen=True, eq=False, slots=True)
class DocumentRows:
    """A long list in a document, generated in batches."""

    batches: Callable[[], Iterable[list[Any]]]


DocumentField: TypeAlias = "JsonValue | DocumentRows"
MadeT = TypeVar("MadeT")


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The runs and options of an export. `there` returns the existing content of a file: some formats append."""

    runs: Sequence[Run]
    detailed: bool = False
    suffix: str = ""  # of the output path: ".json"
    there: Callable[[str], bytes | None] = lambda _name: None
    notes: list[str] = field(default_factory=list)  # what could not be exported, for the user


Exporter = Callable[[ExportRequest], list[DocumentPiece]]


_JSON = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def json_piece(name: str, content: Any) -> DocumentPiece:
    """JSON with a line end; numbers that are not finite become null."""
    return DocumentPiece(name, json_text(content, _JSON | orjson.OPT_APPEND_NEWLINE).encode())


def long_json_piece(name: str, content: Mapping[str, DocumentField]) -> DocumentPiece:
    """The same bytes, written field by field, and `DocumentRows` batch by batch."""
    return DocumentPiece(name, lambda: _json_chunks(content))


def _dumped(content: Any) -> bytes:
    return json_text(content, _JSON).encode()


def _json_chunks(content: Mapping[str, DocumentField]) -> Iterator[bytes]:
    for number, (key, value) in enumerate(content.items()):
        yield b",\n" if number else b"{\n"
        if isinstance(value, DocumentRows):
            yield from _row_chunks(key, value)
        else:
            yield _dumped({key: value}).removeprefix(b"{\n").removesuffix(b"\n}")
    yield b"\n}\n"


def _row_chunks(key: str, rows: DocumentRows) -> Iterator[bytes]:
    head, tail = _dumped({key: [0]}).removesuffix(b"\n}").split(b"    0")
    between = head.removeprefix(b"{\n")
    for batch in filter(None, rows.batches()):
        yield between
        yield _dumped({key: batch}).removesuffix(b"\n}").removeprefix(head).removesuffix(tail)
        between = b",\n"
    yield tail if between == b",\n" else between.removesuffix(b"\n") + b"]"


def text_piece(name: str, text: str) -> DocumentPiece:
    """A text file; line ends are kept."""
    return DocumentPiece(name, "\r\n".join(map(harmless, text.split("\r\n"))).encode())


def records_of(run: Run) -> Records:
    records = run.records
    if records is None:
        hint = "formats that need no records: json, llm-d, github-action-benchmark, openmetrics"
        raise StoreError(f"{run.id}: this run has no records", hint)
    return records


def of_kind(run: Run, fits: Mapping[str, MadeT], what: str) -> MadeT:
    """The export function for this kind of run; an error if the format does not support it."""
    if run.kind not in fits:
        kinds = " and ".join(fits)
        raise StoreError(f"{run.id}: is a run of kind {run.kind}, {what} supports {kinds}")
    return fits[run.kind]


# -- registry --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportFormat:
    about: str
    exporter: str  # "module:attribute"
    folder: bool = False  # whether one run makes several files
    requests_only: bool = False  # it has no field for the run, so it could not mark a predicted run


_HERE = "inferometer.exchange.exporting"
FORMATS: dict[str, ExportFormat] = {
    "json": ExportFormat("the document that --json prints", f"{_HERE}.tables:export_json"),
    "csv": ExportFormat("records, one line each", f"{_HERE}.tables:export_csv", requests_only=True),
    "parquet": ExportFormat("records, reads as lists", f"{_HERE}.tables:export_parquet", requests_only=True),
    "vllm": ExportFormat("JSON of vllm bench serve, latency, throughput", f"{_HERE}.vllm:export"),
    "llm-d": ExportFormat("llm-d benchmark report v0.2.1, YAML or .json", f"{_HERE}.llmd:export"),
    "llm-d-v0.1": ExportFormat("llm-d benchmark report v0.1, YAML or .json", f"{_HERE}.llmd:export_v01"),
    "github-action-benchmark": ExportFormat(
        "arrays by direction: bigger.json, smaller.json, observe.json", f"{_HERE}.ci:export_action_benchmark", True
    ),
    "ci-bench": ExportFormat(
        "data points, table and three JSON databases, appended to", f"{_HERE}.ci:export_ci_bench", folder=True
    ),
    "nm-vllm": ExportFormat("BenchmarkResult of nm-vllm", f"{_HERE}.benchmark_result:export"),
    "ray-sweep": ExportFormat(
        "CSV lines of Ray's sweep: serve_*.csv, vllm_*.csv, appended to", f"{_HERE}.ray:export_sweep", folder=True
    ),
    "ray-routing": ExportFormat(
        "state of Ray's prefix-aware scheduler, per second", f"{_HERE}.ray:export_routing", folder=True
    ),
    "inferx": ExportFormat(
        "InferX's folder: metrics.csv and related files",
        f"{_HERE}.tables:export_inferx",
        folder=True,
        requests_only=True,
    ),
    "pytorch-hud": ExportFormat("records for the PyTorch HUD's database", f"{_HERE}.ci:export_hud"),
    "openmetrics": ExportFormat("OpenMetrics text", f"{_HERE}.telemetry:export_openmetrics"),
    "mlflow": ExportFormat("MLflow's file store: mlruns/", f"{_HERE}.trackers:export_mlflow", folder=True),
    "wandb": ExportFormat("arguments of Weights & Biases: init and summary, JSON", f"{_HERE}.trackers:export_wandb"),
    "opentelemetry": ExportFormat("OpenTelemetry GenAI metrics, OTLP JSON", f"{_HERE}.telemetry:export_opentelemetry"),
}


def format_named(name: str) -> ExportFormat:
    if name not in FORMATS:
        raise PlanError(f"no format {name!r} to export to", f"there are {', '.join(FORMATS)}")
    return FORMATS[name]


def pieces(name: str, request: ExportRequest) -> list[DocumentPiece]:
    exporter: Exporter = attribute_at(format_named(name).exporter)
    made = exporter(request)
    if not made:
        raise StoreError(f"{', '.join(run.id for run in request.runs)}: has no number that {name} can hold")
    predicted = [run for run in request.runs if run.environment.known_target.is_predicted]
    if predicted and format_named(name).requests_only:
        request.notes.extend(f"{run.id} is of {run.subject.engine_text}; this file cannot tell" for run in predicted)
    return made


def write(name: str, runs: Sequence[Run], path: Path, *, detailed: bool = False) -> tuple[list[Path], list[str]]:
    """Write runs to a path: a file, or a folder if the format has several files. Returns the files and notes."""
    folder = format_named(name).folder or path.is_dir()
    request = ExportRequest(runs, detailed, path.suffix, lambda file: _content(path / file if folder else path))
    made = pieces(name, request)
    if not folder and len(made) == 1:
        return [_write(path, made[0])], request.notes
    if path.suffix and not path.is_dir() and not format_named(name).folder:
        raise StoreError(f"{path}: this export makes {len(made)} files, not one", "use a folder: -o FOLDER/")
    return [_write(path / piece.name, piece) for piece in made], request.notes


def stream(name: str, runs: Sequence[Run], to: BinaryIO, *, detailed: bool = False) -> list[str]:
    """Write a single-file export to a stream."""
    request = ExportRequest(runs, detailed)
    made = pieces(name, request)
    if len(made) > 1:
        raise StoreError(f"{name}: makes {len(made)} files, which cannot go to stdout", "give a folder: -o FOLDER")
    to.writelines(made[0].chunks())
    return request.notes


def _content(path: Path) -> bytes | None:
    with translated_errors(path):
        return path.read_bytes() if path.is_file() else None


def _write(path: Path, piece: DocumentPiece) -> Path:
    with translated_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft, draft.open("wb") as file:
        file.writelines(piece.chunks())
    return path


# -- outputs ---------------------------------------------------------------------------------------------------------


def write_outputs(run: Run, outputs: list[Output]) -> list[Path]:
    """Write every output; errors are raised together, after the others were written."""
    written, failures = [], []
    for output in outputs:
        try:
            files, _notes = write(output.format, [run], Path(output.path).expanduser())
            written += files
        except StoreError as error:
            failures.append(error.message)
    if failures:
        raise StoreError("\n".join(failures), f"the run itself is stored: {run.folder}")
    return written


# -- data of a run for exporters ---------------------------------------------------------------------------------------

# Rate, lengths and duration of a run. An imported run may lack them: then the value is None, never a default.


def label_of(run: Run, name: str | None) -> str | None:
    """The name of a run in another tool's file; for a predicted run with its model, because no other field shows it."""
    if not run.environment.known_target.is_predicted:
        return name
    return " · ".join(filter(None, (name, run.subject.engine_text)))


def gpu_text(run: Run) -> str | None:
    """`NVIDIA H200 x 1`, as other tools write it; different GPUs are listed."""
    return ", ".join(f"{name} x {count}" for name, count in run.subject.accelerator_counts.items()) or None


def traffic_of(run: Run) -> Document:
    """The plan of the first traffic class; with defaults if Inferometer sent the load, because they were used."""
    if (plan := _own_plan(run)) is not None:
        return Document(plan.classes[0].model_dump(mode="json"))
    return run.plan.classes[0] if run.plan.classes else run.plan


def server_of(run: Run) -> Document:
    """The plan's server section; with defaults if Inferometer ran it."""
    plan = _own_plan(run)
    if plan is None or plan.server is None:
        return run.plan.server
    return Document(plan.server.model_dump(mode="json"))


def _own_plan(run: Run) -> Plan | None:
    """The plan of a run that Inferometer made; an imported one might be valid as a plan by accident."""
    return run.plan.checked if run.source is None and run.kind == "serving" else None


def strategy_of(run: Run) -> str | None:
    """The routing policy in front of a fleet."""
    plan = _own_plan(run)
    if plan is not None and plan.server is not None:
        return plan.server.policy
    return run.plan.server.section("router").text("policy")


def load_of(run: Run) -> Document:
    return traffic_of(run).section("load")


def rate_of(run: Run) -> float | None:
    """Requested requests per second; None in a closed loop."""
    return load_of(run).number("rate")


def concurrency_of(run: Run) -> int | None:
    """Requested requests in flight, or the cap of an open loop."""
    load = load_of(run)
    return load.count("concurrency") or load.count("max_concurrency")


def started(run: Run) -> datetime:
    """The start of the run, in UTC; 1970 if unknown."""
    try:
        moment = datetime.fromisoformat(run.started_at)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def duration_of(run: Run) -> float | None:
    """Seconds from start to end of the whole run; for an imported run the tool's own value."""
    summary = run.summary
    rate = summary.reported.rates.get("request_rate") if summary.reported else None
    answered = summary.outcomes.get("ok")
    if rate and rate.value and answered:
        return answered / rate.value
    duration = summary.values.get("duration")
    return summary.window.run_s or (duration.value if duration else None)


def served_lengths(run: Run) -> tuple[int | None, int | None]:
    """Mean *served* input and output tokens, which may differ from the requested ones."""
    values = quantities(run.summary)
    means = (values.get("input_tokens.mean"), values.get("output_tokens.mean"))
    inputs, outputs = (None if mean is None else round(mean.value) for mean in means)
    return inputs, outputs


def lengths_of(run: Run, side: str) -> Lengths | None:
    """The plan's `input_tokens` or `output_tokens`; None if a dataset determines them."""
    requested = traffic_of(run).section("workload").get(side)
    try:
        return None if requested is None else Lengths.model_validate(requested)
    except ValidationError:
        return None


def requested_lengths(run: Run) -> tuple[int | None, int | None]:
    """Mean input and output tokens requested by the plan."""
    lengths = (lengths_of(run, "input_tokens"), lengths_of(run, "output_tokens"))
    inputs, outputs = (
        None if length is None or length.mean_value is None else round(length.mean_value) for length in lengths
    )
    return inputs, outputs


def seen_by_others(run: Run, records: Records) -> SeenRequests:
    """The records that other tools would report: those after the warm-up."""
    plan = run.plan.checked
    warm = plan is not None and (plan.warmup.requests or plan.warmup.duration)
    begin_at = warmup_end(records, plan, Facts()) if plan is not None and warm else None
    known_s = None if warm or run.source is None else duration_of(run)
    on_one_clock = run.source is None or run.summary.window.start_s is not None
    return SeenRequests.of(records, run.plan.api, begin_at, known_s, _mean_gap_s(plan), on_one_clock=on_one_clock)


def _mean_gap_s(plan: Plan | None) -> float:
    """The mean gap between requests of an open loop at one rate; 0 for other loads."""
    if plan is None or len(plan.classes) != 1:
        return 0.0
    load = plan.classes[0].load
    return 1 / load.rate if load.type in ("constant", "poisson", "gamma") and load.rate else 0.0


def server_series(run: Run) -> list[SourceSeries]:
    """The servers' own metrics during the run; empty if they were not sampled."""
    samples = run.samples
    sources = [] if samples is None else [source for source in samples.source.categories if "://" in source]
    return all_series(samples, sources) if samples is not None and sources else []
