"""Which tool a command line or a file belongs to."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.experiment import Experiment, experiment_from
from inferometer.plan.foreign import llmd, llmd_experiment, nm_vllm, templates, vllm_bench, vllm_offline
from inferometer.plan.foreign.common import AccountEntry, Foreign, reading
from inferometer.plan.foreign.nm_vllm import Known
from inferometer.plan.opening import is_command, is_plan
from inferometer.plan.reading import file_text, nearby, read_mapping
from inferometer.plan.text import parse_json, parse_yaml
from inferometer.vocabulary import attribute_at

COMMANDS: dict[str, tuple[str, str]] = {  # the command without python and paths, and its reader
    "vllm bench serve": ("inferometer.plan.foreign.vllm_bench:from_argv", "vLLM's benchmark"),
    "vllm bench latency": ("inferometer.plan.foreign.vllm_offline:latency", "its batches in this process"),
    "vllm bench throughput": ("inferometer.plan.foreign.vllm_offline:throughput", "its throughput in this process"),
    "vllm bench startup": ("inferometer.plan.foreign.vllm_offline:startup", "its start-up time"),
    "vllm bench mm-processor": ("inferometer.plan.foreign.vllm_offline:processor", "its multimodal processor"),
    "vllm bench sweep serve_workload": ("inferometer.plan.foreign.vllm_scripts:workload_from_argv", "its explorer"),
    "vllm bench sweep startup": ("inferometer.plan.foreign.vllm_offline:startup_sweep", "its sweep over start-ups"),
    "vllm bench sweep plot": ("inferometer.plan.foreign.vllm_scripts:plot_from_argv", "its charts"),
    "vllm bench sweep plot_pareto": ("inferometer.plan.foreign.vllm_scripts:plot_from_argv", "its charts"),
    "vllm bench sweep serve": ("inferometer.plan.foreign.vllm_scripts:from_argv", "its sweep over servers and loads"),
    "vllm-bench": ("inferometer.plan.foreign.vllm_bench:from_argv", "the same, in Rust"),
    "benchmark_serving": ("inferometer.plan.foreign.vllm_bench:from_script", "the same, before it was a command"),
    "benchmark_serving_structured_output": (
        "inferometer.plan.foreign.vllm_scripts:structured_output",
        "its script for structured output",
    ),
    "benchmark_serving_multi_turn": (
        "inferometer.plan.foreign.vllm_scripts:multi_turn",
        "its script for conversations",
    ),
    "benchmark_latency": ("inferometer.plan.foreign.vllm_offline:latency", "the same, before it was a command"),
    "benchmark_throughput": ("inferometer.plan.foreign.vllm_offline:throughput", "the same, before it was a command"),
    "guidellm run": ("inferometer.plan.foreign.guidellm:from_run_argv", "guidellm since 0.7"),
    "guidellm benchmark run": ("inferometer.plan.foreign.guidellm_flags:from_argv", "guidellm"),
    "guidellm benchmark": ("inferometer.plan.foreign.guidellm_flags:from_argv", "guidellm"),
    "aiperf profile": ("inferometer.plan.foreign.aiperf:from_argv", "NVIDIA's aiperf"),
    "genai-perf profile": ("inferometer.plan.foreign.aiperf:from_argv", "aiperf's predecessor"),
    "genai-bench benchmark": ("inferometer.plan.foreign.genai_bench:from_argv", "genai-bench"),
    "inference-perf": ("inferometer.plan.foreign.inference_perf:from_argv", "inference-perf with its configuration"),
    "benchmark": ("inferometer.plan.foreign.ray_bench:from_argv", "the benchmark of Ray Serve's prefix-aware router"),
    "bench_serving": ("inferometer.plan.foreign.sglang:from_argv", "sglang's benchmark"),
    "run_benchmarks": ("inferometer.plan.foreign.nm_vllm:from_argv", "nm-vllm's driver"),
    "inferx_benchmark_framework": ("inferometer.plan.foreign.inferx:from_argv", "InferX's framework"),
    "llmdbenchmark run": ("inferometer.plan.foreign.llmd:from_benchmark_argv", "llm-d-benchmark"),
    "run": ("inferometer.plan.foreign.llmd:from_argv", "llm-d-benchmark's run.sh"),
}
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")
_LAUNCHERS = re.compile(r"(python[0-9.]*|uv|uvx|bash|sh|time|env|sudo|pipx)")


def from_command(argv: Sequence[str]) -> Foreign:
    """The plan of another tool's command line."""
    bare = _with_verb(_without_launcher(list(argv)))
    for name, (place, _) in COMMANDS.items():
        steps = name.split()
        if [_stem(arg) for arg in bare[: len(steps)]] == steps:
            with reading(f"-- {name}", "its command line", is_file=False):
                foreign: Foreign = attribute_at(place)(bare[len(steps) :])
            return foreign
    if argv and argv[0].startswith("-"):
        raise PlanError(f"-- {' '.join(argv)[:60]}: flags without the name of the tool", _whose(argv))
    known = ", ".join(dict.fromkeys(COMMANDS))
    raise PlanError(f"-- {' '.join(argv)[:60]}: not a known command line", f"there are {known}")


