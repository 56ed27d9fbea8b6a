"""Prometheus endpoints of engines: parses their text, and translates engines' names into the common ones
(`measure.telemetry`)."""

import http.client
import math
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from inferometer.measure.telemetry import GPU, PICKER, SERVER
from inferometer.record.record import Sample
from inferometer.record.sanitize import cut, harmless
from inferometer.vocabulary import duration_text
from inferometer.wire.origin import Origin, TooLarge, body_within, within

# -- names -----------------------------------------------------------------------------------------------------------


class Meaning(NamedTuple):
    """`part` of a histogram is `sum`, `count` or `bucket`. If names are ambiguous, `label` must have this value."""

    name: str
    engine: str
    part: str = ""
    label: tuple[str, str] | None = None

    @property
    def sample_name(self) -> str:
        return f"{self.name}_{self.part}" if self.part else self.name


_VLLM = {
    "running": ["num_requests_running"],
    "queued": ["num_requests_waiting"],
    "kv_usage": ["kv_cache_usage_perc", "gpu_cache_usage_perc"],
    "hit_rate": ["gpu_prefix_cache_hit_rate"],
    "requests_ok": ["request_success"],
    "requests_failed": ["corrupted_requests"],
    "prompt_tokens": ["prompt_tokens"],
    "cached_prompt_tokens": ["prompt_tokens_cached"],
    "generation_tokens": ["generation_tokens"],
    "prefix_queries": ["prefix_cache_queries", "gpu_prefix_cache_queries"],
    "prefix_hits": ["prefix_cache_hits", "gpu_prefix_cache_hits"],
    "preemptions": ["num_preemptions"],
    "drafts": ["spec_decode_num_drafts"],
    "draft_tokens": ["spec_decode_num_draft_tokens"],
    "accepted_tokens": ["spec_decode_num_accepted_tokens"],
    "ttft": ["time_to_first_token_seconds"],
    "itl": ["inter_token_latency_seconds", "time_per_output_token_seconds"],  # the older name had the same meaning
    "tpot": ["request_time_per_output_token_seconds"],
    "e2e": ["e2e_request_latency_seconds"],
    "queue_time": ["request_queue_time_seconds", "time_in_queue_requests"],
    "prefill_time": ["request_prefill_time_seconds"],
    "decode_time": ["request_decode_time_seconds"],
    "inference_time": ["request_inference_time_seconds"],
    "input_length": ["request_prompt_tokens"],
    "output_length": ["request_generation_tokens"],
    "step_tokens": ["iteration_tokens_total"],  # a histogram, in spite of its name
}
_SGLANG = {
    "running": ["num_running_reqs"],
    "queued": ["num_queue_reqs"],
    "kv_usage": ["token_usage"],
    "hit_rate": ["cache_hit_rate"],
    "requests_ok": ["num_requests"],
    "requests_failed": ["num_aborted_requests"],
    "prompt_tokens": ["prompt_tokens"],
    "cached_prompt_tokens": ["cached_tokens"],
    "generation_tokens": ["generation_tokens"],
    "preemptions": ["num_retracted_requests"],
    "acceptance_rate": ["spec_accept_rate"],
    "acceptance_length": ["spec_accept_length", "avg_request_spec_accept_length"],
    "ttft": ["time_to_first_token_seconds"],
    "itl": ["inter_token_latency_seconds", "time_per_output_token_seconds"],
    "e2e": ["e2e_request_latency_seconds"],
    "queue_time": ["queue_time_seconds"],
}
_TGI = {
    "running": ["batch_current_size"],
    "queued": ["queue_size"],
    "requests_ok": ["request_success"],
    "requests_failed": ["request_failure"],
    "tpot": ["request_mean_time_per_token_duration"],
    "e2e": ["request_duration"],
    "queue_time": ["request_queue_duration"],
    "inference_time": ["request_inference_duration"],
    "input_length": ["request_input_length"],
    "output_length": ["request_generated_tokens"],
}
_TRT = {
    "running": ["num_requests_running"],
    "queued": ["num_requests_waiting"],
    "kv_usage": ["kv_cache_utilization"],
    "hit_rate": ["kv_cache_hit_rate"],
    "requests_ok": ["request_success"],
    "requests_failed": ["request_error"],
    "prompt_tokens": ["prompt_tokens"],
    "cached_prompt_tokens": ["prompt_cached_tokens"],
    "generation_tokens": ["generation_tokens"],
    "ttft": ["time_to_first_token_seconds"],
    "tpot": ["time_per_output_token_seconds"],
    "e2e": ["e2e_request_latency_seconds"],
    "queue_time": ["request_queue_time_seconds"],
    "prefill_time": ["request_prefill_time_seconds"],
    "decode_time": ["request_decode_time_seconds"],
    "inference_time": ["request_inference_time_seconds"],
}
_LLAMACPP = {
    "running": ["requests_processing"],
    "queued": ["requests_deferred"],
    "kv_usage": ["kv_cache_usage_ratio"],
    "prompt_tokens": ["prompt_tokens"],
    "generation_tokens": ["tokens_predicted"],
    "prefill_seconds": ["prompt_seconds"],
    "decode_seconds": ["tokens_predicted_seconds"],
}
_OBJECTIVE = ("inference_objective", "inference_model")  # newer and older name for what a request belongs to
_PICKER = {  # llm-d's scheduler and the Gateway API's inference extension on which it is based
    "picker_pods": ["inference_pool_ready_pods"],
    "picker_running": ["inference_pool_average_running_requests"],
    "picker_queued": ["inference_pool_average_queue_size"],
    "picker_kv_usage": ["inference_pool_average_kv_cache_utilization"],
    "picker_requests": [f"{name}_request" for name in _OBJECTIVE],
    "picker_errors": [f"{name}_request_error" for name in _OBJECTIVE],
    "picker_disaggregated": ["llm_d_inference_scheduler_disagg_decision", "llm_d_inference_scheduler_pd_decision"],
    "picker_time": ["inference_extension_scheduler_e2e_duration_seconds"],
    "picker_plugin_time": ["inference_extension_plugin_duration_seconds"],
    "picker_request_time": [f"{name}_request_duration_seconds" for name in ("inference_extension", *_OBJECTIVE)],
    "picker_ttft": ["inference_extension_request_ttft_duration_seconds"],
    "picker_hit_ratio": ["inference_extension_prefix_indexer_hit_ratio"],
}
ON_RAY = "vLLM on Ray"
_ENGINES: dict[str, tuple[tuple[str, ...], dict[str, list[str]]]] = {  # engine: its prefixes, and its names
    "vLLM": (("vllm:", "vllm_"), _VLLM),
    ON_RAY: (("ray_vllm:", "ray_vllm_"), _VLLM),
    "SGLang": (("sglang:", "sglang_"), _SGLANG),
    "TGI": (("tgi_",), _TGI),
    "TensorRT-LLM": (("trtllm_", "trtllm:"), _TRT),
    "llama.cpp": (("llamacpp:", "llamacpp_"), _LLAMACPP),
    PICKER: (("",), _PICKER),
}
_TRITON = {  # one name each, distinguished by a label
    ("nv_trt_llm_request_metrics", "request_type", "scheduled"): "running",
    ("nv_trt_llm_request_metrics", "request_type", "waiting"): "queued",
    ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction"): "kv_usage",
}
# dcgm-exporter (NVIDIA/dcgm-exporter, etc/default-counters.csv): our name, and the factor to our unit. Framebuffer in
# MiB, energy in mJ, clocks in MHz; a field that a GPU does not have is left out, or one of DCGM's blanks.
_DCGM: dict[str, tuple[str, float]] = {
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_j", 1e-3),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_bytes", 2.0**20),
    "DCGM_FI_DEV_FB_TOTAL": ("memory_total_bytes", 2.0**20),
    "DCGM_FI_DEV_GPU_UTIL": ("utilization_share", 0.01),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_utilization_share", 0.01),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_hz", 1e6),
    "DCGM_FI_DEV_MEM_CLOCK": ("memory_clock_hz", 1e6),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", 1.0),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("throttle_reasons", 1.0),  # the bitmask of NVML
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("throttle_reasons", 1.0),  # its newer name
}
_DCGM_BLANK = 0x7FFFFFF0  # dcgm_structs.h, DCGM_INT32_BLANK; those of floats (2**47) and of 64 bits are larger
_DCGM_LARGE_BLANK = 2.0**47  # larger than any counter of mJ
STARTED = "process_start_time_seconds"  # from every engine that is a Python process
CONFIG = {"vllm:cache_config_info", "ray_vllm:cache_config_info", "ray_vllm_cache_config_info"}  # values in labels
CONFIG_LABELS = ("block_size", "num_gpu_blocks", "enable_prefix_caching", "cache_dtype", "gpu_memory_utilization")
PARTS_OF_A_SERVER = ("engine", "WorkerId", "ReplicaId", "replica", "dp_rank", "tp_rank", "moe_ep_rank", "pp_rank")
KEPT_LABELS = frozenset({*PARTS_OF_A_SERVER, "finished_reason", "le"})  # all others are summed


