"""llm-d's profiles by harness, and `run.sh -l HARNESS -w PROFILE -o k=v`: rendered, then read as the harness's own."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from inferometer.errors import PlanError
from inferometer.plan.draft import CaseDraft, PlanDraft, TargetDraft
from inferometer.plan.foreign import aiperf, fmperf, guidellm, inference_perf, priority_mix, templates, vllm_bench
from inferometer.plan.foreign.account import Account
from inferometer.plan.foreign.arguments import Flag, Given, parse
from inferometer.plan.foreign.common import Foreign, NoPlanError
from inferometer.plan.reading import file_text

TOOL = "run.sh"
_CLUSTER = "belongs to a cluster, not to a plan"
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("harness", "workload", "models"), Flag()),
    "overrides": Flag("many"),
    **{name: Flag("one", _CLUSTER) for name in ("scenario", "namespace", "methods", "pvc", "wait")},
    **{name: Flag("none", _CLUSTER) for name in ("skip", "verbose", "debug")},
    "dry-run": Flag("none", "inferometer run --dry-run shows what would be sent"),
    **dict.fromkeys(("experiment", "endpoint-url"), Flag()),
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
    "-e": "experiment",
    "-z": "skip",
    "-v": "verbose",
    "-s": "wait",
    "-d": "debug",
    "-n": "dry-run",
    "-h": "help",
    "-U": "endpoint-url",
}
_PREFIX = "LLMDBENCH_HARNESS_"
_URL = f"{_PREFIX}STACK_ENDPOINT_URL"


def from_text(text: str, where: str, changes: Sequence[str], environ: Mapping[str, str] = os.environ) -> Foreign:
    """The plan that a template means, with `-o` and LLMDBENCH_HARNESS_EXPERIMENT_PROFILE_OVERRIDES made."""
    mapping, left_out = templates.rendered(text, environ, where)
    also = environ.get(f"{_PREFIX}EXPERIMENT_PROFILE_OVERRIDES", "")
    mapping, differences = changed(mapping, [change for change in (also, *changes) if change], where)
    if not isinstance(mapping, dict):
        raise PlanError(f"{where}: must be settings by name")
    return from_mapping(mapping, where, environ).noted([*differences, *left_out])


def changed(mapping: Any, changes: Sequence[str], where: str) -> tuple[Any, list[str]]:
    """A harness's file with each `-o` made; a new setting must be one that the harness knows."""
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
    """Who reads a file, told by its settings; `None` for what is none of theirs."""
    if mapping.get("executable") == "benchmark_serving.py" or "dataset-name" in mapping:
        return _vllm
    if aiperf.is_it(mapping):
        return aiperf.from_mapping
    if priority_mix.is_it(mapping):
        return priority_mix.from_mapping
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
    if not {"base-url", "host", "port"} & set(values):  # of the harness, not of a template without its endpoint
        for plan in (foreign.plan, *(case["plan"] for case in foreign.experiment.get("cases", []))):
            plan.get("target", {}).pop("url", None)
    return foreign


def from_argv(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Foreign:
    """The plan of `run.sh` or `llmdbenchmark run`: the profile named by -w, or by the variables for the flags."""
    given = parse(TOOL, argv, FLAGS, _SHORT)
    if "experiment" in given:
        given.wrong("experiment", "is not a plan: run it with inferometer sweep FILE")
    if given.on("help"):
        given.no_effect("help", "inferometer run --help")
    model, url = given.text("models"), given.text("endpoint-url")
    models = templates.models_in(model or environ.get("LLMDBENCH_DEPLOY_MODEL_LIST", ""))
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


def _one(place: Path | str, changes: Sequence[str], environ: Mapping[str, str]) -> Foreign:
    return (
        from_text(file_text(place), str(place), changes, environ) if isinstance(place, Path) else _ours(place, environ)
    )


def _several(models: Sequence[str], place: Path | str, changes: Sequence[str], environ: Mapping[str, str]) -> Foreign:
    """Each model of the list in its turn, as llm-d does."""
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
    """Our own plan of a profile, aimed as llm-d's variables say."""
    from inferometer.plan.profiles import find_profile
    from inferometer.plan.reading import read_mapping

    plan = cast(PlanDraft, read_mapping(find_profile(name, environ).path)[0])  # one of ours, which a test reads
    target: TargetDraft = {**plan.get("target", {})}
    if url := templates.variable("LLMDBENCH_HARNESS_STACK_ENDPOINT_URL", environ):
        target["url"] = url
    if model := templates.variable("LLMDBENCH_DEPLOY_CURRENT_MODEL", environ):
        target["model"] = model
    note = f"no template of that name was found: the built-in plan {name} is used"
    return Foreign(name.partition("/")[0], {**plan, "target": target}, [note])


def _profile(given: Given, environ: Mapping[str, str]) -> Path | str:
    """A file by its path, `HARNESS/NAME.yaml.in` below the folders that are searched for profiles, or the name of a
    plan of ours."""
    from inferometer.plan.profiles import folders, our_folder, profiles

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
