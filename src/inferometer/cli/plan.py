"""`inferometer plan`, `profiles` and `init`: check plans, show them with all defaults, print their schema; the
built-in plans; and a commented plan to start from."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import echo, print_message
from inferometer.cli.options import all_flags, change_option, changed_plan, json_option, set_option
from inferometer.errors import PlanError
from inferometer.show.console import console, emit, plain_table

if TYPE_CHECKING:
    from inferometer.plan.foreign.common import AccountEntry
    from inferometer.plan.foreign.recognise import OpenedExperiment
    from inferometer.plan.opening import Opened


SHOW_EXAMPLES = """\b
Examples:
  inferometer plan show plan.yaml
      a plan with all its defaults
  inferometer plan show sanity_random.yaml.in -o min=20,total_count=200
      a template of llm-d as a plan, with the changes of -o
  inferometer plan show -- vllm bench serve --random-input-len 1000 --request-rate 4
      another tool's command line as a plan
  inferometer plan show --explain config.yml
      every key of another tool's file, and how it was translated
  inferometer plan show -- guidellm benchmark run --target http://host:8000 --rate-type sweep --data prompt_tokens=256
      a command line that makes several runs, as an experiment
"""


@click.group()
def plan() -> None:
    """Check plans, show them with all defaults, print their schema."""


@plan.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
def check(files: tuple[str, ...]) -> None:
    """Report all errors in each FILE, a plan or an experiment; exit code 2 if there are any."""
    from inferometer.plan.cases import cases_of
    from inferometer.plan.foreign.recognise import OpenedExperiment

    mistakes: list[str] = []
    hint = None
    for file in files:
        try:
            opened = _opened((file,))
            of = f"of {opened.tool}" if opened.tool else ""
            if isinstance(opened, OpenedExperiment):
                plans = [case.plan for case in cases_of(opened.experiment, file)]
                of = f"an experiment {of}".strip()
            else:
                plans = [opened.plan]
            _check_routers(plans, file)
            echo(f"{file}: ok" + (f" ({of})" if of else ""))
        except PlanError as error:
            mistakes += error.mistakes
            hint = hint or error.hint
    if mistakes:
        raise PlanError(mistakes, hint)


def _check_routers(plans: "Iterable[object]", file: str) -> None:
    """Policies are known to the router alone, and not to plans. Experiments may also have benchmarks and offline
    cases, which have no router."""
    from inferometer.plan.model import Plan
    from inferometer.plan.server import Router
    from inferometer.router.settings import check_policy

    servers = [plan.server for plan in plans if isinstance(plan, Plan)]
    routers = [server.router or Router() for server in servers if server is not None and server.has_own_router]
    try:
        for router in routers:
            check_policy(router)
    except PlanError as error:
        error.name(file)
        raise


@plan.command("show", epilog=SHOW_EXAMPLES)
@click.argument("args", metavar="FILE", nargs=-1, required=True, type=click.Path())
@change_option
@set_option
@click.option("--full", is_flag=True, help="Show every setting, also for plans of other tools.")
@click.option(
    "--explain", is_flag=True, help="For another tool's plan: list every key, how it was translated, and where to."
)
def show_plan(
    args: tuple[str, ...], changes: tuple[str, ...], overrides: tuple[str, ...], full: bool, explain: bool
) -> None:
    """Print the plan in FILE with all defaults.

    FILE may be a profile's name, another tool's file, or after `--` another tool's command line. Plans of other tools
    are converted; settings without a counterpart are listed in comments. A file that makes several runs is printed as
    an experiment.
    """
    from inferometer.plan.foreign import shapes as shown
    from inferometer.plan.foreign.recognise import OpenedExperiment
    from inferometer.plan.text import to_yaml

    if explain:
        _explain(args, changes)
        return
    opened = _opened(args, overrides, changes)
    if isinstance(opened, OpenedExperiment):
        _show_experiment(opened)
        return
    if opened.tool:
        echo(f"# {opened.tool}, as a plan")
    for note in opened.notes:
        echo(f"# {note}")
    whole = full or opened.tool is None
    echo(to_yaml(opened.plan, full=True) if whole else shown.to_yaml(opened.plan, opened.mapping), nl=False)


def _explain(args: tuple[str, ...], changes: tuple[str, ...]) -> None:
    """The account of another tool's plan: source key, what became of it, where."""
    from pathlib import Path

    from inferometer.plan.foreign.explain import explain_command, explain_file
    from inferometer.plan.opening import is_command

    explained = explain_command(args) if is_command(args) else explain_file(Path(args[0]), changes)
    if explained is None:
        raise PlanError(f"{args[0]}: is not another tool's plan", "inferometer plan show FILE --full")
    for entry in explained.entries:
        echo(_entry_line(entry))
    sources = tuple(f"{entry.source}: " for entry in explained.entries)
    for note in explained.foreign.notes:
        if not note.startswith(sources):
            echo(f"# {note}")
    if explained.lost:
        raise PlanError([f"{name}: was read, but has no effect on the plan" for name in explained.lost])


