"""The setup half of llm-d's experiments: its variables and dotted paths as the server that a plan starts."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from inferometer.plan.foreign.found import without_missing

FLAGS = {  # of vLLM
    **dict.fromkeys(("LLMDBENCH_VLLM_COMMON_MAX_MODEL_LEN", "model.maxModelLen"), "max-model-len"),
    **dict.fromkeys(("LLMDBENCH_VLLM_COMMON_BLOCK_SIZE", "model.blockSize"), "block-size"),
    **dict.fromkeys(
        (
            "LLMDBENCH_VLLM_COMMON_TENSOR_PARALLELISM",
            "LLMDBENCH_VLLM_MODELSERVICE_DECODE_TENSOR_PARALLELISM",
            "decode.parallelism.tensor",
            "standalone.parallelism.tensor",
            "vllmCommon.tensorParallelism",
        ),
        "tensor-parallel-size",
    ),
    **dict.fromkeys(("LLMDBENCH_VLLM_COMMON_DATA_PARALLELISM", "decode.parallelism.data"), "data-parallel-size"),
    **dict.fromkeys(
        ("LLMDBENCH_VLLM_COMMON_ACCELERATOR_MEM_UTIL", "model.gpuMemoryUtilization"), "gpu-memory-utilization"
    ),
    **dict.fromkeys(("LLMDBENCH_VLLM_COMMON_MAX_NUM_SEQ", "model.maxNumSeqs"), "max-num-seqs"),
    **dict.fromkeys(
        ("LLMDBENCH_VLLM_COMMON_MAX_NUM_BATCHED_TOKENS", "model.maxNumBatchedTokens"), "max-num-batched-tokens"
    ),
    "LLMDBENCH_VLLM_STANDALONE_VLLM_LOAD_FORMAT": "load-format",
}
MODEL = ("LLMDBENCH_DEPLOY_MODEL_LIST", "LLMDBENCH_DEPLOY_CURRENT_MODEL", "model.name", "model.huggingfaceId")
ONE = ("LLMDBENCH_VLLM_COMMON_REPLICAS", "LLMDBENCH_VLLM_MODELSERVICE_DECODE_REPLICAS", "decode.replicas")
METHOD = ("LLMDBENCH_DEPLOY_METHODS", "deploy_methods")
KV = "vllmCommon.kvTransfer."
FREE = ("vllmCommon.flags.", "vllmCommon.args.")
NOT_MEASURED = ("LLMDBENCH_CONTROL_", "LLMDBENCH_HARNESS_", "LLMDBENCH_IMAGE_", "LLMDBENCH_LLMD_IMAGE_", "images.")


class Told(Protocol):
    """Where mistakes and notes are gathered."""

    notes: dict[str, None]
    mistakes: dict[str, None]


def server_of(sets: Mapping[str, Any], where: str, reading: Told) -> dict[str, Any]:
    """The part of a plan that starts such a stack: one vLLM server. What only a cluster has is a mistake."""
    args: dict[str, Any] = {}
    model: str | None = None
    for key, value in sets.items():
        if key in FLAGS:
            args[FLAGS[key]] = value
        elif key in MODEL:
            model = str(value).replace(",", " ").split()[0]
        elif key.startswith(FREE):
            args[key.split(".", 2)[2].replace("_", "-")] = value
        elif key.startswith(KV):
            continue
        elif key.startswith(NOT_MEASURED):
            reading.notes[f"setup: {key} says how their own jobs are run, which is not done here"] = None
        else:
            _of_cluster(key, value, where, reading)
    if transfer := _kv_transfer(sets):
        args["kv-transfer-config"] = json.dumps(transfer)
    return {"server": without_missing({"type": "vllm", "model": model, "args": args})}


def _of_cluster(key: str, value: Any, where: str, reading: Told) -> None:
    """One server is all that a plan starts: one replica of method standalone."""
    if (key in METHOD and str(value) == "standalone") or (key in ONE and str(value) == "1"):
        return
    text = f"{where}: {key}: {value} has no counterpart: it configures a cluster, and one server is started here"
    reading.mistakes[text] = None


def _kv_transfer(sets: Mapping[str, Any]) -> dict[str, Any] | None:
    """`vllmCommon.kvTransfer.*` as the JSON of vLLM's own flag; off unless enabled, as there."""
    said = {key.removeprefix(KV): value for key, value in sets.items() if key.startswith(KV)}
    if not said or said.get("enabled") in (False, "false"):
        return None
    extra = {name.partition(".")[2]: value for name, value in said.items() if name.startswith("extraConfig.")}
    whole = {"kv_connector": said.get("connector"), "kv_role": said.get("role"), "kv_connector_extra_config": extra}
    return {name: value for name, value in whole.items() if value not in (None, {})}
