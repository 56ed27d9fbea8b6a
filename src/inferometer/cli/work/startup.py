"""Measures how long a server takes to start, from its log or by starting it."""

from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import UNREACHABLE, WRONG_USE, print_message, report
from inferometer.cli.options import wait_of
from inferometer.cli.work.printing import print_run
from inferometer.cli.work.stores import store_of
from inferometer.conduct.startup import startup_from_log, startup_of_server
from inferometer.errors import InferometerError, PlanError, TargetError
from inferometer.plan.model import Plan
from inferometer.plan.offline import settings
from inferometer.plan.opening import open_plan
from inferometer.plan.reading import plan_from
from inferometer.record.files import schema_of
from inferometer.record.run import Run, document
from inferometer.show.console import console, print_json
from inferometer.show.startup import print_startups


def startup(
    more_logs: tuple[str, ...],
    logs: tuple[str, ...],
    server: str | None,
    as_json: bool,
    quiet: bool,
    store: Path | None,
    **options: Any,
) -> int:
    files = (*logs, *more_logs)
    if bool(files) == bool(server):
        raise click.UsageError("name logs to read (--log FILE ...) or a server to start (--server vllm --model NAME)")
    if server is not None:
        made, code = _from_servers(_plans(server, options), store, quiet, options)
    else:
        made, code = _from_logs(files, store, quiet)
    _print(made, as_json)
    return code


def _from_logs(files: tuple[str, ...], store: Path | None, quiet: bool) -> tuple[list[Run], int]:
    """A log that cannot be read is reported; the others are shown."""
    made, code, kept_in = [], 0, store_of(store)
    for file in files:
        try:
            made.append(startup_from_log(Path(file), store=kept_in, notes=_notes(quiet)))
        except InferometerError as error:
            code = report(error) or WRONG_USE
    return made, code


def _from_servers(plans: list[Plan], store: Path | None, quiet: bool, options: dict[str, Any]) -> tuple[list[Run], int]:
    """A server that does not start is reported; the others are still measured."""
    made, code, kept_in = [], 0, store_of(store)
    settings = {"sleep": options["sleep"], "wait_s": wait_of(options["wait_for_target"])}
    for plan in plans:
        try:
            made.append(startup_of_server(plan, store=kept_in, notes=_notes(quiet), **settings))
        except TargetError as error:
            code = report(error) or UNREACHABLE
    return made, code


def _plans(server: str, options: dict[str, Any]) -> list[Plan]:
    """A plan with this server for each load format."""
    args, overrides = settings(options["args"]), options["overrides"]
    if Path(server).is_file() or not server.isidentifier():
        plan = open_plan((server,), overrides).plan
        if plan.server is None or plan.server.type == "external":
            raise PlanError(f"{server}: the plan has no server to start", "add a server: section to the plan")
        section = plan.server.model_dump(mode="json", exclude_defaults=True) | {"type": plan.server.type}
        whole = {"target": plan.target.model_dump(mode="json", exclude_defaults=True)}
    else:
        section, whole = {"type": server}, {}
    section |= {"model": options["model"]} if options["model"] else {}
    section["args"] = section.get("args", {}) | args
    made = []
    for way in options["formats"] or (None,):
        more = {"load_format": way} if way else {}
        name = {"name": f"startup {way}"} if way else {}
        made.append(
            plan_from({**name, **whole, "server": section | {"args": section["args"] | more}}, overrides, "startup")
        )
    return made


def _notes(quiet: bool) -> Any:
    return (lambda _text: None) if quiet else (lambda text: print_message("note", text))


def _print(runs: list[Run], as_json: bool) -> None:
    if len(runs) == 1:
        print_run(runs[0], as_json=as_json, slowest=0)
    elif as_json:
        print_json({"schema": schema_of("run"), "runs": [document(run) for run in runs]})
    elif runs:
        print_startups(runs, console())
