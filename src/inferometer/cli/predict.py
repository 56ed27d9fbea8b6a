"""`inferometer fit`, `validate`, `predict` and `simulate`: a model of a measured server, its error, and runs in
virtual time instead of on a server."""

from collections.abc import Callable
from pathlib import Path

import click

from inferometer.cli.options import (
    Command,
    capacity_flags,
    json_option,
    model_file_option,
    plan_argument,
    quiet_option,
    slowest_option,
    store_option,
    work_flags,
    work_in,
)

EXAMPLES = """\b
Examples:
  inferometer predict --model-file h200-8b.yaml --rate 20 --duration 60s
      the latencies and throughput of this load
  inferometer predict chat --model-file h200-8b.yaml --capacity --limit 'ttft p99 < 500ms' --replicas 1,2,4 --price 3.5
      the highest request rate within the limit, and what a million output tokens would cost
  inferometer predict --model-file h200-8b.yaml --capacity --limit 'ttft p90 < 300ms' --token-budget 2048,8192
      the same for two token budgets per engine step
  inferometer predict --model-file h200-8b.yaml --rate 20 --confirm http://localhost:8000
      predict, then measure it and show both
"""


@click.command(epilog=EXAMPLES)
@plan_argument
@model_file_option("--model")
@work_flags
@click.option("--capacity", is_flag=True, help="Find the highest request rate within the limits.")
@capacity_flags("--capacity")
@click.option("--confirm", metavar="URL", help="Measure the same plan on this server afterwards, and show both.")
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.predict:predict")
def predict() -> None:
    """Predict the result of PLAN on the server that a model describes: no server, no network, done in seconds."""


FIT_EXAMPLES = """\b
Examples:
  inferometer fit 20261116-0026 20261116-0031 20261116-0040 -o h200-8b.yaml
      a model of the server that these three runs measured
  inferometer fit sweep/* --server-log server.log -o h200-8b.yaml
      run folders; the engine's limits are read from its log
  inferometer fit --gpu h100 --shape llama-3.1-70b --gpus 4 -o guess.yaml
      without runs: a model from the data sheet of the GPU alone
"""


VALIDATE_EXAMPLES = """\b
Examples:
  inferometer validate h200-8b.yaml latest
      predicted and measured, with the intervals of the prediction
  inferometer validate h200-8b.yaml sweep/* --leave-one-out
      the error on each run when the model is fitted without it
  inferometer validate h200-8b.yaml latest --aiconfigurator meta-llama/Meta-Llama-3.1-8B
      with aiconfigurator's estimates, if that program is installed
"""


def _chart_option(shows: str) -> Callable[[Command], Command]:
    return click.option(
        "--chart", type=click.Path(path_type=Path), metavar="FILE", help=f"Draw {shows}: .png, .svg or .json."
    )


@click.command(epilog=FIT_EXAMPLES)
@click.argument("runs", nargs=-1)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="File to write the model to.")
@click.option("--name", metavar="TEXT", help="Name of the model. [default: that of the file]")
@click.option(
    "--server-log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Startup log of the server, from which its limits are read.",
)
@click.option("--kv-tokens", type=click.IntRange(min=1024), metavar="N", help="Tokens in the KV cache.")
@click.option("--max-sequences", type=click.IntRange(min=1), metavar="N", help="Maximum number of sequences per batch.")
@click.option("--token-budget", type=click.IntRange(min=1), metavar="N", help="Maximum number of tokens per step.")
@click.option("--gpu", metavar="GPU", help="With --shape: start from the data sheet of h100, h200, l4, ...")
@click.option("--shape", metavar="MODEL", help="With --gpu: shape of the model: llama-3.1-8b, qwen3-32b, ...")
@click.option("--gpus", type=click.IntRange(min=1), default=1, metavar="N", help="Without runs: number of GPUs.")
@click.option(
    "--leave-one-out",
    is_flag=True,
    help="Report the error on each run when it is left out of the fit; takes one more fit per run.",
)
@_chart_option("measured and modelled steps of the runs")
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.fit:fit")
def fit() -> None:
    """Fit a model of a server to the records of RUNS, for `predict`.

    Three runs of one server at different loads are enough. RUNS are ids, folders, tags or `latest`.
    """


@click.command(epilog=VALIDATE_EXAMPLES)
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "--leave-one-out", is_flag=True, help="Leave out one run at a time, fit the others, and show the error on that run."
)
@click.option(
    "--aiconfigurator",
    metavar="MODEL",
    help="Name of the model on Hugging Face, for aiconfigurator's estimates, if the runs have another name. They are "
    "shown if aiconfigurator is installed.",
)
@_chart_option("the error of every prediction")
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.fit:validate")
def validate() -> None:
    """Compare the predictions of MODEL with measured RUNS.

    For each run: the measured numbers, the predictions for the same plan, and their 95% intervals.
    """


SIMULATE_EXAMPLES = """\b
Examples:
  inferometer simulate --rate 10 --duration 1h
      simulate an hour of load in seconds
  inferometer simulate --rate 10 --set server.args.max_sequences=64
      change the simulated engine; its settings are under server.args
  inferometer simulate --rate 10 --set "server={type: fleet, replicas: 4, router: prefix_aware}"
      a fleet of simulated engines behind a routing policy
  inferometer simulate --rate 10 --model-file h200-8b.yaml
      a server whose model was fitted to measured runs
  inferometer simulate --serve --port 8000
      a server for trying things out: http://127.0.0.1:8000/v1
"""


@click.command(epilog=SIMULATE_EXAMPLES)
@plan_argument
@work_flags
@click.option("--serve", is_flag=True, help="Run the simulator as a real server in the foreground until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --serve: address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="With --serve: port to listen on; 0 means any free port.",
)
@model_file_option("--model")
@click.option("--more", is_flag=True, help="Also show the plan, delivery and all notes.")
@slowest_option
@json_option
@work_in("inferometer.cli.work.simulate:simulate")
def simulate() -> None:
    """Run PLAN against the simulator in virtual time: no server, no network, an hour takes seconds.

    The summary is the same as that of a run; nothing is stored.
    """
