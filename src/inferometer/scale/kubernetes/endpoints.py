"""The endpoints of a stack: its services, its gateways (Gateway API, with or without an inference pool) and its pods.
A method of llm-d or a part of a name selects one of them."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from inferometer.errors import TargetError
from inferometer.scale.kubernetes.client import NOT_FOUND, Cluster, ClusterError
from inferometer.scale.kubernetes.manifests import COMPONENT, MANAGED_BY, MANAGER, ROUTER, RUN, SERVER

STANDALONE, MODELSERVICE = "standalone", "modelservice"
GATEWAYS = ("gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1beta1")
POOLS = ("inference.networking.k8s.io/v1", "inference.networking.x-k8s.io/v1alpha2")
PICKER_METRICS_PORT = 9090
_DECODE_ROLE = ("decode", "prefill-decode", "both")


class ClusterEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An address in a cluster, and the known pods behind it."""

    kind: str  # service, gateway, pod or url
    name: str
    namespace: str
    url: str
    stack_type: str = "vllm-prod"  # llm-d's name: vllm-prod or llm-d
    ready: int | None = None  # ready pods behind it; None: unknown
    metrics: list[str] = []  # addresses of the pods' metrics
    picker_metrics: list[str] = []  # addresses of the endpoint picker's metrics
    pods: list[str] = []
    models: list[str] = []  # if they could be queried


class PodFacts(msgspec.Struct, frozen=True):
    """The facts that we need about a pod."""

    name: str
    ip: str | None
    ready: bool
    labels: dict[str, str]
    ports: list[tuple[str | None, int]]


def pods_in(cluster: Cluster, namespace: str) -> list[PodFacts]:
    from lightkube.resources.core_v1 import Pod

    return [_facts(pod) for pod in cluster.all(Pod, namespace)]


def _facts(pod: Any) -> PodFacts:
    status = pod.status
    ready = any(entry.type == "Ready" and entry.status == "True" for entry in (status and status.conditions) or ())
    ports = [(port.name, port.containerPort) for container in pod.spec.containers for port in container.ports or ()]
    labels = dict(pod.metadata.labels or {})
    return PodFacts(pod.metadata.name, status.podIP if status else None, ready, labels, ports)


# -- all endpoints ---------------------------------------------------------------------------------------------------


def endpoints_in(cluster: Cluster, namespace: str) -> list[ClusterEndpoint]:
    """Services first, then gateways, then pods with a port."""
    pods = pods_in(cluster, namespace)
    services = _services(cluster, namespace, pods)
    endpoints = [*services, *_gateways(cluster, namespace, pods), *_pods(namespace, pods)]
    if not endpoints:
        cluster.check_namespace(namespace)
    return endpoints


def _services(cluster: Cluster, namespace: str, pods: Sequence[PodFacts]) -> list[ClusterEndpoint]:
    from lightkube.resources.core_v1 import Service

    return [made for service in cluster.all(Service, namespace) if (made := _service(service, namespace, pods))]


def _service(service: Any, namespace: str, pods: Sequence[PodFacts]) -> ClusterEndpoint | None:
    """The endpoint of a service, addressed by its name; None for a service without pods."""
    spec = service.spec
    if not spec or not spec.ports or spec.type == "ExternalName" or not spec.selector:
        return None
    behind = _selected(pods, spec.selector)
    port = _port(spec.ports)
    servers = _fleet_of(service, pods) or behind
    return ClusterEndpoint(
        kind="service",
        name=service.metadata.name,
        namespace=namespace,
        url=f"http://{service.metadata.name}.{namespace}.svc{_port_text(port.port)}",
        ready=sum(pod.ready for pod in behind),
        metrics=_metrics_of(servers, _target_port(port, servers)),
        pods=[pod.name for pod in servers],
    )


def _fleet_of(service: Any, pods: Sequence[PodFacts]) -> list[PodFacts]:
    """The servers behind our router: their metrics and logs describe the stack, those of the router do not."""
    labels = service.metadata.labels or {}
    if labels.get(MANAGED_BY) != MANAGER or labels.get(COMPONENT) != ROUTER:
        return []
    return _selected(pods, {MANAGED_BY: MANAGER, COMPONENT: SERVER, RUN: labels.get(RUN, "")})


def _selected(pods: Sequence[PodFacts], selector: dict[str, str]) -> list[PodFacts]:
    return [pod for pod in pods if selector.items() <= pod.labels.items()]


