"""`inferometer simulate`: a plan against the simulator on virtual time, or the simulator as a server."""

from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import print_message
from inferometer.cli.options import json_option, model_file_option, plan_argument, plan_of, slowest_option, work_flags

EXAMPLES = """\b
Examples:
  inferometer simulate --rate 10 --duration 1h
      simulate an hour of load in seconds
  inferometer simulate --rate 10 --set server.args.max_sequences=64
      change the simulated engine; its settings are under server.args
  inferometer simulate --rate 10 --set "server={type: fleet, replicas: 4, router: prefix_aware}"
      a fleet of simulated engines behind a routing policy
  inferometer simulate --rate 10 --model-file h200-8b.yaml
      a server whose model was fitted to measured runs
  inferometer simulate --serve --port 8000
      a server for trying things out: http://127.0.0.1:8000/v1
"""


@click.command(epilog=EXAMPLES)
@plan_argument
@work_flags
@click.option("--serve", is_flag=True, help="Run the simulator as a real server in the foreground until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --serve: address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="With --serve; 0: any.")
@model_file_option()
@slowest_option
@json_option
def simulate(
    plan_args: tuple[str, ...],
    serve: bool,
    host: str,
    port: int,
    model_file: Path | None,
    slowest: int,
    as_json: bool,
    **flags: Any,
) -> int:
    """Run PLAN against the simulator in virtual time: no server, no network, an hour takes seconds.

    The summary is the same as that of a run; nothing is stored.
    """
    plan = plan_of(plan_args, **flags)
    if serve:
        if model_file is not None:
            raise click.UsageError("--model-file predicts in virtual time only: it does not go with --serve")
        from inferometer.simulator.server import run_server
        from inferometer.simulator.virtual import settings_of

        run_server(settings_of(plan), host, port, on_ready=lambda server: _print_ready(host, server.port))
        return 0
    from inferometer.cli.printing import exit_code, print_run
    from inferometer.conduct import simulate as conductor

    if plan.target.url:
        print_message("note", f"{', '.join(plan.target.url)} is not contacted: this is a simulation")
    if model_file is None:
        run = conductor.simulate(plan, _note)
    else:
        from inferometer.conduct.predict import predict
        from inferometer.simulator.fitting.server_model import read_model

        prediction = predict(plan, read_model(model_file), _note, intervals=False)
        for text in prediction.notes:
            _note(text)
        run = prediction.run
    print_run(run, as_json=as_json, slowest=slowest)
    return exit_code(run, shown=not as_json)


def _note(text: str) -> None:
    print_message("note", text)


def _print_ready(host: str, port: int) -> None:
    print_message("note", f"the simulator listens on http://{host}:{port}; Ctrl-C stops it")
    print_message("hint", f"inferometer run --url http://{host}:{port}")
