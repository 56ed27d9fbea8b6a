"""llm-d's profiles by harness, and `run.sh -l HARNESS -w PROFILE -o k=v`: rendered, then read like its files."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from inferometer.errors import PlanError
from inferometer.plan.draft import CaseDraft, PlanDraft, TargetDraft, WorkloadDraft
from inferometer.plan.foreign import aiperf, fmperf, guidellm, inference_perf, templates, vllm_bench
from inferometer.plan.foreign.common import Account, Foreign, NoPlanError, Settings, without_missing
from inferometer.plan.foreign.shapes import Flag, Given, parse, tidy
from inferometer.plan.reading import file_text
from inferometer.plan.text import parse_yaml

PRIORITY_MIX = "priority-mix"
_HEADERS = {"objective": "x-llm-d-inference-objective", "fairnessID": "x-llm-d-inference-fairness-id"}


def is_it(mapping: Mapping[str, Any]) -> bool:
    return "trafficClasses" in mapping and "endpoint_url" in mapping


def priority_mix(mapping: Mapping[str, Any]) -> Foreign:
    """Each class sends its share of the rate with its own texts."""
    settings = Settings(mapping, Account(PRIORITY_MIX))
    load, api, common = settings.section("load"), settings.section("api"), settings.section("request")
    rate, lasts = load.number("rate_per_second", 1.0) or 1.0, load.number("duration_seconds", 60.0) or 60.0
    cap = load.count("max_in_flight")
    load.no_effect("fail_on_error", "failed requests are counted in every run")
    classes = settings.sections("trafficClasses")
    weights = [one.number("weight", 1.0) or 1.0 for one in classes]
    traffic = []
    for one, weight in zip(classes, weights, strict=True):
        share = weight / sum(weights)
        one.no_effect("priority", "is not sent: the objective names it")
        most = None if cap is None else max(1, round(cap * share))
        traffic.append(
            {
                "name": one.text("name"),
                "workload": _workload(one.section("request"), common),
                "load": {"type": "constant", "rate": tidy(round(rate * share, 6)), "max_concurrency": most},
                "stop": {"duration": f"{tidy(lasts)}s"},
                "headers": {header: one.text(name) for name, header in _HEADERS.items()},
            }
        )
    if cap is not None:
        load.note("max_in_flight", "each class has its share of it")
    kind = api.text("type", "chat")
    path = api.text("path")
    plan = {
        "target": {
            "url": settings.text("endpoint_url"),
            "model": settings.text("model"),
            "api": kind,
            "path": None if path == "/v1/chat/completions" else path,
            "stream": None if common.on("stream", True) else False,
            "timeout": {"request": load.number("request_timeout_seconds")},
        },
        "traffic": traffic,
    }
    for name, own in (("prompt", "promptTemplate"), ("max_tokens", "max_tokens")):
        if all(own in one.section("request").values for one in classes):
            common.no_effect(name, "every class has its own")
    settings.account.general.append("every class has even arrivals of its own; priority-mix has them in one row")
    return Foreign.of(settings.account, without_missing(plan))


def _workload(own: Settings, common: Settings) -> WorkloadDraft:
    """A repeated text in which `{variation}` is a number that differs in every request."""
    template, repeat = own.text("promptTemplate"), own.count("promptRepeat", 1) or 1
    output = own.count("max_tokens", common.count("max_tokens"))
    text = template if template is not None else own.text("prompt") or common.text("prompt") or ""
    return {"type": "text", "text": text.replace("{variation}", "{index}"), "repeat": repeat, "output_tokens": output}


TOOL = "run.sh"
_CLUSTER = "belongs to a cluster, not to a plan"
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("harness", "workload", "models"), Flag()),
    "overrides": Flag("many"),
    **{name: Flag("one", _CLUSTER) for name in ("scenario", "namespace", "methods", "pvc", "wait", "kubeconfig")},
    **{name: Flag("one", _CLUSTER) for name in ("gateway-class", "stack", "serviceaccount", "envvarspod")},
    **{name: Flag("one", _CLUSTER) for name in ("data-access-timeout", "data-access-lookup-attempts")},
    **{name: Flag("one", _CLUSTER) for name in ("data-access-lookup-delay", "pvc-bind-timeout", "step")},
    **{name: Flag("none", _CLUSTER) for name in ("skip", "verbose", "debug", "fast-collect")},
    "dry-run": Flag("none", "inferometer run --dry-run shows what would be sent"),
    "monitoring": Flag("none", "metrics of the server are always sampled"),
    "analyze": Flag("none", "every run has a summary; inferometer report makes a page"),
    "treatment-stop-on-error": Flag("none", "inferometer sweep --budget failures=1 stops at the first failure"),
    "treatment-max-attempts": Flag("one", "repeat failed cases with --resume --retry-failed"),
    "validate-failures": Flag("none", "failed requests are counted in every run; use limits to allow a number"),
    "output": Flag("one", "runs are stored (--store)"),
    "wait-timeout": Flag("one", _CLUSTER),
    **dict.fromkeys(("experiments", "endpoint-url", "parallelism", "dataset", "config"), Flag()),
    **dict.fromkeys(("list-endpoints", "generate-config"), Flag("none")),
    "help": Flag("none"),
}
_SHORT = {
    "-l": "harness",
    "-w": "workload",
    "-o": "overrides",
    "-m": "models",
    "-c": "scenario",
    "-p": "namespace",
    "-t": "methods",
    "-k": "pvc",
    "-e": "experiments",
    "experiment": "experiments",
    "model": "models",
    "-r": "output",
    "-j": "parallelism",
    "-q": "serviceaccount",
    "-g": "envvarspod",
    "-x": "dataset",
    "-z": "skip",
    "-v": "verbose",
    "-s": "wait",
    "-d": "debug",
    "-n": "dry-run",
    "-h": "help",
    "-U": "endpoint-url",
}
_BEFORE = {  # options of llmdbenchmark before `run`
    **{name: Flag("one", _CLUSTER) for name in ("specification-file", "workspace", "base-dir", "cluster-config")},
    **{name: Flag("one", "is only a description") for name in ("run-description", "run-keywords")},
    "non-admin": Flag("none", _CLUSTER),
    "set": Flag(),
}
_LATER = {"spec": "specification-file", "ws": "workspace", "bd": "base-dir", "cc": "cluster-config"}
_LATER |= {"-c": "config", "-s": "step", "-k": "kubeconfig", "-i": "non-admin", "wait": "wait-timeout"}
_PREFIX = "LLMDBENCH_HARNESS_"
_URL = f"{_PREFIX}STACK_ENDPOINT_URL"


def from_text(text: str, where: str, changes: Sequence[str], environ: Mapping[str, str] = os.environ) -> Foreign:
    """The plan of a template, with `-o` and LLMDBENCH_HARNESS_EXPERIMENT_PROFILE_OVERRIDES applied."""
    mapping, left_out = templates.rendered(text, environ, where)
    also = environ.get(f"{_PREFIX}EXPERIMENT_PROFILE_OVERRIDES", "")
    mapping, differences = changed(mapping, [change for change in (also, *changes) if change], where)
    if not isinstance(mapping, dict):
        raise PlanError(f"{where}: must be settings by name")
    return from_mapping(mapping, where, environ).noted([*differences, *left_out])


def changed(mapping: Any, changes: Sequence[str], where: str) -> tuple[Any, list[str]]:
    """A harness's file with each `-o` applied; a new setting must be one that the harness supports."""
    if isinstance(mapping, dict) and reader_of(mapping) is inference_perf.from_mapping:
        return templates.changed(mapping, changes, where, inference_perf.may_have)
    return templates.changed(mapping, changes, where)


