"""The benchmark of Ray Serve's prefix-aware router (derived from sglang's bench_serving): its flags as a plan."""

import math
from collections.abc import Sequence
from typing import Any

from inferometer.plan.draft import ExperimentDraft, PrefixDraft, StageDraft, TargetDraft, WorkloadDraft
from inferometer.plan.foreign.common import Foreign, without_missing
from inferometer.plan.foreign.shapes import ESTIMATED, Flag, Given, below, load_of, parse, tidy, url_of

TOOL = "Ray's benchmark.py"
_PORTS = {
    "sglang": 30000,
    "sglang-native": 30000,
    "sglang-oai": 30000,
    "vllm": 8000,
    "lmdeploy": 23333,
    "trt": 8000,
    "gserver": 9988,
    "truss": 8080,
}
_OPENAI_BACKENDS = {"vllm", "sglang", "sglang-oai", "lmdeploy", "truss"}  # backends with the OpenAI API
PREFIX_HEADER = "X-Prefix-ID"  # sent with every request whose prompt has a shared prefix
_SHORTEST, _LONGEST, _MESSAGES = 1500, 8192, 5  # limits of the prompts and conversations that it samples
_ONE, _MAYBE = Flag(), Flag("maybe")
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("backend", "base-url", "host", "port", "model", "tokenizer", "seed", "output-file"), _ONE),
    **dict.fromkeys(("dataset-name", "dataset-link", "dataset-path", "num-prompts", "max-conversations"), _ONE),
    **dict.fromkeys(("min-output-len", "max-output-len", "sharegpt-output-len", "prefix-length"), _ONE),
    **dict.fromkeys(("request-rate", "request-rate-range", "max-concurrency", "extra-request-body"), _ONE),
    **dict.fromkeys(("gen-num-groups", "gen-prompts-per-group", "gen-system-prompt-len", "gen-question-len"), _ONE),
    **dict.fromkeys(("gen-output-len", "random-input-len", "random-output-len", "random-range-ratio"), _ONE),
    **dict.fromkeys(
        ("with-warmup", "disable-ignore-eos", "disable-stream", "multi", "return-logprob", "apply-chat-template"),
        _MAYBE,
    ),
    "system": Flag("one", "has no counterpart"),
    "disable-tqdm": Flag("maybe", "--quiet hides the progress"),
    "output-details": Flag("maybe", "the records of every run are stored"),
    "flush-cache": Flag("maybe", "prompts are new in every run: no cache can hold them"),
}
_ALIASES = {
    "gen-num-prefixes": "gen-num-groups",
    "gen-suffixes-per-prefix": "gen-prompts-per-group",
    "gen-prefix-len": "gen-system-prompt-len",
    "gen-suffix-len": "gen-question-len",
}


def from_argv(argv: Sequence[str]) -> Foreign:
    """The plan of a command line after the script's name."""
    given = parse(TOOL, argv, FLAGS, _ALIASES)
    requests = _requests(given)
    warm = given.on("with-warmup")
    if warm:
        given.note("with-warmup", "the same requests are sent twice, the second pass is measured")
    if "output-file" in given:
        given.note("output-file", "the file has Inferometer's schema, not the script's")
    if "tokenizer" not in given:
        given.account.general.append(ESTIMATED)
    logprobs = {"logprobs": True} if given.on("return-logprob") else {}
    common = {
        "target": _target(given),
        "workload": _workload(given, requests),
        "sampling": {
            "ignore_eos": False if given.on("disable-ignore-eos") else None,
            "extra": {**logprobs, **given.fields("extra-request-body")},
        },
        "warmup": {"tape": True} if warm else None,
        "outputs": [{"format": "json", "path": given.text("output-file")}] if "output-file" in given else None,
        "seed": given.count("seed") or None,
    }
    rates, cap = _rates(given), given.count("max-concurrency")
    if not rates:
        load = load_of(given.number("request-rate", math.inf), cap, requests)
        return Foreign.of(given.account, without_missing({**common, "load": load, "stop": {"requests": requests}}))
    one_rate = {**common, "load": load_of(rates[0], cap, requests), "stop": {"requests": requests}}
    experiment: ExperimentDraft = {"plan": without_missing(one_rate), "axes": {"load.rate": rates}}
    if warm:  # each rate has a separate warm-up pass
        return Foreign.of(given.account, {}, experiment)
    load = {"type": "stages", "stages": _stages(rates, requests), "max_concurrency": cap}
    return Foreign.of(given.account, without_missing({**common, "load": load}), experiment)


