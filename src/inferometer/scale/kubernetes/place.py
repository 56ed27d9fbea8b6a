"""The place `kubernetes`: one pod per shard. Records that a lost pod has delivered are kept, and the others continue.

A Job without pods owns all objects: deleting it deletes them, and it ends at its deadline if the driver was killed. The
driver reaches the pods through the API server's proxy, so it works from outside of the cluster.
"""

import os
import queue
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from inferometer import __version__, errors
from inferometer.load.shard import ShardJob
from inferometer.plan.model import KubernetesSettings, Plan
from inferometer.scale.crew import WAIT_S
from inferometer.scale.frames import ShardFunction, Start, Watch
from inferometer.scale.kubernetes.client import Cluster, ClusterError, open_cluster
from inferometer.scale.kubernetes.shard_server import (
    ADDRESS_ENV,
    PORT,
    SILENCE_S,
    TOKEN_ENV,
    TOKEN_HEADER,
    Assignment,
    Parcels,
)
from inferometer.scale.place import Job, Report, ShardsEnd
from inferometer.scale.remote import PAUSE_S, RemoteCrew, RemoteWorker, needed_variables, shard_jobs
from inferometer.scale.remote_shard import NODE_FOLDER_ENV, Parcel
from inferometer.vocabulary import duration_text

if TYPE_CHECKING:
    from lightkube.models.core_v1 import Pod

    from inferometer.scale.kubernetes.manifests import PodSettings

POLL_S = 0.3  # between two checks of the pods
MOST_LISTENERS = 32  # threads that fetch parcels: an API server is shared
POD_RETRY_S = 5.0  # for an existing pod to answer again while the API server answers
KEPT_S = 300  # time to live of the Job after its end
GRACE_S = 2  # grace period of a pod; the driver has all its data by then
RECORDS = "/records"  # mount path of a claim for records
KEEP_ALIVE_S = 30.0  # interval of keep-alive requests from the driver to waiting pods


def run_shards(
    function: Callable[[Job, Watch, Start], Report],
    jobs: Sequence[Job],
    watch: Watch,
    plan: Plan | None = None,
) -> ShardsEnd[Report]:
    """Run one shard per job to its end, in the cluster that the plan names."""
    known = shard_jobs(jobs, "kubernetes")
    settings = KubernetesSettings() if plan is None else plan.kubernetes
    with open_cluster(settings.kubeconfig, settings.context, settings.namespace) as cluster:
        return _Crew(cluster, function, known, watch, settings).run()


def default_image() -> str:
    return os.environ.get("INFEROMETER_IMAGE") or f"inferometer:{__version__}"


class _Worker(RemoteWorker):
    """One shard: a pod that is reached through the API server."""

    def __init__(
        self, cluster: Cluster, shard: int, job: ShardJob, pod: str, token: str, carries_log: bool = True
    ) -> None:
        super().__init__(shard, job)
        self.carries_log = carries_log
        self._cluster, self.pod, self._token = cluster, pod, token
        self.next = 0

    def ask(self, path: str, body: bytes | None = None, *, retry_s: float | None = None) -> bytes:
        headers = {TOKEN_HEADER: self._token}
        return self._cluster.ask_pod(self.pod, PORT, path, body, headers, retry_s=retry_s)

    def start(self, at: int) -> None:
        self._try_ask(f"start?at={at}")

    def signal(self, number: signal.Signals) -> None:
        self._try_ask(f"signal?number={int(number)}", retry_s=0.0)  # no retry: a second signal has another meaning

    def reached(self, goals: bytes) -> None:
        self._try_ask("goals", goals)

    def forget(self, whole_run: bool = False) -> None:
        self._try_ask(f"forget?all={int(whole_run)}", retry_s=0.0)

    def now(self) -> int:
        return int(self.ask("now", retry_s=0.0))

    def _try_ask(self, path: str, body: bytes = b"", retry_s: float | None = None) -> None:
        with suppress(errors.InferometerError):  # a lost pod is noticed by its missing parcels
            self.ask(path, body, retry_s=retry_s)


