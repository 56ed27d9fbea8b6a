"""A stack to measure: a server as a Deployment with a Service, or a fleet of servers behind our router. This module has
its manifests, and starts it, waits for it and removes it. Existing objects of others with the same names are neither
changed nor removed.

Needs lightkube: import this module where it is used.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta, OwnerReference
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import PersistentVolumeClaim, Pod, Service

from inferometer import __version__
from inferometer.errors import InferometerError, PlanError, TargetError
from inferometer.router.policy import POLICIES
from inferometer.scale.kubernetes import manifests
from inferometer.scale.kubernetes.client import CONFLICT, Cluster, ClusterError
from inferometer.scale.kubernetes.launcher import HOPELESS, PULL_S, PULLING, waiting_reason
from inferometer.scale.kubernetes.manifests import (
    COMPONENT,
    MANAGED_BY,
    MANAGER,
    ROUTER,
    RUN,
    SERVER,
    STACK,
    JobSettings,
    Manifest,
    ObjectPlace,
    PodSettings,
    uses_claim,
)
from inferometer.scale.kubernetes.settings import wrong_amounts
from inferometer.vocabulary import duration_text

VLLM_IMAGE = "vllm/vllm-openai:latest"
ATTEMPT_LABEL = "inferometer/stood-up"  # label: the attempt that created an object, if several used the same name
MODELS = "/models"  # mount path of a claim for the model
ADDRESS = "INFEROMETER_POD_ADDRESS"
POLL_S = 0.3
GONE_S = 120.0  # for pods to end
GRACE_S = 30
LAST_LINES = 15  # lines of the log of a server that does not start
KEPT_S = 300  # time to live of the Job that owns a stack
Notify = Callable[[str], None]


class StackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Server and resources of a stack."""

    name: str = "standalone"
    namespace: str
    server: Literal["vllm", "simulator"] = "vllm"
    model: str | None = None
    replicas: int = 1
    router: str | None = None  # a policy: then every replica has a Service, and the router has the stack's
    image: str | None = None
    router_image: str = f"inferometer:{__version__}"
    port: int = 8000
    args: tuple[str, ...] = ()  # of the server's command line, unchanged
    environment: Mapping[str, str] = {}  # of the server
    cpu: str | None = None
    memory: str | None = None
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[str, ...] = ()  # keys of taints
    token: str | None = None  # Hugging Face token; stored in a Secret
    token_secret: str | None = None  # an existing Secret: NAME or NAME:KEY
    claim: str | None = None  # for the model's files
    claim_size: str = "100Gi"
    storage_class: str | None = None
    access_mode: str = "ReadWriteOnce"
    pull_secrets: tuple[str, ...] = ()
    timeout_s: float = 900.0

    @property
    def url(self) -> str:
        """The address of the stack within the cluster."""
        return f"http://{self.name}.{self.namespace}.svc:{self.port}"


def check(settings: StackSettings) -> None:
    mistakes = []
    if settings.server == "vllm" and not settings.model:
        mistakes.append("--model is missing: vLLM needs the model to serve")
    if settings.replicas < 1:
        mistakes.append(f"--replicas must be at least 1, got {settings.replicas}")
    if settings.gpus < 0:
        mistakes.append(f"--gpus must be at least 0, got {settings.gpus}")
    if settings.timeout_s <= 0:
        mistakes.append("--stack-timeout must be more than 0")
    if settings.router is not None and settings.router not in POLICIES:
        mistakes.append(f"--router must be one of {', '.join(POLICIES)}, got {settings.router}")
    amounts = {"--server-cpu": settings.cpu, "--server-memory": settings.memory}
    mistakes += wrong_amounts({**amounts, "--model-pvc-size": settings.claim_size})
    if manifests.object_name(settings.name) != settings.name:
        mistakes.append(f"NAME must be lower case letters, digits and -, got {settings.name}")
    if settings.token and settings.token_secret:
        mistakes.append("$HF_TOKEN and --hf-secret exclude each other")
    if mistakes:
        raise PlanError(mistakes)


# -- manifests -------------------------------------------------------------------------------------------------------


def stack_manifests(settings: StackSettings, *, with_claim: bool = True) -> list[Manifest]:
    """All manifests, in the order in which they are applied."""
    place = ObjectPlace(settings.namespace, settings.name, SERVER)
    claim = [_claim(settings)] if settings.claim and with_claim else []
    return [*claim, main_service(settings), *_behind_service(settings, place, place, "")]


