"""`python -m inferometer.target.ray_serve`: the driver. Connects to Ray or starts it, deploys the application, and on
SIGTERM or when its parent is gone takes down everything it started."""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from inferometer.errors import InferometerError, MissingExtra, PlanError, TargetError
from inferometer.target.launch import check_port
from inferometer.target.ray_serve.settings import MADE_FOR, OLDEST, RayArgs, RayServeSettings, check_address

OBJECT_STORE = 256 << 20  # bytes: requests and answers are small
START_S, ATTEMPTS = 120, 2  # for Ray's own daemons, which may start late on a busy machine
LAST_LINES = 3
TREE = "LlmPrefixTreeActor"  # name of Ray's tree actor
FOLDER = "inferometer-ray-"
LONGEST_PARENT = 15  # characters: it contains sockets, whose paths are limited to 107
VERSIONS = "the cluster and this Python need the same versions of Ray and Python"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m inferometer.target.ray_serve", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--metrics-port", type=int, help="of a Ray that is started here")
    parser.add_argument("--settings", required=True, help="JSON object, see target.ray_serve.settings")
    options = parser.parse_args(arguments)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: _end(over))
    threading.Thread(target=_await_stdin, args=(over,), daemon=True).start()
    try:
        settings = msgspec.json.decode(options.settings, type=RayServeSettings)
        with deployed(settings, options.host, options.port, options.metrics_port):
            print(json.dumps({"url": f"http://{options.host}:{options.port}", "pid": os.getpid()}), flush=True)
            over.wait()
    except InferometerError as error:
        print(f"error: {error.message}", file=sys.stderr, flush=True)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr, flush=True)
        return error.exit_code
    except Interrupted:
        return 130
    return 0


class Interrupted(BaseException):
    """We received SIGTERM while waiting for Ray."""


def _end(over: threading.Event) -> None:
    if over.is_set():
        return
    over.set()
    if not _is_deployed:
        raise Interrupted


_is_deployed = False


def _await_stdin(over: threading.Event) -> None:
    """The parent holds the other end of the pipe. If it closes, we end as with a signal."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    if not over.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def deployed(settings: RayServeSettings, host: str, port: int, metrics_port: int | None) -> Iterator[None]:
    """The application on Ray, as long as the context lasts."""
    global _is_deployed
    ray, serve = imported()
    with ExitStack() as stack:
        if settings.args.address is None:
            stack.enter_context(own_ray(ray, settings, metrics_port))
        else:
            stack.enter_context(running_ray(ray, serve, settings.args, host, port))
        handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            serve.start(http_options={"host": host, "port": port})
            for number, handler in handlers:  # Ray replaces them
                signal.signal(number, handler)
            from inferometer.target.ray_serve import app

            made = app.simulator_app(settings) if settings.engine == "simulator" else app.vllm_app(settings)
            serve.run(made, name=settings.args.app, route_prefix="/", logging_config={"enable_access_log": False})
        except Interrupted:
            raise
        except Exception as error:  # Ray raises errors of many types
            raise TargetError(f"the application could not be deployed on Ray: {_text(error)}") from error
        _is_deployed = True
        yield


def imported() -> tuple[Any, Any]:
    """`ray` and `ray.serve`, in a version that has the required features."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", str(START_S))
    os.environ.setdefault("RAY_agent_register_timeout_ms", str(1000 * START_S))
    try:
        import ray
        from ray import serve
    except ImportError:
        raise MissingExtra("an application on Ray Serve", "ray-serve") from None
    check_version(ray.__version__)
    return ray, serve


def check_version(version: str) -> None:
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if parts < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise PlanError(
            f"ray-serve needs Ray {oldest} or newer, got {version}",
            f"pip install 'ray[serve]=={MADE_FOR}', or {oldest}+",
        )


@contextmanager
def own_ray(ray: Any, settings: RayServeSettings, metrics_port: int | None) -> Iterator[None]:
    """Our own Ray, whose processes and files are removed when we end."""
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    for attempt in range(1, ATTEMPTS + 1):
        with ExitStack() as stack:
            parent = tempfile.gettempdir()
            folder = tempfile.mkdtemp(prefix=FOLDER, dir=parent if len(parent) <= LONGEST_PARENT else "/tmp")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.callback(ray.shutdown)
            try:
                _start(ray, folder, settings, metrics_port)
            except Exception as error:  # Ray raises errors of many types
                _report_logs(Path(folder))
                if attempt == ATTEMPTS or "timed out during startup" not in str(error):
                    raise TargetError(f"Ray could not be started: {_text(error)}") from error
                print(f"Ray could not be started, try {attempt} of {ATTEMPTS}: {_text(error)}", flush=True)
                continue
            for number, handler in handlers:  # Ray replaces them
                signal.signal(number, handler)
            yield
            return


def _report_logs(folder: Path) -> None:
    """Prints the end of the logs of Ray's daemons, which are deleted with the folder: they explain a failed start."""
    for log in sorted(folder.glob("session_2*/logs/*")):
        if log.name in ("raylet.out", "raylet.err", "gcs_server.err", "dashboard_agent.log"):
            with suppress(OSError):
                for line in log.read_text(errors="replace").splitlines()[-LAST_LINES:]:
                    print(f"{log.name}: {line[:300]}", flush=True)


def _start(ray: Any, folder: str, settings: RayServeSettings, metrics_port: int | None) -> None:
    """The number of cores is only bookkeeping: Ray reserves one for every replica of vLLM, for its engine and for the
    ingress, and on a machine with fewer cores would never start the last ones."""
    ray.init(
        address="local",
        num_cpus=max(os.cpu_count() or 1, 2 * settings.replicas + 2),
        include_dashboard=False,
        object_store_memory=OBJECT_STORE,
        _temp_dir=folder,
        _metrics_export_port=metrics_port,
        _system_config={"metrics_report_interval_ms": settings.args.metrics_interval_ms},
    )


@contextmanager
def running_ray(ray: Any, serve: Any, args: RayArgs, host: str, port: int) -> Iterator[None]:
    """A running Ray: what we deploy is removed, everything else stays, including Serve if it was already running."""
    address = args.address
    assert address is not None
    if address != "auto":
        check_address(address, ray.util.get_node_ip_address())
    try:
        ray.init(address=address)
    except Exception as error:
        text = _text(error)
        hint = VERSIONS if "ersion mismatch" in text else "ray status prints the address of a cluster that runs"
        raise TargetError(f"Ray at {address} could not be used: {text}", hint) from error
    if (there := _serving_port(serve)) is not None and there != port:
        raise PlanError(
            f"Ray at {address} already runs Serve, on port {there}",
            f"server.port={there} deploys there; serve shutdown ends it. Serve has one port in a cluster",
        )
    if there is None:
        check_port(host, port)
    try:
        yield
    finally:
        if there is None:
            serve.shutdown()
        else:
            serve.delete(args.app)
            _end_tree(ray, args.app)
        ray.shutdown()


def _end_tree(ray: Any, app: str) -> None:
    """Ray's prefix tree is an actor that ends with Serve, not with its application: the next application with this name
    would start with the old tree."""
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["name"] == TREE and actor["namespace"].startswith(f"serve::{app}::"):
            with suppress(ValueError):  # it is already gone
                ray.kill(ray.get_actor(TREE, actor["namespace"]))


def _serving_port(serve: Any) -> int | None:
    """The port of Serve on a cluster, None if Serve is not running."""
    from ray.serve.context import _get_global_client

    client = _get_global_client(raise_if_no_controller_running=False)
    return None if client is None else int(client.http_config.port)


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
