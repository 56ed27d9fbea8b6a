"""Time and memory of importing large results of other tools, each in a separate process.

python bench/imports.py [--megabytes 200] [--json]
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from _common import parser, print_rows
from inferometer.errors import DataError
from inferometer.exchange.importing.importer import import_file

WORDS = ("the ", "model ", "Zürich ", "naïve ", "日本語", "🚀 ", "and ", "of ")
TOKENS = 500  # of an answer
REQUEST_BYTES = 3000  # guidellm stores prompt and answer of each request


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--megabytes", type=int, default=200)
    options.add_argument("--file", type=Path, help="import this one, in this process")
    chosen = options.parse_args()
    if chosen.file:
        print(json.dumps(imported(chosen.file)))
        return
    print_rows([in_a_child(name, chosen.megabytes) for name in FILES], chosen.json)


def in_a_child(name: str, megabytes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        with path.open("w", encoding="utf-8") as file:
            FILES[name](file, megabytes * 10**6)
        command = [sys.executable, __file__, "--file", str(path)]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        return {"file": name, "megabytes": round(path.stat().st_size / 1e6), **json.loads(out)}


def imported(path: Path) -> dict[str, Any]:
    begun_at = time.process_time()
    try:
        with tempfile.TemporaryDirectory() as store:
            result = import_file(path, store).format
    except DataError as error:
        result = error.message.removeprefix(f"{path}: ").removeprefix(f"{path.name}: ")[:60]
    lines = Path("/proc/self/status").read_text().splitlines()  # getrusage includes the process before exec
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return {"result": result, "CPU s": round(time.process_time() - begun_at, 1), "peak MiB": round(peak)}


def vllm(file: TextIO, size: int) -> None:
    """`--save-detailed`: a gap per token, and the answers."""
    rng = random.Random(1)
    n = size // (TOKENS * 26)
    gaps = [[rng.uniform(0.005, 0.03) for _ in range(TOKENS - 1)] for _ in range(n)]
    result = {
        "date": "20260801-101010",
        "backend": "vllm",
        "model_id": "m",
        "num_prompts": n,
        "request_rate": 10.0,
        "duration": n / 10 + 10,
        "completed": n,
        "failed": 0,
        "total_input_tokens": 100 * n,
        "total_output_tokens": TOKENS * n,
        "request_throughput": 10.0,
        "output_throughput": 10.0 * TOKENS,
        "input_lens": [100] * n,
        "output_lens": [TOKENS] * n,
        "ttfts": [0.1] * n,
        "itls": gaps,
        "errors": [""] * n,
        "generated_texts": ["".join(rng.choices(WORDS, k=TOKENS)) for _ in range(n)],
        "start_times": [1000 + at / 10 for at in range(n)],
    }
    json.dump(result, file, ensure_ascii=False)


def guidellm(file: TextIO, size: int) -> None:
    n = size // (REQUEST_BYTES + 400)
    totals = {"successful": n, "errored": 0, "incomplete": 0}
    file.write(f'{{"metadata": {{"guidellm_version": "0.8.0"}}, "benchmarks": [{{"duration": {n / 10}, "metrics": ')
    file.write(json.dumps({"request_totals": totals}) + ', "requests": {"successful": [')
    file.write(", ".join(map(json.dumps, _requests(n))) + "]}}]}")


def _requests(n: int) -> Iterator[dict[str, Any]]:
    for at in range(n):
        start = 1.7e9 + at / 10
        times = {"targeted_start": start, "request_start": start, "first_token_iteration": start + 0.1}
        times |= {"last_token_iteration": start + 5.0, "request_end": start + 5.01}
        tokens = {"input_metrics": {"text_tokens": 100}, "output_metrics": {"text_tokens": TOKENS}}
        yield {"request_id": f"r{at}", "output": "x" * REQUEST_BYTES, "info": {"timings": times}, **tokens}


def sglang(file: TextIO, size: int) -> None:
    """`--output-details`: one line, with a gap for each token."""
    rng = random.Random(1)
    n = size // (TOKENS * 22)
    means = {
        f"{name}_{time}_ms": 10.0 for time in ("ttft", "tpot", "itl", "e2e_latency") for name in ("mean", "median")
    }
    result = {
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": 10.0,
        "duration": n / 10 + 10,
        "completed": n,
        "total_input_tokens": 100 * n,
        "total_output_tokens": TOKENS * n,
        "request_throughput": 10.0,
        "output_throughput": 10.0 * TOKENS,
        **means,
        "input_lens": [100] * n,
        "output_lens": [TOKENS] * n,
        "ttfts": [0.1] * n,
        "itls": [[rng.uniform(0.005, 0.03) for _ in range(TOKENS - 1)] for _ in range(n)],
        "generated_texts": ["word " * 20] * n,
        "errors": [""] * n,
        "start_times": [1000 + at / 10 for at in range(n)],
    }
    file.write(json.dumps(result) + "\n")


def inference_perf(file: TextIO, size: int) -> None:
    """Each request with its answer and an instant for each token."""
    n = size // (TOKENS * 17 + 2900)
    file.write("[")
    for at in range(n):
        start = 1.7e9 + at / 10
        times = [round(start + 0.1 + token / 100, 7) for token in range(TOKENS)]
        info = {"input_tokens": 100, "output_tokens": TOKENS, "output_token_times": times}
        request = {"start_time": start, "end_time": times[-1], "request": "x" * 2800, "info": info, "error": None}
        file.write((", " if at else "") + json.dumps(request))
    file.write("]")


def aiperf(file: TextIO, size: int) -> None:
    """A line for each request, with a gap for each chunk."""
    rng = random.Random(1)
    for at in range(size // (TOKENS * 19 + 700)):
        start = int((1.7e9 + at / 10) * 1e9)
        about = {"session_num": at, "x_request_id": f"r{at}", "benchmark_phase": "profiling"}
        about |= {"request_start_ns": start, "request_end_ns": start + 8 * 10**9}
        metrics = {
            "time_to_first_token": {"value": 100.0, "unit": "ms"},
            "request_latency": {"value": 8000.0, "unit": "ms"},
            "inter_chunk_latency": {"value": [rng.uniform(5, 30) for _ in range(TOKENS - 1)], "unit": "ms"},
            "output_sequence_length": {"value": TOKENS, "unit": "tokens"},
            "input_sequence_length": {"value": 100, "unit": "tokens"},
        }
        file.write(json.dumps({"metadata": about, "metrics": metrics, "error": None}) + "\n")


def other(file: TextIO, size: int) -> None:
    json.dump({"rows": [{"a": number, "b": "x" * 80} for number in range(size // 100)]}, file)


def log(file: TextIO, size: int) -> None:
    file.writelines(f"INFO 08-01 10:10:10 line {number}\n" for number in range(size // 36))


FILES: dict[str, Callable[[TextIO, int], None]] = {
    "vllm.json": vllm,
    "guidellm.json": guidellm,
    "sglang.jsonl": sglang,
    "per_request_lifecycle_metrics.json": inference_perf,
    "profile_export.jsonl": aiperf,
    "other.json": other,
    "server.log": log,
}

if __name__ == "__main__":
    main()