def main_service(settings: StackSettings, owners: tuple[OwnerReference, ...] = (), **labels: str) -> Service:
    """The Service of the stack. It is created first and reserves the name."""
    component = SERVER if settings.router is None else ROUTER
    place = ObjectPlace(settings.namespace, settings.name, component, owners)
    return _service(place, settings.name, settings, **labels)


def _claim(settings: StackSettings) -> PersistentVolumeClaim:
    place = ObjectPlace(settings.namespace, settings.name, SERVER)
    size, modes = settings.claim_size, (settings.access_mode,)
    return manifests.claim(place, str(settings.claim), size, settings.storage_class, modes)


def _behind_service(
    settings: StackSettings, place: ObjectPlace, secret_place: ObjectPlace, tail: str
) -> Iterator[Manifest]:
    """All other objects. The name of the Secret has a random suffix, because we never read Secrets and one with the
    plain name may exist."""
    secret = _token_secret(settings, tail)
    if settings.token:
        yield manifests.secret(secret_place, secret[0], {"HF_TOKEN": settings.token})
    if settings.router is None:
        yield _servers(place, settings, settings.name, settings.replicas, secret)
        return
    names = _replica_names(settings)
    for name in names:
        yield _service(place, name, settings)
        yield _servers(place, settings, name, 1, secret)
    yield _router(msgspec.structs.replace(place, component=ROUTER), settings, names)


def _replica_names(settings: StackSettings) -> list[str]:
    return [f"{settings.name}-{number}" for number in range(settings.replicas)]


def _servers(
    place: ObjectPlace, settings: StackSettings, name: str, replicas: int, secret: tuple[str, str]
) -> Deployment:
    home = {"HF_HOME": MODELS} if settings.claim and settings.server == "vllm" else {}
    pod = PodSettings(
        image=settings.image or (VLLM_IMAGE if settings.server == "vllm" else settings.router_image),
        command=_command(settings),
        cpu=settings.cpu,
        memory=settings.memory,
        environment={**home, **settings.environment},
        secret_environment={"HF_TOKEN": secret} if settings.token or settings.token_secret else {},
        pod_fields={ADDRESS: "status.podIP"},
        claims={MODELS: settings.claim} if settings.claim else {},
        gpu={settings.gpu_resource: str(settings.gpus)} if settings.gpus else {},
        node_selector=settings.node_selector,
        tolerations=[Toleration(key=key, operator="Exists") for key in settings.tolerations],
        pull_secrets=settings.pull_secrets,
        restricted=settings.server != "vllm",  # vLLM's image runs as root and writes to its own folders
        grace_s=GRACE_S,
    )
    spec = manifests.pod_spec(place, pod, restart="Always")
    if settings.server == "vllm":  # /dev/shm: processes of one server share tensors
        spec.volumes = [*(spec.volumes or []), Volume(name="shm", emptyDir=EmptyDirVolumeSource(medium="Memory"))]
        container = spec.containers[0]
        container.volumeMounts = [*(container.volumeMounts or []), VolumeMount(name="shm", mountPath="/dev/shm")]
    return _deployment(place, name, spec, settings, replicas)


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


def _router(place: ObjectPlace, settings: StackSettings, names: Sequence[str]) -> Deployment:
    urls = [f"{name}=http://{name}.{settings.namespace}.svc:{settings.port}" for name in names]
    where = ["--host", f"$({ADDRESS})", "--port", str(settings.port)]
    # A server may take minutes to load its model: the router waits as long as we do, instead of restarting.
    patience = ["--ready", f"{settings.timeout_s:g}s"]
    command = ["inferometer", "route", "--policy", str(settings.router), *where, *patience]
    command += [word for url in urls for word in ("--upstream", url)]
    pod = PodSettings(
        image=settings.router_image,
        command=command,
        pod_fields={ADDRESS: "status.podIP"},
        pull_secrets=settings.pull_secrets,
        grace_s=GRACE_S,
    )
    spec = manifests.pod_spec(place, pod, restart="Always")
    return _deployment(place, settings.name, spec, settings, 1)


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


def _service(place: ObjectPlace, name: str, settings: StackSettings, **labels: str) -> Service:
    port = ServicePort(port=settings.port, targetPort=settings.port, name="http", protocol="TCP")
    spec = ServiceSpec(selector=_selector(place, name), ports=[port])
    return Service(metadata=place.metadata(name, app=name, **labels), spec=spec)