def _entry_line(entry: "AccountEntry") -> str:
    """`load.interval = 15 -> load.stages`, or why it has no effect."""
    value = f" = {entry.value}" if entry.value else ""
    if entry.outcome == "no effect":
        return f"{entry.source}{value}: no effect: {entry.note}"
    where = ", ".join(entry.where) or "as by default"
    return f"{entry.source}{value} -> {where}" + (f" ({entry.note})" if entry.note else "")


@plan.command("audit")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@json_option
def audit_plans(folder: str, as_json: bool) -> int:
    """Read all plans and commands of other tools in FOLDER: which are understood, refused, or read wrongly.

    Configurations, templates and suites are found by their content, commands in .txt, .md, .rst and .sh files. Each is
    converted and checked, and read again without each of its keys: a key that changes nothing and has no note is wrong.
    Exit code 1 if any is wrong.
    """
    from collections import Counter
    from pathlib import Path

    from inferometer.cli.printing import print_json
    from inferometer.plan.foreign.explain import STATUSES, audit
    from inferometer.vocabulary import percent_text

    findings = list(audit(Path(folder)))
    counts = Counter(finding.status for finding in findings)
    if as_json:
        rows = [{"name": f.name, "status": f.status, "cause": f.cause, "tool": f.tool} for f in findings]
        print_json({"counts": {status: counts[status] for status in STATUSES}, "findings": rows})
    else:
        for finding in findings:
            echo(f"{finding.status:10}  {finding.name}" + (f"\n            {finding.cause}" if finding.cause else ""))
        plans = len(findings) - counts["no plan"]
        share = f" ({percent_text(counts['understood'] / plans)} of {plans})" if plans else ""
        echo(", ".join(f"{counts[status]} {status}" for status in STATUSES) + share)
    return 1 if counts["wrong"] else 0


def _opened(
    args: tuple[str, ...], overrides: tuple[str, ...] = (), changes: tuple[str, ...] = ()
) -> "Opened | OpenedExperiment":
    """What the arguments mean: a plan, or an experiment if no single plan can express it."""
    from inferometer.plan.foreign.common import IsExperiment
    from inferometer.plan.foreign.recognise import open_experiment
    from inferometer.plan.opening import open_plan

    try:
        return open_plan(args, overrides, changes=changes)
    except IsExperiment:
        if args == ("-",):  # it has been read
            raise
        return open_experiment(args, overrides, changes=changes)


def _show_experiment(opened: "OpenedExperiment") -> None:
    from inferometer.plan.experiment import to_yaml

    echo(f"# {opened.tool}, as an experiment" if opened.tool else "# an experiment")
    for note in opened.notes:
        echo(f"# {note}")
    echo(to_yaml(opened.experiment), nl=False)


