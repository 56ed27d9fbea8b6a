"""What we made in a namespace, found by its label and removed. A Job takes along what it owns."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import Role, RoleBinding

from inferometer.scale.kubernetes.client import FORBIDDEN, Cluster, ClusterError
from inferometer.scale.kubernetes.manifests import COMPONENT, MANAGED_BY, MANAGER, RUN, STACK, is_launch, uses_claim

OWNED = (Pod, ConfigMap, Secret, ServiceAccount, RoleBinding, Role)  # by their Jobs; alone only where one was lost
OURS = ("launcher", "collector", "shard", STACK)


@dataclass
class Cleaned:
    removed: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)  # and therefore kept
    kept: list[str] = field(default_factory=list)  # for another reason, with it


def clean_namespace(
    cluster: Cluster,
    namespace: str,
    run: str | None = None,
    claim: str | None = None,
    *,
    running: bool = False,
    dry_run: bool = False,
) -> Cleaned:
    """Of one run or of all; Jobs that still run only if asked for. With `claim`, that one too, if it is ours."""
    done, live = Cleaned(), set()
    # What Jobs own is listed before them: a run that begins meanwhile has its Job in the later list.
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
    if claim is not None:
        _clean_claim(cluster, claim, namespace, done, dry_run)
    return done


def _clean_claim(cluster: Cluster, name: str, namespace: str, done: Cleaned, dry_run: bool) -> None:
    """Not one that others made, nor one that a pod uses which stays."""
    claim = cluster.read(PersistentVolumeClaim, name, namespace)
    if claim is None:
        return
    if ((claim.metadata and claim.metadata.labels) or {}).get(MANAGED_BY) != MANAGER:
        by_hand = cluster.kubectl(f"delete pvc {name}", namespace)
        done.kept.append(f"the claim {name} was there before us and stays: {by_hand}")
        return
    users = [str(pod.metadata and pod.metadata.name) for pod in cluster.all(Pod, namespace) if uses_claim(pod, name)]
    if users := [pod for pod in users if f"Pod {pod}" not in done.removed]:
        done.kept.append(f"the claim {name} stays, pods use it: {', '.join(users)}")
        return
    _remove(cluster, PersistentVolumeClaim, claim, namespace, done, dry_run)


def _labelled(cluster: Cluster, kind: Any, namespace: str, run: str | None) -> Iterator[Any]:
    try:
        things = cluster.all(kind, namespace, {MANAGED_BY: MANAGER})
    except ClusterError as error:
        if error.code == FORBIDDEN and kind is not Job:  # what may not be listed is left to its owner
            return
        raise
    for thing in things:
        labels = thing.metadata.labels or {}
        if labels.get(COMPONENT) in OURS and (run is None or _belongs(labels.get(RUN, ""), run)):
            yield thing


def _belongs(label: str, run: str) -> bool:
    """To a run by its whole name, or to a launch of the experiment: `nightly` is not `nightly-2`."""
    return label == run or (label.startswith(f"{run}-") and is_launch(label.removeprefix(f"{run}-")))


def _remove(cluster: Cluster, kind: Any, thing: Any, namespace: str, done: Cleaned, dry_run: bool) -> None:
    if dry_run or cluster.delete(kind, thing.metadata.name, namespace):
        done.removed.append(f"{kind.__name__} {thing.metadata.name}")
