"""The benchmark of Ray Serve's prefix-aware router (a relative of sglang's bench_serving): its flags as a plan."""

import math
from collections.abc import Sequence
from typing import Any

from inferometer.plan.foreign.arguments import Flag, Given, parse
from inferometer.plan.foreign.found import Foreign, without_missing
from inferometer.plan.foreign.shapes import ESTIMATED, load_of, tidy, url_of

TOOL = "conduct/benchmark.py"
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
_SPEAKS = {"vllm", "sglang", "sglang-oai", "lmdeploy", "truss"}  # the OpenAI API
_SHORTEST, _LONGEST, _MESSAGES = 1500, 8192, 5  # prompts and conversations that its sampling keeps
_ONE, _MAYBE = Flag(), Flag("maybe")
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("backend", "base-url", "host", "port", "model", "tokenizer", "seed", "output-file"), _ONE),
    **dict.fromkeys(("dataset-name", "dataset-link", "dataset-path", "num-prompts", "max-conversations"), _ONE),
    **dict.fromkeys(("min-output-len", "max-output-len", "sharegpt-output-len", "prefix-length"), _ONE),
    **dict.fromkeys(("request-rate", "request-rate-range", "max-concurrency", "extra-request-body"), _ONE),
    **dict.fromkeys(("gen-num-groups", "gen-prompts-per-group", "gen-system-prompt-len", "gen-question-len"), _ONE),
    **dict.fromkeys(("gen-output-len", "random-input-len", "random-output-len", "random-range-ratio"), _ONE),
    **dict.fromkeys(("with-warmup", "disable-ignore-eos", "disable-stream", "multi"), _MAYBE),
    "system": Flag("one", "which of its systems is meant has no counterpart"),
    "disable-tqdm": Flag("maybe", "--quiet hides the progress"),
    "apply-chat-template": Flag("maybe", "how prompts become tokens is the server's part; api chat asks for it"),
    "return-logprob": Flag("maybe", "sampling.extra.logprobs asks for them"),
    "output-details": Flag("maybe", "the records of every run are kept"),
    "flush-cache": Flag("maybe", "prompts are new in every run; nothing has to be flushed"),
}
_ALIASES = {
    "gen-num-prefixes": "gen-num-groups",
    "gen-suffixes-per-prefix": "gen-prompts-per-group",
    "gen-prefix-len": "gen-system-prompt-len",
    "gen-suffix-len": "gen-question-len",
    "gsp-num-groups": "gen-num-groups",
    "gsp-prompts-per-group": "gen-prompts-per-group",
    "gsp-system-prompt-len": "gen-system-prompt-len",
    "gsp-question-len": "gen-question-len",
    "gsp-output-len": "gen-output-len",
}


def from_words(words: Sequence[str]) -> Foreign:
    """The plan that a command line after the script's name means."""
    given, notes = parse(TOOL, words, FLAGS, _ALIASES)
    requests = _requests(given, notes)
    warm = given.on("with-warmup")
    if warm:
        notes.append("--with-warmup: the same requests are sent twice, the second time counts")
    if "output-file" in given:
        notes.append("--output-file: the file has our own schema, not the script's")
    if "tokenizer" not in given:
        notes.append(ESTIMATED)
    plan = {
        "target": _target(given),
        "workload": _workload(given, requests, notes),
        **_when(given, requests),
        "sampling": {
            "ignore_eos": False if given.on("disable-ignore-eos") else None,
            "extra": given.fields("extra-request-body"),
        },
        "warmup": {"tape": True} if warm else None,
        "outputs": [{"format": "json", "path": given.text("output-file")}] if "output-file" in given else None,
        "seed": given.count("seed") or None,
    }
    given.settle()
    return Foreign(TOOL, without_missing(plan), notes)


def _requests(given: Given, notes: list[str]) -> int:
    """Of generated prefixes every prompt is sent, whatever --num-prompts says."""
    asked = given.count("num-prompts", 1000) or 1000
    if given.text("dataset-name") != "generated-shared-prefix":
        return asked
    prefix = _shared_prefix(given)["prefix"]
    made = int(prefix["groups"] * prefix["prompts"])
    if "num-prompts" in given and made != asked:
        notes.append(f"--num-prompts: all of the groups x prompts are sent, {made}, as the script does")
    return made


