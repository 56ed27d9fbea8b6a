"""`inferometer benchmark`: somebody's own benchmark, kept like any other run."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.options import json_option, quiet_option, store_of, store_option

if TYPE_CHECKING:
    from inferometer.plan.benchmark import Benchmark
    from inferometer.store.store import Place

EXAMPLES = """\b
Examples:
  inferometer benchmark -- ./my-bench --json
      a command that prints {"name": "decode", "value": 8.1, "unit": "ms", "direction": "lower"}
  inferometer benchmark --output results.json --timeout 10min -- make bench
      a command that writes a file; stop it after ten minutes
  inferometer benchmark --python bench.kernels:decode --arg batch=8
      a Python function that returns the same
  inferometer benchmark --name decode --direction higher -- cargo bench-json
      github-action-benchmark arrays have no direction, so set it here
  inferometer check latest
      check for a regression, as with any other run
"""


@click.command(epilog=EXAMPLES, context_settings={"ignore_unknown_options": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--python", "entry", metavar="MODULE:FUNCTION", help="Call a Python function instead of a command.")
@click.option(
    "--arg",
    "args",
    multiple=True,
    metavar="NAME=VALUE",
    help="Argument of the function, or value of {NAME} in the command.",
)
@click.option("--name", metavar="NAME", help="Name of the benchmark. [default: name of the command or function]")
@click.option(
    "--output", "--file", "output", metavar="FILE", help="File to which the command writes its JSON. [default: stdout]"
)
@click.option("--direction", type=click.Choice(["higher", "lower"]), help="Better direction, for measures without one.")
@click.option("--timeout", metavar="TIME", help="Stop the benchmark after this time. [default: 1h]")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Set an environment variable. Repeatable.")
@click.option("--folder", metavar="FOLDER", help="Working directory.")
@json_option
@quiet_option
@store_option
def benchmark(
    command: tuple[str, ...],
    entry: str | None,
    args: tuple[str, ...],
    env: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    store: Path | None,
    **options: str | None,
) -> int:
    """Run COMMAND and store the measurements that it prints as a run.

    COMMAND prints JSON: an object with name, value, unit and direction (higher, lower or none), a list of such objects,
    or one object per line; other lines are its log. Times, sizes and percentages are converted; other units stay as
    they are.
    """
    from inferometer.errors import PlanError
    from inferometer.plan.benchmark import benchmark_from

    if not command and entry is None:
        raise PlanError("benchmark: needs a command or a function", "inferometer benchmark -- ./my-bench --json")
    settings = {name: value for name, value in options.items() if value is not None}
    argv = list(command[0].split()) if len(command) == 1 and " " in command[0] else list(command)
    made = benchmark_from(
        settings
        | ({"command": argv} if argv else {})
        | ({"python": entry} if entry else {})
        | {"args": _pairs(args, "--arg"), "env": {name: str(value) for name, value in _texts(env).items()}}
    )
    return conduct(made, store_of(store), as_json=as_json, quiet=quiet)


def conduct(made: "Benchmark", store: "Place", *, as_json: bool, quiet: bool) -> int:
    """Run it, print the run, and give its exit code."""
    from inferometer.cli.errors import INVALID, interrupted_code, print_message
    from inferometer.cli.printing import print_run
    from inferometer.conduct.benchmark import run_benchmark

    kept = run_benchmark(made, store, echo=not quiet)
    print_run(kept, as_json=as_json, slowest=0)
    if kept.state == "interrupted":
        print_message("warning", "interrupted; the output so far is stored")
        return interrupted_code()
    if kept.status == "invalid" or kept.state == "failed":
        reasons = [reason.sentence for reason in kept.doubts] if as_json else ["see the reason above"]
        print_message("error", f"not valid as a measurement: {'; '.join(reasons)}")
        print_message("hint", f"the complete output is in {kept.folder}")
        return INVALID
    return 0


def _pairs(texts: tuple[str, ...], flag: str) -> dict[str, object]:
    from inferometer.plan.text import parse_yaml

    return {name: parse_yaml(value, f"{flag} {name}")[0] for name, value in _texts(texts, flag).items()}


def _texts(texts: tuple[str, ...], flag: str = "--env") -> dict[str, str]:
    from inferometer.errors import PlanError

    wrong = [f"{flag} {text}: must be NAME=VALUE" for text in texts if not text.partition("=")[1]]
    if wrong:
        raise PlanError(wrong)
    return {text.partition("=")[0].strip(): text.partition("=")[2] for text in texts}
