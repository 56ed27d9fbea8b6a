"""Measures an engine in this process: the latency of batches, the throughput of a workload."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import INVALID, UNREACHABLE, interrupted_code, print_message
from inferometer.cli.options import wait_of
from inferometer.cli.work.printing import print_run
from inferometer.cli.work.stores import store_of
from inferometer.conduct.offline import offline as conduct
from inferometer.documents.document import Document, JsonValue
from inferometer.errors import PlanError
from inferometer.exchange.exporting.vllm import throughput_document, write_document, write_latency_files
from inferometer.plan.offline import EngineChoice, LatencyPlan, ThroughputPlan, bs_range, reread, settings, sizes
from inferometer.plan.overrides import override
from inferometer.plan.short import workload_type
from inferometer.record.run import Run
from inferometer.show.offline import progress_text
from inferometer.show.progress import ProgressLine

REDRAW_S = 0.2


def latency(
    as_json: bool, quiet: bool, store: str | None, wait_for_target: str | None, output_json: str | None, **options: Any
) -> int:
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
        written = write_latency_files(made.summary, output_json)
        if written and not quiet:
            print_message("note", f"wrote {written[0]}" + (f" and {len(written) - 1} more" if len(written) > 1 else ""))
    return _printed(made, as_json)


def throughput(
    as_json: bool, quiet: bool, store: str | None, wait_for_target: str | None, output_json: str | None, **options: Any
) -> int:
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
        write_document(throughput_document(made.summary), Path(output_json))
    return _printed(made, as_json)


def _choice(disable_detokenize: bool, args: tuple[str, ...], **options: Any) -> EngineChoice:
    return EngineChoice(detokenize=not disable_detokenize, args=settings(args), **options)


def _workload(
    dataset: str | None, input_len: str | None, output_len: str | None, overrides: tuple[str, ...]
) -> dict[str, JsonValue]:
    """The workload of the flags, changed by `--set`."""
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
    """Checks that the file exists and that its type is known, in most cases from its name."""
    if dataset is None:
        return
    if not Path(dataset).exists():
        raise PlanError(f"--dataset: file not found: {dataset}")
    if workload_type(workload) is None:
        hint = "name the type: --set workload.type=sharegpt (or messages, prompts, table, ...)"
        raise PlanError(f"--dataset: the name of {dataset} does not show its type", hint)


def _conducted(plan: LatencyPlan | ThroughputPlan, store: str | Path | None, quiet: bool, wait_s: float) -> Run:
    """Makes the run, with progress on a terminal and notes on stderr."""
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
    """Draws at most five times a second, because batches in virtual time take no time."""
    last: dict[str, float | str] = {"at": 0.0, "phase": ""}

    def watch(progress: Any) -> None:
        now = time.monotonic()
        if progress.phase != last["phase"] or now - float(last["at"]) >= REDRAW_S:
            last.update(at=now, phase=progress.phase)
            draw(progress)

    return watch


def again(kept: Run, store: str | Path | None, wait_s: float, *, as_json: bool, quiet: bool) -> int:
    """Repeats a stored offline run, for `inferometer rerun`."""
    return _printed(_conducted(reread(kept.plan), store, quiet, wait_s), as_json)


def _printed(run: Run, as_json: bool) -> int:
    """Prints the run as text or JSON, and returns the exit code."""
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
