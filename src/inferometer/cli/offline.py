"""`inferometer offline`: an engine in this process, without a server: latency of batches, throughput of a workload."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from inferometer.cli.errors import INVALID, UNREACHABLE, interrupted_code, say
from inferometer.cli.options import (
    json_option,
    quiet_option,
    set_option,
    store_of,
    store_option,
    wait_of,
    wait_option,
)

if TYPE_CHECKING:
    from inferometer.plan.offline import EngineChoice, LatencyPlan, ThroughputPlan
    from inferometer.record.run import Run

Command = TypeVar("Command", bound=Callable[..., Any])
REDRAW_S = 0.2

LATENCY_EXAMPLES = """\b
Examples:
  inferometer offline latency --engine simulator --batch-sizes 1-8
      nothing else is needed: the simulator, in virtual time
  inferometer offline latency --engine vllm --model meta-llama/Llama-3.1-8B-Instruct
      batch sizes 1 to 8, 512 tokens in and 128 out, on one engine
  inferometer offline latency --engine vllm --model M --batch-sizes 1-64:8 --input-len 512,2048
      every eighth size, with two lengths of prompts
  inferometer offline latency --engine vllm --model M --args dtype=float16 --args max_model_len=4096
      whatever the engine itself can be told
  inferometer offline latency --engine transformers --model ./model --output-json latency_bs
      latency_bs1.json, ... as vllm bench latency writes them
"""

THROUGHPUT_EXAMPLES = """\b
Examples:
  inferometer offline throughput --engine simulator --input-len 512 --output-len 128
      made-up prompts
  inferometer offline throughput --engine simulator --input-len 100-500 --num-prompts 200 --repeats 5
      lengths drawn from a range; five times, so that there is an interval
  inferometer offline throughput --engine vllm --model M --dataset ShareGPT.json --num-prompts 1k
      a file of conversations, answers as long as recorded
