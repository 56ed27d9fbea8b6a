"""nm-vllm's benchmark configs (`neuralmagic/benchmarks/configs/*.json`), text files that list them, and the inputs of
its workflow: each combination of arguments a plan or an offline throughput."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path, PurePath
from typing import Any, cast

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.errors import PlanError
from inferometer.plan.draft import CaseDraft, ExperimentDraft, PlanDraft, ThroughputDraft, WorkloadDraft
from inferometer.plan.foreign.common import Account, Foreign, NeedsFileError, Settings, without_missing
from inferometer.plan.foreign.shapes import (
    ESTIMATED,
    FIRST_PAIR,
    SHAREGPT,
    Flag,
    Given,
    load_of,
    parse,
    with_parameters,
)
from inferometer.plan.reading import file_text, read_mapping
from inferometer.plan.text import as_written

# -- nm vllm config --------------------------------------------------------------------------------------------------

SCRIPTS = ("benchmark_serving", "benchmark_throughput")
LONGEST = 2048  # tokens of a prompt and its answer in their datasets
ULTRACHAT: WorkloadDraft = {
    "type": "huggingface",
    "repo": "HuggingFaceH4/ultrachat_200k",
    "split": "train_sft",
    "turns": "pieces",
}
_KEYS = {"description", "models", "max_model_lens", "sparsity", "script_name", "script_args"}
_GPUS = ("tensor_parallel_size", "use_all_available_gpus")
_PACED = ("nr-qps-pair_", "num-prompts_", "request-rate_")
_WARM = (
    "nm-vllm warms up its server with 1000 random prompts of 128 tokens and 1 output token; "
    "here with 1000 requests of the load"
)
_WARM_REQUESTS = 1000
_SERVER = "nm-vllm uses vLLM's /generate endpoint, Inferometer the completions API of the same engine"
_FITTING = "datasets: nm-vllm's sampling of 2N rows with seed 42 is not used"
_UNUSED: dict[str, str] = {
    **dict.fromkeys(("log-model-io",), "use save.prompts and save.answers to store texts"),
    **dict.fromkeys(("disable-tqdm",), "progress is shown where there is a terminal"),
    **dict.fromkeys(("version", "description"), "is stored in the run's environment"),
    **dict.fromkeys(("save-directory",), "runs are stored; inferometer export --as nm-vllm writes them"),
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
    """Facts of the machine: its number of GPUs, and the longest context of a model, None if unknown."""

    gpus: int | None = None
    context: Callable[[str], int | None] = field(default=lambda _model: None)


@dataclass(slots=True)
class ConfigCase:
    """One combination of arguments: its work, and the parameters that distinguish it."""

    model: str
    labels: dict[str, str]
    work: str  # "plan" or "throughput"
    settings: PlanDraft | ThroughputDraft
    about: str

    def draft(self, name: str) -> CaseDraft:
        if self.work == "plan":
            return {"name": name, "plan": cast(PlanDraft, self.settings)}
        return {"name": name, "throughput": cast(ThroughputDraft, self.settings)}


class Config:
    """One config; all its errors are raised together."""

    def __init__(self, mapping: JsonObject, where: str, known: Known, notes: dict[str, None]) -> None:
        self.mapping, self.where, self.known, self.notes = mapping, where, known, notes
        self.mistakes: list[str] = []
        self.script = str(mapping.get("script_name", ""))

    def cases(self) -> list[ConfigCase]:
        self._check()
        models, lengths = self._list("models"), self._list("max_model_lens")
        sparsities = [None if sparsity in ("", "None") else sparsity for sparsity in self._list("sparsity")] or [None]
        combinations = self._combinations()
        self._settle()
        serving = self.script == "benchmark_serving"
        make = self._serving if serving else self._throughput
        cases = [
            make(str(model), sparsity, length, args)
            for model in models
            for sparsity in (sparsities if serving else [None])
            for length in self._clipped(str(model), lengths)
            for args in combinations
        ]
        self._settle()
        return cases

    def _settle(self) -> None:
        if self.mistakes:
            raise PlanError(list(dict.fromkeys(self.mistakes)))

    def _wrong(self, text: str) -> None:
        self.mistakes.append(f"{self.where}: {text}")

    def _check(self) -> None:
        if self.script not in SCRIPTS:
            self._wrong(
                f"script_name must be {' or '.join(SCRIPTS)}, got {as_written(self.mapping.get('script_name'))}"
            )
        for name in sorted({*self.mapping} - _KEYS - {*_GPUS}):
            self._wrong(f"{name} is not one of its settings; there are {', '.join(sorted(_KEYS | {*_GPUS}))}")
        if all(name in self.mapping for name in _GPUS):
            self._wrong(f"{' and '.join(_GPUS)} exclude each other")
        if not self._list("models"):
            self._wrong("models is missing: name the models to serve")
        if self.script == "benchmark_serving" and "sparsity" not in self.mapping:
            self._wrong("sparsity is missing: [] means none")
        if self.script == "benchmark_throughput":
            for name in _GPUS:
                if name in self.mapping:
                    self._wrong(f"{name} belongs to serving; script_args have {name.replace('_', '-')}_")

    def _list(self, name: str) -> list[Any]:
        value = self.mapping.get(name, [])
        if not isinstance(value, list):
            self._wrong(f"{name} must be a list, got {as_written(value)}")
            return []
        return value

    def _combinations(self) -> list[dict[str, JsonValue]]:
        """All combinations of the lists, in the order of the keys; an empty list is a flag set in all of them."""
        args = self.mapping.get("script_args", {})
        if not isinstance(args, dict):
            self._wrong(f"script_args must be lists by name, got {as_written(args)}")
            return []
        for name, values in args.items():
            if not isinstance(values, list):
                self._wrong(f"script_args.{name} must be a list, got {as_written(values)}")
        lists = {name: values for name, values in args.items() if isinstance(values, list)}
        flags: dict[str, JsonValue] = {name: True for name, values in lists.items() if not values}
        valued = {name: values for name, values in lists.items() if values}
        return [flags | dict(zip(valued, values, strict=True)) for values in product(*valued.values())]

    def _clipped(self, model: str, lengths: Sequence[Any]) -> list[int | None]:
        """Cap lengths at the model's context; combinations that become equal run once."""
        room = self.known.context(model)
        clipped: dict[int | None, None] = {}
        for length in lengths:
            if isinstance(length, bool) or not isinstance(length, int) or length < 1:
                self._wrong(f"max_model_lens must be whole numbers, got {as_written(length)}")
                continue
            if room is not None and length > room:
                self.notes[f"max_model_lens: {length} is more than {model} supports, {room} is used"] = None
            clipped[length if room is None else min(length, room)] = None
        if not lengths:
            return [None]
        if room is None:
            text = "not capped, because the model's maximum context is unknown here; the engine refuses longer ones"
            self.notes[f"max_model_lens: {text}"] = None
        return list(clipped)

    def _given(self, args: JsonObject, known: Sequence[str]) -> Given:
        given = Given(f"{self.where}: script_args", args)
        for name in args:
            if name in _UNUSED:
                self.notes[f"script_args.{name}: {_UNUSED[name]}"] = None
                given.no_effect(name, _UNUSED[name])
            elif name not in known:
                given.account.mistakes.append(f"{self.where}: script_args.{name} is not an argument of {self.script}")
        return given

    def _read(self, given: Given) -> None:
        """Collect errors, and every argument that was not read."""
        try:
            given.settle()
        except PlanError as error:
            self.mistakes += error.mistakes

    def _case(
        self, model: str, args: JsonObject, work: str, settings: PlanDraft | ThroughputDraft, **extra: Any
    ) -> ConfigCase:
        labels = {"model": PurePath(model).name} | {name: str(value) for name, value in extra.items() if value}
        labels |= {name.rstrip("_"): str(value) for name, value in args.items() if value is not True}
        return ConfigCase(model, labels, work, without_missing(settings), str(self.mapping.get("description") or ""))

    # -- serving ---------------------------------------------------------------------------------------------------

    def _serving(self, model: str, sparsity: Any, length: int | None, args: JsonObject) -> ConfigCase:
        given = self._given(args, (*_SERVING, *_SERVING_ALSO))
        for name in _SERVING_ALSO:
            if name in given:
                given.wrong(name, "is set by the driver, not by the config")
        if (given.text("backend") or "vllm") != "vllm":
            given.wrong("backend", "has no counterpart but vllm")
        requests, rate = self._pace(given)
        beams = given.on("use-beam-search")
        best_of = given.count("best-of", 1)
        for note in (_SERVER, _WARM, ESTIMATED):
            self.notes[note] = None
        flags = {"max-model-len": length, "tensor-parallel-size": self._gpus(), "sparsity": sparsity}
        plan: PlanDraft = {
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
            "warmup": _WARM_REQUESTS,
            "seed": given.count("seed") or None,
        }
        self._read(given)
        return self._case(model, args, "plan", plan, sparsity=sparsity, len=length)

    def _pace(self, given: Given) -> tuple[int, float]:
        """Requests and rate: either `nr-qps-pair_` "150,0.5", or num-prompts_ and request-rate_."""
        pair = given.text("nr-qps-pair_")
        if pair is None:
            missing = [name for name in _PACED[1:] if name not in given]
            if missing:
                text = f"{' and '.join(missing)} missing: give nr-qps-pair_, or num-prompts_ and request-rate_"
                given.account.mistakes.append(f"{given.tool}: {text}")
            return given.count("num-prompts_", 1) or 1, given.number("request-rate_", math.inf) or math.inf
        if "num-prompts_" in given or "request-rate_" in given:
            given.wrong("nr-qps-pair_", "cannot be combined with num-prompts_ and request-rate_")
        parts = Given(given.tool, dict(zip(("n", "qps"), pair.split(","), strict=False)))
        n, qps = parts.count("n"), parts.number("qps")
        if len(pair.split(",")) != 2 or not n or n < 1 or not qps or qps <= 0:
            given.wrong("nr-qps-pair_", 'must be "requests,rate" such as "150,0.5" or "100,inf"')
            return 1, math.inf
        return n, qps

    def _gpus(self) -> int | None:
        """The number of GPUs; without a key one, the server's default."""
        if "use_all_available_gpus" in self.mapping:
            return self._all_gpus("use_all_available_gpus")
        size = self.mapping.get("tensor_parallel_size")
        if size is None:
            return None
        given = Given(self.where, {"tensor_parallel_size": size})
        count = given.count("tensor_parallel_size")
        if count is None or count < 1:
            self._wrong(f"tensor_parallel_size must be a whole number, got {as_written(size)}")
        return count

    def _all_gpus(self, name: str) -> int | None:
        if self.known.gpus is None:
            self.notes[f"{name}: no GPU was found here, so tensor parallelism is left to the engine"] = None
        return self.known.gpus

    def _workload(self, given: Given, length_in: str, length_out: str) -> WorkloadDraft:
        name = given.text("dataset")
        requested = given.count(length_out)
        if name is None:
            sent = given.count(length_in)
            for flag, value in ((length_in, sent), (length_out, requested)):
                if value is None:
                    given.account.mistakes.append(f"{given.tool}.{flag} is missing: give it, or a dataset")
            return {"input_tokens": sent, "output_tokens": requested}
        if length_in in given:
            given.wrong(length_in, "cannot be combined with a dataset: its prompts have their own lengths")
        self.notes[_FITTING] = None
        place = _dataset(name)
        if place is None:
            given.wrong("dataset", "has no counterpart; there are sharegpt, ultrachat and files (.json)")
            return {}
        least = 4 if requested is None else None  # answers with a given length may have any length
        bounds: WorkloadDraft = {"min_tokens": 4, "min_output_tokens": least, "max_total_tokens": LONGEST}
        return {**place, **bounds, "output_tokens": requested}

    # -- throughput ------------------------------------------------------------------------------------------------

    def _throughput(self, model: str, _sparsity: Any, length: int | None, args: JsonObject) -> ConfigCase:
        given = self._given(args, _THROUGHPUT)
        if (given.text("backend") or "vllm") != "vllm":
            given.wrong("backend", "has no counterpart but vllm")
        if given.on("use-beam-search"):
            given.wrong("use-beam-search", "has no counterpart in an experiment: inferometer offline has it")
        every, size = given.on("use-all-available-gpus_"), given.count("tensor-parallel-size_")
        if every == (size is not None):
            text = "one of tensor-parallel-size_ and use-all-available-gpus_ must be given, not both"
            given.account.mistakes.append(f"{given.tool}: {text}")
        engine = {ours: given.value(theirs) for theirs, ours in _ENGINE.items()}
        engine["max_model_len"] = engine["max_model_len"] or length
        engine["tensor_parallel_size"] = self._all_gpus("use-all-available-gpus_") if every else size
        engine["enforce_eager"] = True if given.on("enforce-eager") else None
        settings: ThroughputDraft = {
            "engine": "vllm",
            "model": model,
            "args": engine,
            "workload": self._workload(given, "input-len", "output-len"),
            "num_prompts": given.count("num-prompts", 1000),
            "warmup": given.count("num-warmup-prompts", 1000),
            "n": given.count("n", 1),
            "seed": given.count("seed") or None,
        }
        self._read(given)
        return self._case(model, args, "throughput", settings, len=length)


