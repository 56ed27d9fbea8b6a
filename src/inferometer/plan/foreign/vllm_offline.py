"""`vllm bench latency`, `throughput` and `startup`, and vLLM's nightly suites of them (`latency-tests.json`,
`throughput-tests.json`, `serving-tests.json`): engines in this process and started servers, as experiments."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.draft import CaseDraft, PlanDraft
from inferometer.plan.foreign import vllm_bench, vllm_datasets
from inferometer.plan.foreign.common import Account, Foreign, NoPlanError, Settings, without_missing
from inferometer.plan.foreign.shapes import Given, with_parameters

LATENCY, THROUGHPUT, STARTUP = "vllm bench latency", "vllm bench throughput", "vllm bench startup"
SUITE = "vLLM's nightly suite"
_FILES = "runs are stored; inferometer export writes files"
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


# -- command lines -------------------------------------------------------------------------------------------------


def latency(argv: Sequence[str]) -> Foreign:
    """Batches of one size through an engine in this process."""
    given = _flags(LATENCY, argv)
    case = latency_of(given)
    return Foreign.of(given.account, {}, {"latency": case})


def throughput(argv: Sequence[str]) -> Foreign:
    """A whole workload through an engine in this process."""
    given = _flags(THROUGHPUT, argv)
    case = throughput_of(given)
    return Foreign.of(given.account, {}, {"throughput": case})


def startup(argv: Sequence[str]) -> Foreign:
    """Refused: `inferometer startup` measures start-ups."""
    given = _flags(STARTUP, argv)
    model = given.text("model") or "MODEL"
    own = ("model", "num-iters-cold", "num-iters-warm", "num-iters-warmup", "output-json")
    args = [f"{name.replace('-', '_')}={value}" for name, value in given.values.items() if name not in own]
    words = ["inferometer", "startup", "--server", "vllm", "--model", model]
    hint = shlex.join([*words, *(word for arg in args for word in ("--args", arg))])
    raise NoPlanError(f"{STARTUP}: sends no load: it measures how long the engine takes to start", hint)


def startup_sweep(_argv: Sequence[str]) -> Foreign:
    text = "vllm bench sweep startup: sends no load: it measures how long engines take to start"
    raise NoPlanError(
        text, "inferometer startup --server vllm --model MODEL --args KEY=VALUE, once for each combination"
    )


def processor(_argv: Sequence[str]) -> Foreign:
    raise PlanError(
        "vllm bench mm-processor: has no counterpart: it times vLLM's image processor, not a server or an engine"
    )


def _flags(tool: str, argv: Sequence[str]) -> Given:
    """Flags by name: those of the benchmark, and any of the engine."""
    values: dict[str, Any] = {}
    account = Account(tool)
    at = 0
    while at < len(argv):
        name, sign, inline = argv[at].partition("=")
        if not name.startswith("-"):
            account.mistakes.append(f"{tool}: expected a flag, got {argv[at]}")
            at += 1
            continue
        follows = at + 1 < len(argv) and (not argv[at + 1].startswith("-") or _NUMBER.fullmatch(argv[at + 1]))
        values[_key(name)] = inline if sign else argv[at + 1] if follows else True
        at += 1 + bool(follows and not sign)
    return Given(tool, values, account=account)


def _key(name: str) -> str:
    return {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size"}.get(
        name, name.lstrip("-").replace("_", "-")
    )


def latency_of(given: Given) -> dict[str, Any]:
    """A case of an experiment; flags that do not belong to the benchmark belong to the engine."""
    if given.on("use-beam-search"):
        given.wrong("use-beam-search", "has no counterpart in an experiment: inferometer offline has it")
    if given.on("profile"):
        given.wrong("profile", "has no counterpart in an experiment: inferometer offline has it")
    given.no_effect("disable-detokenize", "the engine's default is used") if given.on("disable-detokenize") else None
    given.no_effect("output-json", _FILES)
    case = {
        "engine": "vllm",
        "model": given.text("model"),
        "batch_size": given.count("batch-size", 8),
        "input_len": given.count("input-len", 32),
        "output_len": given.count("output-len", 128),
        "n": given.count("n", 1),
        "iters": given.count("num-iters", 30),
        "warmup": given.count("num-iters-warmup", 10),
        "seed": given.count("seed") or None,
        "args": _engine(given),
    }
    whole: dict[str, Any] = without_missing(case)
    return whole


_OF_THROUGHPUT = {
    *("backend", "dataset-name", "dataset", "dataset-path", "input-len", "output-len", "n", "num-prompts"),
    *("num-warmups", "output-json", "async-engine", "prequeue-requests", "disable-detokenize", "lora-path"),
    *("lora-assignment", "prefix-len", "profile", "hf-max-batch-size", "hf-enable-torch-compile", "model", "seed"),
    *(name for name in vllm_bench.FLAGS if name.startswith(("random-", "hf-", "sonnet-", "prefix-repetition-"))),
    *("custom-output-len", "no-oversample", "enable-multimodal-chat", "asr-min-audio-len-sec", "asr-max-audio-len-sec"),
    "tokenizer",
}
_OF_LATENCY = {
    *("model", "batch-size", "input-len", "output-len", "n", "num-iters", "num-iters-warmup", "seed", "profile"),
    *("use-beam-search", "disable-detokenize", "output-json"),
}


def _engine(given: Given, own: set[str] = _OF_LATENCY) -> dict[str, Any]:
    """Every flag that is not the benchmark's is an argument of the engine."""
    made: dict[str, Any] = {}
    for name in given:
        if name in own:
            continue
        value = given.value(name)
        off = name.startswith("no-") and value is True
        key = (name.removeprefix("no-") if off else name).replace("-", "_")
        made[key] = False if off else _typed(value)
    made.pop("trust_remote_code", None) if made.get("trust_remote_code") is False else None
    return made


