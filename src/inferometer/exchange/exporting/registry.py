"""The formats that runs can be exported to, by name; what an exporter is given and the files it makes; and writing
them: to a file, into a folder, to a stream, or as a plan's `outputs`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from inferometer.errors import PlanError, StoreError
from inferometer.plan.model import Output
from inferometer.record.columns import Records
from inferometer.record.files import replacing, translated_errors
from inferometer.record.run import Run
from inferometer.record.sanitize import harmless, json_text
from inferometer.vocabulary import attribute_at

# -- pieces ----------------------------------------------------------------------------------------------------------

Chunks = Callable[[], Iterable[bytes]]  # a file that is made while it is written, anew for each call


@dataclass(frozen=True, eq=False, slots=True)
class DocumentPiece:
    name: str  # of the file, where its place has none of its own
    made: bytes | Chunks

    def chunks(self) -> Iterable[bytes]:
        return [self.made] if isinstance(self.made, bytes) else self.made()

    @property
    def content(self) -> bytes:
        return b"".join(self.chunks())


@dataclass(frozen=True, eq=False, slots=True)
class DocumentRows:
    """A long list of a document, some of it at a time."""

    batches: Callable[[], Iterable[list[Any]]]


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """Runs, and how they are wanted. `there` gives what a file of that name holds by now: some formats append."""

    runs: Sequence[Run]
    detailed: bool = False
    suffix: str = ""  # of the path it is wanted at: ".json"
    there: Callable[[str], bytes | None] = lambda _name: None
    notes: list[str] = field(default_factory=list)  # what could not be exported, for the user


Exporter = Callable[[ExportRequest], list[DocumentPiece]]


_JSON = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def json_piece(name: str, content: Any) -> DocumentPiece:
    """With an end of line; a number that is not finite is null."""
    return DocumentPiece(name, json_text(content, _JSON | orjson.OPT_APPEND_NEWLINE).encode())


def long_json_piece(name: str, content: Mapping[str, Any]) -> DocumentPiece:
    """The same bytes, written field by field, and `DocumentRows` batch by batch."""
    return DocumentPiece(name, lambda: _json_chunks(content))


def _dumped(content: Any) -> bytes:
    return json_text(content, _JSON).encode()


def _json_chunks(content: Mapping[str, Any]) -> Iterator[bytes]:
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
    """Lines end as they are given."""
    return DocumentPiece(name, "\r\n".join(map(harmless, text.split("\r\n"))).encode())


def records_of(run: Run) -> Records:
    records = run.records
    if records is None:
        hint = "formats that need no records: json, llm-d, github-action-benchmark, openmetrics"
        raise StoreError(f"{run.id}: this run has no records", hint)
    return records


def of_kind(run: Run, fits: Mapping[str, Any], what: str) -> Any:
    """What a format makes of this kind of run; a kind that it has no place for is an error."""
    if run.kind not in fits:
        kinds = " and ".join(fits)
        raise StoreError(f"{run.id}: is a run of kind {run.kind}, {what} supports {kinds}")
    return fits[run.kind]


# -- registry --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportFormat:
    about: str
    exporter: str  # "module:attribute"
    folder: bool = False  # whether it is several files even of one run
    requests_only: bool = False  # no field is about the run, so nothing in it could tell that it was predicted


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
        "what Ray's prefix-aware scheduler keeps of itself, per second", f"{_HERE}.ray:export_routing", folder=True
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
    """Write runs to a path: a file, or a folder where the format has several files. The files written, and notes."""
    folder = format_named(name).folder or path.is_dir()
    request = ExportRequest(runs, detailed, path.suffix, lambda file: _content(path / file if folder else path))
    made = pieces(name, request)
    if not folder and len(made) == 1:
        return [_write(path, made[0])], request.notes
    if path.suffix and not path.is_dir() and not format_named(name).folder:
        raise StoreError(f"{path}: this export makes {len(made)} files, not one", "use a folder: -o FOLDER/")
    return [_write(path / piece.name, piece) for piece in made], request.notes


def stream(name: str, runs: Sequence[Run], to: BinaryIO, *, detailed: bool = False) -> list[str]:
    """Write what is one file to a stream."""
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
    """Write every output; those that cannot be written are named together, after the others were."""
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
