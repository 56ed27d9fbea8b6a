"""Commands that run before a server starts: each with its own log and time limit. What one writes as `NAME=value` lines
into the file that `$INFEROMETER_ENV` names is environment for those behind it, and for the server."""

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from inferometer.errors import TargetError
from inferometer.plan.redactor import Redactor
from inferometer.plan.secrets import redacted_line, redacted_text, redacted_words
from inferometer.plan.server import Prepare
from inferometer.target.process import Process, not_started, tail
from inferometer.vocabulary import duration_text

HANDED_ON = "INFEROMETER_ENV"
GRACE_S = 2.0


def prepare(
    steps: Sequence[Prepare],
    folder: Path,
    token: str,
    env: Mapping[str, str],
    working: Path | None,
    say: Callable[[str], None],
    echo: bool = False,
    redactor: Redactor | None = None,
) -> dict[str, str]:
    """Run every step to its end; the environment that they hand on. A `TargetError` where one fails."""
    handed: dict[str, str] = {}
    for number, step in enumerate(steps, 1):
        log = folder / f"prepare-{number}.log"
        say(f"prepare {number}/{len(steps)}: {title(step)}")
        handed |= _run(step, log, token, {**env, **handed}, working, echo, redactor)
    return handed


def title(step: Prepare) -> str:
    """What people call it; else the command itself, in short."""
    text = redacted_line(step.run) if isinstance(step.run, str) else shlex.join(redacted_words(step.run))
    return step.name or (text if len(text) <= 60 else f"{text[:57]}...")


def _run(
    step: Prepare,
    log: Path,
    token: str,
    env: Mapping[str, str],
    working: Path | None,
    echo: bool,
    redactor: Redactor | None,
) -> dict[str, str]:
    with tempfile.NamedTemporaryFile("r", prefix="inferometer-env-", encoding="utf-8", errors="replace") as handed:
        argv = _argv(step)
        try:
            own = {**env, HANDED_ON: handed.name}
            process = Process(argv, log, token, env=own, folder=working, echo=echo, redactor=redactor)
        except OSError as error:
            raise not_started(f"prepare: {title(step)}", argv, error, "is it spelled right, and on PATH?") from None
        try:
            in_time = process.wait(step.timeout)
            how, failed = process.ended(), process.failed
        finally:
            process.end(GRACE_S)
        if not in_time or failed:
            what = f"ended {how}" if in_time else f"took longer than {duration_text(step.timeout)} and was ended"
            raise _failure(step, log, what)
        return dict(re.findall(r"^([A-Za-z_]\w*)=(.*)$", handed.read(), re.MULTILINE))


def _argv(step: Prepare) -> list[str]:
    """A line is for the shell: bash where there is one, for `source` is not in every other."""
    return [shutil.which("bash") or "/bin/sh", "-c", step.run] if isinstance(step.run, str) else step.run


def _failure(step: Prepare, log: Path, what: str) -> TargetError:
    end = "".join(f"\n  {redacted_text(line)}" for line in tail(log))
    said = f", the end of its log:{end}" if end else ", its log is empty"
    return TargetError(f"prepare: {title(step)} {what}{said}", f"the whole log: {log}")
