"""`inferometer doctor` and `inferometer calibrate`: whether this machine and target are ready for a measurement, and
the error of the load generator itself."""

import click

from inferometer.cli.options import json_option, quiet_option, store_option, work_in

EXAMPLES = """\b
Examples:
  inferometer doctor
      check this machine: cores, clocks, limits, GPUs, containers, store
  inferometer doctor --url http://localhost:8000 --model Qwen/Qwen3-0.6B --concurrency 2000
      also check that the endpoint serves the model, and that 2000 connections are possible
  inferometer doctor --server vllm --tokenizer Qwen/Qwen3-0.6B
      also check that vLLM can be started and the tokenizer can be loaded
  inferometer doctor --json | jq -r '.checks[] | select(.status == "error") | .remedy'
"""


@click.command(epilog=EXAMPLES)
@click.option("--url", multiple=True, metavar="URL", help="URL of a server to be measured. Repeatable.")
@click.option("--model", metavar="NAME", help="Model that the server should serve.")
@click.option("--api", metavar="API", help="API that `run` would use. [default: completions]")
@click.option("--server", metavar="KIND", help="Server to be started: vllm, sglang, container, ...")
@click.option("--tokenizer", metavar="NAME", help="Tokenizer: a folder, a file, or a name on the Hugging Face hub.")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    metavar="N",
    help="Number of connections needed.",
)
@click.option(
    "--port", "ports", type=click.IntRange(1, 65535), multiple=True, help="Port that must be free. Repeatable."
)
@json_option
@store_option
@work_in("inferometer.cli.work.instrument:doctor")
def doctor() -> None:
    """Check this machine and the target for problems before a run, and suggest fixes.

    Exit code 1 if there is an error: a run would fail or give wrong numbers. Warnings reduce accuracy.
    """


@click.command()
@click.option(
    "--quick", is_flag=True, help="Measure three loads in a few seconds instead of the whole curve in a minute."
)
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.instrument:calibrate")
def calibrate() -> None:
    """Measure the load generator's own error on this machine, and store it as a curve.

    Inferometer's client reads from a server that logs when it sent each token. Later runs read the error at their own
    load from the curve and show it with the result. Leave the machine idle meanwhile. With --store, the curve is stored
    in that store instead.
    """
