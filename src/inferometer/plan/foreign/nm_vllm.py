"""nm-vllm's benchmark configs (`neuralmagic/benchmarks/configs/*.json`), text files that list them, and the inputs of
its workflow: each combination of models, sparsities, lengths and arguments is a case of an experiment."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.foreign.arguments import Given
from inferometer.plan.foreign.found import ForeignExperiment, without_missing
from inferometer.plan.foreign.nm_vllm_config import Config, ConfigCase, Known
from inferometer.plan.foreign.varied import told_apart
from inferometer.plan.reading import file_text, read_mapping
from inferometer.plan.text import as_written

TOOL = "nm-vllm"
LIST_FILE = "benchmark_config_list_file"


def is_it(said: Mapping[str, Any]) -> bool:
    """A config, a file of them, or the inputs of the workflow."""
    configs = said.get("configs")
    several = isinstance(configs, list) and any(isinstance(each, dict) and "script_name" in each for each in configs)
    return several or ("script_name" in said and "script_args" in said) or LIST_FILE in said


def is_list(text: str) -> bool:
    """Whether a text file lists configs, a path on each line."""
    lines = _lines(text)
    return bool(lines) and all(line.endswith(".json") for line in lines)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def from_list(text: str, where: str, known: Known | None = None) -> ForeignExperiment:
    """All cases of all configs that a text file lists; paths are those of the folder one stands in, as there, or of the
    list itself."""
    configs: list[tuple[str, dict[str, Any]]] = []
    for line in _lines(text):
        path = next((each for each in _places(line, where) if each.is_file()), Path(line))
        said, twice = read_mapping(path)
        if twice:
            raise PlanError(twice)
        configs += _configs(said, str(path))
    return _experiment(configs, Path(where).stem, known or Known())


def _places(line: str, where: str) -> Iterator[Path]:
    """Upstream's lists name paths from the top of the repository, two folders above `.github/data`."""
    yield Path(line)
    for folder in [Path(where).parent, *Path(where).resolve().parents]:
        yield folder / line


def from_mapping(said: Mapping[str, Any], where: str, known: Known | None = None) -> ForeignExperiment:
    """All cases of a config; or of the list that the workflow's inputs name, within their time."""
    if LIST_FILE not in said:
        return _experiment(_configs(said, where), Path(where).stem, known or Known())
    path = next((each for each in _places(str(said[LIST_FILE]), where) if each.is_file()), Path(str(said[LIST_FILE])))
    found = from_list(file_text(path), str(path), known)
    return _in_time(found, said, where)


def _in_time(found: ForeignExperiment, said: Mapping[str, Any], where: str) -> ForeignExperiment:
    """`timeout` is minutes for the whole; the rest of the inputs says how their machine is built."""
    given = Given(where, dict(said))
    minutes = given.number("timeout")
    given.settle()
    if minutes:
        found.experiment["budget"] = {"time": f"{minutes:g}min"}
    others = [name for name in said if name not in (LIST_FILE, "timeout")]
    if others:
        found.notes.append(f"{', '.join(others)}: say where and of what it is built, which is not done here")
    return found


def _configs(said: Mapping[str, Any], where: str) -> list[tuple[str, dict[str, Any]]]:
    """Each with where it stands."""
    configs = said.get("configs", [said])
    if not isinstance(configs, list) or not configs or not all(isinstance(each, dict) for each in configs):
        raise PlanError(f"{where}: configs must be a list of configs, got {as_written(configs)}")
    return [(f"{where}: configs[{at}]", config) for at, config in enumerate(configs)]


def _experiment(configs: Sequence[tuple[str, dict[str, Any]]], name: str, known: Known) -> ForeignExperiment:
    notes: dict[str, None] = {}
    mistakes: list[str] = []
    cases: list[ConfigCase] = []
    for at, config in configs:
        try:
            cases += Config(config, at, known, notes).cases()
        except PlanError as error:
            mistakes += error.mistakes
    if mistakes:
        raise PlanError(mistakes)
    written = [{"name": label, each.work: each.said} for label, each in zip(_named(cases), cases, strict=True)]
    about = list(dict.fromkeys(each.about for each in cases if each.about))
    whole = {
        "name": name,
        "about": "; ".join(about) or None,
        "cases": told_apart(written),
        "server": {"restart": "each-case"} if any(each.work == "plan" for each in cases) else None,
    }
    return ForeignExperiment(TOOL, without_missing(whole), list(notes))


def _named(cases: Sequence[ConfigCase]) -> list[str]:
    """By what varies; where that is not enough also by description, then by number."""
    varies = {
        name
        for name in dict.fromkeys(name for each in cases for name in each.labels)
        if len({each.labels.get(name) for each in cases}) > 1
    }
    short = [_label(each, varies) for each in cases]
    if len({*short}) < len(short):
        short = [f"{each.about} {text}".strip() for each, text in zip(cases, short, strict=True)]
    return [
        text if short.count(text) == 1 else f"{text} ({short[: at + 1].count(text)})" for at, text in enumerate(short)
    ]


def _label(case: ConfigCase, varies: set[str]) -> str:
    parts = [value if name == "model" else f"{name}={value}" for name, value in case.labels.items() if name in varies]
    return " ".join(parts) or PurePath(case.model).name
