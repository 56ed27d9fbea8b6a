"""Runs a user's own benchmark, a command or a function, and stores its measurements as a run, with environment,
output and exit code."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from inferometer.errors import DataError, PlanError, TargetError
from inferometer.measure.custom import EXPECTED, documents_in, measures_in, summary_of
from inferometer.observe.environment import environment
from inferometer.plan.benchmark import STDOUT, Benchmark, written
from inferometer.plan.model import Plan
from inferometer.plan.redactor import Redactor
from inferometer.plan.secrets import redacted_text, redactor_of, starred_in
from inferometer.record.encoding import environment_document, environment_from
from inferometer.record.environment import BenchmarkEnd
from inferometer.record.run import Run, State
from inferometer.record.sanitize import harmless
from inferometer.record.summary import Summary
from inferometer.record.verdict import Reason, judged
from inferometer.store.save import keep
from inferometer.store.store import Place, open_store
from inferometer.target.entry import NOT_FOUND
from inferometer.target.process import MARK, belonging, end_all
from inferometer.vocabulary import duration_text
from inferometer.wire.child import python_command

MOST_LOG = 4 * 2**20  # bytes kept of each output, counted from the end
MOST_RESULT = 64 * 2**20  # maximum bytes of JSON read
GRACE_S = 2.0  # to end by itself after INT, and again after TERM
LINES_SHOWN = 5
POLL_S = 0.02
OUT, ERR = "stdout.log", "stderr.log"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a benchmark ended, and its output."""

    code: int | None  # None: we ended it
    took_s: float
    how: str  # "ended", "timeout", "interrupted"
    out: bytes
    err: bytes
    result: str | None  # the text that should contain JSON; None if it wrote none


def run_benchmark(
    benchmark: Benchmark, store: Place = None, *, echo: bool = False, tags: Mapping[str, str] | None = None
) -> Run:
    """Run it to its end and store what it reported. A benchmark that fails, prints nothing usable or takes too long
    also becomes a run: `failed`, with the reason in its verdict, and its output. `tags` are facts for the
    environment."""
    kept_in = open_store(store)
    kept_in.check_writable()
    started = datetime.now(UTC)
    ended = _executed(benchmark, echo)
    summary, reasons = _judged(benchmark, ended)
    about = BenchmarkEnd(exit_code=ended.code, took_s=round(ended.took_s, 6), ended=ended.how)
    where = structs.replace(environment(Plan()), benchmark=about)
    return keep(
        kept_in,
        kind="benchmark",
        plan=written(benchmark),
        environment=environment_from(environment_document(where) | dict(tags or {})),
        summary=summary,
        verdict=judged(reasons),
        started=started,
        state=_state(ended, reasons),
        files={name: text for name, text in ((OUT, ended.out), (ERR, ended.err)) if text},
    )


def _state(ended: Ended, reasons: list[Reason]) -> State:
    if ended.how == "interrupted":
        return "interrupted"
    return "failed" if reasons else "complete"


# -- running it --------------------------------------------------------------------------------------------------


def _executed(benchmark: Benchmark, echo: bool) -> Ended:
    redactor = _redactor(benchmark)
    with tempfile.TemporaryDirectory(prefix="inferometer-benchmark-") as name:
        place = Path(name)
        file = place / "result.json" if benchmark.python else _file_of(benchmark)
        before = file.stat().st_mtime_ns if file and file.exists() else None
        argv = _argv(benchmark, place / "result.json")
        code, how, took_s = _run(benchmark, argv, place, redactor if echo else None)
        out, err = _kept(place / OUT, redactor), _kept(place / ERR, redactor)
        if benchmark.python and code == NOT_FOUND:
            raise PlanError(_end_of(err)[-1] if _end_of(err) else f"{benchmark.python}: function not found")
        result = _result(file, before, place / OUT)
        return Ended(code, took_s, how, out, err, None if result is None else redactor.hide(result))


def _redactor(benchmark: Benchmark) -> Redactor:
    original = benchmark.model_dump(mode="json", exclude_defaults=True)
    return redactor_of(more=starred_in(original, written(benchmark)["benchmark"]))


def _argv(benchmark: Benchmark, result: Path) -> list[str]:
    if benchmark.python is not None:
        arguments = [benchmark.python, json.dumps(benchmark.args), str(result)]
        return python_command("inferometer.target.entry", *arguments)
    command = benchmark.filled()
    return [shutil.which("bash") or "/bin/sh", "-c", command] if isinstance(command, str) else command


def _file_of(benchmark: Benchmark) -> Path | None:
    if benchmark.output == STDOUT:
        return None
    return Path(benchmark.folder or ".") / benchmark.output


def _run(benchmark: Benchmark, argv: list[str], place: Path, echo: Redactor | None) -> tuple[int | None, str, float]:
    """Exit code, how it ended and its duration; none of its processes is left running afterwards."""
    token = secrets.token_hex(8)
    began = time.monotonic()
    with _started(benchmark, argv, place, token) as process:
        try:
            how = _awaited(process, benchmark.timeout, began, place / ERR, echo)
        except KeyboardInterrupt:
            how = "interrupted"
        took_s = time.monotonic() - began
        end_all(lambda: belonging(token, process.pid), GRACE_S if how != "ended" else 0.0)
    return process.returncode if how == "ended" else None, how, took_s


