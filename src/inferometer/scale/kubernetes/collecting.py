"""Copies results from a claim: collector pods print them piece by piece, and they are reassembled here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import Role, RoleBinding
from msgspec import structs

from inferometer.errors import LostError
from inferometer.scale.kubernetes.carrying import Cursor, Unpacking
from inferometer.scale.kubernetes.client import FORBIDDEN, Cluster, ClusterError
from inferometer.scale.kubernetes.launcher import Launcher
from inferometer.scale.kubernetes.manifests import (
    COMPONENT,
    MANAGED_BY,
    MANAGER,
    RUN,
    STACK,
    JobSettings,
    ObjectPlace,
    PodSettings,
    is_launch,
    object_name,
    uses_claim,
)

TRIES = 3  # collectors in a row without new data
WITHIN_S = 600.0  # time limit of one collector


def collect(
    cluster: Cluster,
    place: ObjectPlace,
    pod: PodSettings,
    results: str,
    into: Path,
    start_s: float,
    notify: Callable[[str], None],
) -> list[Path]:
    """Copy the files of a results folder of the claim to `into`; none if the folder does not exist. `pod` is the
    launcher pod, which has the image and the claim."""
    unpacking = Unpacking(into)
    in_vain = number = 0
    while (cursor := unpacking.cursor) is not None:
        number += 1
        advanced = unpacking.take(_piece(cluster, place, pod, results, cursor, number, start_s, notify))
        in_vain = 0 if advanced else in_vain + 1
        if in_vain >= TRIES:
            text = f"{results}: the results could not be read from the claim; {TRIES} collector pods returned nothing"
            last = f"; the last one printed: {unpacking.text[-1]}" if unpacking.text else ""
            raise LostError(text + last, cluster.kubectl("get pods", place.namespace))
    return unpacking.finish()


def _piece(
    cluster: Cluster,
    place: ObjectPlace,
    pod: PodSettings,
    results: str,
    cursor: Cursor,
    number: int,
    start_s: float,
    notify: Callable[[str], None],
) -> list[str]:
    lines: list[str] = []
    command = ["inferometer", "worker", "--results", results, "--print", f"{cursor.file}:{cursor.at}"]
    printing = structs.replace(
        pod,
        command=command,
        cpu="500m",
        memory="512Mi",
        config_maps={},
        environment={name: value for name, value in pod.environment.items() if not name.startswith("LLMDBENCH_")},
        secret_environment={},
        optional_secrets={},
        service_account=None,
        tool=None,
        node_selector={},  # the launchers' nodes do not matter: the volume determines the node
    )
    place = structs.replace(place, component="collector")
    settings = JobSettings(deadline_s=int(start_s + WITHIN_S), keep_s=60)
    collector = Launcher(
        cluster,
        place,
        object_name("inferometer-collector", f"{place.run}-{number}"),
        printing,
        settings,
        labels={"inferometer/piece": str(number)},
    )
    try:
        collector.create()
        collector.wait(start_s, WITHIN_S, notify, lambda _pod, line: lines.append(line))
    finally:
        collector.remove(wait_s=30.0)
    return lines


# -- cleaning up -------------------------------------------------------------------------------------------------------

# Our objects in a namespace are found by their label and removed. Deleting a Job deletes the objects that it owns.

OWNED = (Pod, ConfigMap, Secret, ServiceAccount, RoleBinding, Role)  # owned by Jobs; without a Job only if it was lost
COMPONENTS = ("launcher", "collector", "shard", STACK)


@dataclass
class Cleaned:
    removed: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)  # and therefore not removed
    kept: list[str] = field(default_factory=list)  # not removed, with another reason


def clean_namespace(
    cluster: Cluster,
    namespace: str,
    run: str | None = None,
    claim: str | None = None,
    *,
    running: bool = False,
    dry_run: bool = False,
) -> Cleaned:
    """Remove the objects of one run or of all; running Jobs only on request. With `claim`, that too, if it is ours."""
    done, live = Cleaned(), set()
    # Owned objects are listed before Jobs: a run that begins meanwhile has its Job in the later list.
    owned = [(kind, thing) for kind in OWNED for thing in _labelled(cluster, kind, namespace, run)]
    for job in _labelled(cluster, Job, namespace, run):
        ended = any(
            condition.type in ("Complete", "Failed") and condition.status == "True"
            for condition in (job.status and job.status.conditions) or ()
        )
        if not ended and not running:
            done.running.append(f"Job {job.metadata.name}")
            live.add(job.metadata.labels.get(RUN))
            continue
        _remove(cluster, Job, job, namespace, done, dry_run)
    for kind, thing in owned:
        if thing.metadata.labels.get(RUN) not in live and not thing.metadata.deletionTimestamp:
            _remove(cluster, kind, thing, namespace, done, dry_run)
    if not owned and not done.removed and not done.running:
        cluster.check_namespace(namespace)
    if claim is not None:
        _clean_claim(cluster, claim, namespace, done, dry_run)
    return done


def _clean_claim(cluster: Cluster, name: str, namespace: str, done: Cleaned, dry_run: bool) -> None:
    """Remove the claim, unless someone else created it or a remaining pod uses it."""
    claim = cluster.read(PersistentVolumeClaim, name, namespace)
    if claim is None:
        return
    if ((claim.metadata and claim.metadata.labels) or {}).get(MANAGED_BY) != MANAGER:
        by_hand = cluster.kubectl(f"delete pvc {name}", namespace)
        done.kept.append(f"the claim {name} existed before and is kept: {by_hand}")
        return
    users = [str(pod.metadata and pod.metadata.name) for pod in cluster.all(Pod, namespace) if uses_claim(pod, name)]
    if users := [pod for pod in users if f"Pod {pod}" not in done.removed]:
        done.kept.append(f"the claim {name} is kept, because pods use it: {', '.join(users)}")
        return
    _remove(cluster, PersistentVolumeClaim, claim, namespace, done, dry_run)


def _labelled(cluster: Cluster, kind: Any, namespace: str, run: str | None) -> Iterator[Any]:
    try:
        things = cluster.all(kind, namespace, {MANAGED_BY: MANAGER})
    except ClusterError as error:
        if error.code == FORBIDDEN and kind is not Job:  # objects that we may not list are removed with their owner
            return
        raise
    for thing in things:
        labels = thing.metadata.labels or {}
        if labels.get(COMPONENT) in COMPONENTS and (run is None or _belongs(labels.get(RUN, ""), run)):
            yield thing


def _belongs(label: str, run: str) -> bool:
    """Whether an object belongs to a run by its full name, or to a launch of the experiment: `nightly` is not
    `nightly-2`."""
    return label == run or (label.startswith(f"{run}-") and is_launch(label.removeprefix(f"{run}-")))


def _remove(cluster: Cluster, kind: Any, thing: Any, namespace: str, done: Cleaned, dry_run: bool) -> None:
    if dry_run or cluster.delete(kind, thing.metadata.name, namespace):
        done.removed.append(f"{kind.__name__} {thing.metadata.name}")