def _target(given: Given) -> dict[str, Any]:
    backend = given.text("backend") or "sglang"
    if backend not in _SPEAKS:
        given.wrong("backend", f"has no counterpart; there are {', '.join(sorted(_SPEAKS))}")
    port = given.count("port", _PORTS.get(backend, 8000))
    return {
        "url": url_of(given.text("base-url"), given.text("host") or "127.0.0.1", port),
        "model": given.text("model"),
        "stream": False if given.on("disable-stream") else None,
    }


def _workload(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    match given.text("dataset-name") or "sharegpt":
        case "sharegpt":
            workload = _sharegpt(given, requests, notes)
        case "generated-shared-prefix":
            workload = _shared_prefix(given)
        case "random" | "random-ids":
            workload = _random(given)
        case _:
            given.wrong("dataset-name", "has no counterpart; there are sharegpt, generated-shared-prefix, random")
            return {}
    return {**workload, "tokenizer": given.text("tokenizer")}


def _outputs(given: Given, default: int | None = None) -> Any:
    """Drawn anew for each request, so that they do not end together."""
    least, most = given.count("min-output-len"), given.count("max-output-len")
    if least is None and most is None:
        return given.count("sharegpt-output-len", given.count("gen-output-len", default))
    if least is None or most is None or least == most:
        return most if least is None or least == most else least
    return f"{least}-{most}"


def _sharegpt(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    link = given.text("dataset-link") or given.text("dataset-path")
    if link is None:
        given.wrong("dataset-link", "is missing: where the conversations are")
    notes.append(
        "sharegpt: --max-conversations chooses conversations, each is cut into growing pieces, and of these prompts "
        "are drawn; the script itself cuts the list of pieces instead"
    )
    return {
        "type": "sharegpt",
        "url" if (link or "").startswith(("http://", "https://")) else "path": link,
        "turns": "pieces",
        "conversations": given.count("max-conversations"),
        "min_messages": _MESSAGES,
        "min_tokens": _SHORTEST,
        "max_tokens": _LONGEST,
        "limit": requests,
        "output_tokens": _outputs(given),
        "prefix_header": "X-Prefix-ID",
        "prefix_chars": given.count("prefix-length"),
    }


def _shared_prefix(given: Given) -> dict[str, Any]:
    prefix = {
        "tokens": given.count("gen-system-prompt-len", 2048),
        "suffix_tokens": given.count("gen-question-len", 128),
        "groups": given.count("gen-num-groups", 64),
        "prompts": given.count("gen-prompts-per-group", 16),
    }
    return {"prefix": prefix, "output_tokens": _outputs(given, 256)}


def _random(given: Given) -> dict[str, Any]:
    """In sglang's words a ratio of 0 means any length up to the one given, and 1 that length."""
    ratio = given.number("random-range-ratio", 0.0) or 0.0
    found = {}
    for ours, theirs in (("input_tokens", "random-input-len"), ("output_tokens", "random-output-len")):
        most = given.count(theirs, 1024) or 1024
        least = max(1, math.floor(most * ratio))
        found[ours] = most if least == most else f"{least}-{most}"
    if "min-output-len" in given or "max-output-len" in given:
        found["output_tokens"] = _outputs(given)
    return found


def _when(given: Given, requests: int) -> dict[str, Any]:
    cap = given.count("max-concurrency")
    if given.on("multi") or "request-rate-range" in given:
        return {"load": {"type": "stages", "stages": _stages(given, requests), "max_concurrency": cap}}
    load = load_of(given.number("request-rate", math.inf), cap, requests)
    return {"load": load, "stop": {"requests": requests}}


def _stages(given: Given, requests: int) -> list[dict[str, Any]]:
    """One stage for each rate, as long as its requests take to be sent."""
    text = given.text("request-rate-range", "2,34,2") or ""
    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        given.wrong("request-rate-range", "must be start,stop,step or a list of rates")
        return []
    if len(numbers) == 3 and numbers[2] < numbers[1]:
        first, stop, step = numbers
        numbers = [first + step * at for at in range(math.ceil((stop - first) / step))]
    return [{"rate": tidy(rate), "duration": tidy(round(requests / rate, 3))} for rate in numbers if rate > 0]
