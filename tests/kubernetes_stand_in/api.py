"""The stand-in's API behind real HTTP: discovery, get, list, watch, create, update, patch, apply, delete, logs, a
proxy to pods, reviews of rights, dry run. What happens to objects afterwards is left to the controllers."""

import contextlib
import http.client
import http.server
import json
import socket
import threading
import time
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from kubernetes_stand_in.admission import admit
from kubernetes_stand_in.kinds import Json, Kind, discovery, kinds_of
from kubernetes_stand_in.objects import ApiFailure, Objects, applied, merged, not_found, timestamp, with_manager
from kubernetes_stand_in.rights import MASTERS, Deed, Rights, User, account_token

ADMIN = "stand-in-admin"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class StandIn:
    """The server: objects outlive a restart of it."""

    def __init__(self, minor: int = 31, custom: bool = True) -> None:
        self.minor, self.kinds = minor, kinds_of(minor, custom)
        self.objects = Objects()
        self.rights = Rights(self.objects, {ADMIN: User("admin", (MASTERS,))})
        self.port = 0
        self._http: _Server | None = None
        for name in ("default", "kube-system"):
            self.create_namespace(name)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def create_namespace(self, name: str) -> None:
        self.objects.add(self.kind("namespaces"), {"metadata": {"name": name}, "status": {"phase": "Active"}})

    def kind(self, plural: str) -> Kind:
        return next(kind for kind in self.kinds if kind.plural == plural)

    def start(self) -> None:
        self._http = _Server(("127.0.0.1", self.port), self)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Close, with every connection."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http.hang_up()
            self._http = None


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], api: StandIn) -> None:
        self.api = api
        self.over = threading.Event()
        self._open: set[socket.socket] = set()
        super().__init__(address, _Request)

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted, address = super().get_request()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.add(accepted)
        return accepted, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients hang up

    def hang_up(self) -> None:
        self.over.set()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Path:
    """What a URL names."""

    def __init__(self, api: StandIn, path: str) -> None:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[3:])
        self.namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            self.namespace, rest = rest[1], rest[2:]
        plural = rest[0] if rest else ""
        self.name = rest[1] if len(rest) > 1 else ""
        self.part = rest[2] if len(rest) > 2 else ""
        self.rest = "/".join(rest[3:])
        found = [kind for kind in api.kinds if (kind.group, kind.plural) == (group, plural)]
        self.kind = found[0] if found else None
        self.plural, self.group = plural, group


