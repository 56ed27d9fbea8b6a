"""The connection to a Ray cluster: to one that runs, or to one of this machine that we start; room for the actors in
it, and plain words for what Ray says when there is none."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any

from inferometer.errors import MissingExtra, PlanError, TargetError
from inferometer.plan.place import RaySettings
from inferometer.target.ray_serve.address import check_address
from inferometer.vocabulary import duration_text

_connected: tuple[str, str | None] | None = None  # address and wheel: kept for all runs of this process


def open_ray(settings: RaySettings, workers: int) -> Any:
    """The `ray` module, connected. Many runs of one process share the connection; Ray ends it with the process, and a
    cluster that we started with it."""
    global _connected
    wanted = settings.address or os.environ.get("RAY_ADDRESS") or "local", settings.wheel
    ray = _imported()
    if ray.is_initialized():
        if _connected is not None and _connected != wanted:
            ray.shutdown()
        elif _connected is None or wanted[0] != "local" or _cores(ray) >= workers:
            return ray
        else:
            ray.shutdown()  # our own, of a run with fewer workers
    if wanted[0] not in ("local", "auto"):
        check_address(wanted[0], ray.util.get_node_ip_address())
    with _own_signals():
        _connect(ray, wanted[0], workers, _runtime_environment(settings.wheel))
    _connected = wanted
    return ray


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtra("running workers on Ray", "ray") from None
    return ray


def _connect(ray: Any, address: str, workers: int, environment: dict[str, list[str]]) -> None:
    with suppress(AttributeError):  # prints what raylets say on stdout, where a JSON document may go; we name losses
        ray._private.worker.print_to_stdstream = lambda *_arguments, **_settings: None
    quiet = {"logging_level": logging.CRITICAL, "log_to_driver": False, "configure_logging": True}
    own = {"num_cpus": max(workers, os.cpu_count() or 1), "include_dashboard": False} if address == "local" else {}
    try:
        with chdir(os.sep):  # Ray puts the working folder before all else that its workers import from
            ray.init(address=address, runtime_env=environment or None, namespace="inferometer", **quiet, **own)
    except Exception as error:  # what Ray raises has many types
        with suppress(Exception):
            ray.shutdown()  # where it fails late it takes itself for connected, and the next run would too
        raise connection_error(address, error) from error


def connection_error(address: str, error: BaseException) -> PlanError | TargetError:
    """What went wrong, in words that tell what to do."""
    text = " ".join(str(error).split())
    causes = " ".join(str(cause) for cause in _chain(error))
    where = "Ray" if address == "local" else f"Ray at {address}"
    if "ersion mismatch" in text:
        return PlanError(f"{where}: {text}", "install the cluster's versions of Ray and Python here")
    if "InvalidAuthToken" in causes:
        hint = "export RAY_AUTH_MODE=token, with the cluster's token in ~/.ray/auth_token or RAY_AUTH_TOKEN"
        return TargetError(f"{where} wants a token", hint)
    hint = "run inferometer on a node of the cluster (ray start --address=...)"
    if isinstance(error, ConnectionError) or "connect" in text.lower() or "node" in text.lower():
        return TargetError(f"{where} could not be used from here: {text[:300]}", hint)
    return TargetError(f"{where}: {type(error).__name__}: {text[:300]}", hint)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _runtime_environment(wheel: str | None) -> dict[str, list[str]]:
    if wheel is None:
        return {}
    path = Path(wheel).expanduser()
    if not path.is_file():
        raise PlanError(f"ray.wheel: there is no file {wheel}", "build it: python -m build --wheel")
    return {"py_modules": [str(path.resolve())]}


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself when it connects: ours stays ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _cores(ray: Any) -> float:
    return float(ray.cluster_resources().get("CPU", 0.0))


@contextmanager
def room_for(ray: Any, workers: int, timeout_s: float, check: Callable[[], None]) -> Iterator[Any]:
    """A placement group of one core per worker, spread over the nodes. `check` is called while it is waited for."""
    group = ray.util.placement_group([{"CPU": 1}] * workers, strategy="SPREAD", name="inferometer")
    try:
        give_up_at = time.monotonic() + timeout_s
        while not group.wait(0.1):  # a group that never fits would be waited for for ever
            check()
            if time.monotonic() > give_up_at:
                raise _no_room(ray, workers, timeout_s)
        yield group
    finally:
        ray.util.remove_placement_group(group)


def _no_room(ray: Any, workers: int, timeout_s: float) -> PlanError:
    free, all_ = ray.available_resources().get("CPU", 0.0), _cores(ray)
    text = f"the Ray cluster had no room for {workers} workers within {duration_text(timeout_s)}:"
    text += f" each needs a core, and {free:g} of {all_:g} are free"
    return PlanError(text, f"--workers {max(1, int(free))}, a larger cluster, or a longer --set ray.timeout=...")
