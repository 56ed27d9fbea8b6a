"""How much of a folder of other tools' plans and commands is understood: each is read, checked like any plan, and read
again for each of its keys."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from inferometer.errors import InferometerError, PlanError
from inferometer.plan.cases import cases_of
from inferometer.plan.experiment import experiment_from
from inferometer.plan.foreign import recognise, templates
from inferometer.plan.foreign.common import Foreign, NeedsFileError, NoPlanError
from inferometer.plan.foreign.explain import Explained, explain_command, explain_file
from inferometer.plan.reading import file_text, plan_from

Status = Literal["understood", "refused", "wrong", "no plan"]
STATUSES: tuple[Status, ...] = ("understood", "refused", "wrong", "no plan")
_PLANS = (".yaml", ".yml", ".json", ".in")
_TEXTS = (".txt", ".md", ".sh", ".rst")
_LARGEST = 4 * 1024**2  # bytes: no plan is larger
_MOST_CASES = 100_000
_TOOLS = (
    *("vllm bench ", "vllm-bench ", "guidellm run", "guidellm benchmark", "aiperf profile", "genai-perf profile"),
    *("genai-bench benchmark", "inference-perf ", "llmdbenchmark run", "./run.sh "),
)
_MODULES = re.compile(
    r"^python3? (-m )?\S*(sglang\.bench_serving|benchmark_serving|benchmark_latency|benchmark_throughput)"
)
_PLACEHOLDER = re.compile(r"<[^<>]*>")
_STAND_IN = {"LLMDBENCH_DEPLOY_CURRENT_MODEL": "model", "LLMDBENCH_DEPLOY_CURRENT_MAX_MODEL_LEN": "32768"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One file or command, and what became of it."""

    name: str
    status: Status
    cause: str = ""
    tool: str = ""


def audit(folder: Path) -> Iterator[Finding]:
    """Every plan and command below a folder, in the order of their names."""
    for path in sorted(place for place in folder.rglob("*") if place.is_file() and ".git" not in place.parts):
        name = str(path.relative_to(folder))
        if path.stat().st_size > _LARGEST:
            continue
        if path.suffix in _TEXTS:
            yield from _commands(path, name)
        elif path.suffix in _PLANS:
            yield _file(path, name)


def _file(path: Path, name: str) -> Finding:
    try:
        text = file_text(path)
        around = recognise.Surroundings(_environ(text), run_only=False)
        explained = explain_file(path, (), around)
    except (NoPlanError, NeedsFileError) as error:
        return Finding(name, "no plan", _line(error))
    except PlanError as error:
        return Finding(name, "refused", _line(error).removeprefix(f"{path}: "))
    if explained is None:
        return Finding(name, "no plan", "is no other tool's plan")
    return _judged(explained, name)


def _environ(text: str) -> Mapping[str, str]:
    """A value for every variable of a template: what a cluster would set is not here."""
    names = dict.fromkeys(templates.variables_in(text))
    return {**{name: _STAND_IN.get(name, "http://localhost:8000") for name in names}, **os.environ}


def _commands(path: Path, name: str) -> Iterator[Finding]:
    try:
        text = file_text(path)
    except PlanError:
        return
    for line in _joined(text):
        words = line.strip().removeprefix("$ ").strip()
        if words.startswith(_TOOLS) or _MODULES.match(words):
            yield _command(words, f"{name}: {words}")


def _joined(text: str) -> Iterator[str]:
    """Lines, those that end in a backslash with the next."""
    whole = ""
    for line in text.splitlines():
        if line.rstrip().endswith("\\"):
            whole += line.rstrip()[:-1] + " "
            continue
        yield whole + line
        whole = ""


def _command(line: str, name: str) -> Finding:
    if re.search(r"[\s,]\.\.\.(\s|$)", line) or re.search(r"(^|\s)--?<|=<[A-Z_]+>|\s\w+(\|\w+){2,}(\s|$)", line):
        return Finding(name, "no plan", "a pattern, not a command")
    try:
        argv = shlex.split(_PLACEHOLDER.sub(lambda match: match[0].strip("<>").replace(" ", "_"), line))
    except ValueError:
        return Finding(name, "no plan", "goes on in lines that are not here")
    try:
        return _judged(explain_command(argv), name)
    except (NoPlanError, NeedsFileError) as error:
        return Finding(name, "no plan", _line(error))
    except PlanError as error:
        return Finding(name, "refused", _line(error))


def _judged(explained: Explained, name: str) -> Finding:
    tool = explained.foreign.tool
    try:
        _check(explained.foreign)
    except InferometerError as error:
        return Finding(name, "refused", _line(error), tool)
    if explained.lost:
        return Finding(name, "wrong", f"read, but without effect: {', '.join(explained.lost)}", tool)
    return Finding(name, "understood", "", tool)


def _check(foreign: Foreign) -> None:
    """Like any plan or experiment."""
    if foreign.is_experiment:
        cases_of(experiment_from(foreign.experiment, (), foreign.tool), foreign.tool, _MOST_CASES)
    else:
        plan_from(foreign.plan, (), foreign.tool)


def _line(error: InferometerError) -> str:
    mistakes = error.mistakes if isinstance(error, PlanError) else [str(error)]
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return f"{mistakes[0]}{more}"