def _port(ports: Sequence[Any]) -> Any:
    """The port named `default`, as in llm-d, else one with HTTP in its name, else the first."""
    names = {port.name: port for port in ports}
    return names.get("default") or names.get("http") or ports[0]


def _target_port(port: Any, pods: Sequence[PodFacts]) -> int:
    target = port.targetPort
    if isinstance(target, str) and not target.isdigit():
        return next((number for pod in pods for name, number in pod.ports if name == target), port.port)
    return int(target or port.port)


def _metrics_of(pods: Sequence[PodFacts], port: int) -> list[str]:
    return [f"http://{_host(pod.ip)}:{port}/metrics" for pod in pods if pod.ip and pod.ready]


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _port_text(port: int) -> str:
    return "" if port == 80 else f":{port}"


def _pods(namespace: str, pods: Sequence[PodFacts]) -> Iterator[ClusterEndpoint]:
    for pod in pods:
        if pod.ip and pod.ports:
            named = dict(pod.ports)
            port = named.get("http") or named.get("default") or pod.ports[0][1]
            yield ClusterEndpoint(
                kind="pod",
                name=pod.name,
                namespace=namespace,
                url=f"http://{_host(pod.ip)}:{port}",
                ready=int(pod.ready),
                metrics=_metrics_of([pod], port),
                pods=[pod.name],
            )


def _gateways(cluster: Cluster, namespace: str, pods: Sequence[PodFacts]) -> Iterator[ClusterEndpoint]:
    """The gateways, by the address in their status, or by the service with their name, which implementations create."""
    gateways = _custom(cluster, namespace, GATEWAYS, "gateways")
    pools = _custom(cluster, namespace, POOLS, "inferencepools") if gateways else []
    behind = [pod for pool in pools for pod in _selected(pods, _pool_selector(pool))]
    ports = [port for pool in pools for port in _pool_ports(pool)]
    pickers = [name for pool in pools if (name := _picker(pool))]
    for gateway in gateways:
        name = gateway["metadata"]["name"]
        addresses = [entry["value"] for entry in (gateway.get("status") or {}).get("addresses") or []]
        listeners = (gateway.get("spec") or {}).get("listeners") or [{"port": 80}]
        secure = listeners[0].get("protocol") in ("HTTPS", "TLS")
        port = "" if listeners[0]["port"] == (443 if secure else 80) else f":{listeners[0]['port']}"
        host = _host(addresses[0]) if addresses else f"{name}.{namespace}.svc"
        yield ClusterEndpoint(
            kind="gateway",
            name=name,
            namespace=namespace,
            url=f"{'https' if secure else 'http'}://{host}{port}",
            stack_type="llm-d",
            ready=sum(pod.ready for pod in behind) if pools else None,
            metrics=_metrics_of(behind, ports[0] if ports else 8000),
            picker_metrics=_picker_metrics(cluster, namespace, pickers, pods),
            pods=[pod.name for pod in behind],
        )


def _custom(cluster: Cluster, namespace: str, versions: Sequence[str], plural: str) -> list[dict[str, Any]]:
    """Objects of an optional API, in the newest version that the cluster has."""
    for version in versions:
        try:
            answer = cluster.answer(f"/apis/{version}/namespaces/{namespace}/{plural}", namespace)
        except ClusterError as error:
            if error.code == NOT_FOUND:
                continue
            raise
        items: list[dict[str, Any]] = msgspec.json.decode(answer).get("items") or []
        return items
    return []


def _pool_selector(pool: dict[str, Any]) -> dict[str, str]:
    """`{"matchLabels": {...}}` since v1, plain labels before."""
    selector = (pool.get("spec") or {}).get("selector") or {}
    labels: dict[str, str] = selector.get("matchLabels", selector)
    return labels


def _pool_ports(pool: dict[str, Any]) -> list[int]:
    spec = pool.get("spec") or {}
    listed = [entry["number"] for entry in spec.get("targetPorts") or []]
    return listed or ([spec["targetPortNumber"]] if spec.get("targetPortNumber") else [])


def _picker(pool: dict[str, Any]) -> str | None:
    spec = pool.get("spec") or {}
    reference = spec.get("endpointPickerRef") or spec.get("extensionRef") or {}
    name: str | None = reference.get("name")
    return name


def _picker_metrics(cluster: Cluster, namespace: str, names: Sequence[str], pods: Sequence[PodFacts]) -> list[str]:
    """The metrics addresses of all pods of the endpoint picker; its service would select one at random."""
    from lightkube.resources.core_v1 import Service

    addresses: list[str] = []
    for name in names:
        service = cluster.read(Service, name, namespace)
        spec = service.spec if service else None
        behind = _selected(pods, spec.selector) if spec and spec.selector else []
        port = next((number for pod in behind for label, number in pod.ports if label == "metrics"), None)
        addresses += _metrics_of(behind, port or PICKER_METRICS_PORT)
    return addresses


