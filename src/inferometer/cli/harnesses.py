"""`inferometer harnesses` and `inferometer benchmark`: other load generators, or a user's own benchmark, instead of our
load generator; their results are stored like any other run."""

import click

from inferometer.cli.options import json_option, quiet_option, store_option, work_in

EXAMPLES = """\b
Examples:
  inferometer harnesses
      list them, and show which are installed
  inferometer harnesses install guidellm
      install it into a virtual environment of its own
  inferometer run --harness guidellm plan.yaml
\b
Environment variables:
  INFEROMETER_HARNESSES  folder with the virtual environments of the harnesses
"""


@click.group("harnesses", invoke_without_command=True, epilog=EXAMPLES)
@json_option
@work_in("inferometer.cli.work.harnesses:harnesses")
def harnesses() -> None:
    """List or install other load generators (guidellm, aiperf, ...) that can send the load."""


@harnesses.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--python", metavar="PATH", help="Python for the virtual environment. [default: this one, if it is new enough]"
)
@quiet_option
@work_in("inferometer.cli.work.harnesses:install")
def install() -> None:
    """Install harnesses from PyPI, each into a virtual environment of its own."""


BENCHMARK_EXAMPLES = """\b
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


@click.command(epilog=BENCHMARK_EXAMPLES, context_settings={"ignore_unknown_options": False})
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
@click.option(
    "--direction",
    type=click.Choice(["higher", "lower"]),
    help="Which direction is better, for measures that do not state it.",
)
@click.option("--timeout", metavar="TIME", help="Stop the benchmark after this time. [default: 1h]")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Set an environment variable. Repeatable.")
@click.option("--folder", metavar="FOLDER", help="Working directory.")
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.benchmark:benchmark")
def benchmark() -> None:
    """Run COMMAND and store the measurements that it prints as a run.

    COMMAND prints JSON: an object with name, value, unit and direction (higher, lower or none), a list of such objects,
    or one object per line; other lines are its log. Times, sizes and percentages are converted; other units stay as
    they are.
    """
