"""A stack to measure: a server as a Deployment with a Service, or a fleet of servers behind our router. Its objects as
manifests, and standing it up, waiting for it and taking it down in a cluster.

Needs lightkube: import this module where it is used.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import (
    ContainerPort,
    EmptyDirVolumeSource,
    HTTPGetAction,
    PodSpec,
    PodTemplateSpec,
    Probe,
    ServicePort,
    ServiceSpec,
    Toleration,
    Volume,
    VolumeMount,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import PersistentVolumeClaim, Pod, Secret, Service

from inferometer import __version__
from inferometer.errors import PlanError, TargetError
from inferometer.scale.kubernetes import manifests
from inferometer.scale.kubernetes.client import Cluster
from inferometer.scale.kubernetes.launcher import HOPELESS, PULL_S, PULLING, waiting_reason
from inferometer.scale.kubernetes.manifests import (
    COMPONENT,
    MANAGED_BY,
    MANAGER,
    RUN,
    Manifest,
    ObjectPlace,
    PodSettings,
)
from inferometer.vocabulary import duration_text

VLLM_IMAGE = "vllm/vllm-openai:latest"
SERVER, ROUTER = "server", "router"  # components
MODELS = "/models"  # where a claim for the model is mounted
ADDRESS = "INFEROMETER_POD_ADDRESS"
LOOK_S = 0.3
GONE_S = 120.0  # for pods to end
GRACE_S = 30
_OWN_SECRET = "{}-hf-token"
Notify = Callable[[str], None]


class StackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is stood up, and with how much."""

    name: str = "standalone"
    namespace: str
    server: Literal["vllm", "simulator"] = "vllm"
    model: str | None = None
    replicas: int = 1
    router: str | None = None  # a policy: then every replica has a Service of its own, and the router is the stack's
    image: str | None = None
    router_image: str = f"inferometer:{__version__}"
    port: int = 8000
    args: tuple[str, ...] = ()  # of the server's command line, unchanged
    cpu: str | None = None
    memory: str | None = None
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[str, ...] = ()  # keys of taints
    token: str | None = None  # of Hugging Face; becomes a Secret
    token_secret: str | None = None  # one that exists: NAME or NAME:KEY
    claim: str | None = None  # for the model's files
    claim_size: str = "100Gi"
    storage_class: str | None = None
    access_mode: str = "ReadWriteOnce"
    pull_secrets: tuple[str, ...] = ()
    timeout_s: float = 900.0

    @property
    def url(self) -> str:
        """Where the stack is measured, within the cluster."""
        return f"http://{self.name}.{self.namespace}.svc:{self.port}"


def check(settings: StackSettings) -> None:
    mistakes = []
    if settings.server == "vllm" and not settings.model:
        mistakes.append("--model is missing: vLLM serves the model that it is told")
    if settings.replicas < 1:
        mistakes.append(f"--replicas must be at least 1, got {settings.replicas}")
    if manifests.object_name(settings.name) != settings.name:
        mistakes.append(f"NAME must be lower case letters, digits and -, got {settings.name}")
    if settings.token and settings.token_secret:
        mistakes.append("$HF_TOKEN and --hf-secret exclude each other")
    if mistakes:
        raise PlanError(mistakes)


# -- manifests -------------------------------------------------------------------------------------------------------


def stack_manifests(settings: StackSettings) -> list[Manifest]:
    """In the order in which they are applied."""
    place = ObjectPlace(settings.namespace, settings.name, SERVER)
    things: list[Manifest] = []
    if settings.token:
        things.append(manifests.secret(place, _token_secret(settings)[0], {"HF_TOKEN": settings.token}))
    if settings.claim:
        size, modes = settings.claim_size, (settings.access_mode,)
        things.append(manifests.claim(place, settings.claim, size, settings.storage_class, modes))
    if settings.router is None:
        return [*things, *_served(place, settings, settings.name, settings.replicas)]
    names = [f"{settings.name}-{number}" for number in range(settings.replicas)]
    for name in names:
        things += _served(place, settings, name, 1)
    return [*things, *_routed(settings, names)]


