"""Shared by all declarations of commands: `work_in`, which names the function that does the work, options that several
commands have, and shell completion with its script."""

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import get_completion_class

from inferometer.cli.errors import echo
from inferometer.cli.group import group
from inferometer.errors import MissingExtra
from inferometer.vocabulary import attribute_at, seconds
from inferometer.wire.apis import APIS

Command = TypeVar("Command", bound=Callable[..., Any])

RECORDS = "inferometer.records"


def imported_on_call(place: str) -> Callable[..., Any]:
    """The function at a path such as `"inferometer.cli.work.run:run"`; its module is imported when it is called."""

    def call(*arguments: Any, **named: Any) -> Any:
        return attribute_at(place)(*arguments, **named)

    return call


def work_in(place: str, extra: tuple[str, str] | None = None) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Declares that the function at `place` implements a command; it takes the command's parameters by name:
    `@work_in("inferometer.cli.work.run:run")`. Help and completion do not import it.

    `extra` is a description of the work (`talking to Kubernetes`) and the extra with the packages that it imports
    (`kubernetes`)."""

    def decorated(declaration: Callable[[], None]) -> Callable[..., Any]:
        @wraps(declaration)
        def work(**parameters: Any) -> Any:
            if click.get_current_context().invoked_subcommand is not None:
                return None  # this is the group of the called command
            try:
                done_by = attribute_at(place)
            except ModuleNotFoundError as missing:
                if extra is None or (missing.name or "").startswith("inferometer"):
                    raise
                raise MissingExtra(*extra) from None
            return done_by(**parameters)

        work.__dict__["place"] = place
        return work

    return decorated


def store_option(command: Command) -> Command:
    """`--store` and `--records`, for `store_of`."""
    records = click.option(
        "--records",
        metavar="FOLDER|URL",
        expose_value=False,
        callback=_remember_records,
        help="Location of run folders, if not in the store: a folder, s3://... or gs://... "
        "[default: $INFEROMETER_RECORDS]",
    )
    store = click.option(
        "--store",
        metavar="FOLDER|URL",
        help="Store of the runs: a folder, or postgresql://user@host/database for a team. "
        "[default: $INFEROMETER_STORE, else ~/.local/share/inferometer]",
    )
    return store(records(command))


def _remember_records(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    context.meta[RECORDS] = value


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document to stdout and nothing else.")(
        command
    )


def quiet_option(command: Command) -> Command:
    return click.option("--quiet", "-q", is_flag=True, help="Do not print progress and notes on stderr.")(command)


def spread_option(command: Command) -> Command:
    return click.option(
        "--assume-spread",
        type=click.FloatRange(min=0, max=100, min_open=True),
        metavar="PERCENT",
        help="Run-to-run standard deviation of means, medians and rates, if repeats and history do not show it; p90 "
        "and above: twice as much. [default: as in other histories of the store, else 5]",
    )(command)


def notify_option(command: Command) -> Command:
    return click.option(
        "--notify",
        multiple=True,
        metavar="CHANNELS",
        envvar="INFEROMETER_NOTIFY",
        help="Send one message per failure, regression or recovery: slack, teams, webhook, email. "
        "[default: $INFEROMETER_NOTIFY]",
    )(command)


def set_option(command: Command) -> Command:
    return click.option(
        "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a setting of the plan. Repeatable."
    )(command)


def wait_option(command: Command) -> Command:
    return click.option(
        "--wait-for-target",
        metavar="TIME",
        help="Wait up to this long while another run uses the same GPU or endpoint.",
    )(command)


def wait_of(text: str | None) -> float:
    """Seconds of `--wait-for-target`; 0 if it was not given."""
    return 0.0 if text is None else duration_of("--wait-for-target", text)


def duration_of(option: str, text: str) -> float:
    """The duration given to an option, in seconds."""
    try:
        return seconds(text)
    except ValueError:
        raise click.UsageError(f"{option} must be a duration such as 30s or 1h, got {text}") from None


def slowest_option(command: Command) -> Command:
    return click.option(
        "--slowest", type=click.IntRange(min=0), default=0, metavar="N", help="Also show the N slowest requests."
    )(command)


def model_file_option(*names: str) -> Callable[[Command], Command]:
    """`names` are further option names: `--model` for commands that request no model by name."""
    return click.option(
        "--model-file",
        *names,
        "model_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Predict in virtual time, with this model of a server, made by `inferometer fit`.",
    )


def capacity_flags(needs: str) -> Callable[[Command], Command]:
    """The options of a capacity search in virtual time; `needs` is the option that they require."""
    options = (
        click.option("--replicas", metavar="N,N", default="1", help=f"With {needs}: numbers of replicas to try."),
        click.option(
            "--max-sequences", metavar="N,N", help=f"With {needs}: values to try for the maximum sequences per batch."
        ),
        click.option(
            "--token-budget", metavar="N,N", help=f"With {needs}: values to try for the maximum tokens per step."
        ),
        click.option(
            "--price",
            type=click.FloatRange(min=0),
            metavar="USD",
            help=f"With {needs}: price of one replica per hour.",
        ),
    )

    def decorated(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def run_argument(name: str = "run", *, required: bool) -> Callable[[Command], Command]:
    """A run: an id or its prefix, a folder, or `latest`."""
    return click.argument(
        name, required=required, shell_complete=imported_on_call("inferometer.cli.work.stores:runs_of")
    )


change_option = click.option(
    "-o",
    "--overrides",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of another tool's file, by its own key. Repeatable.",
)


_TARGET = (
    click.option("--name", metavar="TEXT", help="Name of the plan, shown in lists and reports."),
    click.option(
        "--url",
        multiple=True,
        metavar="URL",
        help="URL of the server; several take turns. localhost:8000 means http://localhost:8000; a URL that ends "
        "in /v1/chat/completions also sets --api. [default: $INFEROMETER_URL]",
    ),
    click.option("--server", metavar="KIND", help="Start a server for the run: simulator, vllm, sglang, ..."),
    click.option(
        "--model",
        metavar="NAME",
        help="Model to request. [default: $INFEROMETER_MODEL, else the model the server serves]",
    ),
    click.option(
        "--api",
        metavar="API",
        help=f"{', '.join(APIS)}. [default: completions]",
    ),
    click.option(
        "--header",
        "-H",
        multiple=True,
        metavar="'NAME: VALUE'",
        help="HTTP header of every request; ${NAME} in a value is read from the environment. Repeatable.",
    ),
)


_WORK = (
    click.option("--rate", metavar="N", help="Open loop: request rate per second, Poisson arrivals."),
    click.option("--concurrency", metavar="N", help="Closed loop: requests in flight; with --rate: maximum in flight."),
    click.option("--requests", metavar="N", help="Number of requests to send."),
    click.option("--duration", metavar="TIME", help="Duration of the load: 60s, 5min."),
    click.option("--warmup", metavar="N|TIME", help="Warm-up, not measured: a number of requests or a duration."),
    click.option("--input-tokens", metavar="N", help="Input tokens per request."),
    click.option("--output-tokens", metavar="N", help="Output tokens per request."),
    click.option(
        "--dataset",
        metavar="[TYPE=]FILE",
        help="Prompts from a file, a URL, or owner/name on the Hugging Face hub: sharegpt=data.json.",
    ),
    click.option(
        "--tokenizer", metavar="NAME", help="Tokenizer: a model's name, a folder, or `server` for the server's own."
    ),
    click.option("--seed", metavar="N", help="Random seed; the same seed sends the same requests at the same times."),
    click.option(
        "--limit",
        multiple=True,
        metavar="LIMIT",
        help="Limit to meet: 'ttft p99 < 500ms'; exit code 1 if not met. Repeatable.",
    ),
    click.option(
        "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change any setting of the plan. Repeatable."
    ),
    change_option,
)


_SENDING = (
    click.option(
        "--workers",
        metavar="N|auto",
        help="Number of load generator processes; auto: as many as the load needs by the calibration of this machine.",
    ),
    click.option("--on", metavar="PLACE", help="Where the workers run: local, ray or kubernetes. [default: local]"),
    click.option(
        "--ray-address",
        metavar="HOST:PORT",
        help="Run the workers on this Ray cluster. [default: $RAY_ADDRESS, else a local cluster, started for the run]",
    ),
    click.option("--save-prompts", is_flag=True, help="Store the prompts."),
    click.option("--save-answers", is_flag=True, help="Store the generated text."),
)


plan_argument = click.argument("plan_args", metavar="[PLAN]", nargs=-1, type=click.Path())


def work_flags(command: Command) -> Command:
    """Options of the workload and the load."""
    return _with(command, _WORK)


def all_flags(command: Command) -> Command:
    """Options of the target, the workload, the load and the load generator."""
    return _with(command, (*_TARGET, *_WORK, *_SENDING))


def _with(command: Command, options: Iterable[Callable[[Command], Command]]) -> Command:
    for option in reversed(list(options)):
        command = option(command)
    return command


_WHERE = {
    "bash": 'eval "$(inferometer completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(inferometer completion zsh)" in ~/.zshrc',
    "fish": "inferometer completion fish | source in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(_WHERE.values()))
@click.argument("shell", type=click.Choice(list(_WHERE)))
def completion(shell: str) -> None:
    """Print the tab completion script for SHELL."""
    script = get_completion_class(shell)
    assert script is not None
    echo(script(group, {}, "inferometer", "_INFEROMETER_COMPLETE").source())
