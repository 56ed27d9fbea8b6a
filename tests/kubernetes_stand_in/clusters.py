"""A cluster to test with: the stand-in, or a real control plane. Both have a node of local processes, users with and
without rights, and volumes; tests do not tell them apart."""

import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from kubernetes_stand_in.api import StandIn
from kubernetes_stand_in.control_plane import ControlPlane
from kubernetes_stand_in.controllers import Controllers
from kubernetes_stand_in.kinds import Json
from kubernetes_stand_in.node import Node, kubeconfig
from kubernetes_stand_in.rights import MASTERS, User

ALL_ENV = "INFEROMETER_KUBERNETES_ALL"  # 1: every test on the stand-in, also those that take long
BINARIES_ENV = "INFEROMETER_KUBERNETES"  # folder with a real control plane's programs
TOKENS = {"admin": "token-of-admin", "alice": "token-of-alice", "bob": "token-of-bob"}
POD_NETWORK = "10.244.0"  # of a real control plane: it passes nothing on to loopback addresses
AMONG_US = ("events", "endpoints", "endpointslices")  # kinds that others make for us, and remove in their own time


def is_real() -> bool:
    return bool(os.environ.get(BINARIES_ENV))


thorough = pytest.mark.skipif(
    not is_real() and os.environ.get(ALL_ENV) != "1", reason="takes long: make test-kubernetes"
)


def own_network() -> tuple[int, socket.socket]:
    """The N of 127.N.0.0/16 for the pods of one cluster: two processes of tests have a cluster each, and their pods the
    same ports. Taken as long as the socket is open, and by servers that outlived tests that were killed."""
    for number in range(1, 255):
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            held.bind((f"127.{number}.255.254", 10_001))
            for last in range(11, 16):  # of the first pods
                with socket.socket() as tried:
                    tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    tried.bind((f"127.{number}.1.{last}", 8123))
        except OSError:
            held.close()
            continue
        return number, held
    raise AssertionError("254 clusters at once")


