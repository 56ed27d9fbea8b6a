"""The list of commands: name, summary and module. Importing this module costs little more than click."""

import difflib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from inferometer import __version__
from inferometer.errors import InferometerError
from inferometer.vocabulary import attribute_at

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("inferometer.cli.run:run", "Measure a server: send the load of a plan and store the run."),
    "init": ("inferometer.cli.plan:init", "Write a commented plan to start from."),
    "rerun": ("inferometer.cli.run:rerun", "Repeat a stored run with the same plan and seed."),
    "sweep": ("inferometer.cli.experiments:sweep", "Run an experiment: many cases of one plan, each stored as a run."),
    "search": ("inferometer.cli.experiments:search", "Find the highest load that meets the limits."),
    "ab": ("inferometer.cli.experiments:ab", "Compare two targets in alternating blocks."),
    "benchmark": ("inferometer.cli.harnesses:benchmark", "Run your own benchmark and store its measurements."),
    "show": ("inferometer.cli.store:show", "Show a stored run, by default the latest."),
    "list": ("inferometer.cli.store:list_runs", "List the stored runs, newest first."),
    "store": ("inferometer.cli.store:store", "Manage the stored runs: tags, baselines, retention, the index."),
    "compare": ("inferometer.cli.compare:compare", "Compare runs: better, worse, the same or unclear."),
    "check": ("inferometer.cli.compare:check", "Check a run for regressions against earlier runs, for CI."),
    "ci": ("inferometer.cli.ci:ci", "Report runs to CI: summary, outputs, annotations, JUnit XML, metrics."),
    "notify": (
        "inferometer.cli.ci:notify",
        "Send notifications to Slack, Teams, email or a webhook; test a channel.",
    ),
    "report": ("inferometer.cli.reports:report", "Write a report of runs: HTML, Markdown, images, tables."),
    "chart": ("inferometer.cli.reports:chart", "Draw a chart of runs or an experiment as SVG or PNG."),
    "import": ("inferometer.cli.exchange:import_", "Import results of other tools as runs."),
    "export": ("inferometer.cli.exchange:export", "Export runs in the format of another tool."),
    "dashboard": ("inferometer.cli.reports:dashboard", "Serve the store as a web dashboard."),
    "site": ("inferometer.cli.reports:site", "Write the store as a static site, for example for GitHub Pages."),
    "profiles": ("inferometer.cli.plan:list_profiles", "List the built-in plans and your own profiles, or print one."),
    "plan": ("inferometer.cli.plan:plan", "Check plans, show them with all defaults, print their schema."),
    "offline": (
        "inferometer.cli.offline:offline",
        "Measure an engine without a server: batch latency, throughput.",
    ),
    "startup": ("inferometer.cli.serve:startup", "Measure how long a server takes to start, by phase."),
    "harnesses": (
        "inferometer.cli.harnesses:harnesses",
        "List or install other load generators (guidellm, aiperf, ...) that can send the load.",
    ),
    "doctor": ("inferometer.cli.instrument:doctor", "Check this machine and the target for problems before a run."),
    "serve": (
        "inferometer.cli.serve:serve",
        "Start an inference server (vllm, sglang, simulator, ...) and run it in the foreground.",
    ),
    "route": ("inferometer.cli.serve:route", "Route requests to replicas: a streaming proxy with routing policies."),
    "simulate": (
        "inferometer.cli.predict:simulate",
        "Run a plan against the simulator in virtual time, or serve the simulator.",
    ),
    "fit": ("inferometer.cli.predict:fit", "Fit a model of a server to measured runs."),
    "predict": ("inferometer.cli.predict:predict", "Predict a run, or the highest load, with a model of a server."),
    "validate": ("inferometer.cli.predict:validate", "Compare a model's predictions with measured runs."),
    "calibrate": ("inferometer.cli.instrument:calibrate", "Measure the load generator's own error on this machine."),
    "k8s": ("inferometer.cli.k8s:k8s", "Measure in a Kubernetes cluster: launcher pods, results, clean-up."),
    "worker": (
        "inferometer.cli.k8s:worker",
        "Measure a plan in a pod; the pods that `k8s run` starts execute this command.",
    ),
    "completion": ("inferometer.cli.options:completion", "Print the tab completion script for a shell."),
}

EPILOG = """\b
Examples:
  inferometer run                                    try it: measures the built-in simulator
  inferometer run --url http://localhost:8000 --rate 10 --duration 60s
  inferometer init                                   write a commented plan
  inferometer run plan.yaml --limit 'ttft p99 < 500ms'
  inferometer show                                   the latest run again
"""


