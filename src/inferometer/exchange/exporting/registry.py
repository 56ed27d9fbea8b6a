"""The formats by name, and the writing of them: to a file, into a folder, or to a stream."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from inferometer.errors import PlanError, StoreError
from inferometer.exchange.exporting.pieces import Asked, Exporter, Piece
from inferometer.record.files import replacing, told
from inferometer.record.run import Run


@dataclass(frozen=True, slots=True)
class Format:
    about: str
    exporter: str  # "module:attribute"
    folder: bool = False  # whether it is several files even of one run


_HERE = "inferometer.exchange.exporting"
FORMATS: dict[str, Format] = {
    "json": Format("the document that --json prints", f"{_HERE}.tables:export_json"),
    "csv": Format("records, one line each", f"{_HERE}.tables:export_csv"),
    "parquet": Format("records, reads as lists", f"{_HERE}.tables:export_parquet"),
    "vllm": Format("JSON of vllm bench serve, latency, throughput", f"{_HERE}.vllm:export"),
    "llm-d": Format("llm-d benchmark report v0.2.1, YAML or .json", f"{_HERE}.llmd:export"),
    "github-action-benchmark": Format(
        "arrays by direction: bigger.json, smaller.json, observe.json", f"{_HERE}.action_benchmark:export", True
    ),
    "ci-bench": Format(
        "data points, table and three JSON databases, appended to", f"{_HERE}.ci_bench:export", folder=True
    ),
    "nm-vllm": Format("BenchmarkResult of nm-vllm", f"{_HERE}.benchmark_result:export"),
    "ray-sweep": Format(
        "CSV lines of Ray's sweep: serve_*.csv, vllm_*.csv, appended to", f"{_HERE}.ray_sweep:export", folder=True
    ),
    "inferx": Format("InferX's folder: metrics.csv and what goes with it", f"{_HERE}.tables:export_inferx", True),
    "pytorch-hud": Format("records for the PyTorch HUD's database", f"{_HERE}.hud:export"),
    "openmetrics": Format("OpenMetrics text", f"{_HERE}.openmetrics:export"),
    "opentelemetry": Format("OpenTelemetry GenAI metrics, OTLP JSON", f"{_HERE}.opentelemetry:export"),
}


def format_named(name: str) -> Format:
    if name not in FORMATS:
        raise PlanError(f"no format {name!r} to export to", f"there are {', '.join(FORMATS)}")
    return FORMATS[name]


def pieces(name: str, asked: Asked) -> list[Piece]:
    module, attribute = format_named(name).exporter.split(":")
    exporter: Exporter = getattr(importlib.import_module(module), attribute)
    found = exporter(asked)
    if not found:
        raise StoreError(f"{', '.join(run.id for run in asked.runs)}: has no number that {name} has a place for")
    return found


def write(name: str, runs: Sequence[Run], path: Path, *, detailed: bool = False) -> tuple[list[Path], list[str]]:
    """Write runs to a path: a file, or a folder where the format has several files. The files written, and notes."""
    folder = format_named(name).folder or path.is_dir()
    asked = Asked(runs, detailed, path.suffix, lambda file: _content(path / file if folder else path))
    made = pieces(name, asked)
    if not folder and len(made) == 1:
        return [_write(path, made[0])], asked.notes
    if path.suffix and not path.is_dir() and not format_named(name).folder:
        raise StoreError(f"{path}: one file cannot hold the {len(made)} that this makes", "-o FOLDER/ takes them all")
    return [_write(path / piece.name, piece) for piece in made], asked.notes


def stream(name: str, runs: Sequence[Run], to: BinaryIO, *, detailed: bool = False) -> list[str]:
    """Write what is one file to a stream."""
    asked = Asked(runs, detailed)
    made = pieces(name, asked)
    if len(made) > 1:
        raise StoreError(f"{name}: makes {len(made)} files, which one stream cannot hold", "give a folder: -o FOLDER")
    to.writelines(made[0].chunks())
    return asked.notes


def _content(path: Path) -> bytes | None:
    with told(path):
        return path.read_bytes() if path.is_file() else None


def _write(path: Path, piece: Piece) -> Path:
    with told(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft, draft.open("wb") as file:
        file.writelines(piece.chunks())
    return path