class _Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

    @property
    def api(self) -> StandIn:
        return self.server.api

    def _answer(self) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        length = int(self.headers.get("content-length") or 0)
        self.body = self.rfile.read(length) if length else b""
        try:
            self._route(url.path)
        except ApiFailure as failure:
            self._send(failure.status(), failure.code)
        except (BrokenPipeError, ConnectionError):
            self.close_connection = True

    def _route(self, path: str) -> None:
        parts = path.strip("/").split("/")
        if parts[0] in ("readyz", "healthz", "livez"):
            self._raw(b"ok", "text/plain")
            return
        if parts == ["version"]:
            version = {"major": "1", "minor": str(self.api.minor), "gitVersion": f"v1.{self.api.minor}.0-stand-in"}
            self._send(version)
            return
        user = self.api.rights.user_of(self.headers.get("authorization"))
        found = discovery(self.api.kinds, parts)
        if found is not None:
            self._send(found)
            return
        if parts[-1] == "selfsubjectaccessreviews":
            self._review(user)
            return
        at = _Path(self.api, path)
        if at.kind is None:
            raise ApiFailure(404, "NotFound", "the server could not find the requested resource")
        self._check_rights(user, at)
        with contextlib.ExitStack() as stack:
            if at.part not in ("log", "proxy") and "watch" not in self.query:
                stack.enter_context(self.api.objects.changed)
            self._do(at, at.kind)

    def _check_rights(self, user: User, at: _Path) -> None:
        verb = _VERBS.get(self.command) or ("get" if at.name else "list")
        if self.query.get("watch") in ("true", "1"):
            verb = "watch"
        if verb == "delete" and not at.name:
            verb = "deletecollection"
        resource = f"{at.plural}/{at.part}" if at.part else at.plural
        if at.part == "proxy" and self.command != "GET":
            verb = {"POST": "create", "PUT": "update", "DELETE": "delete"}[self.command]
        name = at.name.partition(":")[0] if at.part == "proxy" else at.name
        self.api.rights.check(user, Deed(verb, at.group, resource, at.namespace, name))

    def _review(self, user: User) -> None:
        review = json.loads(self.body)
        asked = review["spec"].get("resourceAttributes", {})
        resource = asked.get("resource", "") + (f"/{asked['subresource']}" if asked.get("subresource") else "")
        deed = Deed(
            asked.get("verb", ""), asked.get("group", ""), resource, asked.get("namespace", ""), asked.get("name", "")
        )
        review["status"] = {"allowed": self.api.rights.may(user, deed)}
        self._send(review, 201)

    def _do(self, at: _Path, kind: Kind) -> None:
        match self.command, at.part:
            case "GET", "log":
                self._log(at)
            case _, "proxy":
                self._proxy(at)
            case "POST", "eviction":
                self._delete(at, kind, {"gracePeriodSeconds": None})
            case "POST", "token":
                self._send({"kind": "TokenRequest", "status": {"token": account_token(at.namespace, at.name)}}, 201)
            case "GET", _ if self.query.get("watch") in ("true", "1"):
                self._watch(at, kind)
            case "GET", _:
                self._get(at, kind)
            case "POST", _:
                self._create(at, kind, json.loads(self.body))
            case "PUT", _:
                self._put(at, kind, json.loads(self.body))
            case "PATCH", _:
                self._patch(at, kind)
            case "DELETE", _ if at.name:
                self._delete(at, kind, json.loads(self.body) if self.body else {})
            case _:
                for one in self._selected(at, kind):
                    at.name = one["metadata"]["name"]
                    self._remove(at, kind, json.loads(self.body) if self.body else {})
                self._send({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    # -- reading -----------------------------------------------------------------------------------------------

    def _get(self, at: _Path, kind: Kind) -> None:
        if at.name:
            self._send(self._found(at))
            return
        items = self._selected(at, kind)
        meta = {"resourceVersion": str(self.api.objects.version)}
        self._send({"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": meta, "items": items})

    def _found(self, at: _Path) -> Json:
        one = self.api.objects.find(at.plural, at.namespace, at.name)
        if one is None:
            raise not_found(at.plural, at.name)
        return one

    def _selected(self, at: _Path, kind: Kind) -> list[Json]:
        found = self.api.objects.all(kind.plural, at.namespace or None)
        return [one for one in found if self._is_selected(one)]

    def _is_selected(self, one: Json) -> bool:
        labels = one["metadata"].get("labels") or {}
        return _matches(self.query.get("labelSelector", ""), labels) and all(
            _field(one, name) == value for name, value in _pairs(self.query.get("fieldSelector", ""))
        )

    def _watch(self, at: _Path, kind: Kind) -> None:
        """Events as lines, until the client goes, the time is up or the server stops."""
        objects, over = self.api.objects, self.server.over
        ends_at = time.monotonic() + float(self.query.get("timeoutSeconds", 3600))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        seen = int(self.query.get("resourceVersion") or 0)
        shown: set[str] = set()
        if not seen:
            with objects.changed:
                seen, first = objects.version, self._selected(at, kind)
            for one in first:
                shown.add(one["metadata"]["uid"])
                self._event("ADDED", one)
        while not over.is_set() and time.monotonic() < ends_at:
            with objects.changed:
                try:
                    events = [*objects.since(seen, kind.plural)]
                except ApiFailure as failure:
                    self._event("ERROR", failure.status())
                    break
                if not events:
                    objects.changed.wait(0.2)
                    seen = seen if [*objects.since(seen, kind.plural)] else objects.version
                    continue
            for number, what, one in events:
                seen = number
                if not at.namespace or one["metadata"].get("namespace") == at.namespace:
                    self._tell(what, one, shown)
        self._chunk(b"")

    def _tell(self, what: str, one: Json, shown: set[str]) -> None:
        """An object that leaves the selection is deleted for those who watch it, one that enters is new."""
        uid = one["metadata"]["uid"]
        if self._is_selected(one):
            self._event("ADDED" if what == "MODIFIED" and uid not in shown and self._selects() else what, one)
            shown.add(uid)
        elif uid in shown:
            shown.discard(uid)
            self._event("DELETED", one)

    def _selects(self) -> bool:
        return bool(self.query.get("labelSelector") or self.query.get("fieldSelector"))

    def _event(self, what: str, one: Json) -> None:
        self._chunk(json.dumps({"type": what, "object": one}).encode() + b"\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _log(self, at: _Path) -> None:
        """From the node of the pod, as a kubelet serves it."""
        pod = self._found(at)
        container = self.query.pop("container", None) or pod["spec"]["containers"][0]["name"]
        node = self.api.objects.find("nodes", "", pod["spec"].get("nodeName", ""))
        known = [one for one in pod["status"].get("containerStatuses", []) if one["name"] == container]
        has_run = known and ("waiting" not in known[0].get("state", {}) or known[0].get("lastState"))
        if node is None or not has_run:
            text = f'container "{container}" in pod "{at.name}" is waiting to start: ContainerCreating'
            raise ApiFailure(400, "BadRequest", text)
        port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        query = "&".join(f"{name}={value}" for name, value in self.query.items())
        self._relay("127.0.0.1", port, f"/containerLogs/{at.namespace}/{at.name}/{container}?{query}", "GET")

    def _proxy(self, at: _Path) -> None:
        """Plain HTTP to a port of a pod, or of the first that is ready of a service."""
        at.name, _, port = at.name.partition(":")
        found = self._found(at)
        if at.plural == "services":
            address, number = self._behind(at, found, int(port or 80))
        else:
            address, number = found["status"].get("podIP"), int(port or 80)
        if not address:
            raise ApiFailure(503, "ServiceUnavailable", f'no endpoints available for "{at.name}"')
        query = urlsplit(self.path).query
        self._relay(address, number, f"/{at.rest}" + (f"?{query}" if query else ""), self.command)

    def _behind(self, at: _Path, service: Json, port: int) -> tuple[str, int]:
        endpoints = self.api.objects.find("endpoints", at.namespace, at.name) or {}
        known = [one["port"] for one in service["spec"]["ports"]]
        for subset in endpoints.get("subsets") or []:
            if port in known and subset.get("addresses"):
                return str(subset["addresses"][0]["ip"]), int(subset["ports"][known.index(port)]["port"])
        return "", port

    def _relay(self, host: str, port: int, path: str, method: str) -> None:
        connection = http.client.HTTPConnection(host, port, timeout=None if "follow" in path else 60)
        kept = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("host", "authorization", "connection")
        }
        try:
            connection.request(method, path, self.body or None, kept)
            answer = connection.getresponse()
        except OSError as error:
            raise ApiFailure(503, "ServiceUnavailable", f"dial tcp {host}:{port}: {error}") from error
        self.send_response(answer.status)
        self.send_header("content-type", answer.headers.get("content-type", "text/plain"))
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(1 << 16):
            self._chunk(piece)
        self._chunk(b"")
        connection.close()

    # -- writing -----------------------------------------------------------------------------------------------

    @property
    def _dry(self) -> bool:
        return self.query.get("dryRun") == "All"

    def _create(self, at: _Path, kind: Kind, one: Json) -> None:
        if kind.namespaced:
            one.setdefault("metadata", {})["namespace"] = at.namespace
        sent = json.loads(json.dumps(one))
        admit(self.api.objects, kind, one, self.api.minor)
        with_manager(
            one, self.query.get("fieldManager") or self.headers.get("user-agent", "unknown").partition("/")[0], sent
        )
        self._send(self.api.objects.add(kind, one, self._dry), 201)

    def _put(self, at: _Path, kind: Kind, one: Json) -> None:
        before = self._found(at)
        if at.part == "status":
            one = {**before, "status": one.get("status", {})}
        self._send(self.api.objects.change(kind.plural, self._kept(before, one), self._dry))

    def _patch(self, at: _Path, kind: Kind) -> None:
        if self.headers.get("content-type") == "application/apply-patch+yaml":
            self._apply(at, kind, json.loads(self.body))
            return
        before = self._found(at)
        patch = json.loads(self.body)
        if at.part == "status":
            patch = {"status": patch.get("status", {})}
        after = merged(before, patch)
        if at.part != "status":
            with_manager(after, self.query.get("fieldManager") or "unknown", patch)
        self._send(self.api.objects.change(kind.plural, self._kept(before, after), self._dry))

    def _apply(self, at: _Path, kind: Kind, wanted: Json) -> None:
        manager = self.query.get("fieldManager")
        if not manager:
            raise ApiFailure(
                400,
                "BadRequest",
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch",
            )
        if kind.namespaced:
            wanted.setdefault("metadata", {})["namespace"] = at.namespace
        _check_ports(wanted)
        before = self.api.objects.find(at.plural, at.namespace, at.name)
        force = self.query.get("force") == "true"
        after = applied(before, wanted, manager, force)
        if before is None:
            admit(self.api.objects, kind, after, self.api.minor)
            self._send(self.api.objects.add(kind, after, self._dry), 201)
            return
        if kind.plural in ("jobs", "pods"):
            _check_immutable(kind, before, after)
        self._send(self.api.objects.change(kind.plural, self._kept(before, after), self._dry))

    def _kept(self, before: Json, after: Json) -> Json:
        """Without a say in what the server writes."""
        meta = cast(Json, after.setdefault("metadata", {}))
        for name in ("uid", "creationTimestamp", "generation", "deletionTimestamp"):
            if name in before["metadata"]:
                meta[name] = before["metadata"][name]
        if {**after, "status": 0, "metadata": 0} != {**before, "status": 0, "metadata": 0}:
            meta["generation"] = before["metadata"].get("generation", 1) + 1
        return after

    def _delete(self, at: _Path, kind: Kind, options: Json) -> None:
        one = self._remove(at, kind, options)
        if one["metadata"].get("deletionTimestamp"):
            self._send(one)
            return
        details = {"name": at.name, "kind": kind.plural, "uid": one["metadata"]["uid"]}
        self._send({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})

    def _remove(self, at: _Path, kind: Kind, options: Json) -> Json:
        """Delete, or mark for deletion where somebody else has to finish it: a node, or a controller."""
        one, objects = self._found(at), self.api.objects
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted not in (None, one["metadata"]["uid"]):
            raise ApiFailure(409, "Conflict", f"the UID in the precondition ({wanted}) does not match")
        meta = one["metadata"]
        policy = options.get("propagationPolicy") or self.query.get("propagationPolicy")
        if policy == "Foreground":
            meta["finalizers"] = sorted({*meta.get("finalizers", []), "foregroundDeletion"})
        if policy == "Orphan":
            for plural, child in objects.owned_by(meta["uid"]):
                child["metadata"]["ownerReferences"] = [
                    owner for owner in child["metadata"]["ownerReferences"] if owner["uid"] != meta["uid"]
                ]
                objects.change(plural, child, self._dry)
        seconds = options.get("gracePeriodSeconds", self.query.get("gracePeriodSeconds"))
        now = str(seconds) == "0" or not one["spec"].get("nodeName") if kind.plural == "pods" else True
        if self._dry or (now and not meta.get("finalizers") and kind.plural != "namespaces"):
            return one if self._dry else objects.remove(kind.plural, at.namespace, at.name) or one
        if not meta.get("deletionTimestamp"):
            meta["deletionTimestamp"] = timestamp()
            meta["deletionGracePeriodSeconds"] = 30 if seconds is None else int(seconds)
            if kind.plural == "namespaces":
                one.setdefault("status", {})["phase"] = "Terminating"
                meta.setdefault("finalizers", []).append("kubernetes")
            one = objects.change(kind.plural, one)
        return one

    # -- answering ---------------------------------------------------------------------------------------------

    def _send(self, one: Json, code: int = 200) -> None:
        self._raw(json.dumps(one).encode(), "application/json", code)

    def _raw(self, data: bytes, kind: str, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _check_ports(wanted: Json) -> None:
    """Lists of ports are merged by port and protocol, and older servers know no default there."""
    for port in (wanted.get("spec") or {}).get("ports") or []:
        if "protocol" not in port:
            text = "failed to create typed patch object: .spec.ports: element 0: associative list with keys has an"
            raise ApiFailure(500, "InternalError", f'{text} element that omits key field "protocol"')


def _check_immutable(kind: Kind, before: Json, after: Json) -> None:
    parts = ("template", "selector", "completions") if kind.plural == "jobs" else ("containers", "volumes")
    changed = [part for part in parts if before["spec"].get(part) != after["spec"].get(part)]
    if changed:
        name = before["metadata"]["name"]
        text = f'{kind.name} "{name}" is invalid: spec.{changed[0]}: Invalid value: field is immutable'
        raise ApiFailure(422, "Invalid", text)


def _pairs(selector: str) -> list[tuple[str, str]]:
    parts = [part.partition("=") for part in selector.split(",") if part]
    return [(name, value.lstrip("=")) for name, _, value in parts]


def _field(one: Json, path: str) -> str:
    value: Any = one
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def _matches(selector: str, labels: dict[str, str]) -> bool:
    """`a=b,c!=d,e in (f,g),h,!i`."""
    depth, part, parts = 0, "", []
    for sign in selector:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            parts.append(part)
            part = ""
        else:
            part += sign
    return all(_matches_one(one.strip(), labels) for one in [*parts, part] if one.strip())


def _matches_one(part: str, labels: dict[str, str]) -> bool:
    if " in " in part or " notin " in part:
        name, word, values = part.split(" ", 2)
        among = labels.get(name) in [value.strip() for value in values.strip("() ").split(",")]
        return among if word == "in" else not among
    if "!=" in part:
        name, _, value = part.partition("!=")
        return labels.get(name.strip()) != value.strip()
    if "=" in part:
        name, _, value = part.partition("=")
        return labels.get(name.strip()) == value.lstrip("=").strip()
    return part[1:] not in labels if part.startswith("!") else part in labels
