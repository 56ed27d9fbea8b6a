"""`inferometer ci`: runs and their checks as CI shows them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.echo import echo
from inferometer.cli.options import json_option, notify_option, quiet_option, store_of, store_option

if TYPE_CHECKING:
    from inferometer.cli.ci_runs import Subject
    from inferometer.record.run import Run
    from inferometer.show.ci.outcome import Outcome, Report
    from inferometer.store.store import Store

EXAMPLES = """\b
Examples:
  inferometer ci
      the latest run, checked against those before it
  inferometer ci latest --check baseline:main --notify slack
      against a pinned run; people are told once when it gets worse, and once when it is repaired
  inferometer ci --since 2h --junit junit.xml --gitlab-metrics metrics.txt
      all runs of the last two hours, for any CI and for GitLab
  inferometer check --confirm --json > check.json; inferometer ci check.json
      a check that was made already
"""


@click.command(epilog=EXAMPLES)
@click.argument("what", nargs=-1, metavar="[RUN|EXPERIMENT|CHECK.json]...")
@click.option("--since", metavar="TIME", help="All runs since: 2h, or 2026-11-15T03:00:00Z.")
@click.option("--here", is_flag=True, help="With --since: only runs that this machine made, of a store that is shared.")
@click.option(
    "--check",
    "against",
    default="history",
    show_default=True,
    metavar="WHAT",
    help="Hold each run against: history, baseline[:NAME], a run; none.",
)
@click.option("--title", default="Inferometer", show_default=True, help="Over the summary.")
@click.option("--strict", is_flag=True, help="Exit with 1 where it is unclear, too.")
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
    help="Write a metrics report of GitLab (OpenMetrics).",
)
@click.option("--no-fail", is_flag=True, help="Exit with 0 whatever is found; the outputs say it.")
@notify_option
@json_option
@quiet_option
@store_option
def ci(
    what: tuple[str, ...],
    since: str | None,
    here: bool,
    against: str,
    title: str,
    strict: bool,
    summary: Path | None,
    outputs: Path | None,
    junit: Path | None,
    gitlab_metrics: Path | None,
    no_fail: bool,
    notify: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    store: str | None,
) -> int:
    """Tell CI of runs: step summary, outputs, annotations, JUnit XML, metrics; plain text on stdout.

    On GitHub the files are found by themselves. Exit code 1 when a limit failed or a run is worse, 3 when nothing was
    answered, 4 when a run is not valid as a measurement.
    """
    from inferometer.cli.ci_runs import subjects_of
    from inferometer.cli.notifying import channels_of, tell_of_outcomes
    from inferometer.show.ci.outcome import Report

    channels, place = channels_of(notify), store_of(store)
    subjects, experiments = subjects_of(what, since, place, here=here)
    report = Report(tuple(_outcome(each, against, strict, place) for each in subjects), title)
    _write(report, summary, outputs, junit, gitlab_metrics)
    _print(report, as_json)
    tell_of_outcomes(report.outcomes, experiments, place, channels, quiet=quiet)
    return 0 if no_fail else report.exit_code


def _outcome(each: "Subject", against: str, strict: bool, store: "Store") -> "Outcome":
    from inferometer.show.ci.outcome import outcome

    check = each.check if each.check is not None else _check(each.run, against, store)
    return outcome(each.run, check, strict=strict, label=each.label, parameters=each.parameters)


def _check(run: "Run", against: str, store: "Store") -> dict[str, Any] | None:
    """A run that is not there to be checked is a problem of its own."""
    if against == "none" or not run.summary:
        return None
    from inferometer.comparison import check_run

    return check_run(run.id, store, against=against).document()


def _write(
    report: "Report", summary: Path | None, outputs: Path | None, junit: Path | None, metrics: Path | None
) -> None:
    from inferometer.record.files import write_text
    from inferometer.show.ci import github, gitlab
    from inferometer.show.ci.junit import junit as as_junit

    if summary is not None:
        github.write_summary(report, summary)
    if outputs is not None:
        github.write_outputs(report, outputs)
    if junit is not None:
        write_text(junit, as_junit(report))
    if metrics is not None:
        write_text(metrics, gitlab.metrics(report))


def _print(report: "Report", as_json: bool) -> None:
    """Annotations are commands to GitHub; the text beside them is kept from being one."""
    import io

    from inferometer.cli.printing import print_json
    from inferometer.show.ci import github
    from inferometer.show.ci.text import print_report
    from inferometer.show.console import console

    if as_json:
        print_json(report.document())
    elif not github.in_github():
        print_report(report, console())
    else:
        text = io.StringIO()
        print_report(report, console(text, width=100))
        echo(github.guarded(text.getvalue()), nl=False)
        for line in github.annotations(report):
            echo(line)