def _show_traceback(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        os.environ["INFEROMETER_TRACEBACK"] = "1"


TRACEBACK = click.Option(
    ["--traceback"],
    is_flag=True,
    expose_value=False,
    callback=_show_traceback,
    is_eager=True,
    help="Show the traceback of an unexpected error.",
)


class ReaderGoneError(Exception):
    """The reader of stdout closed the pipe, as `| head` does."""


# -- options of other tools ------------------------------------------------------------------------------------------

_OTHER_OPTIONS: dict[str, str] = {  # our option: its names in other tools
    "--rate": "--rps --qps --request-rate --requests-per-second --arrival-rate --rate-limit -r",
    "--concurrency": "--max-concurrency --users --num-users --vus --clients --connections --parallel "
    "--num-concurrent-requests --parallelism -c",
    "--requests": "--num-prompts --num-requests --request-count --max-requests --total-requests --limit-requests "
    "--max-num-completed-requests --n-requests --prompts -n",
    "--duration": "--max-seconds --test-duration --benchmark-duration --run-time --time --max-time-per-run -d -t",
    "--url": "--endpoint --base-url --target --address --server-url --api-base --endpoint-url -u",
    "--api": "--endpoint-type --backend --api-type --request-type --llm-api",
    "--model": "--served-model-name --model-name --model-names -m",
    "--input-tokens": "--input-len --random-input-len --isl --prompt-tokens --prompt-len --random-input "
    "--synthetic-input-tokens-mean --mean-input-tokens",
    "--output-tokens": "--output-len --random-output-len --osl --max-tokens --max-new-tokens --random-output "
    "--output-tokens-mean --mean-output-tokens",
    "--dataset": "--dataset-path --dataset-name --input-file --data --prompts-file --data-path",
    "--tokenizer": "--tokenizer-path --processor --tokenizer-name",
    "--seed": "--random-seed",
    "--limit": "--goodput --slo --threshold --thresholds --max-error-rate",
    "--warmup": "--num-warmups --warmup-requests --warmup-request-count --warmup-time --ramp-up",
    "--workers": "--num-workers --processes --max-workers --threads",
    "--output": "--output-path --output-file --result-filename --results-file --save-result --result-dir --export "
    "--output-dir --artifact-dir --profile-export-file",
    "--name": "--label --experiment-name --benchmark-name --run-name",
    "--tag": "--tags --metadata --labels",
    "--header": "--headers --extra-header",
    "--quiet": "--disable-tqdm --silent --no-progress --disable-progress",
    "--json": "--format --output-format",
    "--store": "--results-dir --db",
    "--server": "--engine --start-server",
}
_OTHER_SETTINGS: dict[str, str] = {  # options of other tools that are settings of the plan here
    "--temperature": "sampling.temperature=0",
    "--top-p": "sampling.top_p=0.9",
    "--ignore-eos": "sampling.ignore_eos=true",
    "--extra-body": "sampling.extra.NAME=VALUE",
    "--extra-request-body": "sampling.extra.NAME=VALUE",
    "--extra-inputs": "sampling.extra.NAME=VALUE",
    "--burstiness": "load.cv=2",
    "--no-stream": "target.stream=false",
    "--insecure": "target.tls.verify=false",
    "--request-timeout": "target.timeout.request=60s",
    "--timeout": "target.timeout.request=60s",
    "--random-prefix-len": "workload.prefix.tokens=128",
    "--shared-prefix-len": "workload.prefix.tokens=128",
    "--ready-check-timeout-sec": "server.ready.timeout=60s",
}
_OTHER_WAYS: dict[str, str] = {  # options without a counterpart: what to do instead
    "--api-key": "set the key in the environment variable OPENAI_API_KEY, or name another in INFEROMETER_KEY_ENV",
    "--key": "set the key in the environment variable OPENAI_API_KEY, or name another in INFEROMETER_KEY_ENV",
    "--host": "inferometer run --url http://HOST:PORT",
    "--port": "inferometer run --url http://HOST:PORT",
    "--config": "inferometer run plan.yaml",
    "--config-file": "inferometer run plan.yaml",
    "--plan": "inferometer run plan.yaml",
    "--profile": "inferometer run NAME; inferometer profiles lists them",
    "--streaming": "answers are streamed anyway; --set target.stream=false turns it off",
    "--stream": "answers are streamed anyway; --set target.stream=false turns it off",
    "--percentile-metrics": "all measures are shown: inferometer show --measures",
    "--metric-percentiles": "all percentiles are shown: inferometer show --measures",
    "--verbose": "inferometer show latest --measures --slices shows more of a run, --traceback more of an error",
}
_OTHER_COMMANDS: dict[str, str] = {
    "run": "bench load loadtest load-test attack test profile measure start",
    "list": "ls history runs",
    "show": "view summary results result",
    "compare": "diff",
    "report": "analyze analyse plot",
    "dashboard": "ui web",
    "init": "new create generate",
    "plan check": "validate lint verify",
    "store": "rm delete remove prune",
    "simulate": "mock sim simulator",
    "sweep": "experiment matrix",
    "--help": "help",
    "--version": "version",
}
_OTHER_TOOLS = {"vllm", "sglang", "guidellm", "genai-perf", "aiperf", "inference-perf", "python", "python3", "llmperf"}


class WrongUseError(InferometerError):
    """An unknown option or command, with the one that was probably meant."""


def unknown_option(mistake: click.NoSuchOption, arguments: Sequence[str]) -> InferometerError:
    """The error for an unknown option: names our option if another tool's was used, else the closest one."""
    context = mistake.ctx
    path = context.command_path if context else "inferometer"
    options = {name: option for option in context.command.params for name in option.opts} if context else {}
    name, text = mistake.option_name.replace("_", "-"), f"no such option {mistake.option_name}"
    ours = _ours(name, _value_of(mistake.option_name, arguments))
    if ours in options:
        typed = arguments[len(path.split()) - 1 :]
        return WrongUseError(f"{text}; use {ours}", " ".join([path, *_translated(typed, options)]))
    if name in _OTHER_SETTINGS and "--set" in options:
        return WrongUseError(f"{text}; use a setting of the plan", f"{path} --set {_OTHER_SETTINGS[name]}")
    if name in _OTHER_WAYS and "--set" in options:
        return WrongUseError(text, _OTHER_WAYS[name])
    close = difflib.get_close_matches(name, [option for option in options if option.startswith("--")], n=2, cutoff=0.7)
    return WrongUseError(f"{text}; did you mean {' or '.join(close)}?" if close else text, f"{path} --help")


def _ours(name: str, value: str) -> str | None:
    """Our name of another tool's option; the path after `--endpoint`, as in vllm bench, is our `--api`."""
    if name == "--endpoint" and value.startswith("/"):
        return "--api"
    return next((ours for ours, others in _OTHER_OPTIONS.items() if name in others.split()), None)


def _translated(typed: Sequence[str], options: Mapping[str, click.Parameter]) -> Iterator[str]:
    """The whole command line with our option names. Options without a counterpart are left out with their values."""
    at, address = 0, {"--host": "", "--port": ""}
    while at < len(typed):
        flag, equals, value = typed[at].partition("=")
        at += 1
        if not flag.startswith("-"):
            yield from () if "@" in flag else (typed[at - 1],)
            continue
        name = flag.replace("_", "-")
        if not equals and not _is_switch(options.get(name)) and at < len(typed) and not typed[at].startswith("-"):
            value, at = typed[at], at + 1
        if name in address and name not in options:
            address[name] = value
        ours = flag if flag in options else _ours(name, value)
        if ours == "--api" and value.startswith("/"):
            value = "chat" if "chat" in value else "completions"
        if ours is not None and ours in options:
            yield f"{ours}{_shown(value, options[ours])}"
    if any(address.values()) and "--url" in options:
        url = f"http://{address['--host'] or 'localhost'}:{address['--port'] or 8000}"
        yield f"--url{_shown(url, options['--url'])}"


def _is_switch(option: click.Parameter | None) -> bool:
    return isinstance(option, click.Option) and option.is_flag


def _shown(value: str, option: click.Parameter) -> str:
    """The value after our option; a placeholder if it may contain a secret."""
    if _is_switch(option):
        return ""
    if not value or "@" in value or option.name in ("header", "headers"):
        return f" {option.metavar if isinstance(option, click.Option) and option.metavar else 'VALUE'}"
    return f" {shlex.quote(value)}"


def _value_of(option: str, arguments: Sequence[str]) -> str:
    """The value after an option on the command line, empty if there is none."""
    for at, argument in enumerate(arguments):
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
        if argument == option and at + 1 < len(arguments) and not arguments[at + 1].startswith("-"):
            return arguments[at + 1]
    return ""


def unknown_command(command: str, path: str) -> InferometerError:
    """The error for an unknown command, with the one that was probably meant."""
    text = f"no command {command!r}"
    if command in _OTHER_TOOLS:
        return WrongUseError(text, f"{path} run -- {command} ... runs its command line")
    if "://" in command or command.startswith("localhost"):
        return WrongUseError(text, f"{path} run --url {'URL' if '@' in command else command}")
    if command.endswith((".yaml", ".yml", ".json")):
        return WrongUseError(text, f"{path} run {command}")
    ours = next((ours for ours, others in _OTHER_COMMANDS.items() if command in others.split()), None)
    close = [ours] if ours else difflib.get_close_matches(command, COMMANDS, n=1, cutoff=0.5)
    if close:
        return WrongUseError(f"{text}; did you mean {close[0]}?", f"{path} {close[0]}")
    return WrongUseError(f"{text}; there are {', '.join(COMMANDS)}", f"{path} --help")


# -- the group -------------------------------------------------------------------------------------------------------


@contextmanager
def _watching_reader() -> Iterator[None]:
    """click would exit with 1 on a broken pipe, but our exit code 1 means a failed limit."""
    try:
        yield
    except BrokenPipeError:
        raise ReaderGoneError from None


class LazyGroup(click.Group):
    """Imports a command's module when the command is called, not when it is listed."""

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        """Also prints the help, if it is requested."""
        with _watching_reader():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: click.Context) -> object:
        with _watching_reader():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = attribute_at(COMMANDS[cmd_name][0])
        if TRACEBACK not in command.params:
            command.params.append(TRACEBACK)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise unknown_command(args[0], ctx.command_path)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, epilog=EPILOG, params=[TRACEBACK], context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="inferometer", message="%(prog)s %(version)s")
def group() -> None:
    """Measure LLM inference: accurate numbers, and how accurate they are."""