def refuse_changes(changes: Sequence[str], what: str) -> None:
    """Refuse `-o` for other tools: only files of some tools support it, and it would be ignored."""
    if changes:
        tools = "inference-perf, guidellm, vllm-benchmark or fmperf"
        raise PlanError(
            f"-o {changes[0]}: changes a file of {tools}, not {what}", "use --set to change the converted plan"
        )


def _whose(argv: Sequence[str]) -> str:
    """The tool that has most of the flags; of several the first that is a separate script."""
    given = {arg.partition("=")[0].lstrip("-").replace("_", "-") for arg in argv if arg.startswith("--")}
    names = {
        "ray_bench": "benchmark.py",
        "sglang": "python -m sglang.bench_serving",
        "vllm_bench": "vllm bench serve",
        "guidellm_flags": "guidellm benchmark run",
        "aiperf": "aiperf profile",
        "inferx": "inferx_benchmark_framework.py",
    }
    known = {name: set(attribute_at(f"inferometer.plan.foreign.{module}:FLAGS")) for module, name in names.items()}
    best = max(known, key=lambda name: len(given & known[name]))
    return f"start with the tool's name: -- {best} {' '.join(argv[:2])} ..."


def _without_launcher(argv: list[str]) -> list[str]:
    """`X=1 python3 -m pkg.benchmark_serving` is benchmark_serving."""
    while argv:
        arg = argv[0]
        runner = _LAUNCHERS.fullmatch(PurePath(arg).name) or _ASSIGNMENT.fullmatch(arg) or arg in ("-m", "-u")
        uv_run = arg == "run" and len(argv) > 1 and not argv[1].startswith("-")
        if not runner and not uv_run:
            break
        argv = argv[1:]
    return argv


def _with_verb(bare: list[str]) -> list[str]:
    """`llmdbenchmark --spec X run -w Y`, with the options before `run` moved behind it."""
    if bare and _stem(bare[0]) == "llmdbenchmark" and "run" in bare:
        at = bare.index("run")
        return [bare[0], "run", *bare[1:at], *bare[at + 1 :]]
    return bare


def _stem(arg: str) -> str:
    """`./scripts/benchmark.py` is benchmark; `sglang.bench_serving` is bench_serving."""
    name = PurePath(arg).name
    for ending in (".py", ".sh"):
        name = name.removesuffix(ending)
    return name.rpartition(".")[2] if name != "inference-perf" else name


# -- files ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Inputs of a file from its environment: variables, the machine, and whether its stack is already running."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    known: nm_vllm.Known = field(default_factory=nm_vllm.Known)
    run_only: bool = False


def from_file(path: Path, changes: Sequence[str] = (), around: Surroundings | None = None) -> Foreign | None:
    """The plan of another tool's file, with changes by its own keys; None if it belongs to no other tool."""
    return from_text(file_text(path), str(path), changes, around)


def from_text(text: str, where: str, changes: Sequence[str] = (), around: Surroundings | None = None) -> Foreign | None:
    """The same for a file's content."""
    around = around or Surroundings()
    if where.endswith(".txt"):
        if not nm_vllm.is_list(text):
            raise PlanError(f"{where}: must list configs, a path ending in .json on each line")
        refuse_changes(changes, "a list of configs")
        with reading(where, "a list of configs of nm-vllm"):
            return nm_vllm.from_list(text, where, around.known)
    if is_template(where) or templates.has_variables(text):
        with reading(where, "a template of llm-d"):
            return llmd.from_text(text, where, changes, around.environ)
    is_json = where.endswith(".json") or text.lstrip().startswith(("{", "["))
    value, twice = (parse_json if is_json else parse_yaml)(text, where)
    foreign = from_value(value, where, changes, around)
    if foreign is not None and twice:
        raise PlanError(twice)
    return foreign


def from_value(
    value: Any, where: str, changes: Sequence[str] = (), around: Surroundings | None = None
) -> Foreign | None:
    """The same for a parsed document."""
    around = around or Surroundings()
    if vllm_offline.is_suite(value):
        refuse_changes(changes, "a suite of vLLM")
        with reading(where, "a suite of vLLM"):
            return vllm_offline.from_suite(value, where)
    if not isinstance(value, dict):
        return None
    if vllm_bench.is_it(value):
        refuse_changes(changes, "conversations of vLLM's multi-turn benchmark")
        with reading(where, "conversations of vLLM's multi-turn benchmark"):
            return vllm_bench.from_mapping(value)
    if nm_vllm.is_it(value):
        refuse_changes(changes, "a config of nm-vllm")
        with reading(where, "a config of nm-vllm"):
            return nm_vllm.from_mapping(value, where, around.known)
    if llmd_experiment.is_it(value) and llmd.reader_of(value) is None:
        with reading(where, "an experiment of llm-d"):
            return llmd_experiment.from_mapping(value, where, around.environ, around.run_only, changes)
    if llmd.reader_of(value) is None:
        return None
    with reading(where, "a plan of another tool"):
        value, differences = llmd.changed(value, changes, where)
        return llmd.from_mapping(value, where, around.environ).noted(differences)


