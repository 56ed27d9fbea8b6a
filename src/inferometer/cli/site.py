"""`inferometer site`: the store as a static site."""

from pathlib import Path

import click

from inferometer.cli.errors import echo
from inferometer.cli.options import json_option, quiet_option, store_of, store_option

EXAMPLES = """\b
Examples:
  inferometer site -o public/
      once more after each run: only what changed is written
  inferometer site -o public/ --where tag=nightly
      only some of the runs, chosen as by inferometer list
  python -m http.server --directory public
      to look at it; opening public/index.html from the disk works too
"""


@click.command(epilog=EXAMPLES)
@click.option("--output", "-o", default="public", show_default=True, metavar="FOLDER", help="Where to write it.")
@click.option("--where", "conditions", multiple=True, metavar="CONDITION", help="Only such runs. Repeatable.")
@click.option(
    "--charts",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="Charts of the N newest runs each; histories are always drawn.",
)
@json_option
@quiet_option
@store_option
def site(output: str, conditions: tuple[str, ...], charts: int, as_json: bool, quiet: bool, store: str | None) -> None:
    """Write the store as a static site, for GitHub Pages or any web server.

    Addresses, host names, commands and environment variables are left out of it: it is made to be published.
    """
    from inferometer.cli.errors import say
    from inferometer.cli.printing import print_json
    from inferometer.conduct.dashboard import site as write_site

    built = write_site(Path(output).expanduser(), store_of(store), where=conditions, charts=charts)
    if as_json:
        print_json(built.document(), "site")
    elif not quiet:
        echo(f"{built.path}: {built.runs:,} runs; {len(built.written)} files written, {len(built.removed)} removed")
    if built.unreadable:
        some = ", ".join(built.unreadable[:3]) + (", ..." if len(built.unreadable) > 3 else "")
        many = "run" if len(built.unreadable) == 1 else "runs"
        say("warning", f"{len(built.unreadable)} {many} could not be read and not be shown: {some}")
