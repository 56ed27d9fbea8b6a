"""Two scripts of vLLM's benchmarks folder as plans: structured output, and conversations of several turns."""

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from inferometer.documents.document import JsonValue
from inferometer.documents.json_text import json_value
from inferometer.errors import PlanError
from inferometer.plan.draft import (
    CaseDraft,
    ExperimentDraft,
    LevelsDraft,
    LoadDraft,
    PlanDraft,
    SamplingDraft,
    ServerDraft,
    StopDraft,
    TargetDraft,
    WorkloadDraft,
)
from inferometer.plan.foreign.common import Account, Foreign, NeedsFileError, NoPlanError, Settings, without_missing
from inferometer.plan.foreign.shapes import NO_FILES, Flag, Given, load_of, parse, tidy, with_parameters
from inferometer.plan.foreign.vllm_bench import MULTI_TURN, api_of_backend, generated, is_it, limits_of, target_of
from inferometer.plan.reading import file_text
from inferometer.plan.text import parse_json

_ONE, _NONE, _MANY = Flag(), Flag("none"), Flag("many")

# -- structured output -----------------------------------------------------------------------------------------------

STRUCTURED = "benchmark_serving_structured_output.py"
STRUCTURED_FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("backend", "base-url", "host", "port", "endpoint", "model", "tokenizer", "dataset"), _ONE),
    **dict.fromkeys(("json-schema-path", "max-concurrency", "num-prompts", "output-len", "request-rate"), _ONE),
    **dict.fromkeys(("burstiness", "seed", "random-prefix-len", "result-dir", "result-filename"), _ONE),
    "structured-output-ratio": _ONE,
    **dict.fromkeys(("save-results", "profile", "ignore-eos", "no-structured-output"), _NONE),
    "goodput": _MANY,
    "disable-tqdm": Flag("none", "progress is shown on a terminal; --quiet hides it"),
    "percentile-metrics": Flag("one", "all measures always have percentiles"),
    "metric-percentiles": Flag("one", "all measures always have percentiles"),
    "tokenizer-mode": Flag("one", "the server tokenizes the prompts"),
    "trust-remote-code": Flag("none", "code from models is never executed"),
}
_PROFILE = ("name", "email", "street", "city", "state", "zip", "phone", "website", "company")
_SCHEMA: dict[str, JsonValue] = {  # the script's default: a user profile
    "type": "object",
    "properties": {**{name: {"type": "string"} for name in _PROFILE}, "age": {"type": "integer"}},
    "required": ["name", "email"],
}
_INDENT = " " * 12  # the script breaks its prompts within the text
_SQL = """
        root ::= select_statement

        select_statement ::= "SELECT " column " from " table " where " condition

        column ::= "col_1 " | "col_2 "

        table ::= "table_1 " | "table_2 "

        condition ::= column "= " number

        number ::= "1 " | "2 "
        """
_FORMS: dict[str, tuple[dict[str, JsonValue], str]] = {
    "grammar": (
        {"grammar": _SQL},
        f"Generate an SQL query to show the 'username' {_INDENT}and 'email' from the 'users' table.",
    ),
    "regex": (
        {"regex": r"\w+@\w+\.com\n"},
        f"Generate an email address for Alan Turing, {_INDENT}who works in Enigma. End in .com and new line. "
        f"{_INDENT}    Example result: alan.turing@enigma.com\n",
    ),
    "choice": ({"choice": ["Positive", "Negative"]}, "Classify this sentiment: vLLM is wonderful!"),
}


def structured_output(argv: Sequence[str]) -> Foreign:
    """The plan: one prompt for all requests, and the format of its answers."""
    given = parse(STRUCTURED, argv, STRUCTURED_FLAGS)
    form, prompt = _form(given)
    requests = given.count("num-prompts", 1000) or 1000
    api = api_of_backend(given)
    workload: WorkloadDraft = {"type": "text", "text": prompt, "output_tokens": given.count("output-len", 128)}
    if given.count("random-prefix-len"):
        given.wrong("random-prefix-len", "has no counterpart for one fixed prompt")
    given.no_effect("tokenizer", "the prompt is a fixed text, and the server counts its tokens")
    cv = 1 / math.sqrt(given.number("burstiness", 1.0) or 1.0)
    load = load_of(given.number("request-rate", math.inf), given.count("max-concurrency"), requests, cv)
    extra = {"repetition_penalty": 1.0} if api == "completions" else {}
    sampling: SamplingDraft = {"ignore_eos": given.on("ignore-eos"), "temperature": 0, "extra": extra}
    formed: SamplingDraft = {**sampling, "structured": form | {"syntax": "structured_outputs"}}
    plan: PlanDraft = {
        "target": target_of(given, api),
        "workload": workload,
        "observe": {"profiler": True} if given.on("profile") else None,
        "limits": limits_of(given),
        "outputs": _file(given),
        "seed": given.count("seed") or None,
    }
    ratio = 0.0 if given.on("no-structured-output") else given.number("structured-output-ratio", 1.0)
    share = 1.0 if ratio is None else ratio
    if share in (0.0, 1.0):
        plan |= {"load": load, "sampling": formed if share else sampling, "stop": {"requests": requests}}
    else:
        plan["traffic"] = _split(given, share, requests, load, (formed, sampling))
    whole: PlanDraft = without_missing(plan)
    return Foreign.of(given.account, whole)