def _served(place: ObjectPlace, settings: StackSettings, name: str, replicas: int) -> Iterator[Deployment | Service]:
    pod = PodSettings(
        image=settings.image or (VLLM_IMAGE if settings.server == "vllm" else settings.router_image),
        command=_command(settings),
        cpu=settings.cpu,
        memory=settings.memory,
        environment={"HF_HOME": MODELS} if settings.claim and settings.server == "vllm" else {},
        secret_environment={"HF_TOKEN": _token_secret(settings)} if _has_token(settings) else {},
        pod_fields={ADDRESS: "status.podIP"},
        claims={MODELS: settings.claim} if settings.claim else {},
        gpu={settings.gpu_resource: str(settings.gpus)} if settings.gpus else {},
        node_selector=settings.node_selector,
        tolerations=[Toleration(key=key, operator="Exists") for key in settings.tolerations],
        pull_secrets=settings.pull_secrets,
        restricted=settings.server != "vllm",  # its image runs as root and writes to its own folders
        grace_s=GRACE_S,
    )
    spec = manifests.pod_spec(place, pod, restart="Always")
    if settings.server == "vllm":  # processes of one server share tensors there
        spec.volumes = [*(spec.volumes or []), Volume(name="shm", emptyDir=EmptyDirVolumeSource(medium="Memory"))]
        container = spec.containers[0]
        container.volumeMounts = [*(container.volumeMounts or []), VolumeMount(name="shm", mountPath="/dev/shm")]
    yield _deployment(place, name, spec, settings, replicas)
    yield _service(place, name, settings)


def _command(settings: StackSettings) -> list[str]:
    if settings.server == "vllm":
        where = ["--host", "0.0.0.0", "--port", str(settings.port)]
        return ["vllm", "serve", str(settings.model), *where, *settings.args]
    import json

    values = {"model": settings.model} if settings.model else {}
    values |= dict(word.partition("=")[::2] for word in settings.args)
    where = ["--host", f"$({ADDRESS})", "--port", str(settings.port)]
    given = {name: _number(value) for name, value in values.items()}
    return ["python", "-m", "inferometer.simulator", *where, "--settings", json.dumps(given)]


def _number(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _routed(settings: StackSettings, names: list[str]) -> Iterator[Deployment | Service]:
    place = ObjectPlace(settings.namespace, settings.name, ROUTER)
    urls = [f"{name}=http://{name}.{settings.namespace}.svc:{settings.port}" for name in names]
    where = ["--host", f"$({ADDRESS})", "--port", str(settings.port)]
    command = ["inferometer", "route", "--policy", str(settings.router), *where]
    command += [word for url in urls for word in ("--upstream", url)]
    pod = PodSettings(
        image=settings.router_image,
        command=command,
        pod_fields={ADDRESS: "status.podIP"},
        pull_secrets=settings.pull_secrets,
        grace_s=GRACE_S,
    )
    spec = manifests.pod_spec(place, pod, restart="Always")
    yield _deployment(place, settings.name, spec, settings, 1)
    yield _service(place, settings.name, settings)


def _deployment(place: ObjectPlace, name: str, spec: PodSpec, settings: StackSettings, replicas: int) -> Deployment:
    container = spec.containers[0]
    container.ports = [ContainerPort(containerPort=settings.port, name="http", protocol="TCP")]
    container.readinessProbe = Probe(httpGet=HTTPGetAction(path="/health", port=settings.port), periodSeconds=2)
    labels = place.labels() | {"app": name}
    template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=spec)
    wanted = DeploymentSpec(
        replicas=replicas, selector=LabelSelector(matchLabels=_selector(place, name)), template=template
    )
    return Deployment(metadata=place.metadata(name, app=name), spec=wanted)


def _service(place: ObjectPlace, name: str, settings: StackSettings) -> Service:
    port = ServicePort(port=settings.port, targetPort=settings.port, name="http", protocol="TCP")
    return Service(
        metadata=place.metadata(name, app=name), spec=ServiceSpec(selector=_selector(place, name), ports=[port])
    )


def _selector(place: ObjectPlace, name: str) -> dict[str, str]:
    return {"app": name, RUN: place.labels()[RUN]}


def _has_token(settings: StackSettings) -> bool:
    return bool(settings.token or settings.token_secret)


def _token_secret(settings: StackSettings) -> tuple[str, str]:
    """Name and key."""
    name, _, key = (settings.token_secret or _OWN_SECRET.format(settings.name)).partition(":")
    return name, key or "HF_TOKEN"


# -- in a cluster ----------------------------------------------------------------------------------------------------


