"""A user's own benchmark, run and stored like any other run."""

from pathlib import Path

from inferometer.cli.errors import INVALID, interrupted_code, print_message
from inferometer.cli.work.printing import print_run
from inferometer.cli.work.stores import store_of
from inferometer.conduct.benchmark import run_benchmark
from inferometer.documents.document import JsonValue
from inferometer.errors import PlanError
from inferometer.plan.benchmark import Benchmark, benchmark_from
from inferometer.plan.text import parse_yaml
from inferometer.record.run import Run
from inferometer.store.store import Place


def benchmark(
    command: tuple[str, ...],
    entry: str | None,
    args: tuple[str, ...],
    env: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    store: Path | None,
    **options: str | None,
) -> int:
    if not command and entry is None:
        raise PlanError("benchmark: needs a command or a function", "inferometer benchmark -- ./my-bench --json")
    settings = {name: value for name, value in options.items() if value is not None}
    argv = list(command[0].split()) if len(command) == 1 and " " in command[0] else list(command)
    made = benchmark_from(
        settings
        | ({"command": argv} if argv else {})
        | ({"python": entry} if entry else {})
        | {"args": _pairs(args, "--arg"), "env": {name: str(value) for name, value in _texts(env).items()}}
    )
    return conduct(made, store_of(store), as_json=as_json, quiet=quiet)


def again(kept: Run, store: Place, *, as_json: bool, quiet: bool) -> int:
    """Repeats a stored benchmark, for `inferometer rerun`."""
    settings = {"name": kept.plan.name, **kept.plan.benchmark}
    return conduct(benchmark_from(settings, kept.id), store, as_json=as_json, quiet=quiet)


def conduct(made: Benchmark, store: Place, *, as_json: bool, quiet: bool) -> int:
    """Run it, print the run, and return its exit code."""
    kept = run_benchmark(made, store, echo=not quiet)
    print_run(kept, as_json=as_json, slowest=0)
    if kept.state == "interrupted":
        print_message("warning", "interrupted; the output so far is stored")
        return interrupted_code()
    if kept.status == "invalid" or kept.state == "failed":
        reasons = [reason.sentence for reason in kept.doubts] if as_json else ["see the reason above"]
        print_message("error", f"not valid as a measurement: {'; '.join(reasons)}")
        print_message("hint", f"the complete output is in {kept.folder}")
        return INVALID
    return 0


def _pairs(texts: tuple[str, ...], flag: str) -> dict[str, JsonValue]:
    return {name: parse_yaml(value, f"{flag} {name}")[0] for name, value in _texts(texts, flag).items()}


def _texts(texts: tuple[str, ...], flag: str = "--env") -> dict[str, str]:
    wrong = [f"{flag} {text}: must be NAME=VALUE" for text in texts if not text.partition("=")[1]]
    if wrong:
        raise PlanError(wrong)
    return {text.partition("=")[0].strip(): text.partition("=")[2] for text in texts}
