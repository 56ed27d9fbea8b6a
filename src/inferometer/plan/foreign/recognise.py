"""Which tool a command line or a file belongs to."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.foreign.found import Foreign, IsExperiment, reading
from inferometer.vocabulary import attribute_at

COMMANDS: dict[str, tuple[str, str]] = {  # the words that name a tool, once python and paths are gone, and its reader
    "vllm bench serve": ("inferometer.plan.foreign.vllm_bench:from_words", "vLLM's benchmark"),
    "vllm bench sweep serve_workload": ("inferometer.plan.foreign.vllm_sweep:workload_from_words", "its explorer"),
    "vllm bench sweep serve": ("inferometer.plan.foreign.vllm_sweep:from_words", "its sweep over servers and loads"),
    "vllm-bench": ("inferometer.plan.foreign.vllm_bench:from_words", "the same, in Rust"),
    "benchmark_serving": ("inferometer.plan.foreign.vllm_bench:from_words", "the same, before it was a command"),
    "guidellm run": ("inferometer.plan.foreign.guidellm:from_run_words", "guidellm since 0.7"),
    "guidellm benchmark run": ("inferometer.plan.foreign.guidellm:from_words", "guidellm"),
    "guidellm benchmark": ("inferometer.plan.foreign.guidellm:from_words", "guidellm"),
    "inference-perf": (
        "inferometer.plan.foreign.inference_perf:inference_perf",
        "inference-perf with its configuration",
    ),
    "benchmark": ("inferometer.plan.foreign.ray_bench:from_words", "the benchmark of Ray Serve's prefix-aware router"),
    "bench_serving": ("inferometer.plan.foreign.ray_bench:from_words", "sglang's, of the same family"),
    "inferx_benchmark_framework": ("inferometer.plan.foreign.inferx:from_words", "InferX's framework"),
    "run": ("inferometer.plan.foreign.llmd:from_words", "llm-d-benchmark's run.sh"),
}
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")
_LAUNCHERS = re.compile(r"(python[0-9.]*|uv|uvx|bash|sh|time|env|sudo|pipx)")


def from_command(words: Sequence[str]) -> Foreign:
    """The plan that another tool's command line means."""
    bare = _without_launcher(list(words))
    for name, (place, _) in COMMANDS.items():
        steps = name.split()
        if [_stem(word) for word in bare[: len(steps)]] == steps:
            with reading(f"-- {name}", "its command line", is_file=False):
                found: Foreign = attribute_at(place)(bare[len(steps) :])
            return found
    if words and words[0].startswith("-"):
        raise PlanError(f"-- {' '.join(words)[:60]}: flags without the name of their tool", _whose(words))
    known = ", ".join(dict.fromkeys(COMMANDS))
    raise PlanError(f"-- {' '.join(words)[:60]}: no command line that is known here", f"there are {known}")


def refuse_changes(changes: Sequence[str], what: str) -> None:
    """`-o` is for the files of some tools; elsewhere it would be dropped unsaid."""
    if changes:
        tools = "inference-perf, guidellm, vllm-benchmark or fmperf"
        raise PlanError(f"-o {changes[0]}: changes a file of {tools}, not {what}", "--set changes what is made of it")


def _whose(words: Sequence[str]) -> str:
    """The tool that knows most of the flags; of several the first that is a script of its own."""
    given = {word.partition("=")[0].lstrip("-").replace("_", "-") for word in words if word.startswith("--")}
    names = {
        "ray_bench": "conduct/benchmark.py",
        "vllm_bench": "vllm bench serve",
        "guidellm": "guidellm benchmark run",
    }
    names |= {"inferx": "inferx_benchmark_framework.py"}
    known = {name: set(attribute_at(f"inferometer.plan.foreign.{module}:FLAGS")) for module, name in names.items()}
    best = max(known, key=lambda name: len(given & known[name]))
    return f"begin with its name: -- {best} {' '.join(words[:2])} ..."


def _without_launcher(words: list[str]) -> list[str]:
    """`X=1 python3 -m pkg.benchmark_serving` is benchmark_serving."""
    while words:
        word = words[0]
        runner = _LAUNCHERS.fullmatch(PurePath(word).name) or _ASSIGNMENT.fullmatch(word) or word in ("-m", "-u")
        uv_run = word == "run" and len(words) > 1 and not words[1].startswith("-")
        if not runner and not uv_run:
            break
        words = words[1:]
    return words


def _stem(word: str) -> str:
    """`./scripts/benchmark.py` is benchmark; `sglang.bench_serving` is bench_serving."""
    name = PurePath(word).name
    for ending in (".py", ".sh"):
        name = name.removesuffix(ending)
    return name.rpartition(".")[2] if name != "inference-perf" else name


def is_foreign(said: Mapping[str, Any]) -> bool:
    """Whether a file's content is another tool's plan."""
    from inferometer.plan.foreign import llmd

    return llmd.reader_of(said) is not None or whose_experiment(said) is not None


def whose_experiment(said: Mapping[str, Any]) -> str | None:
    """The tool whose experiment a file's content is; `experiments.open_experiment` reads it."""
    from inferometer.plan.foreign import llmd_experiment, nm_vllm

    readers = {nm_vllm.TOOL: nm_vllm.is_it, llmd_experiment.TOOL: llmd_experiment.is_it}
    return next((tool for tool, is_it in readers.items() if is_it(said)), None)


def from_mapping(
    said: dict[str, Any], where: str, changes: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> Foreign:
    """The plan that another tool's file means, changed in its own words."""
    from inferometer.plan.foreign import llmd

    if (tool := whose_experiment(said)) is not None and llmd.reader_of(said) is None:
        raise IsExperiment(f"{where}: is an experiment of {tool}, not a plan", f"inferometer sweep {where}")
    with reading(where, "a plan of another tool"):
        said, differences = llmd.changed(said, changes, where)
        return llmd.from_mapping(said, where, environ).noted(differences)


def is_template(path: str) -> bool:
    """Whether a file is one of llm-d's templates, by its name."""
    return path.endswith((".yaml.in", ".yml.in"))


def from_template(text: str, where: str, changes: Sequence[str], environ: Mapping[str, str] = os.environ) -> Foreign:
    """The plan that a template means."""
    from inferometer.plan.foreign import llmd

    with reading(where, "a template of llm-d"):
        return llmd.from_text(text, where, changes, environ)
