"""Admission in the stand-in: namespaces must exist, quotas hold, defaults are filled in."""

import re
from decimal import Decimal
from typing import Any

from kubernetes_stand_in.kinds import Json, Kind
from kubernetes_stand_in.objects import ApiFailure, Objects, not_found

_SUFFIXES: dict[str, Any] = {"": 1, "m": Decimal("0.001"), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SUFFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"([0-9.]+)([a-zA-Z]*)$")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
OVER = ("Succeeded", "Failed")


def quantity(text: object) -> Decimal:
    found = _QUANTITY.match(str(text))
    if found is None or found[2] not in _SUFFIXES:
        raise ApiFailure(400, "BadRequest", f"quantities must match the regular expression, got {text!r}")
    return Decimal(found[1]) * _SUFFIXES[found[2]]


def admit(objects: Objects, kind: Kind, one: Json, minor: int) -> None:
    """Check a new object, and write what follows from it."""
    meta = one["metadata"]
    name = meta.get("name") or meta.get("generateName", "").rstrip("-")
    if not _NAME.match(name) or len(name) > 253:
        text = f'{kind.name} "{name}" is invalid: metadata.name: Invalid value: "{name}": a DNS-1123 subdomain must'
        raise ApiFailure(422, "Invalid", f"{text} consist of lower case alphanumeric characters, '-' or '.'")
    if kind.namespaced:
        _check_namespace(objects, kind, meta["namespace"], name)
    match kind.plural:
        case "namespaces":
            one.setdefault("status", {})["phase"] = "Active"
        case "pods":
            _default_pod(objects, one)
        case "jobs":
            _default_job(one, minor)
            _check_amounts(one["spec"]["template"]["spec"])
        case "deployments":
            _check_amounts(one["spec"]["template"]["spec"])
        case "persistentvolumeclaims":
            quantity(one["spec"]["resources"]["requests"]["storage"])
            one.setdefault("status", {}).setdefault("phase", "Pending")
        case "persistentvolumes":
            one.setdefault("status", {}).setdefault("phase", "Available")
        case "services":
            one["spec"].setdefault("clusterIP", f"10.0.0.{len(objects.all('services')) + 1}")
        case "secrets":
            _encode_secret(one)
    if kind.namespaced:
        check_quota(objects, kind, one)


def _check_namespace(objects: Objects, kind: Kind, namespace: str, name: str) -> None:
    space = objects.find("namespaces", "", namespace)
    if space is None:
        raise not_found("namespaces", namespace)
    if space["metadata"].get("deletionTimestamp"):
        text = f'{kind.plural} "{name}" is forbidden: unable to create new content in namespace {namespace}'
        raise ApiFailure(403, "Forbidden", f"{text} because it is being terminated")


def _default_pod(objects: Objects, pod: Json) -> None:
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    account = spec.setdefault("serviceAccountName", "default")
    if objects.find("serviceaccounts", namespace, account) is None:
        text = f'pods "{pod["metadata"].get("name", "")}" is forbidden: error looking up service account'
        raise ApiFailure(403, "Forbidden", f'{text} {namespace}/{account}: serviceaccount "{account}" not found')
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    pod.setdefault("status", {}).setdefault("phase", "Pending")


def _default_job(job: Json, minor: int) -> None:
    spec = job["spec"]
    if minor < 21 and "completionMode" in spec:
        text = "failed to create typed patch object: .spec.completionMode: field not declared in schema"
        raise ApiFailure(500, "InternalError", text)
    spec.setdefault("backoffLimit", 6)
    for name in ("parallelism", "completions"):
        spec.setdefault(name, 1)
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        text = f'Job.batch "{job["metadata"]["name"]}" is invalid: spec.template.spec.restartPolicy: Unsupported value'
        raise ApiFailure(422, "Invalid", text)


def _check_amounts(spec: Json) -> None:
    for container in spec["containers"]:
        for amounts in container.get("resources", {}).values():
            for amount in (amounts or {}).values():
                quantity(amount)


def _encode_secret(secret: Json) -> None:
    import base64

    texts = secret.pop("stringData", None) or {}
    if texts:
        secret["data"] = {
            **secret.get("data", {}),
            **{k: base64.b64encode(v.encode()).decode() for k, v in texts.items()},
        }


def check_quota(objects: Objects, kind: Kind, one: Json) -> None:
    namespace = one["metadata"]["namespace"]
    for quota in objects.all("resourcequotas", namespace):
        hard = quota["spec"].get("hard", {})
        asked = _use(kind.plural, one)
        for name in [name for name in hard if name in asked]:
            used = sum(
                (_use(plural, other).get(name, Decimal(0)) for plural, other in _living(objects, namespace)), Decimal(0)
            )
            if used + asked[name] > quantity(hard[name]):
                text = f'{kind.plural} "{one["metadata"].get("name", "")}" is forbidden: exceeded quota: '
                text += f"{quota['metadata']['name']}, requested: {name}={asked[name]}, "
                text += f"used: {name}={used}, limited: {name}={hard[name]}"
                raise ApiFailure(403, "Forbidden", text)


def _living(objects: Objects, namespace: str) -> list[tuple[str, Json]]:
    found = [(plural, one) for plural, one in objects.everything() if one["metadata"].get("namespace") == namespace]
    return [(plural, one) for plural, one in found if plural != "pods" or one["status"].get("phase") not in OVER]


def _use(plural: str, one: Json) -> dict[str, Decimal]:
    groups = {"jobs": "batch", "deployments": "apps"}
    counted = f"count/{plural}.{groups[plural]}" if plural in groups else f"count/{plural}"
    use = {counted: Decimal(1), plural: Decimal(1)}
    if plural == "pods":
        for container in one["spec"]["containers"]:
            resources = container.get("resources", {})
            for kind, prefix in (("requests", ""), ("requests", "requests."), ("limits", "limits.")):
                for name, value in (resources.get(kind) or {}).items():
                    use[prefix + name] = use.get(prefix + name, Decimal(0)) + quantity(value)
    if plural == "persistentvolumeclaims":
        use["requests.storage"] = quantity(one["spec"]["resources"]["requests"]["storage"])
    return use
