"""`inferometer startup`: how long a server takes to start, and on what; from its log, or by starting it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import UNREACHABLE, WRONG_USE, report, say
from inferometer.cli.options import json_option, quiet_option, set_option, store_of, store_option, wait_of, wait_option

if TYPE_CHECKING:
    from inferometer.plan.model import Plan
    from inferometer.record.run import Run

EXAMPLES = """\b
Examples:
  inferometer startup --log server.log
      time to ready and its phases, as vLLM's own log tells them
  inferometer startup --log safetensors.log tensorizer.log runai.log
      side by side
  inferometer startup --server vllm --model Qwen/Qwen3-0.6B
      start it, wait until it is ready, end it
  inferometer startup --server vllm --model M --load-format safetensors --load-format runai_streamer
      once with each way to load the weights
  inferometer startup --server vllm --model M --args max_model_len=4096 --sleep
      with arguments of the engine; then sent to sleep and woken up
"""


@click.command(epilog=EXAMPLES)
@click.argument("words", nargs=-1, metavar="[LOG]...")
@click.option("--log", "logs", multiple=True, metavar="FILE", help="A log of vLLM; more may follow. Repeatable.")
@click.option("--server", metavar="KIND|PLAN", help="Start this server: vllm, simulator, ..., or that of a plan.")
@click.option("--model", metavar="NAME", help="What it serves.")
@click.option("--args", multiple=True, metavar="KEY=VALUE", help="An argument of the server's own. Repeatable.")
@click.option("--load-format", "formats", multiple=True, metavar="FORMAT", help="Of vLLM; once with each. Repeatable.")
@click.option("--sleep", is_flag=True, help="Send it to sleep and wake it up too (vLLM).")
@set_option
@wait_option
@json_option
@quiet_option
@store_option
def startup(
    words: tuple[str, ...],
    logs: tuple[str, ...],
    server: str | None,
    as_json: bool,
    quiet: bool,
    store: Path | None,
    **asked: Any,
) -> int:
    """How long a server takes until it is ready: platform, imports, config, weights, compile, graphs, API.

    A phase that the log does not tell of is said to be unmatched. VLLM_LOGGING_LEVEL=DEBUG makes vLLM tell of all.
    """
    files = (*logs, *words)
    if bool(files) == bool(server):
        raise click.UsageError("give logs to read (--log FILE ...), or a server to start (--server vllm --model NAME)")
    if server is not None:
        made, code = _from_servers(_plans(server, asked), store, quiet, asked)
    else:
        made, code = _from_logs(files, store, quiet)
    _print(made, as_json)
    return code


def _from_logs(files: tuple[str, ...], store: Path | None, quiet: bool) -> tuple[list["Run"], int]:
    """A log that cannot be read is said, and the others are shown."""
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
    plans: list["Plan"], store: Path | None, quiet: bool, asked: dict[str, Any]
) -> tuple[list["Run"], int]:
    """One that does not start is said, and the others are tried."""
    from inferometer.conduct.startup import startup_of_server
    from inferometer.errors import TargetError

    made, code, kept_in = [], 0, store_of(store)
    settings = {"sleep": asked["sleep"], "wait_s": wait_of(asked["wait_for_target"])}
    for plan in plans:
        try:
            made.append(startup_of_server(plan, store=kept_in, notes=_notes(quiet), **settings))
        except TargetError as error:
            code = report(error) or UNREACHABLE
    return made, code


def _plans(server: str, asked: dict[str, Any]) -> list["Plan"]:
    """The plan that has this server, once for each load format."""
    from inferometer.errors import PlanError
    from inferometer.plan.offline import settings
    from inferometer.plan.opening import open_plan
    from inferometer.plan.reading import plan_from

    args, overrides = settings(asked["args"]), asked["overrides"]
    if Path(server).is_file() or not server.isidentifier():
        plan = open_plan((server,), overrides).plan
        if plan.server is None or plan.server.type == "external":
            raise PlanError(f"{server}: has no server that could be started", "its server: section says what to start")
        section = plan.server.model_dump(mode="json", exclude_defaults=True) | {"type": plan.server.type}
        whole = {"target": plan.target.model_dump(mode="json", exclude_defaults=True)}
    else:
        section, whole = {"type": server}, {}
    section |= {"model": asked["model"]} if asked["model"] else {}
    section["args"] = section.get("args", {}) | args
    made = []
    for way in asked["formats"] or (None,):
        more = {"load_format": way} if way else {}
        name = {"name": f"startup {way}"} if way else {}
        made.append(
            plan_from({**name, **whole, "server": section | {"args": section["args"] | more}}, overrides, "startup")
        )
    return made


def _notes(quiet: bool) -> Any:
    return (lambda _text: None) if quiet else (lambda text: say("note", text))


def _print(runs: list["Run"], as_json: bool) -> None:
    from inferometer.cli.printing import print_json, print_run
    from inferometer.record.run import document
    from inferometer.record.schema import schema_of

    if len(runs) == 1:
        print_run(runs[0], as_json=as_json, slowest=0)
    elif as_json:
        print_json({"schema": schema_of("run"), "runs": [document(run) for run in runs]})
    elif runs:
        from inferometer.show.console import console
        from inferometer.show.startup import print_startups

        print_startups(runs, console())