def _typed(value: Any) -> Any:
    """`""` is a flag without a value; a number is a number."""
    if value == "":
        return True
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value) if value.lstrip("-").isdigit() else float(value)
    return value


def throughput_of(given: Given) -> dict[str, Any]:
    """A case of an experiment."""
    backend = given.text("backend") or "vllm"
    if backend not in ("vllm", "vllm-chat"):
        given.wrong("backend", "has no counterpart but vllm and vllm-chat")
    for name in ("profile", "hf-max-batch-size", "hf-enable-torch-compile", "lora-assignment"):
        if name in given:
            given.wrong(name, "has no counterpart here: it profiles or uses another engine")
    for name in ("async-engine", "prequeue-requests", "disable-detokenize", "output-json"):
        given.no_effect(
            name, _FILES if name == "output-json" else "the engine is driven in this process, all prompts at once"
        )
    chat = backend == "vllm-chat"
    data = _throughput_data(given, "chat" if chat else "completions")
    if not chat and (data.workload.get("images") or data.workload.get("columns", {}).keys() & {"image", "audio"}):
        given.wrong("backend", "must be vllm-chat: only messages hold images or sound")
    case = {
        "engine": "vllm",
        "model": given.text("model"),
        "workload": data.workload,
        "num_prompts": data.requests or vllm_datasets.REQUESTS,
        "warmup": given.count("num-warmups", 0) or 0,
        "n": given.count("n", 1),
        "seed": given.count("seed") or None,
        "chat": chat or None,
        "adapter": given.text("lora-path"),
        "args": _engine(given, _OF_THROUGHPUT),
    }
    whole: dict[str, Any] = without_missing(case)
    return {**whole, "warmup": case["warmup"]}