def _all() -> Iterator[tuple[str, Meaning]]:
    for engine, (prefixes, names) in _ENGINES.items():
        for prefix in prefixes:
            for name, aliases in names.items():
                for alias in aliases:
                    yield from _spelled(prefix + alias, name, engine)
    for (raw, label, value), name in _TRITON.items():
        yield raw, Meaning(name, "Triton TensorRT-LLM", "", (label, value))
    yield STARTED, Meaning("process_started", "")


def _spelled(raw: str, name: str, engine: str) -> Iterator[tuple[str, Meaning]]:
    """In the spelling of the exposition: counters with `_total` or, from older clients and Ray, without."""
    match SERVER[name].kind:
        case "histogram":
            yield from ((f"{raw}_{part}", Meaning(name, engine, part)) for part in ("sum", "count", "bucket"))
        case "counter":
            yield from ((raw + ending, Meaning(name, engine)) for ending in ("_total", ""))
        case "gauge":
            yield raw, Meaning(name, engine)


def _table() -> dict[str, list[Meaning]]:
    table: dict[str, list[Meaning]] = {}
    for raw, meaning in _all():
        table.setdefault(raw, []).append(meaning)
    return table


MEANINGS = _table()

# -- prometheus ------------------------------------------------------------------------------------------------------

LARGEST = 16 << 20  # bytes: three hundred times the size of vLLM's
LONGEST_LABEL = 200  # characters
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_LINE = re.compile(r"[A-Za-z_:][\w:]*(\{.*\})?[ \t]+\S+")
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Key = tuple[str, tuple[tuple[str, str], ...]]  # a sample's name and labels


