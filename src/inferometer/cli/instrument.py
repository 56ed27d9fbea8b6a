"""`inferometer doctor` and `inferometer calibrate`: whether this machine and target are ready for a measurement, and
the error of the load generator itself."""

from pathlib import Path
from typing import Any

import click
import msgspec

from inferometer.cli.errors import LIMIT_FAILED
from inferometer.cli.options import json_option, quiet_option, store_of, store_option
from inferometer.show.console import console, emit

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
def doctor(as_json: bool, store: Path | None, **options: Any) -> int:
    """Check this machine and the target for problems before a run, and suggest fixes.

    Exit code 1 if there is an error: a run would fail or give wrong numbers. Warnings reduce accuracy.
    """
    from inferometer.conduct.instrument import DoctorOptions, document, examine, has_error

    _check_server(options["server"])
    groups = examine(DoctorOptions(**options), store_of(store))
    if as_json:
        from inferometer.cli.printing import print_json

        print_json(document(groups), "doctor")
    else:
        from inferometer.show.instrument import print_checks

        print_checks(groups, console())
    return LIMIT_FAILED if has_error(groups) else 0


def _check_server(server: str | None) -> None:
    from inferometer.plan.reading import plan_from

    if server is not None and server not in ("external", "container", "command"):
        plan_from({"server": {"type": server, "model": "any"}}, where="--server")


@click.command()
@click.option(
    "--quick", is_flag=True, help="Measure three loads in a few seconds instead of the whole curve in a minute."
)
@json_option
@quiet_option
@store_option
def calibrate(quick: bool, as_json: bool, quiet: bool, store: Path | None) -> None:
    """Measure the load generator's own error on this machine, and store it as a curve.

    Our client reads from a server that logs when it sent each token. Later runs read the error at their own load from
    the curve and show it with the result. Leave the machine idle meanwhile. With --store the curve is stored there
    instead."""
    from inferometer.cli.printing import print_json
    from inferometer.conduct.curves import keep_curve, keep_for_machine
    from inferometer.conduct.instrument import calibrate as measure_curve
    from inferometer.show.instrument import ceiling_text, curve_table
    from inferometer.show.progress import ProgressLine

    place, line = store_of(store).home, ProgressLine()
    try:
        curve = measure_curve(quick=quick, progress=None if quiet else line.message)
    finally:
        line.clear()
    kept_at = keep_for_machine(curve, place) if store is None else keep_curve(curve, place)
    if as_json:
        print_json(msgspec.to_builtins(curve))
        return
    to = console()
    emit(curve_table(curve), to)
    emit(f"\n{ceiling_text(curve)}", to)
    to.print(f"kept in {kept_at}", soft_wrap=True)
