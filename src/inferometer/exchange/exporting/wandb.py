"""A run as the two calls of Weights & Biases take it: the arguments of `wandb.init` and of `run.summary.update`.
Nothing is sent from here; two lines of Python or a later job do that, with the account that they have."""

from typing import Any

from inferometer.exchange.exporting.facts import started
from inferometer.exchange.exporting.mlflow import experiment_name, run_id, tags_of
from inferometer.exchange.exporting.registry import ExportRequest, Piece, json_piece
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.store.entry import flat


def export(request: ExportRequest) -> list[Piece]:
    return [json_piece(f"{run.id}.json", document(run)) for run in request.runs]


def document(run: Run) -> dict[str, Any]:
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
