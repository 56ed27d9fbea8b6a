"""`run --dry-run`: what would be done, without doing it."""

import os

from inferometer.cli.echo import echo
from inferometer.load.curl import first_request_as_curl
from inferometer.plan.model import Plan
from inferometer.plan.writing import to_yaml
from inferometer.simulator.settings import SimulatorSettings
from inferometer.workload.context import context_of
from inferometer.workload.registry import new_nonce, workload_of


def print_dry_run(plan: Plan) -> None:
    """The effective plan as YAML, and its first request as curl in a comment below: the output is still a plan."""
    echo(to_yaml(plan, full=True), nl=False)
    echo("\n# the first request:" + ("" if plan.target.model else f" ({_found(plan)})"))
    curl = first_request_as_curl(plan, os.environ, plan.target.model or _model(plan))
    echo("\n".join(f"# {line}" for line in curl.splitlines()))
    for line in _told_of_workloads(plan):
        echo(f"# {line}")


def _told_of_workloads(plan: Plan) -> list[str]:
    """What the workloads have to say, such as the statistics of a dataset."""
    notes: list[str] = []
    context = context_of(plan.target, note=notes.append)
    for traffic in plan.classes:
        workload_of(traffic.workload, plan.seed, traffic.draw, new_nonce(), context)
    return [line for note in notes for line in note.splitlines()]


def _found(plan: Plan) -> str:
    return "the model is asked of the server" if plan.target.url else "the simulator is started on a free port"


def _model(plan: Plan) -> str:
    """A stand-in for what the server will say."""
    return "MODEL" if plan.target.url else SimulatorSettings().model
