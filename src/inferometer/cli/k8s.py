"""`inferometer k8s` and `inferometer worker`: measure in a Kubernetes cluster, deploy a server there; and the command
that the pods execute."""

import re
from pathlib import Path

import click

from inferometer.cli.options import Command, change_option, json_option, plan_argument, store_option, work_in

KUBERNETES = "talking to Kubernetes", "kubernetes"
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


_OPTIONS = (
    click.option("-c", "--scenario", metavar="FILE", help="Scenario file (.sh): read for its variables, not executed."),
    click.option(
        "-m",
        "--models",
        metavar="LIST",
        help="Models, measured one after the other. [default: the plan's, else the served one; for a profile, llm-d's]",
    ),
    click.option(
        "-p",
        "--namespace",
        metavar="A[,B]",
        help="Namespace of the stack and, after a comma, of the launcher pods. [default: llmdbench]",
    ),
    click.option(
        "-t",
        "--methods",
        metavar="LIST",
        help="standalone, modelservice, or part of a service's or pod's name. [default: modelservice]",
    ),
    click.option(
        "-l", "--harness", metavar="NAME", help="Tool that the profile is written for. [default: inference-perf]"
    ),
    click.option(
        "--load-generator",
        "generator",
        type=click.Choice(["inferometer", "harness"]),
        help="Which tool sends the load of the profile: Inferometer, or the harness, if the image has it. [default: "
        "inferometer]",
    ),
    click.option(
        "-w",
        "--workload",
        "--workload-file-path",
        "profile",
        metavar="NAME",
        help="Profile: its name or path. [default: sanity_random]",
    ),
    click.option(
        "-k", "--pvc", "claim", metavar="NAME", help="Persistent volume claim for the results. [default: workload-pvc]"
    ),
    click.option("--pvc-size", "claim_size", metavar="SIZE", help="Size of a new claim. [default: 20Gi]"),
    click.option("--storage-class", metavar="NAME", help="Storage class of a new claim. [default: the cluster's]"),
    click.option(
        "--access-mode",
        type=click.Choice(["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]),
        help="Access mode of a new claim. [default: ReadWriteMany]",
    ),
    click.option(
        "-e",
        "--experiment",
        "--experiments",
        "experiment",
        metavar="FILE",
        help="Experiment file; its treatments are measured one after the other.",
    ),
    click.option(
        "-s",
        "--wait",
        "--wait-timeout",
        "wait_s",
        type=int,
        metavar="SECONDS",
        help="Maximum duration of the load; 0: do not wait for its end. [default: 3600]",
    ),
    click.option(
        "--start-wait",
        "start_s",
        type=int,
        metavar="SECONDS",
        help="Maximum time to wait until the pods run. [default: 900]",
    ),
    click.option(
        "-j",
        "--parallelism",
        "pods",
        type=int,
        metavar="N",
        help="Number of launcher pods; each sends the whole load. [default: 1]",
    ),
    click.option(
        "-U",
        "--endpoint-url",
        "url",
        metavar="URL",
        help="URL to measure; needs no permissions in the namespace of the stack.",
    ),
    click.option(
        "--image",
        metavar="NAME",
        envvar="INFEROMETER_IMAGE",
        help="Image of the pods. [default: $INFEROMETER_IMAGE, else inferometer:VERSION]",
    ),
    click.option(
        "--pull-policy", type=click.Choice(["Always", "IfNotPresent", "Never"]), help="When to pull the image."
    ),
    click.option("--cpu", metavar="N", help="CPU request and limit of a pod. [default: 16]"),
    click.option("--memory", metavar="SIZE", help="Memory request and limit of a pod. [default: 32Gi]"),
    click.option(
        "--launcher-node",
        "launcher_nodes",
        multiple=True,
        metavar="K=V",
        help="Run the pods only on nodes with this label. Repeatable.",
    ),
    click.option(
        "--fs-group", "group", type=int, metavar="ID", help="Id of the group that owns the files of the claim."
    ),
    click.option("-g", "--envvars", "passed", metavar="LIST", help="Environment variables to pass to the pods."),
    click.option(
        "-q",
        "--serviceaccount",
        "service_account",
        metavar="NAME",
        help="Service account of the pods. [default: a new one without permissions]",
    ),
    click.option(
        "--id", metavar="ID", help="Id of the experiment. If it has results, only the missing treatments run."
    ),
    click.option(
        "-r",
        "--output",
        metavar="PLACE",
        help="Folder, s3:// or gs:// URL for the results and their analysis. [default: in the store]",
    ),
    click.option(
        "-n",
        "--dry-run",
        is_flag=True,
        default=None,
        help="Print the manifests, checked by the API server if one is reachable; create nothing.",
    ),
    click.option("-z", "--skip", is_flag=True, default=None, help="Only collect results; start nothing."),
    click.option(
        "-d", "--debug", is_flag=True, default=None, help="Start idle pods, and print how to open a shell in them."
    ),
    click.option("-v", "--verbose", is_flag=True, default=None, help="Print the logs of the pods."),
    click.option(
        "--treatment-max-attempts",
        "attempts",
        type=int,
        metavar="N",
        help="Maximum attempts per treatment, if it fails. [default: 1]",
    ),
    click.option(
        "--treatment-stop-on-error",
        "stop_on_error",
        is_flag=True,
        default=None,
        help="Stop after the first treatment that fails.",
    ),
    *(
        click.option(name, is_flag=True, expose_value=False, hidden=True, help="Option of llm-d; always on here.")
        for name in ("--analyze", "--monitoring")
    ),
)


def run_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class LikeRunSh(click.Command):
    """Also accepts a short option with its value as run.sh does, `-p=bench`; `-h` prints the help."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        return ["-h", "--help"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        arguments = [
            part for argument in args for part in (argument.split("=", 1) if _SHORT.match(argument) else [argument])
        ]
        return super().parse_args(ctx, arguments)


@k8s.command(cls=LikeRunSh, epilog=RUN_EXAMPLES)
@plan_argument
@run_options
@change_option
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Change a setting of the plan. Repeatable.")
@click.option("--list-endpoints", is_flag=True, help="List the endpoints of the namespace, then exit.")
@cluster_options
@json_option
@click.option("--quiet", is_flag=True, help="Do not print progress and notes on stderr.")
@store_option
@work_in("inferometer.cli.work.k8s:run", KUBERNETES)
def run() -> None:
    """Measure an endpoint in a cluster with launcher pods, as llm-d-benchmark's run.sh does.

    PLAN is a plan of Inferometer. Without it, -l, -w and -o name a profile of llm-d, or -e an experiment. LLMDBENCH_*
    variables have the same meaning and defaults as in llm-d; a scenario file overrides them, and options override both.
    """


@k8s.command()
@click.option("-p", "--namespace", metavar="NAME", help="Namespace. [default: that of the context]")
@click.option("--id", "run_id", metavar="ID", help="Only this run or experiment.")
@click.option("--data", is_flag=True, help="Also remove the persistent volume claim with the results.")
@click.option(
    "-k", "--pvc", "claim", metavar="NAME", default="workload-pvc", help="Name of the claim. [default: workload-pvc]"
)
@click.option("--running", is_flag=True, help="Also stop and remove what still runs.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be removed.")
@cluster_options
@work_in("inferometer.cli.work.k8s_objects:clean", KUBERNETES)
def clean() -> None:
    """Remove objects that Inferometer created in a namespace and no longer uses.

    What still runs is kept unless --running is given. The claim with the results is kept unless --data is given, and
    always if Inferometer did not create it or other pods use it.
    """


@k8s.command()
@click.option(
    "-p",
    "--namespace",
    metavar="A[,B]",
    default="llmdbench",
    help="Namespace of the stack and, after a comma, of the launcher pods. [default: llmdbench]",
)
@click.option("--name", metavar="NAME", default="inferometer", help="Name of the roles. [default: inferometer]")
@click.option("--up", is_flag=True, help="Include the permissions for k8s up, down and e2e.")
@click.option(
    "--unattended",
    is_flag=True,
    help="Include the permissions of pods that watch the stack themselves: k8s run --wait 0.",
)
@click.option("--user", metavar="NAME", help="Also bind the roles to this user.")
@click.option(
    "--serviceaccount", "account", metavar="NAMESPACE:NAME", help="Also bind the roles to this service account."
)
@work_in("inferometer.cli.work.k8s_objects:rights", KUBERNETES)
def rights() -> None:
    """Print the RBAC roles that k8s run needs: in the namespace of the launchers, and to read that of the stack.

    No role is cluster-wide. To create them: inferometer k8s rights | kubectl apply -f -
    """


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
    click.option(
        "--router", metavar="POLICY", help="Run Inferometer's router in front of the servers, with this policy."
    ),
    click.option("--server-image", metavar="NAME", help="Image of the server. [default: vllm/vllm-openai:latest]"),
    click.option("--server-port", "port", type=int, default=8000, metavar="N", help="Port. [default: 8000]"),
    click.option(
        "--arg", "args", multiple=True, metavar="ARG", help="Argument of the server's command line. Repeatable."
    ),
    click.option(
        "--server-env", multiple=True, metavar="NAME=VALUE", help="Environment variable of the server. Repeatable."
    ),
    click.option("--server-cpu", metavar="N", help="CPU request and limit of a server."),
    click.option("--server-memory", metavar="SIZE", help="Memory request and limit of a server."),
    click.option("--gpus", type=int, default=0, metavar="N", help="GPUs of a server. [default: 0]"),
    click.option(
        "--gpu-resource",
        metavar="NAME",
        default="nvidia.com/gpu",
        help="Resource name of the GPUs. [default: nvidia.com/gpu]",
    ),
    click.option(
        "--node-selector",
        multiple=True,
        metavar="LABEL=VALUE",
        help="Run the server on nodes with this label. Repeatable.",
    ),
    click.option("--toleration", multiple=True, metavar="KEY", help="Taint that the server tolerates. Repeatable."),
    click.option(
        "--hf-secret",
        metavar="NAME[:KEY]",
        help="Secret with the Hugging Face token. [default: a new one from $HF_TOKEN]",
    ),
    click.option(
        "--model-pvc", metavar="NAME", help="Persistent volume claim for the files of the model; k8s down keeps it."
    ),
    click.option("--model-pvc-size", metavar="SIZE", default="100Gi", help="Size of a new claim. [default: 100Gi]"),
    click.option(
        "--model-storage-class", metavar="NAME", help="Storage class of a new claim. [default: the cluster's]"
    ),
    click.option(
        "--stack-timeout",
        metavar="TIME",
        default="15min",
        help="Maximum time until the server is ready. [default: 15min]",
    ),
)


def _stack_options(command: Command) -> Command:
    for option in reversed(_STACK_OPTIONS):
        command = option(command)
    return command


@k8s.command(epilog=UP_EXAMPLES)
@click.argument("name", default="standalone")
@click.option("-p", "--namespace", metavar="NAME", help="Namespace. [default: that of the context]")
@click.option("-m", "--model", metavar="NAME", help="Model to serve.")
@click.option("--image", metavar="NAME", envvar="INFEROMETER_IMAGE", help="Image of the simulator and the router.")
@_stack_options
@click.option("-n", "--dry-run", is_flag=True, help="Print the manifests; create nothing.")
@cluster_options
@work_in("inferometer.cli.work.k8s_objects:up", KUBERNETES)
def up() -> None:
    """Start a server in a cluster and wait until it is ready: a Deployment and a Service called NAME.

    With --router, each replica has its own Deployment and Service, and Inferometer's router runs in front of them.
    """


@k8s.command()
@click.argument("name", default="standalone")
@click.option("-p", "--namespace", metavar="NAME", help="Namespace. [default: that of the context]")
@click.option("--data", is_flag=True, help="Also remove the persistent volume claim with the files of the model.")
@cluster_options
@work_in("inferometer.cli.work.k8s_objects:down", KUBERNETES)
def down() -> None:
    """Remove a server that k8s up started."""


@k8s.command(cls=LikeRunSh, epilog=E2E_EXAMPLES)
@plan_argument
@run_options
@change_option
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Change a setting of the plan. Repeatable.")
@_stack_options
@click.option("--stack-name", metavar="NAME", default="standalone", help="Name of the server. [default: standalone]")
@cluster_options
@json_option
@click.option("--quiet", is_flag=True, help="Do not print progress and notes on stderr.")
@store_option
@work_in("inferometer.cli.work.k8s:e2e", KUBERNETES)
def e2e() -> None:
    """Start a server, measure it as k8s run does, and remove it, also after an error.

    If this command is killed before it can do that, the cluster removes the server some time later.
    """


@click.command()
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), metavar="FILE", help="Plan to measure.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder for the results; with several pods, _1, _2, ... is appended.",
)
@click.option("--pods", type=click.IntRange(min=1), default=1, metavar="N", help="Number of pods that run this plan.")
@click.option("--harness", metavar="NAME", default="inferometer", help="Load generator. [default: inferometer]")
@click.option(
    "--watch-stack", "stack", metavar="NAMESPACE", help="Namespace of the stack; the first pod watches its replicas."
)
@click.option("--serve", is_flag=True, help="Wait for the process that runs inferometer run --on kubernetes.")
@click.option(
    "--print",
    "print_from",
    metavar="FILE:BYTE",
    help="Print the results from this position on; the client collects them.",
)
@work_in("inferometer.cli.work.worker:worker")
def worker() -> None:
    """Measure a plan in a pod and store the run in a folder of its volume.

    Exit code 0 if a run was stored, whatever its result. The number of the pod is read from JOB_COMPLETION_INDEX,
    which an Indexed Job sets, or from INFEROMETER_INDEX.
    """
