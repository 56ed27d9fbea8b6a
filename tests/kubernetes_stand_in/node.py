"""A node whose pods are local processes: it watches the pods that are bound to it, runs their containers, reports their
status and serves their logs, to the stand-in and to a real control plane alike.

Volumes and /etc/hosts are mounted in a namespace of the process where the system allows that (`unshare`); else paths
are rewritten in commands and variables. An image whose name starts with `missing/` cannot be pulled. No exec.
"""

import base64
import http.client
import http.server
import json
import os
import re
import shlex
import signal
import ssl
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from kubernetes_stand_in.kinds import Json
from kubernetes_stand_in.objects import timestamp

BEAT_S = 1.0
FAILURES = 3  # probes that a container that was ready may miss, as a kubelet has it
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_VARIABLE = re.compile(r"\$\((\w+)\)")


@cache
def has_namespaces() -> bool:
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Node:
    """One node. `network` is where its pods have their addresses: 127.0.1 or, for a real API server, 10.244.0."""

    def __init__(
        self,
        server: str,
        token: str,
        folder: Path,
        name: str = "local",
        network: str = "127.0.1",
        certificate: tuple[Path, Path] | None = None,  # and key: the API server wants TLS
        authority: Path | None = None,
        labels: dict[str, str] | None = None,
        capacity: dict[str, str] | None = None,
        taints: list[Json] | None = None,
        shift_s: int = 0,  # by which the clocks of its pods are ahead
    ) -> None:
        self.name, self.folder, self.network = name, folder, network
        self._server, self._authority = server, authority
        self._labels = {"kubernetes.io/hostname": name, **(labels or {})}
        self._room = {"cpu": "64", "memory": "256Gi", "pods": "110", **(capacity or {})}
        self._taints, self.shift_s = taints or [], shift_s
        self._http = httpx2.Client(
            base_url=server, headers={"authorization": f"Bearer {token}"}, verify=False, timeout=20
        )
        self._pods: dict[str, _Pod] = {}
        self._addresses = 10
        self._over = threading.Event()
        self.logs = _LogServer(self, certificate)
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        threading.Thread(target=self.logs.serve_forever, args=(0.05,), daemon=True).start()
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": self._labels}, "spec": {}}
        if self._taints:
            node["spec"] = {"taints": self._taints}
        self._http.post("/api/v1/nodes", json=node)
        self._beat()
        self._patch("/api/v1/nodes/" + self.name, {"spec": {"taints": self._taints or None}})
        threading.Thread(target=self._heart, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """As if its power failed: nothing is reported any more, and the processes end."""
        self._over.set()
        for pod in list(self._pods.values()):
            pod.kill()
        self.logs.shutdown()
        self.logs.server_close()

    def evict(self, pod: str, namespace: str) -> None:
        """As a node does that runs out of memory."""
        found = next(one for one in self._pods.values() if (one.namespace, one.name) == (namespace, pod))
        found.evict("The node was low on resource: memory.")

    def pids(self) -> list[int]:
        return [
            process.pid for pod in self._pods.values() for process in pod.processes.values() if process.poll() is None
        ]

    # -- the API -------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Json:
        answer = self._http.get(path)
        answer.raise_for_status()
        found: Json = answer.json()
        return found

    def report(self, namespace: str, name: str, status: Json) -> None:
        if not self._over.is_set():
            self._patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})

    def event(self, namespace: str, name: str, uid: str, reason: str, message: str) -> None:
        """What a kubelet tells of a pod besides its status."""
        involved = {"kind": "Pod", "name": name, "namespace": namespace, "uid": uid}
        event: Json = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{name}.{token_hex(6)}"}}
        event |= {"involvedObject": involved, "reason": reason, "message": message, "type": "Warning", "count": 1}
        times = {"firstTimestamp": timestamp(), "lastTimestamp": timestamp()}
        if not self._over.is_set():
            self._retried("POST", f"/api/v1/namespaces/{namespace}/events", event | times)

    def gone(self, namespace: str, name: str, uid: str) -> None:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        if not self._over.is_set():
            self._retried("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", options)

    def token_of(self, namespace: str, account: str) -> str:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = self._http.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", json=body)
        answer.raise_for_status()
        return str(answer.json()["status"]["token"])

    def _patch(self, path: str, body: Json) -> None:
        self._retried("PATCH", path, body)

    def _retried(self, method: str, path: str, body: Json) -> None:
        """Until the server answers: it may be restarting."""
        while not self._over.is_set():
            with suppress(httpx2.TransportError):
                headers = {"content-type": "application/merge-patch+json"} if method == "PATCH" else {}
                answer = self._http.request(method, path, json=body, headers=headers)
                if answer.status_code < 500:
                    return
            self._over.wait(0.1)

    def _heart(self) -> None:
        while not self._over.wait(BEAT_S):
            self._beat()
            with suppress(httpx2.HTTPError, OSError, ValueError, LookupError):  # a heart must not stop for a name
                self._name_services()

    def _name_services(self) -> None:
        """Pods that run already learn new names, too, as from a name server."""
        hosts = self.hosts()
        for pod in list(self._pods.values()):
            pod.name_services(hosts)

    def _beat(self) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": timestamp()}
        port = {"kubeletEndpoint": {"Port": self.logs.server_address[1]}}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"capacity": self._room, "allocatable": self._room, "conditions": [ready], "addresses": addresses}
        self._patch(f"/api/v1/nodes/{self.name}/status", {"status": {**status, "daemonEndpoints": port}})

    def _watch(self) -> None:
        """Lists and watches again and again: the server may restart, or forget old versions."""
        selector = {"fieldSelector": f"spec.nodeName={self.name}"}
        while not self._over.is_set():
            with suppress(httpx2.HTTPError, ValueError):
                listed = self._http.get("/api/v1/pods", params=selector)
                listed.raise_for_status()
                found = listed.json()
                for pod in found["items"]:
                    self._heed(pod)
                for uid in self._pods.keys() - {pod["metadata"]["uid"] for pod in found["items"]}:
                    self._pods[uid].kill()
                since = {"watch": "true", "resourceVersion": found["metadata"]["resourceVersion"]}
                timeout = httpx2.Timeout(20, read=None)
                with self._http.stream("GET", "/api/v1/pods", params=selector | since, timeout=timeout) as stream:
                    for line in stream.iter_lines():
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        if event["type"] == "DELETED":
                            self._forget(event["object"]["metadata"]["uid"])
                        else:
                            self._heed(event["object"])
            self._over.wait(0.05)

    def _heed(self, pod: Json) -> None:
        uid, leaves = pod["metadata"]["uid"], pod["metadata"].get("deletionTimestamp")
        known = self._pods.get(uid)
        if leaves:
            if known is None:
                self.gone(pod["metadata"]["namespace"], pod["metadata"]["name"], uid)
            else:
                known.leave(pod["metadata"].get("deletionGracePeriodSeconds", 30))
        elif known is not None:
            known.compare(pod["status"])
        elif pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            self._addresses += 1
            self._pods[uid] = _Pod(self, pod, f"{self.network}.{self._addresses}")
            if self._over.is_set():  # `stop` may have looked before
                self._pods[uid].kill()

    def _forget(self, uid: str) -> None:
        if uid in self._pods:
            self._pods[uid].kill()

    def pod(self, namespace: str, name: str) -> "_Pod | None":
        found = [pod for pod in self._pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        return found[-1] if found else None

    @property
    def server(self) -> str:
        return self._server

    @property
    def authority(self) -> Path | None:
        return self._authority

    def hosts(self) -> str:
        """Names of services, as the cluster's DNS has them: those whose pods are ready."""
        lines = ["127.0.0.1 localhost"]
        for one in self.get("/api/v1/endpoints")["items"]:
            meta = one["metadata"]
            for address in [at for subset in one.get("subsets") or [] for at in subset.get("addresses") or []]:
                full = f"{meta['name']}.{meta['namespace']}"
                lines.append(f"{address['ip']} {full}.svc.cluster.local {full}.svc {full}")
        return "\n".join(lines) + "\n"


class _Pod:
    """The processes of a pod, and the thread that looks after them."""

    def __init__(self, node: Node, pod: Json, address: str) -> None:
        self._node, self._pod, self.address = node, pod, address
        self.namespace, self.name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self.uid = pod["metadata"]["uid"]
        self.folder = node.folder / f"{self.namespace}_{self.name}_{self.uid[:8]}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.over = False
        self._restarts: dict[str, int] = {}
        self._missed: dict[str, int] = {}  # probes in a row
        self._ended: dict[str, Json] = {}  # how a container that was started again ended before
        self._started_at = timestamp()
        self._evicted: str | None = None
        self._leave_by: float | None = None
        self._leaving = False
        self._killed = False
        self._naming = threading.Lock()  # of the file with the names of services
        self._reported: Json = {}
        self._is_whole = False
        threading.Thread(target=self._live, name=self.name, daemon=True).start()

    def log(self, container: str) -> Path:
        return self.folder / f"{container}.log"

    def name_services(self, hosts: str) -> None:
        """In place: the file is mounted. A known name stays known, as that of a service without a ready pod."""
        path = self.folder / "hosts"
        with self._naming:
            if not path.exists() or self.over:
                return
            before = path.read_text()
            named = {line.split()[1] for line in hosts.splitlines()}
            after = hosts + "".join(f"{line}\n" for line in before.splitlines() if line.split()[1] not in named)
            if after != before:
                with path.open("r+") as file:
                    file.write(after)
                    file.truncate()

    def compare(self, status: Json) -> None:
        """Says its status again where the controllers changed it: of a node that they did not hear of for a while."""
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))
        if self._is_whole and not ready and not self.over:
            self._reported = {}

    def leave(self, grace_s: float) -> None:
        if not self._leaving:
            self._leaving = True
            self._leave_by = time.monotonic() + grace_s
            self._signal(signal.SIGTERM)
            if self.over:
                self._node.gone(self.namespace, self.name, self.uid)

    def evict(self, why: str) -> None:
        self._evicted = why
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        self._killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process in list(self.processes.values()):
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def _live(self) -> None:
        try:
            self._run()
        except Exception as error:
            self._node.event(self.namespace, self.name, self.uid, "Failed", f"Error: {error}")
            self._report(
                "Pending",
                {
                    one["name"]: {"waiting": {"reason": "CreateContainerConfigError", "message": str(error)}}
                    for one in self._containers
                },
            )
            while not self._leaving and not self._killed:
                time.sleep(0.05)
        if self._killed:  # also what was started while it was
            self._signal(signal.SIGKILL)
        self.over = True
        if self._leaving and not self._killed:
            self._node.gone(self.namespace, self.name, self.uid)

    @property
    def _containers(self) -> list[Json]:
        found: list[Json] = self._pod["spec"]["containers"]
        return found

    def _run(self) -> None:
        missing = [one for one in self._containers if one.get("image", "").startswith("missing/")]
        if missing:
            why = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{missing[0]["image"]}"'}
            self._report("Pending", {one["name"]: {"waiting": why} for one in self._containers})
            text = f'Failed to pull image "{missing[0]["image"]}": not found'
            self._node.event(self.namespace, self.name, self.uid, "Failed", text)
            while not self._leaving and not self._killed:
                time.sleep(0.02)
            return
        mounts = self._volumes()
        for container in self._containers:
            self._spawn(container, mounts)
        while True:
            states = {one["name"]: self._state(one["name"]) for one in self._containers}
            ended = [state for state in states.values() if "terminated" in state]
            if self._killed:
                return
            if len(ended) == len(states) or self._evicted:
                if self._again(states):
                    continue
                failed = self._evicted or any(state["terminated"]["exitCode"] for state in ended)
                self._report("Failed" if failed else "Succeeded", states)
                return
            ready = {one["name"] for one in self._containers if self._is_ready(one)}
            self._report("Running", states, ready)
            if self._leave_by is not None and time.monotonic() > self._leave_by:
                self._signal(signal.SIGKILL)
            time.sleep(0.03)

    def _again(self, states: dict[str, Json]) -> bool:
        """Start containers anew, where the pod wants that."""
        if self._pod["spec"].get("restartPolicy") != "Always" or self._evicted or self._leaving:
            return False
        over = {name: state for name, state in states.items() if "terminated" in state}
        if any(self._restarts.get(name) for name in over):  # the first time at once, then after a pause
            text = "back-off restarting failed container"
            waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
            self._report("Running", {**states, **dict.fromkeys(over, waiting)})
            self._node.event(self.namespace, self.name, self.uid, "BackOff", text)
            time.sleep(0.5)
        if self._killed or self._leaving:
            return False
        for container in self._containers:
            if "terminated" in states[container["name"]]:
                self._restarts[container["name"]] = self._restarts.get(container["name"], 0) + 1
                self._ended[container["name"]] = states[container["name"]]
                self._spawn(container, self._volumes())
        return True

    def _state(self, container: str) -> Json:
        code = self.processes[container].poll()
        if code is None:
            return {"running": {"startedAt": self._started_at}}
        times = {"startedAt": self._started_at, "finishedAt": timestamp()}
        exit_code = code if code >= 0 else 128 - code
        ended = {"exitCode": exit_code, "reason": "Completed" if code == 0 else "Error", **times}
        if code:
            ended["message"] = self.log(container).read_text(errors="replace")[-2000:]
        return {"terminated": ended}

    def _is_ready(self, container: Json) -> bool:
        probe = (container.get("readinessProbe") or {}).get("httpGet")
        if self.processes[container["name"]].poll() is not None:
            return False
        if probe is None:
            return True
        ports = {one.get("name"): one["containerPort"] for one in container.get("ports", [])}
        port = ports.get(probe["port"], probe["port"])
        answered = False
        # Longer than a kubelet's second: on a machine with forty busy processes a simulator took that three times.
        asking = http.client.HTTPConnection(self.address, port, timeout=10)  # without 20 ms for a TLS context
        with suppress(OSError, http.client.HTTPException), closing(asking):
            asking.request("GET", probe.get("path", "/"))
            answered = asking.getresponse().status < 400
        self._missed[container["name"]] = 0 if answered else self._missed.get(container["name"], FAILURES) + 1
        return self._missed[container["name"]] < FAILURES

    def _report(self, phase: str, states: dict[str, Json], ready: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        whole = self._is_whole = phase == "Running" and len(ready) == len(states)
        conditions = [{"type": name, "status": "True"} for name in ("PodScheduled", "Initialized")]
        state = {"status": "True" if whole else "False", "lastTransitionTime": timestamp()}
        conditions += [{"type": name, **state} for name in ("ContainersReady", "Ready")]
        containers = [
            {
                "name": one["name"], "image": one.get("image", ""), "imageID": "", "ready": one["name"] in ready,
                "restartCount": self._restarts.get(one["name"], 0), "state": states[one["name"]],
                "lastState": self._ended.get(one["name"], {}),
            }
            for one in self._containers
        ]  # fmt: skip
        status: Json = {"phase": phase, "hostIP": "127.0.0.1", "podIP": self.address, "startTime": self._started_at}
        status |= {"podIPs": [{"ip": self.address}], "containerStatuses": containers}
        if self._evicted:
            status |= {"reason": "Evicted", "message": self._evicted}
        known = {"phase": phase, "states": {name: [*state] for name, state in states.items()}, "ready": sorted(ready)}
        known["restarts"] = dict(self._restarts)
        if known != self._reported:
            self._reported = known
            self._node.report(self.namespace, self.name, {**status, "conditions": conditions})

    # -- what a container gets -------------------------------------------------------------------------------------

    def _spawn(self, container: Json, mounts: dict[str, Path]) -> None:
        environment = self._environment(container)
        command = [*(container.get("command") or []), *(container.get("args") or [])]
        command = [_VARIABLE.sub(lambda found: environment.get(found[1], found[0]), word) for word in command]
        mine = {
            one["mountPath"]: mounts[one["name"]] / one.get("subPath", "") for one in container.get("volumeMounts", [])
        }
        if self._pod["spec"].get("automountServiceAccountToken", True):
            mine[ACCOUNT] = self._account()
        if not has_namespaces():
            for path, folder in mine.items():
                command = [_moved(word, path, folder) for word in command]
                environment = {name: _moved(value, path, folder) for name, value in environment.items()}
        else:
            ahead = ["--time", "--fork", "--kill-child", "--monotonic", str(self._node.shift_s), "--boottime", "1"]
            script = self._mounting(mine, shlex.join(command), container)
            command = ["unshare", "-rm", *(ahead if self._node.shift_s else []), "sh", "-c", script]
        with self.log(container["name"]).open("ab") as log:
            self.processes[container["name"]] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        if self._killed:  # while it was started, and nobody looks after it
            self._signal(signal.SIGKILL)

    def _mounting(self, mounts: dict[str, Path], command: str, container: Json) -> str:
        """A root of its own, made of the host's folders, with the volumes where the pod wants them."""
        root = self.folder / "root"
        root.mkdir(exist_ok=True)
        hosts = self._node.hosts()
        with self._naming:
            (self.folder / "hosts").write_text(hosts)
        steps = [f"R={shlex.quote(str(root))}", "mount -t tmpfs none $R"]
        steps.append(
            'for d in /*; do [ -L "$d" ] && cp -P "$d" $R/ && continue; [ -d "$d" ] || continue; mkdir $R$d; '
            "[ $d = /run ] && continue; mount --rbind $d $R$d; done"
        )
        for path, folder in sorted(mounts.items()):
            real = path.replace("/var/run/", "/run/")
            steps.append(
                f"mkdir -p $R{shlex.quote(real)} && mount --bind {shlex.quote(str(folder))} $R{shlex.quote(real)}"
            )
        ours = sorted({Path(__file__).parents[2], Path(sys.prefix)})  # a volume on /tmp would hide a checkout there
        hidden = [shlex.quote(str(folder)) for folder in ours if any(folder.is_relative_to(path) for path in mounts)]
        steps += [f"mkdir -p $R{folder} && mount --rbind {folder} $R{folder}" for folder in hidden]
        steps.append(f"mount --bind {shlex.quote(str(self.folder / 'hosts'))} $R/etc/hosts")
        if (container.get("securityContext") or {}).get("readOnlyRootFilesystem"):
            steps.append("mount -o remount,ro $R")
        steps.append(f"exec chroot $R {command}")
        return (
            " && ".join(steps[:2])
            + "\n"
            + "\n".join(f"{step} || exit 125" if not step.startswith(("for", "exec")) else step for step in steps[2:])
        )

    def _environment(self, container: Json) -> dict[str, str]:
        outside = ("PATH", "LANG", "COVERAGE_PROCESS_START", "INFEROMETER_DATA")
        known = {name: os.environ[name] for name in outside if name in os.environ}
        known["PATH"] = f"{Path(sys.executable).parent}:{known.get('PATH', '/usr/bin:/bin')}"
        known |= {"HOME": "/tmp" if has_namespaces() else str(self.folder), "HOSTNAME": self.name}
        url = urlsplit(self._node.server)
        known |= {"KUBERNETES_SERVICE_HOST": url.hostname or "", "KUBERNETES_SERVICE_PORT": str(url.port)}
        for source in container.get("envFrom", []):
            try:
                known |= self._all_of(source)
            except httpx2.HTTPStatusError:
                if not next(iter(source.values())).get("optional"):
                    raise
        for one in container.get("env", []):
            value = one.get("value", "") if "valueFrom" not in one else self._value(one["valueFrom"])
            if value is not None:
                known[one["name"]] = _VARIABLE.sub(lambda found: known.get(found[1], found[0]), value)
        if self._pod["spec"].get("automountServiceAccountToken", True) and url.scheme == "http":
            known.setdefault("KUBECONFIG", f"{ACCOUNT}/kubeconfig")
        return known

    def _all_of(self, source: Json) -> dict[str, str]:
        if "configMapRef" in source:
            found: dict[str, str] = self._object("configmaps", source["configMapRef"]["name"]).get("data", {})
            return found
        data = self._object("secrets", source["secretRef"]["name"]).get("data", {})
        return {name: base64.b64decode(value).decode() for name, value in data.items()}

    def _value(self, source: Json) -> str | None:
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        if "secretKeyRef" in source:
            wanted = source["secretKeyRef"]
            try:
                return base64.b64decode(self._object("secrets", wanted["name"])["data"][wanted["key"]]).decode()
            except (httpx2.HTTPStatusError, KeyError):
                if wanted.get("optional"):
                    return None
                raise ValueError(f'secret "{wanted["name"]}" not found') from None
        if "configMapKeyRef" in source:
            wanted = source["configMapKeyRef"]
            return str(self._object("configmaps", wanted["name"])["data"][wanted["key"]])
        return ""

    def _field(self, path: str) -> str:
        if path in ("status.podIP", "status.hostIP"):
            return self.address
        if found := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
            return str((self._pod["metadata"].get(found[1]) or {}).get(found[2], ""))
        value: Any = self._pod
        for name in path.split("."):
            value = value.get(name, "") if isinstance(value, dict) else ""
        return str(value) if path != "spec.nodeName" else self._node.name

    def _object(self, plural: str, name: str) -> Json:
        return self._node.get(f"/api/v1/namespaces/{self.namespace}/{plural}/{name}")

    def _volumes(self) -> dict[str, Path]:
        return {one["name"]: self._volume(one) for one in self._pod["spec"].get("volumes", [])}

    def _volume(self, volume: Json) -> Path:
        folder = self.folder / "volumes" / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        if "persistentVolumeClaim" in volume:
            claim = self._object("persistentvolumeclaims", volume["persistentVolumeClaim"]["claimName"])
            kept = Path(
                self._node.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")["spec"]["hostPath"]["path"]
            )
            kept.mkdir(parents=True, exist_ok=True)
            return kept
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        files: dict[str, bytes] = {}
        if "configMap" in volume:
            found = self._object("configmaps", volume["configMap"]["name"])
            files = {name: text.encode() for name, text in (found.get("data") or {}).items()}
            files |= {name: base64.b64decode(text) for name, text in (found.get("binaryData") or {}).items()}
            items = volume["configMap"].get("items")
        elif "secret" in volume:
            found = self._object("secrets", volume["secret"]["secretName"])
            files = {name: base64.b64decode(text) for name, text in (found.get("data") or {}).items()}
            items = volume["secret"].get("items")
        else:
            items = None
        for name, content in files.items():
            paths = [one["path"] for one in items or [{"key": name, "path": name}] if one["key"] == name]
            for path in paths:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
        return folder

    def _account(self) -> Path:
        folder = self.folder / "account"
        folder.mkdir(exist_ok=True)
        account = self._pod["spec"].get("serviceAccountName", "default")
        token = self._node.token_of(self.namespace, account)
        (folder / "token").write_text(token)
        (folder / "namespace").write_text(self.namespace)
        if self._node.authority is not None:
            (folder / "ca.crt").write_bytes(self._node.authority.read_bytes())
        else:  # a server without TLS, which no service account expects
            (folder / "kubeconfig").write_text(kubeconfig(self._node.server, token, self.namespace))
        return folder


def kubeconfig(server: str, token: str, namespace: str = "default") -> str:
    context = {"cluster": "c", "user": "u", "namespace": namespace}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": context}],
            "users": [{"name": "u", "user": {"token": token}}],
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        }
    )


