"""The terms of a step from arithmetic alone: bytes of weights and of keys and values over the bandwidth of the
memory, operations over the peak. A start for `calibration`, and terms for a server that has not been measured yet.
`presets` has the shapes and data sheets; the shares of them that are reached come from vLLM 0.24 on an H200."""

from inferometer.errors import PlanError
from inferometer.simulator.settings import ACCELERATORS, BLOCK, MODELS, Accelerator, ModelShape, by_arithmetic

READS = 0.70  # of the bandwidth, reached by a step of decodes
COMPUTES = 0.66  # of the dense peak, reached by a long prefill
EAGER_LAYER_S = 0.7e-3  # to launch the kernels of one layer without a graph
GRAPH_LAYER_S = 0.3e-3  # the same with a graph in pieces
ERRORS = (  # tests/golden/test_predict_golden.py checks them
    "on 14 runs of vLLM 0.24 on one H200 (8B and 32B) such models are off by up to 12% in mean TPOT and E2E and by up "
    "to 20% in mean TTFT; other GPUs and engines were not tried"
)


def accelerator_named(name: str) -> Accelerator:
    """`h200`, or the name that a driver reports."""
    plain = name.lower().replace("_", "-")
    for key, accelerator in ACCELERATORS.items():
        if plain == key or accelerator.name.lower() in plain:
            return accelerator
    raise PlanError(f"no accelerator {name!r} is known", f"there are {', '.join(ACCELERATORS)}")


def shape_named(name: str) -> ModelShape:
    if name.lower() not in MODELS:
        raise PlanError(f"no model shape {name!r} is known", f"there are {', '.join(MODELS)}")
    return MODELS[name.lower()]


def physical_terms(accelerator: Accelerator, shape: ModelShape) -> dict[str, float]:
    """Seconds of the terms that arithmetic knows."""
    bandwidth, peak = accelerator.bandwidth_per_s * READS, accelerator.flops_per_s * COMPUTES
    return {
        "base": shape.weight_bytes / bandwidth,
        "context_token": shape.kv_bytes / bandwidth,
        "compute_token": 2 * shape.parameters / peak,
        "launch_graph": GRAPH_LAYER_S * shape.layers,
        "launch_eager": EAGER_LAYER_S * shape.layers,
    }


def attention_tokens(shape: ModelShape) -> float:
    """The context at which attention needs as many operations as the weights: 2 N = 4 layers hidden context."""
    return 2 * shape.parameters / (4 * shape.layers * shape.hidden)


def physical_limits(accelerator: Accelerator, shape: ModelShape) -> dict[str, int]:
    """The engine's limits: what the memory holds, and vLLM's defaults."""
    settings = by_arithmetic(shape, accelerator)
    return {
        "cache_tokens": int(settings["blocks"]) * BLOCK,
        "max_batched_tokens": accelerator.max_batched_tokens,
        "max_sequences": accelerator.max_sequences,
    }
