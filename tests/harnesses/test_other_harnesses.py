"""Real load generators against the simulator, whose log tells what happened: one plan, and a table of what each tool
reports of it, in milliseconds and as a difference from the truth."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from inferometer.exchange.harness import harness_named
from inferometer.exchange.harness.environments import program_of
from inferometer.record.run import Run
from inferometer.show.imported import harness_of, reported_measure
from inferometer.store.store import open_store

FOLDER = Path(os.environ.get("INFEROMETER_HARNESSES") or ".")
REQUESTS = int(os.environ.get("HARNESS_REQUESTS") or 60)
TIME_LIMIT_S = 1500
HARNESSES = ("inferometer", "guidellm", "aiperf", "inference-perf", "vllm-benchmark", "sglang", "genai-bench")
OVERSHOOTING = ("genai-bench",)  # looks now and then whether it has had enough
ROWS: dict[str, list[str]] = {}


@dataclass(frozen=True)
class Truth:
    """Means of what the simulator wrote in a log, in seconds from when a request came."""

    requests: int
    ttft: float
    tpot: float
    e2e: float
    rate: float


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "inferometer", "simulate", "--serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = next(part for line in process.stderr for part in line.split() if part.startswith("http://"))
            yield address.rstrip(";")
        finally:
            process.terminate()


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Printed, and written beside the environments."""
    yield
    head = ["tool", "answered", "by the server"]
    head += [title for measure in ("TTFT mean", "TPOT mean", "E2E mean", "requests/s") for title in (measure, "true")]
    lines = [
        f"| {' | '.join(head)} |",
        "|---" * len(head) + "|",
        *(f"| {name} | {' | '.join(ROWS[name])} |" for name in ROWS),
    ]
    print("\n" + "\n".join(lines))
    (FOLDER / "table.md").write_text("\n".join(lines) + "\n")


def _truth(url: str, known: set[str]) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/truth") as answer:
        return [request for request in json.load(answer)["requests"] if request["id"] not in known]


def _means(requests: list[dict[str, Any]]) -> Truth:
    ttft, tpot, e2e = [], [], []
    for request in requests:
        first, last = request["written_at"][0], request["written_at"][-1]
        tokens = sum(request["written_tokens"])
        ttft.append((first - request["received_at"]) / 1e9)
        e2e.append((last - request["received_at"]) / 1e9)
        if tokens > request["written_tokens"][0]:  # all of them at once have no time between them
            tpot.append((last - first) / 1e9 / (tokens - request["written_tokens"][0]))
    span = max(request["written_at"][-1] for request in requests) - min(request["received_at"] for request in requests)
    return Truth(len(requests), fmean(ttft), fmean(tpot), fmean(e2e), len(requests) / (span / 1e9))


@pytest.mark.parametrize("name", HARNESSES)
def test_it_measures_the_simulator(name: str, url: str, tmp_path: Path) -> None:
    if name != "inferometer" and program_of(harness_named(name)) is None:
        pytest.skip(f"{name} is not installed in {FOLDER}")
    before = {request["id"] for request in _truth(url, set())}
    api = "chat" if name == "genai-bench" else "completions"
    command = [sys.executable, "-m", "inferometer", "run", "--harness", name, "--url", url, "--api", api]
    command += ["--concurrency", "4", "--requests", str(REQUESTS), "--input-tokens", "128", "--output-tokens", "32"]
    command += ["--tokenizer", str(FOLDER / "tokenizer"), "--harness-timeout", f"{TIME_LIMIT_S}s"]
    command += ["--json", "--store", str(tmp_path / "store")]
    env = {"GUIDELLM__MAX_WORKER_PROCESSES": "1", **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=TIME_LIMIT_S + 300)
    assert done.stdout, done.stderr
    run = open_store(tmp_path / "store").load("latest")
    assert run.state == "complete", [reason.text for reason in run.doubts]
    requests = [request for request in _truth(url, before) if request["ending"] == "ok"]
    answered = run.summary.outcomes["ok"]
    extra = len(requests) - answered  # what a tool sends before it measures
    truth = _means(sorted(requests, key=lambda request: request["received_at"])[max(extra, 0) :])
    ROWS[name] = _row(run, truth)
    print(f"\n{harness_of(run)}: {' | '.join(ROWS[name])}")
    assert answered == REQUESTS or (name in OVERSHOOTING and answered > REQUESTS)
    counted = _server_count(run)
    assert counted is None or counted >= REQUESTS
    assert _mean(run, "ttft") > 0.98 * truth.ttft, "no client sees a token before it was written"


def test_nop_measures_how_the_server_starts(tmp_path: Path) -> None:
    words = ["run", "--harness", "nop", "--server", "simulator", "--store", str(tmp_path / "store"), "--json"]
    subprocess.run([sys.executable, "-m", "inferometer", *words], check=True, capture_output=True, timeout=120)
    run = open_store(tmp_path / "store").load("latest")
    assert (run.kind, run.state) == ("startup", "complete")
    assert run.environment.server is not None and run.environment.server.ready_s is not None
    assert 0 < run.environment.server.ready_s < 120
    assert run.records is None or len(run.records) == 0
    print(f"\nnop: the simulator was ready after {run.environment.server.ready_s:.2f} s")


def _row(run: Run, truth: Truth) -> list[str]:
    cells = [str(run.summary.outcomes.get("ok")), f"{_server_count(run) or 0:.0f}"]
    for name in ("ttft", "tpot", "e2e"):
        true, reported = getattr(truth, name), reported_measure(run, name)
        value = None if reported is None else reported.mean
        cells += ["-" if value is None else f"{1000 * value:.2f} ({value / true - 1:+.0%})", f"{1000 * true:.2f}"]
    rates = run.summary.reported.rates if run.summary.reported else run.summary.rates
    rate = rates["request_rate"].value if "request_rate" in rates else None
    return [*cells, "-" if rate is None else f"{rate:.1f} ({rate / truth.rate - 1:+.0%})", f"{truth.rate:.1f}"]


def _mean(run: Run, name: str) -> float:
    measure = reported_measure(run, name)
    assert measure is not None and measure.mean is not None
    return measure.mean


def _server_count(run: Run) -> float | None:
    counter = run.summary.server.counters.get("requests_ok") if run.summary.server else None
    return counter.grown if counter is not None else None