def _dataset(name: str) -> WorkloadDraft | None:
    """A dataset by nm-vllm's name; a file is read as conversations."""
    if name == "sharegpt":
        return {"type": "table", "url": SHAREGPT, "columns": FIRST_PAIR}
    if name == "ultrachat":
        return {**ULTRACHAT}
    return {"type": "table", "path": name, "columns": FIRST_PAIR} if name.endswith(".json") else None


# -- nm vllm ---------------------------------------------------------------------------------------------------------

TOOL = "nm-vllm"
LIST_FILE = "benchmark_config_list_file"
_BUILDING = (  # inputs of its workflows
    *("label", "build_label", "benchmark_labels", "build_timeout", "gitref", "python", "whl", "Gi_per_thread"),
    *(
        "nvcc_threads",
        "wf_category",
        "push_benchmark_results_to_gh_pages",
        "push_to_pypi",
        "test_configs",
        "test_timeout",
    ),
)


def is_it(mapping: JsonObject) -> bool:
    """A config, a file of them, or the inputs of the workflow."""
    configs = mapping.get("configs")
    several = isinstance(configs, list) and any(
        isinstance(config, dict) and "script_name" in config for config in configs
    )
    return several or ("script_name" in mapping and "script_args" in mapping) or LIST_FILE in mapping