def _throughput_data(given: Given, api: str) -> vllm_datasets.VllmData:
    """The workload. Without a dataset name, a file is ShareGPT's, and lengths mean random prompts, as in vLLM."""
    if "dataset" in given and "dataset-path" not in given:
        given.values["dataset-path"] = given.values["dataset"]
        given.value("dataset")
        given.account.read(given.source("dataset-path"))
    if (given.count("prefix-len") or 0) > 0:
        given.values["random-prefix-len"] = given.values["prefix-len"]
    if "dataset-name" not in given and "dataset-path" not in given and "input-len" not in given:
        given.wrong("dataset-name", "is missing: name a dataset, or give --input-len and --output-len")
    return vllm_datasets.workload_of(given, api)


# -- suites --------------------------------------------------------------------------------------------------------


def is_suite(value: Any) -> bool:
    """A list of tests, or tests with defaults."""
    tests = value.get("tests") if isinstance(value, Mapping) else value
    return (
        isinstance(tests, list)
        and bool(tests)
        and all(isinstance(test, Mapping) and "test_name" in test for test in tests)
    )


def from_suite(value: Any, where: str) -> Foreign:
    """Every test: an engine's latency or throughput, or a server at every rate with every concurrency."""
    whole = Settings({"tests": value} if isinstance(value, list) else value, Account(SUITE))
    defaults = whole.section("defaults")
    cases: list[CaseDraft] = []
    tests = whole.sections("tests")
    for test in tests:
        cases += _tests(test, defaults, where)
    for part in ("server_parameters", "client_parameters", "server_environment_variables"):
        for name in defaults.section(part):
            if all(name in (test.values.get(part) or {}) for test in tests):
                defaults.section(part).no_effect(name, "every test has its own")
    whole.account.settle()
    if not cases:
        raise PlanError(f"{where}: has no tests")
    return Foreign.of(whole.account, {}, {"cases": with_parameters(cases)})


def _tests(test: Settings, defaults: Settings, where: str) -> Iterator[CaseDraft]:
    name = test.text("test_name") or "test"
    if "server_parameters" in test.values or "client_parameters" in test.values:
        yield from _serving(name, test, defaults)
        return
    if "common_parameters" in test.values:
        several = "dataset_name" in test.section("common_parameters")
        yield from _of_engines(name, test) if several else _genai_perf(name, test)
        return
    flags = _parameters(test, "parameters")
    environ = test.value("environment_variables", {})
    kind = "throughput" if name.startswith("throughput") else "latency"
    case = throughput_of(flags) if kind == "throughput" else latency_of(flags)
    if environ:
        case["env"] = {key: str(value) for key, value in environ.items()}
    yield {"name": name, "throughput": case} if kind == "throughput" else {"name": name, "latency": case}


def _parameters(test: Settings, name: str) -> Given:
    """A section of flags by name: underscores or dashes, an empty text for a flag without a value."""
    section = test.section(name)
    values = {key.replace("_", "-"): True if value == "" else value for key, value in section.values.items()}
    for key in section:
        section.value(key)
    return Given(test.tool, values, f"{section.prefix}", test.account)


def _serving(name: str, test: Settings, defaults: Settings) -> Iterator[CaseDraft]:
    """The test's parameters over the defaults, as a server and its clients."""
    server, client = (
        {**defaults.value(key, {}), **test.value(key, {})} for key in ("server_parameters", "client_parameters")
    )
    environ = {**defaults.value("server_environment_variables", {}), **test.value("server_environment_variables", {})}
    rates = test.value("qps_list") or defaults.value("qps_list") or ["inf"]
    levels = test.value("max_concurrency_list") or defaults.value("max_concurrency_list") or [None]
    for at_once in levels:
        for rate in rates:
            flags = {key.replace("_", "-"): True if value == "" else value for key, value in client.items()}
            flags |= {"request-rate": str(rate)} | ({"max-concurrency": at_once} if at_once is not None else {})
            one = vllm_bench.from_values(flags, Account(f"{SUITE}: {name}"), "client_parameters.")
            test.account.general += [note for note in one.notes if note not in test.account.general]
            _carry(one, (test, defaults))
            plan = one.plan
            plan.pop("outputs", None)
            target = plan.get("target", {})
            target.pop("url", None)
            label = " ".join(
                part for part in (name, f"qps={rate}", f"concurrency={at_once}" if at_once else "") if part
            )
            yield {"name": label, "plan": {**plan, "target": target, "server": _server(server, environ)}}


