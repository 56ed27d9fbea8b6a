"""`inferometer serve` and `inferometer startup`: start the server of a plan in the foreground, or measure how long it
takes."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import TERMINATED, UNREACHABLE, WRONG_USE, echo, print_message, report
from inferometer.cli.options import json_option, quiet_option, set_option, store_of, store_option, wait_of, wait_option
from inferometer.errors import Terminated

if TYPE_CHECKING:
    from inferometer.plan.model import Plan
    from inferometer.record.run import Run
    from inferometer.target.server import StartedServer


LOOK_S = 0.2


SERVE_EXAMPLES = """\b
Examples:
  inferometer serve simulator
      a server for trying things out
  inferometer serve vllm --model Qwen/Qwen3-0.6B -- --max-model-len 4096
      arguments after -- are passed to the engine unchanged
  inferometer serve command -- ./my-server --port {port}
      any program; {port} is replaced by a free port
  inferometer serve container --image vllm/vllm-openai:v0.10.1.1 --model Qwen/Qwen3-0.6B
  inferometer serve plan.yaml --log server.log
      start the server of a plan
"""


@click.command(epilog=SERVE_EXAMPLES)
@click.argument("kind", metavar="KIND|PLAN")
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[-- WORDS]")
@click.option("--model", metavar="NAME", help="Model to serve.")
@click.option("--host", metavar="HOST", help="Address to listen on. [default: 127.0.0.1]")
@click.option("--port", metavar="N", help="Port to listen on. [default: a free port]")
@click.option("--image", metavar="IMAGE", help="Of a container.")
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", help="Set an environment variable of the server. Repeatable."
)
@click.option("--folder", metavar="FOLDER", help="Working directory of the server.")
@click.option(
    "--prepare", multiple=True, metavar="COMMAND", help="Command to run before the server starts. Repeatable."
)
@click.option("--ready", metavar="TIME", help="Give up if the server is not ready after this time.")
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the server's output to this file. [default: stderr]",
)
@set_option
@wait_option
@json_option
@quiet_option
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
    """Start a server, print its URL when it is ready, run it until Ctrl-C, then stop it and all its child processes.

    KIND is vllm, sglang, llamacpp, tgi, command, container or simulator; or name a PLAN that has a server.
    """
    wait_s = wait_of(wait_for_target)
    plan = _plan(kind, args, overrides, flags)

    def note(text: str) -> None:
        if not quiet:
            print_message("note", text)

    from inferometer.target.server import running

    assert plan.server is not None
    with _folder(log) as folder:
        settings: dict[str, Any] = {"holder": "inferometer serve", "wait_s": wait_s, "echo": log is None, "log": log}
        try:
            with running(plan.server, folder, target=plan.target, notify=note, **settings) as server:
                note(f"{server.name} is ready; Ctrl-C stops it")
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


def _plan(kind: str, args: tuple[str, ...], overrides: tuple[str, ...], flags: dict[str, Any]) -> "Plan":
    """The plan that has just this server."""
    from inferometer.errors import PlanError
    from inferometer.plan.opening import open_plan
    from inferometer.plan.reading import plan_from

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
    """`NAME=value`; a name alone is taken from our environment when the server starts."""
    name, equals, value = text.partition("=")
    return name, value if equals else f"${{{name}}}"


def _announce(server: "StartedServer", as_json: bool) -> None:
    """The URL comes last: a script that waits for it may go on."""
    print_message("hint", f"inferometer run --url {server.url}")
    if as_json:
        import orjson

        from inferometer.record.encoding import document_of
        from inferometer.record.sanitize import json_text

        echo(json_text(document_of(server.facts), orjson.OPT_INDENT_2))
    else:
        echo(server.url)


def _watch(server: "StartedServer") -> None:
    """Until Ctrl-C, or until it ends by itself, which is an error with the end of its log."""
    while True:
        server.check()
        time.sleep(LOOK_S)


STARTUP_EXAMPLES = """\b
Examples:
  inferometer startup --log server.log
      time to ready and its phases, from vLLM's own log
  inferometer startup --log safetensors.log tensorizer.log runai.log
      compare several logs side by side
  inferometer startup --server vllm --model Qwen/Qwen3-0.6B
      start the server, wait until it is ready, stop it
  inferometer startup --server vllm --model M --load-format safetensors --load-format runai_streamer
      one start per load format
  inferometer startup --server vllm --model M --args max_model_len=4096 --sleep
      with engine arguments; also measure sleep and wake-up
