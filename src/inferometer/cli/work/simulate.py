"""Runs a plan against the simulator in virtual time, or serves the simulator."""

from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import print_message
from inferometer.cli.work.plans import plan_of
from inferometer.cli.work.printing import exit_code, print_run
from inferometer.conduct import run as conductor
from inferometer.simulator.virtual import settings_of


def simulate(
    plan_args: tuple[str, ...],
    serve: bool,
    host: str,
    port: int,
    model_file: Path | None,
    more: bool,
    slowest: int,
    as_json: bool,
    **flags: Any,
) -> int:
    plan = plan_of(plan_args, **flags)
    if serve:
        if model_file is not None:
            raise click.UsageError("--model-file predicts in virtual time only: it cannot be combined with --serve")
        from inferometer.simulator.server import run_server  # only with --serve

        run_server(settings_of(plan), host, port, on_ready=lambda server: _print_ready(host, server.port))
        return 0

    if plan.target.url:
        print_message("note", f"{', '.join(plan.target.url)} is not contacted: this is a simulation")
    if model_file is None:
        run = conductor.simulate(plan, _note)
    else:
        from inferometer.conduct.predict import predict  # only with --model-file
        from inferometer.simulator.fitting.server_model import read_model

        prediction = predict(plan, read_model(model_file), _note, intervals=False)
        for text in prediction.notes:
            _note(text)
        run = prediction.run
    print_run(run, as_json=as_json, slowest=slowest, more=more)
    return exit_code(run, shown=not as_json)


def _note(text: str) -> None:
    print_message("note", text)


def _print_ready(host: str, port: int) -> None:
    print_message("note", f"the simulator listens on http://{host}:{port}; Ctrl-C stops it")
    print_message("hint", f"inferometer run --url http://{host}:{port}")
