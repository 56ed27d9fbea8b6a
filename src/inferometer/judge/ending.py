"""How a run ends for a script: its exit code, by what happened, its verdict and its limits. Pure.

docs/concepts/verdict.md has the table. What is printed about it is left to the command line.
"""

import signal
from collections.abc import Mapping

from inferometer.errors import INVALID, LIMIT_FAILED, UNREACHABLE
from inferometer.record.record import CENSORED
from inferometer.record.run import Run
from inferometer.record.summary import LimitResult

LOST = ("server_lost", "worker_lost")  # codes of reasons: the run is a piece of what was planned
# What the target did: a limit that is broken by it is broken. With any other cause of `invalid`, such as our own late
# sends, it may in truth be kept.
BY_TARGET = frozenset({"failed_requests", "nothing_answered", "unbounded_queue", "ended_early"})


def exit_code(run: Run) -> int:
    """0: measured, and no limit speaks against it."""
    if run.state == "interrupted":
        return 128 + ended_by(run)
    if never_reached(run.summary.outcomes):
        return UNREACHABLE
    limits = run.summary.limits
    if any(_is_broken(limit, invalid_codes(run)) for limit in limits):
        return LIMIT_FAILED
    undecided = any(limit.met is None for limit in limits)
    return INVALID if undecided or run.state == "failed" or run.status == "invalid" else 0


def _is_broken(limit: LimitResult, codes: set[str]) -> bool:
    """Whether it is, and not by us. How late we send makes no request fail."""
    excused = codes & set(LOST) if limit.limit.startswith("failure_rate") else codes - BY_TARGET
    return limit.met is False and not excused


def invalid_codes(run: Run) -> set[str]:
    return {reason.code for reason in run.doubts if reason.status == "invalid"}


def ended_by(run: Run) -> int:
    """The number of the signal that interrupted a run."""
    names = (reason.signal for reason in run.doubts)
    return next((int(signal.Signals[name]) for name in names if name), int(signal.SIGINT))


def losses(run: Run) -> list[str]:
    """What was lost on the way, a sentence each: workers, and the server."""
    return [reason.text for reason in run.doubts if reason.code in LOST]


def never_reached(outcomes: Mapping[str, int]) -> bool:
    """Whether no server ever answered anything, not even an error. Requests that we ended ourselves say nothing of
    that; a run without requests (offline, a benchmark) has no outcomes."""
    if not outcomes or outcomes.get("ok"):
        return False
    failed = {outcome: n for outcome, n in outcomes.items() if n and outcome not in CENSORED}
    return set(failed) == {"connect"} if failed else not sum(outcomes.values())