"""


@click.command(epilog=STARTUP_EXAMPLES)
@click.argument("more_logs", nargs=-1, metavar="[LOG]...")
@click.option("--log", "logs", multiple=True, metavar="FILE", help="vLLM log file; more may follow. Repeatable.")
@click.option("--server", metavar="KIND|PLAN", help="Server to start: vllm, simulator, ..., or a plan with a server.")
@click.option("--model", metavar="NAME", help="Model to serve.")
@click.option("--args", multiple=True, metavar="KEY=VALUE", help="Server argument. Repeatable.")
@click.option(
    "--load-format",
    "formats",
    multiple=True,
    metavar="FORMAT",
    help="Load format of vLLM, one start for each. Repeatable.",
)
@click.option("--sleep", is_flag=True, help="Also measure sleep and wake-up (vLLM).")
@set_option
@wait_option
@json_option
@quiet_option
@store_option
def startup(
    more_logs: tuple[str, ...],
    logs: tuple[str, ...],
    server: str | None,
    as_json: bool,
    quiet: bool,
    store: Path | None,
    **options: Any,
) -> int:
    """Measure how long a server takes to become ready: platform, imports, config, weights, compile, graphs, API.

    A phase that is not in the log is reported as unmatched. VLLM_LOGGING_LEVEL=DEBUG makes vLLM log all phases.
    """
    files = (*logs, *more_logs)
    if bool(files) == bool(server):
        raise click.UsageError("name logs to read (--log FILE ...) or a server to start (--server vllm --model NAME)")
    if server is not None:
        made, code = _from_servers(_plans(server, options), store, quiet, options)
    else:
        made, code = _from_logs(files, store, quiet)
    _print(made, as_json)
    return code


def _from_logs(files: tuple[str, ...], store: Path | None, quiet: bool) -> tuple[list["Run"], int]:
    """A log that cannot be read is reported, and the others are shown."""
    from inferometer.conduct.startup import startup_from_log
    from inferometer.errors import InferometerError

    made, code, kept_in = [], 0, store_of(store)
    for file in files:
        try:
            made.append(startup_from_log(Path(file), store=kept_in, notes=_notes(quiet)))
        except InferometerError as error:
            code = report(error) or WRONG_USE
    return made, code


def _from_servers(
    plans: list["Plan"], store: Path | None, quiet: bool, options: dict[str, Any]
) -> tuple[list["Run"], int]:
    """One that does not start is reported, and the others are tried."""
    from inferometer.conduct.startup import startup_of_server
    from inferometer.errors import TargetError

    made, code, kept_in = [], 0, store_of(store)
    settings = {"sleep": options["sleep"], "wait_s": wait_of(options["wait_for_target"])}
    for plan in plans:
        try:
            made.append(startup_of_server(plan, store=kept_in, notes=_notes(quiet), **settings))
        except TargetError as error:
            code = report(error) or UNREACHABLE
    return made, code


def _plans(server: str, options: dict[str, Any]) -> list["Plan"]:
    """The plan that has this server, once for each load format."""
    from inferometer.errors import PlanError
    from inferometer.plan.offline import settings
    from inferometer.plan.opening import open_plan
    from inferometer.plan.reading import plan_from

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


def _print(runs: list["Run"], as_json: bool) -> None:
    from inferometer.cli.printing import print_json, print_run
    from inferometer.record.files import schema_of
    from inferometer.record.run import document

    if len(runs) == 1:
        print_run(runs[0], as_json=as_json, slowest=0)
    elif as_json:
        print_json({"schema": schema_of("run"), "runs": [document(run) for run in runs]})
    elif runs:
        from inferometer.show.console import console
        from inferometer.show.startup import print_startups

        print_startups(runs, console())