def stand_up(cluster: Cluster, settings: StackSettings, notify: Notify) -> None:
    """All of it, until it is ready. What did not come is taken down again."""
    check(settings)
    existing = cluster.read(Service, settings.name, settings.namespace)
    if existing is not None and (existing.metadata.labels or {}).get(RUN) != settings.name:  # type: ignore[union-attr]
        text = f"namespace {settings.namespace} has a service {settings.name} that is not ours"
        raise PlanError(text, "give another NAME")
    try:
        for thing in stack_manifests(settings):
            cluster.apply(thing)
        await_ready(cluster, settings, notify)
    except BaseException:
        take_down(cluster, settings.name, settings.namespace, notify)
        raise


def await_ready(cluster: Cluster, settings: StackSettings, notify: Notify) -> None:
    began_at = time.monotonic()
    seen: set[str] = set()
    pulling_since: float | None = None
    while True:
        deployments = _ours(cluster, Deployment, settings.name, settings.namespace)
        waiting = [one for one in deployments if ((one.status and one.status.readyReplicas) or 0) < one.spec.replicas]
        if deployments and not waiting:
            notify(f"{settings.name} is ready after {duration_text(time.monotonic() - began_at)}: {settings.url}")
            return
        reasons = _reasons(cluster, settings)
        for name, reason in reasons.items():
            if f"{name} {reason}" not in seen:
                seen.add(f"{name} {reason}")
                notify(f"pod {name} waits: {reason}")
        _check_hopeless(cluster, settings, reasons)
        stuck = next((reason for reason in reasons.values() if reason.partition(":")[0] in PULLING), None)
        pulling_since = None if stuck is None else pulling_since or time.monotonic()
        passed_s = time.monotonic() - began_at
        if passed_s > settings.timeout_s or (
            pulling_since and time.monotonic() - pulling_since > min(PULL_S, settings.timeout_s)
        ):
            names = ", ".join(str(one.metadata.name) for one in waiting)
            why = "; ".join(sorted(set(reasons.values()))) or "its pods are not ready"
            hint = cluster.kubectl(f"describe pods -l {RUN}={settings.name}", settings.namespace)
            text = f"{names} was not ready within {duration_text(passed_s)}: {why}"
            raise TargetError(text, f"{hint}; --timeout TIME waits longer")
        time.sleep(LOOK_S)


def _reasons(cluster: Cluster, settings: StackSettings) -> dict[str, str]:
    pods = _ours(cluster, Pod, settings.name, settings.namespace)
    reasons = {str(pod.metadata.name): waiting_reason(pod) for pod in pods}
    return {name: reason for name, reason in reasons.items() if reason}


def _check_hopeless(cluster: Cluster, settings: StackSettings, reasons: Mapping[str, str]) -> None:
    for name, reason in reasons.items():
        if reason.partition(":")[0] in (*HOPELESS, "CrashLoopBackOff"):
            log = cluster.kubectl(f"logs {name}", settings.namespace)
            raise TargetError(f"pod {name} cannot start: {reason}", log)


def take_down(cluster: Cluster, name: str, namespace: str, notify: Notify, *, data: bool = False) -> list[str]:
    """What belongs to a stack, and with `data` its claim; waits until its pods are gone."""
    kinds: list[Any] = [Deployment, Service, *([PersistentVolumeClaim] if data else [])]
    removed = (
        [f"Secret {_OWN_SECRET.format(name)}"] if cluster.delete(Secret, _OWN_SECRET.format(name), namespace) else []
    )
    for kind in kinds:
        for thing in _ours(cluster, kind, name, namespace):
            removed += [f"{kind.__name__} {thing.metadata.name}"]
            cluster.delete(kind, thing.metadata.name, namespace)
    give_up_at = time.monotonic() + GONE_S
    while pods := _ours(cluster, Pod, name, namespace):
        if time.monotonic() > give_up_at:
            hint = cluster.kubectl(f"get pods -l {RUN}={name}", namespace)
            notify(f"{len(pods)} pods of {name} still end after {duration_text(GONE_S)}: {hint}")
            break
        time.sleep(LOOK_S)
    return removed


def _ours(cluster: Cluster, kind: Any, name: str, namespace: str) -> list[Any]:
    things = cluster.all(kind, namespace, {MANAGED_BY: MANAGER, RUN: name})
    return [thing for thing in things if (thing.metadata.labels or {}).get(COMPONENT) in (SERVER, ROUTER)]