class _Crew(RemoteCrew[_Worker]):
    """The pods, and the threads that receive their messages."""

    def __init__(
        self,
        cluster: Cluster,
        function: ShardFunction,
        jobs: Sequence[ShardJob],
        watch: Watch,
        settings: KubernetesSettings,
    ) -> None:
        super().__init__(function, jobs, watch)
        from inferometer.scale.kubernetes.manifests import ObjectPlace, object_name

        self._cluster, self._settings = cluster, settings
        self.name = object_name("inferometer-shards", f"{self._run}-{secrets.token_hex(3)}")
        self._place = ObjectPlace(cluster.namespace, self.name, "shard")
        self._arrived: queue.Queue[tuple[_Worker, list[Parcel] | str]] = queue.Queue()
        self._over = threading.Event()
        self._silent_since: dict[int, float] = {}
        self._image = settings.image or default_image()
        self._fetched = False  # whether the records were fetched from a claim

    def _begin(self) -> None:
        self._check_claim()
        self._create()
        self._await_all()

    def _stop(self) -> None:
        self._over.set()
        self._remove()

    # -- objects -------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        from lightkube.resources.core_v1 import Pod

        from inferometer.scale.kubernetes import manifests

        pod = self._pod_settings()
        limits = manifests.JobSettings(parallelism=0, deadline_s=int(self._settings.deadline), keep_s=KEPT_S)
        root = self._cluster.apply(manifests.job(self._place, self.name, pod, limits))
        place = msgspec.structs.replace(self._place, owners=(manifests.owner(root),))
        token = secrets.token_hex(16)
        self._cluster.apply(manifests.secret(place, self.name, {TOKEN_ENV: token}))
        for shard, job in enumerate(self._jobs):
            name = manifests.object_name(self.name, str(shard))
            self._cluster.apply(Pod(metadata=place.metadata(name), spec=manifests.pod_spec(place, pod)))
            self._workers.append(_Worker(self._cluster, shard, job, name, token, not self._settings.claim))

    def _check_claim(self) -> None:
        from lightkube.resources.core_v1 import PersistentVolumeClaim

        claim, namespace = self._settings.claim, self._place.namespace
        if claim is not None and self._cluster.read(PersistentVolumeClaim, claim, namespace) is None:
            text = f"kubernetes.claim: namespace {namespace} has no persistent volume claim {claim}"
            raise errors.PlanError(text, self._cluster.kubectl("get pvc", namespace))

    def _pod_settings(self) -> "PodSettings":
        from lightkube.models.core_v1 import Toleration

        from inferometer.scale.kubernetes.manifests import PodSettings

        settings = self._settings
        return PodSettings(
            image=self._image,
            command=["inferometer", "worker", "--serve"],
            cpu=settings.cpu,
            memory=settings.memory,
            secret_environment={TOKEN_ENV: (self.name, TOKEN_ENV)},
            pod_fields={ADDRESS_ENV: "status.podIP"},
            service_account=settings.service_account,
            pull_secrets=settings.pull_secrets,
            node_selector=settings.node_selector,
            tolerations=[Toleration(operator="Exists", key=key or None) for key in settings.tolerations],
            grace_s=GRACE_S,
            environment={NODE_FOLDER_ENV: self._folder_of_records} if settings.claim else {},
            claims={RECORDS: settings.claim} if settings.claim else {},
            group=settings.fs_group,
        )

    @property
    def _folder_of_records(self) -> str:
        return f"{RECORDS}/{self.name}"

    def _remove(self) -> None:
        """Delete the Job and with it all objects. If the API server is unreachable, the cluster does it at the
        deadline."""
        from lightkube.resources.batch_v1 import Job as JobObject

        with suppress(errors.InferometerError):
            self._cluster.delete(JobObject, self.name)

    # -- before the load -------------------------------------------------------------------------------------------

    def _await_all(self) -> None:
        """Wait until every pod has its job, or for the timeout: the others begin without the missing ones."""
        give_up_at = time.monotonic() + self._settings.timeout
        failing_since: dict[int, float] = {}
        while pending := [worker for worker in self._workers if worker.identity is None and not worker.ended]:
            self._check_interrupts()
            pods = self._pods()
            for worker in pending:
                self._welcome(worker, pods.get(worker.pod), failing_since)
            for worker in self._workers:
                if worker.identity is not None and not worker.ended:
                    with suppress(errors.InferometerError):
                        worker.now()  # keep-alive, or the pod would end
            if time.monotonic() > give_up_at:
                break
            self._over.wait(POLL_S)
        for worker in self._workers:
            if worker.identity is None:
                worker.lose(worker.why or self._not_come(self._pods().get(worker.pod)))
        if not any(worker.identity is not None for worker in self._workers):
            first = self._workers[0]
            hint = self._cluster.kubectl_events(first.pod, self._place.namespace)
            raise errors.LostError(f"no worker started on Kubernetes: {first.why}", hint)

    def _pods(self) -> "dict[str, Pod]":
        from lightkube.resources.core_v1 import Pod

        from inferometer.scale.kubernetes.manifests import RUN

        pods = self._cluster.all(Pod, labels={RUN: self._place.labels()[RUN]})
        return {str(pod.metadata.name): pod for pod in pods if pod.metadata}

    def _welcome(self, worker: _Worker, pod: Any, failing_since: dict[int, float]) -> None:
        """Send a pod its job when it runs."""
        from inferometer.scale.kubernetes.launcher import HOPELESS, PULL_S, PULLING, failure_of, waiting_reason

        if pod is None:
            worker.lose("its pod was deleted before it ran")
            return
        reason = waiting_reason(pod)
        kind = reason.partition(":")[0]
        since = failing_since.setdefault(worker.shard, time.monotonic()) if kind in PULLING else time.monotonic()
        if kind in HOPELESS or time.monotonic() - since >= min(PULL_S, self._settings.timeout):
            hint = self._cluster.kubectl_events(worker.pod, self._place.namespace)
            raise errors.PlanError(f"pod {worker.pod} cannot start: {reason}", f"--set kubernetes.image=NAME; {hint}")
        if pod.status.phase in ("Failed", "Succeeded"):
            worker.lose(f"its pod ended before it received a job: {failure_of(pod)[0]}")
        elif pod.status.phase == "Running":
            self._assign(worker)

    def _assign(self, worker: _Worker) -> None:
        job = msgspec.json.encode(worker.job)
        assignment = Assignment(self._run, worker.shard, self._function, job, needed_variables(self._plan))
        try:
            answer = worker.ask("assign", msgspec.msgpack.encode(assignment), retry_s=0.0)
        except ClusterError as error:
            if error.code == 403:
                raise
            return  # its server does not answer yet
        except errors.TargetError:
            return
        worker.came(answer)

    def _not_come(self, pod: Any) -> str:
        from inferometer.scale.kubernetes.launcher import waiting_reason

        reason = "it does not answer through the API server" if pod is None or pod.status.phase == "Running" else ""
        reason = reason or waiting_reason(pod) or f"it is {pod.status.phase}"
        return f"its pod did not start within {duration_text(self._settings.timeout)}: {reason}"

    def _version_hint(self) -> str:
        return "name an image with this version: --set kubernetes.image=NAME"

    # -- during the load -------------------------------------------------------------------------------------------

    def _open_streams(self) -> None:
        workers = [worker for worker in self._workers if worker.lives]
        for worker in workers:
            with suppress(errors.InferometerError):
                worker.ask(f"open?pause={PAUSE_S}&log={int(worker.carries_log)}", b"")
        count = min(len(workers), MOST_LISTENERS)
        for number in range(count):
            arguments = (workers[number::count],)
            threading.Thread(target=self._fetch_all, args=arguments, name=f"parcels {number}", daemon=True).start()

    def _fetch_all(self, workers: list[_Worker]) -> None:
        """Fetch the parcels of these workers repeatedly, each until its last one."""
        while workers and not self._over.is_set():
            began_at = time.monotonic()
            workers = [worker for worker in workers if not worker.ended and self._fetch(worker)]
            self._over.wait(max(0.0, began_at + PAUSE_S - time.monotonic()))

    def _fetch(self, worker: _Worker) -> bool:
        """Fetch the parcels of one worker; returns whether there may be more."""
        try:
            while True:
                answer = msgspec.msgpack.decode(
                    worker.ask(f"parcels?from={worker.next}", retry_s=POD_RETRY_S), type=Parcels
                )
                worker.next = answer.next
                parcels = [msgspec.msgpack.decode(parcel, type=Parcel) for parcel in answer.parcels]
                if parcels:
                    self._arrived.put((worker, parcels))
                if not parcels or parcels[-1].ended is not None:
                    return not parcels
        except Exception as error:  # any error: without this thread the run would wait forever
            why = self._how_lost(worker, error)
            if why is None:
                return True
            self._arrived.put((worker, why))
        return False

    def _how_lost(self, worker: _Worker, error: Exception) -> str | None:
        """Why a pod does not answer; None if it may answer again, because the API server or the network was
        unavailable."""
        from lightkube.resources.core_v1 import Pod

        from inferometer.scale.kubernetes.launcher import failure_of

        answer = error.message if isinstance(error, errors.InferometerError) else f"{type(error).__name__}: {error}"
        try:
            pod: Any = self._cluster.read(Pod, worker.pod)
        except errors.InferometerError:
            return f"the API server cannot be reached: {answer}"
        if pod is None:
            return "its pod was deleted"
        if pod.status.phase in ("Failed", "Succeeded"):
            return f"its pod ended: {failure_of(pod)[0]}"
        if pod.metadata.deletionTimestamp:
            return "its pod was deleted, or its node lost"
        silent_for = time.monotonic() - self._silent_since.setdefault(worker.shard, time.monotonic())
        return f"its pod does not answer: {answer}" if silent_for > SILENCE_S / 2 else None

    # -- after the load, with records on a claim ----------------------------------------------------------------------

    def _fetch_logs(self) -> None:
        """Fetch the logs from the claim, including those of lost pods."""
        if self._settings.claim is None:
            return
        from inferometer.scale.kubernetes.collecting import collect

        draft = self._folder / ".records"
        fetched = threading.Event()
        alive = threading.Thread(target=self._keep_alive, args=(fetched,), daemon=True, name="signs of life")
        alive.start()
        try:
            pod = self._pod_settings()
            start_s = self._settings.timeout
            collect(self._cluster, self._place, pod, self._folder_of_records, draft, start_s, lambda _text: None)
            for worker in self._workers:
                self._adopt(worker, draft)
            self._fetched = True
        except errors.InferometerError as error:
            place = f"{self.name} of the claim {self._settings.claim}"
            for worker in self._workers:
                worker.report = None
                worker.why = f"its records are in the folder {place} and could not be fetched: {error.message}"
        finally:
            fetched.set()
            alive.join()
            shutil.rmtree(draft, ignore_errors=True)

    def _keep_alive(self, fetched: threading.Event) -> None:
        while not fetched.wait(KEEP_ALIVE_S):
            for worker in self._workers:
                if worker.lives:
                    with suppress(errors.InferometerError):
                        worker.now()

    def _adopt(self, worker: _Worker, draft: Path) -> None:
        place = Path(worker.job.log)
        log = draft / self.name / f"{self._run}-{worker.shard}" / place.name
        size = log.stat().st_size if log.exists() else 0
        if size:
            log.replace(place)
        if size < worker.size:
            worker.report = None
            worker.why = f"only {size:,} of {worker.size:,} bytes of its records were received"

    def _forget(self, workers: list[_Worker]) -> None:
        for worker in workers:
            worker.forget(whole_run=bool(self._settings.claim) and self._fetched and worker is workers[-1])

    def _poll(self) -> None:
        with suppress(queue.Empty):
            worker, arrived = self._arrived.get(timeout=WAIT_S)
            while True:
                if isinstance(arrived, str):
                    worker.lose(arrived)
                else:
                    self._silent_since.pop(worker.shard, None)
                    for parcel in arrived:
                        self._take(worker, parcel)
                worker, arrived = self._arrived.get_nowait()