@plan.command()
@click.option("--experiment", is_flag=True, help="Print the schema of an experiment.")
def schema(experiment: bool) -> None:
    """Print the JSON schema of a plan, for editors."""
    from inferometer.cli.printing import print_json
    from inferometer.plan.experiment import json_schema as experiment_schema
    from inferometer.plan.text import json_schema

    print_json(experiment_schema() if experiment else json_schema())


# -- profiles --------------------------------------------------------------------------------------------------------

EXAMPLES = """\b
Examples:
  inferometer profiles
      list all plans with their folders
  inferometer profiles chat > chat.yaml
      print a plan, to change it
  inferometer run chat --url http://localhost:8000
      run a plan by name
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", required=False)
def list_profiles(name: str | None) -> None:
    """List the built-in plans and your own profiles, or print the one called NAME.

    Your own folders are searched first: those in $INFEROMETER_PROFILES, ./profiles, and
    ~/.config/inferometer/profiles. A file there overrides the built-in plan of the same name.
    """
    from inferometer.plan.opening import find_profile

    if name is not None:
        echo(find_profile(name).path.read_text(encoding="utf-8"), nl=False)
        return
    _print_all()


def _print_all() -> None:
    from inferometer.plan.opening import OURS, profiles

    table = plain_table("profile", "description", wrap="description")
    for profile in profiles():
        sentence = profile.about.partition(". ")[0].rstrip(".")
        origin = "" if profile.origin == OURS else f"({profile.origin})"
        table.add_row(profile.name, " ".join(filter(None, [sentence, origin])))
    emit(table, console())


INIT_EXAMPLES = """\b
Examples:
  inferometer init
      write plan.yaml, which measures the built-in simulator
  inferometer init nightly.yaml --url http://localhost:8000 --rate 10 --duration 5min
      turn a command line into a plan: the flags of inferometer run become settings
  inferometer init chat.yaml --profile chat --url http://localhost:8000
      start from a built-in plan; inferometer profiles lists them
  inferometer init -
      print the plan and write no file
