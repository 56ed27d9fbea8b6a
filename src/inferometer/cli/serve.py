"""`inferometer serve` and `inferometer startup`: start the server of a plan in the foreground, or measure how long it
takes."""

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import TERMINATED, UNREACHABLE, WRONG_USE, echo, print_message, report
from inferometer.cli.options import (
    duration_of,
    json_option,
    quiet_option,
    set_option,
    store_of,
    store_option,
    wait_of,
    wait_option,
)
from inferometer.errors import InferometerError, PlanError, TargetError, Terminated
from inferometer.record.files import schema_of
from inferometer.record.sanitize import json_text
from inferometer.show.console import console

if TYPE_CHECKING:
    from inferometer.plan.model import Plan
    from inferometer.record.run import Run
    from inferometer.router.proxy import RouterProxy
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
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]")
@click.option("--model", metavar="NAME", help="Model to serve.")
@click.option("--host", metavar="HOST", help="Address to listen on. [default: 127.0.0.1]")
@click.option("--port", metavar="N", help="Port to listen on. [default: a free port]")
@click.option("--image", metavar="IMAGE", help="Image of the container.")
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
    from inferometer.record.run import document

    if len(runs) == 1:
        print_run(runs[0], as_json=as_json, slowest=0)
    elif as_json:
        print_json({"schema": schema_of("run"), "runs": [document(run) for run in runs]})
    elif runs:
        from inferometer.show.startup import print_startups

        print_startups(runs, console())


# -- route -------------------------------------------------------------------------------------------------------------

# `inferometer route`: the streaming proxy in front of several replicas, in the foreground.

EXAMPLES = """\b
Examples:
  inferometer route --policy prefix_aware --upstream http://gpu1:8000 --upstream http://gpu2:8000
  inferometer route --policy prefix_aware --set defaults=original --set imbalanced_threshold=5 \\
      --upstream a=http://localhost:8001 --upstream b=http://localhost:8002 --port 8000
      replicas with names, and settings of the policy
  curl -H 'X-Inferometer-Explain: 1' -i http://localhost:8000/v1/completions -d '{...}'
      why a request went where it went, in a header of the response; the latest in GET /router/decisions
"""


@click.command(epilog=EXAMPLES)
@click.option("--policy", metavar="NAME", default="power_of_two", show_default=True, help="How to choose a replica.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[NAME=]URL",
    help="A replica to send requests to. Repeatable; several may follow each other.",
)
@click.argument("more", nargs=-1, metavar="[[NAME=]URL]...")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Port to listen on. [default: a free port]")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the policy. Repeatable.")
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of random choices.")
@click.option(
    "--max-in-flight",
    type=click.IntRange(min=1),
    metavar="N",
    help="Requests that a replica gets at once; more wait in the router. [default: no limit]",
)
@click.option(
    "--queue", "queue_limit", type=click.IntRange(min=0), metavar="N", help="Requests that may wait. [default: 1024]"
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Further replicas to try when one fails before the first byte. [default: 2]",
)
@click.option("--health-path", metavar="PATH", help="Path that a healthy replica answers. [default: /health]")
@click.option("--health-interval", metavar="TIME", help="Time between health checks. [default: 1s]")
@click.option("--ready", metavar="TIME", default="0s", help="Wait this long for the first replica.")
@click.option("--ca", "tls_ca", metavar="FILE", help="Certificate authorities of replicas behind https://.")
@click.option(
    "--insecure",
    "tls_verify",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not verify the certificates of replicas behind https://.",
)
@click.option("--drain", metavar="TIME", help="Time for requests in flight after Ctrl-C or SIGTERM. [default: 30s]")
@json_option
@quiet_option
def route(
    policy: str,
    upstreams: tuple[str, ...],
    more: tuple[str, ...],
    host: str,
    port: int | None,
    settings: tuple[str, ...],
    ready: str,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Route requests over replicas of a server: a streaming HTTP proxy.

    Policies: random, round_robin, least_loaded, power_of_two, prefix_aware (Ray Serve), cache_aware (SGLang),
    block_prefix and prefix_affinity (llm-d), session_affinity. GET /metrics has the router's metrics, /router/state its
    replicas, /router/decisions its latest explained decisions. Ctrl-C or SIGTERM finishes the requests in flight.
    """
    from inferometer.router.serving import run_router
    from inferometer.router.settings import router_settings

    fields = _fields(policy, (*upstreams, *more), settings, options)
    checked = router_settings(fields)

    def note(text: str) -> None:
        if not quiet:
            print_message("note", text)

    def announce(router: "RouterProxy") -> None:
        _announce_router(router, host, as_json, note)

    ended = run_router(checked, host, port or 0, ready_s=duration_of("--ready", ready), on_ready=announce, notify=note)
    return TERMINATED if ended == signal.SIGTERM else 0


def _announce_router(router: "RouterProxy", host: str, as_json: bool, note: Any) -> None:
    """The URL comes last: a script that waits for it may go on."""
    url = f"http://[{host}]:{router.port}" if ":" in host else f"http://{host}:{router.port}"
    for upstream in router.upstreams:
        if not upstream.healthy:
            print_message("warning", f"{upstream.origin.url} is not ready: {upstream.reason}")
    note(f"routing to {len(router.upstreams)} replicas by {router.settings.policy}; Ctrl-C stops it")
    if as_json:
        import orjson

        echo(orjson.dumps({"url": url, "port": router.port, "policy": router.settings.policy}).decode())
    else:
        echo(url)


def _fields(
    policy: str, upstreams: tuple[str, ...], settings: tuple[str, ...], options: dict[str, Any]
) -> dict[str, Any]:
    fields: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for option, name in (("health_interval", "health_interval_s"), ("drain", "drain_s")):
        if option in fields:
            fields[name] = duration_of(f"--{option.replace('_', '-')}", fields.pop(option))
    return fields | {
        "policy": policy,
        "settings": dict(_setting(text) for text in settings),
        "upstreams": [_upstream(text) for text in upstreams],
    }


def _upstream(text: str) -> dict[str, str]:
    """`name=url` or a URL, which is then its own name; without a scheme it is http."""
    name, equals, url = text.partition("=")
    if not equals or "/" in name or ":" in name:
        name, url = "", text
    url = url if "://" in url else f"http://{url}"
    return {"name": name or url.partition("://")[2].rstrip("/"), "url": url}


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set must be NAME=VALUE, got {text}")
    from inferometer.documents.yaml_text import plain  # numbers and true as in a plan

    return name, plain(value) if value else value
