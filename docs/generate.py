"""Writes docs/reference from the code: the commands, the plan's fields, the measures, and what a run leaves behind.
Run it after a change; a test holds the pages against the code."""

import functools
import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import msgspec
import yaml

REFERENCE = Path(__file__).parent / "reference"
MEANINGS = Path(__file__).parent / "meanings.yaml"
MADE = "<!-- made by docs/generate.py from the code: change it there -->\n\n"


def pages() -> dict[str, str]:
    """Name of the page to its text."""
    return {
        "cli.md": MADE + "\n".join(cli_page()) + "\n",
        "plan.md": MADE + "\n".join(plan_page()) + "\n",
        "experiment.md": MADE + "\n".join(experiment_page()) + "\n",
        "measures.md": MADE + "\n".join(measures_page()) + "\n",
        "results.md": MADE + "\n".join(results_page()) + "\n",
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
    yield "Timestamps are nanoseconds on one monotonic clock; measures are in the given unit.\n"
    yield "| measure | title | unit | better | formula | |\n|---|---|---|---|---|---|"
    for name, measure in REGISTRY.items():
        told = measure.name
        yield (
            f"| `{name}` | {told.title} | {told.unit} | {told.direction or ''} "
            f"| `{_cell(measure.formula)}` | {_cell(measure.sentence)} |"
        )


# -- results ---------------------------------------------------------------------------------------------------------

FILES = {
    "run.json": "start time, state and kind: `run` of the document below",
    "plan.yaml": "the plan with all defaults and without secrets; `inferometer run plan.yaml` repeats the run",
    "environment.json": "machine, versions, target: `environment` of the document below",
    "summary.json": "the numbers: `summary` of the document below",
    "verdict.json": "whether they can be trusted: `verdict` of the document below",
    "records.parquet": "one row per request, see [records.parquet](#recordsparquet)",
    "samples.parquet": "telemetry sampled during the load, see [samples.parquet](#samplesparquet)",
    "shards.json": "the clock of each worker, and damaged logs",
    "manifest.json": "size and SHA-256 of every other file, written last: a run without it was killed",
    "marks.json": "tags, baselines and experiment of the run; the only file that may change later",
    "log-N.bin, log-observer.bin": "records and samples during the load; deleted once the Parquet files are written",
    "server.log": "output of a started server; `prepare-N.log` of its prepare steps, `engine.log` of an "
    "offline engine, `stdout.log` and `stderr.log` of your own benchmark, `matched.log` of a startup, "
    "`harness.log` and the rendered files of another tool",
}
RUN = {
    "id": "name of the run and of its folder",
    "started": "wall clock time, ISO 8601 with time zone",
    "folder": "folder of the run; null: not stored",
    "state": "how the run ended, see below",
    "kind": "what was measured, see below",
    "source": "only of an imported run: the format that it came from",
}
SAMPLES = {
    "source": "what was sampled: the endpoint, the GPU, the host",
    "name": "name of the series",
    "at": "timestamp in nanoseconds, on the clock of the records",
    "value": "in the unit of the series",
    "labels": "labels of a series of a metrics endpoint",
}
_PLAIN = {int: "whole number", float: "number", str: "text", bool: "true or false", bytes: "bytes", Any: "any"}
_UNITS = (  # by the end of a name
    ("_bytes_per_s", "bytes per second"),
    ("_per_s", "per second"),
    ("_share", "0 to 1"),
    ("_bytes", "bytes"),
    ("_at", "instant in ns"),
    ("_ns", "nanoseconds"),
    ("_hz", "hertz"),
    ("_s", "seconds"),
    ("_w", "watts"),
    ("_c", "degrees Celsius"),
)


def results_page() -> Iterator[str]:
    """What a run leaves behind: its folder, its document, and its tables."""
    from inferometer.record.files import schema_of
    from inferometer.record.run import KINDS, STATES
    from inferometer.record.summary import Summary
    from inferometer.record.verdict import Verdict

    yield "# Results\n"
    yield "A run is stored in a folder, `<store>/runs/<id>`; `inferometer show RUN --json` prints everything but its"
    yield "tables as one document, and [Python](../guides/python.md) has the same: `run.summary`, `run.verdict`,"
    yield "`run.plan`, `run.environment`, `run.records`. Times are seconds, sizes bytes, shares 0 to 1. Unknown values"
    yield "and missing sections are null, never 0. Fields may be added without notice; if a field changes"
    yield "its meaning or is removed, the number in `schema` increases.\n"
    yield "## Files\n\n| file | |\n|---|---|"
    yield from (f"| `{name}` | {_cell(about)} |" for name, about in FILES.items())
    yield "\n## Document\n"
    yield "`--json` of `run`, `show`, `simulate` and others.\n\n| field | type | |\n|---|---|---|"
    yield f"| `schema` | text | `{schema_of('run')}` |"
    yield "| `run` | [run](#run) | which run it is |"
    yield "| `verdict` | [Verdict](#verdict) or null | can the numbers be trusted; null: running, or killed |"
    yield "| `summary` | [Summary](#summary) | the numbers |"
    yield "| `plan` | [plan](#plan) | the plan of the run |"
    yield "| `environment` | [Environment](#environment) | machine, versions and target |"
    yield "| `slowest` | list | only with `--slowest N`: the slowest requests |"
    yield "\n`verdict` and `summary` have a `schema` of their own.\n\n## run\n\n| field | |\n|---|---|"
    yield from (f"| `{name}` | {_cell(about)} |" for name, about in RUN.items())
    yield "\n| state | |\n|---|---|"
    yield from (f"| `{name}` | {_cell(about)} |" for name, about in STATES.items())
    yield "\n| kind | |\n|---|---|"
    yield from (f"| `{name}` | {_cell(about)} |" for name, about in KINDS.items())
    kinds = structs_of(Verdict, Summary)
    for kind in kinds:
        yield from _struct(kind)
    yield from _plan_and_environment(kinds)
    yield from _tables()


def structs_of(*roots: type) -> list[type]:
    """The typed parts that these are made of, each before its own parts."""
    found: list[type] = []

    def visit(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind in found:
                return
            found.append(kind)
            for base in _bases(kind):
                visit(base)
            for part in get_type_hints(kind).values():
                visit(part)
        for part in get_args(kind):
            visit(part)

    for root in roots:
        visit(root)
    return found


def own_fields(kind: type) -> dict[str, Any]:
    """Fields that it does not have from its base."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__annotations__}


def meaning_of(kind: type, field: str) -> str:
    """The comment behind the field, else what docs/meanings.yaml says, else the unit that its name ends with."""
    told = _comments(kind).get(field) or _meanings().get(kind.__name__, {}).get(field) or ""
    return told or next((unit for end, unit in _UNITS if field.endswith(end)), "")


@functools.cache
def _meanings() -> dict[str, dict[str, str]]:
    read: dict[str, dict[str, str]] = yaml.safe_load(MEANINGS.read_text(encoding="utf-8"))
    return read


@functools.cache
def _comments(kind: type) -> dict[str, str]:
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        if re.fullmatch(r" {4}# .*", line):
            above.append(line.strip("# "))
            continue
        field = re.match(r" {4}(\w+): [^#]*(?:#\s*(.*))?", line)
        if field:
            found[field[1]] = " ".join([*above, field[2] or ""]).strip()
        above = []
    return found


def _bases(kind: type) -> list[type]:
    from inferometer.record.environment import EnvironmentPart  # has no field in JSON

    return [base for base in kind.__bases__ if getattr(base, "__struct_fields__", ()) and base is not EnvironmentPart]


def _struct(kind: type) -> Iterator[str]:
    from inferometer.record.encoding import FLAT, WHERE_KNOWN

    yield f"\n## {kind.__name__}\n"
    if kind.__doc__ and "__doc__" in vars(kind):
        yield _cell(kind.__doc__) + "\n"
    for base in _bases(kind):
        yield f"All fields of [{base.__name__}](#{base.__name__.lower()}), and:\n"
    yield "| field | type | |\n|---|---|---|"
    for name, hint in own_fields(kind).items():
        meaning = _cell(meaning_of(kind, name))
        if FLAT.get(kind) == name:
            meaning = _beside(f"{meaning}; in JSON the entries are fields of the object itself")
        elif name in WHERE_KNOWN.get(kind, ()) and kind.__name__ not in ("Environment", "MeasuredTarget"):
            meaning = _beside(f"{meaning}; omitted from JSON if null")
        yield f"| `{name}` | {_words_of(hint)} | {meaning} |"


def _beside(text: str) -> str:
    return text.removeprefix("; ")


def _words_of(hint: Any) -> str:
    """A type in plain words; one of our own links to its section."""
    from inferometer.record.summary import Ends

    if hint == Ends:
        return "[low, high]"
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _words_of(parts[0])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if part is types.NoneType else _words_of(part) for part in parts)
    if origin is list:
        return f"list of {_words_of(parts[0])}"
    if origin is dict:
        return f"by name: {_words_of(parts[1])}"
    return f"[{hint.__name__}](#{hint.__name__.lower()})"


def _plan_and_environment(described_above: list[type]) -> Iterator[str]:
    from inferometer.plan.model import Plan
    from inferometer.record.environment import Environment

    yield "\n## plan\n"
    yield "As it was run, with all defaults and without secrets; [the plan](plan.md) has every field. An imported run"
    yield "has the settings in its file.\n\n| field | |\n|---|---|"
    described = Plan.model_json_schema()["properties"]
    yield from (f"| `{name}` | {_cell(described[name].get('description', ''))} |" for name in Plan.model_fields)
    for kind in structs_of(Environment):
        if kind not in described_above:
            yield from _struct(kind)
        if kind is Environment:
            yield "\nA measured run has the fields up to `target`, and `nonce`; a simulated one has `model` and `time`,"
            yield "an imported one those in its file. Others, such as the tags of a benchmark, are stored unchanged."


def _tables() -> Iterator[str]:
    from inferometer.measure.registry import REGISTRY, measure_columns
    from inferometer.record.record import OUTCOMES, Record

    yield "\n## records.parquet\n"
    yield "One row per request. Timestamps (`*_at`) are nanoseconds on one monotonic clock: only their differences are"
    yield "meaningful. `read_*` are lists with an entry per read that carried a token. No derived number is stored.\n"
    yield "| column | type | |\n|---|---|---|"
    for name, hint in own_fields(Record).items():
        words = "list of whole number" if name.startswith("read_") else _words_of(hint)
        yield f"| `{name}` | {words} | {_cell(meaning_of(Record, name))} |"
    yield "\n| outcome | |\n|---|---|"
    yield from (f"| `{name}` | {_cell(about)} |" for name, about in OUTCOMES.items())
    yield "\n## run.records.to_arrow()\n"
    yield "`run.records.to_arrow()`, `to_pandas()` and `to_polars()` have all columns of records.parquet in order of"
    yield "the schedule, and the measures of each request. Null: undefined, or the request was not"
    yield "answered.\n\n| column | unit | formula | |\n|---|---|---|---|"
    for name in measure_columns():
        measure = REGISTRY[name]
        yield f"| `{name}` | {measure.name.unit} | `{_cell(measure.formula)}` | {_cell(measure.sentence)} |"
    yield "\n## samples.parquet\n"
    yield "One row per sample: `run.samples`.\n\n| column | |\n|---|---|"
    yield from (f"| `{name}` | {_cell(about)} |" for name, about in SAMPLES.items())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
        print(f"docs/reference/{name}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()
