"""Lists and prints built-in plans, and writes a commented plan to start from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from inferometer.cli.errors import echo, print_message
from inferometer.cli.work.plans import changed_plan
from inferometer.errors import PlanError
from inferometer.plan.foreign.shapes import to_yaml
from inferometer.plan.opening import BUILT_IN, find_profile, profiles
from inferometer.plan.reading import mapping_in
from inferometer.plan.text import Dumper
from inferometer.show.console import console, emit, plain_table


def list_profiles(name: str | None) -> None:
    if name is not None:
        echo(find_profile(name).path.read_text(encoding="utf-8"), nl=False)
        return
    _print_all()


def _print_all() -> None:
    table = plain_table("profile", "description", wrap="description")
    for profile in profiles():
        sentence = profile.about.partition(". ")[0].rstrip(".")
        origin = "" if profile.origin == BUILT_IN else f"({profile.origin})"
        table.add_row(profile.name, " ".join(filter(None, [sentence, origin])))
    emit(table, console())


def init(file: str, profile: str | None, force: bool, **flags: Any) -> int:
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
    """The settings of the profile and the flags, in their short form."""
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
START: dict[str, Any] = {  # 600 requests: enough for a p90 with an interval, in one minute
    "workload": {"input_tokens": 256, "output_tokens": 64},
    "load": {"type": "poisson", "rate": 10},
    "stop": {"duration": "60s"},
    "limits": ["ttft p90 < 500ms", "failure_rate < 1%"],
}


@dataclass(frozen=True, slots=True)
class PlanPart:
    """A section of the plan: its purpose, and example settings with comments."""

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
            "url": "http://localhost:8000  # with a list of URLs, requests go to them in turn",
            "model": "my-model  # default: the model that the server serves",
            "api": "chat  # default: completions",
            "key_env": "OPENAI_API_KEY  # environment variable with the API key",
            "headers": "{X-Tenant: blue}  # sent with every request; ${NAME} is read from the environment",
        },
    ),
    PlanPart(
        "server",
        "Instead of a url: a server to start before the run and stop after it.",
        {"type": "simulator  # or vllm, sglang, llamacpp, ...: inferometer serve --help"},
    ),
    PlanPart(
        "workload",
        "The requests. Lengths are fixed or drawn from a distribution: "
        "{type: lognormal, mean: 256, std: 128, max: 2048}.",
        {
            "input_tokens": "256",
            "output_tokens": "64",
            "prefix": "{tokens: 128}  # prefix shared by all prompts, such as a system prompt",
            "turns": "3  # requests per conversation",
        },
    ),
    PlanPart(
        "load",
        "When requests are sent. Open loop, at times that do not depend on the server: {type: poisson, rate: 10}. "
        "Closed loop: {concurrency: 8}.",
        {"max_concurrency": "256  # maximum number of requests in flight"},
    ),
    PlanPart(
        "stop",
        "When the run ends: after a duration, a number of requests, or at a precision.",
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
        "Limits that the run must meet. The exit code is 1 if a limit is not met.",
        {"limits": "[ttft p90 < 500ms, tpot p90 < 50ms, failure_rate < 1%]"},
    ),
    PlanPart("sampling", "Sampling parameters.", {"temperature": "0", "ignore_eos": "true"}),
    PlanPart("outputs", "Files to write at the end of the run.", {"outputs": "[{format: json, path: result.json}]"}),
    PlanPart("seed", "The same seed sends the same requests at the same times.", {"seed": "0"}),
)


def plan_lines(settings: Mapping[str, Any], file: str) -> Iterator[str]:
    """The lines of the file: every section with its purpose; settings that are not set are comments."""
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
    return yaml.dump({name: value}, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110).splitlines()