def _requests(given: Given) -> int:
    """The number of requests; with generated prefixes all prompts, independent of --num-prompts."""
    requested = given.count("num-prompts", 1000) or 1000
    if given.text("dataset-name") != "generated-shared-prefix":
        return requested
    prefix = _prefix(given)
    made = (prefix["groups"] or 0) * (prefix["prompts"] or 0)
    if "num-prompts" in given and made != requested:
        given.note("num-prompts", f"all of the groups x prompts are sent, {made}, as the script does")
    return made


def _target(given: Given) -> TargetDraft:
    backend = given.text("backend") or "sglang"
    if backend not in _OPENAI_BACKENDS:
        given.wrong("backend", f"has no counterpart; there are {', '.join(sorted(_OPENAI_BACKENDS))}")
    port = given.count("port", _PORTS.get(backend, 8000))
    return {
        "url": url_of(given.text("base-url"), given.text("host") or "127.0.0.1", port),
        "model": given.text("model"),
        "api": "chat" if given.on("apply-chat-template") else None,
        "stream": False if given.on("disable-stream") else None,
    }


def _workload(given: Given, requests: int) -> WorkloadDraft:
    match given.text("dataset-name") or "sharegpt":
        case "sharegpt":
            workload = _sharegpt(given, requests)
        case "generated-shared-prefix":
            workload = _shared_prefix(given)
        case "random" | "random-ids":
            workload = _random(given)
        case _:
            given.wrong("dataset-name", "has no counterpart; there are sharegpt, generated-shared-prefix, random")
            return {}
    return {**workload, "tokenizer": given.text("tokenizer")}


def _outputs(given: Given, default: int | None = None) -> Any:
    """Output lengths, drawn per request so that answers do not end at the same time."""
    least, most = given.count("min-output-len"), given.count("max-output-len")
    if least is None and most is None:
        return given.count("sharegpt-output-len", given.count("gen-output-len", default))
    if least is None or most is None or least == most:
        return most if least is None or least == most else least
    return f"{least}-{most}"


def _sharegpt(given: Given, requests: int) -> WorkloadDraft:
    link = given.text("dataset-link") or given.text("dataset-path")
    if link is None:
        given.wrong("dataset-link", "is missing: the file with the conversations")
    given.account.general.append(
        "sharegpt: --max-conversations chooses conversations, each is cut into growing pieces, and of these prompts "
        "are drawn; the script itself cuts the list of pieces instead"
    )
    place: WorkloadDraft = {"url": link} if (link or "").startswith(("http://", "https://")) else {"path": link}
    return {
        "type": "sharegpt",
        **place,
        "turns": "pieces",
        "conversations": given.count("max-conversations"),
        "min_messages": _MESSAGES,
        "min_tokens": _SHORTEST,
        "max_tokens": _LONGEST,
        "limit": requests,
        "output_tokens": _outputs(given),
        "prefix_header": PREFIX_HEADER,
        "prefix_chars": given.count("prefix-length"),
    }


def _shared_prefix(given: Given) -> WorkloadDraft:
    return {"prefix": _prefix(given), "output_tokens": _outputs(given, 256)}


def _prefix(given: Given) -> PrefixDraft:
    return {
        "tokens": given.count("gen-system-prompt-len", 2048),
        "suffix_tokens": given.count("gen-question-len", 128),
        "groups": given.count("gen-num-groups", 64),
        "prompts": given.count("gen-prompts-per-group", 16),
        "header": PREFIX_HEADER,
    }


def _random(given: Given) -> WorkloadDraft:
    """Random lengths: ratio 0 means any length up to the given one, 1 exactly that length."""
    ratio = given.number("random-range-ratio", 0.0) or 0.0
    lengths: WorkloadDraft = {
        "input_tokens": below(given.count("random-input-len", 1024) or 1024, ratio),
        "output_tokens": below(given.count("random-output-len", 1024) or 1024, ratio),
    }
    if "min-output-len" in given or "max-output-len" in given:
        lengths["output_tokens"] = _outputs(given)
    return lengths


def _rates(given: Given) -> list[float]:
    """The rates of --multi, one run each; empty if there is one rate."""
    if not given.on("multi") and "request-rate-range" not in given:
        return []
    text = given.text("request-rate-range", "2,34,2") or ""
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) == 3 and 0 < numbers[2] < numbers[1]:
        first, stop, step = numbers
        numbers = [first + step * at for at in range(math.ceil((stop - first) / step))]
    if not numbers or not all(0 < rate < math.inf for rate in numbers):
        given.wrong("request-rate-range", "must be start,stop,step or a list of rates")
        return []
    return [tidy(rate) for rate in numbers]


def _stages(rates: Sequence[float], requests: int) -> list[StageDraft]:
    """One stage for each rate, as long as its requests take to be sent."""
    return [{"rate": rate, "duration": tidy(round(requests / rate, 3))} for rate in rates]
