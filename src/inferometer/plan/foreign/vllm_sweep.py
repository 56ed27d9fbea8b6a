"""`vllm bench sweep serve` and `serve_workload`: a server's command, a benchmark's command and lists of what is changed
in either, as an experiment."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.draft import CaseDraft, ExperimentDraft, PlanDraft, TargetDraft
from inferometer.plan.foreign.common import Foreign, NeedsFileError, NoPlanError, without_missing
from inferometer.plan.foreign.shapes import NO_FILES, Flag, Given, load_of, parse, with_parameters
from inferometer.plan.reading import file_text
from inferometer.plan.text import parse_json

TOOL = "vllm bench sweep"
NAME = "_benchmark_name"
_RUNS = 3
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("serve-cmd", "bench-cmd", "serve-params", "bench-params", "link-vars"), Flag()),
    **dict.fromkeys(("experiment-name", "num-runs", "server-ready-timeout"), Flag()),
    "after-bench-cmd": Flag("one", "the prefix cache of a running server is reset between cases"),
    "output-dir": Flag("one", "runs are stored, and --csv writes one line per case"),
    "show-stdout": Flag("none", "the server log is stored with the experiment"),
    "dry-run": Flag("none", "inferometer sweep --dry-run prints the cases"),
    "resume": Flag("none", "use inferometer sweep --resume to continue an interrupted experiment"),
}
_WORKLOAD = FLAGS | dict.fromkeys(("workload-var", "workload-iters"), Flag())
_ALIASES = {"-o": "output-dir", "-e": "experiment-name"}
Record = dict[str, Any]


def from_argv(argv: Sequence[str]) -> Foreign:
    """Every combination of both lists is a case."""
    given = parse(TOOL, argv, FLAGS, _ALIASES)
    experiment = _experiment(given)
    return Foreign.of(given.account, {}, experiment)


def plot_from_argv(argv: Sequence[str]) -> Foreign:
    """What draws results is no plan."""
    raise NoPlanError(
        "vllm bench sweep plot: draws results and measures nothing", "inferometer chart, inferometer report"
    )


def workload_from_argv(argv: Sequence[str]) -> Foreign:
    """Each of them at several loads: one request at a time, all at once, and what lies between."""
    given = parse(TOOL, argv, _WORKLOAD, _ALIASES)
    iterations = given.count("workload-iters", 10) or 10
    variable = given.text("workload-var", "request_rate")
    if variable not in ("request_rate", "max_concurrency"):
        given.wrong("workload-var", "must be request_rate or max_concurrency")
    if iterations < 2:
        given.wrong("workload-iters", "must be at least 2")
    experiment = _experiment(given)
    requests = {(case["plan"].get("stop") or {}).get("requests") for case in experiment["cases"]}
    if len(requests) > 1:
        raise PlanError(f"{TOOL}: --bench-params has several num_prompts: all at once is one load for all of them")
    rates = variable == "request_rate"
    levels = {
        "path": "load.rate" if rates else "load.concurrency",
        "low": {"load": load_of(None, 1, 1)},
        "high": {"load": load_of(None, None, requests.pop() or 1)},
        "count": iterations - 2,
        "ends": "none",
        "set": {"load": {"type": "poisson" if rates else "concurrency"}},
    }
    if rates:
        given.account.general.append(
            "--workload-var request_rate: rates between the ends are not rounded to whole numbers"
        )
    return Foreign.of(given.account, {}, {**experiment, "levels": levels})


def _experiment(given: Given) -> ExperimentDraft:
    notes = given.account.general
    serve, bench = (_command(given, name) for name in ("serve-cmd", "bench-cmd"))
    servers, loads = (_records(given, name) for name in ("serve-params", "bench-params"))
    linked = given.pairs("link-vars") if "link-vars" in given else {}
    repeats, ready, name = (
        given.count("num-runs", _RUNS),
        given.count("server-ready-timeout", 300),
        given.text("experiment-name"),
    )
    if given.account.mistakes:
        raise PlanError(given.account.mistakes)
    pairs = [(server, load) for server in servers for load in loads if _agree(server, load, linked)]
    if not pairs:
        raise PlanError(f"{TOOL}: --link-vars {given.text('link-vars')} leaves no combination")
    cases: list[CaseDraft] = [
        {"name": _name(server, load) or "case", "plan": _plan(bench, load, _server(serve, server, ready), notes)}
        for server, load in pairs
    ]
    whole: ExperimentDraft = {
        "name": name,
        "repeats": repeats,
        "cases": with_parameters(cases),
    }
    return without_missing(whole)  # type: ignore[no-any-return]


def _command(given: Given, name: str) -> list[str]:
    text = given.text(name)
    if text is None:
        given.account.mistakes.append(f"{TOOL}: --{name} is missing")
        return []
    return shlex.split(text)


def _records(given: Given, name: str) -> list[Record]:
    """A list of settings, or settings by the name of their combination; without a file one that changes nothing."""
    place = given.text(name)
    if place is None:
        return [{}]
    if not Path(place).is_file():
        raise NeedsFileError(f"{TOOL}: --{name} must be a JSON file; file not found, got {place}")
    records, twice = parse_json(file_text(Path(place)), place)
    given.account.mistakes += twice
    if isinstance(records, dict):
        records = [{NAME: key, **value} for key, value in records.items() if isinstance(value, dict)]
    if not isinstance(records, list) or not records or not all(isinstance(record, dict) for record in records):
        given.wrong(name, "must hold a list of settings by name")
        return []
    return records


def _agree(server: Record, load: Record, linked: Mapping[str, str]) -> bool:
    return all(ours in server and server[ours] == load.get(theirs) for ours, theirs in linked.items())


def _name(*records: Record) -> str:
    """By the names that they were given, else by what they set."""
    parts = [str(record.get(NAME) or " ".join(f"{key}={value}" for key, value in record.items())) for record in records]
    return " ".join(part for part in parts if part)


def _flag(name: str) -> str:
    return name.lstrip("-").replace("_", "-") if "." not in name else name.lstrip("-")


# -- the server ----------------------------------------------------------------------------------------------------


def _server(argv: Sequence[str], record: Record, ready: int | None) -> dict[str, Any]:
    """`vllm serve MODEL --flag value` with a record's settings over its own; any other command as it is."""
    if [Path(arg).name for arg in argv[:2]] != ["vllm", "serve"]:
        more = [arg for key, value in _settings(record) for arg in _flag_args(key, value)]
        return {"type": "command", "command": [*argv, *more], "ready": ready}
    model, args, flags = _parsed(argv[2:])
    args |= dict(_settings(record))
    own = {name: args.pop(name, None) for name in ("host", "port")}
    model = args.pop("model", model)
    return {"type": "vllm", "model": model, "args": args, "flags": flags, **own, "ready": ready}


