"""`inferometer k8s`: measure in a Kubernetes cluster, and manage the objects that were created there."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from inferometer.cli.errors import echo, print_message
from inferometer.cli.options import change_option, json_option, plan_argument, store_of, store_option
from inferometer.errors import INVALID, UNREACHABLE, MissingExtra, TargetError
from inferometer.show.console import console, emit, facts_table

if TYPE_CHECKING:
    from inferometer.conduct.kubernetes import Launched
    from inferometer.conduct.treatments import TreatmentRequest
    from inferometer.scale.kubernetes.client import Cluster

Command = TypeVar("Command", bound=Callable[..., Any])

_SHORT = re.compile(r"-[A-Za-z]=")
RUN_EXAMPLES = """\b
Examples:
  inferometer k8s run -p bench -t standalone -l inference-perf -w sanity_random -o min=20,total_count=200
  inferometer k8s run plan.yaml -p bench -t my-service --image registry.example/inferometer:1
  inferometer k8s run plan.yaml -p bench -t my-service -l guidellm
  inferometer k8s run plan.yaml --endpoint-url http://llm.prod.svc:8000 -p bench -j 2
  inferometer k8s run -c scenario.sh -e experiment.yaml --dry-run
"""


@click.group()
def k8s() -> None:
    """Measure in a Kubernetes cluster: launcher pods, results, clean-up."""


def cluster_options(command: Command) -> Command:
    for option in (
        click.option("--kubeconfig", metavar="FILE", help="Kubeconfig. [default: $KUBECONFIG, else ~/.kube/config]"),
        click.option("--context", metavar="NAME", help="Context of the kubeconfig. [default: the current one]"),
    ):
        command = option(command)
    return command


def opened_cluster(kubeconfig: str | None, context: str | None, retry_s: float | None = None) -> "Cluster":
    from inferometer.scale.kubernetes.client import RETRY_S, open_cluster

    return open_cluster(kubeconfig, context, retry_s=RETRY_S if retry_s is None else retry_s)


_OPTIONS = (
    click.option("-c", "--scenario", metavar="FILE", help="Scenario file (.sh): read for its variables, not executed."),
    click.option(
        "-m",
        "--models",
        metavar="LIST",
        help="Models, measured in turn. [default: the plan's, or what is served; for a profile llm-d's]",
    ),
    click.option(
        "-p",
        "--namespace",
        metavar="A[,B]",
        help="Namespace of the stack, and of the launcher pods. [default: llmdbench]",
    ),
    click.option(
        "-t",
        "--methods",
        metavar="LIST",
        help="standalone, modelservice, or part of a service's or pod's name. [default: modelservice]",
    ),
    click.option("-l", "--harness", metavar="NAME", help="Tool that the profile belongs to. [default: inference-perf]"),
    click.option(
        "--load-generator",
        "generator",
        type=click.Choice(["inferometer", "harness"]),
        help="What sends the profile's load: Inferometer, or the harness, if the image has it. [default: inferometer]",
    ),
    click.option(
        "-w",
        "--workload",
        "--workload-file-path",
        "profile",
        metavar="NAME",
        help="Profile: its name or path. [default: sanity_random]",
    ),
    click.option("-k", "--pvc", "claim", metavar="NAME", help="Claim for the results. [default: workload-pvc]"),
    click.option("--pvc-size", "claim_size", metavar="SIZE", help="Its size, if it does not exist. [default: 20Gi]"),
    click.option("--storage-class", metavar="NAME", help="Its storage class. [default: that of the cluster]"),
    click.option(
        "--access-mode",
        type=click.Choice(["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]),
        help="Its access mode. [default: ReadWriteMany]",
    ),
    click.option(
        "-e",
        "--experiment",
        "--experiments",
        "experiment",
        metavar="FILE",
        help="Experiment: its treatments, measured in turn.",
    ),
    click.option(
        "-s",
        "--wait",
        "--wait-timeout",
        "wait_s",
        type=int,
        metavar="SECONDS",
        help="Maximum time of the load; 0: do not wait. [default: 3600]",
    ),
    click.option(
        "--start-wait", "start_s", type=int, metavar="SECONDS", help="Maximum time until pods run. [default: 900]"
    ),
    click.option(
        "-j",
        "--parallelism",
        "pods",
        type=int,
        metavar="N",
        help="Launcher pods, each with the whole load. [default: 1]",
    ),
    click.option(
        "-U", "--endpoint-url", "url", metavar="URL", help="Measure this address; no rights on the stack are needed."
    ),
    click.option(
        "--image",
        metavar="NAME",
        envvar="INFEROMETER_IMAGE",
        help="Image of the pods. [default: $INFEROMETER_IMAGE, else inferometer:VERSION]",
    ),
    click.option(
        "--pull-policy", type=click.Choice(["Always", "IfNotPresent", "Never"]), help="When the image is pulled."
    ),
    click.option("--cpu", metavar="N", help="CPUs of a pod, request and limit. [default: 16]"),
    click.option("--memory", metavar="SIZE", help="Memory of a pod, request and limit. [default: 32Gi]"),
    click.option(
        "--launcher-node",
        "launcher_nodes",
        multiple=True,
        metavar="K=V",
        help="Pods only on nodes with this label. Repeatable.",
    ),
    click.option("--fs-group", "group", type=int, metavar="ID", help="Group that owns the claim's files."),
    click.option("-g", "--envvars", "passed", metavar="LIST", help="Environment variables to pass to the pods."),
    click.option(
        "-q",
        "--serviceaccount",
        "service_account",
        metavar="NAME",
        help="Service account of the pods. [default: a new one without rights]",
    ),
    click.option(
        "--id", metavar="ID", help="Id of the experiment. If it has results, only the missing treatments run."
    ),
    click.option(
        "-r",
        "--output",
        metavar="PLACE",
        help="Folder, s3:// or gs:// for results and analysis. [default: in the store]",
    ),
    click.option(
        "-n",
        "--dry-run",
        is_flag=True,
        default=None,
        help="Print the manifests; the server checks them, if there is one.",
    ),
    click.option("-z", "--skip", is_flag=True, default=None, help="Only collect results; start nothing."),
    click.option(
        "-d", "--debug", is_flag=True, default=None, help="Start idle pods, and print how to open a shell in them."
    ),
    click.option("-v", "--verbose", is_flag=True, default=None, help="Print the log of the pods."),
    click.option(
        "--treatment-max-attempts",
        "attempts",
        type=int,
        metavar="N",
        help="Repeat a treatment that failed, up to so many times in all. [default: 1]",
    ),
    click.option(
        "--treatment-stop-on-error", "stop_on_error", is_flag=True, default=None, help="End at a treatment that failed."
    ),
    *(
        click.option(name, is_flag=True, expose_value=False, hidden=True, help="Always done, as llm-d's option asks.")
        for name in ("--analyze", "--monitoring")
    ),
)


def run_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class LikeRunSh(click.Command):
    """Takes a short option and its value also as run.sh does: `-p=bench`; `-h` is help."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        return ["-h", "--help"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        arguments = [
            part for argument in args for part in (argument.split("=", 1) if _SHORT.match(argument) else [argument])
        ]
        return super().parse_args(ctx, arguments)