def from_mapping(mapping: dict[str, Any], where: str, environ: Mapping[str, str] = os.environ) -> Foreign:
    """A harness's own file as a plan."""
    read = reader_of(mapping)
    if read is fmperf.from_mapping:
        return fmperf.from_mapping(mapping, environ)
    if read is None:
        raise PlanError(f"{where}: is no profile of inference-perf, guidellm, vllm-benchmark, aiperf or fmperf")
    return read(mapping)


def reader_of(mapping: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Foreign] | None:
    """The reader for a file, chosen by its settings; `None` if no reader knows it."""
    if mapping.get("executable") == "benchmark_serving.py" or "dataset-name" in mapping:
        return _vllm
    if aiperf.is_it(mapping):
        return aiperf.from_mapping
    if is_it(mapping):
        return priority_mix
    if inference_perf.is_it(mapping):
        return inference_perf.from_mapping
    if guidellm.is_it(mapping):
        return guidellm.from_mapping
    if set(mapping) == {"model_name", "pvc_name"}:
        return _nop
    if mapping.get("harness") == "eval-containers":
        return _evaluation
    return fmperf.from_mapping if fmperf.is_it(mapping) else None


def _nop(_mapping: Mapping[str, Any]) -> Foreign:
    text = "llm-d's nop sends no load: it measures how long the server takes to start"
    raise NoPlanError(text, "inferometer startup --server vllm --model MODEL, or --log SERVER.log")


