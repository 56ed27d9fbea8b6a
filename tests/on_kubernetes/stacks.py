"""A stack to measure: the simulator as a Deployment with a Service, and the objects that launcher pods need."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.kubernetes import Launched, run_on_cluster
from inferometer.conduct.treatments import TreatmentRequest
from inferometer.errors import InferometerError
from inferometer.scale.kubernetes.client import Cluster, open_cluster
from inferometer.scale.kubernetes.manifests import roles_for
from inferometer.scale.kubernetes.settings import RunSettings, settings_from
from kubernetes_stand_in.clusters import TestedCluster, is_real

MODEL, PORT, NAME = "simulated-8b", 8123, "standalone-sim"
PLAN = "load: {concurrency: 2}\nstop: {requests: 30}\nworkload: {input_tokens: 50, output_tokens: 8}\n"
LONG_PLAN = "load: {rate: 20}\nstop: {duration: 10min}\nworkload: {input_tokens: 50, output_tokens: 8}\n"
STACK = {"deployments", "replicasets", "services"}


@dataclass(frozen=True)
class Stack:
    cluster: TestedCluster
    namespace: str
    volume: Path
    folder: Path

    def open(self, user: str = "admin", retry_s: float = 120.0) -> Cluster:
        return open_cluster(
            str(self.cluster.kubeconfig(user, self.namespace)), namespace=self.namespace, retry_s=retry_s
        )

    def settings(self, **given: Any) -> RunSettings:
        usual: dict[str, Any] = {
            "namespace": self.namespace,
            "methods": "standalone",
            "models": MODEL,
            "image": "local",
        }
        usual |= {"cpu": "100m", "memory": "256Mi", "start_s": 120, "wait_s": 240}
        return settings_from({}, None, usual | given)

    def request(self, plan: str = PLAN, **given: Any) -> TreatmentRequest:
        file = self.folder / f"plan-{abs(hash(plan)):x}.yaml"
        file.write_text(plan)
        return TreatmentRequest(self.settings(**given), (str(file),), ("observe.host=false",), model_given=True)

    def run(self, plan: str = PLAN, notes: list[str] | None = None, **given: Any) -> Launched:
        told = [] if notes is None else notes
        with self.open() as cluster:
            return run_on_cluster(cluster, self.request(plan, **given), store=self.folder / "store", notes=told.append)

    @contextmanager
    def rights_of(self, user: str, *, up: bool = False, unattended: bool = False) -> Iterator[None]:
        """What `k8s rights` prints, for a while."""
        base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
        printed = roles_for(self.namespace, self.namespace, f"of-{user}", user, up=up, unattended=unattended)
        paths = [f"{base}/{thing.kind.lower()}s" for thing in printed]
        for path, thing in zip(paths, printed, strict=True):
            self.cluster.create(path, thing.to_dict())
        try:
            yield
        finally:
            for path, thing in zip(paths, printed, strict=True):
                self.cluster.delete(f"{path}/{thing.metadata.name}")

    def ours(self) -> set[str]:
        """What there is in the namespace besides the stack and what every namespace has."""
        listed = self.cluster.listing(self.namespace)
        stack = {one for one in listed if one.partition("/")[0] in STACK or NAME in one}
        everyone = {one for one in listed if "default" in one or "kube-root-ca" in one}
        return listed - stack - everyone

    def until_only(self, *left: str) -> None:
        self.cluster.until(lambda: self.ours() == set(left) or None)


def stack_in(cluster: TestedCluster, namespace: str, folder: Path) -> Stack:
    """Ready, with a volume for the results."""
    volume = calibrated(cluster.add_volume("20Gi", f"of-{namespace}"))
    command = ["python", "-m", "inferometer.simulator", "--host", "$(IP)", "--port", str(PORT)]
    address = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    container: dict[str, Any] = {"name": "simulator", "image": "local", "command": command, "env": [address]}
    container |= {"ports": [{"containerPort": PORT, "name": "http"}]}
    container |= {"readinessProbe": {"httpGet": {"path": "/v1/models", "port": PORT}, "periodSeconds": 1}}
    labels = {"app": "sim"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME}, "spec": spec}
    cluster.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
    ports = {"selector": labels, "ports": [{"port": PORT, "targetPort": PORT}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": ports}
    cluster.create(f"/api/v1/namespaces/{namespace}/services", service)
    cluster.until(lambda: [pod for pod in cluster.pods(namespace) if _is_ready(pod)], 120)
    cluster.until(lambda: cluster.get(f"/api/v1/namespaces/{namespace}/endpoints/{NAME}").get("subsets"))
    return Stack(cluster, namespace, volume, folder)


def calibrated(volume: Path, store: str = ".inferometer") -> Path:
    """A volume on which pods find a calibration of their node: making one takes seconds."""
    keep_curve(curve_of([]), volume / store)
    return volume


def check_shown(error: InferometerError, *parts: str) -> None:
    """The hint names a kubectl command, which shows more now that our objects are gone. It is run on a real server if
    there is a kubectl: to the stand-in, which has no TLS, kubectl sends no token."""
    before, named, after = str(error.hint).partition("kubectl ")
    assert named, f"no kubectl command in: {error.hint}"
    if not is_real() or shutil.which("kubectl") is None:
        return
    command = ["kubectl", *shlex.split(after.partition(";")[0].partition(" shows ")[0])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    printed = done.stdout + done.stderr
    assert done.returncode == 0 and all(part in printed for part in parts), f"{shlex.join(command)}: {printed}{before}"


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def created(cluster: TestedCluster, path: str, thing: dict[str, Any]) -> bool:
    """Not before the namespace's service account has its token."""
    try:
        return bool(cluster.create(path, thing))
    except AssertionError as error:
        if "token" not in str(error):
            raise
        return False
