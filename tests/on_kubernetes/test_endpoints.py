"""The endpoints of a stack: services, gateways with an inference pool, pods; and which of them a method selects."""

from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from stacks import PLAN, PORT, created, stack_in

from inferometer.errors import TargetError
from inferometer.measure.telemetry import PICKER
from inferometer.scale.kubernetes.client import Cluster, open_cluster
from inferometer.scale.kubernetes.endpoints import endpoint_of, endpoints_in, model_id_of
from kubernetes_stand_in.clusters import TestedCluster, is_real, thorough
from kubernetes_stand_in.node import has_namespaces

GATEWAY, POOL = "gateway.networking.k8s.io/v1", "inference.networking.k8s.io/v1"
KINDS = [
    (GATEWAY, "Gateway", "gateways"),
    (GATEWAY, "HTTPRoute", "httproutes"),
    (POOL, "InferencePool", "inferencepools"),
]


@pytest.fixture(scope="module")
def gateways(cluster: TestedCluster) -> None:
    """On a real control plane the kinds are made first: they are not part of Kubernetes."""
    for version, kind, plural in KINDS if is_real() else []:
        group = version.partition("/")[0]
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        spec = {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        }
        approved = {"api-approved.kubernetes.io": "unapproved, a test"}
        about = {"name": f"{plural}.{group}", "annotations": approved}
        whole = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": about,
            "spec": spec,
        }
        cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", whole)
        cluster.until(partial(_served, cluster, f"/apis/{version}/{plural}"))


def _served(cluster: TestedCluster, path: str) -> bool:
    try:
        cluster.get(path)
        return True
    except httpx2.HTTPStatusError:
        return False


@pytest.fixture
def admin(cluster: TestedCluster, namespace: str, gateways: None) -> Cluster:
    pods: list[tuple[str, dict[str, str], list[dict[str, Any]]]] = [
        ("decode-0", {"role": "decode"}, [{"containerPort": 8200, "name": "http"}]),
        ("picker-0", {"app": "epp"}, [{"containerPort": 9002}, {"containerPort": 9191, "name": "metrics"}]),
    ]
    for name, labels, ports in pods:
        container = {"name": "c", "image": "local", "command": ["sleep", "60"], "ports": ports}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        cluster.until(partial(created, cluster, f"/api/v1/namespaces/{namespace}/pods", pod | {"spec": spec}))
    default = [{"port": 9000, "name": "other"}, {"port": 80, "targetPort": "http", "name": "default"}]
    services = [("epp", {"app": "epp"}, [{"port": 9002}]), ("models", {"role": "decode"}, default)]
    for name, selector, listed in services:
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
        whole = service | {"spec": {"selector": selector, "ports": listed}}
        cluster.create(f"/api/v1/namespaces/{namespace}/services", whole)
    things = {
        "gateways": {"listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
        "httproutes": {"rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/meta-llama-8b"}}]}]},
        "inferencepools": {
            "selector": {"matchLabels": {"role": "decode"}},
            "targetPorts": [{"number": 8200}],
            "endpointPickerRef": {"name": "epp"},
        },
    }
    for version, kind, plural in KINDS:
        thing = {"apiVersion": version, "kind": kind, "metadata": {"name": "infra-llm-inference-gateway"}}
        cluster.create(f"/apis/{version}/namespaces/{namespace}/{plural}", thing | {"spec": things[plural]})
    cluster.until(lambda: all(_ready(pod) for pod in cluster.pods(namespace)) and len(cluster.pods(namespace)) == 2)
    return open_cluster(str(cluster.kubeconfig("admin", namespace)), namespace=namespace)


