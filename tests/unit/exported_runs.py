"""Runs for export tests, and the results of importing the files."""

from dataclasses import replace
from pathlib import Path

from made_runs import made_run

from inferometer.exchange.exporting import ExportRequest, pieces
from inferometer.exchange.importing.recognise import format_named, read_source, recognise
from inferometer.measure.offline import MeasuredCase, latency_summary, throughput_summary
from inferometer.measure.values import quantities
from inferometer.plan.stored import StoredPlan
from inferometer.record.encoding import environment_from
from inferometer.record.environment import Environment
from inferometer.record.record import Sample, Samples
from inferometer.record.run import Run
from inferometer.record.summary import Pass
from inferometer.record.verdict import Verdict

URL = "http://localhost:8000/metrics"


def open_run() -> Run:
    """500 requests at 10 a second, 25 of them refused; 256 tokens in, 16 out although 64 were asked for."""
    made = made_run(500, failed=0.05, name="chat", limits=["ttft < 80ms"])
    environment = environment_from(
        {
            "inferometer": "0.1.0",
            "gpus": [{"name": "NVIDIA H200"}],
            "target": {"server": "vLLM", "version": "0.24.0", "urls": ["http://localhost:8000"], "model": "m"},
        }
    )
    return replace(made, environment=environment)


def closed_run() -> Run:
    return made_run(200, load={"type": "concurrency", "concurrency": 4}, stop={"requests": 200})


def latency_run() -> Run:
    cases = [MeasuredCase(size, 512, 128, 4, f"latency_bs{size}", [0.6, 0.61, 0.62, 0.65]) for size in (8, 1)]
    return bare_run("latency", latency_summary(cases), {"model": "m", "batch_sizes": [8, 1]})


def throughput_run() -> Run:
    passed = Pass(elapsed_s=10.0, requests=100, input_tokens=51200, output_tokens=12800)
    return bare_run("throughput", throughput_summary([passed]), {"model": "m"})


def bare_run(kind, summary, plan) -> Run:
    verdict = Verdict(status="valid")
    return Run(
        f"20261115-031207-{kind}",
        "2026-11-15T03:12:07+00:00",
        StoredPlan(plan),
        Environment(),
        summary,
        verdict,
        kind=kind,
    )


def made(name, *runs, **asked) -> dict[str, bytes]:
    return {piece.name: piece.content for piece in pieces(name, ExportRequest(runs, **asked))}


def only(name, *runs, **asked):
    (content,) = made(name, *runs, **asked).values()
    return content


def back(tmp_path: Path, name, content):
    """What an import makes of it."""
    path = tmp_path / name
    path.write_bytes(content)
    source = read_source(path)
    found = format_named(recognise(source)).read(source)
    assert not found.broken
    return found.runs


def value(run, key):
    return quantities(run.summary)[key].value


def sampled(run) -> Run:
    """Two engines, asked before and after: 100 and 300 answers, 50 ms and 70 ms to the first token."""
    before = {"prompt_tokens": 0.0, "ttft_sum": 0.0, "ttft_count": 0.0}
    after = {
        "a": {"prompt_tokens": 1000.0, "ttft_sum": 5.0, "ttft_count": 100.0},
        "b": {"prompt_tokens": 3000.0, "ttft_sum": 21.0, "ttft_count": 300.0},
    }
    bounds = {"0.06": (100.0, 100.0), "0.1": (100.0, 300.0), "+Inf": (100.0, 300.0)}
    samples = [
        Sample(f"{URL}/{source}", name, at, value, {"engine": "0"})
        for source, grown in after.items()
        for at, values in ((1, before), (2, grown))
        for name, value in values.items()
    ]
    samples += [
        Sample(f"{URL}/{source}", "ttft_bucket", at, value, {"engine": "0", "le": bound})
        for bound, counts in bounds.items()
        for source, count in zip("ab", counts, strict=True)
        for at, value in ((1, 0.0), (2, count))
    ]
    return replace(run, read_samples=lambda: Samples.of(samples))
