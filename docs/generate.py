"""Writes docs/reference from the code: the commands, the plan's fields and the measures. Run it after a change;
a test holds the pages against the code."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

REFERENCE = Path(__file__).parent / "reference"
MADE = "<!-- made by docs/generate.py from the code: change it there -->\n\n"


def pages() -> dict[str, str]:
    """Name of the page to its text."""
    return {
        "cli.md": MADE + "\n".join(cli_page()) + "\n",
        "plan.md": MADE + "\n".join(plan_page()) + "\n",
        "experiment.md": MADE + "\n".join(experiment_page()) + "\n",
        "measures.md": MADE + "\n".join(measures_page()) + "\n",
    }


def cli_page() -> Iterator[str]:
    """Every command with its arguments and options."""
    from inferometer.cli.group import COMMANDS, group

    yield "# Commands\n"
    yield "| command | does |\n|---|---|"
    for name, (_, does) in COMMANDS.items():
        yield f"| [`{name}`](#inferometer-{name}) | {does} |"
    yield "\nEvery command takes `--traceback` (or `INFEROMETER_TRACEBACK=1`) and `--help`.\n"
    yield from _exit_codes()
    root = click.Context(group, info_name="inferometer")
    for name in COMMANDS:
        command = group.get_command(root, name)
        assert command is not None, name
        yield from _command(command, f"inferometer {name}")


def _exit_codes() -> Iterator[str]:
    from inferometer.cli.errors import EXIT_CODES

    yield "## Exit codes\n\n| code | means |\n|---|---|"
    for code, meaning in EXIT_CODES.items():
        yield f"| {code} | {_cell(meaning)} |"


def _command(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"\n## {path}\n"
    yield f"    {' '.join([path, *command.collect_usage_pieces(context)])}\n"
    yield _paragraphs(command.help or "")
    options = [record for each in command.params if (record := _option(each, context))]
    if options:
        yield "| option | |\n|---|---|"
        yield from options
    if command.epilog:
        yield "\n" + "\n".join(f"    {line}".rstrip() for line in command.epilog.replace("\b\n", "").splitlines())
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            yield from _command(part, f"{path} {name}")


def _option(parameter: click.Parameter, context: click.Context) -> str | None:
    if parameter.name == "traceback" or not isinstance(parameter, click.Option):
        return None
    record = parameter.get_help_record(context)
    if record is None:
        return None
    return f"| `{_cell(record[0])}` | {_cell(record[1])} |"


def _paragraphs(text: str) -> str:
    return inspect.cleandoc(text).replace("\b\n", "") + "\n"


def plan_page() -> Iterator[str]:
    """Every section of a plan with its fields."""
    from inferometer.plan.model import Plan

    yield "# The plan\n"
    yield "`inferometer plan schema` prints the JSON schema for editors; `--set path=value` sets any of these.\n"
    schema = Plan.model_json_schema()
    yield from _section("plan", schema)
    for name, section in schema["$defs"].items():
        yield from _section(name, section)


def experiment_page() -> Iterator[str]:
    """Every section of an experiment with its fields, and those of work that is no plan."""
    from inferometer.plan.experiment import Experiment
    from inferometer.plan.offline import Latency, Throughput

    yield "# The experiment\n"
    yield "`inferometer plan schema --experiment` prints the JSON schema for editors.\n"
    schema = Experiment.model_json_schema()
    yield from _section("experiment", schema)
    for name, section in schema["$defs"].items():
        yield from _section(name, section)
    for work in (Latency, Throughput):
        yield from _section(work.__name__.lower(), work.model_json_schema())


def _section(name: str, schema: dict[str, Any]) -> Iterator[str]:
    schema = next((part for part in schema.get("anyOf", [schema]) if "properties" in part), schema)
    if "properties" not in schema:
        return
    yield f"\n## {name}\n"
    yield _cell(schema.get("description", "")) + "\n"
    yield "| field | type | default | |\n|---|---|---|---|"
    for field, about in schema["properties"].items():
        default = _default(about, field in schema.get("required", []))
        yield f"| `{field}` | {_type(about)} | {default} | {_cell(about.get('description', ''))} |"


def _default(about: dict[str, Any], required: bool) -> str:
    if required:
        return "required"
    value = about.get("default")
    return "" if value is None or value in ({}, []) or isinstance(value, dict) else f"`{value}`"


def _type(about: dict[str, Any]) -> str:
    """A JSON schema's type in a few words; a section links to its own heading."""
    if "$ref" in about:
        name = about["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "enum" in about:
        return ", ".join(f"`{value}`" for value in about["enum"])
    if "const" in about:
        return f"`{about['const']}`"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in about:
            return " or ".join(dict.fromkeys(_type(part) for part in about[several] if part.get("type") != "null"))
    if about.get("type") == "array":
        return f"list of {_type(about.get('items', {}))}"
    return str(about.get("type", "any"))


def measures_page() -> Iterator[str]:
    """Every measure with its unit, direction, formula and one sentence."""
    from inferometer.measure.registry import REGISTRY

    yield "# Measures\n"
    yield "`first_at` and `last_at` are the first and last read that carried a token."
    yield "Instants are nanoseconds on one monotonic clock, measures are in the unit named.\n"
    yield "| measure | title | unit | better | formula | |\n|---|---|---|---|---|---|"
    for name, measure in REGISTRY.items():
        told = measure.name
        yield (
            f"| `{name}` | {told.title} | {told.unit} | {told.direction or ''} "
            f"| `{_cell(measure.formula)}` | {_cell(measure.sentence)} |"
        )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
        print(f"docs/reference/{name}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()
