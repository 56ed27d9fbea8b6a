"""Our objects in a cluster, as functions from settings to manifests. Every object has the label of its run, by which it
is found and removed, and pods meet the restricted pod security standard.

Needs lightkube: import this module where it is used.
"""

import re
import secrets
from collections.abc import Mapping, Sequence

import msgspec
from lightkube.models.batch_v1 import JobSpec
from lightkube.models.core_v1 import (
    Capabilities,
    ConfigMapVolumeSource,
    Container,
    EmptyDirVolumeSource,
    EnvVar,
    EnvVarSource,
    LocalObjectReference,
    ObjectFieldSelector,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimVolumeSource,
    PodSecurityContext,
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
    SeccompProfile,
    SecretKeySelector,
    SecurityContext,
    Toleration,
    Volume,
    VolumeMount,
    VolumeResourceRequirements,
)
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import Role, RoleBinding

from inferometer.documents.document import Document, JsonObject
from inferometer.errors import PlanError
from inferometer.plan.redactor import REDACTED

Manifest = Job | ConfigMap | Secret | ServiceAccount | Role | RoleBinding | PersistentVolumeClaim | Deployment | Service
MANAGED_BY, MANAGER = "app.kubernetes.io/managed-by", "inferometer"
NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
RBAC = "rbac.authorization.k8s.io"
SERVER, ROUTER, STACK = "server", "router", "stack"  # components; the last is a Job that temporarily owns a stack
RUN = "inferometer/run"  # label: the run, or the stack, that an object belongs to
INDEX = "batch.kubernetes.io/job-completion-index"  # annotation of the pods of an Indexed Job
TOOL, TOOL_USER = "tool", 1000  # the second container of a pod, and its volume; who it runs as
LONGEST_NAME = 63  # of a label's value; the names of Jobs become one
LONGEST_OBJECT = 58  # leaves room for the number of a Job or pod


class ObjectPlace(msgspec.Struct, frozen=True):
    """Namespace, run, component and owner of an object."""

    namespace: str
    run: str
    component: str = "launcher"
    owners: tuple[OwnerReference, ...] = ()

    def labels(self) -> dict[str, str]:
        return {
            MANAGED_BY: MANAGER,
            NAME: MANAGER,
            COMPONENT: label_value(self.component),
            RUN: label_value(self.run),
        }

    def metadata(self, name: str, **more: str) -> ObjectMeta:
        return ObjectMeta(
            name=name,
            namespace=self.namespace,
            labels=self.labels() | more,
            ownerReferences=list(self.owners) or None,
        )


class ToolContainerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A second container of a pod, with an image that is not ours; both mount one volume at `folder`."""

    image: str
    command: Sequence[str]
    folder: str
    environment: Mapping[str, str] = {}
    cpu: str | None = None
    memory: str | None = None


class PodSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Command and resources of one of our pods."""

    image: str
    command: Sequence[str]
    cpu: str | None = None  # request and limit: a throttled load generator would measure itself
    memory: str | None = None
    environment: Mapping[str, str] = {}
    secret_environment: Mapping[str, tuple[str, str]] = {}  # variable: (secret, key)
    optional_secrets: Mapping[str, tuple[str, str]] = {}  # the same, for optional secrets
    pod_fields: Mapping[str, str] = {}  # variable: field of the pod
    claims: Mapping[str, str] = {}  # mount path: persistent volume claim
    config_maps: Mapping[str, str] = {}  # mount path: config map
    service_account: str | None = None
    mount_token: bool = False
    pull_policy: str | None = None
    pull_secrets: Sequence[str] = ()
    node_selector: Mapping[str, str] = {}
    tolerations: Sequence[Toleration] = ()
    gpu: Mapping[str, str] = {}  # resource: count, e.g. nvidia.com/gpu: "1"
    group: int | None = None  # fsGroup: the group of a volume's files
    restricted: bool = True
    grace_s: int | None = None
    tool: ToolContainerSettings | None = None


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The number of pods of a Job, and its time limits."""

    pods: int = 1
    indexed: bool = False
    parallelism: int | None = None  # default: all at once; 0: none yet
    deadline_s: int | None = None  # also for a pod that never starts
    keep_s: int | None = None  # after its end, until the cluster removes it with its objects


# -- names -----------------------------------------------------------------------------------------------------------


def label_value(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:LONGEST_NAME].strip("-._")


def launch_of(id_: str) -> str:
    """A unique id for one attempt at a treatment of an experiment."""
    return f"{id_}-{secrets.token_hex(3)}"


def is_launch(tail: str) -> bool:
    """Whether a text is the suffix that `launch_of` adds to an id."""
    return re.fullmatch(r"[0-9a-f]{6}", tail) is not None


def object_name(*parts: str) -> str:
    """A name that is valid for every kind. The last part is not shortened, because it distinguishes runs."""
    *first, last = [re.sub(r"[^a-z0-9-]+", "-", part.lower()).strip("-") for part in parts if part]
    head = "-".join(first)[: max(0, LONGEST_OBJECT - len(last) - 1)].strip("-")
    return f"{head}-{last}" if head else last[:LONGEST_OBJECT]


def owner(thing: Manifest) -> OwnerReference:
    """The owner reference: the cluster removes an object when its owner is gone."""
    about = thing.metadata
    return OwnerReference(
        apiVersion=str(thing.apiVersion),
        kind=str(thing.kind),
        name=str(about and about.name),
        uid=str(about and about.uid),
    )


# -- objects ---------------------------------------------------------------------------------------------------------


def config_map(place: ObjectPlace, name: str, files: Mapping[str, str]) -> ConfigMap:
    return ConfigMap(metadata=place.metadata(name), data=dict(files))


def secret(place: ObjectPlace, name: str, values: Mapping[str, str]) -> Secret:
    return Secret(metadata=place.metadata(name), stringData=dict(values), type="Opaque")


def service_account(place: ObjectPlace, name: str) -> ServiceAccount:
    return ServiceAccount(metadata=place.metadata(name), automountServiceAccountToken=False)


def role(place: ObjectPlace, name: str, rules: Sequence[PolicyRule]) -> Role:
    return Role(metadata=place.metadata(name), rules=list(rules))


def role_binding(place: ObjectPlace, name: str) -> RoleBinding:
    """A role to the service account of the same name."""
    return RoleBinding(
        metadata=place.metadata(name),
        roleRef=RoleRef(apiGroup=RBAC, kind="Role", name=name),
        subjects=[Subject(kind="ServiceAccount", name=name, namespace=place.namespace)],
    )


def rule(groups: str, resources: str, verbs: str) -> PolicyRule:
    """`rule("batch", "jobs", "get list")`; the core group is the empty word."""
    return PolicyRule(apiGroups=groups.split() or [""], resources=resources.split(), verbs=verbs.split())


def claim(
    place: ObjectPlace,
    name: str,
    size: str,
    storage_class: str | None = None,
    modes: Sequence[str] = ("ReadWriteMany",),
) -> PersistentVolumeClaim:
    spec = PersistentVolumeClaimSpec(
        accessModes=list(modes),
        resources=VolumeResourceRequirements(requests={"storage": size}),
        storageClassName=storage_class,
    )
    return PersistentVolumeClaim(metadata=place.metadata(name), spec=spec)


def job(place: ObjectPlace, name: str, pod: PodSettings, settings: JobSettings, **labels: str) -> Job:
    """A Job that does not repeat a failed pod, because a failed measurement is a result. An Indexed Job would end its
    other pods after the first failure, so it may start a replacement, which finds that its index has run."""
    all_at_once = settings.pods if settings.parallelism is None else settings.parallelism
    spec = JobSpec(
        template=pod_template(place, pod, **labels),
        completions=settings.pods,
        parallelism=all_at_once,
        completionMode="Indexed" if settings.indexed else None,
        backoffLimit=settings.pods if settings.indexed else 0,
        activeDeadlineSeconds=settings.deadline_s,
        ttlSecondsAfterFinished=settings.keep_s,
    )
    return Job(metadata=place.metadata(name, **labels), spec=spec)


# -- pods ------------------------------------------------------------------------------------------------------------


def pod_template(place: ObjectPlace, pod: PodSettings, **labels: str) -> PodTemplateSpec:
    return PodTemplateSpec(
        metadata=ObjectMeta(labels=place.labels() | labels),
        spec=pod_spec(place, pod),
    )


def pod_spec(place: ObjectPlace, pod: PodSettings, *, restart: str = "Never") -> PodSpec:
    volumes, mounts = _volumes(pod)
    return PodSpec(
        containers=[_container(place.component, pod, mounts), *_tool_containers(pod, mounts)],
        restartPolicy=restart,
        serviceAccountName=pod.service_account,
        automountServiceAccountToken=pod.mount_token,
        enableServiceLinks=False,
        imagePullSecrets=[LocalObjectReference(name=name) for name in pod.pull_secrets] or None,
        nodeSelector=dict(pod.node_selector) or None,
        tolerations=list(pod.tolerations) or None,
        terminationGracePeriodSeconds=pod.grace_s,
        securityContext=PodSecurityContext(
            runAsNonRoot=True, fsGroup=pod.group, seccompProfile=SeccompProfile(type="RuntimeDefault")
        )
        if pod.restricted
        else None,
        volumes=volumes,
    )


def _container(name: str, pod: PodSettings, mounts: list[VolumeMount]) -> Container:
    amounts = {key: value for key, value in (("cpu", pod.cpu), ("memory", pod.memory)) if value} | dict(pod.gpu)
    return Container(
        name=object_name(name),
        image=pod.image,
        imagePullPolicy=pod.pull_policy,
        command=list(pod.command) or None,
        env=_environment(pod) or None,
        resources=ResourceRequirements(requests=dict(amounts), limits=dict(amounts)) if amounts else None,
        volumeMounts=mounts,
        terminationMessagePolicy="FallbackToLogsOnError",
        securityContext=_restricted() if pod.restricted else None,
    )


def _restricted(user: int | None = None) -> SecurityContext:
    return SecurityContext(
        allowPrivilegeEscalation=False,
        readOnlyRootFilesystem=True,
        runAsNonRoot=True,
        runAsUser=user,
        capabilities=Capabilities(drop=["ALL"]),
    )


def _tool_containers(pod: PodSettings, mounts: list[VolumeMount]) -> list[Container]:
    """Other people's images run as root unless a user is named, which a restricted pod must not."""
    if pod.tool is None:
        return []
    tool = pod.tool
    amounts = {key: value for key, value in (("cpu", tool.cpu), ("memory", tool.memory)) if value}
    return [
        Container(
            name=TOOL,
            image=tool.image,
            command=list(tool.command),
            env=[EnvVar(name=name, value=value) for name, value in sorted(tool.environment.items())] + _secrets(pod),
            resources=ResourceRequirements(requests=dict(amounts), limits=dict(amounts)) if amounts else None,
            volumeMounts=[mount for mount in mounts if mount.mountPath in ("/tmp", tool.folder)],
            terminationMessagePolicy="FallbackToLogsOnError",
            securityContext=_restricted(TOOL_USER) if pod.restricted else None,
        )
    ]


