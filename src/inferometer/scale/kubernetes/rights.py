"""The least that a person or a service account must be allowed: in the namespace of the launchers, and to read that of
the stack. Nothing is cluster-wide."""

from collections.abc import Sequence

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources.rbac_authorization_v1 import Role, RoleBinding

from inferometer.errors import PlanError
from inferometer.scale.kubernetes.manifests import MANAGED_BY, MANAGER, RBAC, Manifest, rule

LAUNCHING = (
    rule("batch", "jobs", "get list create patch delete"),
    rule("", "configmaps secrets serviceaccounts", "create patch"),  # their Job owns them: it takes them along
    rule("", "persistentvolumeclaims", "get create patch delete"),
    rule("", "pods", "get list create patch delete"),
    rule("", "pods/proxy", "get create"),  # workers with --on kubernetes
    rule("", "pods/log", "get"),
    rule("", "events", "list"),
)
READING = (
    rule("", "services pods", "get list"),
    rule("", "services/proxy pods/proxy", "get"),  # for the models that are served
    rule("", "pods/log", "get"),  # of how they started, with -l nop
    rule("apps", "deployments statefulsets", "list"),
    rule("gateway.networking.k8s.io", "gateways httproutes", "list"),
    rule("inference.networking.k8s.io inference.networking.x-k8s.io", "inferencepools", "list"),
)
WATCHING = (  # of launcher pods that look after the stack themselves, because nobody waits for them
    rule("", "pods", "list"),
    rule("apps", "deployments statefulsets", "list"),
)
GIVING = (rule(RBAC, "roles rolebindings", "create patch"),)  # to give WATCHING to the launcher pods
STANDING = (
    rule("apps", "deployments", "get list create patch delete"),
    rule("", "services", "get list create patch delete"),
    rule("", "secrets", "create patch delete"),
    rule("", "persistentvolumeclaims", "get list create patch delete"),
    rule("", "pods", "get list"),
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
    """Of `k8s run` and workers with --on kubernetes; with `up`, of `k8s up`, `down` and `e2e` too; with `unattended`,
    of `k8s run --wait 0` whose pods watch the stack."""
    subjects = list(_subjects(user, account))
    things: list[Manifest] = []
    parts = [(harness, "launch", LAUNCHING), (stack, "read", READING)]
    parts += [(stack, "up", STANDING)] if up else []
    parts += [(harness, "give", GIVING)] if unattended else []
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
