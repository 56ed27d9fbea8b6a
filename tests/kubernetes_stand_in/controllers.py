"""The stand-in's controllers: service accounts, jobs, deployments, endpoints, volumes, the scheduler, lost nodes, and
the clean-up by owners, time to live and namespace. One thread looks at all objects after every change."""

import datetime
import random
import string
import threading
import time
import traceback
from collections.abc import Callable

from kubernetes_stand_in.admission import OVER, admit, quantity
from kubernetes_stand_in.api import StandIn
from kubernetes_stand_in.kinds import Json
from kubernetes_stand_in.objects import ApiFailure, timestamp

TICK_S = 0.2
RETRY_S = 2.0  # between attempts to add a pod that was refused
INDEX = "batch.kubernetes.io/job-completion-index"


class Controllers:
    def __init__(self, api: StandIn, node_grace_s: float = 3.0) -> None:
        self._api, self._objects, self._node_grace_s = api, api.objects, node_grace_s
        self._again_at: dict[str, float] = {}  # when an owner whose pod was refused may try again
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="controllers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(5)

    def _work(self) -> None:
        seen = -1
        while not self._over.is_set():
            with self._objects.changed:
                if self._objects.version == seen:
                    self._objects.changed.wait(TICK_S)
                seen = self._objects.version
                for look in (self._accounts, self._volumes, self._jobs, self._deployments, self._schedule):
                    self._try(look)
                for look in (self._endpoints, self._nodes, self._collect):
                    self._try(look)

    def _try(self, look: Callable[[], None]) -> None:
        try:
            look()
        except ApiFailure as failure:
            if failure.code not in (404, 409):
                traceback.print_exc()

    def _accounts(self) -> None:
        for space in self._objects.all("namespaces"):
            name = space["metadata"]["name"]
            if not space["metadata"].get("deletionTimestamp") and not self._objects.find(
                "serviceaccounts", name, "default"
            ):
                self._objects.add(
                    self._api.kind("serviceaccounts"), {"metadata": {"name": "default", "namespace": name}}
                )

    # -- pods of jobs and deployments ----------------------------------------------------------------------------

    def _pods_of(self, owner: Json) -> list[Json]:
        """Those that it controls; others may be its own without being counted."""
        uid = owner["metadata"]["uid"]
        return [
            one
            for plural, one in self._objects.owned_by(uid)
            if plural == "pods"
            and any(at["uid"] == uid and at.get("controller") for at in one["metadata"]["ownerReferences"])
        ]

    def _add_pod(self, owner: Json, template: Json, name: str, labels: Json, index: int | None = None) -> None:
        if time.monotonic() < self._again_at.get(owner["metadata"]["uid"], 0):
            return
        meta = template.get("metadata", {})
        pod: Json = {
            "metadata": {
                "name": name,
                "namespace": owner["metadata"]["namespace"],
                "labels": {**meta.get("labels", {}), **labels},
                "annotations": dict(meta.get("annotations", {})),
                "ownerReferences": [_owner_reference(owner)],
            },
            "spec": {**template["spec"], "containers": [dict(one) for one in template["spec"]["containers"]]},
        }
        if index is not None:
            pod["metadata"]["annotations"][INDEX] = str(index)
            for container in pod["spec"]["containers"]:
                container["env"] = [*container.get("env", []), {"name": "JOB_COMPLETION_INDEX", "value": str(index)}]
        kind = self._api.kind("pods")
        try:
            admit(self._objects, kind, pod, self._api.minor)
            self._objects.add(kind, pod)
        except ApiFailure as failure:
            if failure.code == 403:
                # Each attempt is an event with another name: without a pause the store grows, and nothing else runs.
                self._again_at[owner["metadata"]["uid"]] = time.monotonic() + RETRY_S
                self._event(owner, "FailedCreate", f"Error creating: {failure.message}")
            else:
                raise

    def _event(self, about: Json, reason: str, message: str, kind: str = "Warning") -> None:
        meta = about["metadata"]
        name = f"{meta['name']}.{abs(hash((reason, message))):x}"[:60]
        if self._objects.find("events", meta["namespace"], name) is None:
            involved = {"kind": about["kind"], "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
            event: Json = {"metadata": {"name": name, "namespace": meta["namespace"]}, "involvedObject": involved}
            event |= {"reason": reason, "message": message, "type": kind, "lastTimestamp": timestamp(), "count": 1}
            self._objects.add(self._api.kind("events"), event)

    def _jobs(self) -> None:
        for job in self._objects.all("jobs"):
            if not job["metadata"].get("deletionTimestamp"):
                self._job(job)

    def _job(self, job: Json) -> None:
        status, spec, meta = job.setdefault("status", {}), job["spec"], job["metadata"]
        if any(
            one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in status.get("conditions", [])
        ):
            return
        status.setdefault("startTime", timestamp())
        pods = self._pods_of(job)
        done = [one for one in pods if one["status"].get("phase") == "Succeeded"]
        failed = [one for one in pods if one["status"].get("phase") == "Failed"]
        active = [one for one in pods if one["status"].get("phase") not in OVER and not _leaves(one)]
        status |= {"active": len(active), "succeeded": len(done), "failed": len(failed)}
        limit = spec.get("activeDeadlineSeconds")
        if len(done) >= spec["completions"]:
            self._job_over(job, "Complete", "", "")
        elif limit is not None and _age_s(status["startTime"]) >= limit:
            self._job_over(job, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        elif len(failed) > spec["backoffLimit"]:
            self._job_over(job, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        else:
            self._objects.change("jobs", job)
            taken = {one["metadata"].get("annotations", {}).get(INDEX) for one in [*done, *active]}
            for _ in range(min(spec["parallelism"], spec["completions"] - len(done)) - len(active)):
                index = None
                if spec.get("completionMode") == "Indexed":
                    index = next(at for at in range(spec["completions"]) if str(at) not in taken)
                    taken.add(str(index))
                middle = "" if index is None else f"-{index}"
                labels = {"job-name": meta["name"], "controller-uid": meta["uid"]}
                self._add_pod(job, spec["template"], f"{meta['name']}{middle}-{_suffix()}", labels, index)

    def _job_over(self, job: Json, what: str, reason: str, message: str) -> None:
        status = job["status"]
        condition = {
            "type": what,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": timestamp(),
        }
        status.setdefault("conditions", []).append(condition)
        status["active"] = 0
        if what == "Complete":
            status["completionTime"] = timestamp()
        self._objects.change("jobs", job)
        if what == "Failed":
            for pod in self._pods_of(job):
                if pod["status"].get("phase") not in OVER:
                    self._delete_pod(pod)

    def _delete_pod(self, pod: Json) -> None:
        meta = pod["metadata"]
        if not pod["spec"].get("nodeName"):
            self._objects.remove("pods", meta["namespace"], meta["name"])
        elif not _leaves(pod):
            meta |= {"deletionTimestamp": timestamp(), "deletionGracePeriodSeconds": 30}
            self._objects.change("pods", pod)

    def _deployments(self) -> None:
        """A deployment's pods, without revisions: one replica set each."""
        for deployment in self._objects.all("deployments"):
            meta, spec = deployment["metadata"], deployment["spec"]
            if _leaves(deployment):
                continue
            name = f"{meta['name']}-set"
            if self._objects.find("replicasets", meta["namespace"], name) is None:
                owner = {
                    "name": name,
                    "namespace": meta["namespace"],
                    "ownerReferences": [_owner_reference(deployment)],
                }
                self._objects.add(
                    self._api.kind("replicasets"), {"metadata": owner, "spec": {"selector": spec["selector"]}}
                )
            replicas = self._objects.find("replicasets", meta["namespace"], name)
            assert replicas is not None
            pods = [
                one for one in self._pods_of(replicas) if not _leaves(one) and one["status"].get("phase") not in OVER
            ]
            wanted = spec.get("replicas", 1)
            for _ in range(wanted - len(pods)):
                self._add_pod(replicas, spec["template"], f"{meta['name']}-{_suffix()}", {})
            for pod in pods[wanted:]:
                self._delete_pod(pod)
            ready = sum(_is_ready(one) for one in pods[:wanted])
            fresh = self._objects.find("deployments", meta["namespace"], meta["name"])
            assert fresh is not None
            counts = {
                "replicas": len(pods),
                "readyReplicas": ready,
                "availableReplicas": ready,
                "updatedReplicas": len(pods),
            }
            fresh["status"] = {**fresh.get("status", {}), **counts, "observedGeneration": meta["generation"]}
            self._objects.change("deployments", fresh)

    # -- where pods run --------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        nodes = [one for one in self._objects.all("nodes") if _is_ready(one)]
        for pod in self._objects.all("pods"):
            if not pod["spec"].get("nodeName") and not _leaves(pod) and pod["status"].get("phase") == "Pending":
                why = self._unbound(pod) or self._place(pod, nodes)
                if why:
                    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
                    pod["status"]["conditions"] = [condition]
                    self._objects.change("pods", pod)
                    self._event(pod, "FailedScheduling", why)

    def _unbound(self, pod: Json) -> str | None:
        for volume in pod["spec"].get("volumes", []):
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            claim = self._objects.find("persistentvolumeclaims", pod["metadata"]["namespace"], name) if name else None
            if name and claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if claim is not None and claim["status"]["phase"] != "Bound":
                return "0/1 nodes are available: 1 pod has unbound immediate PersistentVolumeClaims."
        return None

    def _place(self, pod: Json, nodes: list[Json]) -> str | None:
        spec = pod["spec"]
        for node in nodes:
            labels = node["metadata"].get("labels", {})
            if any(labels.get(name) != value for name, value in spec.get("nodeSelector", {}).items()):
                continue
            if all(_tolerates(spec, taint) for taint in node["spec"].get("taints", []) or []) and _fits(spec, node):
                spec["nodeName"] = node["metadata"]["name"]
                pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
                self._objects.change("pods", pod)
                return None
        return (
            f"0/{len(nodes)} nodes are available: {len(nodes)} node(s) didn't match node selector, taints or resources."
        )

    def _nodes(self) -> None:
        """A node that is not heard of any more is not ready, and its pods leave."""
        for node in self._objects.all("nodes"):
            ready = next((one for one in node.get("status", {}).get("conditions", []) if one["type"] == "Ready"), None)
            if ready is None or _age_s(ready.get("lastHeartbeatTime", timestamp())) < self._node_grace_s:
                continue
            if ready["status"] == "True":
                ready |= {
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.",
                }
                self._objects.change("nodes", node)
            for pod in self._objects.all("pods"):
                if pod["spec"].get("nodeName") == node["metadata"]["name"] and pod["status"].get("phase") not in OVER:
                    self._delete_pod(pod)

    def _volumes(self) -> None:
        for claim in self._objects.all("persistentvolumeclaims"):
            if claim["status"]["phase"] == "Bound" or _leaves(claim):
                continue
            for volume in self._objects.all("persistentvolumes"):
                if volume["status"]["phase"] == "Available" and _suits(volume, claim):
                    meta = claim["metadata"]
                    volume["spec"]["claimRef"] = {
                        "namespace": meta["namespace"],
                        "name": meta["name"],
                        "uid": meta["uid"],
                    }
                    volume["status"]["phase"] = "Bound"
                    claim["spec"]["volumeName"] = volume["metadata"]["name"]
                    claim["status"] |= {"phase": "Bound", "capacity": volume["spec"]["capacity"]}
                    self._objects.change("persistentvolumes", volume)
                    self._objects.change("persistentvolumeclaims", claim)
                    break
            else:
                self._not_bound(claim)
        claims = {one["metadata"]["uid"] for one in self._objects.all("persistentvolumeclaims")}
        for volume in self._objects.all("persistentvolumes"):
            if volume["status"]["phase"] == "Bound" and volume["spec"]["claimRef"]["uid"] not in claims:
                volume["status"]["phase"] = "Released"
                self._objects.change("persistentvolumes", volume)

    def _not_bound(self, claim: Json) -> None:
        name = claim["spec"].get("storageClassName")
        if not name:
            text = "no persistent volumes available for this claim and no storage class is set"
            self._event(claim, "FailedBinding", text, "Normal")
        elif self._objects.find("storageclasses", "", name) is None:
            self._event(claim, "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found')

    def _endpoints(self) -> None:
        for service in self._objects.all("services"):
            meta, selector = service["metadata"], service["spec"].get("selector")
            if not selector:
                continue
            ready = [one for one in self._objects.all("pods", meta["namespace"]) if _is_ready(one) and not _leaves(one)]
            ready = [one for one in ready if selector.items() <= one["metadata"].get("labels", {}).items()]
            ports = [
                {"port": one.get("targetPort", one["port"]), "name": one.get("name", "")}
                for one in service["spec"]["ports"]
            ]
            addresses = [{"ip": one["status"]["podIP"]} for one in ready]
            subsets = [{"addresses": addresses, "ports": ports}] if addresses else []
            found = self._objects.find("endpoints", meta["namespace"], meta["name"])
            if found is None:
                named = {"name": meta["name"], "namespace": meta["namespace"]}
                self._objects.add(self._api.kind("endpoints"), {"metadata": named, "subsets": subsets})
            elif found.get("subsets") != subsets:
                self._objects.change("endpoints", {**found, "subsets": subsets})
        names = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in self._objects.all("services")}
        for one in self._objects.all("endpoints"):
            key = one["metadata"]["namespace"], one["metadata"]["name"]
            if key not in names:
                self._objects.remove("endpoints", *key)

    # -- the end of things -----------------------------------------------------------------------------------------

    def _collect(self) -> None:
        everything = self._objects.everything()
        alive = {one["metadata"]["uid"] for _, one in everything}
        for plural, one in everything:
            owners = one["metadata"].get("ownerReferences", [])
            if owners and not any(owner["uid"] in alive for owner in owners):
                self._end(plural, one)
        for plural, one in everything:
            if _leaves(one):
                self._finish(plural, one)
        for job in self._objects.all("jobs"):
            limit = job["spec"].get("ttlSecondsAfterFinished")
            over = [at["lastTransitionTime"] for at in job.get("status", {}).get("conditions", [])]
            if limit is not None and over and _age_s(over[0]) >= limit and not _leaves(job):
                self._end("jobs", job)

    def _end(self, plural: str, one: Json) -> None:
        if plural == "pods":
            self._delete_pod(one)
        else:
            self._objects.remove(plural, one["metadata"].get("namespace", ""), one["metadata"]["name"])

    def _finish(self, plural: str, one: Json) -> None:
        """What waits for others to go: its dependents, or all that is in it."""
        meta = one["metadata"]
        finalizers = meta.get("finalizers", [])
        if "foregroundDeletion" in finalizers:
            waiting = self._objects.owned_by(meta["uid"])
            for kind, child in waiting:
                self._end(kind, child) if not _leaves(child) else None
            if not waiting:
                meta["finalizers"] = [name for name in finalizers if name != "foregroundDeletion"]
                self._objects.change(plural, one)
        elif plural == "namespaces":
            inside = [
                (kind, child)
                for kind, child in self._objects.everything()
                if child["metadata"].get("namespace") == meta["name"]
            ]
            for kind, child in inside:
                self._end(kind, child) if not _leaves(child) else None
            if not inside:
                self._objects.remove(plural, "", meta["name"])


def _owner_reference(owner: Json) -> Json:
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    return {**named, "uid": owner["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}


def _suffix() -> str:
    return "".join(random.choices(string.ascii_lowercase, k=5))


def _leaves(one: Json) -> bool:
    return bool(one["metadata"].get("deletionTimestamp"))


def _age_s(written: str) -> float:
    at = datetime.datetime.strptime(written, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)
    return (datetime.datetime.now(datetime.UTC) - at).total_seconds()


def _is_ready(one: Json) -> bool:
    return any(at["type"] == "Ready" and at["status"] == "True" for at in one.get("status", {}).get("conditions", []))


def _tolerates(spec: Json, taint: Json) -> bool:
    def fits(toleration: Json) -> bool:
        same = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
        return (
            toleration.get("key") in (None, taint["key"])
            and same
            and toleration.get("effect") in (None, taint["effect"])
        )

    return taint["effect"] == "PreferNoSchedule" or any(fits(one) for one in spec.get("tolerations", []))


def _fits(spec: Json, node: Json) -> bool:
    room = node["status"].get("allocatable", {})
    for container in spec["containers"]:
        for name, value in (container.get("resources", {}).get("requests") or {}).items():
            if quantity(value) > quantity(room.get(name, 0)):
                return False
    return True


def _suits(volume: Json, claim: Json) -> bool:
    room, wanted = volume["spec"], claim["spec"]
    named = wanted.get("volumeName") in (None, volume["metadata"]["name"])
    same = room.get("storageClassName", "") == wanted.get("storageClassName", "")
    modes = set(wanted.get("accessModes", [])) <= set(room.get("accessModes", []))
    return (
        named
        and same
        and modes
        and quantity(room["capacity"]["storage"]) >= quantity(wanted["resources"]["requests"]["storage"])
    )
