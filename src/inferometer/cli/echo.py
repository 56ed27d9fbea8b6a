"""What commands print as plain lines; the one place of the command line where text goes out without a console."""

import click

from inferometer.record.harmless import harmless


def echo(text: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Names of models, plans and files may hold anything: nothing in them commands the terminal."""
    click.echo(harmless(str(text)), nl=nl, err=err)
