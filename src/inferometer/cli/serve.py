"""`inferometer serve`, `startup` and `route`: start a server in the foreground, measure how long its start takes, and
route requests to several."""

from pathlib import Path

import click

from inferometer.cli.options import json_option, quiet_option, set_option, store_option, wait_option, work_in

SERVE_EXAMPLES = """\b
Examples:
  inferometer serve simulator
      a server for trying things out
  inferometer serve vllm --model Qwen/Qwen3-0.6B -- --max-model-len 4096
      arguments after -- are passed to the engine unchanged
  inferometer serve command -- ./my-server --port {port}
      any program; {port} is replaced by a free port
  inferometer serve container --image vllm/vllm-openai:v0.10.1.1 --model Qwen/Qwen3-0.6B
  inferometer serve plan.yaml --log server.log
      start the server of a plan
"""


@click.command(epilog=SERVE_EXAMPLES)
@click.argument("kind", metavar="KIND|PLAN")
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]")
@click.option("--model", metavar="NAME", help="Model to serve.")
@click.option("--host", metavar="HOST", help="Address to listen on. [default: 127.0.0.1]")
@click.option("--port", metavar="N", help="Port to listen on. [default: a free port]")
@click.option("--image", metavar="IMAGE", help="Image of the container.")
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", help="Set an environment variable of the server. Repeatable."
)
@click.option("--folder", metavar="FOLDER", help="Working directory of the server.")
@click.option(
    "--prepare", multiple=True, metavar="COMMAND", help="Command to run before the server starts. Repeatable."
)
@click.option("--ready", metavar="TIME", help="Give up if the server is not ready after this time.")
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the server's output to this file. [default: stderr]",
)
@set_option
@wait_option
@json_option
@quiet_option
@work_in("inferometer.cli.work.serve:serve")
def serve() -> None:
    """Start a server, print its URL when it is ready, run it until Ctrl-C, then stop it and all its child processes.

    KIND is vllm, sglang, llamacpp, tgi, command, container or simulator. Or name a PLAN with a server: section.
    """


STARTUP_EXAMPLES = """\b
Examples:
  inferometer startup --log server.log
      time to ready and its phases, from vLLM's own log
  inferometer startup --log safetensors.log tensorizer.log runai.log
      compare several logs side by side
  inferometer startup --server vllm --model Qwen/Qwen3-0.6B
      start the server, wait until it is ready, stop it
  inferometer startup --server vllm --model M --load-format safetensors --load-format runai_streamer
      one start per load format
  inferometer startup --server vllm --model M --args max_model_len=4096 --sleep
      with engine arguments; also measure sleep and wake-up
"""


@click.command(epilog=STARTUP_EXAMPLES)
@click.argument("more_logs", nargs=-1, metavar="[LOG]...")
@click.option("--log", "logs", multiple=True, metavar="FILE", help="vLLM log file; more may follow. Repeatable.")
@click.option("--server", metavar="KIND|PLAN", help="Server to start: vllm, simulator, ..., or a plan with a server.")
@click.option("--model", metavar="NAME", help="Model to serve.")
@click.option("--args", multiple=True, metavar="KEY=VALUE", help="Server argument. Repeatable.")
@click.option(
    "--load-format",
    "formats",
    multiple=True,
    metavar="FORMAT",
    help="Load format of vLLM, one start for each. Repeatable.",
)
@click.option("--sleep", is_flag=True, help="Also measure sleep and wake-up (vLLM).")
@set_option
@wait_option
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.startup:startup")
def startup() -> None:
    """Measure how long a server takes to become ready: platform, imports, config, weights, compile, graphs, API.

    A phase that is not in the log is reported as unmatched. VLLM_LOGGING_LEVEL=DEBUG makes vLLM log all phases.
    """


# -- route -------------------------------------------------------------------------------------------------------------

# `inferometer route`: the streaming proxy in front of several replicas, in the foreground.
EXAMPLES = """\b
Examples:
  inferometer route --policy prefix_aware --upstream http://gpu1:8000 --upstream http://gpu2:8000
  inferometer route --policy prefix_aware --set defaults=original --set imbalanced_threshold=5 \\
      --upstream a=http://localhost:8001 --upstream b=http://localhost:8002 --port 8000
      replicas with names, and settings of the policy
  curl -H 'X-Inferometer-Explain: 1' -i http://localhost:8000/v1/completions -d '{...}'
      why the router chose this replica, in a header of the response; GET /router/decisions has the latest decisions
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--policy", metavar="NAME", default="power_of_two", show_default=True, help="Policy that chooses the replica."
)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[NAME=]URL",
    help="URL of a replica. Repeatable; more URLs may follow without the option.",
)
@click.argument("more", nargs=-1, metavar="[[NAME=]URL]...")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Port to listen on. [default: a free port]")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a setting of the policy. Repeatable.")
@click.option("--seed", type=int, default=0, metavar="N", help="Random seed of the policy.")
@click.option(
    "--max-in-flight",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum requests in flight per replica; further requests wait in the router's queue. [default: no limit]",
)
@click.option(
    "--queue",
    "queue_limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Maximum requests in the queue. [default: 1024]",
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Further replicas to try when one fails before the first byte. [default: 2]",
)
@click.option("--health-path", metavar="PATH", help="Path that a healthy replica answers. [default: /health]")
@click.option("--health-interval", metavar="TIME", help="Time between health checks. [default: 1s]")
@click.option("--ready", metavar="TIME", default="0s", help="Wait this long for the first replica.")
@click.option("--ca", "tls_ca", metavar="FILE", help="CA certificates to verify replicas behind https://.")
@click.option(
    "--insecure",
    "tls_verify",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not verify the certificates of replicas behind https://.",
)
@click.option(
    "--drain", metavar="TIME", help="Maximum wait for requests in flight after Ctrl-C or SIGTERM. [default: 30s]"
)
@json_option
@quiet_option
@work_in("inferometer.cli.work.route:route")
def route() -> None:
    """Route requests to the replicas of a server: a streaming HTTP proxy.

    Policies: random, round_robin, least_loaded, power_of_two, prefix_aware (Ray Serve), cache_aware (SGLang),
    block_prefix and prefix_affinity (llm-d), session_affinity. GET /metrics has the router's metrics, /router/state its
    replicas, /router/decisions the latest explained decisions. Ctrl-C or SIGTERM finishes the requests in flight.
    """