def _selector(place: ObjectPlace, name: str) -> dict[str, str]:
    return {"app": name, RUN: place.labels()[RUN]}


def _token_secret(settings: StackSettings, tail: str) -> tuple[str, str]:
    """Name and key of the Secret."""
    own = manifests.object_name(settings.name, f"hf-token-{tail}".strip("-"))
    name, _, key = (settings.token_secret or own).partition(":")
    return name, key or "HF_TOKEN"


def owner_manifest(settings: StackSettings, deadline_s: float) -> Job:
    """A Job without pods that owns a stack: if the stack is not removed, the cluster removes it with the Job some time
    after the deadline."""
    place = ObjectPlace(settings.namespace, settings.name, STACK)
    name = manifests.object_name("inferometer-stack", f"{settings.name}-{secrets.token_hex(3)}")
    pod = PodSettings(image=settings.router_image, command=["true"])
    return manifests.job(place, name, pod, JobSettings(parallelism=0, deadline_s=int(deadline_s), keep_s=KEPT_S))


# -- in a cluster ----------------------------------------------------------------------------------------------------


def start_stack(cluster: Cluster, settings: StackSettings, notify: Notify, *, deadline_s: float | None = None) -> None:
    """Start a stack and wait until it is ready; on failure, remove it. With a deadline, the cluster removes the stack
    some time after it, even if we are killed."""
    check(settings)
    _check_free(cluster, settings)
    owner = owner_manifest(settings, deadline_s) if deadline_s is not None else None
    try:
        service = _created(cluster, settings, (manifests.owner(cluster.apply(owner)),) if owner else ())
    except BaseException:
        if owner is not None and owner.metadata:  # by owner, not by label: another stack may use the name by now
            with suppress(InferometerError):
                cluster.delete(Job, str(owner.metadata.name), settings.namespace)
        raise
    try:
        _apply_behind(cluster, settings, service)
        await_ready(cluster, settings, notify)
    except BaseException:
        take_down_in_trouble(cluster, settings, notify)
        raise


def _check_free(cluster: Cluster, settings: StackSettings) -> None:
    """Refuse the name of an existing stack, which must not be changed, nor removed at the end of an e2e."""
    if any(_ours(cluster, kind, settings.name, settings.namespace) for kind in (Service, Deployment)):
        text = f"namespace {settings.namespace} already has a stack {settings.name}"
        down = f"inferometer k8s down {settings.name} -p {settings.namespace}"
        raise PlanError(text, f"give another name, or take it down: {down}")
    names = {settings.name, *(_replica_names(settings) if settings.router else ())}
    things: list[Service | Deployment] = [*cluster.all(Service, settings.namespace)]
    for thing in [*things, *cluster.all(Deployment, settings.namespace)]:
        if thing.metadata and thing.metadata.name in names:
            kept = f"{type(thing).__name__.lower()} {thing.metadata.name}"
            shown = cluster.kubectl(f"describe {kept}", settings.namespace)
            raise PlanError(
                f"namespace {settings.namespace} has a {kept} that is not ours", f"give another name; {shown}"
            )


def _created(cluster: Cluster, settings: StackSettings, owners: tuple[OwnerReference, ...]) -> Service:
    """The stack's Service, created and not applied: of two simultaneous attempts with one name, one is refused."""
    attempt = secrets.token_hex(4)
    service = main_service(settings, owners, **{ATTEMPT_LABEL: attempt})
    try:
        return cluster.create(service)
    except ClusterError as error:
        if error.code != CONFLICT:
            raise
        existing = cluster.read(Service, settings.name, settings.namespace)  # ours, if only the response was lost
        if existing and existing.metadata and (existing.metadata.labels or {}).get(ATTEMPT_LABEL) == attempt:
            return existing
        text = f"namespace {settings.namespace} now has a service {settings.name}"
        raise PlanError(text, "the name is in use: choose another one") from error


