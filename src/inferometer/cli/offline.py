"""`inferometer offline`: an engine in this process, without a server: latency of batches, throughput of a workload."""

import click

from inferometer.cli.options import Command, json_option, quiet_option, set_option, store_option, wait_option, work_in

LATENCY_EXAMPLES = """\b
Examples:
  inferometer offline latency --engine simulator --batch-sizes 1-8
      the built-in simulator in virtual time: nothing else is needed
  inferometer offline latency --engine vllm --model meta-llama/Llama-3.1-8B-Instruct
      batch sizes 1 to 8, 512 input and 128 output tokens, on one engine
  inferometer offline latency --engine vllm --model M --batch-sizes 1-64:8 --input-len 512,2048
      every eighth batch size, two prompt lengths
  inferometer offline latency --engine vllm --model M --args dtype=float16 --args max_model_len=4096
      pass settings to the engine
  inferometer offline latency --engine transformers --model ./model --output-json latency_bs
      write latency_bs1.json, ... as vllm bench latency does
"""


THROUGHPUT_EXAMPLES = """\b
Examples:
  inferometer offline throughput --engine simulator --input-len 512 --output-len 128
      synthetic prompts
  inferometer offline throughput --engine simulator --input-len 100-500 --num-prompts 200 --repeats 5
      lengths drawn from a range; five repeats, for a confidence interval
  inferometer offline throughput --engine vllm --model M --dataset ShareGPT.json --num-prompts 1k
      a file of conversations; output lengths as recorded
"""


_ENGINE = (
    click.option("--engine", required=True, metavar="ENGINE", help="Engine: vllm, transformers or simulator."),
    click.option("--model", metavar="MODEL", help="Model name or folder. Not needed for the simulator."),
    click.option("--args", "args", multiple=True, metavar="KEY=VALUE", help="Setting of the engine. Repeatable."),
    click.option(
        "--seed", type=int, default=0, show_default=True, help="Random seed; the same seed gives the same prompts."
    ),
    click.option(
        "--n", type=int, default=1, show_default=True, help="Sequences per prompt; with beam search: the beam width."
    ),
    click.option("--use-beam-search", "beam_search", is_flag=True, help="Use beam search instead of sampling."),
    click.option("--disable-detokenize", is_flag=True, help="Do not detokenize the output."),
    click.option(
        "--profile",
        metavar="FOLDER",
        type=click.Path(file_okay=False),
        help="Profile one batch and write the trace to this folder.",
    ),
)


def engine_options(command: Command) -> Command:
    for option in reversed(_ENGINE):
        command = option(command)
    return command


@click.group()
def offline() -> None:
    """Measure an engine in this process, without a server."""


@offline.command(epilog=LATENCY_EXAMPLES)
@engine_options
@click.option("--batch-sizes", metavar="SIZES", help="8, 1,2,4, 1-8 or 1-64:8. [default: 1-8]")
@click.option("--bs-start", type=int, metavar="N", help="Smallest batch size, instead of --batch-sizes.")
@click.option("--bs-end", type=int, metavar="N", help="Largest batch size.")
@click.option("--bs-step", type=int, metavar="N", help="Step between batch sizes. [default: 1]")
@click.option("--input-len", default="512", show_default=True, metavar="LENS", help="Input tokens per prompt.")
@click.option("--output-len", default="128", show_default=True, metavar="LENS", help="Output tokens per prompt.")
@click.option(
    "--iters", "--num-iters", type=int, default=30, show_default=True, help="Measured iterations per batch size."
)
@click.option(
    "--warmup", "--num-iters-warmup", type=int, default=10, show_default=True, help="Warm-up iterations per batch size."
)
@click.option("--output-json", metavar="PREFIX", help="Write PREFIX1.json, ... in the format of vllm bench latency.")
@wait_option
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.offline:latency")
def latency() -> None:
    """Measure the latency of a batch for every batch size, on one engine.

    A batch size that fails (out of memory) is reported, and the others continue. Ctrl-C stores the results so far.
    """


@offline.command(epilog=THROUGHPUT_EXAMPLES)
@engine_options
@click.option("--dataset", metavar="FILE", help="File with prompts: ShareGPT, JSONL, CSV, text. [default: synthetic]")
@click.option("--input-len", metavar="LEN", help="Input tokens of synthetic prompts: 512, 100-500. [default: 512]")
@click.option("--output-len", metavar="LEN", help="Output tokens. [default: 128, or as in the dataset]")
@click.option(
    "--num-prompts", metavar="N", default="1000", show_default=True, help="Number of prompts, submitted all at once."
)
@click.option("--warmup", type=int, default=8, show_default=True, help="Number of warm-up prompts.")
@click.option("--repeats", type=int, default=1, show_default=True, help="Repeats; several give a confidence interval.")
@click.option("--output-json", metavar="FILE", help="Write FILE in the format of vllm bench throughput.")
@set_option
@wait_option
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.offline:throughput")
def throughput() -> None:
    """Measure the request and token throughput of an engine for a whole workload submitted at once.

    `--set workload.x=y` changes any workload setting of a plan.
    """
