"""What we made in a namespace, found by its label and removed. A Job takes along what it owns."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import Role, RoleBinding

from inferometer.scale.kubernetes.client import FORBIDDEN, Cluster, ClusterError
from inferometer.scale.kubernetes.manifests import COMPONENT, MANAGED_BY, MANAGER, RUN

OWNED = (Pod, ConfigMap, Secret, ServiceAccount, RoleBinding, Role)  # by their Jobs; alone only where one was lost
OURS = ("launcher", "collector", "shard")


@dataclass
class Cleaned:
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def clean_namespace(
    cluster: Cluster,
    namespace: str,
    run: str | None = None,
    claim: str | None = None,
    *,
    running: bool = False,
    dry_run: bool = False,
) -> Cleaned:
    """Of one run or of all; Jobs that still run only if asked for. With `claim`, that one too."""
    done, live = Cleaned(), set()
    for job in _labelled(cluster, Job, namespace, run):
        ended = any(
            condition.type in ("Complete", "Failed") and condition.status == "True"
            for condition in (job.status and job.status.conditions) or ()
        )
        if not ended and not running:
            done.kept.append(f"Job {job.metadata.name}")
            live.add(job.metadata.labels.get(RUN))
            continue
        _remove(cluster, Job, job, namespace, done, dry_run)
    for kind in OWNED:
        for thing in _labelled(cluster, kind, namespace, run):
            if thing.metadata.labels.get(RUN) not in live and not thing.metadata.deletionTimestamp:
                _remove(cluster, kind, thing, namespace, done, dry_run)
    if claim is not None:
        there = cluster.read(PersistentVolumeClaim, claim, namespace)
        if there is not None:
            _remove(cluster, PersistentVolumeClaim, there, namespace, done, dry_run)
    return done


def _labelled(cluster: Cluster, kind: Any, namespace: str, run: str | None) -> Iterator[Any]:
    try:
        things = cluster.all(kind, namespace, {MANAGED_BY: MANAGER})
    except ClusterError as error:
        if error.code == FORBIDDEN and kind is not Job:  # what may not be listed is left to its owner
            return
        raise
    for thing in things:
        labels = thing.metadata.labels or {}
        mine = run is None or labels.get(RUN) == run or labels.get(RUN, "").startswith(f"{run}-")
        if labels.get(COMPONENT) in OURS and mine:
            yield thing


def _remove(cluster: Cluster, kind: Any, thing: Any, namespace: str, done: Cleaned, dry_run: bool) -> None:
    if dry_run or cluster.delete(kind, thing.metadata.name, namespace):
        done.removed.append(f"{kind.__name__} {thing.metadata.name}")