"""


@click.command(epilog=INIT_EXAMPLES)
@click.argument("file", required=False, default="plan.yaml", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--profile", metavar="NAME", help="Start from a built-in plan or from a file.")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@all_flags
def init(file: str, profile: str | None, force: bool, **flags: Any) -> int:
    """Write a commented plan to FILE. Default: plan.yaml; `-` prints it.

    The plan can be run unchanged. Settings that are not set are in it as comments with an example value.
    """
    text = "\n".join(plan_lines(_settings(profile, flags), file)) + "\n"
    if file == "-":
        echo(text, nl=False)
        return 0
    _write(Path(file), text, force)
    echo(f"wrote {file}")
    for command in (f"plan check {file}", f"run {file}", f"run {file} --dry-run"):
        print_message("hint", f"inferometer {command}")
    return 0


def _settings(profile: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """What the profile and the flags set, written as people write it."""
    from inferometer.plan.foreign.shapes import to_yaml
    from inferometer.plan.reading import mapping_in

    opened = changed_plan((profile,) if profile else (), start=START, environ={}, **flags)
    text = to_yaml(opened.plan, opened.mapping)
    if "***" in text:
        hint = "--header 'Authorization: Bearer ${MY_KEY}' reads it from the environment at run time"
        raise PlanError("secrets are not written to a plan", hint)
    return mapping_in(text, "plan")[0]


def _write(file: Path, text: str, force: bool) -> None:

    try:
        with file.open("w" if force else "x", encoding="utf-8") as to:
            to.write(text)
    except FileExistsError:
        raise PlanError(f"{file}: already exists", "overwrite it with --force, or name another file") from None


# -- what the file contains --------------------------------------------------------------------------------------------

START: dict[str, Any] = {  # 600 requests: enough for a p90 with an interval, done in a minute
    "workload": {"input_tokens": 256, "output_tokens": 64},
    "load": {"type": "poisson", "rate": 10},
    "stop": {"duration": "60s"},
    "limits": ["ttft p90 < 500ms", "failure_rate < 1%"],
}


@dataclass(frozen=True, slots=True)
class PlanPart:
    """A section of the plan: what it is for, and settings that it could have, each with a word on it."""

    name: str
    about: str
    could: Mapping[str, str] = field(default_factory=dict)


PARTS = (
    PlanPart("name", "Name of the plan, shown in lists and reports.", {"name": "my-server"}),
    PlanPart("about", "Purpose of the plan.", {"about": "nightly check of the chat service"}),
    PlanPart(
        "target",
        "The target. Without url and server, the built-in simulator is started and measured.",
        {
            "url": "http://localhost:8000  # a list of URLs is used in turn",
            "model": "my-model  # default: the model that the server serves",
            "api": "chat  # default: completions",
            "key_env": "OPENAI_API_KEY  # environment variable with the API key",
            "headers": "{X-Tenant: blue}  # sent with every request; ${NAME} is read from the environment",
        },
    ),
    PlanPart(
        "server",
        "Instead of a url: a server that is started before the run and stopped after it.",
        {"type": "simulator  # or vllm, sglang, llama-server, ...: inferometer serve --help"},
    ),
    PlanPart(
        "workload",
        "What is sent. Lengths are fixed or from a distribution: {type: lognormal, mean: 256, std: 128, max: 2048}.",
        {
            "input_tokens": "256",
            "output_tokens": "64",
            "prefix": "{tokens: 128}  # prefix shared by all prompts, such as a system prompt",
            "turns": "3  # requests per conversation",
        },
    ),
    PlanPart(
        "load",
        "When requests are sent. Open loop: {type: poisson, rate: 10}, independent of the server. "
        "Closed loop: {concurrency: 8}.",
        {"max_concurrency": "256  # maximum number of requests in flight"},
    ),
    PlanPart(
        "stop",
        "When the run ends: by duration, by number of requests, or by precision.",
        {
            "duration": "60s",
            "requests": "600",
            "drain": "30s  # how long to wait for unfinished requests",
        },
    ),
    PlanPart(
        "warmup",
        "Warm-up: the first part of the run, not included in the numbers.",
        {"duration": "10s", "requests": "20"},
    ),
    PlanPart(
        "limits",
        "Requirements. The exit code is 1 if a limit is not met.",
        {"limits": "[ttft p90 < 500ms, tpot p90 < 50ms, failure_rate < 1%]"},
    ),
    PlanPart("sampling", "Sampling parameters.", {"temperature": "0", "ignore_eos": "true"}),
    PlanPart("outputs", "Files to write at the end of the run.", {"outputs": "[{format: json, path: result.json}]"}),
    PlanPart("seed", "The same seed sends the same requests at the same times.", {"seed": "0"}),
)


def plan_lines(settings: Mapping[str, Any], file: str) -> Iterator[str]:
    """The file, line by line: each section with what it is for; what is not set as a comment."""
    name = "plan.yaml" if file == "-" else file
    yield "# A plan: the target, the workload, the load and the limits."
    yield f"#   inferometer plan check {name}    reports all errors in it"
    yield f"#   inferometer run {name}           runs it; flags override the file: --rate 20"
    yield f"#   inferometer plan show {name}     shows every setting with its default"
    for part in PARTS:
        yield ""
        yield from _part_lines(part, settings)
    for other in settings.keys() - {part.name for part in PARTS}:
        yield ""
        yield from _dumped(other, settings[other])


def _part_lines(part: PlanPart, settings: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {part.about}"
    own = settings.get(part.name)
    if own is not None:
        yield from _dumped(part.name, own)
    if part.could.keys() == {part.name}:  # a single value
        yield from () if own is not None else [f"# {part.name}: {part.could[part.name]}"]
        return
    if own is None:
        yield f"# {part.name}:"
        yield from (f"#   {key}: {value}" for key, value in part.could.items())
    elif isinstance(own, Mapping):
        yield from (f"  # {key}: {value}" for key, value in part.could.items() if key not in own)


def _dumped(name: str, value: Any) -> list[str]:
    import yaml

    from inferometer.plan.text import Dumper

    return yaml.dump({name: value}, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110).splitlines()
