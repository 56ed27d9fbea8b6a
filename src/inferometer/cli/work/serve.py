"""Starts the server of a plan and runs it in the foreground."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from inferometer.cli.errors import TERMINATED, echo, print_message
from inferometer.cli.options import (
    wait_of,
)
from inferometer.errors import PlanError, TargetError, Terminated
from inferometer.plan.model import Plan
from inferometer.plan.opening import open_plan
from inferometer.plan.reading import plan_from
from inferometer.record.encoding import document_of
from inferometer.record.sanitize import json_text
from inferometer.target.server import StartedServer, running

POLL_S = 0.2


def serve(
    kind: str,
    args: tuple[str, ...],
    log: Path | None,
    overrides: tuple[str, ...],
    wait_for_target: str | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    wait_s = wait_of(wait_for_target)
    plan = _plan(kind, args, overrides, flags)

    def note(text: str) -> None:
        if not quiet:
            print_message("note", text)

    assert plan.server is not None
    with _folder(log) as folder:
        settings: dict[str, Any] = {"holder": "inferometer serve", "wait_s": wait_s, "echo": log is None, "log": log}
        try:
            with running(plan.server, folder, target=plan.target, notify=note, **settings) as server:
                note(f"{server.name} is ready; Ctrl-C stops it")
                _announce(server, as_json)
                _watch(server)
        except KeyboardInterrupt as ended:
            note(f"stopped {plan.server.type}")
            return TERMINATED if isinstance(ended, Terminated) else 0
    return 0


@contextmanager
def _folder(log: Path | None) -> Iterator[Path]:
    """The folder for the logs of the server and its preparation. A temporary one is only kept if the server fails: the
    error names it."""
    if log is not None:
        yield log.absolute().parent
        return

    temporary, wanted = Path(tempfile.mkdtemp(prefix="inferometer-serve-")), False
    try:
        yield temporary
    except TargetError:
        wanted = any(file.stat().st_size for file in temporary.iterdir())
        raise
    finally:
        if not wanted:
            shutil.rmtree(temporary, ignore_errors=True)


def _plan(kind: str, args: tuple[str, ...], overrides: tuple[str, ...], flags: dict[str, Any]) -> Plan:
    """A plan with only this server."""
    section = _section(flags)
    if not _is_type(kind):
        plan = open_plan((kind,), overrides).plan
        if plan.server is None or plan.server.type == "external":
            raise PlanError(f"{kind}: the plan has no server to start", "add a server: section to the plan")
        if args or section:
            raise PlanError(f"{kind}: with a plan, change the server with --set server.args.NAME=VALUE")
        return plan
    extra: dict[str, Any] = {"command" if kind == "command" else "flags": list(args)} if args else {}
    return plan_from({"server": {"type": kind, **section, **extra}}, overrides, "serve")


def _is_type(kind: str) -> bool:
    return kind.isidentifier() and not Path(kind).is_file()


def _section(flags: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in flags.items() if value}
    if "env" in given:
        given["env"] = dict(_variable(variable) for variable in given["env"])
    if "prepare" in given:
        given["prepare"] = list(given["prepare"])
    return given


def _variable(text: str) -> tuple[str, str]:
    """Parses `NAME=value`; the value of a name alone is read from our environment when the server starts."""
    name, equals, value = text.partition("=")
    return name, value if equals else f"${{{name}}}"


def _announce(server: StartedServer, as_json: bool) -> None:
    """Prints the URL last: scripts wait for it."""
    print_message("hint", f"inferometer run --url {server.url}")
    if as_json:
        echo(json_text(document_of(server.facts), orjson.OPT_INDENT_2))
    else:
        echo(server.url)


def _watch(server: StartedServer) -> None:
    """Waits until Ctrl-C; if the server exits by itself, raises an error with the end of its log."""
    while True:
        server.check()
        time.sleep(POLL_S)
