"""What engines call things, turned into the one vocabulary (`measure.telemetry`): vLLM old and new, Ray's re-export of
it, SGLang, TGI, TensorRT-LLM and Triton, llama.cpp."""

from collections.abc import Iterator
from typing import NamedTuple

from inferometer.measure.telemetry import SERVER


class Meaning(NamedTuple):
    """`part` of a histogram is `sum`, `count` or `bucket`. `label` must have this value, where names alone do not
    tell."""

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
    "itl": ["inter_token_latency_seconds", "time_per_output_token_seconds"],  # the older name meant the same
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
_ENGINES: dict[str, tuple[tuple[str, ...], dict[str, list[str]]]] = {  # engine: its prefixes, and its names
    "vLLM": (("vllm:", "vllm_"), _VLLM),
    "vLLM on Ray": (("ray_vllm:", "ray_vllm_"), _VLLM),
    "SGLang": (("sglang:", "sglang_"), _SGLANG),
    "TGI": (("tgi_",), _TGI),
    "TensorRT-LLM": (("trtllm_", "trtllm:"), _TRT),
    "llama.cpp": (("llamacpp:", "llamacpp_"), _LLAMACPP),
}
_TRITON = {  # one name each, a label tells which
    ("nv_trt_llm_request_metrics", "request_type", "scheduled"): "running",
    ("nv_trt_llm_request_metrics", "request_type", "waiting"): "queued",
    ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction"): "kv_usage",
}
STARTED = "process_start_time_seconds"  # of every engine that is a Python process
CONFIG = {"vllm:cache_config_info", "ray_vllm:cache_config_info", "ray_vllm_cache_config_info"}  # labels that tell
CONFIG_LABELS = ("block_size", "num_gpu_blocks", "enable_prefix_caching", "cache_dtype", "gpu_memory_utilization")
PARTS_OF_A_SERVER = ("engine", "WorkerId", "ReplicaId", "replica", "dp_rank", "tp_rank", "moe_ep_rank", "pp_rank")
KEPT_LABELS = frozenset({*PARTS_OF_A_SERVER, "finished_reason", "le"})  # all others are added up


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
    """As the exposition writes it: counters with `_total` or, from older clients and Ray, without."""
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
