"""`inferometer plan`: check plans, show them complete, print their schema."""

import click

from inferometer.cli.options import set_option


@click.group()
def plan() -> None:
    """Check plans, show them complete, print their schema."""


@plan.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
def check(files: tuple[str, ...]) -> None:
    """Say every mistake of each FILE; exit code 2 if there is one."""
    from inferometer.errors import PlanError
    from inferometer.plan.reading import read_plan

    mistakes: list[str] = []
    hint = None
    for file in files:
        try:
            read_plan(file)
            click.echo(f"{file}: ok")
        except PlanError as error:
            mistakes += error.mistakes
            hint = hint or error.hint
    if mistakes:
        raise PlanError(mistakes, hint)


@plan.command("show")
@click.argument("file", type=click.Path())
@set_option
def show_plan(file: str, overrides: tuple[str, ...]) -> None:
    """Print the plan in FILE with everything it leaves unsaid."""
    from inferometer.plan.reading import read_plan
    from inferometer.plan.writing import to_yaml

    click.echo(to_yaml(read_plan(file, overrides), full=True), nl=False)


@plan.command()
def schema() -> None:
    """Print the JSON schema of a plan, for editors."""
    from inferometer.cli.printing import print_json
    from inferometer.plan.schema import json_schema

    print_json(json_schema())
