"""`inferometer plan` and `inferometer profiles`: check plans, show them complete, print their schema; the ready plans
by name."""

from typing import TYPE_CHECKING

import click

from inferometer.cli.errors import echo
from inferometer.cli.options import change_option, set_option

# -- plan ------------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from inferometer.plan.foreign.experiments import OpenedExperiment
    from inferometer.plan.opening import Opened

SHOW_EXAMPLES = """\b
Examples:
  inferometer plan show plan.yaml
      a plan with everything it leaves unsaid
  inferometer plan show sanity_random.yaml.in -o min=20,total_count=200
      what a template of llm-d means, and what -o changed in it
  inferometer plan show -- vllm bench serve --random-input-len 1000 --request-rate 4
      what another tool's command line means
  inferometer plan show -- guidellm benchmark run --target http://host:8000 --rate-type sweep --data prompt_tokens=256
      one that is several runs: the experiment
"""


@click.group()
def plan() -> None:
    """Check plans, show them complete, print their schema."""


@plan.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
def check(files: tuple[str, ...]) -> None:
    """Say every mistake of each FILE, a plan or an experiment; exit code 2 if there is one."""
    from inferometer.errors import PlanError
    from inferometer.plan.cases import cases_of
    from inferometer.plan.foreign.experiments import OpenedExperiment

    mistakes: list[str] = []
    hint = None
    for file in files:
        try:
            opened = _opened((file,))
            of = f"of {opened.tool}" if opened.tool else ""
            if isinstance(opened, OpenedExperiment):
                cases_of(opened.experiment, file)
                of = f"an experiment {of}".strip()
            echo(f"{file}: ok" + (f" ({of})" if of else ""))
        except PlanError as error:
            mistakes += error.mistakes
            hint = hint or error.hint
    if mistakes:
        raise PlanError(mistakes, hint)


@plan.command("show", epilog=SHOW_EXAMPLES)
@click.argument("words", metavar="FILE", nargs=-1, required=True, type=click.Path())
@change_option
@set_option
@click.option("--full", is_flag=True, help="Every setting, also where another tool's plan is shown.")
def show_plan(words: tuple[str, ...], changes: tuple[str, ...], overrides: tuple[str, ...], full: bool) -> None:
    """Print the plan in FILE with everything it leaves unsaid.

    FILE may be a profile's name, another tool's file, or after `--` its command line: these are printed as the plan
    that a person would write, with what has no counterpart in comments. What is several runs is printed as the
    experiment that it is.
    """
    from inferometer.plan.foreign import shapes as shown
    from inferometer.plan.foreign.experiments import OpenedExperiment
    from inferometer.plan.writing import to_yaml

    opened = _opened(words, overrides, changes)
    if isinstance(opened, OpenedExperiment):
        _show_experiment(opened)
        return
    if opened.tool:
        echo(f"# {opened.tool}, as a plan")
    for note in opened.notes:
        echo(f"# {note}")
    whole = full or opened.tool is None
    echo(to_yaml(opened.plan, full=True) if whole else shown.to_yaml(opened.plan, opened.said), nl=False)


def _opened(
    words: tuple[str, ...], overrides: tuple[str, ...] = (), changes: tuple[str, ...] = ()
) -> "Opened | OpenedExperiment":
    """What the words mean: a plan, or an experiment where no single plan says it."""
    from inferometer.plan.foreign.experiments import open_experiment
    from inferometer.plan.foreign.found import IsExperiment
    from inferometer.plan.opening import open_plan

    try:
        return open_plan(words, overrides, changes=changes)
    except IsExperiment:
        if words == ("-",):  # it has been read
            raise
        return open_experiment(words, overrides, changes=changes)


def _show_experiment(opened: "OpenedExperiment") -> None:
    from inferometer.plan.experiment import to_yaml

    echo(f"# {opened.tool}, as an experiment" if opened.tool else "# an experiment")
    for note in opened.notes:
        echo(f"# {note}")
    echo(to_yaml(opened.experiment), nl=False)


@plan.command()
@click.option("--experiment", is_flag=True, help="That of an experiment instead.")
def schema(experiment: bool) -> None:
    """Print the JSON schema of a plan, for editors."""
    from inferometer.cli.printing import print_json
    from inferometer.plan.experiment import json_schema as experiment_schema
    from inferometer.plan.writing import json_schema

    print_json(experiment_schema() if experiment else json_schema())


# -- profiles --------------------------------------------------------------------------------------------------------

EXAMPLES = """\b
Examples:
  inferometer profiles
      all of them, with the folders they come from
  inferometer profiles chat > chat.yaml
      one of them, to change it
  inferometer run chat --url http://localhost:8000
      one of them, run
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", required=False)
def list_profiles(name: str | None) -> None:
    """List ready plans, or print the one called NAME.

    Folders of one's own are searched first: those in $INFEROMETER_PROFILES, ./profiles, and
    ~/.config/inferometer/profiles. A file there replaces ours of the same name.
    """
    from inferometer.plan.profiles import find_profile

    if name is not None:
        echo(find_profile(name).path.read_text(encoding="utf-8"), nl=False)
        return
    _print_all()


def _print_all() -> None:
    from inferometer.plan.profiles import OURS, profiles
    from inferometer.show.console import console, emit, plain_table

    table = plain_table("profile", "what it is", wrap="what it is")
    for profile in profiles():
        sentence = profile.about.partition(". ")[0].rstrip(".")
        origin = "" if profile.origin == OURS else f"({profile.origin})"
        table.add_row(profile.name, " ".join(filter(None, [sentence, origin])))
    emit(table, console())
