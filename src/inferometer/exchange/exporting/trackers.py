"""Runs in experiment trackers: MLflow's file store, `mlruns/`, and the two calls of Weights & Biases."""

import hashlib
import re
from collections.abc import Iterator

import orjson

from inferometer.documents.document import JsonValue
from inferometer.exchange.exporting import (
    DocumentPiece,
    ExportRequest,
    gpu_text,
    json_piece,
    started,
    text_piece,
)
from inferometer.judge.identity import identity
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.store.entry import flat

_FINISHED, _FAILED = 3, 4  # mlflow.entities.RunStatus
_LOCAL = 4  # mlflow.entities.SourceType
_ODD = re.compile(r"[^A-Za-z0-9_\-. /]")
_MOST_PARAMETER = 6000  # characters


def export_mlflow(request: ExportRequest) -> list[DocumentPiece]:
    pieces: dict[str, DocumentPiece] = {}
    for run in request.runs:
        pieces |= {piece.name: piece for piece in _pieces(run)}
    return list(pieces.values())


def _pieces(run: Run) -> Iterator[DocumentPiece]:
    name = experiment_name(run)
    experiment = _experiment_id(name)
    at = round(started(run).timestamp() * 1000)
    yield text_piece(
        f"{experiment}/meta.yaml",
        _yaml(
            artifact_location=f"./{experiment}",
            creation_time=at,
            experiment_id=experiment,
            last_update_time=at,
            lifecycle_stage="active",
            name=name,
        ),
    )
    id_ = run_id(run)
    folder = f"{experiment}/{id_}"
    yield text_piece(
        f"{folder}/meta.yaml",
        _yaml(
            artifact_uri=f"./{folder}/artifacts",
            end_time=at,
            entry_point_name="",
            experiment_id=experiment,
            lifecycle_stage="active",
            run_id=id_,
            run_name=run.id,
            run_uuid=id_,
            source_name="inferometer",
            source_type=_LOCAL,
            source_version="",
            start_time=at,
            status=_FINISHED if run.state == "complete" else _FAILED,
            tags=[],
            user_id="",
        ),
    )
    for metric in quantities(run.summary).values():
        yield text_piece(f"{folder}/metrics/{_named(metric.key)}", f"{at} {metric.value!r} 0\n")
    for key, text in flat(run.plan).items():
        yield text_piece(f"{folder}/params/{_named(key)}", text[:_MOST_PARAMETER])
    for key, tag in tags_of(run).items():
        yield text_piece(f"{folder}/tags/{_named(key)}", tag)


def experiment_name(run: Run) -> str:
    """The experiment of a run: its plan's name or its model, so that comparable runs are together."""
    return run.subject.name or run.subject.model or "inferometer"


def tags_of(run: Run) -> dict[str, str]:
    """Tags: the measured subject, as far as it is known, and the verdict."""
    tags = {
        "mlflow.runName": run.id,
        "inferometer.run": run.id,
        "inferometer.kind": run.kind,
        "inferometer.verdict": run.status,
        "inferometer.identity": identity(run).key,
        "model": run.subject.model,
        "engine": run.subject.engine_text,
        "hardware": gpu_text(run),
    }
    return {name: str(value) for name, value in tags.items() if value}


def run_id(run: Run) -> str:
    """The id in MLflow; the same run always gets the same id, so exporting it again replaces it."""
    return hashlib.sha256(run.id.encode()).hexdigest()[:32]


def _experiment_id(name: str) -> str:
    return str(int(hashlib.sha256(name.encode()).hexdigest()[:15], 16))


def _named(key: str) -> str:
    """A name that MLflow allows; a slash would make a folder."""
    return _ODD.sub("_", key).replace("/", "_")


def _yaml(**fields: object) -> str:
    """A YAML file, written as JSON, so that a numeric id stays text."""
    return "".join(f"{name}: {orjson.dumps(value).decode()}\n" for name, value in fields.items())


def export_wandb(request: ExportRequest) -> list[DocumentPiece]:
    return [json_piece(f"{run.id}.json", document(run)) for run in request.runs]


def document(run: Run) -> dict[str, JsonValue]:
    tags = {name: tag for name, tag in tags_of(run).items() if not name.startswith("mlflow.")}
    return {
        "init": {
            "project": "inferometer",
            "group": experiment_name(run),
            "id": run_id(run),
            "name": run.id,
            "job_type": run.kind,
            "config": {**flat(run.plan), **tags, "started": started(run).isoformat()},
        },
        "summary": {quantity.key.replace(".", "/"): quantity.value for quantity in quantities(run.summary).values()},
    }