class TestedCluster:
    """What tests see of a cluster."""

    __test__ = False

    def __init__(self, folder: Path, minor: int = 31) -> None:
        self.folder = folder
        self._spaces = self._networks = 0
        self._own, self._held = own_network()
        self._api: StandIn | ControlPlane
        if is_real():
            self._api = ControlPlane(Path(os.environ[BINARIES_ENV]).resolve(), folder / "plane", TOKENS)
        else:
            self._api = StandIn(minor)
            self._api.rights.tokens = {
                token: User(name, (MASTERS,) if name == "admin" else ()) for name, token in TOKENS.items()
            }
            self._controllers = Controllers(self._api)
        self.nodes: list[Node] = []

    def start(self) -> None:
        self._api.start()
        if isinstance(self._api, StandIn):
            self._controllers.start()
        self._http = httpx2.Client(
            base_url=self.url, headers={"authorization": f"Bearer {TOKENS['admin']}"}, verify=False, timeout=60
        )
        self.add_node("local")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        if isinstance(self._api, StandIn):
            self._controllers.stop()
        self._api.stop()
        self._http.close()
        self._held.close()

    @property
    def url(self) -> str:
        return self._api.url

    @property
    def node(self) -> Node:
        return self.nodes[0]

    def add_node(self, name: str, **settings: Any) -> Node:
        if isinstance(self._api, ControlPlane):
            settings |= {"certificate": (self._api.certificate, self._api.key), "authority": self._api.authority}
        self._networks += 1
        network = f"10.244.{self._networks}" if is_real() else f"127.{self._own}.{self._networks}"
        node = Node(self.url, TOKENS["admin"], self.folder / name, name, network, **settings)
        self.nodes.append(node)
        node.start()
        return node

    def remove_node(self, node: Node) -> None:
        node.stop()
        self.nodes.remove(node)
        self.delete(f"/api/v1/nodes/{node.name}")

    def kubeconfig(self, user: str = "admin", namespace: str = "default") -> Path:
        path = self.folder / f"{user}-{namespace}.kubeconfig"
        path.write_text(kubeconfig(self.url, TOKENS[user], namespace))
        return path

    def stop_api(self) -> None:
        self._api.stop_api() if isinstance(self._api, ControlPlane) else self._api.stop()

    def start_api(self) -> None:
        self._api.start_api() if isinstance(self._api, ControlPlane) else self._api.start()

    # -- by the administrator ----------------------------------------------------------------------------------------

    def get(self, path: str) -> Json:
        answer = self._http.get(path)
        answer.raise_for_status()
        found: Json = answer.json()
        return found

    def create(self, path: str, one: Json) -> Json:
        answer = self._http.post(path, json=one)
        assert answer.is_success, answer.text
        found: Json = answer.json()
        return found

    def delete(self, path: str) -> None:
        self._http.delete(path)

    def new_namespace(self) -> str:
        self._spaces += 1
        name = f"test-{self._spaces}-{uuid.uuid4().hex[:6]}"
        self.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.until(lambda: self._http.get(f"/api/v1/namespaces/{name}/serviceaccounts/default").is_success)
        return name

    def add_volume(self, size: str = "20Gi", storage_class: str = "") -> Path:
        """A volume that the next claim of that size and class is bound to."""
        name = f"volume-{uuid.uuid4().hex[:8]}"
        path = self.folder / name
        path.mkdir()
        spec: Json = {"capacity": {"storage": size}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}
        spec |= {
            "hostPath": {"path": str(path)},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
        }
        self.create(
            "/api/v1/persistentvolumes",
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec},
        )
        return path

    def add_quota(self, namespace: str, **hard: str) -> None:
        limits = {name.replace("__", "/").replace("_", "."): value for name, value in hard.items()}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}, "spec": {"hard": limits}}
        self.create(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
        path = f"/api/v1/namespaces/{namespace}/resourcequotas/quota"
        if is_real():  # nothing counts before the controller has
            self.until(lambda: bool(self.get(path).get("status", {}).get("hard")))

    def grant(self, user: str, namespace: str, rules: list[Json]) -> None:
        """A role of the namespace, for a user."""
        group = "rbac.authorization.k8s.io"
        base = f"/apis/{group}/v1/namespaces/{namespace}"
        name = {"name": f"of-{user}"}
        self.create(f"{base}/roles", {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": name, "rules": rules})
        subject = {"kind": "User", "name": user, "apiGroup": group}
        binding: Json = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": name, "subjects": [subject]}
        self.create(
            f"{base}/rolebindings", {**binding, "roleRef": {"kind": "Role", "name": f"of-{user}", "apiGroup": group}}
        )

    def listing(self, namespace: str) -> set[str]:
        """Every object of every kind in a namespace, as kind/name."""
        found = set()
        groups = [group["preferredVersion"]["groupVersion"] for group in self.get("/apis")["groups"]]
        for base in ["/api/v1", *(f"/apis/{group}" for group in groups)]:
            for resource in self.get(base)["resources"]:
                listed = "list" in resource["verbs"] and "/" not in resource["name"]
                if resource["namespaced"] and listed and resource["name"] not in AMONG_US:
                    items = self.get(f"{base}/namespaces/{namespace}/{resource['name']}")["items"]
                    found |= {f"{resource['name']}/{one['metadata']['name']}" for one in items}
        return found

    def pods(self, namespace: str) -> list[Json]:
        items: list[Json] = self.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return items

    def until(self, holds: Callable[[], Any], within_s: float = 60.0) -> Any:
        """What comes to hold, looked at again and again."""
        give_up_at = time.monotonic() + within_s
        while not (value := holds()):
            assert time.monotonic() < give_up_at, "it did not come to hold in time"
            time.sleep(0.02)
        return value