def _carry(one: Foreign, sections: Sequence[Settings]) -> None:
    """Carry over notes of flags without effect from a client to the suite."""
    for entry in one.entries:
        if entry.outcome != "no effect" or not entry.note:
            continue
        name = entry.source.removeprefix("client_parameters.").replace("-", "_")
        for section in sections:
            section.section("client_parameters").no_effect(name, entry.note)


_CLIENT = ("model", "dataset_name", "dataset_path", "num_prompts", "sonnet_input_len", "sonnet_output_len")


def _of_engines(name: str, test: Settings) -> Iterator[CaseDraft]:
    """The suite that compares engines: `vllm bench serve` at every rate with the installed engine, here vLLM."""
    common = test.section("common_parameters")
    values = {key: common.value(key) for key in (*_CLIENT, "sonnet_prefix_len") if key in common}
    server = _common_server(test, common, str(values.get("model")))
    extra = test.value("vllm_client_parameters", {})
    for rate in test.value("qps_list", ["inf"]):
        flags = {key.replace("_", "-"): True if value == "" else value for key, value in {**values, **extra}.items()}
        flags |= {"backend": "vllm", "ignore-eos": True, "request-rate": str(rate)}
        one = vllm_bench.from_values(flags, Account(f"{SUITE}: {name}"), "common_parameters.")
        test.account.general += [note for note in one.notes if note not in test.account.general]
        target = one.plan.get("target", {})
        target.pop("url", None)
        yield {"name": f"{name} qps={rate}", "plan": {**one.plan, "target": target, "server": server}}


def _common_server(test: Settings, common: Settings, model: str) -> dict[str, Any]:
    """vLLM with its settings; the other engines of a suite are not started."""
    common.no_effect("reuse_server", "a server is started again only if its settings change")
    common.no_effect("port", "a free port is used")
    for key in test:
        if key.endswith(("_server_parameters", "_client_parameters")) and not key.startswith("vllm_"):
            test.account.note(test.source(key), "only vLLM is started")
    parameters = {"model": model, "tensor_parallel_size": common.count("tp")}
    return _server(parameters | test.value("vllm_server_parameters", {}), {})


def _genai_perf(name: str, test: Settings) -> Iterator[CaseDraft]:
    """genai-perf with its defaults and vLLM at every rate; the other engines of a suite are not started."""
    common = test.section("common_parameters")
    model, prompts = common.text("model"), common.count("num_prompts", 100)
    inputs = test.section("genai_perf_input_parameters")
    for key in inputs:
        inputs.wrong(key, "has no counterpart: only genai-perf's defaults")
    server = _common_server(test, common, str(model))
    for rate in test.value("qps_list", ["inf"]):
        plan: PlanDraft = {
            "target": {"model": model, "api": "chat"},
            "workload": {"input_tokens": 550, "output_tokens": None},
            "load": {"type": "poisson", "rate": rate},
            "stop": {"requests": prompts},
            "server": server,
        }
        yield {"name": f"{name} qps={rate}", "plan": plan}


def _server(parameters: Mapping[str, Any], environ: Mapping[str, Any]) -> dict[str, Any]:
    args = {
        key.replace("_", "-"): True if value == "" else value for key, value in parameters.items() if key != "model"
    }
    env = {key: str(value) for key, value in environ.items()}
    made: dict[str, Any] = without_missing({"type": "vllm", "model": parameters.get("model"), "args": args, "env": env})
    return made
