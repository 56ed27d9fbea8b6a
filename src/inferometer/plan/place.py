"""Where the workers of a plan run, and how many there are: processes of this machine, of a Ray cluster, or pods."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from inferometer import vocabulary
from inferometer.plan.fields import COUNT_TEXT, Duration, Line, Mistake, Section

PlaceName = Literal["local", "ray", "kubernetes"]
MOST_WORKERS = 10_000
AUTO = 0  # workers: as many as needed by the calibration of this machine


def _read_workers(value: Any) -> int:
    if isinstance(value, str) and value.strip().lower() == "auto":
        return AUTO
    try:
        number = vocabulary.count(value) if not isinstance(value, bool) else None
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise ValueError("must be a whole number such as 4, or auto")
    if number < 1:
        raise ValueError("must be at least 1, or auto")
    if number > MOST_WORKERS:
        raise ValueError(f"must be at most {MOST_WORKERS:,}")
    return number


Workers = Annotated[
    int,
    BeforeValidator(_read_workers),
    PlainSerializer(lambda number: "auto" if number == AUTO else number),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_WORKERS}, {"const": "auto"}, COUNT_TEXT]}
    ),
]


class RaySettings(Section):
    """The Ray cluster that the workers run on."""

    address: Line | None = Field(
        None,
        description="host:port of a running cluster; default: $RAY_ADDRESS, else a cluster of this machine for the run",
    )
    timeout: Duration = Field(
        60.0, gt=0, description="maximum time until the cluster has room and the workers are ready"
    )
    wheel: Line | None = Field(
        None, description="wheel of Inferometer to install on nodes that lack it; pip there must reach its dependencies"
    )

    def disagreements(self) -> Iterator[Mistake]:
        if self.address is not None and self.address.startswith("ray://"):
            text = "must be host:port of the cluster: ray:// goes through a proxy that cannot stream logs; run"
            yield Mistake(("address",), f"{text} inferometer on a node of the cluster instead")
        if self.wheel is not None and not self.wheel.endswith(".whl"):
            yield Mistake(("wheel",), "must be a .whl file")


class KubernetesSettings(Section):
    """The Kubernetes cluster that the workers run on, as pods."""

    kubeconfig: Line | None = Field(
        None, description="kubeconfig; default: $KUBECONFIG, else ~/.kube/config, else the pod's service account"
    )
    context: Line | None = Field(None, description="context of the kubeconfig; default: the current one")
    namespace: Line | None = Field(None, description="namespace of the pods; default: that of the context")
    image: Line | None = Field(
        None, description="image of the pods; default: $INFEROMETER_IMAGE, else inferometer:VERSION"
    )
    cpu: Line = Field("1", description="CPUs of a pod, request and limit")
    memory: Line = Field("1Gi", description="memory of a pod, request and limit")
    service_account: Line | None = Field(None, description="service account of the pods; they need no rights")
    pull_secrets: list[Line] = Field([], description="secrets to pull the image with")
    node_selector: dict[str, str] = Field({}, description="labels that the nodes must have")
    tolerations: list[Line] = Field([], description="keys of taints of nodes that the pods tolerate")
    claim: Line | None = Field(
        None,
        description="persistent volume claim that the pods write their records to, which are fetched from there after "
        "the load; default: in pieces through the API server, during the load",
    )
    fs_group: int | None = Field(None, ge=0, description="group that owns the files of the claim")
    timeout: Duration = Field(300.0, gt=0, description="maximum time until the pods run")
    deadline: Duration = Field(
        86_400.0, gt=0, description="after this time the cluster ends and removes what a killed client left"
    )
