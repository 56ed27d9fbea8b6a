"""`inferometer k8s` and `inferometer worker`: measure in a Kubernetes cluster, deploy a server there, and what the pods
execute."""

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
@work_in("inferometer.cli.work.k8s:run", KUBERNETES)
def run() -> None:
    """Measure an endpoint of a cluster by launcher pods, as llm-d-benchmark's run.sh does.

    PLAN is a plan of ours; without it, llm-d's -l, -w and -o name the profile, or -e an experiment. LLMDBENCH_*
    variables have the meaning and the defaults that they have there; a scenario file goes before them, and options
    before both.
    """


@k8s.command()
@click.option("-p", "--namespace", metavar="NAME", help="Namespace. [default: that of the context]")
@click.option("--id", "run_id", metavar="ID", help="Only this run or experiment.")
@click.option("--data", is_flag=True, help="Also remove the claim with the results.")
@click.option("-k", "--pvc", "claim", metavar="NAME", default="workload-pvc", help="The claim. [default: workload-pvc]")
@click.option("--running", is_flag=True, help="Also stop and remove what is still running.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be removed.")
@cluster_options
@work_in("inferometer.cli.work.k8s_objects:clean", KUBERNETES)
def clean() -> None:
    """Remove what we made in a namespace and no longer use.

    What still runs stays, unless --running is given; the claim with the results stays without --data, and with it where
    we did not make it or other pods use it.
    """


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
@work_in("inferometer.cli.work.k8s_objects:rights", KUBERNETES)
def rights() -> None:
    """Print the roles that k8s run needs: for the launchers' namespace, and to read the stack's.

    Nothing in them is cluster-wide. inferometer k8s rights | kubectl apply -f -
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


@k8s.command(epilog=UP_EXAMPLES)
@click.argument("name", default="standalone")
@click.option("-p", "--namespace", metavar="NAME", help="Namespace. [default: that of the context]")
@click.option("-m", "--model", metavar="NAME", help="Model to serve.")
@click.option("--image", metavar="NAME", envvar="INFEROMETER_IMAGE", help="Image of simulator and router.")
@_stack_options
@click.option("-n", "--dry-run", is_flag=True, help="Print the manifests, and create nothing.")
@cluster_options
@work_in("inferometer.cli.work.k8s_objects:up", KUBERNETES)
def up() -> None:
    """Start a server in a cluster and wait until it is ready: a Deployment and a Service called NAME.

    With --router, every replica is a Deployment with a Service of its own, and our router is in front of them.
    """


@k8s.command()
@click.argument("name", default="standalone")
@click.option("-p", "--namespace", metavar="NAME", help="Namespace. [default: that of the context]")
@click.option("--data", is_flag=True, help="Also remove the claim with the model's files.")
@cluster_options
@work_in("inferometer.cli.work.k8s_objects:down", KUBERNETES)
def down() -> None:
    """Take down what k8s up stood up."""


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
@work_in("inferometer.cli.work.k8s:e2e", KUBERNETES)
def e2e() -> None:
    """Start a server, measure it as k8s run does, and take it down, whatever happens in between.

    Where nobody is there to take it down, because this command was killed, the cluster does it some time later.
    """


@click.command()
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), metavar="FILE", help="Plan to measure.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder for the results; with several pods, _1, _2, ... is appended.",
)
@click.option("--pods", type=click.IntRange(min=1), default=1, metavar="N", help="Number of pods with this plan.")
@click.option("--harness", metavar="NAME", default="inferometer", help="Load generator. [default: inferometer]")
@click.option("--watch-stack", "stack", metavar="NAMESPACE", help="Folder for the cluster's data about the stack.")
@click.option("--serve", is_flag=True, help="Wait for the driver of inferometer run --on kubernetes.")
@click.option("--print", "print_from", metavar="FILE:BYTE", help="Print the results from there on, to be collected.")
@work_in("inferometer.cli.work.worker:worker")
def worker() -> None:
    """Measure a plan in a pod and store the run in a folder of its volume.

    Exit code 0 if a run was kept, whatever its numbers are. The number of the pod is read from JOB_COMPLETION_INDEX,
    which an Indexed Job sets, or from INFEROMETER_INDEX.
    """