def is_foreign(value: Any) -> bool:
    """Whether a document is another tool's plan or experiment."""
    if vllm_offline.is_suite(value):
        return True
    if not isinstance(value, dict):
        return False
    kinds = (vllm_bench.is_it, nm_vllm.is_it, llmd_experiment.is_it)
    return any(is_it(value) for is_it in kinds) or llmd.reader_of(value) is not None


def changed(value: Any, changes: Sequence[str], where: str) -> Any:
    """A document with changes by its own keys."""
    return llmd.changed(value, changes, where)[0] if changes else value


def is_template(path: str) -> bool:
    """Whether a file is one of llm-d's templates, by its name."""
    return path.endswith((".yaml.in", ".yml.in"))


# -- experiments -------------------------------------------------------------------------------------------------------

# An experiment by its file or another tool's command line; what has no counterpart is reported.


@dataclass(frozen=True, slots=True)
class OpenedExperiment:
    """An experiment, and notes about its source for the user."""

    experiment: Experiment
    tool: str | None = None  # another tool's name, None for one of ours
    notes: list[str] = field(default_factory=list)
    entries: list[AccountEntry] = field(default_factory=list)  # the account of its source


def open_experiment(
    named: str | Path | Sequence[str],
    overrides: Sequence[str] = (),
    known: Known | None = None,
    environ: Mapping[str, str] = os.environ,
    changes: Sequence[str] = (),
) -> OpenedExperiment:
    """The experiment of a file or of another tool's command line; `known` are facts of the machine that such
    files depend on, `changes` (`-o`) use the keys of the file."""
    argv = _argv(named)
    foreign = foreign_experiment(argv, overrides, known, environ, changes)
    if foreign is None and changes:
        raise PlanError(
            f"-o {changes[0]}: changes another tool's file before it is read", "--set changes an experiment"
        )
    if foreign is None:
        return OpenedExperiment(_ours(argv[0], overrides))
    where = argv[0] if len(argv) == 1 else foreign.tool
    return OpenedExperiment(
        experiment_from(foreign.experiment, overrides, where), foreign.tool, foreign.notes, foreign.entries
    )


def _argv(named: str | Path | Sequence[str]) -> list[str]:
    return [str(named)] if isinstance(named, str | Path) else list(named)


def _ours(name: str, overrides: Sequence[str]) -> Experiment:
    """An experiment is a file, or the name of one that comes with Inferometer."""
    if name != "-" and not Path(name).exists():
        if name in (ready := ready_experiments()):
            return experiment_from(read_mapping(ready[name])[0], overrides, name)
        usual = "an experiment has a plan and axes: inferometer sweep --help shows examples"
        hint = nearby(Path(name)) or f"{usual}; built-in ones: {', '.join(ready)}"
        raise PlanError(f"{name}: file not found", hint)
    if Path(name).is_dir():
        raise PlanError(f"{name}: is a folder, not an experiment")
    mapping, twice = read_mapping(name)
    if is_plan(mapping):
        hint = f"{_run(name)}; an experiment needs more: `plan: {name}` and, for example, `axes: {{load.rate: [1, 2]}}`"
        raise PlanError(f"{name}: is a plan, not an experiment", hint)
    return experiment_from(mapping, overrides, name, also=twice)


def ready_experiments() -> dict[str, Path]:
    """The experiments that come with Inferometer, by name."""
    folder = Path(str(files("inferometer.plan"))) / "experiments"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def foreign_experiment(
    named: str | Path | Sequence[str],
    overrides: Sequence[str] = (),
    known: Known | None = None,
    environ: Mapping[str, str] = os.environ,
    changes: Sequence[str] = (),
) -> Foreign | None:
    """The experiment of another tool's file; None if it belongs to no other tool."""
    argv = _argv(named)
    if is_command(argv):
        refuse_changes(changes, "a command line")
        return _several(from_command(argv), f"inferometer run -- {shlex.join(argv)}")
    where = argv[0]
    if where == "-" or not Path(where).is_file():
        return None
    aimed = any(text.startswith(("target.url=", "target=")) for text in overrides)
    foreign = from_file(Path(where), changes, Surroundings(environ, known or Known(), aimed))
    return None if foreign is None else _several(foreign, _run(where))


def _several(foreign: Foreign, run: str) -> Foreign:
    if not foreign.experiment:
        raise PlanError(f"{foreign.tool}: is one run, a plan and not an experiment", run)
    return foreign


def _run(where: str) -> str:
    return shlex.join(["inferometer", "run", where])
