"""`inferometer offline`: an engine in this process, without a server: latency of batches, throughput of a workload."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from inferometer.cli.errors import INVALID, UNREACHABLE, interrupted_code, print_message
from inferometer.cli.options import (
    json_option,
    quiet_option,
    set_option,
    store_of,
    store_option,
    wait_of,
    wait_option,
)
from inferometer.documents.document import Document, JsonValue
from inferometer.errors import PlanError

if TYPE_CHECKING:
    from inferometer.plan.offline import EngineChoice, LatencyPlan, ThroughputPlan
    from inferometer.record.run import Run

Command = TypeVar("Command", bound=Callable[..., Any])
REDRAW_S = 0.2

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
def latency(
    as_json: bool, quiet: bool, store: str | None, wait_for_target: str | None, output_json: str | None, **options: Any
) -> int:
    """Measure the latency of a batch for every batch size, on one engine.

    A batch size that fails (out of memory) is reported, and the others continue. Ctrl-C stores the results so far.
    """
    from inferometer.plan.offline import LatencyPlan, bs_range, sizes

    between = bs_range(options.pop("bs_start"), options.pop("bs_end"), options.pop("bs_step"))
    given = options.pop("batch_sizes")
    if between is not None and given is not None:
        raise click.UsageError("--batch-sizes and --bs-start exclude each other")
    plan = LatencyPlan(
        batch_sizes=between or sizes(given or "1-8", "--batch-sizes"),
        input_lens=sizes(options.pop("input_len"), "--input-len"),
        output_lens=sizes(options.pop("output_len"), "--output-len"),
        iters=options.pop("iters"),
        warmup=options.pop("warmup"),
        on=_choice(**options),
    )
    made = _conducted(plan, store, quiet, wait_of(wait_for_target))
    if output_json is not None:
        from inferometer.exchange.exporting.vllm import write_latency_files

        written = write_latency_files(made.summary, output_json)
        if written and not quiet:
            print_message("note", f"wrote {written[0]}" + (f" and {len(written) - 1} more" if len(written) > 1 else ""))
    return _printed(made, as_json)


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
def throughput(
    as_json: bool, quiet: bool, store: str | None, wait_for_target: str | None, output_json: str | None, **options: Any
) -> int:
    """Measure the request and token throughput of an engine for a whole workload submitted at once.

    `--set workload.x=y` changes any workload setting of a plan.
    """
    from inferometer.plan.offline import ThroughputPlan, sizes

    flags = (options.pop(name) for name in ("dataset", "input_len", "output_len", "overrides"))
    plan = ThroughputPlan(
        workload=_workload(*flags),
        num_prompts=sizes(options.pop("num_prompts"), "--num-prompts")[0],
        warmup=options.pop("warmup"),
        repeats=options.pop("repeats"),
        on=_choice(**options),
    )
    made = _conducted(plan, store, quiet, wait_of(wait_for_target))
    if output_json is not None:
        from inferometer.exchange.exporting.vllm import throughput_document, write_document

        write_document(throughput_document(made.summary), Path(output_json))
    return _printed(made, as_json)


def _choice(disable_detokenize: bool, args: tuple[str, ...], **options: Any) -> "EngineChoice":
    from inferometer.plan.offline import EngineChoice, settings

    return EngineChoice(detokenize=not disable_detokenize, args=settings(args), **options)


def _workload(
    dataset: str | None, input_len: str | None, output_len: str | None, overrides: tuple[str, ...]
) -> dict[str, JsonValue]:
    """The workload that flags mean, changed by `--set`."""
    from inferometer.plan.overrides import override

    if dataset is not None and input_len is not None:
        raise click.UsageError("--input-len applies to synthetic prompts only, not to a --dataset")
    workload: dict[str, JsonValue] = {"path": dataset}
    if dataset is None:
        workload = {
            "type": "synthetic",
            "prompt_as": "token_ids",
            "input_tokens": input_len or 512,
            "output_tokens": 128,
        }
    if output_len is not None:
        workload["output_tokens"] = output_len
    changed = override({"workload": workload}, overrides)
    if others := sorted(set(changed) - {"workload"}):
        raise click.UsageError(f"--set {others[0]}: only workload settings can be changed here, workload.x=y")
    _check_dataset(dataset, changed["workload"])
    return dict(Document(changed).section("workload"))


def _check_dataset(dataset: str | None, workload: Any) -> None:
    """Whether it exists and its type is known, for most by name."""
    from inferometer.plan.short import workload_type

    if dataset is None:
        return
    if not Path(dataset).exists():
        raise PlanError(f"--dataset: file not found: {dataset}")
    if workload_type(workload) is None:
        hint = "name the type: --set workload.type=sharegpt (or messages, prompts, table, ...)"
        raise PlanError(f"--dataset: the type of {dataset} cannot be derived from its name", hint)


def _conducted(plan: "LatencyPlan | ThroughputPlan", store: str | Path | None, quiet: bool, wait_s: float) -> "Run":
    """With progress on a terminal; notes on stderr."""
    from inferometer.conduct.offline import offline as conduct
    from inferometer.show.offline import progress_text
    from inferometer.show.progress import ProgressLine

    line = ProgressLine()

    def note(text: str) -> None:
        line.clear()
        print_message("note", text)

    kept_in = store_of(store)
    if quiet:
        return conduct(plan, store=kept_in, wait_for_target_s=wait_s)
    watch = _rarely(lambda progress: line.message(progress_text(progress)))
    try:
        return conduct(plan, store=kept_in, watch=watch, notes=note, wait_for_target_s=wait_s)
    finally:
        line.clear()


def _rarely(draw: Callable[[Any], None]) -> Callable[[Any], None]:
    """Five times a second at most: batches in virtual time take no time."""
    last: dict[str, float | str] = {"at": 0.0, "phase": ""}

    def watch(progress: Any) -> None:
        now = time.monotonic()
        if progress.phase != last["phase"] or now - float(last["at"]) >= REDRAW_S:
            last.update(at=now, phase=progress.phase)
            draw(progress)

    return watch


def again(kept: "Run", store: str | Path | None, wait_s: float, *, as_json: bool, quiet: bool) -> int:
    """A kept offline run once more: `inferometer rerun`."""
    from inferometer.plan.offline import reread

    return _printed(_conducted(reread(kept.plan), store, quiet, wait_s), as_json)


def _printed(run: "Run", as_json: bool) -> int:
    """The run as a person or a program reads it, and what it means for a script."""
    from inferometer.cli.printing import print_run

    print_run(run, as_json=as_json, slowest=0)
    cases = run.summary.cases
    failed = [case for case in cases if case.state == "failed"]
    if run.state == "interrupted":
        print_message("warning", "interrupted; the measurements so far are stored")
        return interrupted_code()
    if run.state == "failed" and not cases:
        print_message("error", "the engine failed before the last repeat; the measurements so far are stored")
        return INVALID
    if failed:
        print_message("error", f"{len(failed)} of {len(cases)} cases failed: {failed[0].error}")
        return UNREACHABLE if len(failed) == len(cases) else INVALID
    if run.status != "valid":
        kind = "error" if run.status == "invalid" else "warning"
        print_message(kind, f"{run.status} as a measurement: {run.doubts[0].text}")
    return INVALID if run.status == "invalid" or run.state == "failed" else 0
