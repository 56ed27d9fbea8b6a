"""Runs a plan with progress on the terminal, prints the run, sends notifications and returns the exit code; or prints a
dry run."""

import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from inferometer.cli.errors import echo, print_message
from inferometer.cli.work.printing import exit_code, print_run
from inferometer.conduct.run import run
from inferometer.documents.document import JsonValue
from inferometer.errors import InferometerError
from inferometer.plan.model import Plan
from inferometer.plan.text import to_mapping, to_yaml
from inferometer.record.run import Run
from inferometer.show.progress import ProgressLine
from inferometer.store.manifest import checked_label
from inferometer.store.store import Place, open_store
from inferometer.workload.session import context_of, new_nonce, workload_of

if TYPE_CHECKING:
    from inferometer.show.notify import Channel

# -- conduct ---------------------------------------------------------------------------------------------------------


def conduct(
    plan: Plan,
    store: Place,
    *,
    as_json: bool,
    slowest: int,
    quiet: bool,
    wait_s: float = 0.0,
    notify: "Sequence[Channel]" = (),
    tags: Sequence[str] = (),
) -> int:
    """Make a run, store it, then print it. Progress and notes go to stderr: in a pipe one line of progress every 10 s,
    with `--json` only the first of these lines."""
    checked_tags = [checked_label(tag, "tag") for tag in tags]  # before the run, which may take an hour

    def measured() -> tuple[Run, int]:
        made = _run(plan, store, quiet, wait_s, lines=1 if as_json else math.inf)
        if checked_tags:
            open_store(store).tag(made.id, checked_tags)
        print_run(made, as_json=as_json, slowest=slowest)
        return made, exit_code(made, shown=not as_json)

    return _notified(measured, plan, store, notify, quiet)[1] if notify else measured()[1]


def _notified(
    measured: Callable[[], tuple[Run, int]], plan: Plan, store: Place, channels: "Sequence[Channel]", quiet: bool
) -> tuple[Run, int]:
    """Make a run and send notifications of its result, also if it failed."""
    from inferometer.cli.work.notify import notify_error, notify_run  # loads SQLAlchemy: only with --notify

    try:
        made, code = measured()
    except InferometerError as error:
        notify_error(to_mapping(plan), error.message, store, channels, quiet=quiet)
        raise
    notify_run(made, store, channels, quiet=quiet)
    return made, code


def _run(plan: Plan, store: Place, quiet: bool, wait_s: float, lines: float) -> Run:
    line = ProgressLine(lines=lines)

    def note(text: str) -> None:
        line.clear()
        print_message("note", text)

    try:
        return run(
            plan,
            store=store,
            watch=None if quiet else line,
            notes=None if quiet else note,
            wait_for_target_s=wait_s,
        )
    finally:
        line.clear()


# -- dryrun ----------------------------------------------------------------------------------------------------------


def print_dry_run(plan: Plan, settings: dict[str, JsonValue] | None) -> None:
    """Prints the given settings (`None`: every setting) as YAML, and below as a comment the first request as curl: the
    output is a valid plan."""
    from inferometer.load.transport import first_request_as_curl  # only with --dry-run
    from inferometer.plan.foreign.shapes import to_yaml as settings_to_yaml

    echo(to_yaml(plan, full=True) if settings is None else settings_to_yaml(plan, settings), nl=False)
    echo("\n# the first request:" + ("" if plan.target.model else f" ({_model_origin(plan)})"))
    curl = first_request_as_curl(plan, os.environ, plan.target.model or _model(plan))
    echo("\n".join(f"# {line}" for line in curl.splitlines()))
    for line in _workload_notes(plan):
        echo(f"# {line}")


def _workload_notes(plan: Plan) -> list[str]:
    """Notes of the workloads, such as the statistics of a dataset."""
    notes: list[str] = []
    context = context_of(plan.target, note=notes.append)
    for traffic in plan.classes:
        workload_of(traffic.workload, plan.seed, traffic.draw, new_nonce(), context)
    return [line for note in notes for line in note.splitlines()]


def _model_origin(plan: Plan) -> str:
    return (
        "the model name is read from the server at run time"
        if plan.target.url
        else "the simulator is started on a free port"
    )


def _model(plan: Plan) -> str:
    """A placeholder for the model name that the server would report."""
    from inferometer.simulator.settings import SimulatorSettings  # only with --dry-run

    return "MODEL" if plan.target.url else SimulatorSettings().model