def _environment(pod: PodSettings) -> list[EnvVar]:
    plain = [EnvVar(name=name, value=value) for name, value in sorted(pod.environment.items())]
    fields = [
        EnvVar(name=name, valueFrom=EnvVarSource(fieldRef=ObjectFieldSelector(fieldPath=path)))
        for name, path in sorted(pod.pod_fields.items())
    ]
    return plain + _secrets(pod) + fields


def _secrets(pod: PodSettings) -> list[EnvVar]:
    return [
        EnvVar(
            name=name,
            valueFrom=EnvVarSource(secretKeyRef=SecretKeySelector(name=held_by, key=key, optional=optional or None)),
        )
        for held, optional in ((pod.secret_environment, False), (pod.optional_secrets, True))
        for name, (held_by, key) in sorted(held.items())
    ]


def _volumes(pod: PodSettings) -> tuple[list[Volume], list[VolumeMount]]:
    """With a read-only root, /tmp is a volume of the pod."""
    volumes, mounts = [Volume(name="tmp", emptyDir=EmptyDirVolumeSource())], [VolumeMount(mountPath="/tmp", name="tmp")]
    if pod.tool is not None:
        volumes.append(Volume(name=TOOL, emptyDir=EmptyDirVolumeSource()))
        mounts.append(VolumeMount(mountPath=pod.tool.folder, name=TOOL))
    for number, (path, claimed) in enumerate(sorted(pod.claims.items())):
        source = PersistentVolumeClaimVolumeSource(claimName=claimed)
        volumes.append(Volume(name=f"data-{number}", persistentVolumeClaim=source))
        mounts.append(VolumeMount(mountPath=path, name=f"data-{number}"))
    for number, (path, name) in enumerate(sorted(pod.config_maps.items())):
        volumes.append(Volume(name=f"files-{number}", configMap=ConfigMapVolumeSource(name=name)))
        mounts.append(VolumeMount(mountPath=path, name=f"files-{number}", readOnly=True))
    return volumes, mounts