DRIVER: dict[str, Flag] = {"input-config-file": Flag(), "output-directory": Flag("one", "runs are stored")}


def from_argv(argv: Sequence[str]) -> Foreign:
    """`run_benchmarks -i CONFIG -o FOLDER`, nm-vllm's driver."""
    given = parse(TOOL, argv, DRIVER, {"-i": "input-config-file", "-o": "output-directory"})
    name = given.text("input-config-file")
    if name is None:
        given.wrong("input-config-file", "is missing: -i CONFIG.json")
    given.settle()
    mapping, twice = read_mapping(str(name))
    if twice:
        raise PlanError(twice)
    return from_mapping(mapping, str(name)).noted(given.account.notes)


def is_list(text: str) -> bool:
    """Whether a text file lists configs, a path on each line."""
    lines = _lines(text)
    return bool(lines) and all(line.endswith(".json") for line in lines)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def from_list(text: str, where: str, known: Known | None = None) -> Foreign:
    """All cases of all configs that a text file lists; paths are relative to the working folder, as in nm-vllm, or to
    the list."""
    configs: list[tuple[str, dict[str, JsonValue]]] = []
    for line in _lines(text):
        path = next((place for place in _places(line, where) if place.is_file()), Path(line))
        mapping, twice = read_mapping(path)
        if twice:
            raise PlanError(twice)
        configs += _configs(mapping, str(path))
    return _experiment(configs, Path(where).stem, known or Known())