def _moved(word: str, path: str, folder: Path) -> str:
    return re.sub(rf"(^|[=:,]){re.escape(path)}(?=/|$)", lambda found: found[1] + str(folder), word)


class _LogServer(http.server.ThreadingHTTPServer):
    """What a kubelet serves to the API server."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, node: Node, certificate: tuple[Path, Path] | None) -> None:
        super().__init__(("127.0.0.1", 0), _LogRequest)
        self.node = node
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _LogRequest(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _LogServer

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts, query = (
            url.path.strip("/").split("/"),
            {name: values[-1] for name, values in parse_qs(url.query).items()},
        )
        pod = self.server.node.pod(parts[1], parts[2]) if parts[0] == "containerLogs" and len(parts) == 4 else None
        self.send_response(200 if pod else 404)
        self.send_header("content-type", "text/plain")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if pod is not None:
            with suppress(OSError):
                self._pass_on(pod, parts[3], query)
        self._chunk(b"")

    def _pass_on(self, pod: _Pod, container: str, query: dict[str, str]) -> None:
        with pod.log(container).open("rb") as log:
            if "tailLines" in query:
                lines = log.readlines()
                count = int(query["tailLines"])
                if last := b"".join(lines[-count:] if count else []):
                    self._chunk(last)
            while True:
                over = pod.over
                while piece := log.read(1 << 16):
                    self._chunk(piece)
                if query.get("follow") != "true" or over:
                    return
                time.sleep(0.02)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
