"""`inferometer harnesses`, and `inferometer run --harness`: other load generators in our place."""

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from inferometer.cli.errors import echo, print_message
from inferometer.cli.options import json_option, quiet_option

if TYPE_CHECKING:
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
    from inferometer.exchange.harness.environments import program_of
    from inferometer.exchange.harness.registry import HARNESSES, NAMES, OURS, harness_named

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
    from inferometer.show.console import console, emit, plain_table

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
    from inferometer.exchange.harness import environments
    from inferometer.exchange.harness.registry import harness_named

    chosen = [harness_named(name) for name in names]
    for harness in chosen:
        program = environments.install(
            harness, python=python, notes=lambda text: None if quiet else print_message("note", text)
        )
        echo(str(program))


def print_rendered(plan: "Plan", names: Sequence[str]) -> None:
    """What each harness would be given: its command and its files."""
    from inferometer.conduct.harness import rendered_for
    from inferometer.exchange.harness.registry import OURS

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
    from inferometer.vocabulary import seconds

    checked_tags = [checked_label(tag, "tag") for tag in tags]
    limit_s = TIME_LIMIT_S if time_limit is None else seconds(time_limit)
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
    from inferometer.show.console import console, emit
    from inferometer.show.harnesses import harness_of, harnesses_table

    if len(runs) == 1:
        print_run(runs[0], as_json=as_json, slowest=0)
    elif as_json:
        print_json({"runs": [document(run) for run in runs]}, "harnesses")
    else:
        emit(harnesses_table(runs), console())
        echo("")
        for run in runs:
            echo(f"{harness_of(run):16}inferometer show {run.id}")
