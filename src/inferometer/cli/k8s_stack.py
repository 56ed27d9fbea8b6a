"""`inferometer k8s up|down|e2e`: deploy a server in a cluster, measure it and remove it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from inferometer.cli.errors import echo, print_message
from inferometer.cli.k8s import (
    LikeRunSh,
    cluster_options,
    k8s,
    measure_request,
    opened_cluster,
    print_manifests,
    request_of,
    run_options,
)
from inferometer.cli.options import change_option, duration_of, json_option, plan_argument, store_option
from inferometer.errors import MissingExtra, PlanError

if TYPE_CHECKING:
    from inferometer.conduct.treatments import TreatmentRequest
    from inferometer.scale.kubernetes.settings import RunSettings
    from inferometer.scale.kubernetes.stack import StackSettings

Command = TypeVar("Command", bound=Callable[..., Any])

UP_EXAMPLES = """\b
Examples:
  inferometer k8s up -p bench --model Qwen/Qwen3-0.6B --gpus 1 --toleration nvidia.com/gpu
  inferometer k8s up sim -p bench --server simulator --replicas 3 --router prefix_aware
  inferometer k8s down sim -p bench
"""
E2E_EXAMPLES = """\b
Examples:
  inferometer k8s e2e plan.yaml -p bench --server simulator
  inferometer k8s e2e plan.yaml -p bench -m Qwen/Qwen3-0.6B --gpus 1 --model-pvc models
