"""Sound runs: nothing is wrong with them, so nothing is to be doubted. Most in virtual time; the runs of the H200 sweep
and the results of other tools are real."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.conduct.run import measured_again
from inferometer.errors import InferometerError
from inferometer.exchange.importing.importer import import_file
from inferometer.record.verdict import Verdict
from inferometer.store.folder import load_run

from .spoilt import NARROW, NARROW_PER_S, NOISY, Settings, lognormal, merged
from .virtual import virtual_run


@dataclass(frozen=True, slots=True)
class Sound:
    """A run of which nothing is to be doubted: in virtual time by its settings, a real one by its path."""

    family: str
    name: str
    seed: int = 0
    settings: Mapping[str, Any] | None = None
    path: Path | None = None


# -- virtual time ----------------------------------------------------------------------------------------------------

LENGTHS: dict[str, Settings] = {
    "fixed": {"input_tokens": 256, "output_tokens": 64},
    "lognormal": {"input_tokens": lognormal(256), "output_tokens": lognormal(64)},
    "short": {"input_tokens": 32, "output_tokens": 8},
    "long": {"input_tokens": 2000, "output_tokens": 200},
}
# Requests per second that 16 sequences at once can have, by 1 / (output * step / 16 + input * 20 us).
CAPACITY_PER_S = {"fixed": NARROW_PER_S, "lognormal": NARROW_PER_S, "short": 300.0, "long": 8.5}


def _open(lengths: str, load: float, requests: int, **more: Any) -> Settings:
    rate = load * CAPACITY_PER_S[lengths]
    settings: Settings = {"workload": LENGTHS[lengths], "simulator": NARROW, "stop": {"requests": requests}}
    return merged(settings, {"load": {"type": "poisson", "rate": rate} | more})


def _poisson() -> Iterator[tuple[str, Settings]]:
    for lengths in LENGTHS:
        for load in (0.1, 0.3, 0.5, 0.7, 0.85):
            yield f"{lengths} at {load:.0%}", _open(lengths, load, 300 if load < 0.6 else 600)


def _constant() -> Iterator[tuple[str, Settings]]:
    for lengths in ("fixed", "lognormal", "short"):
        for load in (0.2, 0.5, 0.8):
            yield f"{lengths} at {load:.0%}", _open(lengths, load, 300, type="constant")


def _bursts() -> Iterator[tuple[str, Settings]]:
    for cv in (0.5, 2.0, 3.0):
        for load in (0.2, 0.5):
            yield f"cv {cv:g} at {load:.0%}", _open("lognormal", load, 400, type="gamma", cv=cv)


def _changing() -> Iterator[tuple[str, Settings]]:
    for lengths in ("fixed", "lognormal"):
        ramp = _open(lengths, 0.1, 400, type="ramp", to=0.7 * CAPACITY_PER_S[lengths])
        yield f"{lengths} ramp", merged(ramp, {"stop": {"requests": None, "duration": 20}})
        stages = [{"rate": share * CAPACITY_PER_S[lengths], "duration": 8} for share in (0.2, 0.5, 0.7)]
        staged: Settings = {"workload": LENGTHS[lengths], "simulator": NARROW, "load": {"stages": stages}}
        yield f"{lengths} stages", staged
    closed = [{"concurrency": n, "duration": 8} for n in (2, 8, 16)]
    yield "closed stages", {"workload": LENGTHS["lognormal"], "simulator": NOISY, "load": {"stages": closed}}


def _closed() -> Iterator[tuple[str, Settings]]:
    for concurrency in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        requests = max(60, min(4 * concurrency, 1024)) if concurrency > 16 else 20 * concurrency + 80
        for lengths in ("fixed", "lognormal"):
            settings = {"workload": LENGTHS[lengths], "simulator": NOISY, "stop": {"requests": requests}}
            yield f"{lengths} {concurrency}", {**settings, "load": {"concurrency": concurrency}}
    lockstep = {"workload": LENGTHS["fixed"], "simulator": {}, "stop": {"requests": 1024}}
    yield "in lockstep 256", {**lockstep, "load": {"concurrency": 256}}


def _brief() -> Iterator[tuple[str, Settings]]:
    for lengths, load in (("fixed", 0.1), ("lognormal", 0.1), ("short", 0.02)):
        yield f"ten requests {lengths}", _open(lengths, load, 10)
    seconds = {"stop": {"requests": None, "duration": 5}}
    yield "five seconds", merged(_open("lognormal", 0.4, 1), seconds)
    yield "five seconds constant", merged(_open("fixed", 0.3, 1, type="constant"), seconds)
    few = {"workload": LENGTHS["fixed"], "simulator": NOISY, "stop": {"requests": 10}, "load": {"concurrency": 1}}
    yield "ten one by one", few
    closed = {"workload": LENGTHS["lognormal"], "simulator": NOISY, "load": {"concurrency": 4}}
    yield "five seconds closed", {**closed, "stop": {"duration": 5}}


def _lasting() -> Iterator[tuple[str, Settings]]:
    yield "short answers", _open("short", 0.3, 4000)
    yield "open", _open("lognormal", 0.6, 2500)
    closed = {"workload": LENGTHS["lognormal"], "simulator": NOISY, "stop": {"requests": 2500}}
    yield "closed", {**closed, "load": {"concurrency": 16}}


def _turns() -> Iterator[tuple[str, Settings]]:
    talk = {"input_tokens": 128, "output_tokens": lognormal(32), "turns": 3, "turn_tokens": 40, "think": "500ms"}
    yield "open", {"workload": talk, "simulator": NOISY, "load": {"rate": 4}, "stop": {"sessions": 120}}
    made = talk | {"history": "made", "turns": {"type": "uniform", "min": 2, "max": 4}}
    yield "open, made history", {"workload": made, "simulator": NOISY, "load": {"rate": 4}, "stop": {"sessions": 120}}
    users = {"concurrency": 16, "sessions_at_once": 16}
    yield "closed", {"workload": talk, "simulator": NOISY, "load": users, "stop": {"sessions": 150}}


def _other() -> Iterator[tuple[str, Settings]]:
    yield "a cap that is never reached", _open("lognormal", 0.4, 300, max_concurrency=200)
    prefix = {"input_tokens": 512, "output_tokens": 32, "prefix": {"hit_rate": 0.5, "groups": 4}}
    yield "asked hit rate", {"workload": prefix, "simulator": NOISY, "load": {"rate": 8}, "stop": {"requests": 300}}
    warm = _open("lognormal", 0.5, 400)
    yield "with a warm-up", merged(warm, {"warmup": {"duration": 3}})
    yield "a limit", merged(_open("lognormal", 0.5, 400), {"limits": ["ttft p90 < 500ms"]})
    classes = [
        {"name": "chat", "workload": LENGTHS["lognormal"], "load": {"rate": 6}, "stop": {"requests": 200}},
        {"name": "batch", "workload": LENGTHS["fixed"], "load": {"concurrency": 4}, "stop": {"duration": 30}},
    ]
    yield "two classes", {"traffic": classes, "simulator": NOISY}
    for name, fault in {"four tokens an event": "tokens-per-chunk=4", "no usage": "no-usage"}.items():
        yield name, merged(_open("lognormal", 0.5, 300), {"simulator": {"faults": {"shares": {fault: 1.0}}}})
    yield (
        "one failure in 400",
        merged(_open("fixed", 0.4, 400), {"simulator": {"faults": {"shares": {"cut=3": 0.0025}}}}),
    )
    yield "lengths that the server chooses", merged(_open("fixed", 0.2, 300), {"workload": {"output_tokens": None}})
    yield "replay", {"workload": {"type": "trace"}, "simulator": NOISY, "load": {"type": "replay"}}


FAMILIES = {
    "poisson": (_poisson, 16),
    "constant": (_constant, 12),
    "bursts": (_bursts, 16),
    "ramps and stages": (_changing, 16),
    "closed loop": (_closed, 8),
    "brief": (_brief, 24),
    "lasting": (_lasting, 8),
    "several turns": (_turns, 20),
    "other": (_other, 12),
}  # with how many seeds


def virtual_cases(most_seeds: int | None = None) -> list[Sound]:
    return [
        Sound(family, name, seed, settings)
        for family, (cases, seeds) in FAMILIES.items()
        for name, settings in cases()
        for seed in range(seeds if most_seeds is None else min(seeds, most_seeds))
    ]


@cache
def _recording(seed: int) -> Path:
    """Arrivals of a process that nobody named: busy and idle spells."""
    rng = np.random.default_rng([seed, 3])
    gaps = rng.exponential(0.12, 250) * np.where(np.sin(np.arange(250) / 15) > 0, 0.5, 1.5)
    inputs, outputs = (np.clip(rng.lognormal(np.log(mean), 0.5, 250), 4, 2000).astype(int) for mean in (200, 50))
    rows = zip(np.cumsum(gaps), inputs, outputs, strict=True)
    path = Path(tempfile.mkdtemp(prefix="corpora-")) / f"{seed}.csv"
    path.write_text("time,input_tokens,output_tokens\n" + "".join(f"{t:.6f},{i},{o}\n" for t, i, o in rows))
    return path


# -- real ------------------------------------------------------------------------------------------------------------


def real_cases() -> list[Sound]:
    """Where the data is at hand."""
    folder = os.environ.get("INFEROMETER_DATA")
    if not folder:
        return []
    data = Path(folder)
    runs = sorted(path.parent for path in (data / "vllm-0.24-h200-sweep").rglob("records.parquet"))
    cases = [Sound("H200 sweep", f"{path.parent.name}/{path.name}", n, path=path) for n, path in enumerate(runs)]
    files = [
        *sorted((data / "results" / "inference_perf" / "vllm").glob("*_lifecycle_metrics.json")),
        *sorted((data / "results" / "guidellm").glob("*.json")),
        *sorted((data / "results" / "llmd_benchmark_report").glob("*_example.yaml")),
        *sorted((data / "results" / "mlperf").glob("*summary.txt")),
        *sorted((data / "vllm-0.24-h200").glob("vllm_bench_serve_*.json")),
    ]
    return cases + [Sound("imported", path.name, n, path=path) for n, path in enumerate(files)]


def judged_again(path: Path) -> Verdict:
    """A run folder, measured anew from its records, samples and notes."""
    again = measured_again(load_run(path)).verdict
    assert again is not None
    return again


def imported_verdicts(path: Path) -> list[Verdict]:
    """Of every run in a file of another tool; a file that is no result has none."""
    with tempfile.TemporaryDirectory(prefix="corpora-") as store:
        try:
            runs = import_file(path, Path(store)).runs
        except InferometerError:
            return []
        return [run.verdict for run in runs if run.verdict is not None]


def verdicts(case: Sound) -> Iterable[Verdict]:
    if case.settings is not None:
        settings = case.settings
        if case.name == "replay":
            settings = merged(settings, {"workload": {"path": str(_recording(case.seed)), "unit": "s"}})
        yield virtual_run(settings, case.seed, watched=case.seed // 2 % 2 == 0).verdict
    elif case.path is not None and case.path.is_dir():
        yield judged_again(case.path)
    elif case.path is not None:
        yield from imported_verdicts(case.path)
