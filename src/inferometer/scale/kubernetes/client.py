"""The connection to a Kubernetes API server, through lightkube: server-side apply with our field manager, bounded
retries with growing pauses, and errors with the kubectl command that shows more."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from inferometer.errors import InferometerError, MissingExtra, TargetError
from inferometer.scale.kubernetes.kubeconfig import Access, access_to_cluster
from inferometer.vocabulary import duration_text

if TYPE_CHECKING:
    from lightkube.core.exceptions import ApiError
    from lightkube.core.resource import NamespacedResource

Kind = TypeVar("Kind", bound="NamespacedResource")
Value = TypeVar("Value")

FIELD_MANAGER = "inferometer"
ANSWER_S = 30.0  # timeout of a request to the API server
RETRY_S = 60.0  # total time of retries, for a server that restarts
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
RETRIED = {429, 502, 503, 504}  # the server is busy or unreachable
FORBIDDEN, NOT_FOUND, CONFLICT, INVALID = 403, 404, 409, 422


class ClusterError(InferometerError):
    """An error response of the API server: no rights, no such namespace, a quota, an invalid object."""

    def __init__(self, message: str, hint: str | None = None, code: int = 0) -> None:
        super().__init__(message, hint)
        self.code = code


def open_cluster(
    kubeconfig: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    retry_s: float = RETRY_S,
) -> "Cluster":
    try:
        import lightkube  # noqa: F401
    except ImportError:
        raise MissingExtra("talking to Kubernetes", "kubernetes") from None
    return Cluster(access_to_cluster(kubeconfig, context), namespace, retry_s)


class Cluster:
    """An API server, and the default namespace."""

    def __init__(self, access: Access, namespace: str | None = None, retry_s: float = RETRY_S) -> None:
        import httpx2
        from lightkube import Client
        from lightkube.config import client_adapter

        self.access, self._retry_s = access, retry_s
        timeout = httpx2.Timeout(ANSWER_S)
        self._following = httpx2.Timeout(ANSWER_S, read=None)
        try:
            self._client = Client(
                access.config, namespace=namespace, timeout=timeout, field_manager=FIELD_MANAGER, proxy=access.proxy
            )
            parameters = client_adapter.ConnectionParams(timeout=timeout, proxy=access.proxy)
            self._http = client_adapter.Client(access.config, parameters)
        except (OSError, ValueError, httpx2.InvalidURL) as error:
            raise TargetError(
                f"{access.server}: the kubeconfig cannot be used: {error}", "kubectl cluster-info"
            ) from error
        self.namespace = namespace or access.config.namespace
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        self._client.close()
        self._http.close()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def kubectl(self, words: str, namespace: str | None = None) -> str:
        """The equivalent kubectl command."""
        place = ["-n", namespace] if namespace else []
        return " ".join(["kubectl", *self.access.kubectl, *place, words])

    def kubectl_events(self, name: str, namespace: str | None = None) -> str:
        """The command that shows the events of an object, also of one that was removed meanwhile."""
        return self.kubectl(f"get events --field-selector involvedObject.name={name}", namespace)

    # -- objects -----------------------------------------------------------------------------------------------------

    def apply(self, thing: Kind, *, dry_run: bool = False) -> Kind:
        """Create or change one of our objects; returns the server's version of it."""
        name, namespace = _name_of(thing), self._namespace_of(thing)
        return self._retried(
            lambda: self._client.apply(thing, force=True, dry_run=dry_run), f"{type(thing).__name__} {name}", namespace
        )

    def create(self, thing: Kind) -> Kind:
        """Create an object; a conflict if it exists."""
        return self._retried(
            lambda: self._client.create(thing), f"{type(thing).__name__} {_name_of(thing)}", self._namespace_of(thing)
        )

    def read(self, kind: type[Kind], name: str, namespace: str | None = None) -> Kind | None:
        """The object, or None if it does not exist."""
        namespace = namespace or self.namespace
        try:
            return self._retried(
                lambda: self._client.get(kind, name, namespace=namespace),
                f"{kind.__name__} {name}",
                namespace,
            )
        except ClusterError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    def all(
        self,
        kind: type[Kind],
        namespace: str | None = None,
        labels: Mapping[str, str | None] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[Kind]:
        namespace = namespace or self.namespace
        return self._retried(
            lambda: list(
                self._client.list(kind, namespace=namespace, labels=dict(labels or {}), fields=dict(fields or {}))
            ),
            f"{kind.__name__} list",
            namespace,
        )

    def delete(self, kind: type[Kind], name: str, namespace: str | None = None, *, grace_s: int | None = None) -> bool:
        """Delete an object, and in the background all objects that it owns; returns whether it existed."""
        from lightkube.types import CascadeType

        namespace = namespace or self.namespace
        try:
            self._retried(
                lambda: self._client.delete(
                    kind,
                    name,
                    namespace=namespace,
                    grace_period=grace_s,
                    cascade=CascadeType.BACKGROUND,
                ),
                f"{kind.__name__} {name}",
                namespace,
            )
        except ClusterError as error:
            if error.code == NOT_FOUND:
                return False
            raise
        return True

    def check_namespace(self, namespace: str) -> None:
        """Check that the namespace exists, because a missing one has empty lists. Without the right to read namespaces
        this is not possible."""
        try:
            self.answer(f"/api/v1/namespaces/{namespace}", namespace)
        except ClusterError as error:
            if error.code == NOT_FOUND:
                hint = f"-p NAMESPACE; {self.kubectl('get namespaces')}"
                raise TargetError(f"there is no namespace {namespace}", hint) from error

    # -- other requests ----------------------------------------------------------------------------------------------

    def answer(self, path: str, namespace: str | None = None, *, retry_s: float | None = None) -> bytes:
        """The response of an API path: `/version`, objects of an optional API, a pod through the server."""
        return self._retried(lambda: self._received(path), path, namespace, retry_s)

    def ask_pod(
        self,
        pod: str,
        port: int,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        retry_s: float | None = None,
    ) -> bytes:
        """The response of a server in a pod, through the API server: a POST if there is a body, else a GET."""
        address = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{port}/proxy/{path}"

        def read() -> bytes:
            if body is None:
                response = self._http.get(address, headers=dict(headers or {}))
            else:
                response = self._http.post(address, content=body, headers=dict(headers or {}))
            _raise_error(response)
            return bytes(response.content)

        return self._retried(read, f"pod {pod}", self.namespace, retry_s)

    def log(
        self,
        pod: str,
        namespace: str | None = None,
        *,
        follow: bool = False,
        tail: int | None = None,
        container: str | None = None,
    ) -> Iterator[str]:
        """The lines of a pod's log as they arrive. They end with the pod or with the connection; the pod's phase shows
        which."""
        namespace = namespace or self.namespace
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        settings = {"follow": follow or None, "tailLines": tail, "container": container}
        parameters = {key: str(value).lower() for key, value in settings.items() if value is not None}

        def opened() -> Any:
            request = self._http.build_request("GET", path, params=parameters, timeout=self._following)
            response = self._http.send(request, stream=True)
            if response.is_error:
                response.read()
                response.close()
                _raise_error(response)
            return response

        response = self._retried(opened, f"log of pod {pod}", namespace)
        try:
            yield from response.iter_lines()
        except _transport_errors():
            return
        finally:
            response.close()

    # -- retries and errors ------------------------------------------------------------------------------------------

    def _received(self, path: str) -> bytes:
        response = self._http.get(path)
        _raise_error(response)
        return bytes(response.content)

    def _namespace_of(self, thing: Any) -> str:
        return str((thing.metadata and thing.metadata.namespace) or self.namespace)

    def _retried(
        self, call: Callable[[], Value], what: str, namespace: str | None, retry_s: float | None = None
    ) -> Value:
        """The response; retried while the server is unreachable or busy, with growing pauses, up to a time limit."""
        import httpx2
        from lightkube.core.exceptions import ApiError, ConfigError

        give_up_at, pause_s = time.monotonic() + (self._retry_s if retry_s is None else retry_s), FIRST_PAUSE_S
        while True:
            try:
                return call()
            except ApiError as error:
                requested_s = _retry_after_s(error)
                if not _passing(error) or time.monotonic() + pause_s > give_up_at:
                    raise self._refusal(error, what, namespace) from error
                pause_s = max(pause_s, requested_s)
            except httpx2.HTTPStatusError as error:  # plain text: from a missing API, or from a proxy
                code = error.response.status_code
                if code not in RETRIED:
                    text = f"{what}: the server answered {code} {error.response.reason_phrase}"
                    raise ClusterError(text, self.kubectl("cluster-info"), code) from error
                if time.monotonic() + pause_s > give_up_at:
                    raise TargetError(f"{self.access.server}: {what}: {error}", self.kubectl("cluster-info")) from error
            except (httpx2.TransportError, ConnectionError) as error:
                if time.monotonic() + pause_s > give_up_at:
                    raise self._unreachable(error) from error
            except RuntimeError as error:  # from httpx2: a thread that follows a log may run after the end
                if not self._is_closed:
                    raise
                raise TargetError(f"{self.access.server}: {what}: the connection was closed") from error
            except ConfigError as error:
                raise TargetError(f"{self.access.server}: {error}", self.kubectl("cluster-info")) from error
            time.sleep(pause_s * random.uniform(0.75, 1.25))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _unreachable(self, error: Exception) -> TargetError:
        tried = duration_text(self._retry_s)
        text = f"the Kubernetes API server {self.access.server} does not answer (tried for {tried}): {error}"
        return TargetError(text, self.kubectl("cluster-info"))

    def _refusal(self, error: "ApiError", what: str, namespace: str | None) -> ClusterError:
        code, text = int(error.status.code or 0), str(error.status.message or error).strip()
        place = f" in namespace {namespace}" if namespace else ""
        hint = None
        if code == 401:
            hint = f"the cluster rejected the credentials: {self.kubectl('auth whoami')}"
        elif code == FORBIDDEN and "exceeded quota" in text:
            hint = self.kubectl("describe resourcequota", namespace)
        elif code == FORBIDDEN:
            place_of = f" -p {namespace}" if namespace else ""
            more = self.kubectl("auth can-i --list", namespace)
            hint = (
                f"inferometer k8s rights{place_of} prints the roles that are needed (with --up also those of up, down "
            )
            hint += f"and e2e); {more} shows what you may do"
        elif code == NOT_FOUND and namespace and f'namespaces "{namespace}"' in text:
            hint = f"{self.kubectl('get namespaces')}; create it: {self.kubectl(f'create namespace {namespace}')}"
        elif namespace:
            hint = self.kubectl("get events --sort-by=.lastTimestamp", namespace)
        return ClusterError(f"{what}{place}: {text}", hint, code)


def _name_of(thing: Any) -> str:
    return str(thing.metadata.name if thing.metadata else "")


def _raise_error(response: Any) -> None:
    """Raise the error of a response, as lightkube does."""
    from lightkube.core.generic_client import GenericClient

    GenericClient.raise_for_status(response)  # type: ignore[no-untyped-call]


def _transport_errors() -> type[Exception]:
    import httpx2

    return httpx2.TransportError


def _passing(error: "ApiError") -> bool:
    """Whether a retry may succeed. An older server also answers 500 for a field that it does not know."""
    code, text = int(error.status.code or 0), str(error.status.message or "")
    return code in RETRIED or (code == 500 and ("etcdserver" in text or _retry_after_s(error) > 0))


def _retry_after_s(error: "ApiError") -> float:
    details = error.status.details
    requested = getattr(details, "retryAfterSeconds", None) if details else None
    return min(float(requested), LONGEST_PAUSE_S) if requested else 0.0