def _form(given: Given) -> tuple[dict[str, JsonValue], str]:
    name = given.text("dataset", "json") or "json"
    if name in _FORMS:
        given.no_effect("json-schema-path", f"is not used by the dataset {name}")
        return _FORMS[name]
    if name == "json-unique":
        given.wrong("dataset", "has no counterpart: every request has a schema of its own")
    elif name == "xgrammar_bench":
        given.wrong("dataset", "has no counterpart: every row of the dataset has a schema of its own")
    elif name != "json":
        given.wrong("dataset", f"must be json, {', '.join(_FORMS)}")
    schema, place = _SCHEMA, given.text("json-schema-path")
    if place is not None:
        if not Path(place).is_file():
            raise NeedsFileError(f"{STRUCTURED}: --json-schema-path {place}: file not found")
        schema = json_value(file_text(Path(place)))[0]
        if not isinstance(schema, dict):
            given.wrong("json-schema-path", "must be a file with a JSON schema")
            schema = _SCHEMA
    instruction = "Generate an example of a brief user profile given the following schema: "
    return {"json_schema": schema}, instruction + json.dumps(schema)


def _split(given: Given, share: float, requests: int, load: LoadDraft, ways: tuple[Any, Any]) -> list[Any]:
    """Split the rate by the ratio: a random share of Poisson arrivals is Poisson too; of others it is not."""
    if not 0 < share < 1:
        given.wrong("structured-output-ratio", "must be from 0 to 1")
    elif load.get("type") != "poisson" or "max_concurrency" in load:
        given.wrong("structured-output-ratio", "other than 0 and 1 needs --request-rate, and no --max-concurrency")
    given.note("structured-output-ratio", "two traffic classes; the script draws which requests have a form")
    formed = int(requests * share)
    classes = []
    for name, count, sampling in (("structured", formed, ways[0]), ("free", requests - formed, ways[1])):
        rate = tidy(round((load.get("rate") or 0.0) * count / requests, 6))
        own: LoadDraft = {"type": "poisson", "rate": rate}
        stop: StopDraft = {"requests": count}
        classes.append({"name": name, "load": own, "stop": stop, "sampling": sampling})
    return [one for one in classes if one["stop"]["requests"]]


def _file(given: Given) -> list[Any]:
    folder, name = given.text("result-dir"), given.text("result-filename")
    if not given.on("save-results"):
        for flag in ("result-dir", "result-filename"):
            given.no_effect(flag, "no file is written without --save-results")
        return []
    given.note("save-results", "written as vllm bench serve does, without correct_rate: see structure_valid of the run")
    name = name or "structured-output.json"
    return [{"format": "vllm", "path": f"{folder.rstrip('/')}/{name}" if folder else name}]


# -- conversations ---------------------------------------------------------------------------------------------------

_KEPT = "the records of every run are stored; inferometer export writes files"
MULTI_TURN_FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("input-file", "seed", "model", "served-model-name", "url", "api-key", "num-clients"), _ONE),
    **dict.fromkeys(("max-active-conversations", "max-num-requests", "max-turns", "limit-max-tokens"), _ONE),
    **dict.fromkeys(("limit-min-tokens", "request-rate", "max-retries", "conversation-sampling"), _ONE),
    **dict.fromkeys(("request-timeout-sec", "warmup-percentages"), _ONE),
    **dict.fromkeys(("warmup-step", "no-early-stop", "verify-output", "no-stream", "send-conversation-id"), _NONE),
    "header": _MANY,
    "output-file": Flag("one", _KEPT),
    "stats-json-output": Flag("one", _KEPT),
    "excel-output": Flag("none", _KEPT),
    "verbose": Flag("none", "inferometer show has the details"),
    "print-content": Flag("none", "set save.prompts and save.answers to keep texts"),
    "trust-remote-code": Flag("none", "code from models is never executed"),
}
_SHORT = {
    "-i": "input-file",
    "-o": "output-file",
    "-m": "model",
    "-u": "url",
    "-p": "num-clients",
    "-k": "max-active-conversations",
    "-n": "max-num-requests",
    "-e": "excel-output",
    "-v": "verbose",
}