def _places(line: str, where: str) -> Iterator[Path]:
    """The folders for relative paths: nm-vllm's lists use the top of the repository, two above `.github/data`."""
    yield Path(line)
    for folder in [Path(where).parent, *Path(where).resolve().parents]:
        yield folder / line


def from_mapping(mapping: JsonObject, where: str, known: Known | None = None) -> Foreign:
    """All cases of a config, or of the list named in the workflow's inputs with its time limit."""
    if LIST_FILE not in mapping:
        return _experiment(_configs(mapping, where), Path(where).stem, known or Known())
    path = next(
        (place for place in _places(str(mapping[LIST_FILE]), where) if place.is_file()), Path(str(mapping[LIST_FILE]))
    )
    if not path.is_file():
        raise NeedsFileError(f"{where}: {LIST_FILE}: file not found, got {path}")
    foreign = from_list(file_text(path), str(path), known)
    return _in_time(foreign, mapping, where)


def _in_time(foreign: Foreign, inputs: JsonObject, where: str) -> Foreign:
    """`timeout` is minutes in total; the other inputs describe how their machine is set up."""
    settings = Settings(inputs, Account(where))
    settings.value(LIST_FILE)
    minutes = settings.number("timeout")
    for name in _BUILDING:
        settings.no_effect(name, "describes how nm-vllm is built, which is not done here")
    settings.settle()
    if minutes:
        foreign.experiment["budget"] = {"time": f"{minutes:g}min"}
    foreign.entries = [*settings.account.entries(), *foreign.entries]
    return foreign.noted(settings.account.notes)


