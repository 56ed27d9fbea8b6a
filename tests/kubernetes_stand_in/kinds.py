"""The kinds that the stand-in supports, and their discovery documents."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@dataclass(frozen=True, slots=True)
class Kind:
    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


KINDS = [
    Kind("", "v1", "namespaces", "Namespace", False, ("status", "finalize")),
    Kind("", "v1", "nodes", "Node", False, ("status",)),
    Kind("", "v1", "persistentvolumes", "PersistentVolume", False, ("status",)),
    Kind("", "v1", "configmaps", "ConfigMap"),
    Kind("", "v1", "endpoints", "Endpoints"),
    Kind("", "v1", "events", "Event"),
    Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, ("status",)),
    Kind("", "v1", "pods", "Pod", True, ("status", "log", "eviction", "binding", "proxy")),
    Kind("", "v1", "resourcequotas", "ResourceQuota", True, ("status",)),
    Kind("", "v1", "secrets", "Secret"),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", True, ("token",)),
    Kind("", "v1", "services", "Service", True, ("status", "proxy")),
    Kind("apps", "v1", "deployments", "Deployment", True, ("status", "scale")),
    Kind("apps", "v1", "replicasets", "ReplicaSet", True, ("status",)),
    Kind("apps", "v1", "statefulsets", "StatefulSet", True, ("status", "scale")),
    Kind("batch", "v1", "jobs", "Job", True, ("status",)),
    Kind("batch", "v1", "cronjobs", "CronJob", True, ("status",)),
    Kind("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
    Kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False),
    Kind("gateway.networking.k8s.io", "v1", "gateways", "Gateway", True, ("status",)),
    Kind("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute", True, ("status",)),
    Kind("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool", True, ("status",)),
]
CUSTOM = {"gateway.networking.k8s.io", "inference.networking.k8s.io"}  # a cluster has them only once installed
REVIEWS = "authorization.k8s.io"


def kinds_of(minor: int, custom: bool) -> list[Kind]:
    """What a server of that minor version has: CronJob in batch/v1 came with 1.21."""
    known = [kind for kind in KINDS if custom or kind.group not in CUSTOM]
    return [kind for kind in known if not (kind.plural == "cronjobs" and minor < 21)]


def discovery(kinds: list[Kind], path: list[str]) -> Json | None:
    """What the server says of itself below /api and /apis; None where there is nothing."""
    groups = sorted({kind.group for kind in kinds if kind.group} | {REVIEWS})
    match path:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in groups]}
        case ["apis", name] if name in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}
        case ["api", "v1"]:
            return _resources(kinds, "", "v1")
        case ["apis", name, "v1"] if name in groups:
            return _resources(kinds, name, "v1")
    return None


def _group(name: str) -> Json:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(kinds: list[Kind], group: str, version: str) -> Json:
    listed = []
    for kind in kinds:
        if (kind.group, kind.version) == (group, version):
            row = {"singularName": "", "namespaced": kind.namespaced, "kind": kind.name}
            listed.append({"name": kind.plural, "verbs": VERBS, **row})
            listed += [
                {"name": f"{kind.plural}/{part}", "verbs": ["get", "patch", "update"], **row}
                for part in kind.subresources
            ]
    named = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": named, "resources": listed}