class Unreadable(Exception):
    """Why a reading failed, for a note."""


@dataclass(slots=True)
class Scrape:
    """The content of one scrape. Values with the same name and labels are summed, but not over synonymous names: vLLM
    0.10 has both `gpu_cache_usage_perc` and `kv_cache_usage_perc`, Ray each counter with and without `_total`."""

    values: dict[Key, float] = field(default_factory=dict)
    source_names: dict[tuple[str, Key], str] = field(
        default_factory=dict
    )  # engine and our name: its name, the first that was seen
    engines: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)  # our names: theirs
    config: dict[str, str] = field(default_factory=dict)
    lies: list[str] = field(default_factory=list)  # lines with values impossible for a counter
    gpus: dict[tuple[str, str], float] = field(default_factory=dict)  # GPU and name: DCGM's value

    def samples(self, source: str, at: int) -> list[Sample]:
        own = [Sample(source, name, at, value, dict(labels)) for (name, labels), value in self.values.items()]
        return own + [Sample(f"{GPU}{gpu}", name, at, value) for (gpu, name), value in self.gpus.items()]


def read_exposition(text: str, buckets: bool = True) -> Scrape:
    """The known metrics of a text, without histogram buckets if they are not requested; `Unreadable` if there are
    none."""
    reading = Scrape()
    for line in text.split("\n"):
        if line[:1] in ("#", ""):
            continue
        name = line.split("{", 1)[0].split(" ", 1)[0]
        meanings = MEANINGS.get(name)
        if meanings is not None:
            if buckets or meanings[0].part != "bucket":
                _take(reading, name, meanings, line[len(name) :])
        elif name in CONFIG:
            _take_config(reading, name, line[len(name) :])
        elif name in _DCGM:
            _take_gpu(reading, name, line[len(name) :])
    if not reading.engines and not reading.gpus:
        raise Unreadable(_why_nothing(text))
    return reading


def _take_config(reading: Scrape, raw: str, rest: str) -> None:
    try:
        labels, _ = _labels_and_rest(rest)
    except ValueError:
        reading.lies.append(f"{raw}: its labels cannot be read")
        return
    reading.config = {label: labels[label] for label in CONFIG_LABELS if label in labels}