def request_of(
    scenario: str | None, typed: dict[str, Any], plan_args: tuple[str, ...], sets: tuple[str, ...], model_given: bool
) -> "TreatmentRequest":
    """A harness that is named with a plan of ours sends it, as with `run --harness`; with a profile of llm-d its name
    says first of all whose profile that is."""
    import os

    from inferometer.conduct.treatments import TreatmentRequest
    from inferometer.exchange.harness import checked_name
    from inferometer.scale.kubernetes.settings import settings_from

    if plan_args and typed.get("generator") is None and typed.get("harness") not in (None, "inferometer"):
        typed = {**typed, "generator": "harness"}
    settings = settings_from(os.environ, scenario, typed)
    checked_name(settings.harness)  # before a cluster is contacted
    return TreatmentRequest(settings, plan_args, sets, model_given=model_given)


@k8s.command(cls=LikeRunSh, epilog=RUN_EXAMPLES)
@plan_argument
@run_options
@change_option
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Change a setting of the plan. Repeatable.")
@click.option("--list-endpoints", is_flag=True, help="List the endpoints of the namespace, and do nothing else.")
@cluster_options
@json_option
@click.option("--quiet", is_flag=True, help="Do not print progress and notes on stderr.")
@store_option
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
    """Measure an endpoint of a cluster by launcher pods, as llm-d-benchmark's run.sh does.

    PLAN is a plan of ours; without it, llm-d's -l, -w and -o name the profile, or -e an experiment. LLMDBENCH_*
    variables have the meaning and the defaults that they have there; a scenario file goes before them, and options
    before both.
    """
    typed = {**given, "overrides": list(changes) or None}
    request = request_of(scenario, typed, plan_args, sets, given.get("models") is not None)
    settings = request.settings
    note = _quiet if quiet else _note
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
    from inferometer.conduct.kubernetes import run_on_cluster

    shown = echo_error if request.settings.verbose and not quiet else None
    with opened_cluster(kubeconfig, context) as cluster:
        launched = run_on_cluster(cluster, request, store=store_of(store), notes=note, line=shown)
    return _printed(launched, as_json)


