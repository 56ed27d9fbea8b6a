"""Runs an experiment, case by case."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.errors import (
    INVALID,
    LIMIT_FAILED,
    TERMINATED,
    UNREACHABLE,
    echo,
    interrupted_code,
    notes_once,
    print_message,
)
from inferometer.cli.work.stores import store_of
from inferometer.conduct.prepare import (
    Prepared,
    begin,
    done_cases,
    expectations,
    kept_experiment,
    prepare,
    prepare_kept,
    resume,
    unfinished,
)
from inferometer.documents.document import JsonObject
from inferometer.errors import StoreError
from inferometer.plan.cases import Case, server_starts
from inferometer.record.files import write_text
from inferometer.show.console import console, print_json
from inferometer.show.experiment import (
    csv_text,
    dry_run_document,
    experiment_document,
    print_cases,
    print_dry_run,
    print_strategy_changes,
)
from inferometer.show.notify import channels_of
from inferometer.store.experiments import KeptExperiment
from inferometer.store.store import Store

if TYPE_CHECKING:
    from inferometer.conduct.sweep import Swept

SWITCH_OFF_REPEATS = 4


def sweep(
    args: tuple[str, ...],
    dry_run: bool,
    resume: str | None,
    fresh: bool,
    force: bool,
    retry_failed: bool,
    overrides: tuple[str, ...],
    changes: tuple[str, ...],
    model_file: Path | None,
    most: int,
    switch_off: bool,
    csv_file: str | None,
    notify: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    store: Path | None,
) -> int:
    args, resume = _meant(args, resume, fresh)
    channels, kept_in = channels_of(notify), store_of(store)
    request = _Request(args, (*_predicting(model_file), *overrides), changes, most, switch_off)
    prepared, kept = _prepared(request, resume, kept_in)
    for note in () if quiet else prepared.notes:
        print_message("note", note)
    if dry_run:
        _print_dry_run(prepared, kept, as_json)
        return 0
    _check_csv(csv_file)
    swept = _conducted(prepared, kept, kept_in, force, retry_failed, quiet=quiet, fresh=fresh)
    _write_csv(swept, csv_file)
    _printed(prepared, swept, kept_in, as_json)
    if model_file is not None:
        print_message("note", f"predicted by {model_file}: nothing was measured")
    if channels and not swept.interrupted:
        from inferometer.cli.work.notify import notify_experiment  # only with --notify

        notify_experiment(prepared.experiment.name, swept.rows, swept.kept.id, kept_in, channels, quiet=quiet)
    return _exit_code(swept, kept_in)


def _predicting(model_file: Path | None) -> tuple[str, ...]:
    """The settings that make all cases predictions with a model."""
    if model_file is None:
        return ()
    server = {"type": "simulator", "args": {"model_file": str(model_file.resolve())}}
    return ("time=virtual", f"server={json.dumps(server)}")


def _meant(args: tuple[str, ...], resume: str | None, fresh: bool) -> tuple[tuple[str, ...], str | None]:
    """The named file and the experiment to resume: `--resume FILE` means FILE with --resume."""
    if resume and not args and Path(resume).is_file():
        args, resume = (resume,), ""
    if not args and not resume:
        raise click.UsageError("no experiment given: name its file, or one to --resume")
    if fresh and resume is not None:
        raise click.UsageError("--fresh and --resume exclude each other")
    return args, resume


@dataclass(frozen=True)
class _Request:
    """The experiment that a command line names, and the changes to it."""

    args: tuple[str, ...]
    overrides: tuple[str, ...]
    changes: tuple[str, ...]
    most: int
    switch_off: bool

    def prepared(self) -> Prepared:
        if self.switch_off and len(self.args) > 1:
            raise click.UsageError("--switch-off takes one plan")
        source = _switching(self.args[0]) if self.switch_off else self.args
        return prepare(source, self.overrides, self.most, self.changes)


def _prepared(request: _Request, wanted: str | None, store: Store) -> tuple[Prepared, KeptExperiment | None]:
    """The experiment, and the one to resume if requested."""
    if not request.args:
        assert wanted
        kept = kept_experiment(wanted, store)
        return prepare_kept(kept, request.most), kept
    prepared = request.prepared()
    if wanted is None:
        return prepared, None
    resumed = kept_experiment(wanted, store) if wanted else unfinished(prepared, store)
    if resumed is None:
        raise StoreError(f"{request.args[0]}: this file has no unfinished experiment", "start it without --resume")
    overrides, changes = resumed.sweep.overrides, resumed.sweep.changes
    if not request.overrides and not request.changes and (overrides or changes):
        prepared = replace(request, overrides=overrides, changes=changes).prepared()
    return prepared, resumed


def _switching(plan: str) -> JsonObject:
    """The experiment that `--switch-off PLAN` means."""
    name = f"switch-off of {Path(plan).stem}"
    return {
        "name": name,
        "plan": str(Path(plan).resolve()) if Path(plan).is_file() else plan,
        "classes": "switch-off",
        "order": "abba",
        "repeats": SWITCH_OFF_REPEATS,
    }


def _conducted(
    prepared: Prepared,
    kept: KeptExperiment | None,
    store: Store,
    force: bool,
    retry_failed: bool,
    *,
    quiet: bool,
    fresh: bool,
) -> "Swept":
    from inferometer.conduct.sweep import sweep as sweep_cases  # not for --dry-run
    from inferometer.show.progress import LiveTable

    left = None if quiet or fresh or kept else unfinished(prepared, store)
    if left is not None:
        print_message(
            "note", f"experiment {left.id} of this file is unfinished: --resume continues it; a new one is started"
        )
    folder = resume(prepared, kept, force=force) if kept else begin(prepared, store)
    live = LiveTable(len(prepared.cases))
    try:
        return sweep_cases(
            prepared,
            folder,
            store=store,
            notes=None if quiet else notes_once(live.note),
            watch=None if quiet else live,
            on_begin=(lambda case, done: None) if quiet else (lambda case, done: live.begin(case.name, done)),
            on_case=(lambda row: None) if quiet else live.add,
            retry_failed=retry_failed,
        )
    finally:
        live.close()


def _print_dry_run(prepared: Prepared, kept: KeptExperiment | None, as_json: bool) -> None:
    done = done_cases(kept, prepared) if kept else {}
    lines = expectations(prepared, kept)
    left = [case for case in prepared.cases if case.key not in done]
    restarts = prepared.experiment.server.restart == "each-case"
    is_virtual = prepared.experiment.time == "virtual"
    starts = 0 if is_virtual else server_starts(left, restart_every_case=restarts)
    expected = [(case.name, lines[case.key], case.key in done) for case in prepared.cases]
    if not as_json:
        print_dry_run(expected, starts, console(), is_virtual)
        _print_waiting(prepared)
        return

    print_json(dry_run_document(expected, [_known(case, prepared) for case in prepared.cases], starts))


def _known(case: Case, prepared: Prepared) -> JsonObject:
    """The parameters of a case; null for a load that is not known yet."""
    levels = prepared.experiment.levels
    return {**case.parameters, **({levels.path: None} if levels and case.waits else {})}


def _print_waiting(prepared: Prepared) -> None:
    """Prints which loads are not known before the ends are measured."""
    levels = prepared.experiment.levels
    if levels is None or not levels.count:
        return
    count, ends = sum(case.waits for case in prepared.cases), levels.measured
    echo(f"{levels.path} of {count} cases is not known yet: it follows from the results of {ends}")


def _check_csv(file: str | None) -> None:
    """Checked before hours of work, not after them."""
    if file is not None and not Path(file).parent.is_dir():
        raise click.UsageError(f"--csv {file}: folder {Path(file).parent} does not exist")


def _write_csv(swept: "Swept", file: str | None) -> None:
    if file is None:
        return

    write_text(Path(file), csv_text(swept.rows))


def _printed(prepared: Prepared, swept: "Swept", store: Store, as_json: bool) -> None:
    from inferometer.conduct.sweep import changes_of, comparisons, doubt_of_tape  # not for --dry-run
    from inferometer.show.comparison import print_effects

    if as_json:
        print_json(experiment_document(swept.kept, swept.rows, swept.ended, swept.left))
        return

    to = console()
    print_cases(swept.rows, to)
    if prepared.experiment.classes and not swept.left:
        print_effects(comparisons(swept.rows, store), to)
    if prepared.experiment.baseline:
        print_strategy_changes(changes_of(prepared, swept.rows), to)
        if doubt := doubt_of_tape(prepared):
            print_message("warning", doubt)
    to.print()
    to.print(f"stored as   {swept.kept.id}")


def _exit_code(swept: "Swept", store: Store) -> int:
    """Prints on stderr why the exit code is not 0, and returns the code."""
    resume = f"inferometer sweep --resume {swept.kept.id}"
    if swept.left:
        of = len(swept.rows) + swept.left - swept.interrupted
        print_message("warning", f"{swept.ended}; {swept.left} of {of} cases are left")
        print_message("hint", f"continue with {resume}")
        if not swept.interrupted:
            return INVALID
        return next((row.exit_code for row in swept.rows if row.exit_code == TERMINATED), interrupted_code())
    if failed := swept.failed:
        print_message("error", f"{len(failed)} of {len(swept.rows)} cases failed")
        print_message("hint", f"repeat them: {resume} --retry-failed")
        return UNREACHABLE if all(row.exit_code == UNREACHABLE for row in swept.rows) else INVALID
    missed = [row.name for row in swept.rows if row.exit_code == LIMIT_FAILED]
    if missed:
        print_message("error", f"limits failed in {len(missed)} of {len(swept.rows)} cases: {', '.join(missed[:4])}")
    invalid = [row.name for row in swept.rows if row.exit_code == INVALID]
    if invalid:
        what = "not valid as a measurement, or a limit could not be decided"
        print_message("error", f"{what}, in {len(invalid)} of {len(swept.rows)} cases: {', '.join(invalid[:4])}")
    return LIMIT_FAILED if missed else INVALID if invalid else 0