def _configs(mapping: JsonObject, where: str) -> list[tuple[str, dict[str, JsonValue]]]:
    """The configs, each with its place in the file."""
    if "configs" in mapping and (others := [name for name in mapping if name != "configs"]):
        raise PlanError([f"{TOOL}: {name} is not understood next to configs" for name in others])
    configs = mapping.get("configs", [mapping])
    if not isinstance(configs, list) or not configs or not all(isinstance(config, dict) for config in configs):
        raise PlanError(f"{where}: configs must be a list of configs, got {as_written(configs)}")
    return [(f"{where}: configs[{at}]", config) for at, config in enumerate(configs)]


def _experiment(configs: Sequence[tuple[str, dict[str, JsonValue]]], name: str, known: Known) -> Foreign:
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
    written = [case.draft(label) for label, case in zip(_named(cases), cases, strict=True)]
    about = list(dict.fromkeys(case.about for case in cases if case.about))
    whole: ExperimentDraft = {
        "name": name,
        "about": "; ".join(about) or None,
        "cases": with_parameters(written),
        "server": {"restart": "each-case"} if any(case.work == "plan" for case in cases) else None,
    }
    account = Account(TOOL)
    account.general += notes
    for at, config in configs:
        Settings(config, account, f"{at.rpartition(': ')[2]}.")
    for entry in account.entries():  # unknown keys and arguments were mistakes above
        account.read(entry.source)
    for at, config in configs:
        place = at.rpartition(": ")[2]
        account.note(f"{place}.max_model_lens", "is capped at what the model supports, where that is known")
        if "use_all_available_gpus" in config and known.gpus is None:
            account.note(f"{place}.use_all_available_gpus", "no GPU was found here: the engine decides")
    return Foreign.of(account, {}, without_missing(whole))


def _named(cases: Sequence[ConfigCase]) -> list[str]:
    """Case names: the varied settings; if these are not unique, also the description, then a number."""
    varies = {
        name
        for name in dict.fromkeys(name for case in cases for name in case.labels)
        if len({case.labels.get(name) for case in cases}) > 1
    }
    short = [_label(case, varies) for case in cases]
    if len({*short}) < len(short):
        short = [f"{case.about} {text}".strip() for case, text in zip(cases, short, strict=True)]
    return [
        text if short.count(text) == 1 else f"{text} ({short[: at + 1].count(text)})" for at, text in enumerate(short)
    ]


def _label(case: ConfigCase, varies: set[str]) -> str:
    parts = [value if name == "model" else f"{name}={value}" for name, value in case.labels.items() if name in varies]
    return " ".join(parts) or PurePath(case.model).name
