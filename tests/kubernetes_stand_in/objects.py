"""The stand-in's objects: kept in memory under a lock, with versions, a history for watches, and server-side apply."""

import copy
import datetime
import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from kubernetes_stand_in.kinds import Json, Kind

HISTORY = 20_000  # events that a watch may still ask for
Key = tuple[str, str, str]  # plural, namespace, name


class ApiFailure(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    def status(self) -> Json:
        facts = {"code": self.code, "reason": self.reason, "message": self.message}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **facts}


def timestamp() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Objects:
    """All objects. Every change has a number; who waits on `changed` is told of it."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._objects: dict[Key, Json] = {}
        self._version = 0
        self.events: list[tuple[int, str, str, Json]] = []  # version, type, plural, object
        self._names = itertools.count(1)

    @property
    def version(self) -> int:
        return self._version

    def find(self, plural: str, namespace: str, name: str) -> Json | None:
        with self.changed:
            return copy.deepcopy(self._objects.get((plural, namespace, name)))

    def all(self, plural: str, namespace: str | None = None) -> list[Json]:
        with self.changed:
            found = [
                one
                for (kind, space, _), one in self._objects.items()
                if kind == plural and (namespace is None or space == namespace)
            ]
            return copy.deepcopy(
                sorted(found, key=lambda one: (one["metadata"].get("namespace", ""), one["metadata"]["name"]))
            )

    def owned_by(self, uid: str) -> list[tuple[str, Json]]:
        with self.changed:
            return [
                (plural, copy.deepcopy(one))
                for (plural, _, _), one in self._objects.items()
                if any(owner.get("uid") == uid for owner in one["metadata"].get("ownerReferences", []))
            ]

    def everything(self) -> list[tuple[str, Json]]:
        with self.changed:
            return [(plural, copy.deepcopy(one)) for (plural, _, _), one in self._objects.items()]

    def add(self, kind: Kind, one: Json, dry: bool = False) -> Json:
        meta = one.setdefault("metadata", {})
        with self.changed:
            if "name" not in meta and meta.get("generateName"):
                meta["name"] = f"{meta['generateName']}{next(self._names):05x}"
            key = (kind.plural, meta.get("namespace", ""), meta["name"])
            if key in self._objects:
                raise ApiFailure(409, "AlreadyExists", f'{kind.plural} "{meta["name"]}" already exists')
            one |= {"apiVersion": kind.api_version, "kind": kind.name}
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp(), "generation": 1}
            return one if dry else self._keep(key, one, "ADDED")

    def change(self, plural: str, one: Json, dry: bool = False) -> Json:
        """Put a whole object in the place of its former version."""
        meta = one["metadata"]
        key = (plural, meta.get("namespace", ""), meta["name"])
        with self.changed:
            before = self._objects.get(key)
            if before is None:
                raise not_found(plural, meta["name"])
            if (
                meta.get("resourceVersion", before["metadata"]["resourceVersion"])
                != before["metadata"]["resourceVersion"]
            ):
                raise ApiFailure(409, "Conflict", f'{plural} "{meta["name"]}": the object has been modified')
            if one == before or dry:
                return one
            if meta.get("deletionTimestamp") and not meta.get("finalizers") and plural != "pods":
                return self.remove(plural, key[1], key[2]) or one
            return self._keep(key, one, "MODIFIED")

    def update(self, plural: str, namespace: str, name: str, edit: Callable[[Json], Any]) -> Json | None:
        """Change an object in place, if it is there."""
        with self.changed:
            one = self.find(plural, namespace, name)
            if one is None:
                return None
            edit(one)
            return self.change(plural, one)

    def remove(self, plural: str, namespace: str, name: str) -> Json | None:
        with self.changed:
            one = self._objects.pop((plural, namespace, name), None)
            if one is not None:
                self._note("DELETED", plural, one)
            return one

    def _keep(self, key: Key, one: Json, what: str) -> Json:
        self._objects[key] = copy.deepcopy(one)
        self._note(what, key[0], self._objects[key])
        return copy.deepcopy(self._objects[key])

    def _note(self, what: str, plural: str, one: Json) -> None:
        self._version += 1
        one["metadata"]["resourceVersion"] = str(self._version)
        self.events.append((self._version, what, plural, copy.deepcopy(one)))
        del self.events[:-HISTORY]
        self.changed.notify_all()

    def since(self, version: int, plural: str) -> Iterator[tuple[int, str, Json]]:
        """The events of a kind after a version; called with the lock held."""
        if self.events and version < self.events[0][0] - 1:
            raise ApiFailure(410, "Expired", f"too old resource version: {version}")
        start = next((at for at, event in enumerate(self.events) if event[0] > version), len(self.events))
        for number, what, kind, one in self.events[start:]:
            if kind == plural:
                yield number, what, one


def not_found(plural: str, name: str) -> ApiFailure:
    return ApiFailure(404, "NotFound", f'{plural} "{name}" not found')


# -- patches -------------------------------------------------------------------------------------------------------


def merged(base: Any, patch: Any) -> Any:
    """A JSON merge patch; lists are replaced."""
    if not isinstance(patch, dict) or not isinstance(base, dict):
        return patch
    result = dict(base)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(base.get(name, {}) if isinstance(value, dict) else None, value)
    return result


def fields_of(one: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """The leaves of an object, by path; a list is a leaf."""
    if not isinstance(one, dict) or not one:
        return {path: one}
    return {at: value for name, part in one.items() for at, value in fields_of(part, (*path, name)).items()}


_IDENTITY = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}


def applied(before: Json | None, wanted: Json, manager: str, force: bool) -> Json:
    """Server-side apply: our fields are as we say, those that we no longer say go, those of others stay or conflict."""
    owned = {at: value for at, value in fields_of(wanted).items() if at not in _IDENTITY}
    result = copy.deepcopy(before) if before else {"metadata": {}}
    managed = result["metadata"].pop("managedFields", [])
    _check_conflicts(result, owned, managed, manager, force)
    mine = next((entry for entry in managed if entry["manager"] == manager and entry["operation"] == "Apply"), None)
    for at in [] if mine is None else _paths(mine["fieldsV1"]):
        if at not in owned:
            _drop(result, at)
    for at, value in fields_of(wanted).items():
        _put(result, at, value)
    others = [entry for entry in managed if entry is not mine]
    if force:
        others = [
            {**entry, "fieldsV1": _tree([at for at in _paths(entry["fieldsV1"]) if at not in owned])}
            for entry in others
        ]
    entry = {"manager": manager, "operation": "Apply", "apiVersion": wanted.get("apiVersion"), "time": timestamp()}
    result["metadata"]["managedFields"] = [*others, {**entry, "fieldsType": "FieldsV1", "fieldsV1": _tree([*owned])}]
    return result


def with_manager(one: Json, manager: str, sent: Json) -> Json:
    """The object with the fields of an update or a creation noted as this manager's."""
    managed = one["metadata"].setdefault("managedFields", [])
    own = [at for at in fields_of(sent) if at not in _IDENTITY and at[:2] != ("metadata", "managedFields")]
    entry = {"manager": manager, "operation": "Update", "apiVersion": one.get("apiVersion"), "time": timestamp()}
    managed.append({**entry, "fieldsType": "FieldsV1", "fieldsV1": _tree(own)})
    return one


def _check_conflicts(
    before: Json, owned: dict[tuple[str, ...], Any], managed: list[Json], manager: str, force: bool
) -> None:
    if force:
        return
    for entry in managed:
        theirs = set(_paths(entry["fieldsV1"])) if entry["manager"] != manager else set()
        clash = [at for at in owned if at in theirs and _value(before, at) != owned[at]]
        if clash:
            dotted = ", ".join("." + ".".join(at) for at in clash)
            text = f'Apply failed with {len(clash)} conflict: conflict with "{entry["manager"]}": {dotted}'
            raise ApiFailure(409, "Conflict", text)


def _tree(paths: list[tuple[str, ...]]) -> Json:
    tree: Json = {}
    for path in paths:
        at = tree
        for name in path:
            at = at.setdefault(f"f:{name}", {})
    return tree


def _paths(tree: Json, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not tree:
        return [path] if path else []
    return [at for name, part in tree.items() for at in _paths(part, (*path, name.removeprefix("f:")))]


def _value(one: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        one = one.get(name) if isinstance(one, dict) else None
    return one


def _put(one: Json, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        one = one.setdefault(name, {})
    one[path[-1]] = value


def _drop(one: Json, path: tuple[str, ...]) -> None:
    parent = _value(one, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)
