"""Creates and removes the objects of a server in a cluster, removes those of runs, and prints roles."""

import os
from typing import Any

import msgspec

from inferometer.cli.errors import echo, print_message
from inferometer.cli.options import duration_of
from inferometer.scale.kubernetes.client import RETRY_S, Cluster, open_cluster
from inferometer.scale.kubernetes.collecting import clean_namespace
from inferometer.scale.kubernetes.manifests import as_yaml, roles_for
from inferometer.scale.kubernetes.settings import paired
from inferometer.scale.kubernetes.stack import (
    StackSettings,
    check,
    stack_manifests,
    start_stack,
    take_down,
)


def opened_cluster(kubeconfig: str | None, context: str | None, retry_s: float | None = None) -> Cluster:
    return open_cluster(kubeconfig, context, retry_s=RETRY_S if retry_s is None else retry_s)


def clean(
    namespace: str | None,
    run_id: str | None,
    data: bool,
    claim: str,
    running: bool,
    dry_run: bool,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    with opened_cluster(kubeconfig, context) as cluster:
        done = clean_namespace(
            cluster, namespace or cluster.namespace, run_id, claim if data else None, running=running, dry_run=dry_run
        )
    for text in done.removed:
        echo(f"{'would remove' if dry_run else 'removed'} {text}")
    for text in done.running:
        print_message("note", f"{text} still runs: --running removes it too")
    for text in done.kept:
        print_message("note", text)
    if not done.removed and not done.running and not done.kept:
        echo("no objects of Inferometer found")
    return 0


def rights(namespace: str, name: str, up: bool, unattended: bool, user: str | None, account: str | None) -> int:
    stack, _, harness = namespace.partition(",")
    roles = roles_for(stack, harness or stack, name, user, account, up=up, unattended=unattended)
    echo(as_yaml(roles), nl=False)
    return 0


def stack_settings(
    name: str, namespace: str, model: str | None, image: str | None, given: dict[str, Any]
) -> StackSettings:
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
    settings = stack_settings(name, namespace or "default", model, image, given)

    check(settings)
    if dry_run:
        echo(as_yaml(stack_manifests(settings)), nl=False)
        return 0
    with opened_cluster(kubeconfig, context) as cluster:
        settings = msgspec.structs.replace(settings, namespace=namespace or cluster.namespace)
        start_stack(cluster, settings, note_on_stderr)
    echo(settings.url)
    return 0


def down(name: str, namespace: str | None, data: bool, kubeconfig: str | None, context: str | None) -> int:
    with opened_cluster(kubeconfig, context) as cluster:
        removed = take_down(cluster, name, namespace or cluster.namespace, note_on_stderr, data=data)
    for text in removed:
        echo(f"removed {text}")
    if not removed:
        echo(f"there is no stack {name}")
    return 0


def note_on_stderr(text: str) -> None:
    print_message("note", text)