def _ready(pod: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def test_all_kinds_are_found_and_methods_choose(admin: Cluster, cluster: TestedCluster, namespace: str) -> None:
    found = {(one.kind, one.name): one for one in endpoints_in(admin, namespace)}
    gateway = found["gateway", "infra-llm-inference-gateway"]
    address = found["pod", "decode-0"].url.removeprefix("http://").removesuffix(":8200")
    assert gateway.url == f"http://infra-llm-inference-gateway.{namespace}.svc"
    assert gateway.metrics == [f"http://{address}:8200/metrics"]
    assert [one.rpartition(":")[2] for one in gateway.picker_metrics] == ["9191/metrics"]
    service = found["service", "models"]
    assert (service.url, service.ready, service.metrics) == (f"http://models.{namespace}.svc", 1, gateway.metrics)

    assert endpoint_of(admin, namespace, "modelservice").url == gateway.url
    assert endpoint_of(admin, namespace, "modelservice", "meta-llama-8b").url == f"{gateway.url}/meta-llama-8b"
    assert endpoint_of(admin, namespace, "modelservice", "meta-llama-8b").stack_type == "llm-d"
    version, kind, plural = KINDS[0]
    other = {"apiVersion": version, "kind": kind, "metadata": {"name": "infra-a-inference-gateway"}}
    listeners = {"listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
    cluster.create(f"/apis/{version}/namespaces/{namespace}/{plural}", other | {"spec": listeners})
    assert endpoint_of(admin, namespace, "modelservice", "", "llm").url == gateway.url
    assert endpoint_of(admin, namespace, "models").kind == "service"
    assert endpoint_of(admin, namespace, "decode").kind == "pod"
    with pytest.raises(TargetError, match="no endpoint for method standalone"):
        endpoint_of(admin, namespace, "standalone")


# llm-d's scheduler as far as its metrics: each reading has one more request.
PICKER_SCRIPT = """
import http.server, sys
class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        count = self.server.read = getattr(self.server, "read", 0) + 1
        time = "inference_extension_scheduler_e2e_duration_seconds"
        text = f"inference_pool_ready_pods 1\\n{time}_sum {count / 1000}\\n{time}_count {count}\\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
http.server.HTTPServer((sys.argv[1], 9191), Metrics).serve_forever()
"""


@thorough
@pytest.mark.skipif(not has_namespaces(), reason="names of services need a mount namespace")
def test_modelservice_is_measured_through_its_gateway(
    cluster: TestedCluster, namespace: str, gateways: None, tmp_path: Path
) -> None:
    """With the metrics of the pool's pods and of the endpoint picker. The gateway is a service of its name."""
    stack = stack_in(cluster, namespace, tmp_path)
    gateway = "infra-llmdbench-inference-gateway"
    address = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    command = ["python", "-c", PICKER_SCRIPT, "$(IP)"]
    container: dict[str, Any] = {"name": "c", "image": "local", "command": command, "env": [address]}
    container["readinessProbe"] = {"httpGet": {"path": "/metrics", "port": 9191}}
    container["ports"] = [{"containerPort": 9191, "name": "metrics"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "picker-0", "labels": {"app": "epp"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    cluster.until(partial(created, cluster, f"/api/v1/namespaces/{namespace}/pods", pod | {"spec": spec}))
    for name, app, port in (("epp", "epp", 9002), (gateway, "sim", PORT)):
        ports = {"selector": {"app": app}, "ports": [{"port": port, "targetPort": port}]}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": ports}
        cluster.create(f"/api/v1/namespaces/{namespace}/services", service)
    pool = {"selector": {"matchLabels": {"app": "sim"}}, "targetPorts": [{"number": PORT}]}
    listeners = [{"name": "http", "port": PORT, "protocol": "HTTP"}]
    for (version, kind, plural), of in zip(
        KINDS[::2], ({"listeners": listeners}, {**pool, "endpointPickerRef": {"name": "epp"}}), strict=True
    ):
        thing = {"apiVersion": version, "kind": kind, "metadata": {"name": gateway}, "spec": of}
        cluster.create(f"/apis/{version}/namespaces/{namespace}/{plural}", thing)
    cluster.until(lambda: all(_ready(pod) for pod in cluster.pods(namespace)) and len(cluster.pods(namespace)) == 2)
    plan = PLAN.replace("requests: 30", "duration: 4s")  # several readings
    launched = stack.run(plan, id="gateway", methods="modelservice", storage_class=f"of-{namespace}")
    run = launched.runs[0]
    assert run.state == "complete", launched.rows
    assert f"http://{gateway}.{namespace}.svc:{PORT}" in str(run.plan["target"])
    server = run.summary.server
    assert server is not None and {source.engine for source in server.sources} == {"vLLM", PICKER}
    assert server.gauges["picker_pods"].mean == 1 and server.counters["requests_ok"].grown > 0
    assert server.histograms["picker_time"].mean == pytest.approx(0.001)


def test_a_model_as_llmd_writes_it() -> None:
    assert model_id_of("meta-llama/Llama-3.2-1B") == "meta-llama-llama-3-2-1b"
