"""`inferometer harnesses` and `inferometer benchmark`: other load generators, or a user's own benchmark, run instead
of ours and stored like any other run."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.errors import INVALID, echo, interrupted_code, print_message
from inferometer.cli.options import duration_of, json_option, quiet_option, store_of, store_option
from inferometer.documents.document import JsonValue
from inferometer.errors import PlanError
from inferometer.show.console import console, emit, plain_table

if TYPE_CHECKING:
    from inferometer.plan.benchmark import Benchmark
    from inferometer.plan.model import Plan
    from inferometer.record.run import Run
    from inferometer.store.store import Place


EXAMPLES = """\b
Examples:
  inferometer harnesses
      list them, and which are installed
  inferometer harnesses install guidellm
      into an environment of its own
  inferometer run --harness guidellm plan.yaml
\b
Environment variables:
  INFEROMETER_HARNESSES  folder with an environment for each harness
"""


@click.group("harnesses", invoke_without_command=True, epilog=EXAMPLES)
@json_option
@click.pass_context
def harnesses(context: click.Context, as_json: bool) -> None:
    """List other load generators that run in Inferometer's place, or install one."""
    if context.invoked_subcommand is not None:
        return
    from inferometer.exchange.harness import HARNESSES, NAMES, OURS, harness_named
    from inferometer.exchange.harness.environments import program_of

    rows = {name: (text, "built in") for name, text in OURS.items()}
    for name in HARNESSES:
        harness = harness_named(name)
        program = program_of(harness)
        absent = "not installed" if harness.requirements else "by its image only"
        rows[name] = (harness.title, str(program) if program else absent)
    if as_json:
        from inferometer.cli.printing import print_json

        print_json(
            {"harnesses": {name: {"title": rows[name][0], "program": rows[name][1]} for name in NAMES}}, "harnesses"
        )
        return

    table = plain_table("harness", "tool", "program", wrap="tool")
    for name in NAMES:
        table.add_row(name, *rows[name])
    emit(table, console())


@harnesses.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--python", metavar="PATH", help="Python for the environment. [default: this one, if it is new enough]")
@quiet_option
def install(names: tuple[str, ...], python: str | None, quiet: bool) -> None:
    """Install harnesses from PyPI, each into an environment of its own."""
    from inferometer.exchange.harness import environments, harness_named

    chosen = [harness_named(name) for name in names]
    for harness in chosen:
        program = environments.install(
            harness, python=python, notes=lambda text: None if quiet else print_message("note", text)
        )
        echo(str(program))


def print_rendered(plan: "Plan", names: Sequence[str]) -> None:
    """What each harness would be given: its command and its files."""
    from inferometer.conduct.harness import rendered_for
    from inferometer.exchange.harness import OURS

    for name in names:
        if name in OURS:
            echo(f"# {name}: {OURS[name]}")
            continue
        rendered, differences = rendered_for(plan, name)
        for difference in differences:
            echo(f"# {name}: {difference}")
        echo(shlex.join(rendered.argv))
        for file, text in rendered.files.items():
            echo(f"\n# {file}\n{text}")


def conduct_harnesses(
    plan: "Plan",
    names: Sequence[str],
    store: "Place",
    *,
    as_json: bool,
    quiet: bool,
    wait_s: float,
    time_limit: str | None = None,
    tags: Sequence[str] = (),
) -> int:
    """The runs of a plan by each harness, kept and printed; the exit code is the worst of them."""
    from inferometer.cli.printing import exit_code
    from inferometer.conduct.harness import TIME_LIMIT_S, HarnessOptions, run_harnesses
    from inferometer.show.progress import ProgressLine
    from inferometer.store.manifest import checked_label
    from inferometer.store.store import open_store

    checked_tags = [checked_label(tag, "tag") for tag in tags]
    limit_s = TIME_LIMIT_S if time_limit is None else duration_of("--harness-timeout", time_limit)
    line = ProgressLine(lines=1 if as_json else math.inf)

    def note(text: str) -> None:
        line.clear()
        print_message("note", text)

    try:
        runs = run_harnesses(
            plan,
            list(dict.fromkeys(names)),
            store=store,
            watch=None if quiet else line,
            notes=(lambda _text: None) if quiet else note,
            options=HarnessOptions(time_limit_s=limit_s, wait_for_target_s=wait_s),
        )
    finally:
        line.clear()
    for run in runs if checked_tags else ():
        open_store(store).tag(run.id, checked_tags)
    _print_runs(runs, as_json=as_json)
    return max(exit_code(run, shown=not as_json and len(runs) == 1) for run in runs)


def _print_runs(runs: "Sequence[Run]", *, as_json: bool) -> None:
    """One as any run, several as a table of what each tool reports."""
    from inferometer.cli.printing import print_json, print_run
    from inferometer.record.run import document
    from inferometer.show.imported import harness_of, harnesses_table

    if len(runs) == 1:
        print_run(runs[0], as_json=as_json, slowest=0)
    elif as_json:
        print_json({"runs": [document(run) for run in runs]}, "harnesses")
    else:
        emit(harnesses_table(runs), console())
        echo("")
        for run in runs:
            echo(f"{harness_of(run):16}inferometer show {run.id}")


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


def _pairs(texts: tuple[str, ...], flag: str) -> dict[str, JsonValue]:
    from inferometer.plan.text import parse_yaml

    return {name: parse_yaml(value, f"{flag} {name}")[0] for name, value in _texts(texts, flag).items()}


def _texts(texts: tuple[str, ...], flag: str = "--env") -> dict[str, str]:

    wrong = [f"{flag} {text}: must be NAME=VALUE" for text in texts if not text.partition("=")[1]]
    if wrong:
        raise PlanError(wrong)
    return {text.partition("=")[0].strip(): text.partition("=")[2] for text in texts}
