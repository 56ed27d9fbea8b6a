"""`inferometer notify`: try a channel, or tell of a CI job."""

import os
from typing import Any

import click

from inferometer.cli.echo import echo
from inferometer.cli.options import quiet_option, store_of, store_option

EXAMPLES = """\b
Examples:
  inferometer notify
      the channels there are, and what each needs in the environment
  inferometer notify --test slack
      send a message that says it is a test
  inferometer notify slack,email --job nightly --result failure
      a job failed; said once, and once more when it succeeds again
"""


@click.command(epilog=EXAMPLES)
@click.argument("said", nargs=-1, metavar="[CHANNEL]...")
@click.option("--test", is_flag=True, help="Send a test message.")
@click.option("--job", metavar="NAME", help="Tell of a job of CI.")
@click.option(
    "--result",
    type=click.Choice(["success", "failure", "cancelled", "skipped"]),
    default="failure",
    show_default=True,
    help="How the job ended. Success after a failure is a recovery; the others are no news.",
)
@click.option("--text", metavar="TEXT", help="What to say of a job that failed.")
@quiet_option
@store_option
def notify(
    said: tuple[str, ...],
    test: bool,
    job: str | None,
    result: str,
    text: str | None,
    quiet: bool,
    store: Any,
) -> int:
    """Tell people: CHANNEL is slack, teams, webhook or email; without any, list them."""
    from inferometer.cli.notifying import channels_of, tell_findings
    from inferometer.show.notify.findings import of_job

    if not said and not test and job is None:
        _print_channels()
        return 0
    if not said:
        raise click.UsageError("which channel? inferometer notify lists them")
    if test == (job is not None):
        raise click.UsageError("say --test, or which job: --job NAME --result failure")
    channels = channels_of(said)
    if test:
        return _test(channels)
    if result in ("success", "failure"):
        tell_findings([of_job(str(job), result == "success", text)], store_of(store), channels, quiet=quiet)
    return 0


def _test(channels: Any) -> int:
    """Here it is the result: a channel that cannot be reached is an error."""
    from inferometer.cli.mistakes import UNREACHABLE, say
    from inferometer.show.notify.delivery import deliver
    from inferometer.show.notify.findings import test_event

    sent = deliver(test_event(), channels)
    for each in sent:
        if each.arrived:
            echo(f"{each.channel}: it took the message")
        else:
            say("error", f"{each.channel}: {each.why_not}")
    return 0 if all(each.arrived for each in sent) else UNREACHABLE


def _print_channels() -> None:
    from inferometer.show.console import console, emit, plain_table
    from inferometer.show.notify.channels import CHANNELS, missing

    table = plain_table("channel", "what it is", "needs in the environment", "ready", wrap="needs in the environment")
    for name, kind in CHANNELS.items():
        takes = f" ({', '.join(kind.takes)})" if kind.takes else ""
        ready = "no" if missing(name, os.environ) else "yes"
        table.add_row(name, kind.about, " ".join(kind.needs) + takes, ready)
    emit(table, console())
