"""Measures in a Kubernetes cluster: an existing endpoint, or a server that is started for the measurement."""

import os
from collections.abc import Callable
from typing import Any

import msgspec

from inferometer.cli.errors import echo, print_message
from inferometer.cli.work.k8s_objects import note_on_stderr, opened_cluster, stack_settings
from inferometer.cli.work.printing import exit_code, print_run
from inferometer.cli.work.stores import store_of
from inferometer.conduct.kubernetes import Launched, run_on_cluster
from inferometer.conduct.treatments import TreatmentRequest, all_manifests, longest_s, model_of_ours, treatments_of
from inferometer.errors import INVALID, UNREACHABLE, PlanError, TargetError
from inferometer.exchange.harness import checked_name
from inferometer.scale.kubernetes.client import Cluster
from inferometer.scale.kubernetes.endpoints import MODELSERVICE, endpoints_in, models_at
from inferometer.scale.kubernetes.manifests import as_yaml
from inferometer.scale.kubernetes.settings import NOP, RunSettings, settings_from
from inferometer.scale.kubernetes.stack import (
    StackSettings,
    check,
    stack_manifests,
    start_stack,
    take_down_in_trouble,
)
from inferometer.show.console import console, emit, facts_table, print_json
from inferometer.show.experiment import experiment_document, print_cases
from inferometer.simulator.settings import settings_from as simulator_settings

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


def request_of(
    scenario: str | None, typed: dict[str, Any], plan_args: tuple[str, ...], sets: tuple[str, ...], model_given: bool
) -> TreatmentRequest:
    """With a plan of ours, `--harness` names the tool that sends the load, as in `run --harness`; with a profile of
    llm-d it names the tool that the profile is written for."""
    if plan_args and typed.get("generator") is None and typed.get("harness") not in (None, "inferometer"):
        typed = {**typed, "generator": "harness"}
    settings = settings_from(os.environ, scenario, typed)
    checked_name(settings.harness)  # before a cluster is contacted
    return TreatmentRequest(settings, plan_args, sets, model_given=model_given)


def run(
    plan_args: tuple[str, ...],
    scenario: str | None,
    changes: tuple[str, ...],
    sets: tuple[str, ...],
    list_endpoints: bool,
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
    quiet: bool,
    store: str | None,
    **given: Any,
) -> int:
    typed = {**given, "overrides": list(changes) or None}
    request = request_of(scenario, typed, plan_args, sets, given.get("models") is not None)
    settings = request.settings
    note = _quiet if quiet else note_on_stderr
    for text in settings.notes:
        note(text)
    if list_endpoints:
        return _list_endpoints(opened_cluster(kubeconfig, context), settings.namespace, as_json)
    if settings.dry_run:
        return print_manifests(request, kubeconfig, context, note)
    return measure_request(request, kubeconfig, context, note, as_json=as_json, quiet=quiet, store=store)


def measure_request(
    request: Any,
    kubeconfig: str | None,
    context: str | None,
    note: Any,
    *,
    as_json: bool,
    quiet: bool,
    store: str | None,
) -> int:
    shown = echo_error if request.settings.verbose and not quiet else None
    with opened_cluster(kubeconfig, context) as cluster:
        launched = run_on_cluster(cluster, request, store=store_of(store), notes=note, line=shown)
    return _printed(launched, as_json)


def _quiet(_text: str) -> None:
    pass


def echo_error(text: str) -> None:
    echo(text, err=True)


def _printed(launched: Launched, as_json: bool) -> int:
    shown = (
        len(launched.runs) == 1 and not as_json
    )  # with the reasons for doubts, which the table of cases does not have
    if as_json:
        print_json(experiment_document(launched.experiment, launched.rows, None, len(launched.left)))
    elif shown:
        print_run(launched.runs[0], as_json=False, slowest=0)
    elif launched.rows:
        print_cases(launched.rows, console(), errors=False)
    failed = [row for row in launched.rows if row.state == "failed"]
    for error in dict.fromkeys(row.error for row in failed):  # pods of one treatment often fail alike
        print_message("error", f"{', '.join(row.name for row in failed if row.error == error)}: {error}")
    if not as_json and launched.rows:
        echo(f"stored as   {launched.experiment.id}")
        echo(f"files       {launched.output}")
    if failed:
        return UNREACHABLE if len(failed) == len(launched.rows) else INVALID
    return max((exit_code(run, shown=shown) for run in launched.runs), default=0)


