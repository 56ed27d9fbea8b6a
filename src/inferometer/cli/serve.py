"""`inferometer serve`: the server that a plan would start, alone and in the foreground."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import TERMINATED, echo, say
from inferometer.cli.options import json_option, quiet_option, set_option, wait_of, wait_option
from inferometer.errors import Terminated

if TYPE_CHECKING:
    from inferometer.plan.model import Plan
    from inferometer.target.server import StartedServer

LOOK_S = 0.2
EXAMPLES = """\b
Examples:
  inferometer serve simulator
      a server to try things on
  inferometer serve vllm --model Qwen/Qwen3-0.6B -- --max-model-len 4096
      what follows -- goes to the engine as it is
  inferometer serve command -- ./my-server --port {port}
      any program; {port} is a free one
  inferometer serve container --image vllm/vllm-openai:v0.10.1.1 --model Qwen/Qwen3-0.6B
  inferometer serve plan.yaml --log server.log
      the server of a plan
"""


@click.command(epilog=EXAMPLES)
@click.argument("kind", metavar="KIND|PLAN")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- WORDS]")
@click.option("--model", metavar="NAME", help="What to serve.")
@click.option("--host", metavar="HOST", help="Where to listen. [default: 127.0.0.1]")
@click.option("--port", metavar="N", help="[default: a free one]")
@click.option("--image", metavar="IMAGE", help="Of a container.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of its environment. Repeatable.")
@click.option("--folder", metavar="FOLDER", help="Its working folder.")
@click.option("--prepare", multiple=True, metavar="COMMAND", help="Run this before it starts. Repeatable.")
@click.option("--ready", metavar="TIME", help="Give up when it is not ready after so long.")
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what it prints here. [default: stderr]",
)
@set_option
@wait_option
@json_option
@quiet_option
def serve(
    kind: str,
    words: tuple[str, ...],
    log: Path | None,
    overrides: tuple[str, ...],
    wait_for_target: str | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    """Start a server, print its URL when it is ready, and keep it until Ctrl-C; then end it with all its children.

    KIND is vllm, sglang, llamacpp, tgi, command, container or simulator; or name a PLAN whose server is meant.
    """
    wait_s = wait_of(wait_for_target)
    plan = _plan(kind, words, overrides, flags)

    def note(text: str) -> None:
        if not quiet:
            say("note", text)

    from inferometer.target.server import running

    assert plan.server is not None
    with _folder(log) as folder:
        settings: dict[str, Any] = {"holder": "inferometer serve", "wait_s": wait_s, "echo": log is None, "log": log}
        try:
            with running(plan.server, folder, target=plan.target, say=note, **settings) as server:
                note(f"{server.name} is ready; Ctrl-C ends it")
                _announce(server, as_json)
                _watch(server)
        except KeyboardInterrupt as ended:
            note(f"ended {plan.server.type}")
            return TERMINATED if isinstance(ended, Terminated) else 0
    return 0


@contextmanager
def _folder(log: Path | None) -> Iterator[Path]:
    """Where its log and those of its preparation are. Nobody asked to keep them, unless it fails: then the error says
    where they are."""
    if log is not None:
        yield log.absolute().parent
        return
    from inferometer.errors import TargetError

    temporary, wanted = Path(tempfile.mkdtemp(prefix="inferometer-serve-")), False
    try:
        yield temporary
    except TargetError:
        wanted = any(file.stat().st_size for file in temporary.iterdir())
        raise
    finally:
        if not wanted:
            shutil.rmtree(temporary, ignore_errors=True)


def _plan(kind: str, words: tuple[str, ...], overrides: tuple[str, ...], flags: dict[str, Any]) -> "Plan":
    """The plan that has just this server."""
    from inferometer.errors import PlanError
    from inferometer.plan.opening import open_plan
    from inferometer.plan.reading import plan_from

    section = _section(flags)
    if not _is_type(kind):
        plan = open_plan((kind,), overrides).plan
        if plan.server is None or plan.server.type == "external":
            raise PlanError(
                f"{kind}: has no server that could be started", "a plan's server: section says what to start"
            )
        if words or section:
            raise PlanError(f"{kind}: with a plan, the server is changed by --set server.args.NAME=VALUE")
        return plan
    extra: dict[str, Any] = {"command" if kind == "command" else "flags": list(words)} if words else {}
    return plan_from({"server": {"type": kind, **section, **extra}}, overrides, "serve")


def _is_type(kind: str) -> bool:
    return kind.isidentifier() and not Path(kind).is_file()


def _section(flags: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in flags.items() if value}
    if "env" in given:
        given["env"] = dict(_variable(each) for each in given["env"])
    if "prepare" in given:
        given["prepare"] = list(given["prepare"])
    return given


def _variable(text: str) -> tuple[str, str]:
    """`NAME=value`; a name alone is taken from our environment when the server starts."""
    name, equals, value = text.partition("=")
    return name, value if equals else f"${{{name}}}"


def _announce(server: "StartedServer", as_json: bool) -> None:
    """The URL comes last: whoever waits for it may go on."""
    say("hint", f"inferometer run --url {server.url}")
    if as_json:
        import orjson

        from inferometer.record.sanitize import json_text

        echo(json_text(server.facts, orjson.OPT_INDENT_2))
    else:
        echo(server.url)


def _watch(server: "StartedServer") -> None:
    """Until Ctrl-C, or until it ends by itself, which is an error with the end of its log."""
    while True:
        server.check()
        time.sleep(LOOK_S)
