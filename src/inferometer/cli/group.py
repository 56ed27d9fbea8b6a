"""The list of commands: a name, what it is for, and where its code is. Importing this costs only click."""

import importlib
import os

import click

from inferometer import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("inferometer.cli.run:run", "Measure a server: drive a plan at it and keep the run."),
    "rerun": ("inferometer.cli.rerun:rerun", "Do a kept run once more: same plan, same seed."),
    "sweep": ("inferometer.cli.sweep:sweep", "Do an experiment: many cases of one plan, each a run."),
    "search": ("inferometer.cli.search:search", "Find the most load that keeps the limits."),
    "ab": ("inferometer.cli.ab:ab", "Compare two targets in turns, block by block."),
    "benchmark": ("inferometer.cli.benchmark:benchmark", "Run a benchmark of your own and keep what it measured."),
    "show": ("inferometer.cli.show:show", "Show a kept run; the latest without an id."),
    "list": ("inferometer.cli.list:list_runs", "List the kept runs, newest first."),
    "store": ("inferometer.cli.store:store", "Look after the kept runs: tags, baselines, retention, the index."),
    "compare": ("inferometer.cli.compare:compare", "Compare runs: what is better, worse, the same or unclear."),
    "check": ("inferometer.cli.check:check", "Is this run worse than those before it? For CI."),
    "ci": ("inferometer.cli.ci:ci", "Tell CI of runs: summary, outputs, annotations, JUnit XML, metrics."),
    "notify": ("inferometer.cli.notify:notify", "Tell people in Slack, Teams, by mail or webhook; try a channel."),
    "report": ("inferometer.cli.report_:report", "Write what runs tell as one file: HTML, Markdown, pictures, tables."),
    "chart": ("inferometer.cli.chart:chart", "Draw one chart of runs or an experiment, as SVG or PNG."),
    "import": ("inferometer.cli.import_:import_", "Keep results of other tools as runs."),
    "export": ("inferometer.cli.export:export", "Write runs in another tool's format."),
    "dashboard": ("inferometer.cli.dashboard:dashboard", "Show the store as a web page."),
    "site": ("inferometer.cli.site:site", "Write the store as a static site, for GitHub Pages."),
    "profiles": ("inferometer.cli.plan:list_profiles", "List ready plans by name, or print one."),
    "plan": ("inferometer.cli.plan:plan", "Check plans, show them complete, print their schema."),
    "offline": (
        "inferometer.cli.offline:offline",
        "Measure an engine in this process: latency of batches, throughput.",
    ),
    "startup": ("inferometer.cli.startup:startup", "How long a server takes to start, and on what."),
    "doctor": ("inferometer.cli.doctor:doctor", "Say what will go wrong before it does."),
    "serve": ("inferometer.cli.serve:serve", "Start a server as a plan would, and keep it in the foreground."),
    "simulate": ("inferometer.cli.simulate:simulate", "Run a plan against the simulator in virtual time, or serve it."),
    "calibrate": ("inferometer.cli.calibrate:calibrate", "Measure this instrument's own error on this machine."),
    "completion": ("inferometer.cli.completion:completion", "Print the tab completion script of a shell."),
}

EPILOG = """\b
Examples:
  inferometer run                                    try it: measures the built-in simulator
  inferometer run --url http://localhost:8000 --rate 10 --duration 60s
  inferometer run plan.yaml --limit 'ttft p99 < 500ms'
  inferometer show                                   the latest run again
"""


def _show_traceback(context: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked:
        os.environ["INFEROMETER_TRACEBACK"] = "1"


TRACEBACK = click.Option(
    ["--traceback"],
    is_flag=True,
    expose_value=False,
    callback=_show_traceback,
    is_eager=True,
    help="After an unexpected error show where it happened.",
)


class ReaderGoneError(Exception):
    """Whoever read our output, `| head`, has seen enough."""


class LazyGroup(click.Group):
    """Imports a command's file when the command is called, not when it is listed."""

    def invoke(self, ctx: click.Context) -> object:
        """click would end a broken pipe with exit code 1, which means a failed limit here."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGoneError from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        if TRACEBACK not in command.params:
            command.params.append(TRACEBACK)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}; there are {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, epilog=EPILOG, params=[TRACEBACK], context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="inferometer", message="%(prog)s %(version)s")
def group() -> None:
    """Measure LLM inference: right numbers, and how right they are."""