def print_manifests(request: Any, kubeconfig: str | None, context: str | None, note: Any) -> int:
    cluster = None
    try:
        cluster = opened_cluster(kubeconfig, context, retry_s=0.0)
        cluster.answer("/version")
    except TargetError as error:
        note(f"not checked by an API server: {error.message}")
        cluster = None
    echo(as_yaml(all_manifests(cluster, request, note)), nl=False)
    if cluster is not None:
        note("the API server accepts all manifests (server-side dry run); nothing was created")
    return 0


def _list_endpoints(cluster: Cluster, namespace: str, as_json: bool) -> int:
    endpoints = [
        msgspec.structs.replace(one, models=models_at(cluster, one)) for one in endpoints_in(cluster, namespace)
    ]
    if as_json:
        print_json({"namespace": namespace, "endpoints": msgspec.to_builtins(endpoints)})
        return 0
    table = facts_table()
    for one in endpoints:
        ready = "" if one.ready is None else f"{one.ready} ready"
        table.add_row(
            f"{one.kind} {one.name}", "  ".join(part for part in (one.url, ready, ", ".join(one.models)) if part)
        )
    emit(table, console())
    if not endpoints:
        print_message("note", f"namespace {namespace} has no service, gateway or pod with a port")
    return 0


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
    of_stack = {name: given.pop(name) for name in _STACK_NAMES}
    typed = {**given, "overrides": list(changes) or None}
    request, stack = _of_e2e(plan_args, scenario, sets, typed, stack_name, of_stack)
    note = _quiet if quiet else note_on_stderr
    for text in request.settings.notes:
        note(text)
    if request.settings.dry_run:
        return _print_e2e(request, stack, kubeconfig, context, note)

    count = len(
        treatments_of(request, None, lambda _text: None)
    )  # errors in a plan are reported before anything is started
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
) -> tuple[TreatmentRequest, StackSettings]:
    """The request for the measurement, and the stack to start for it."""
    settings = settings_from(os.environ, scenario, typed)
    _check_e2e(settings, typed)
    own = model_of_ours(request_of(scenario, typed, plan_args, sets, typed.get("models") is not None))
    model = settings.models[0] if typed.get("models") or of_stack["server"] == "vllm" else simulated_model()
    model = own or model
    stack = stack_settings(stack_name, settings.namespace, model, settings.image, of_stack)
    # By name, so that metrics, replicas and restarts of its pods are recorded. In a dry run there is no stack to find.
    by_address = (settings.dry_run and settings.harness != NOP) or stack.name == MODELSERVICE
    aim = {"url": stack.url} if by_address else {"methods": stack.name}
    whole = {**typed, **aim, "models": model, "id": settings.id}
    return request_of(scenario, whole, plan_args, sets, typed.get("models") is not None), stack


def _check_e2e(settings: RunSettings, typed: dict[str, Any]) -> None:
    """Options that contradict a stack that is started before the run and removed after it."""
    mistakes = []
    if settings.url or typed.get("methods"):
        mistakes.append("k8s e2e measures the stack that it starts: not with --endpoint-url or --methods")
    if len(settings.models) > 1:
        mistakes.append(f"k8s e2e starts one model, got {len(settings.models)}: {', '.join(settings.models)}")
    for name, is_set in (("--skip", settings.skip), ("--debug", settings.debug), ("--wait 0", not settings.wait_s)):
        if is_set:
            mistakes.append(f"{name}: k8s e2e removes the stack at its end")
    if mistakes:
        raise PlanError(mistakes, "use k8s up, k8s run and k8s down one after the other")


def _print_e2e(
    request: TreatmentRequest,
    stack: StackSettings,
    kubeconfig: str | None,
    context: str | None,
    note: Callable[[str], None],
) -> int:
    check(stack)
    echo(as_yaml(stack_manifests(stack)) + "---\n", nl=False)
    return print_manifests(request, kubeconfig, context, note)


def simulated_model() -> str:
    return simulator_settings({}).model