def multi_turn(argv: Sequence[str]) -> Foreign:
    """The plan: clients that each run one conversation at a time."""
    given = parse(MULTI_TURN, argv, MULTI_TURN_FLAGS, _SHORT)
    plan = _conversations(given)
    clients = given.count("num-clients", 1) or 1
    active = given.count("max-active-conversations", clients) or clients
    if active // clients != 1:
        given.wrong("max-active-conversations", "has no counterpart unless every client has one conversation at a time")
    given.no_effect("conversation-sampling", "every client has one conversation at a time")
    _pauses(given, plan)
    _lengths(given, plan)
    for flag, why in (
        ("warmup-step", "has no counterpart: it sends the first turn of every conversation before"),
        ("verify-output", "has no counterpart: answers are not compared with recorded ones"),
        ("send-conversation-id", "has no counterpart: requests have no field for it"),
    ):
        if given.on(flag):
            given.wrong(flag, why)
    if given.count("max-retries"):
        given.wrong("max-retries", "must be 0: a request that fails is not sent again")
    if any(part.strip(" %") not in ("", "0", "0.0") for part in (given.text("warmup-percentages") or "").split(",")):
        given.wrong("warmup-percentages", "must be 0%: use warmup of the plan")
    if not given.on("no-early-stop"):
        given.account.general.append("the script ends with its first idle client; here all conversations are finished")
    served = given.text("served-model-name")
    if served is not None:
        given.no_effect("model", "--served-model-name is requested, and the server counts tokens")
    plan["target"] = {
        "url": (given.text("url") or "http://localhost:8000").rstrip("/"),
        "model": served or given.text("model"),
        "api": "chat",
        "headers": _headers(given),
        "stream": False if given.on("no-stream") else None,
        "timeout": {"request": given.count("request-timeout-sec", 120)},
    }
    plan["load"] = {"type": "concurrency", "concurrency": clients, "sessions_at_once": clients}
    if (requests := given.count("max-num-requests")) is not None:
        if requests < clients:
            given.wrong("max-num-requests", "must be at least one per client")
        stop: StopDraft = {"requests": max(1, requests // clients) * clients}
        plan["stop"] = {**(plan.get("stop") or {}), **stop}
        given.note("max-num-requests", "a conversation that has begun is finished")
    plan["seed"] = given.count("seed") or None
    whole: PlanDraft = without_missing(plan)
    return Foreign.of(given.account, whole)


def _conversations(given: Given) -> PlanDraft:
    """The content of the file: settings for generated conversations, or a list of conversations."""
    name = given.text("input-file")
    if name is None:
        raise PlanError([*given.account.mistakes, f"{MULTI_TURN}: --input-file is missing"])
    path = Path(name)
    if not path.is_file():
        raise NeedsFileError(f"{MULTI_TURN}: --input-file {name}: file not found")
    try:
        value = json_value(file_text(path))[0]
    except ValueError as error:
        raise PlanError(f"{MULTI_TURN}: {name}: {error}") from None
    if isinstance(value, dict) and is_it(value):
        settings = Settings(value, Account(MULTI_TURN))
        plan = generated(settings)
        settings.settle()
        given.account.mistakes += settings.account.mistakes
        given.account.general += settings.account.notes
        return plan
    if not isinstance(value, list):
        raise PlanError(f"{MULTI_TURN}: {name}: must be a list of conversations, or have filetype")
    return {
        "workload": {
            "type": "messages",
            "path": name,
            "turns": "conversation",
            "answers": "live",
            "shuffle": False,
            "once": True,
        },
        "sampling": {"ignore_eos": False},
    }


def _pauses(given: Given, plan: PlanDraft) -> None:
    if rate := given.number("request-rate"):
        plan["workload"]["think"] = {"type": "exponential", "mean": round(1 / rate, 6)}
        given.note("request-rate", "the pause before each next turn; the script also has one between conversations")


def _lengths(given: Given, plan: PlanDraft) -> None:
    """Output lengths. The script checks a minimum but does not send it. Its turns are messages, including answers."""
    most = given.count("limit-max-tokens", 0) or 0
    given.no_effect("limit-min-tokens", "the script does not send it")
    if most:
        plan["workload"]["output_tokens"] = most if most > 0 else None
        if most < 0:
            given.wrong("limit-max-tokens", "must be positive: give a maximum")
    if (cap := given.count("max-turns")) is not None:
        turns = plan["workload"].get("turns")
        if not isinstance(turns, int):
            given.wrong("max-turns", "needs generated conversations of a constant number of turns")
        else:
            plan["workload"]["turns"] = min(turns, max(1, math.ceil(cap / 2)))


def _headers(given: Given) -> dict[str, str]:
    """`Name: value` or `Name=value`."""
    headers = {}
    for text in given.several("header"):
        sign = ":" if ":" in text else "="
        name, found, value = text.partition(sign)
        if not found or not name.strip():
            given.wrong("header", "must be Name: value, or Name=value")
        headers[name.strip()] = value.strip()
    if (key := given.text("api-key")) is not None:
        headers["Authorization"] = f"Bearer {key}"
    return headers


# -- sweeps ------------------------------------------------------------------------------------------------------------

# `vllm bench sweep serve` and `serve_workload` as an experiment: a server's command, a benchmark's command, and lists
# of changes to either.

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
SweepRecord = dict[str, JsonValue]


def from_argv(argv: Sequence[str]) -> Foreign:
    """Every combination of both lists is a case."""
    given = parse(TOOL, argv, FLAGS, _ALIASES)
    experiment = _experiment(given)
    return Foreign.of(given.account, {}, experiment)


def plot_from_argv(argv: Sequence[str]) -> Foreign:
    """Refused: commands that draw results are not plans."""
    raise NoPlanError(
        "vllm bench sweep plot: draws results and measures nothing", "inferometer chart, inferometer report"
    )


def workload_from_argv(argv: Sequence[str]) -> Foreign:
    """Each combination at several loads: one request at a time, all at once, and levels between them."""
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
    levels: LevelsDraft = {
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


def _records(given: Given, name: str) -> list[SweepRecord]:
    """A list of settings, or settings by name of the combination; without a file, one record without changes."""
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


def _agree(server: SweepRecord, load: SweepRecord, linked: Mapping[str, str]) -> bool:
    return all(ours in server and server[ours] == load.get(theirs) for ours, theirs in linked.items())


def _name(*records: SweepRecord) -> str:
    """The name of a combination: the given names, else its settings."""
    parts = [str(record.get(NAME) or " ".join(f"{key}={value}" for key, value in record.items())) for record in records]
    return " ".join(part for part in parts if part)


def _flag(name: str) -> str:
    return name.lstrip("-").replace("_", "-") if "." not in name else name.lstrip("-")


# -- the server ----------------------------------------------------------------------------------------------------


def _server(argv: Sequence[str], record: SweepRecord, ready: int | None) -> ServerDraft:
    """`vllm serve MODEL --flag value` with the settings of a record on top; other commands unchanged."""
    if [Path(arg).name for arg in argv[:2]] != ["vllm", "serve"]:
        more = [arg for key, value in _settings(record) for arg in _flag_args(key, value)]
        return {"type": "command", "command": [*argv, *more], "ready": ready}
    model, args, flags = _parsed(argv[2:])
    args |= dict(_settings(record))
    host, port = (cast(str | None, args.pop(name, None)) for name in ("host", "port"))
    model = cast(str | None, args.pop("model", model))
    return {"type": "vllm", "model": model, "args": args, "flags": flags, "host": host, "port": port, "ready": ready}


def _settings(record: SweepRecord) -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        if key != NAME:
            off = value is False and "." not in key
            yield (f"no-{_flag(key)}" if off else _flag(key)), (True if off else value)


def _parsed(argv: Sequence[str]) -> tuple[str | None, dict[str, JsonValue], list[str]]:
    """The model, the flags by name, and other arguments (`-tp 2`)."""
    model, at = None, 0
    args: dict[str, JsonValue] = {}
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


def _plan(bench: Sequence[str], record: SweepRecord, server: ServerDraft, notes: list[str]) -> PlanDraft:
    """The plan of the benchmark's command with the flags of a record appended, and the server as target."""
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
