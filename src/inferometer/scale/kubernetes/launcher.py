"""The launcher pods of one treatment: creates them, waits for them, follows their logs and removes them. If the cluster
supports it, they are one Indexed Job, else a Job per pod with its number in the environment.

The Job is created first, without pods, and owns all other objects. If we are killed, its deadline ends it, its time to
live removes it, and the cluster's garbage collector removes the rest.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from lightkube.models.meta_v1 import OwnerReference
from lightkube.models.rbac_v1 import PolicyRule
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Event, PersistentVolumeClaim, Pod
from lightkube.resources.rbac_authorization_v1 import Role, RoleBinding

from inferometer.errors import InferometerError, LostError, PlanError, TargetError
from inferometer.scale.kubernetes import manifests
from inferometer.scale.kubernetes.client import FORBIDDEN, Cluster, ClusterError
from inferometer.scale.kubernetes.manifests import INDEX, RUN, JobSettings, Manifest, ObjectPlace, PodSettings
from inferometer.vocabulary import duration_text

POLL_S = 0.5
REFUSED_S = 5.0  # wait before reading the cluster's events
OVERDUE_S = 15.0
PULL_S = 60.0  # give up on an image that could not be pulled for this long
HOPELESS = {
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}
PULLING = {"ErrImagePull", "ImagePullBackOff"}
VARIABLE = "INFEROMETER_INDEX"  # the number of a pod, if its Job is not indexed
PodState = Literal["pending", "running", "complete", "failed", "lost"]
Notify = Callable[[str], None]
Line = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class LauncherObjects:
    """The objects of a launcher besides its Job; `{name: content}`."""

    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    service_account: str | None = None
    rules: Sequence[PolicyRule] = ()  # of the service account, in the namespace of the Job


@dataclass(slots=True)
class LauncherPod:
    """The last known state of a pod."""

    number: int
    name: str = ""
    uid: str = ""
    state: PodState = "pending"
    why: str = ""
    exit_code: int | None = None


def has_indexed_jobs(cluster: Cluster, probe: Job) -> bool:
    """Whether the server supports Indexed Jobs, by a dry run; older ones refuse or drop the field."""
    try:
        kept = cluster.apply(probe, dry_run=True)
    except ClusterError as error:
        if "completionMode" in error.message or "field not declared" in error.message:
            return False
        raise
    return bool(kept.spec and kept.spec.completionMode == "Indexed")


class Launcher:
    """The Jobs of one treatment, from their creation to their removal."""

    def __init__(
        self,
        cluster: Cluster | None,
        place: ObjectPlace,
        name: str,
        pod: PodSettings,
        settings: JobSettings,
        objects: LauncherObjects | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._cluster, self.place, self.name = cluster, place, name
        self._pod, self._settings, self._objects = pod, settings, objects or LauncherObjects()
        self._labels = dict(labels or {})
        self.pods = [LauncherPod(number) for number in range(settings.pods)]
        self._jobs: list[Job] = []
        self._followers: dict[str, threading.Thread] = {}  # of logs, by the pod's uid
        self._over = threading.Event()  # ends the log followers
        self.has_begun = False  # whether a pod ever ran: then there may be results
        self.denied = ""  # why the pods did not get their rights

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None, "without a cluster there are only manifests"
        return self._cluster

    # -- manifests ---------------------------------------------------------------------------------------------------

    def manifests(
        self, indexed: bool, owners: tuple[OwnerReference, ...] = (), parallelism: int | None = None
    ) -> list[Manifest]:
        """The Jobs first, then the objects that they own."""
        return [*self._job_manifests(indexed, parallelism), *self._owned(owners)]

    def _job_manifests(self, indexed: bool, parallelism: int | None) -> list[Job]:
        from msgspec import structs

        settings = structs.replace(self._settings, parallelism=parallelism)
        if indexed or settings.pods == 1:
            settings = structs.replace(settings, indexed=indexed)
            return [manifests.job(self.place, self.name, self._pod, settings, **self._labels)]
        one = structs.replace(settings, pods=1, indexed=False)
        return [
            manifests.job(self.place, f"{self.name}-{number}", self._numbered(number), one, **self._labels)
            for number in range(settings.pods)
        ]

    def _numbered(self, number: int) -> PodSettings:
        from msgspec import structs

        return structs.replace(self._pod, environment={**self._pod.environment, VARIABLE: str(number)})

    def _owned(self, owners: tuple[OwnerReference, ...]) -> Iterator[Manifest]:
        from msgspec import structs

        place, objects = structs.replace(self.place, owners=owners), self._objects
        for name, files in objects.config_maps.items():
            yield manifests.config_map(place, name, files)
        for name, values in objects.secrets.items():
            yield manifests.secret(place, name, values)
        if objects.service_account:
            yield manifests.service_account(place, objects.service_account)
        if objects.service_account and objects.rules:
            yield manifests.role(place, objects.service_account, objects.rules)
            yield manifests.role_binding(place, objects.service_account)

    # -- creation ----------------------------------------------------------------------------------------------------

    def indexed(self) -> bool:
        if self._settings.pods == 1:
            return False
        return has_indexed_jobs(self.cluster, self._job_manifests(True, 0)[0])

    def check(self) -> list[Manifest]:
        """Check all manifests by the server's dry run."""
        return [self.cluster.apply(thing, dry_run=True) for thing in self.manifests(self.indexed())]

    def create(self) -> None:
        indexed = self.indexed()
        self._jobs = self._job_manifests(indexed, 0)  # to be removed, even if only some of them were created
        owners = tuple([manifests.owner(self.cluster.apply(job)) for job in self._jobs])
        for thing in self._owned(owners):
            self._apply_owned(thing)
        for job in self._job_manifests(indexed, None):
            self.cluster.apply(job)

    def _apply_owned(self, thing: Manifest) -> None:
        """Create the owned objects. Creating a role needs the right to grant rights; without it the pods still
        measure."""
        try:
            self.cluster.apply(thing)
        except ClusterError as error:
            if error.code != FORBIDDEN or not isinstance(thing, Role | RoleBinding):
                raise
            self.denied = error.message

    def remove(self, wait_s: float = 60.0) -> None:
        """Remove the Jobs and all objects that they own. Running pods get their grace period, and are waited for."""
        for job in self._jobs:
            self.cluster.delete(Job, _name(job), self.place.namespace)
        give_up_at = time.monotonic() + wait_s
        while (working := [pod for pod in self._present() if not is_over(pod)]) and time.monotonic() < give_up_at:
            time.sleep(POLL_S)
        for pod in working:  # its node is lost: nothing else will remove it
            self.cluster.delete(Pod, _name(pod), self.place.namespace, grace_s=0)
        self._over.set()
        for thread in self._followers.values():
            thread.join(timeout=5.0)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait(self, start_s: float, end_s: float, notify: Notify, line: Line) -> None:
        """Wait until all pods have ended. They must run within `start_s` and then end within `end_s`; `line` gets their
        output. Raises an error if a pod cannot run, or on timeout."""
        started_at = time.monotonic()
        all_run_at_s: float | None = None
        followers = self._followers
        trouble: dict[str, float] = {}
        while True:
            self._look()
            for pod in self.pods:
                if pod.name and pod.state not in ("pending", "lost") and pod.uid not in followers:
                    followers[pod.uid] = self._follower(pod, line)
            passed_s = time.monotonic() - started_at
            if all(pod.state in ("complete", "failed", "lost") for pod in self.pods):
                break
            self._check_job()
            pending = [pod for pod in self.pods if pod.state == "pending"]
            if pending:
                self._check_pending(pending, passed_s, start_s, trouble, notify)
            elif all_run_at_s is None:
                all_run_at_s = passed_s
            if all_run_at_s is not None and passed_s > all_run_at_s + end_s:
                raise self._too_long(end_s)
            time.sleep(POLL_S)
        for thread in followers.values():
            thread.join(timeout=10.0)

    def _present(self) -> list[Pod]:
        labels = {RUN: manifests.label_value(self.place.run), **self._own()}
        pods = self.cluster.all(Pod, self.place.namespace, labels)
        self.has_begun |= any(pod.status and pod.status.phase not in (None, "Pending") for pod in pods)
        return pods

    def _own(self) -> dict[str, str | None]:
        """Labels that distinguish this launcher from a collector of the same run."""
        return {manifests.COMPONENT: manifests.label_value(self.place.component), **self._labels}

    def _look(self) -> None:
        """Update the state of each pod. A known pod that no longer exists was deleted: by a user, a drain or an
        eviction."""
        present = {pod.metadata.uid: pod for pod in self._present() if pod.metadata}
        for known in self.pods:
            if known.state in ("complete", "failed", "lost"):
                continue
            if known.uid and known.uid not in present:
                known.state, known.why = "lost", f"pod {known.name} was deleted while it worked"
        taken = {pod.uid for pod in self.pods}
        for uid, pod in present.items():
            number = _number(pod)
            if number is None or number >= len(self.pods):
                continue
            known = self.pods[number]
            if not known.uid and uid not in taken:
                known.name, known.uid = _name(pod), str(uid)
            if known.uid == uid:
                _update(known, pod)

    def _check_job(self) -> None:
        for made in self._jobs:
            job = self.cluster.read(Job, _name(made), self.place.namespace)
            if job is None:
                raise LostError(f"Job {_name(made)} was removed while its pods worked")
            for condition in (job.status and job.status.conditions) or ():
                if (
                    condition.type == "Failed"
                    and condition.status == "True"
                    and condition.reason != "BackoffLimitExceeded"
                ):
                    self._look()
                    text = f"Job {_name(made)} failed: {condition.reason}: {condition.message or ''}".rstrip(": ")
                    raise LostError(text, self._events_of(_name(made)))
                if condition.type == "Failed" and condition.status == "True":
                    self._lose_pending(f"Job {_name(made)} failed: {condition.message}")

    def _lose_pending(self, why: str) -> None:
        """Mark pods that have not started as lost if their Job has failed."""
        self._look()
        for pod in self.pods:
            if pod.state == "pending" and not pod.uid:
                pod.state, pod.why = "lost", why

    def _check_pending(
        self, pending: Sequence[LauncherPod], passed_s: float, start_s: float, trouble: dict[str, float], notify: Notify
    ) -> None:
        for pod in pending:
            reason = pod.why.partition(":")[0]
            if reason in HOPELESS:
                raise PlanError(f"pod {pod.name} cannot start: {pod.why}", self._events_of(pod.name))
            if reason in PULLING:
                since = trouble.setdefault(pod.uid, passed_s)
                if passed_s - since >= min(PULL_S, start_s):
                    tool = self._pod.tool
                    theirs = tool is not None and tool.image in pod.why
                    image = tool.image if tool is not None and theirs else self._pod.image
                    setting = "LLMDBENCH_HARNESS_CONTAINER_IMAGE=NAME" if theirs else "--image NAME"
                    text = f"the image {image} cannot be pulled: {pod.why}"
                    raise PlanError(text, f"{setting}; {self._events_of(pod.name)}")
            elif pod.why and pod.why not in trouble:
                trouble[pod.why] = passed_s
                notify(f"pod {pod.name or self.name} waits: {pod.why}")
        if passed_s > min(REFUSED_S, start_s):
            self._check_refusals(pending, passed_s, trouble, notify)
        if passed_s > start_s:
            raise self._not_running(pending[0], start_s)

    def _check_refusals(
        self, pending: Sequence[LauncherPod], passed_s: float, trouble: dict[str, float], notify: Notify
    ) -> None:
        """Raise an error if the cluster refused pods, and report why a claim has no volume yet."""
        if not all(pod.name for pod in pending):
            for text in self._events():
                if text.startswith("FailedCreate:"):
                    quota = self.cluster.kubectl("describe resourcequota", self.place.namespace)
                    shown = quota if "exceeded quota" in text else self._events_of(_name(self._jobs[0]))
                    raise PlanError(f"the cluster creates no pod for Job {self.name}: {text}", shown)
        for name in self._pod.claims.values():
            for text in self._events(name):
                if text.startswith("ProvisioningFailed:") and "not found" in text:
                    hint = f"--storage-class NAME; {self.cluster.kubectl('get storageclass')}"
                    raise PlanError(f"the persistent volume claim {name} is not bound to a volume: {text}", hint)
                if text not in trouble and not text.startswith("WaitForFirstConsumer:"):
                    trouble[text] = passed_s
                    notify(f"claim {name} waits: {text}")

    def _not_running(self, pod: LauncherPod, start_s: float) -> InferometerError:
        limit = duration_text(start_s)
        why = pod.why or next(self._events(), "") or "the cluster gives no reason"
        if claim := self._unbound():
            more = next(self._events(claim), "")
            text = f"the persistent volume claim {claim} was not bound within {limit}" + (f": {more}" if more else "")
            ways = "--storage-class NAME; --access-mode ReadWriteOnce where nodes share no volumes"
            return TargetError(text, f"{ways}; {self._events_of(claim)}")
        if not pod.name:
            return TargetError(f"no pod of Job {self.name} appeared within {limit}: {why}", self._events_of(self.name))
        return TargetError(f"pod {pod.name} did not run within {limit}: {why}", self._events_of(pod.name))

    def _unbound(self) -> str | None:
        for name in self._pod.claims.values():
            claim = self.cluster.read(PersistentVolumeClaim, name, self.place.namespace)
            if claim is None or (claim.status and claim.status.phase == "Pending"):
                return name
        return None

    def _events(self, name: str | None = None) -> Iterator[str]:
        """The cluster's events for an object (default: our Jobs), newest first; empty without the right to read
        them."""
        names = [name] if name else [_name(job) for job in self._jobs]
        for one in names:
            try:
                events = self.cluster.all(Event, self.place.namespace, fields={"involvedObject.name": one})
            except ClusterError:
                return
            for event in reversed(events):
                if event.type != "Normal" or event.reason in ("FailedBinding", "WaitForFirstConsumer"):
                    yield f"{event.reason}: {event.message}"

    def _too_long(self, end_s: float) -> LostError:
        names = [pod.name for pod in self.pods if pod.state == "running"]
        text = f"the launcher pods did not end within {duration_text(end_s)}: {', '.join(names)}"
        log = self.cluster.kubectl(f"logs {names[0] if names else ''}", self.place.namespace)
        return LostError(text, f"--wait SECONDS; {log}")

    def _events_of(self, name: str) -> str:
        return self.cluster.kubectl_events(name, self.place.namespace)

    # -- logs --------------------------------------------------------------------------------------------------------

    def _follower(self, pod: LauncherPod, line: Line) -> threading.Thread:
        thread = threading.Thread(target=self._follow, args=(pod, line), daemon=True, name=f"log of {pod.name}")
        thread.start()
        return thread

    def _follow(self, pod: LauncherPod, line: Line) -> None:
        """Follow a log, every line once: if the connection ends before the pod, reconnect and skip known lines."""
        seen = 0
        while not self._over.is_set():
            ended = pod.state in ("complete", "failed", "lost")
            try:
                container = manifests.object_name(self.place.component)
                lines = self.cluster.log(pod.name, self.place.namespace, follow=not ended, container=container)
                for number, text in enumerate(lines):
                    if number >= seen:
                        seen += 1
                        line(pod.number, text)
            except (ClusterError, TargetError):
                if ended or self._over.is_set():
                    return
            if ended:
                return
            self._over.wait(POLL_S)