def _settings(record: Record) -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        if key != NAME:
            off = value is False and "." not in key
            yield (f"no-{_flag(key)}" if off else _flag(key)), (True if off else value)


def _parsed(argv: Sequence[str]) -> tuple[str | None, dict[str, Any], list[str]]:
    """The model, the flags by name, and the words that are neither (`-tp 2`)."""
    model, at = None, 0
    args: dict[str, Any] = {}
    rest: list[str] = []
    while at < len(argv):
        name, sign, inline = argv[at].partition("=")
        follows = at + 1 < len(argv) and not argv[at + 1].startswith("-")
        if name.startswith("--"):
            args[_flag(name)] = inline if sign else argv[at + 1] if follows else True
            at += 1 + (follows and not sign)
        elif name.startswith("-"):
            rest += argv[at : at + 1 + follows]
            at += 1 + follows
        else:
            model, at = argv[at], at + 1
    return model, args, rest


def _changed(name: str, value: Any) -> list[str]:
    return [f"--{name}=false"] if value is False else _flag_args(name, value)


def _flag_args(name: str, value: Any) -> list[str]:
    if value is True:
        return [f"--{name}"]
    return [f"--{name}", json.dumps(value) if isinstance(value, dict | list) else str(value)]


# -- the load ------------------------------------------------------------------------------------------------------


def _plan(bench: Sequence[str], record: Record, server: dict[str, Any], notes: list[str]) -> PlanDraft:
    """The benchmark's command with a record's flags behind its own, aimed at the server."""
    from inferometer.plan.foreign.recognise import from_command

    changed = [arg for key, value in record.items() if key != NAME for arg in _changed(_flag(key), value)]
    foreign = from_command([*bench, *changed])
    if foreign.is_experiment:
        raise PlanError(f"{TOOL}: --bench-cmd is itself a sweep: {shlex.join(bench)}")
    if foreign.plan.pop("outputs", None):
        foreign.notes.append(NO_FILES)
    notes += [note for note in foreign.notes if note not in notes]
    target: TargetDraft = {**foreign.plan.get("target", {})}
    address = str(target.pop("url", "")).rpartition(":")[2]
    if server["type"] == "command":
        server = {**server, "port": int(address) if address.isdigit() else 8000}
    return {**foreign.plan, "target": target, "server": without_missing(server)}
