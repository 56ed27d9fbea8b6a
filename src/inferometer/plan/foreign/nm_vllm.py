"""nm-vllm's benchmark configs (`neuralmagic/benchmarks/configs/*.json`), text files that list them, and the inputs of
its workflow: each combination of arguments a plan or an offline throughput."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path, PurePath
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.foreign.arguments import Given
from inferometer.plan.foreign.found import ForeignExperiment, without_missing
from inferometer.plan.foreign.inference_perf import SHAREGPT
from inferometer.plan.foreign.shapes import ESTIMATED, load_of, told_apart
from inferometer.plan.reading import file_text, read_mapping
from inferometer.plan.text import as_written

# -- nm vllm config --------------------------------------------------------------------------------------------------

SCRIPTS = ("benchmark_serving", "benchmark_throughput")
LONGEST = 2048  # tokens of a prompt of their datasets, with its answer
ULTRACHAT = {"type": "huggingface", "repo": "HuggingFaceH4/ultrachat_200k", "split": "train_sft", "turns": "single"}
_KEYS = {"description", "models", "max_model_lens", "sparsity", "script_name", "script_args"}
_GPUS = ("tensor_parallel_size", "use_all_available_gpus")
_PACED = ("nr-qps-pair_", "num-prompts_", "request-rate_")
_WARM = (
    "their server is warmed with 1000 random prompts of 128 tokens and 1 output token, which is not done here: "
    "--set warmup=30s leaves out the first half minute"
)
_SERVER = "their server speaks vLLM's own /generate, ours the completions API of the same engine"
_FITTING = (
    f"datasets: as there, prompts of 4 to {LONGEST} tokens; their drawing of the first 2N rows with seed 42 is not kept"
)
_UNUSED: dict[str, str] = {
    **dict.fromkeys(("log-model-io",), "save.prompts and save.answers keep texts"),
    **dict.fromkeys(("disable-tqdm",), "progress is shown where there is a terminal"),
    **dict.fromkeys(("version", "description"), "is kept as the run's environment"),
    **dict.fromkeys(("save-directory",), "runs are kept in the store; inferometer export --as nm-vllm writes them"),
    **dict.fromkeys(("trust-remote-code",), "no code of a model is run by the load"),
    **dict.fromkeys(("server-args", "server-tensor-parallel-size"), "the server's own settings are known here"),
    "system": "is only a label there",
}
_SERVING = (
    *_PACED,
    "dataset",
    "num-input-tokens",
    "num-output-tokens",
    "best-of",
    "use-beam-search",
    "seed",
    "backend",
)
_SERVING_ALSO = ("tokenizer", "base-url", "host", "port", "endpoint", "model")
_ENGINE = {"quantization": "quantization", "dtype": "dtype", "sparsity": "sparsity", "max-model-len": "max_model_len"}
_THROUGHPUT = (
    *("dataset", "input-len", "output-len", "n", "use-beam-search", "num-prompts", "num-warmup-prompts", "seed"),
    *("backend", "enforce-eager", "trust-remote-code", "tokenizer", "tensor-parallel-size_", "use-all-available-gpus_"),
    *_ENGINE,
)


@dataclass(frozen=True, slots=True)
class Known:
    """What the machine tells: how many GPUs it has, and the longest context of a model; None where it does not."""

    gpus: int | None = None
    context: Callable[[str], int | None] = field(default=lambda _model: None)


@dataclass(slots=True)
class ConfigCase:
    """One combination: what it does, and what tells it apart."""

    model: str
    labels: dict[str, str]
    work: str  # "plan" or "throughput"
    said: dict[str, Any]
    about: str


class Config:
    """One config: its mistakes are raised all at once."""

    def __init__(self, said: Mapping[str, Any], where: str, known: Known, notes: dict[str, None]) -> None:
        self.said, self.where, self.known, self.notes = said, where, known, notes
        self.mistakes: list[str] = []
        self.script = str(said.get("script_name", ""))

    def cases(self) -> list[ConfigCase]:
        self._check()
        models, lengths = self._list("models"), self._list("max_model_lens")
        sparsities = [None if each in ("", "None") else each for each in self._list("sparsity")] or [None]
        combinations = self._combinations()
        self._settle()
        serving = self.script == "benchmark_serving"
        make = self._serving if serving else self._throughput
        found = [
            make(str(model), sparsity, length, args)
            for model in models
            for sparsity in (sparsities if serving else [None])
            for length in self._clipped(str(model), lengths)
            for args in combinations
        ]
        self._settle()
        return found

    def _settle(self) -> None:
        if self.mistakes:
            raise PlanError(list(dict.fromkeys(self.mistakes)))

    def _wrong(self, text: str) -> None:
        self.mistakes.append(f"{self.where}: {text}")

    def _check(self) -> None:
        if self.script not in SCRIPTS:
            self._wrong(f"script_name must be {' or '.join(SCRIPTS)}, got {as_written(self.said.get('script_name'))}")
        for name in sorted({*self.said} - _KEYS - {*_GPUS}):
            self._wrong(f"{name} is not one of its settings; there are {', '.join(sorted(_KEYS | {*_GPUS}))}")
        if all(name in self.said for name in _GPUS):
            self._wrong(f"{' and '.join(_GPUS)} cannot stand together: give one or the other")
        if not self._list("models"):
            self._wrong("models is missing: what is served?")
        if self.script == "benchmark_serving" and "sparsity" not in self.said:
            self._wrong("sparsity is missing: [] means none")
        if self.script == "benchmark_throughput":
            for name in _GPUS:
                if name in self.said:
                    self._wrong(f"{name} belongs to serving; script_args have {name.replace('_', '-')}_")

    def _list(self, name: str) -> list[Any]:
        value = self.said.get(name, [])
        if not isinstance(value, list):
            self._wrong(f"{name} must be a list, got {as_written(value)}")
            return []
        return value

    def _combinations(self) -> list[dict[str, Any]]:
        """Every list with every other, in the order of the keys; an empty one is a flag that is there in all."""
        args = self.said.get("script_args", {})
        if not isinstance(args, dict):
            self._wrong(f"script_args must be lists by name, got {as_written(args)}")
            return []
        for name, values in args.items():
            if not isinstance(values, list):
                self._wrong(f"script_args.{name} must be a list, got {as_written(values)}")
        lists = {name: values for name, values in args.items() if isinstance(values, list)}
        flags = {name: True for name, values in lists.items() if not values}
        valued = {name: values for name, values in lists.items() if values}
        return [flags | dict(zip(valued, values, strict=True)) for values in product(*valued.values())]

    def _clipped(self, model: str, lengths: Sequence[Any]) -> list[int | None]:
        """No longer than the model can; what is the same then is done once."""
        room = self.known.context(model)
        found: dict[int | None, None] = {}
        for each in lengths:
            if isinstance(each, bool) or not isinstance(each, int) or each < 1:
                self._wrong(f"max_model_lens must be whole numbers, got {as_written(each)}")
                continue
            if room is not None and each > room:
                self.notes[f"max_model_lens: {each} is more than {model} supports, {room} is taken"] = None
            found[each if room is None else min(each, room)] = None
        if not lengths:
            return [None]
        if room is None:
            text = "not cut, for the longest context of the model is not known here; the engine refuses more"
            self.notes[f"max_model_lens: {text}"] = None
        return list(found)

    def _given(self, args: Mapping[str, Any], known: Sequence[str]) -> Given:
        given = Given(f"{self.where}: script_args", args)
        for name in args:
            if name in _UNUSED:
                self.notes[f"script_args.{name}: {_UNUSED[name]}"] = None
            elif name not in known:
                given.mistakes.append(f"{self.where}: script_args.{name} is not an argument of {self.script}")
        return given

    def _case(self, model: str, args: Mapping[str, Any], work: str, said: dict[str, Any], **beside: Any) -> ConfigCase:
        labels = {"model": PurePath(model).name} | {name: str(value) for name, value in beside.items() if value}
        labels |= {name.rstrip("_"): str(value) for name, value in args.items() if value is not True}
        return ConfigCase(model, labels, work, without_missing(said), str(self.said.get("description") or ""))

    # -- serving ---------------------------------------------------------------------------------------------------

    def _serving(self, model: str, sparsity: Any, length: int | None, args: Mapping[str, Any]) -> ConfigCase:
        given = self._given(args, (*_SERVING, *_SERVING_ALSO))
        for name in _SERVING_ALSO:
            if name in given:
                given.wrong(name, "is the driver's to say, not the config's")
        if (given.text("backend") or "vllm") != "vllm":
            given.wrong("backend", "has no counterpart but vllm")
        requests, rate = self._pace(given)
        beams = given.on("use-beam-search")
        best_of = given.count("best-of", 1)
        for note in (_SERVER, _WARM, ESTIMATED):
            self.notes[note] = None
        flags = {"max-model-len": length, "tensor-parallel-size": self._gpus(), "sparsity": sparsity}
        plan = {
            "target": {"model": model},
            "server": {"type": "vllm", "model": model, "args": without_missing(flags)},
            "workload": self._workload(given, "num-input-tokens", "num-output-tokens"),
            "load": load_of(rate, None, requests),
            "sampling": {
                "ignore_eos": True,
                "temperature": 0.0 if beams else 1.0,
                "top_p": 1.0,
                "extra": ({"use_beam_search": True} if beams else {}) | ({"best_of": best_of} if best_of != 1 else {}),
            },
            "stop": {"requests": requests},
            "seed": given.count("seed") or None,
        }
        self.mistakes += given.mistakes
        return self._case(model, args, "plan", plan, sparsity=sparsity, len=length)

    def _pace(self, given: Given) -> tuple[int, float]:
        """`nr-qps-pair_` "150,0.5", or num-prompts_ and request-rate_: one or the other."""
        pair = given.text("nr-qps-pair_")
        if pair is None:
            missing = [name for name in _PACED[1:] if name not in given]
            if missing:
                text = f"{' and '.join(missing)} missing: give nr-qps-pair_, or num-prompts_ and request-rate_"
                given.mistakes.append(f"{given.tool}: {text}")
            return given.count("num-prompts_", 1) or 1, given.number("request-rate_", math.inf) or math.inf
        if "num-prompts_" in given or "request-rate_" in given:
            given.wrong("nr-qps-pair_", "cannot stand beside num-prompts_ and request-rate_: it says both")
        parts = Given(given.tool, dict(zip(("n", "qps"), pair.split(","), strict=False)))
        n, qps = parts.count("n"), parts.number("qps")
        if len(pair.split(",")) != 2 or not n or n < 1 or not qps or qps <= 0:
            given.wrong("nr-qps-pair_", 'must be "requests,rate" such as "150,0.5" or "100,inf"')
            return 1, math.inf
        return n, qps

    def _gpus(self) -> int | None:
        """Neither key: one GPU, the server's default."""
        if "use_all_available_gpus" in self.said:
            return self._all_gpus("use_all_available_gpus")
        size = self.said.get("tensor_parallel_size")
        if size is None:
            return None
        given = Given(self.where, {"tensor_parallel_size": size})
        found = given.count("tensor_parallel_size")
        if found is None or found < 1:
            self._wrong(f"tensor_parallel_size must be a whole number, got {as_written(size)}")
        return found

    def _all_gpus(self, name: str) -> int | None:
        if self.known.gpus is None:
            self.notes[f"{name}: no GPU was found here, so that tensor parallelism is left to the engine"] = None
        return self.known.gpus

    def _workload(self, given: Given, length_in: str, length_out: str) -> dict[str, Any]:
        name = given.text("dataset")
        asked = given.count(length_out)
        if name is None:
            sent = given.count(length_in)
            for flag, value in ((length_in, sent), (length_out, asked)):
                if value is None:
                    given.mistakes.append(f"{given.tool}.{flag} is missing: give it, or a dataset")
            return {"input_tokens": sent, "output_tokens": asked}
        if length_in in given:
            given.wrong(length_in, "cannot stand beside a dataset: its prompts have their own lengths")
        self.notes[_FITTING] = None
        place = _dataset(name)
        if place is None:
            given.wrong("dataset", "has no counterpart; there are sharegpt, ultrachat and files (.json)")
            return {}
        return {**place, "min_tokens": 4, "max_tokens": LONGEST, "output_tokens": asked}

    # -- throughput ------------------------------------------------------------------------------------------------

    def _throughput(self, model: str, _sparsity: Any, length: int | None, args: Mapping[str, Any]) -> ConfigCase:
        given = self._given(args, _THROUGHPUT)
        if (given.text("backend") or "vllm") != "vllm":
            given.wrong("backend", "has no counterpart but vllm")
        if given.on("use-beam-search"):
            given.wrong("use-beam-search", "has no counterpart in an experiment: inferometer offline has it")
        every, size = given.on("use-all-available-gpus_"), given.count("tensor-parallel-size_")
        if every == (size is not None):
            text = "one of tensor-parallel-size_ and use-all-available-gpus_ must be given, not both"
            given.mistakes.append(f"{given.tool}: {text}")
        engine = {ours: given.values.get(theirs) for theirs, ours in _ENGINE.items()}
        engine["max_model_len"] = engine["max_model_len"] or length
        engine["tensor_parallel_size"] = self._all_gpus("use-all-available-gpus_") if every else size
        engine["enforce_eager"] = True if given.on("enforce-eager") else None
        said = {
            "engine": "vllm",
            "model": model,
            "args": engine,
            "workload": self._workload(given, "input-len", "output-len"),
            "num_prompts": given.count("num-prompts", 1000),
            "warmup": given.count("num-warmup-prompts", 1000),
            "n": given.count("n", 1),
            "seed": given.count("seed") or None,
        }
        self.mistakes += given.mistakes
        return self._case(model, args, "throughput", said, len=length)


def _dataset(name: str) -> dict[str, Any] | None:
    """Theirs by name; a file is taken as conversations."""
    if name == "sharegpt":
        return {"type": "sharegpt", "url": SHAREGPT}
    if name == "ultrachat":
        return dict(ULTRACHAT)
    return {"type": "sharegpt", "path": name} if name.endswith(".json") else None


# -- nm vllm ---------------------------------------------------------------------------------------------------------

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
