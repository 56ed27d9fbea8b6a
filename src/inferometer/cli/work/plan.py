"""Checks plans, prints them with all defaults, and prints their schema."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from inferometer.cli.errors import echo
from inferometer.errors import PlanError
from inferometer.plan.cases import cases_of
from inferometer.plan.experiment import json_schema as experiment_schema
from inferometer.plan.experiment import to_yaml as experiment_yaml
from inferometer.plan.foreign import shapes as shown
from inferometer.plan.foreign.common import AccountEntry, IsExperiment
from inferometer.plan.foreign.explain import STATUSES, audit, explain_command, explain_file
from inferometer.plan.foreign.recognise import OpenedExperiment, open_experiment
from inferometer.plan.model import Plan
from inferometer.plan.opening import Opened, is_command, open_plan
from inferometer.plan.server import Router
from inferometer.plan.text import json_schema, to_yaml
from inferometer.router.settings import check_policy
from inferometer.show.console import print_json
from inferometer.vocabulary import percent_text


def check(files: tuple[str, ...]) -> None:
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


def _check_routers(plans: Iterable[object], file: str) -> None:
    """Checks routing policies, which only the router knows. Benchmarks and offline cases of an experiment have no
    router."""
    servers = [plan.server for plan in plans if isinstance(plan, Plan)]
    routers = [server.router or Router() for server in servers if server is not None and server.has_own_router]
    try:
        for router in routers:
            check_policy(router)
    except PlanError as error:
        error.name(file)
        raise


def show_plan(
    args: tuple[str, ...], changes: tuple[str, ...], overrides: tuple[str, ...], full: bool, explain: bool
) -> None:
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
    """Prints every key of another tool's plan with the settings that it became."""
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
        raise PlanError([f"{name}: has no effect on the plan, and no note says so" for name in explained.lost])


def _entry_line(entry: AccountEntry) -> str:
    """`load.interval = 15 -> load.stages`, or why it has no effect."""
    value = f" = {entry.value}" if entry.value else ""
    if entry.outcome == "no effect":
        return f"{entry.source}{value}: no effect: {entry.note}"
    where = ", ".join(entry.where) or "the default"
    return f"{entry.source}{value} -> {where}" + (f" ({entry.note})" if entry.note else "")


def audit_plans(folder: str, as_json: bool) -> int:
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
) -> Opened | OpenedExperiment:
    """What the arguments mean: a plan, or an experiment if no single plan can express it."""
    try:
        return open_plan(args, overrides, changes=changes)
    except IsExperiment:
        if args == ("-",):  # stdin has already been read
            raise
        return open_experiment(args, overrides, changes=changes)


def _show_experiment(opened: OpenedExperiment) -> None:
    echo(f"# {opened.tool}, as an experiment" if opened.tool else "# an experiment")
    for note in opened.notes:
        echo(f"# {note}")
    echo(experiment_yaml(opened.experiment), nl=False)


def schema(experiment: bool) -> None:
    print_json(experiment_schema() if experiment else json_schema())
