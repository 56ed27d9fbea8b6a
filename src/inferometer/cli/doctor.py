"""`inferometer doctor`: what will go wrong, before it does."""

from pathlib import Path
from typing import Any

import click

from inferometer.cli.options import json_option, store_of, store_option

EXAMPLES = """\b
Examples:
  inferometer doctor
      this machine: cores, clocks, limits, GPUs, containers, store
  inferometer doctor --url http://localhost:8000 --model Qwen/Qwen3-0.6B --concurrency 2000
      and whether that endpoint serves that model, with room for so many connections
  inferometer doctor --server vllm --tokenizer Qwen/Qwen3-0.6B
      and whether vLLM could be started, and the tokenizer be had
  inferometer doctor --json | jq -r '.checks[] | select(.word == "error") | .remedy'
"""


@click.command(epilog=EXAMPLES)
@click.option("--url", multiple=True, metavar="URL", help="A server that will be measured. Repeatable.")
@click.option("--model", metavar="NAME", help="The model it should serve.")
@click.option("--api", metavar="API", help="As `run` would speak to it. [default: completions]")
@click.option("--server", metavar="KIND", help="A server that will be started: vllm, sglang, container, ...")
@click.option("--tokenizer", metavar="NAME", help="A folder, a file, or a name on the hub.")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    metavar="N",
    help="Connections there should be room for.",
)
@click.option("--port", "ports", type=click.IntRange(1, 65535), multiple=True, help="A port to listen at. Repeatable.")
@json_option
@store_option
def doctor(as_json: bool, store: Path | None, **asked: Any) -> int:
    """Say what will go wrong before it does, and what to do about it.

    Exit code 1 where there is an error: a run would fail, or measure something else. Warnings cost accuracy.
    """
    from inferometer.cli.errors import LIMIT_FAILED
    from inferometer.conduct.doctor import Asked, document, examine, has_error

    _check_server(asked["server"])
    groups = examine(Asked(**asked), store_of(store))
    if as_json:
        from inferometer.cli.printing import print_json

        print_json(document(groups), "doctor")
    else:
        from inferometer.show.console import console
        from inferometer.show.instrument import print_checks

        print_checks(groups, console())
    return LIMIT_FAILED if has_error(groups) else 0


def _check_server(server: str | None) -> None:
    from inferometer.plan.reading import plan_from

    if server is not None and server not in ("external", "container", "command"):
        plan_from({"server": {"type": server, "model": "any"}}, where="--server")
