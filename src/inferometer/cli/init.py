"""`inferometer init`: a plan to begin with, in a file whose comments say what else can be set."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import echo, say
from inferometer.cli.options import all_flags, changed_plan

EXAMPLES = """\b
Examples:
  inferometer init
      plan.yaml, which measures the built-in simulator as it is
  inferometer init nightly.yaml --url http://localhost:8000 --rate 10 --duration 5min
      a command line as a plan: the flags of inferometer run are written into it
  inferometer init chat.yaml --profile chat --url http://localhost:8000
      a ready plan to change; inferometer profiles lists them
  inferometer init -
      to look at: it is printed, and no file is written
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", required=False, default="plan.yaml", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--profile", metavar="NAME", help="Begin with a ready plan, or with a file.")
@click.option("--force", is_flag=True, help="Write over FILE where it is there already.")
@all_flags
def init(file: str, profile: str | None, force: bool, **flags: Any) -> int:
    """Write a plan with comments into FILE, plan.yaml if none is named; `-` prints it.

    It can be run as it is. What is not set stands in it as a comment, with the value that it could have.
    """
    text = "\n".join(plan_lines(_settings(profile, flags), file)) + "\n"
    if file == "-":
        echo(text, nl=False)
        return 0
    _write(Path(file), text, force)
    echo(f"wrote {file}")
    for command in (f"plan check {file}", f"run {file}", f"run {file} --dry-run"):
        say("hint", f"inferometer {command}")
    return 0


def _settings(profile: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """What the profile and the flags set, written as people write it."""
    from inferometer.errors import PlanError
    from inferometer.plan.foreign.shapes import to_yaml
    from inferometer.plan.text import parse_yaml

    opened = changed_plan((profile,) if profile else (), start=START, environ={}, **flags)
    text = to_yaml(opened.plan, opened.said)
    if "***" in text:
        hint = "--header 'Authorization: Bearer ${MY_KEY}' reads it from the environment when the plan is run"
        raise PlanError("a secret is not written into a plan", hint)
    settings, _twice = parse_yaml(text, "plan")
    return dict(settings)


def _write(file: Path, text: str, force: bool) -> None:
    from inferometer.errors import PlanError

    try:
        with file.open("w" if force else "x", encoding="utf-8") as to:
            to.write(text)
    except FileExistsError:
        raise PlanError(f"{file}: is there already", "--force writes over it, or name another file") from None


# -- what the file says ----------------------------------------------------------------------------------------------

START: dict[str, Any] = {  # 600 requests: enough for a p90 with an interval, done in a minute
    "workload": {"input_tokens": 256, "output_tokens": 64},
    "load": {"type": "poisson", "rate": 10},
    "stop": {"duration": "60s"},
    "limits": ["ttft p90 < 500ms", "failure_rate < 1%"],
}


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the plan: what it is for, and settings that it could have, each with a word on it."""

    name: str
    about: str
    could: Mapping[str, str] = field(default_factory=dict)


PARTS = (
    Part("name", "What people call this plan: it stands in lists and reports.", {"name": "my-server"}),
    Part("about", "What it is for, and why it is as it is.", {"about": "the nightly check of our chat service"}),
    Part(
        "target",
        "What is measured. With neither a url nor a server the built-in simulator is started and measured.",
        {
            "url": "http://localhost:8000  # a list of several takes turns",
            "model": "my-model  # default: what the server offers",
            "api": "chat  # default: completions",
            "key_env": "OPENAI_API_KEY  # the environment variable that holds the API key",
            "headers": "{X-Tenant: blue}  # sent with each request; ${NAME} is read from the environment",
        },
    ),
    Part(
        "server",
        "A server that is started for the run and stopped after it, instead of a url.",
        {"type": "simulator  # or vllm, sglang, llama-server, ...: inferometer serve --help"},
    ),
    Part(
        "workload",
        "What is sent. Lengths are fixed numbers, or drawn: {type: lognormal, mean: 256, std: 128, max: 2048}.",
        {
            "input_tokens": "256",
            "output_tokens": "64",
            "prefix": "{tokens: 128}  # the same beginning of all prompts, such as a system prompt",
            "turns": "3  # requests of one conversation",
        },
    ),
    Part(
        "load",
        "When it is sent. Open loop: {type: poisson, rate: 10}, whatever the server does. "
        "Closed loop: {concurrency: 8}.",
        {"max_concurrency": "256  # a cap on the requests in flight"},
    ),
    Part(
        "stop",
        "When the run ends: by duration, by requests, or when it is precise enough.",
        {
            "duration": "60s",
            "requests": "600",
            "drain": "30s  # how long unfinished requests are waited for",
        },
    ),
    Part("warmup", "What is left out of the numbers at first.", {"duration": "10s", "requests": "20"}),
    Part(
        "limits",
        "What is expected. A limit that is broken makes the exit code 1.",
        {"limits": "[ttft p90 < 500ms, tpot p90 < 50ms, failure_rate < 1%]"},
    ),
    Part("sampling", "How the model chooses its tokens.", {"temperature": "0", "ignore_eos": "true"}),
    Part("outputs", "Files that are written when the run ends.", {"outputs": "[{format: json, path: result.json}]"}),
    Part("seed", "The same seed sends the same requests at the same times.", {"seed": "0"}),
)


def plan_lines(settings: Mapping[str, Any], file: str) -> Iterator[str]:
    """The file, line by line: each section with what it is for; what is not set as a comment."""
    name = "plan.yaml" if file == "-" else file
    yield "# A plan: what is sent, when, where to, and what is expected."
    yield f"#   inferometer plan check {name}    says every mistake in it"
    yield f"#   inferometer run {name}           runs it; a flag wins over the file: --rate 20"
    yield f"#   inferometer plan show {name}     every setting there is, with its default"
    for part in PARTS:
        yield ""
        yield from _part_lines(part, settings)
    for other in settings.keys() - {part.name for part in PARTS}:
        yield ""
        yield from _dumped(other, settings[other])


def _part_lines(part: Part, settings: Mapping[str, Any]) -> Iterator[str]:
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