# -- the selected endpoint -------------------------------------------------------------------------------------------


def endpoint_of(
    cluster: Cluster, namespace: str, method: str, model_id: str = "", release: str = ""
) -> ClusterEndpoint:
    """`standalone`: the service with that in its name. `modelservice`: the inference gateway (of the release, if there
    are several), with the model's id as path if a route has it. Anything else: a service, else a gateway, else a pod
    whose name contains it."""
    known = endpoints_in(cluster, namespace)
    by_kind = {kind: [entry for entry in known if entry.kind == kind] for kind in ("service", "gateway", "pod")}
    if method == STANDALONE:
        endpoints = _named(by_kind["service"], STANDALONE) or _named(by_kind["pod"], STANDALONE)
    elif method == MODELSERVICE:
        gateways = by_kind["gateway"]
        named = _named(gateways, f"infra-{release}-inference-gateway") or _named(gateways, "inference-gateway")
        endpoints = [_with_path(cluster, gateway, model_id) for gateway in (named or gateways)[:1]]
        endpoints = endpoints or _named(by_kind["service"], "inference-gateway")
    else:
        kinds = (by_kind["service"], by_kind["gateway"], by_kind["pod"])
        endpoints = next((matches for kind in kinds if (matches := _named(kind, method))), [])
    if not endpoints:
        names = ", ".join(f"{entry.kind} {entry.name}" for entry in known[:6]) or "nothing"
        shown = "services,gateways,pods" if by_kind["gateway"] else "services,pods"  # kubectl refuses unknown kinds
        chosen = f"name one of them: -t {known[0].name}; " if known else ""
        hint = f"{chosen}{cluster.kubectl(f'get {shown}', namespace)}; or give its address: --endpoint-url URL"
        raise TargetError(f"namespace {namespace}: no endpoint for method {method}; there is {names}", hint)
    endpoint = endpoints[0]
    if endpoint.ready == 0:
        text = f"namespace {namespace}: {endpoint.kind} {endpoint.name} has no pod that is ready"
        raise TargetError(text, cluster.kubectl("get pods -o wide", namespace))
    return endpoint


def _named(entries: Sequence[ClusterEndpoint], part: str) -> list[ClusterEndpoint]:
    """Endpoints with that name, exact matches first."""
    return sorted(
        (entry for entry in entries if part in entry.name), key=lambda entry: (entry.name != part, entry.name)
    )


def _with_path(cluster: Cluster, gateway: ClusterEndpoint, model_id: str) -> ClusterEndpoint:
    """Add the path `/<model id>`, which llm-d uses if several models share a gateway, if there is such a route."""
    routes = _custom(cluster, gateway.namespace, GATEWAYS, "httproutes")
    prefixes = {
        (match.get("path") or {}).get("value", "/").strip("/")
        for route in routes
        for rule in (route.get("spec") or {}).get("rules") or []
        for match in rule.get("matches") or []
    }
    if model_id and model_id in prefixes:
        return msgspec.structs.replace(gateway, url=f"{gateway.url}/{model_id}")
    return gateway


def model_id_of(model: str) -> str:
    """The model's id in llm-d's names and paths: `meta-llama-llama-3-2-1b`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", model).strip("-").lower()


def models_path(endpoint: ClusterEndpoint) -> str | None:
    """The API server's proxy path for the list of models; None for gateways and addresses."""
    kind = {"service": "services", "pod": "pods"}.get(endpoint.kind)
    if kind is None:
        return None
    port = re.search(r":(\d+)$", endpoint.url)
    name = f"{endpoint.name}:{port[1] if port else 80}"
    return f"/api/v1/namespaces/{endpoint.namespace}/{kind}/{name}/proxy/v1/models"


def models_at(cluster: Cluster, endpoint: ClusterEndpoint) -> list[str]:
    """The served models, queried through the API server; empty if that is forbidden or does not answer."""
    path = models_path(endpoint)
    if path is None:
        return []
    try:
        document = msgspec.json.decode(cluster.answer(path, endpoint.namespace, retry_s=0))
        return [str(card["id"]) for card in document["data"]]
    except (ClusterError, TargetError, msgspec.DecodeError, LookupError, TypeError):
        return []
