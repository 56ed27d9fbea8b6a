"""The JSON that `vllm bench latency` and `vllm bench throughput` write, made of our runs. All in seconds and per
second, there as here; their percentiles interpolate between values, ours do not. Reading it is `exchange.importing`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.record.files import write_text

PERCENTILES = (10, 25, 50, 75, 90, 99)


def latency_document(latencies: Sequence[float]) -> dict[str, Any]:
    """As `vllm bench latency --output-json` writes it."""
    found = np.percentile(np.array(latencies), PERCENTILES)
    return {
        "avg_latency": float(np.mean(latencies)),
        "latencies": list(latencies),
        "percentiles": {str(name): float(value) for name, value in zip(PERCENTILES, found, strict=True)},
    }


def throughput_document(summary: Mapping[str, Any]) -> dict[str, Any]:
    """As `vllm bench throughput --output-json` writes it."""
    return {
        "elapsed_time": summary["values"]["elapsed"]["value"],
        "num_requests": summary["requests"],
        "total_num_tokens": summary["input_tokens"] + summary["output_tokens"],
        "requests_per_second": summary["rates"]["request_rate"]["window"],
        "tokens_per_second": summary["rates"]["total_rate"]["window"],
    }


def write_latency_files(summary: Mapping[str, Any], prefix: str) -> list[Path]:
    """A file per measured case, `{prefix}{bs}.json`; with its lengths where there are several."""
    cases = [case for case in summary["cases"] if case["name"] in summary["measures"]]
    return [
        write_document(
            latency_document(case["latencies"]), Path(f"{prefix}{case['name'].removeprefix('latency_bs')}.json")
        )
        for case in cases
    ]


def write_document(document: Mapping[str, Any], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(document, indent=4))
    return path
