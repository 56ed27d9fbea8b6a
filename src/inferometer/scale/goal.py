"""A process that runs during the load, reads the logs of all workers as they grow and reports when a class's goal is
reached: a number is precise enough, or a limit is certainly missed. Logs of workers on other hosts are read as far as
they have arrived. `python -m inferometer.scale.goal FOLDER`, the plan on stdin.

It evaluates whenever there is a tenth more data, so an interval that is narrow by chance has few chances to end the
run. Each evaluation reads only new data, and computes only the measures of the goals.
"""

import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from inferometer.judge.limits import certainly_missed
from inferometer.load.facts import facts_of
from inferometer.load.progress import GOALS, Goals, ReachedGoal, write_goals
from inferometer.measure.inputs import Answers, sums_of_reads
from inferometer.measure.steadiness import decided, settled_at
from inferometer.measure.summary import goal_summary
from inferometer.measure.verdict import queue_grows
from inferometer.measure.window import of_class
from inferometer.observe.observer import lower_priority
from inferometer.plan.model import Plan, Traffic
from inferometer.record.columns import Records
from inferometer.record.gather import GrowingLogs
from inferometer.record.log import Note
from inferometer.record.summary import ClassSummary
from inferometer.vocabulary import percent_written
from inferometer.wire.child import python_command

POLL_S = 0.5
GROWN = 1.1
FEWEST = 50  # requests: with fewer, no interval is evaluated
LEAST_PRECISE = 200  # requests: with fewer, blocks are too short to show the correlation of requests

LOST_CONFIDENCE = 0.99999  # of the interval by which a limit is missed by far


def has_goals(plan: Plan) -> bool:
    return any(traffic.stop.precision or traffic.stop.lost for traffic in plan.classes)


@contextmanager
def watched_goals(plan: Plan, folder: Path) -> Iterator[None]:
    """Reached goals are named in `goals.json` of the folder, for as long as the load lasts."""
    if not has_goals(plan):
        yield
        return
    command = python_command("inferometer.scale.goal", str(folder))
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert watcher.stdin is not None
    try:
        watcher.stdin.write(orjson.dumps(plan.model_dump(mode="json")) + b"\n")
        watcher.stdin.flush()
        yield
    finally:
        watcher.stdin.close()
        watcher.kill()  # it has no state that could be lost
        watcher.wait()


def main(folder: Path) -> None:
    lower_priority()
    plan = Plan.model_validate(orjson.loads(sys.stdin.buffer.readline()))
    goals: Goals = {}
    before: Goals = {}  # a goal is reached when two evaluations in a row agree: one may be chance
    logs, seen = GrowingLogs(folder, sums_of_reads), 0
    while not _parent_gone():
        size = logs.size()
        if size < seen * GROWN:
            continue
        seen = size
        reached = reached_goals(plan, logs.look(), logs.gathered.notes)
        again = {name: why for name, why in reached.items() if name in before and name not in goals}
        before = reached
        if again:
            goals |= again
            write_goals(folder / GOALS, goals)
        if len(goals) == len(plan.classes):
            return


def reached_goals(plan: Plan, records: Records, notes: Sequence[Note]) -> Goals:
    """The reached goal of each class; classes without a goal, or with one not reached yet, are missing."""
    sure = decided(records)
    if len(sure) < FEWEST:
        return {}
    facts, answers = facts_of(plan, sure, notes), Answers.of(sure)
    strictly = plan.model_copy(update={"confidence": LOST_CONFIDENCE})
    goals: Goals = {}
    for traffic in plan.classes:
        own = of_class(answers, plan, traffic.name)
        part = goal_summary(own, plan, facts, traffic.name)
        why = _precise(part, own, traffic)
        if why is None and traffic.stop.lost:
            why = lost(part, goal_summary(own, strictly, facts, traffic.name), traffic)
        goals |= {traffic.name: why} if why else {}
    return goals


def _precise(part: ClassSummary, answers: Answers, traffic: Traffic) -> ReachedGoal | None:
    """A narrow interval counts once the run has settled and nothing drifts any more."""
    precision, steady = part.precision, part.window.steady
    if precision is None or not precision.met or (part.window.requests or 0) < LEAST_PRECISE:
        return None
    if (steady is not None and steady.status == "drifting") or settled_at(answers, traffic) is None:
        return None
    known = percent_written(round(precision.within or 0.0, 4))
    return ReachedGoal(f"{precision.measure} {precision.stat} is known within {known}", "precise")


def lost(part: ClassSummary, strict: ClassSummary, traffic: Traffic) -> ReachedGoal | None:
    """Whether a limit is missed by its interval, and either by far or in a queue that only grows. Otherwise a short bad
    period would end the run, because the interval is evaluated often."""
    by = part if queue_grows(part) else strict
    reasons = (certainly_missed(limit, by) for limit in traffic.limits)
    return next((ReachedGoal(text, "lost") for text in reasons if text), None)


def _parent_gone() -> bool:
    """Wait for the next evaluation; the end of stdin means that the result is no longer needed."""
    readable, _, _ = select.select([sys.stdin], [], [], POLL_S)
    return bool(readable)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
