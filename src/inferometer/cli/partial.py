"""A run that was killed, or still runs: measured as far as its logs go."""

from dataclasses import replace
from pathlib import Path

from inferometer.calibrate import load_curve
from inferometer.errors import StoreError
from inferometer.measure.verdict import verdict
from inferometer.plan.reading import plan_from
from inferometer.record.gather import read_logs
from inferometer.record.run import STATES, Run
from inferometer.run import measured


def partial_run(run: Run, store: Path) -> Run:
    """The run with the summary and verdict of what its logs hold; nothing on disk is changed."""
    logs = sorted(run.folder.glob("log-*.bin")) if run.folder else []
    if not logs:
        if run.summary:
            raise StoreError(f"{run.id}: is not partial, it {STATES[run.state]}", f"inferometer show {run.id}")
        raise StoreError(f"{run.id}: nothing was logged: it ended before anything was sent")
    plan = plan_from(run.plan, where=run.id)
    records, gathered = read_logs(logs)
    if not len(records):
        raise StoreError(f"{run.id}: no request was over when it ended, so there is nothing to show")
    summary, facts = measured(plan, records, gathered, load_curve(store))
    return replace(run, summary=summary, verdict=verdict(summary, facts, plan), read_records=lambda: records)
