"""Lets other load generators send the load of a plan, and prints what each of them reports."""

import math
import shlex
from collections.abc import Sequence

from inferometer.cli.errors import echo, print_message
from inferometer.cli.options import duration_of
from inferometer.cli.work.printing import exit_code, print_run
from inferometer.conduct.harness import TIME_LIMIT_S, HarnessOptions, rendered_for, run_harnesses
from inferometer.exchange.harness import BUILT_IN
from inferometer.plan.model import Plan
from inferometer.record.run import Run, document
from inferometer.show.console import console, emit, print_json
from inferometer.show.imported import harness_of, harnesses_table
from inferometer.show.progress import ProgressLine
from inferometer.store.manifest import checked_label
from inferometer.store.store import Place, open_store


def print_rendered(plan: Plan, names: Sequence[str]) -> None:
    """Prints the command and the files that each harness would get."""
    for name in names:
        if name in BUILT_IN:
            echo(f"# {name}: {BUILT_IN[name]}")
            continue
        rendered, differences = rendered_for(plan, name)
        for difference in differences:
            echo(f"# {name}: {difference}")
        echo(shlex.join(rendered.argv))
        for file, text in rendered.files.items():
            echo(f"\n# {file}\n{text}")


def conduct_harnesses(
    plan: Plan,
    names: Sequence[str],
    store: Place,
    *,
    as_json: bool,
    quiet: bool,
    wait_s: float,
    time_limit: str | None = None,
    tags: Sequence[str] = (),
) -> int:
    """Makes and prints one run per harness; returns the worst exit code."""
    checked_tags = [checked_label(tag, "tag") for tag in tags]
    limit_s = TIME_LIMIT_S if time_limit is None else duration_of("--harness-timeout", time_limit)
    line = ProgressLine(lines=1 if as_json else math.inf)

    def note(text: str) -> None:
        line.clear()
        print_message("note", text)

    try:
        runs = run_harnesses(
            plan,
            list(dict.fromkeys(names)),
            store=store,
            watch=None if quiet else line,
            notes=(lambda _text: None) if quiet else note,
            options=HarnessOptions(time_limit_s=limit_s, wait_for_target_s=wait_s),
        )
    finally:
        line.clear()
    for run in runs if checked_tags else ():
        open_store(store).tag(run.id, checked_tags)
    _print_runs(runs, as_json=as_json)
    return max(exit_code(run, shown=not as_json and len(runs) == 1) for run in runs)


def _print_runs(runs: Sequence[Run], *, as_json: bool) -> None:
    """Prints a single run like any other, several as a table of what each tool reports."""
    if len(runs) == 1:
        print_run(runs[0], as_json=as_json, slowest=0)
    elif as_json:
        print_json({"runs": [document(run) for run in runs]}, "harnesses")
    else:
        emit(harnesses_table(runs), console())
        echo("")
        for run in runs:
            echo(f"{harness_of(run):16}inferometer show {run.id}")