def _take(reading: Scrape, raw: str, meanings: list[Meaning], rest: str) -> None:
    try:
        labels, text = _labels_and_rest(rest)
        value = float(text.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        reading.lies.append(f"{raw}: not a number")
        return
    for meaning in meanings:
        if meaning.label is None or labels.get(meaning.label[0]) == meaning.label[1]:
            _add(reading, raw, meaning, labels, value)


def _take_gpu(reading: Scrape, raw: str, rest: str) -> None:
    """A GPU is identified by its index and its host: one text may have those of several hosts. Instances of a MIG GPU
    (label `GPU_I_ID`) are left out: they are parts."""
    try:
        labels, text = _labels_and_rest(rest)
        value = float(text.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        reading.lies.append(f"{raw}: not a number")
        return
    index, host = labels.get("gpu", ""), labels.get("Hostname", "")
    if not index.isdigit() or labels.get("GPU_I_ID") or not value >= 0:
        return
    name, scale = _DCGM[raw]
    if value < _DCGM_BLANK or (name == "energy_j" and value < _DCGM_LARGE_BLANK):
        reading.gpus.setdefault((f"{index}@{host or 'DCGM'}", name), value * scale)
        reading.names.setdefault(name, raw)


def _add(reading: Scrape, raw: str, meaning: Meaning, labels: dict[str, str], value: float) -> None:
    if meaning.engine:
        reading.engines.add(meaning.engine)
    if not math.isfinite(value) or value < 0:  # gauges of ours cannot be negative either
        reading.lies.append(f"{raw}: {'below 0' if value < 0 else 'not a number'}")
        return
    kept = tuple(sorted((name, text) for name, text in labels.items() if name in KEPT_LABELS))
    key = (meaning.sample_name, kept)
    if reading.source_names.setdefault((meaning.engine, key), raw) != raw:
        return  # the same metric under another name
    reading.values[key] = reading.values.get(key, 0.0) + value
    reading.names.setdefault(meaning.name, raw.removesuffix(f"_{meaning.part}") if meaning.part else raw)


def _labels_and_rest(text: str) -> tuple[dict[str, str], str]:
    """Splits `{a="b"} 1 1700000000` into labels and the rest."""
    if not text.startswith("{"):
        return {}, text
    labels, at = {}, 1
    while match := _LABEL.match(text, at):
        labels[match[1]] = _plain(match[2])
        at = match.end()
    if text[at : at + 1] != "}":
        raise ValueError(text)
    return labels, text[at + 1 :]


def _plain(text: str) -> str:
    """The value of a label, which is stored with the run and shown."""
    if "\\" in text:
        text = _unescaped(text)
    return text if len(text) <= LONGEST_LABEL and text.isprintable() else harmless(cut(text, LONGEST_LABEL))


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], match[0]), text)


def _why_nothing(text: str) -> str:
    lines = [line for line in text.split("\n", 200)[:200] if line.strip() and not line.startswith("#")]
    if any(_LINE.match(line) for line in lines):
        return "has no metric of a known inference server"
    return f"is not Prometheus text, it begins with {text[:40]!r}" if text.strip() else "is empty"


class MetricsEndpoint:
    """One URL, polled over a persistent connection."""

    def __init__(self, origin: Origin, path: str, headers: dict[str, str], timeout_s: float) -> None:
        self._origin, self._path, self._headers = origin, path, headers
        self.timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def text(self) -> str:
        """Its current text; `Unreadable` if it does not arrive within the limits on time and size."""
        until = time.monotonic() + self.timeout_s
        try:
            return self._fetched(until)
        except TimeoutError:
            self.close()
            raise Unreadable(f"did not answer within {duration_text(self.timeout_s)}") from None
        except TooLarge:
            self.close()
            raise Unreadable(f"is larger than {LARGEST >> 20} MiB") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise Unreadable(_error_text(error)) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _fetched(self, until: float) -> str:
        kept = self._connection is not None
        try:
            response = self._sent(until)
        except (ConnectionError, http.client.RemoteDisconnected):
            self.close()
            if not kept:
                raise
            response = self._sent(until)  # a persistent connection may have been closed meanwhile
        body = body_within(response)
        if response.status != 200:
            raise Unreadable(f"answered {response.status} {response.reason}".rstrip())
        return body.decode("utf-8", "replace")

    def _sent(self, until: float) -> http.client.HTTPResponse:
        connection = self._connection = self._connection or self._origin.connection(self.timeout_s)
        within(connection, until, LARGEST)
        headers = self._headers | self._origin.proxy_headers
        connection.request("GET", self._origin.request_target(self._path), headers=headers)
        return connection.getresponse()


def _error_text(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection"
    text = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return " ".join(text.split())[:200].lower()


COUNTED_BY = ("requests_ok", "generation_tokens")
POLL_S = 0.1


def await_counted(endpoint: MetricsEndpoint, within_s: float) -> bool:
    """Wait until a server counts an answered request as finished. A delayed export would otherwise count it later,
    among the requests of a run."""
    end_at = time.monotonic() + within_s
    while True:
        with suppress(Unreadable):
            counted = {sample.name for sample in read_exposition(endpoint.text()).samples("", 0) if sample.value > 0}
            if counted >= {*COUNTED_BY}:
                return True
        if time.monotonic() > end_at:
            return False
        time.sleep(POLL_S)