def _evaluation(mapping: Mapping[str, Any]) -> Foreign:
    raise NoPlanError(f"llm-d's eval-containers runs {mapping.get('benchmark')}, which judges answers and is no load")


def _vllm(mapping: Mapping[str, Any]) -> Foreign:
    """vllm-benchmark's profiles are flags by name; `none` stands for a flag without a value, `____` for a space."""
    values: dict[str, Any] = {
        name.replace("_", "-"): True if value == "none" else str(value).replace("____", " ")
        for name, value in mapping.items()
        if name not in ("executable", "none") and value is not None
    }
    many = ("header", "goodput", "lora-modules", "metadata")
    values = {
        name: value.split() if name in many and isinstance(value, str) else value for name, value in values.items()
    }
    foreign = vllm_bench.from_values(values, Account("vllm-benchmark"), "")
    if not {"base-url", "host", "port"} & set(values):  # a file of the harness, not a template without endpoint
        for plan in (foreign.plan, *(case["plan"] for case in foreign.experiment.get("cases", []))):
            plan.get("target", {}).pop("url", None)
    return foreign


def from_benchmark_argv(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Foreign:
    """The plan of `llmdbenchmark run`, including options before `run`."""
    return _of_flags(parse("llmdbenchmark run", argv, FLAGS | _BEFORE, _SHORT | _LATER), environ)


def from_argv(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Foreign:
    """The plan of `run.sh`: the profile named by -w, or by the variables for the flags."""
    return _of_flags(parse(TOOL, argv, FLAGS, _SHORT), environ)


def _of_flags(given: Given, environ: Mapping[str, str]) -> Foreign:
    for name in ("list-endpoints", "generate-config"):
        if given.on(name):
            raise NoPlanError(f"{given.tool}: --{name} sends no load")
    if (given.count("parallelism", 1) or 1) != 1:
        given.wrong("parallelism", "has no counterpart: every pod sends the whole load; multiply the load instead")
    for name in ("dataset", "config", "set"):
        if name in given:
            given.wrong(name, "has no counterpart")
    if given.on("help"):
        given.no_effect("help", "inferometer run --help")
    model, url = given.text("models"), given.text("endpoint-url")
    models = templates.models_in(model or environ.get("LLMDBENCH_DEPLOY_MODEL_LIST", ""))
    if (file := given.text("experiments")) is not None:
        return _treatments(given, file, models, environ)
    place, changes = _profile(given, environ), given.several("overrides")
    given.settle()
    known = {**environ, **({_URL: url} if url else {})}
    if len(models) > 1:
        return _several(models, place, changes, known).noted(given.account.notes)
    if models:
        known["LLMDBENCH_DEPLOY_CURRENT_MODEL"] = models[0]
    foreign = _one(place, changes, known)
    foreign.entries = [*given.account.entries(), *foreign.entries]
    return foreign.noted(given.account.notes)


def _treatments(given: Given, file: str, models: Sequence[str], environ: Mapping[str, str]) -> Foreign:
    """The treatments of a file, applied to the profile that the flags name."""
    from inferometer.plan.foreign import llmd_experiment

    names = {
        f"{_PREFIX}EXPERIMENT_PROFILE": given.text("workload"),
        f"{_PREFIX}NAME": given.text("harness"),
        _URL: given.text("endpoint-url"),
        "LLMDBENCH_DEPLOY_CURRENT_MODEL": models[0] if models else None,
    }
    if given.several("overrides"):
        given.wrong("overrides", "have no counterpart next to treatments: add them to the treatments")
    if not Path(file).is_file():
        given.account.mistakes.append(f"{given.tool}: --experiments {file}: file not found")
    given.settle()
    value, twice = parse_yaml(file_text(Path(file)), file)
    if twice or not isinstance(value, dict):
        raise PlanError(twice or [f"{file}: must be settings by name"])
    known = {**environ, **{name: own for name, own in names.items() if own}}
    foreign = llmd_experiment.from_mapping(value, file, known, run_only=_URL in known)
    foreign.entries = [*given.account.entries(), *foreign.entries]
    return foreign.noted(given.account.notes)


def _one(place: Path | str, changes: Sequence[str], environ: Mapping[str, str]) -> Foreign:
    return (
        from_text(file_text(place), str(place), changes, environ) if isinstance(place, Path) else _ours(place, environ)
    )


def _several(models: Sequence[str], place: Path | str, changes: Sequence[str], environ: Mapping[str, str]) -> Foreign:
    """One run after the other for each model of the list, as in llm-d."""
    from inferometer.plan.foreign.shapes import with_parameters

    cases: list[CaseDraft] = []
    notes: list[str] = []
    for model in models:
        foreign = _one(place, changes, {**environ, "LLMDBENCH_DEPLOY_CURRENT_MODEL": model})
        if foreign.is_experiment:
            raise PlanError(f"{TOOL}: {place} is an experiment: give one model, with -m {model}")
        cases.append({"name": model, "plan": foreign.plan})
        notes += foreign.notes
    return Foreign(TOOL, {}, list(dict.fromkeys(notes)), {"cases": with_parameters(cases)})


def _ours(name: str, environ: Mapping[str, str]) -> Foreign:
    """Our own plan of a profile, with the target of llm-d's variables."""
    from inferometer.plan.opening import find_profile
    from inferometer.plan.reading import read_mapping

    plan = cast(PlanDraft, read_mapping(find_profile(name, environ).path)[0])  # a built-in profile, checked by a test
    target: TargetDraft = {**plan.get("target", {})}
    if url := templates.variable("LLMDBENCH_HARNESS_STACK_ENDPOINT_URL", environ):
        target["url"] = url
    if model := templates.variable("LLMDBENCH_DEPLOY_CURRENT_MODEL", environ):
        target["model"] = model
    note = f"no template of that name was found: the built-in plan {name} is used"
    return Foreign(name.partition("/")[0], {**plan, "target": target}, [note])


def _profile(given: Given, environ: Mapping[str, str]) -> Path | str:
    """A file by its path, `HARNESS/NAME.yaml.in` in the profile folders, or one of our plans by name."""
    from inferometer.plan.opening import folders, our_folder, profiles

    name = given.text("workload") or environ.get(f"{_PREFIX}EXPERIMENT_PROFILE", "sanity_random.yaml")
    harness = given.text("harness") or environ.get(f"{_PREFIX}NAME", "inference-perf")
    bare = name.removesuffix(".in").removesuffix(".yaml")
    places = [Path(name), Path(f"{bare}.yaml.in")]
    for folder in [Path("workload/profiles"), *folders(environ), our_folder()]:
        places += [folder / harness / f"{bare}.yaml.in", folder / f"{bare}.yaml.in"]
    if here := [place for place in places if place.is_file()]:
        return here[0]
    ours = f"{harness}/{bare}"
    text = f"{TOOL}: -w {name}: no such template here or in the profile folders"
    if ours not in [profile.name for profile in profiles(environ)]:
        given.account.mistakes.append(f"{text}, and no built-in plan of that name; inferometer profiles lists them")
    elif "overrides" in given:
        given.account.mistakes.append(
            f"{text}, which -o could change; for the built-in plan use --set: inferometer run {ours}"
        )
    return ours
