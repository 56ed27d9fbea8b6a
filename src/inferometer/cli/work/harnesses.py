"""Lists the load generators of other tools, and installs them."""

from inferometer.cli.errors import echo, print_message
from inferometer.exchange.harness import BUILT_IN, HARNESSES, NAMES, environments, harness_named
from inferometer.exchange.harness.environments import program_of
from inferometer.show.console import console, emit, plain_table, print_json


def harnesses(as_json: bool) -> None:
    rows = {name: (text, "built in") for name, text in BUILT_IN.items()}
    for name in HARNESSES:
        harness = harness_named(name)
        program = program_of(harness)
        absent = "not installed" if harness.requirements else "only as an image"
        rows[name] = (harness.title, str(program) if program else absent)
    if as_json:
        print_json(
            {"harnesses": {name: {"title": rows[name][0], "program": rows[name][1]} for name in NAMES}}, "harnesses"
        )
        return

    table = plain_table("harness", "tool", "program", wrap="tool")
    for name in NAMES:
        table.add_row(name, *rows[name])
    emit(table, console())


def install(names: tuple[str, ...], python: str | None, quiet: bool) -> None:
    chosen = [harness_named(name) for name in names]
    for harness in chosen:
        program = environments.install(
            harness, python=python, notes=lambda text: None if quiet else print_message("note", text)
        )
        echo(str(program))
