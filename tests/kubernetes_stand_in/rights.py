"""Authorization in the stand-in: tokens, and RBAC's roles and bindings."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from kubernetes_stand_in.kinds import Json
from kubernetes_stand_in.objects import ApiFailure, Objects

MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deed:
    """What is asked for."""

    verb: str
    group: str
    resource: str  # with its subresource: pods/log
    namespace: str = ""
    name: str = ""


@dataclass(slots=True)
class Rights:
    objects: Objects
    tokens: dict[str, User] = field(default_factory=dict)

    def user_of(self, header: str | None) -> User:
        token = (header or "").removeprefix("Bearer ").strip()
        if token in self.tokens:
            return self.tokens[token]
        if token.startswith("account."):
            space, name = json.loads(base64.urlsafe_b64decode(token.removeprefix("account.")))
            if self.objects.find("serviceaccounts", space, name) is not None:
                return User(f"system:serviceaccount:{space}:{name}", ("system:serviceaccounts",))
        raise ApiFailure(401, "Unauthorized", "Unauthorized")

    def check(self, user: User, deed: Deed) -> None:
        if not self.may(user, deed):
            group = f' in API group "{deed.group}"'
            where = f' in the namespace "{deed.namespace}"' if deed.namespace else " at the cluster scope"
            name = f' "{deed.name}"' if deed.name else ""
            text = (
                f'{deed.resource}{name} is forbidden: User "{user.name}" cannot {deed.verb} resource "{deed.resource}"'
            )
            raise ApiFailure(403, "Forbidden", text + group + where)

    def may(self, user: User, deed: Deed) -> bool:
        return MASTERS in user.groups or any(_allows(rule, deed) for rule in self._rules(user, deed.namespace))

    def _rules(self, user: User, namespace: str) -> Iterator[Json]:
        bindings = [(one, "") for one in self.objects.all("clusterrolebindings")]
        if namespace:
            bindings += [(one, namespace) for one in self.objects.all("rolebindings", namespace)]
        for binding, space in bindings:
            if any(_is_user(subject, user, space) for subject in binding.get("subjects", [])):
                role = binding["roleRef"]
                plural = "roles" if role["kind"] == "Role" else "clusterroles"
                found = self.objects.find(plural, space if plural == "roles" else "", role["name"])
                yield from (found or {}).get("rules") or []


def account_token(namespace: str, name: str) -> str:
    return "account." + base64.urlsafe_b64encode(json.dumps([namespace, name]).encode()).decode()


def _is_user(subject: Json, user: User, namespace: str) -> bool:
    match subject.get("kind"):
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace', namespace)}:{subject['name']}"
        case "Group":
            return subject["name"] in user.groups
    return bool(subject.get("name") == user.name)


def _allows(rule: Json, deed: Deed) -> bool:
    def has(name: str, value: str) -> bool:
        return bool({"*", value} & set(rule.get(name) or []))

    named = rule.get("resourceNames") or []
    return (
        has("verbs", deed.verb)
        and has("apiGroups", deed.group)
        and has("resources", deed.resource)
        and (not named or deed.name in named)
    )