def _apply_behind(cluster: Cluster, settings: StackSettings, service: Service) -> None:
    about = service.metadata
    owners = tuple((about and about.ownerReferences) or ())
    place = ObjectPlace(settings.namespace, settings.name, SERVER, owners)
    if settings.claim and cluster.read(PersistentVolumeClaim, settings.claim, settings.namespace) is None:
        cluster.apply(_claim(settings))
    of_service = msgspec.structs.replace(place, owners=(manifests.owner(service),))
    for thing in _behind_service(settings, place, of_service, str(about and about.uid)[:8]):
        cluster.apply(thing)


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
            hint = cluster.kubectl("get events --sort-by=.lastTimestamp", settings.namespace)
            text = f"{names} was not ready within {duration_text(passed_s)}: {why}"
            raise TargetError(text, f"{hint}; --stack-timeout TIME waits longer")
        time.sleep(POLL_S)


def _reasons(cluster: Cluster, settings: StackSettings) -> dict[str, str]:
    pods = _ours(cluster, Pod, settings.name, settings.namespace)
    reasons = {str(pod.metadata.name): waiting_reason(pod) for pod in pods}
    return {name: reason for name, reason in reasons.items() if reason}


def _check_hopeless(cluster: Cluster, settings: StackSettings, reasons: Mapping[str, str]) -> None:
    for name, reason in reasons.items():
        if reason.partition(":")[0] in (*HOPELESS, "CrashLoopBackOff"):
            shown = cluster.kubectl_events(name, settings.namespace)
            raise TargetError(f"pod {name} cannot start: {reason}{_end_of_log(cluster, name, settings)}", shown)


def _end_of_log(cluster: Cluster, pod: str, settings: StackSettings) -> str:
    """The end of a server's log, which shows why it ended and is removed with the pod."""
    with suppress(InferometerError):
        lines = [line for line in cluster.log(pod, settings.namespace, tail=LAST_LINES) if line.strip()]
        if lines:
            return "; the end of its log:" + "".join(f"\n  {line}" for line in lines)
    return ""


def take_down(
    cluster: Cluster, name: str, namespace: str, notify: Notify, *, data: bool = False, wait_s: float = GONE_S
) -> list[str]:
    """Remove the objects of a stack, and with `data` its claim; waits until its pods are gone."""
    removed = []
    for kind in (Deployment, Service):
        for thing in _ours(cluster, kind, name, namespace):
            removed += [f"{kind.__name__} {thing.metadata.name}"]
            cluster.delete(kind, thing.metadata.name, namespace)
    for job in _ours(cluster, Job, name, namespace):
        cluster.delete(Job, job.metadata.name, namespace)
    give_up_at = time.monotonic() + wait_s
    while pods := _ours(cluster, Pod, name, namespace):
        if time.monotonic() > give_up_at:
            hint = cluster.kubectl(f"get pods -l {RUN}={name}", namespace)
            notify(f"{len(pods)} pods of {name} have not ended yet: {hint}")
            break
        time.sleep(POLL_S)
    if not removed:
        cluster.check_namespace(namespace)
    return [*removed, *(_remove_claims(cluster, name, namespace, notify) if data else [])]


def take_down_in_trouble(cluster: Cluster, settings: StackSettings, notify: Notify) -> None:
    """Remove a stack after an error, so that the first error is the one reported. A second interrupt ends the wait."""
    try:
        try:
            take_down(cluster, settings.name, settings.namespace, notify)
        except KeyboardInterrupt:
            take_down(cluster, settings.name, settings.namespace, notify, wait_s=0.0)
            raise
    except InferometerError as error:
        again = f"inferometer k8s down {settings.name} -p {settings.namespace}"
        notify(f"{settings.name} could not be taken down: {error.message}; try again: {again}")


def _remove_claims(cluster: Cluster, name: str, namespace: str, notify: Notify) -> list[str]:
    """Remove claims that were created for the stack and that no pod uses."""
    removed = []
    for claim in _ours(cluster, PersistentVolumeClaim, name, namespace):
        users = [
            str(pod.metadata and pod.metadata.name)
            for pod in cluster.all(Pod, namespace)
            if uses_claim(pod, claim.metadata.name)
        ]
        if users:
            notify(f"the claim {claim.metadata.name} is kept, because other pods use it: {', '.join(users)}")
            continue
        cluster.delete(PersistentVolumeClaim, claim.metadata.name, namespace)
        removed += [f"PersistentVolumeClaim {claim.metadata.name}"]
    return removed


def _ours(cluster: Cluster, kind: Any, name: str, namespace: str) -> list[Any]:
    things = cluster.all(kind, namespace, {MANAGED_BY: MANAGER, RUN: name})
    return [thing for thing in things if (thing.metadata.labels or {}).get(COMPONENT) in (SERVER, ROUTER, STACK)]
