"""Polls the cluster for the state of a stack while it is measured: its replicas over time, and the startup times of its
pods. It never makes a run fail."""

import threading
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from inferometer.errors import InferometerError, StoreError
from inferometer.scale.kubernetes.client import FORBIDDEN, NOT_FOUND, Cluster, ClusterError

INTERVAL_S = 15.0  # llm-d's METRICS_COLLECTION_INTERVAL
STATUS, TIMESERIES, STARTS = "replica_status.json", "replica_status_timeseries.json", "pod_startup_times.json"


def processed(results: Path) -> Path:
    """llm-d's folder for these files, within the results of a treatment."""
    return results / "metrics" / "processed"


class Replicas(msgspec.Struct, frozen=True):
    at: str
    kind: str
    name: str
    desired: int
    ready: int
    available: int


class PodStart(msgspec.Struct, frozen=True):
    """Seconds from a pod's creation."""

    name: str
    node: str | None
    created: str
    scheduled_s: float | None
    started_s: float | None  # start of its first container
    ready_s: float | None
    restarts: int


# -- a section of llm-d's report v0.2 --------------------------------------------------------------------------------

Kind = TypeVar("Kind", Replicas, PodStart)


def observability(folder: Path) -> dict[str, Any]:
    """The report's section `observability`, from the files in `folder`; empty if there are none."""
    replicas = _read(folder / TIMESERIES, Replicas)
    starts = _read(folder / STARTS, PodStart)
    made: dict[str, Any] = {}
    if starts:
        made["pod_startup_times"] = {"pods": [_pod_of(one) for one in starts]}
    if replicas:
        series = [
            {"timestamp": at, "controllers": [_controller_of(one) for one in seen]}
            for at, seen in groupby(replicas, key=lambda one: one.at)
        ]
        made["replica_status"] = {**series[-1], "time_series": series}
    return made


def _read(file: Path, kind: type[Kind]) -> list[Kind]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[kind])  # type: ignore[valid-type]
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"{file}: cannot be read: {error}") from error


def _pod_of(pod: PodStart) -> dict[str, Any]:
    known: dict[str, Any] = {"name": pod.name, "node": pod.node, "creation_timestamp": pod.created or None}
    if pod.ready_s is not None and pod.created:
        ready_at = datetime.fromisoformat(pod.created) + timedelta(seconds=pod.ready_s)
        known |= {"ready_timestamp": ready_at.isoformat(), "startup_seconds": pod.ready_s}
    return {name: value for name, value in known.items() if value is not None}


def _controller_of(one: Replicas) -> dict[str, Any]:
    counts = {"desired": one.desired, "available": one.available, "ready": one.ready}
    return {"kind": one.kind, "name": one.name} | {f"{name}_replicas": count for name, count in counts.items()}


# -- watching --------------------------------------------------------------------------------------------------------


class StackWatch:
    """Polls the stack's namespace in the background."""

    def __init__(self, cluster: Cluster, namespace: str, interval_s: float = INTERVAL_S) -> None:
        self._cluster, self._namespace, self._interval_s = cluster, namespace, interval_s
        self.replicas: list[Replicas] = []
        self.starts: dict[str, PodStart] = {}
        self.trouble: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="stack")

    def __enter__(self) -> "StackWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=self._interval_s)

    def _watch(self) -> None:
        while True:
            try:
                self.look()
            except InferometerError as error:
                self.trouble = error.message
                return
            if self._over.wait(self._interval_s):
                return

    def look(self) -> None:
        from lightkube.resources.apps_v1 import Deployment, StatefulSet
        from lightkube.resources.core_v1 import Pod

        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        for thing in [*self._all(Deployment), *self._all(StatefulSet)]:
            status = thing.status
            self.replicas.append(
                Replicas(
                    at,
                    type(thing).__name__,
                    thing.metadata.name,
                    int(thing.spec.replicas if thing.spec.replicas is not None else 1),
                    int((status and status.readyReplicas) or 0),
                    int((status and getattr(status, "availableReplicas", 0)) or 0),
                )
            )
        for pod in self._all(Pod):
            if not _ours(pod):
                self.starts[str(pod.metadata.name if pod.metadata else "")] = start_of(pod)

    def _all(self, kind: Any) -> list[Any]:
        try:
            return list(self._cluster.all(kind, self._namespace))
        except ClusterError as error:
            if error.code in (FORBIDDEN, NOT_FOUND):  # we may not list this kind, but possibly others
                self.trouble = error.message
                return []
            raise

    def write(self, folder: Path) -> list[Path]:
        """Write llm-d's files: the last status, the time series, and the startup times."""
        folder.mkdir(parents=True, exist_ok=True)
        last = {(entry.kind, entry.name): entry for entry in self.replicas}
        contents: dict[str, Any] = {
            STATUS: list(last.values()),
            TIMESERIES: self.replicas,
            STARTS: list(self.starts.values()),
        }
        written = []
        for name, content in contents.items():
            (folder / name).write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
            written.append(folder / name)
        return written


def _ours(pod: Any) -> bool:
    return (pod.metadata.labels or {}).get("app.kubernetes.io/component") in ("launcher", "collector")


def start_of(pod: Any) -> PodStart:
    created = pod.metadata.creationTimestamp
    status = pod.status
    conditions = {entry.type: entry for entry in (status and status.conditions) or () if entry.status == "True"}
    containers = (status and status.containerStatuses) or ()
    running = [one.state.running.startedAt for one in containers if one.state and one.state.running]

    def since(moment: Any) -> float | None:
        return (moment - created).total_seconds() if moment and created else None

    def reached(name: str) -> float | None:
        return since(conditions[name].lastTransitionTime) if name in conditions else None

    return PodStart(
        name=str(pod.metadata.name),
        node=pod.spec.nodeName if pod.spec else None,
        created=created.isoformat() if created else "",
        scheduled_s=reached("PodScheduled"),
        started_s=since(min(running)) if running and all(running) else None,
        ready_s=reached("Ready"),
        restarts=sum(int(one.restartCount or 0) for one in containers),
    )
