"""`inferometer ci` and `inferometer notify`: report runs to a CI system, and send messages about them."""

from pathlib import Path

import click

from inferometer.cli.options import json_option, notify_option, quiet_option, store_option, work_in

# -- ci ----------------------------------------------------------------------------------------------------------------

CI_EXAMPLES = """\b
Examples:
  inferometer ci
      the latest run, checked against earlier runs
  inferometer ci latest --check baseline:main --notify slack
      against a pinned baseline; send one message per regression and one per recovery
  inferometer ci --since 2h --junit junit.xml --gitlab-metrics metrics.txt
      all runs of the last two hours, for any CI and for GitLab
  inferometer check --confirm --json > check.json; inferometer ci check.json
      report the result of an earlier check
"""


@click.command(epilog=CI_EXAMPLES)
@click.argument("what", nargs=-1, metavar="[RUN|EXPERIMENT|CHECK.json]...")
@click.option("--since", metavar="TIME", help="Report all runs since a time: 2h, or 2026-11-15T03:00:00Z.")
@click.option("--here", is_flag=True, help="With --since: only runs made on this machine, for a shared store.")
@click.option(
    "--check",
    "against",
    default="history",
    show_default=True,
    metavar="WHAT",
    help="Compare each run with: history, baseline[:NAME], a run, or none.",
)
@click.option("--title", default="Inferometer", show_default=True, help="Title of the summary.")
@click.option("--strict", is_flag=True, help="Exit with 4 if a result is unclear.")
@click.option(
    "--summary",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="GITHUB_STEP_SUMMARY",
    show_envvar=True,
    help="Append Markdown to this file.",
)
@click.option(
    "--outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="GITHUB_OUTPUT",
    show_envvar=True,
    help="Append name=value lines to this file.",
)
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML.")
@click.option(
    "--gitlab-metrics",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a GitLab metrics report (OpenMetrics).",
)
@click.option("--no-fail", is_flag=True, help="Always exit with 0; the result is in the outputs.")
@notify_option
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.ci:ci")
def ci() -> None:
    """Report runs to CI: step summary, outputs, annotations, JUnit XML, metrics; plain text on stdout.

    On GitHub Actions the output files are detected automatically. Exit code 1 if a limit failed or a run is worse, 3 if
    no request was answered, 4 if a run is not valid as a measurement.
    """


# -- notify ------------------------------------------------------------------------------------------------------------

NOTIFY_EXAMPLES = """\b
Examples:
  inferometer notify
      list the channels and the environment variables they need
  inferometer notify --test slack
      send a test message
  inferometer notify slack,email --job nightly --result failure
      report a failed job once, and once again when it succeeds
"""


@click.command(epilog=NOTIFY_EXAMPLES)
@click.argument("names", nargs=-1, metavar="[CHANNEL]...")
@click.option("--test", is_flag=True, help="Send a test message.")
@click.option("--job", metavar="NAME", help="Report the result of a CI job.")
@click.option(
    "--result",
    type=click.Choice(["success", "failure", "cancelled", "skipped"]),
    default="failure",
    show_default=True,
    help="Result of the job. Only a failure, and a success after a failure, are sent.",
)
@click.option("--text", metavar="TEXT", help="Message for a failed job.")
@quiet_option
@store_option
@work_in("inferometer.cli.work.notify:notify")
def notify() -> None:
    """Send a notification. CHANNEL is slack, teams, webhook or email; without one, list the channels."""
