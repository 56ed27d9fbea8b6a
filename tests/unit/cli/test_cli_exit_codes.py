"""The result of a run for a script: its exit code, and the messages on stderr."""

from dataclasses import replace

import pytest
from made_runs import made_run
from msgspec import structs

from inferometer.cli.work.printing import exit_code
from inferometer.record.run import Run
from inferometer.record.verdict import Reason, Status, Verdict


def judged(run: Run, status: Status, *texts: str) -> Run:
    doubts = [Reason(status=status, code="x", text=text) for text in texts]
    return replace(run, verdict=Verdict(status=status, doubts=doubts))


VALID = judged(made_run(limits=["ttft p50 < 1s"]), "valid")
MISSED = judged(made_run(limits=["ttft p50 < 1us", "failure_rate < 1%"]), "valid")
UNTOLD = judged(made_run(requests=100, limits=["ttft p99.9 < 1s", "ttft p50 < 1s"]), "valid")

NEEDED = UNTOLD.summary.limits[0].needed
DECIDES = f"hint: about {NEEDED:,} requests in the window would decide it: --requests or --duration"
BROKEN_AND_INVALID = "error: a limit failed: ttft p50 < 1us\nerror: not valid as a measurement: Why.\n"
KEPT = "warning: interrupted; the measurements so far are stored\n"


def coded(run: Run, code: str, text: str = "Why.") -> Run:
    doubt = Reason(status="invalid", code=code, text=text)
    return replace(run, verdict=Verdict(status="invalid", doubts=[doubt]))


def ended(run: Run, **outcomes: int) -> Run:
    summary = structs.replace(run.summary, outcomes={"ok": 0, **outcomes}, errors=[])
    return coded(replace(run, summary=summary), "nothing_answered")


def interrupted_by(name: str) -> Run:
    doubt = Reason(status="doubtful", code="interrupted", text="x", signal=name)
    return replace(MISSED, state="interrupted", verdict=Verdict(status="doubtful", doubts=[doubt]))


CASES = [
    (VALID, 0, ""),
    (judged(VALID, "doubtful", "Not steady."), 0, "warning: doubtful as a measurement: Not steady.\n"),
    (MISSED, 1, "error: a limit failed: ttft p50 < 1us\n"),
    (UNTOLD, 4, f"error: a limit could not be decided: {UNTOLD.summary.limits[0].text}\n{DECIDES}\n"),
    (judged(MISSED, "invalid", "Late.", "Short."), 4, "error: not valid as a measurement: Late. Short.\n"),
    (coded(VALID, "failed_requests"), 4, "error: not valid as a measurement: Why.\n"),
    # a limit that is broken by what the target did is broken, also where that makes the numbers invalid
    (coded(MISSED, "failed_requests"), 1, BROKEN_AND_INVALID),
    (coded(MISSED, "unbounded_queue"), 1, BROKEN_AND_INVALID),
    # late sends make no request fail
    (
        coded(made_run(requests=100, failed=0.2, limits=["failure_rate < 5%"]), "late_sends"),
        1,
        "error: a limit failed: failure_rate < 5%\nerror: not valid as a measurement: Why.\n",
    ),
    # with our own late sends it may be kept in truth
    (coded(MISSED, "late_sends"), 4, "error: not valid as a measurement: Why.\n"),
    (
        replace(coded(MISSED, "server_lost", "Gone."), state="failed"),
        4,
        "error: Gone.\nerror: not valid as a measurement: Gone.\n",
    ),
    (
        replace(coded(VALID, "worker_lost", "Worker 1."), state="failed"),
        4,
        "error: Worker 1.\nerror: not valid as a measurement: Worker 1.\n",
    ),
    (replace(VALID, state="failed"), 4, "error: the run failed\n"),
    # every request was answered with an error: the server was reached
    (
        judged(made_run(requests=10, failed=1.0, error="503: busy"), "invalid", "Nothing."),
        4,
        "error: not valid as a measurement: Nothing.\n",
    ),
    (ended(VALID, connect=10), 3, "error: no request was answered\n"),
    (ended(VALID, unfinished=10), 4, "error: not valid as a measurement: Why.\n"),
    (ended(VALID, unfinished=9, cut=1), 4, "error: not valid as a measurement: Why.\n"),
    (ended(VALID, unfinished=9, connect=1), 3, "error: no request was answered\n"),
    (replace(MISSED, state="interrupted"), 130, KEPT),
    (interrupted_by("SIGINT"), 130, KEPT),
    (interrupted_by("SIGTERM"), 143, KEPT),
]


@pytest.mark.parametrize(("run", "code", "said"), CASES)
def test_exit_code(run: Run, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(run, shown=False) == code
    told = capsys.readouterr()
    assert told.err == said
    assert told.out == ""


def test_reasons_are_not_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(judged(VALID, "doubtful", "Not steady.", "Short."), shown=True) == 0
    assert capsys.readouterr().err == "warning: doubtful as a measurement: see the 2 reasons above\n"