"""

_STACK_OPTIONS = (
    click.option("--server", type=click.Choice(["vllm", "simulator"]), default="vllm", help="Server to deploy."),
    click.option("--replicas", type=int, default=1, metavar="N", help="Number of servers. [default: 1]"),
    click.option("--router", metavar="POLICY", help="Run Inferometer's router in front of them, with this policy."),
    click.option("--server-image", metavar="NAME", help="Image of the server. [default: vllm/vllm-openai:latest]"),
    click.option("--server-port", "port", type=int, default=8000, metavar="N", help="Port. [default: 8000]"),
    click.option(
        "--arg", "args", multiple=True, metavar="ARG", help="Argument of the server's command line. Repeatable."
    ),
    click.option("--server-env", multiple=True, metavar="NAME=VALUE", help="Variable of the server. Repeatable."),
    click.option("--server-cpu", metavar="N", help="CPUs of a server, request and limit."),
    click.option("--server-memory", metavar="SIZE", help="Memory of a server, request and limit."),
    click.option("--gpus", type=int, default=0, metavar="N", help="GPUs of a server. [default: 0]"),
    click.option(
        "--gpu-resource",
        metavar="NAME",
        default="nvidia.com/gpu",
        help="Resource name of the GPUs. [default: nvidia.com/gpu]",
    ),
    click.option("--node-selector", multiple=True, metavar="LABEL=VALUE", help="Nodes of the server. Repeatable."),
    click.option("--toleration", multiple=True, metavar="KEY", help="Taint that the server tolerates. Repeatable."),
    click.option("--hf-secret", metavar="NAME[:KEY]", help="Secret with the token. [default: a new one of $HF_TOKEN]"),
    click.option("--model-pvc", metavar="NAME", help="Claim for the model's files; kept by k8s down."),
    click.option("--model-pvc-size", metavar="SIZE", default="100Gi", help="Its size. [default: 100Gi]"),
    click.option("--model-storage-class", metavar="NAME", help="Its storage class. [default: that of the cluster]"),
    click.option(
        "--stack-timeout", metavar="TIME", default="15min", help="Maximum time until it is ready. [default: 15min]"
    ),
)


def _stack_options(command: Command) -> Command:
    for option in reversed(_STACK_OPTIONS):
        command = option(command)
    return command


_STACK_NAMES = (
    *(
        "server",
        "replicas",
        "router",
        "server_image",
        "port",
        "args",
        "server_env",
        "server_cpu",
        "server_memory",
        "gpus",
    ),
    *("gpu_resource", "node_selector", "toleration", "hf_secret", "model_pvc", "model_pvc_size"),
    *("model_storage_class", "stack_timeout"),
)


def _settings(
    name: str, namespace: str, model: str | None, image: str | None, given: dict[str, Any]
) -> "StackSettings":
    import os

    from inferometer.scale.kubernetes.settings import paired

    try:
        from inferometer.scale.kubernetes.stack import StackSettings
    except ImportError:
        raise MissingExtra("talking to Kubernetes", "kubernetes") from None
    token = None if given["hf_secret"] else os.environ.get("HF_TOKEN")
    more: dict[str, Any] = {"router_image": image} if image else {}
    return StackSettings(
        name=name,
        namespace=namespace,
        server=given["server"],
        model=model,
        replicas=given["replicas"],
        router=given["router"],
        image=given["server_image"],
        port=given["port"],
        args=tuple(given["args"]),
        environment=paired("--server-env NAME=VALUE", given["server_env"]),
        cpu=given["server_cpu"],
        memory=given["server_memory"],
        gpus=given["gpus"],
        gpu_resource=given["gpu_resource"],
        node_selector=paired("--node-selector LABEL=VALUE", given["node_selector"]),
        tolerations=tuple(given["toleration"]),
        token=token if given["server"] == "vllm" else None,
        token_secret=given["hf_secret"],
        claim=given["model_pvc"],
        claim_size=given["model_pvc_size"],
        storage_class=given["model_storage_class"],
        timeout_s=duration_of("--stack-timeout", given["stack_timeout"]),
        **more,
    )


@k8s.command(epilog=UP_EXAMPLES)
@click.argument("name", default="standalone")
@click.option("-p", "--namespace", metavar="NAME", help="Namespace. [default: that of the context]")
@click.option("-m", "--model", metavar="NAME", help="Model to serve.")
@click.option("--image", metavar="NAME", envvar="INFEROMETER_IMAGE", help="Image of simulator and router.")
@_stack_options
@click.option("-n", "--dry-run", is_flag=True, help="Print the manifests, and create nothing.")
@cluster_options
def up(
    name: str,
    namespace: str | None,
    model: str | None,
    image: str | None,
    dry_run: bool,
    kubeconfig: str | None,
    context: str | None,
    **given: Any,
) -> int:
    """Start a server in a cluster and wait until it is ready: a Deployment and a Service called NAME.

    With --router, every replica is a Deployment with a Service of its own, and our router is in front of them.
    """
    settings = _settings(name, namespace or "default", model, image, given)
    from inferometer.scale.kubernetes.stack import check, stack_manifests, start_stack

    check(settings)
    if dry_run:
        from inferometer.scale.kubernetes.manifests import as_yaml

        echo(as_yaml(stack_manifests(settings)), nl=False)
        return 0
    with opened_cluster(kubeconfig, context) as cluster:
        settings = msgspec.structs.replace(settings, namespace=namespace or cluster.namespace)
        start_stack(cluster, settings, _note)
    echo(settings.url)
    return 0


@k8s.command()
@click.argument("name", default="standalone")
@click.option("-p", "--namespace", metavar="NAME", help="Namespace. [default: that of the context]")
@click.option("--data", is_flag=True, help="Also remove the claim with the model's files.")
@cluster_options
def down(name: str, namespace: str | None, data: bool, kubeconfig: str | None, context: str | None) -> int:
    """Take down what k8s up stood up."""
    with opened_cluster(kubeconfig, context) as cluster:
        from inferometer.scale.kubernetes.stack import take_down

        removed = take_down(cluster, name, namespace or cluster.namespace, _note, data=data)
    for text in removed:
        echo(f"removed {text}")
    if not removed:
        echo(f"there is no stack {name}")
    return 0


@k8s.command(cls=LikeRunSh, epilog=E2E_EXAMPLES)
@plan_argument
@run_options
@change_option
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Change a setting of the plan. Repeatable.")
@_stack_options
@click.option("--stack-name", metavar="NAME", default="standalone", help="Name of the stack. [default: standalone]")
@cluster_options
@json_option
@click.option("--quiet", is_flag=True, help="Do not print progress and notes on stderr.")
@store_option
def e2e(
    plan_args: tuple[str, ...],
    scenario: str | None,
    changes: tuple[str, ...],
    sets: tuple[str, ...],
    stack_name: str,
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
    quiet: bool,
    store: str | None,
    **given: Any,
) -> int:
    """Start a server, measure it as k8s run does, and take it down, whatever happens in between.

    Where nobody is there to take it down, because this command was killed, the cluster does it some time later.
    """
    of_stack = {name: given.pop(name) for name in _STACK_NAMES}
    typed = {**given, "overrides": list(changes) or None}
    request, stack = _of_e2e(plan_args, scenario, sets, typed, stack_name, of_stack)
    note = (lambda _text: None) if quiet else _note
    for text in request.settings.notes:
        note(text)
    if request.settings.dry_run:
        return _print_e2e(request, stack, kubeconfig, context, note)
    from inferometer.conduct.treatments import longest_s, treatments_of
    from inferometer.scale.kubernetes.stack import start_stack, take_down_in_trouble

    count = len(treatments_of(request, None, lambda _text: None))  # mistakes of a plan, before anything is stood up
    with opened_cluster(kubeconfig, context) as cluster:
        start_stack(cluster, stack, note, deadline_s=stack.timeout_s + longest_s(request.settings, count))
        try:
            return measure_request(request, kubeconfig, context, note, as_json=as_json, quiet=quiet, store=store)
        finally:
            take_down_in_trouble(cluster, stack, note)


def _of_e2e(
    plan_args: tuple[str, ...],
    scenario: str | None,
    sets: tuple[str, ...],
    typed: dict[str, Any],
    stack_name: str,
    of_stack: dict[str, Any],
) -> tuple["TreatmentRequest", "StackSettings"]:
    """What is measured, and what is stood up for it."""
    import os

    from inferometer.conduct.treatments import model_of_ours
    from inferometer.scale.kubernetes.endpoints import MODELSERVICE
    from inferometer.scale.kubernetes.settings import NOP, settings_from

    settings = settings_from(os.environ, scenario, typed)
    _check_e2e(settings, typed)
    own = model_of_ours(request_of(scenario, typed, plan_args, sets, typed.get("models") is not None))
    model = settings.models[0] if typed.get("models") or of_stack["server"] == "vllm" else simulated_model()
    model = own or model
    stack = _settings(stack_name, settings.namespace, model, settings.image, of_stack)
    # By its name, so that its pods are known: their metrics, replicas and starts. A dry run has no stack to look for.
    by_address = (settings.dry_run and settings.harness != NOP) or stack.name == MODELSERVICE
    aim = {"url": stack.url} if by_address else {"methods": stack.name}
    whole = {**typed, **aim, "models": model, "id": settings.id}
    return request_of(scenario, whole, plan_args, sets, typed.get("models") is not None), stack


def _check_e2e(settings: "RunSettings", typed: dict[str, Any]) -> None:
    """What makes no sense where the stack comes before the run and goes with it."""
    mistakes = []
    if settings.url or typed.get("methods"):
        mistakes.append("k8s e2e measures the stack that it starts: not with --endpoint-url or --methods")
    if len(settings.models) > 1:
        mistakes.append(f"k8s e2e starts one model, got {len(settings.models)}: {', '.join(settings.models)}")
    for name, is_set in (("--skip", settings.skip), ("--debug", settings.debug), ("--wait 0", not settings.wait_s)):
        if is_set:
            mistakes.append(f"{name}: k8s e2e takes the stack down at its end")
    if mistakes:
        raise PlanError(mistakes, "one after the other: k8s up, k8s run, k8s down")


def _print_e2e(
    request: "TreatmentRequest",
    stack: "StackSettings",
    kubeconfig: str | None,
    context: str | None,
    note: Callable[[str], None],
) -> int:
    from inferometer.scale.kubernetes.manifests import as_yaml
    from inferometer.scale.kubernetes.stack import check, stack_manifests

    check(stack)
    echo(as_yaml(stack_manifests(stack)) + "---\n", nl=False)
    return print_manifests(request, kubeconfig, context, note)


def simulated_model() -> str:
    from inferometer.simulator.settings import settings_from as simulator_settings

    return simulator_settings({}).model


def _note(text: str) -> None:
    print_message("note", text)