def uses_claim(pod: Pod, claim: str) -> bool:
    volumes = (pod.spec and pod.spec.volumes) or ()
    return any(one.persistentVolumeClaim and one.persistentVolumeClaim.claimName == claim for one in volumes)


def as_yaml(things: Sequence[Manifest]) -> str:
    """Manifests as YAML for kubectl, without the contents of Secrets."""
    import yaml

    return yaml.safe_dump_all([_shown(thing.to_dict()) for thing in things], sort_keys=False, width=120)


def _shown(thing: JsonObject) -> JsonObject:
    held = Document.of(thing).section("stringData") if thing["kind"] == "Secret" else None
    return thing if not held else {**thing, "stringData": dict.fromkeys(held, REDACTED)}


LAUNCHING = (
    rule("batch", "jobs", "get list create patch delete"),
    rule("", "configmaps secrets serviceaccounts", "create patch"),  # deleted with their Job
    rule("", "persistentvolumeclaims", "get create patch delete"),
    rule("", "pods", "get list create patch delete"),
    rule("", "pods/proxy", "get create"),  # workers with --on kubernetes
    rule("", "pods/log", "get"),
    rule("", "events", "list"),
)
READING = (
    rule("", "services", "get list"),
    rule("", "pods", "list"),
    rule("", "services/proxy pods/proxy", "get"),  # to list the served models
    rule("", "pods/log", "get"),  # startup logs, with -l nop
    rule("apps", "deployments statefulsets", "list"),
    rule("gateway.networking.k8s.io", "gateways httproutes", "list"),
    rule("inference.networking.k8s.io inference.networking.x-k8s.io", "inferencepools", "list"),
)
WATCHING = (  # rights of launcher pods that watch the stack themselves, because no client waits for them
    rule("", "pods", "list"),
    rule("apps", "deployments statefulsets", "list"),
)
GRANTING = (rule(RBAC, "roles rolebindings", "create patch"),)  # to grant WATCHING to the launcher pods
DEPLOYING = (
    rule("apps", "deployments", "list create patch delete"),
    rule("", "services", "get list create patch delete"),
    rule("", "secrets", "create patch"),  # deleted with their Service
    rule("", "persistentvolumeclaims", "get list create patch delete"),
    rule("", "pods", "list"),
    rule("batch", "jobs", "list create patch delete"),  # that own the stack of an e2e
)


def roles_for(
    stack: str,
    harness: str,
    name: str,
    user: str | None = None,
    account: str | None = None,
    *,
    up: bool = False,
    unattended: bool = False,
) -> list[Manifest]:
    """The roles for `k8s run` and workers with --on kubernetes; with `up` also for `k8s up`, `down` and `e2e`; with
    `unattended` also for `k8s run --wait 0`, whose pods watch the stack."""
    subjects = list(_subjects(user, account))
    things: list[Manifest] = []
    parts: list[tuple[str, str, Sequence[PolicyRule]]] = [(harness, "launch", LAUNCHING), (stack, "read", READING)]
    parts += [(stack, "up", DEPLOYING)] if up else []
    parts += [(harness, "give", GRANTING)] if unattended else []
    for namespace, part, rules in parts:
        things += _granted(namespace, f"{name}-{part}", rules, subjects)
    return things


def _granted(namespace: str, name: str, rules: Sequence[PolicyRule], subjects: list[Subject]) -> list[Manifest]:
    metadata = ObjectMeta(name=name, namespace=namespace, labels={MANAGED_BY: MANAGER})
    things: list[Manifest] = [Role(metadata=metadata, rules=list(rules))]
    if subjects:
        reference = RoleRef(apiGroup=RBAC, kind="Role", name=name)
        things.append(RoleBinding(metadata=metadata, roleRef=reference, subjects=subjects))
    return things


def _subjects(user: str | None, account: str | None) -> list[Subject]:
    subjects = [Subject(apiGroup=RBAC, kind="User", name=user)] if user else []
    if account:
        namespace, colon, name = account.partition(":")
        if not colon:
            raise PlanError(f"--serviceaccount must be NAMESPACE:NAME, got {account}")
        subjects.append(Subject(kind="ServiceAccount", name=name, namespace=namespace))
    return subjects