def _name(thing: Any) -> str:
    return str(thing.metadata.name)


def _number(pod: Pod) -> int | None:
    """The number of a pod: the annotation of an Indexed Job, else its environment variable."""
    annotations = (pod.metadata and pod.metadata.annotations) or {}
    if INDEX in annotations:
        return int(annotations[INDEX])
    variables = (pod.spec and pod.spec.containers and pod.spec.containers[0].env) or []
    return next((int(variable.value or 0) for variable in variables if variable.name == VARIABLE), 0)


def _update(known: LauncherPod, pod: Pod) -> None:
    status = pod.status
    phase = (status and status.phase) or "Pending"
    if phase in ("Pending", "Running") and _overdue(pod):
        known.state, known.why = "lost", f"pod {known.name} did not stop when requested: its node does not respond"
    elif phase == "Running" and _has_failed(pod):
        known.state, known.why, known.exit_code = "failed", *failure_of(pod)
    elif phase == "Running":
        known.state, known.why = "running", ""
    elif phase == "Succeeded":
        known.state, known.exit_code = "complete", 0
    elif phase == "Failed":
        known.state, known.why, known.exit_code = "failed", *failure_of(pod)
    else:
        known.why = waiting_reason(pod)


def _has_failed(pod: Pod) -> bool:
    """Whether our container ended with an error while the tool next to it still runs."""
    containers = (pod.spec and pod.spec.containers) or ()
    for container in (pod.status and pod.status.containerStatuses) or ():
        if containers and container.name == containers[0].name and container.state and container.state.terminated:
            return container.state.terminated.exitCode != 0
    return False


def is_over(pod: Pod) -> bool:
    return bool(pod.status and pod.status.phase in ("Succeeded", "Failed"))


def _overdue(pod: Pod) -> bool:
    """Whether a deleted pod is overdue: its deletion time includes its grace period."""
    deleted_at = pod.metadata and pod.metadata.deletionTimestamp
    return bool(deleted_at and (datetime.now(UTC) - deleted_at).total_seconds() > OVERDUE_S)


def failure_of(pod: Pod) -> tuple[str, int | None]:
    status = pod.status
    for container in (status and status.containerStatuses) or ():
        ended = container.state and container.state.terminated
        if ended:
            last = (ended.message or "").strip().splitlines()
            return (last[-1] if last else f"{ended.reason or 'ended'}, exit code {ended.exitCode}"), ended.exitCode
    reason = (status and (status.message or status.reason)) or "unknown reason"
    return f"pod {_name(pod)}: {reason}", None


def waiting_reason(pod: Pod) -> str:
    status = pod.status
    for container in (status and status.containerStatuses) or ():
        waiting = container.state and container.state.waiting
        if waiting and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting.reason}: {waiting.message or ''}".rstrip(": ")
    for condition in (status and status.conditions) or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message or ''}".rstrip(": ")
    return ""