"""

_ENGINE = (
    click.option("--engine", required=True, metavar="ENGINE", help="vllm, transformers or simulator."),
    click.option("--model", metavar="MODEL", help="Its name or folder. The simulator needs none."),
    click.option(
        "--args", "args", multiple=True, metavar="KEY=VALUE", help="A setting of the engine's own. Repeatable."
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="The same seed makes the same prompts."),
    click.option("--n", type=int, default=1, show_default=True, help="Answers to each prompt; with beams: how many."),
    click.option("--use-beam-search", "beam_search", is_flag=True, help="Search in beams instead of drawing."),
    click.option("--disable-detokenize", is_flag=True, help="Leave tokens as they are: no text is made of them."),
    click.option(
        "--profile", metavar="FOLDER", type=click.Path(file_okay=False), help="Write a trace of one batch there."
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
@click.option("--bs-start", type=int, metavar="N", help="Instead: the smallest batch size,")
@click.option("--bs-end", type=int, metavar="N", help="the largest,")
@click.option("--bs-step", type=int, metavar="N", help="and the step from one to the next. [default: 1]")
@click.option("--input-len", default="512", show_default=True, metavar="LENS", help="Tokens of each prompt.")
@click.option("--output-len", default="128", show_default=True, metavar="LENS", help="Tokens of each answer.")
@click.option("--iters", "--num-iters", type=int, default=30, show_default=True, help="Batches measured, of each size.")
@click.option("--warmup", "--num-iters-warmup", type=int, default=10, show_default=True, help="Batches before them.")
@click.option("--output-json", metavar="PREFIX", help="Write PREFIX1.json, ... as vllm bench latency does.")
@wait_option
@json_option
@quiet_option
@store_option
def latency(
    as_json: bool, quiet: bool, store: str | None, wait_for_target: str | None, output_json: str | None, **asked: Any
) -> int:
    """How long a batch takes, for every batch size, with one engine for all of them.

    A size that fails (out of memory) is a result: it is said, and the others go on. Ctrl-C keeps what was measured.
    """
    from inferometer.plan.offline import LatencyPlan, bs_range, sizes

    between = bs_range(asked.pop("bs_start"), asked.pop("bs_end"), asked.pop("bs_step"))
    given = asked.pop("batch_sizes")
    if between is not None and given is not None:
        raise click.UsageError("--batch-sizes and --bs-start say the same: give one or the other")
    plan = LatencyPlan(
        batch_sizes=between or sizes(given or "1-8", "--batch-sizes"),
        input_lens=sizes(asked.pop("input_len"), "--input-len"),
        output_lens=sizes(asked.pop("output_len"), "--output-len"),
        iters=asked.pop("iters"),
        warmup=asked.pop("warmup"),
        on=_choice(**asked),
    )
    made = _conducted(plan, store, quiet, wait_of(wait_for_target))
    if output_json is not None:
        from inferometer.exchange.exporting.vllm import write_latency_files

        written = write_latency_files(made.summary, output_json)
        if written and not quiet:
            say("note", f"wrote {written[0]}" + (f" and {len(written) - 1} more" if len(written) > 1 else ""))
    return _printed(made, as_json)


@offline.command(epilog=THROUGHPUT_EXAMPLES)
@engine_options
@click.option("--dataset", metavar="FILE", help="Prompts of a file: ShareGPT, JSONL, CSV, text. [default: made up]")
@click.option("--input-len", metavar="LEN", help="Tokens of made-up prompts: 512, 100-500. [default: 512]")
@click.option("--output-len", metavar="LEN", help="Tokens of answers. [default: 128, or as the dataset says]")
@click.option("--num-prompts", metavar="N", default="1000", show_default=True, help="How many, all at once.")
@click.option("--warmup", type=int, default=8, show_default=True, help="Prompts before them.")
@click.option("--repeats", type=int, default=1, show_default=True, help="Passes; several give an interval.")
@click.option("--output-json", metavar="FILE", help="Write FILE as vllm bench throughput does.")
@set_option
@wait_option
@json_option
@quiet_option
@store_option
def throughput(
    as_json: bool, quiet: bool, store: str | None, wait_for_target: str | None, output_json: str | None, **asked: Any
) -> int:
    """How many requests and tokens per second an engine makes of a whole workload at once.

    `--set workload.x=y` sets whatever a plan's workload can be told.
    """
    from inferometer.plan.offline import ThroughputPlan, sizes

    flags = (asked.pop(name) for name in ("dataset", "input_len", "output_len", "overrides"))
    plan = ThroughputPlan(
        workload=_workload(*flags),
        num_prompts=sizes(asked.pop("num_prompts"), "--num-prompts")[0],
        warmup=asked.pop("warmup"),
        repeats=asked.pop("repeats"),
        on=_choice(**asked),
    )
    made = _conducted(plan, store, quiet, wait_of(wait_for_target))
    if output_json is not None:
        from inferometer.exchange.exporting.vllm import throughput_document, write_document

        write_document(throughput_document(made.summary), Path(output_json))
    return _printed(made, as_json)


def _choice(disable_detokenize: bool, args: tuple[str, ...], **asked: Any) -> "EngineChoice":
    from inferometer.plan.offline import EngineChoice, settings

    return EngineChoice(detokenize=not disable_detokenize, args=settings(args), **asked)


def _workload(
    dataset: str | None, input_len: str | None, output_len: str | None, overrides: tuple[str, ...]
) -> dict[str, Any]:
    """The workload that flags mean, changed by `--set`."""
    from inferometer.plan.overrides import override

    if dataset is not None and input_len is not None:
        raise click.UsageError("--input-len is of made-up prompts: those of a --dataset are as long as they are")
    said: dict[str, Any] = {"path": dataset}
    if dataset is None:
        said = {"type": "synthetic", "prompt_as": "token_ids", "input_tokens": input_len or 512, "output_tokens": 128}
    if output_len is not None:
        said["output_tokens"] = output_len
    changed = override({"workload": said}, overrides)
    if others := sorted(set(changed) - {"workload"}):
        raise click.UsageError(f"--set {others[0]}: only the workload can be set here, workload.x=y")
    _check_dataset(dataset, changed["workload"])
    return dict(changed["workload"])


def _check_dataset(dataset: str | None, workload: Any) -> None:
    """Whether it is there, and known what it holds: its name tells that of most."""
    from inferometer.errors import PlanError
    from inferometer.plan.short import workload_type

    if dataset is None:
        return
    if not Path(dataset).exists():
        raise PlanError(f"--dataset: there is no such file, got {dataset}")
    if workload_type(workload) is None:
        hint = "say it: --set workload.type=sharegpt (or messages, prompts, table, ...)"
        raise PlanError(f"--dataset: the name of {dataset} does not tell what it holds", hint)


def _conducted(plan: "LatencyPlan | ThroughputPlan", store: str | Path | None, quiet: bool, wait_s: float) -> "Run":
    """With progress on a terminal; notes on stderr."""
    from inferometer.conduct.offline import offline as conduct
    from inferometer.show.offline import progress_text
    from inferometer.show.progress import ProgressLine

    line = ProgressLine()

    def note(text: str) -> None:
        line.clear()
        say("note", text)

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
        say("warning", "interrupted; what was measured until then is kept")
        return interrupted_code()
    if run.state == "failed" and not cases:
        say("error", "the engine failed before the last pass; what was measured until then is kept")
        return INVALID
    if failed:
        say("error", f"{len(failed)} of {len(cases)} cases failed: {failed[0].error}")
        return UNREACHABLE if len(failed) == len(cases) else INVALID
    if run.status != "valid":
        kind = "error" if run.status == "invalid" else "warning"
        say(kind, f"{run.status} as a measurement: {run.doubts[0].text}")
    return INVALID if run.status == "invalid" or run.state == "failed" else 0
