"""What a run means for a script: its exit code, and what is said on stderr."""

from dataclasses import replace
from typing import Any

import pytest
from made_runs import made_run

from inferometer.cli.printing import exit_code
from inferometer.record.run import Run


def judged(run: Run, word: str, *reasons: str) -> Run:
    told: list[dict[str, Any]] = [{"word": word, "code": "x", "text": text} for text in reasons]
    return replace(run, verdict={"word": word, "reasons": told})


VALID = judged(made_run(limits=["ttft p50 < 1s"]), "valid")
MISSED = judged(made_run(limits=["ttft p50 < 1us", "failure_rate < 1%"]), "valid")
UNTOLD = judged(made_run(requests=100, limits=["ttft p99.9 < 1s", "ttft p50 < 1s"]), "valid")

CASES = [
    (VALID, 0, ""),
    (judged(VALID, "doubtful", "Not steady."), 0, "warning: doubtful as a measurement: Not steady.\n"),
    (MISSED, 1, "error: a limit failed: ttft p50 < 1us\n"),
    (UNTOLD, 4, f"error: not valid as a measurement of a limit: {UNTOLD.summary['limits'][0]['text']}\n"),
    (judged(MISSED, "invalid", "Late.", "Short."), 4, "error: not valid as a measurement: Late. Short.\n"),
    (
        judged(made_run(requests=10, failed=1.0, error="503: busy"), "invalid", "Nothing."),
        3,
        "error: no request was answered completely: 503: busy\n",
    ),
    (
        judged(
            replace(VALID, summary=VALID.summary | {"outcomes": {"ok": 0, "unfinished": 10}}), "invalid", "None of 10."
        ),
        4,
        "error: not valid as a measurement: None of 10.\n",
    ),
    (
        judged(
            replace(VALID, summary=VALID.summary | {"outcomes": {"ok": 0, "unfinished": 9, "cut": 1}}), "invalid", "x"
        ),
        3,
        "error: no request was answered completely\n",
    ),
    (
        replace(MISSED, state="interrupted"),
        130,
        "warning: interrupted; what was measured until then is kept\n",
    ),
]


@pytest.mark.parametrize(("run", "code", "said"), CASES)
def test_exit_code(run: Run, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(run, shown=False) == code
    told = capsys.readouterr()
    assert told.err == said
    assert told.out == ""


def test_reasons_are_not_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(judged(VALID, "doubtful", "Not steady.", "Short."), shown=True) == 0
    assert capsys.readouterr().err == "warning: doubtful as a measurement: the 2 reasons are above\n"