@contextmanager
def _started(benchmark: Benchmark, argv: list[str], place: Path, token: str) -> Iterator[subprocess.Popen[bytes]]:
    """In its own session, so that Ctrl-C here does not reach it, with a mark that its children inherit."""
    env = {**os.environ, **benchmark.env, MARK: token}
    with (place / OUT).open("wb") as out, (place / ERR).open("wb") as err:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=env,
                cwd=benchmark.folder,
                start_new_session=True,
            )
        except OSError as error:
            raise _not_started(benchmark, argv, error) from None
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _not_started(benchmark: Benchmark, argv: list[str], error: OSError) -> TargetError:
    if benchmark.folder is not None and not Path(benchmark.folder).is_dir():
        return TargetError(f"{benchmark.title}: folder {benchmark.folder} does not exist")
    hint = "is it spelled right, on PATH and executable?"
    return TargetError(f"{argv[0]}: could not be started: {(error.strerror or str(error)).lower()}", hint)


def _awaited(
    process: subprocess.Popen[bytes], limit_s: float | None, began: float, log: Path, echo: Redactor | None
) -> str:
    """`ended`, or `timeout` if the limit came first; meanwhile its log is forwarded to our stderr, with secrets hidden
    by `echo`."""
    passed_on = 0
    while True:
        over = process.poll() is not None
        passed_on += _pass_on(log, passed_on, over, echo) if echo else 0
        if over:
            return "ended"
        left = None if limit_s is None else limit_s - (time.monotonic() - began)
        if left is not None and left <= 0:
            return "timeout"
        time.sleep(POLL_S if left is None else min(POLL_S, left))


def _pass_on(file: Path, before: int, over: bool, redactor: Redactor) -> int:
    """Forwards whole lines, because a secret may arrive in two parts."""
    with file.open("rb") as printed:
        printed.seek(before)
        text = printed.read()
    text = text if over else text[: text.rfind(b"\n") + 1]
    if text:
        sys.stderr.write(harmless(redactor.hide(redacted_text(text.decode("utf-8", "replace")))))
        sys.stderr.flush()
    return len(text)


def _kept(file: Path, redactor: Redactor) -> bytes:
    """The end of an output, without secrets."""
    with file.open("rb") as printed:
        printed.seek(max(0, file.stat().st_size - MOST_LOG))
        return redactor.hide_bytes(redacted_text(printed.read().decode("utf-8", "replace")).encode())


def _result(file: Path | None, before: int | None, out: Path) -> str | None:
    """The text that should contain the JSON; a file that existed before and was not written does not count."""
    source = out if file is None else file
    if file is not None and (not file.is_file() or file.stat().st_mtime_ns == before):
        return None
    with source.open("rb") as written_by_it:
        written_by_it.seek(max(0, source.stat().st_size - MOST_RESULT))
        return written_by_it.read().decode("utf-8", "replace")


# -- its output --------------------------------------------------------------------------------------------------


def _judged(benchmark: Benchmark, ended: Ended) -> tuple[Summary, list[Reason]]:
    """The summary, and every reason not to trust it."""
    reasons = list(_of_end(benchmark, ended))
    try:
        summary = summary_of(measures_in(_document(benchmark, ended), benchmark.direction))
    except DataError as error:
        summary = Summary()
        if not reasons:  # a failed one has no result
            hint = f"; {error.hint}" if error.hint else ""
            reasons.append(_reason("bad_output", f"{_where(benchmark)}: {error.message}{hint}"))
    return summary, reasons


def _document(benchmark: Benchmark, ended: Ended) -> Any:
    if ended.result is None:
        raise DataError(f"the file was not written, expected {EXPECTED}{_printed(ended)}")
    documents = documents_in(ended.result)
    if documents is None:
        raise DataError(f"no JSON in it, expected {EXPECTED}{_printed(ended)}")
    return documents


def _of_end(benchmark: Benchmark, ended: Ended) -> Iterator[Reason]:
    if ended.how == "timeout":
        limit = duration_text(benchmark.timeout)
        yield _reason("timeout", f"{benchmark.title} took longer than {limit} and was stopped{_printed(ended)}")
    elif ended.how == "interrupted":
        yield _reason("interrupted", f"{benchmark.title} was interrupted after {duration_text(ended.took_s)}")
    elif ended.code:
        how = f"exit status {ended.code}" if ended.code > 0 else signal.Signals(-ended.code).name
        yield _reason("exit_code", f"{benchmark.title} ended with {how}{_printed(ended)}")


def _reason(code: str, text: str) -> Reason:
    return Reason(status="invalid", code=code, text=text)


def _where(benchmark: Benchmark) -> str:
    if benchmark.python is not None:
        return f"what {benchmark.python} returned"
    return f"the output of {benchmark.title}" if benchmark.output == STDOUT else benchmark.output


def _printed(ended: Ended) -> str:
    lines = _end_of(ended.err) or _end_of(ended.out)
    return "; it printed nothing" if not lines else "; it printed:" + "".join(f"\n  {line}" for line in lines)


def _end_of(text: bytes) -> list[str]:
    lines = [line.rstrip()[:200] for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-LINES_SHOWN:]