def _note(text: str) -> None:
    print_message("note", text)


def _quiet(_text: str) -> None:
    pass


def echo_error(text: str) -> None:
    echo(text, err=True)


def _printed(launched: "Launched", as_json: bool) -> int:
    from inferometer.cli.printing import exit_code, print_json, print_run
    from inferometer.show.experiment import experiment_document, print_cases

    shown = len(launched.runs) == 1 and not as_json  # with the reasons for doubts; the table of cases has none
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
    from inferometer.conduct.treatments import all_manifests
    from inferometer.scale.kubernetes.manifests import as_yaml

    cluster = None
    try:
        cluster = opened_cluster(kubeconfig, context, retry_s=0.0)
        cluster.answer("/version")
    except TargetError as error:
        note(f"not checked by a server: {error.message}")
        cluster = None
    echo(as_yaml(all_manifests(cluster, request, note)), nl=False)
    if cluster is not None:
        note("the server accepts all of them (its own dry run); nothing was created")
    return 0


def _list_endpoints(cluster: "Cluster", namespace: str, as_json: bool) -> int:
    import msgspec

    from inferometer.cli.printing import print_json
    from inferometer.scale.kubernetes.endpoints import endpoints_in, models_at

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


@k8s.command()
@click.option("-p", "--namespace", metavar="NAME", help="Namespace. [default: that of the context]")
@click.option("--id", "run_id", metavar="ID", help="Only this run or experiment.")
@click.option("--data", is_flag=True, help="Also remove the claim with the results.")
@click.option("-k", "--pvc", "claim", metavar="NAME", default="workload-pvc", help="The claim. [default: workload-pvc]")
@click.option("--running", is_flag=True, help="Also stop and remove what is still running.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be removed.")
@cluster_options
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
    """Remove what we made in a namespace and no longer use.

    What still runs stays, unless --running is given; the claim with the results stays without --data, and with it where
    we did not make it or other pods use it.
    """
    from inferometer.scale.kubernetes.collecting import clean_namespace

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


@k8s.command()
@click.option(
    "-p",
    "--namespace",
    metavar="A[,B]",
    default="llmdbench",
    help="Namespace of the stack, and of the launcher pods. [default: llmdbench]",
)
@click.option("--name", metavar="NAME", default="inferometer", help="Name of the roles. [default: inferometer]")
@click.option("--up", is_flag=True, help="Also what k8s up, down and e2e need.")
@click.option("--unattended", is_flag=True, help="Also what pods need that watch the stack with k8s run --wait 0.")
@click.option("--user", metavar="NAME", help="Also bind them to this user.")
@click.option("--serviceaccount", "account", metavar="NAMESPACE:NAME", help="Also bind them to this service account.")
def rights(namespace: str, name: str, up: bool, unattended: bool, user: str | None, account: str | None) -> int:
    """Print the roles that k8s run needs: for the launchers' namespace, and to read the stack's.

    Nothing in them is cluster-wide. inferometer k8s rights | kubectl apply -f -
    """
    try:
        from inferometer.scale.kubernetes.manifests import roles_for
    except ImportError:
        raise MissingExtra("talking to Kubernetes", "kubernetes") from None
    from inferometer.scale.kubernetes.manifests import as_yaml

    stack, _, harness = namespace.partition(",")
    roles = roles_for(stack, harness or stack, name, user, account, up=up, unattended=unattended)
    echo(as_yaml(roles), nl=False)
    return 0
