"""`inferometer profiles`: the ready plans by name, and what one of them says."""

import click

from inferometer.cli.echo import echo

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
