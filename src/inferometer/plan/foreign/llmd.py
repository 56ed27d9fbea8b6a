"""llm-d's profiles by harness, and `run.sh -l HARNESS -w PROFILE -o k=v`: rendered, then read as the harness's own."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.foreign import fmperf, guidellm, inference_perf, templates, vllm_bench
from inferometer.plan.foreign.arguments import Flag, Given, parse
from inferometer.plan.foreign.found import Foreign
from inferometer.plan.reading import file_text

TOOL = "run.sh"
_CLUSTER = "comes with clusters, not with a plan"
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("harness", "workload", "models"), Flag()),
    "overrides": Flag("many"),
    **{name: Flag("one", _CLUSTER) for name in ("scenario", "namespace", "methods", "pvc", "wait")},
    **{name: Flag("none", _CLUSTER) for name in ("skip", "verbose", "debug")},
    "dry-run": Flag("none", "inferometer run --dry-run shows what would be sent"),
    "experiment": Flag("one", "an experiment is more than a plan: inferometer sweep FILE does it"),
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
}
_PREFIX = "LLMDBENCH_HARNESS_"


def from_text(text: str, where: str, changes: Sequence[str], environ: Mapping[str, str] = os.environ) -> Foreign:
    """The plan that a template means, with `-o` and LLMDBENCH_HARNESS_EXPERIMENT_PROFILE_OVERRIDES made."""
    said, left_out = templates.rendered(text, environ, where)
    also = environ.get(f"{_PREFIX}EXPERIMENT_PROFILE_OVERRIDES", "")
    said, differences = changed(said, [each for each in (also, *changes) if each], where)
    if not isinstance(said, dict):
        raise PlanError(f"{where}: must be settings by name")
    return from_mapping(said, where, environ).noted([*differences, *left_out])


def changed(said: Any, changes: Sequence[str], where: str) -> tuple[Any, list[str]]:
    """A harness's file with each `-o` made; a new setting must be one that the harness knows."""
    if isinstance(said, dict) and reader_of(said) is inference_perf.from_mapping:
        return templates.changed(said, changes, where, inference_perf.may_have)
    return templates.changed(said, changes, where)


def from_mapping(said: dict[str, Any], where: str, environ: Mapping[str, str] = os.environ) -> Foreign:
    """A harness's own file as a plan."""
    read = reader_of(said)
    if read is fmperf.from_mapping:
        return fmperf.from_mapping(said, environ)
    if read is None:
        raise PlanError(f"{where}: is no profile of inference-perf, guidellm, vllm-benchmark or fmperf")
    return read(said)


def reader_of(said: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Foreign] | None:
    """Who reads a file, told by its settings; `None` for what is none of theirs."""
    if said.get("executable") == "benchmark_serving.py" or "dataset-name" in said:
        return _vllm
    if inference_perf.is_it(said):
        return inference_perf.from_mapping
    if guidellm.is_it(said):
        return guidellm.from_mapping
    return fmperf.from_mapping if fmperf.is_it(said) else None


def _vllm(said: Mapping[str, Any]) -> Foreign:
    """vllm-benchmark's profiles are flags by name; `none` stands for a flag without a value, `____` for a space."""
    words: list[str] = []
    for name, value in said.items():
        if name in ("executable", "none") or value is None:
            continue
        words.append(f"--{name}")
        if value != "none":
            words.append(str(value).replace("____", " "))
    found = vllm_bench.from_words(words)
    if not {"--base-url", "--host", "--port"} & set(words):  # of the harness, not of a template without its endpoint
        for plan in (found.plan, found.experiment.get("plan", {})):
            plan.get("target", {}).pop("url", None)
    return found


def from_words(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> Foreign:
    """The plan of `conduct.run.sh`: the profile named by -w, or by the variables that stand for the flags."""
    given, notes = parse(TOOL, words, FLAGS, _SHORT)
    model = given.text("models")
    known = {**environ, "LLMDBENCH_DEPLOY_CURRENT_MODEL": model.split(",")[0]} if model else environ
    place = _profile(given, environ)
    given.settle()
    if isinstance(place, Path):
        found = from_text(file_text(place), str(place), given.several("overrides"), known)
    else:
        found = _ours(place, known)
    return found.noted(notes)


def _ours(name: str, environ: Mapping[str, str]) -> Foreign:
    """Our own plan of a profile, aimed as llm-d's variables say."""
    from inferometer.plan.profiles import find_profile
    from inferometer.plan.reading import read_mapping

    plan = read_mapping(find_profile(name, environ).path)[0]
    aim = {
        "url": templates.variable("LLMDBENCH_HARNESS_STACK_ENDPOINT_URL", environ),
        "model": templates.variable("LLMDBENCH_DEPLOY_CURRENT_MODEL", environ),
    }
    target = {**(plan.get("target") or {}), **{key: value for key, value in aim.items() if value}}
    note = f"there is no template of that name here: our own plan {name} is taken"
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
    text = f"{TOOL}: -w {name}: no such template here or in the folders of profiles"
    if ours not in [each.name for each in profiles(environ)]:
        given.mistakes.append(f"{text}, and no plan of ours of that name; inferometer profiles lists them")
    elif "overrides" in given:
        given.mistakes.append(f"{text}, where -o could change it; our own takes --set: inferometer run {ours}")
    return ours
