"""`inferometer ci`: runs and their checks as CI shows them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import json_option, notify_option, quiet_option, store_of, store_option

if TYPE_CHECKING:
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
    from inferometer.cli.notifying import channels_of, tell_of_outcomes
    from inferometer.show.ci.outcome import Report

    channels, place = channels_of(notify), store_of(store)
    found = tuple(_outcomes(what, since, against, strict, place))
    report = Report(found, title)
    _write(report, summary, outputs, junit, gitlab_metrics)
    _print(report, as_json)
    tell_of_outcomes(report.outcomes, place, channels, quiet=quiet)
    return 0 if no_fail else report.exit_code


def _outcomes(
    what: tuple[str, ...], since: str | None, against: str, strict: bool, store: "Store"
) -> "Iterator[Outcome]":
    from inferometer.show.ci.outcome import outcome

    for run, given, about in _named(what, since, store):
        check = given if given is not None else _check(run, against, store)
        yield outcome(run, check, strict=strict, **about)


def _check(run: Any, against: str, store: "Store") -> dict[str, Any] | None:
    """A run that is not there to be checked is a problem of its own."""
    if against == "none" or not run.summary:
        return None
    from inferometer.comparison import check_run

    return check_run(run.id, store, against=against).document()


def _named(what: tuple[str, ...], since: str | None, store: "Store") -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Each run once, with its check where that was given and with what it is called."""
    seen: set[str] = set()
    for run, check, about in _all(what, since, store):
        if run.id not in seen:
            seen.add(run.id)
            yield run, check, about


def _all(what: tuple[str, ...], since: str | None, store: "Store") -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    from inferometer.comparison import runs_named

    if since is not None:
        yield from _since(since, store)
    for word in what or (("latest",) if since is None else ()):
        if word.endswith(".json"):
            check = _document(Path(word))
            yield store.load(str(check["run"])), check, {}
        elif (experiment := _experiment(word, store)) is not None:
            yield from _cases(experiment, store)
        else:
            yield from ((run, None, {}) for run in runs_named(word, store))


def _since(text: str, store: "Store") -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Cases of an experiment are called as they are called there."""
    from inferometer.errors import StoreError

    start = _instant(text)
    entries = [entry for entry in store.runs() if _at(entry.started_at) >= start]
    if not entries:
        raise StoreError(f"no run since {start:%Y-%m-%d %H:%M:%S} UTC", "inferometer list shows what there is")
    for entry in reversed(entries):
        yield store.load(entry.id), None, {"label": entry.case} if entry.case else {}


def _instant(text: str) -> Any:
    from datetime import UTC, datetime, timedelta

    from inferometer import vocabulary

    try:
        return datetime.now(UTC) - timedelta(seconds=vocabulary.seconds(text))
    except (ValueError, OverflowError):
        pass
    try:
        return _at(text)
    except ValueError:
        raise click.UsageError(f"--since must be a time such as 2h or 2026-11-15T03:00:00Z, got {text}") from None


def _at(text: str) -> Any:
    from datetime import UTC, datetime

    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _document(file: Path) -> dict[str, Any]:
    import json

    from inferometer.errors import DataError
    from inferometer.record.files import told
    from inferometer.record.schema import check_schema

    with told(file):
        content = file.read_text(encoding="utf-8")
    try:
        said: dict[str, Any] = json.loads(content)
    except ValueError as error:
        raise DataError(f"{file}: not JSON: {error}", "inferometer check --json writes one") from None
    check_schema(file, "check", said.get("schema") if isinstance(said, dict) else None)
    return said


def _experiment(word: str, store: "Store") -> Any:
    """An experiment by its id, the beginning of one, its name, or `experiment` for the latest; None if it is none."""
    from inferometer.store.experiments import experiments_of

    if "/" in word or not (store.home / "experiments").is_dir():
        return None
    known = experiments_of(store.home)
    if word == "experiment" and known:
        return known[0]
    return next((each for each in known if each.id.startswith(word) or each.name == word), None)


def _cases(experiment: Any, store: "Store") -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Those that failed before there was a run are results too."""
    from inferometer.errors import StoreError
    from inferometer.record.run import Run

    if not experiment.latest:
        raise StoreError(f"{experiment.id}: no case of this experiment was done", "inferometer sweep goes on with it")
    for case in experiment.latest:
        parameters = {str(name): value for name, value in (case.get("parameters") or {}).items()}
        about = {"label": str(case["name"]), "parameters": parameters}
        if case.get("run"):
            yield store.load(case["run"]), None, about
        else:
            why = {"word": "failed", "reasons": [{"text": str(case.get("error") or "")}]}
            yield Run(str(case["name"]), experiment.started_at, {}, {}, {}, why, state="failed"), None, about


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
        click.echo(github.guarded(text.getvalue()), nl=False)
        for line in github.annotations(report):
            click.echo(line)
