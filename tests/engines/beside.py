"""Ours and `vllm bench` beside each other: the same command line, in turns (ABBA), with vLLM's definitions.

Turns are short and many. A machine that is shared is faster or slower by a tenth from one quarter of a minute to the
next: two turns side by side have more of it in common than two long ones, and what is left averages out.

As a program it prints the comparison as a table: `python tests/engines/beside.py open|closed|latency ...`.
"""

import argparse
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from inferometer.workload.writer import words

BIN = Path(sys.executable).parent
INFEROMETER = [str(BIN / "inferometer")]
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
LENGTHS = (512, 32)  # tokens of prompt and answer, on average: the first one takes long beside what a client adds to it
SPREAD = 0.5  # lengths differ by so much to both sides: equal requests fall into step, and TTFT has two values then
RATE = 0.6  # requests/s of the open loop: the server holds it on one core
SLOTS = 4  # of the closed loop
PROMPTS = {"open": 8, "closed": 12}  # of a turn, which takes a dozen seconds
MEASURES = [
    "median_ttft_ms",
    "median_tpot_ms",
    "output_throughput",
    "mean_ttft_ms",
    "mean_tpot_ms",
    "request_throughput",
]
COUNTED = {
    "ttft": "vllm:time_to_first_token_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "e2e": "vllm:e2e_request_latency_seconds",
}
ENGINE = {"dtype": "float32", "max_model_len": 512, "max_num_seqs": 16, "enforce_eager": True}

Numbers = dict[str, float]
Side = Callable[[int], Numbers]  # the seed of a repeat -> what it measured


@dataclass(frozen=True)
class Beside:
    """Turns of one measure, ours and theirs, pair by pair."""

    name: str
    ours: list[float]
    theirs: list[float]

    @property
    def difference(self) -> float:
        """Of the medians, as a share of theirs."""
        return median(self.ours) / median(self.theirs) - 1

    @property
    def in_pairs(self) -> float:
        """Median of what the two of a pair differ by: the machine was more alike for them."""
        return median(self._ratios) - 1

    @property
    def noise(self) -> float:
        """How far chance alone moves that, in 95 of 100 cases: pairs are drawn again from those that were measured."""
        rng = Random(0)
        drawn = sorted(median(rng.choices(self._ratios, k=len(self._ratios))) for _ in range(2000))
        return (drawn[1950] - drawn[50]) / 2

    @property
    def _ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    def row(self) -> str:
        cells = [f"{median(side):10.4g} ({min(side):.4g}-{max(side):.4g})" for side in (self.ours, self.theirs)]
        told = f"{self.difference:+7.1%} {self.in_pairs:+8.1%} ±{self.noise:.1%}"
        return f"{self.name:24} {cells[0]:30} {cells[1]:30} {told}"


HEADING = f"{'':24} {'ours':>10} {'':19} {'vllm bench':>10} {'':20} medians in pairs"


def turns(repeats: int) -> Iterator[str]:
    """ABBA ABBA ...: what drifts, drifts for both."""
    for pair in range(repeats):
        yield from ("AB", "BA")[pair % 2]


def beside(ours: Side, theirs: Side, repeats: int) -> list[Beside]:
    sides, made = {"A": ours, "B": theirs}, {"A": [], "B": []}  # type: ignore[var-annotated]
    for number, side in enumerate(turns(repeats)):
        made[side].append(sides[side](number))
        print(side, json.dumps(made[side][-1]), file=sys.stderr, flush=True)
    names = made["A"][0]
    return [Beside(name, *([each[name] for each in made[side]] for side in "AB")) for name in names]


class Theirs:
    """`vllm` in a process that is started once: its ten seconds of imports are no part of a turn."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def __enter__(self) -> "Theirs":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def called(self, words: list[str]) -> None:
        self._pool.submit(_vllm, words).result()


def _vllm(words: list[str]) -> None:
    """What the command `vllm` does with its command line."""
    os.environ |= QUIET
    from vllm.entrypoints.cli.main import main

    sys.argv = words
    with redirect_stdout(StringIO()):
        main()


def called(words: list[str], *, fine: tuple[int, ...] = (0,)) -> str:
    """What a command printed; its errors where it failed."""
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **QUIET}, check=False)
    assert done.returncode in fine, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


# -- a server under load -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """What is asked of the server: an open loop with even gaps, or a closed one with so many at once; the same prompts
    in every turn, word for word, of words that are a token each, and answers of the same lengths. The server keeps no
    cache of prefixes."""

    loop: str
    rate: float = RATE
    slots: int = SLOTS
    input: int = LENGTHS[0]
    output: int = LENGTHS[1]
    prompts: int | None = None
    spread: float = SPREAD

    def command(self, url: str, model: Path, number: int, folder: Path) -> list[str]:
        """A command line that both read."""
        flags = {"--backend": "vllm", "--base-url": url, "--model": "tiny", "--tokenizer": model}
        flags |= {"--dataset-name": "custom", "--dataset-path": self._file(folder)}
        flags |= {"--custom-output-len": -1, "--num-prompts": self._prompts, "--seed": number}
        open_loop = {"--request-rate": self.rate, "--burstiness": "inf"}
        flags |= open_loop if self.loop == "open" else {"--max-concurrency": self.slots}
        said = [str(word) for flag in flags.items() for word in flag]
        return ["vllm", "bench", "serve", *said, "--skip-chat-template", "--disable-shuffle", "--ignore-eos"]

    @property
    def _prompts(self) -> int:
        return self.prompts or PROMPTS[self.loop]

    def _file(self, folder: Path) -> Path:
        file, rng = folder / "prompts.jsonl", Random(0)
        file.write_text("".join(json.dumps(self._row(rng)) + "\n" for _ in range(self._prompts)))
        return file

    def _row(self, rng: Random) -> dict[str, object]:
        least, most = 1 - self.spread, 1 + self.spread
        asked, answered = (round(mean * rng.uniform(least, most)) for mean in (self.input, self.output))
        return {"prompt": " ".join(rng.choices(words(), k=asked)), "output_tokens": answered}


def our_serving(url: str, model: Path, load: Load, folder: Path) -> Side:
    store = folder / "store"

    def measure(seed: int) -> Numbers:
        command = load.command(url, model, seed, folder)
        run = [*INFEROMETER, "run", "-q", "--json", "--store", str(store), "--", *command]
        kept = json.loads(called(run, fine=(0, 4)))  # 4: a busy machine, which is true of both, and is said
        run_id = kept["run"]["id"]
        print("our verdict:", kept["verdict"]["status"], file=sys.stderr)
        found = json.loads(called([*INFEROMETER, "export", run_id, "--as", "vllm", "-o", "-", "--store", str(store)]))
        return _measures(found)

    return measure


def their_serving(vllm: Theirs, url: str, model: Path, load: Load, folder: Path) -> Side:
    def measure(seed: int) -> Numbers:
        file = folder / f"theirs-{seed}.json"
        command = load.command(url, model, seed, folder)
        vllm.called([*command, "--disable-tqdm", "--save-result", "--save-detailed", "--result-filename", str(file)])
        return _measures(json.loads(file.read_text()))

    return measure


def _measures(found: dict[str, Any]) -> Numbers:
    """Of a result in vLLM's format."""
    assert found["failed"] == 0, f"{found['failed']} requests failed: does the server run?"
    return {name: found[name] for name in MEASURES}


def beside_server(url: str, side: Side) -> Side:
    """With what the server's own clock says of the same requests. A machine that is slower for a minute is so on both
    clocks: what a client sees over what the server sees is the client's alone."""

    def measure(seed: int) -> Numbers:
        before = counters(url)
        made = side(seed)
        after = counters(url)
        server = {name: 1e3 * (after[name][0] - before[name][0]) / (after[name][1] - before[name][1]) for name in after}
        made["ttft_over_server"] = made["median_ttft_ms"] / server["ttft"]
        made["tpot_over_server"] = made["median_tpot_ms"] / server["tpot"]
        made["in_flight_by_server"] = made["request_throughput"] * server["e2e"] / 1e3  # by Little's law
        made["ttft_beyond_server_ms"] = made["mean_ttft_ms"] - server["ttft"]
        made["mean_tpot_over_server"] = made["mean_tpot_ms"] / server["tpot"]
        return made

    return measure


def counters(url: str) -> dict[str, tuple[float, float]]:
    """Sum and count of the server's histograms."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = [line.rpartition(" ") for line in answer.read().decode().splitlines()]
    said = {name.partition("{")[0]: float(value) for name, _, value in lines if name.startswith("vllm:")}
    return {name: (said[f"{series}_sum"], said[f"{series}_count"]) for name, series in COUNTED.items()}


def serving(url: str, model: Path, load: Load, repeats: int, folder: Path) -> list[Beside]:
    with Theirs() as vllm:
        ours, theirs = our_serving(url, model, load, folder), their_serving(vllm, url, model, load, folder)
        theirs(2 * repeats)  # imports, the first answer: not a turn
        return beside(beside_server(url, ours), beside_server(url, theirs), repeats)


# -- an engine without a server ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """So many prompts at once, again and again, in an engine that is built for each turn."""

    size: int
    input: int = 64
    output: int = 32
    iters: int = 20
    engine: Mapping[str, object] = field(default_factory=lambda: ENGINE)

    @property
    def lengths(self) -> list[str]:
        return ["--input-len", str(self.input), "--output-len", str(self.output)]


def our_latency(model: Path, batch: Batch, folder: Path) -> Side:
    def measure(seed: int) -> Numbers:
        stem = folder / f"ours-{seed}-"
        said = [*INFEROMETER, "offline", "latency", "--engine", "vllm", "--model", str(model), "-q", *batch.lengths]
        said += ["--batch-sizes", str(batch.size), "--iters", str(batch.iters), "--warmup", "3", "--seed", str(seed)]
        said += [word for name, value in batch.engine.items() for word in ("--args", f"{name}={json.dumps(value)}")]
        called([*said, "--output-json", str(stem), "--store", str(folder / "store")], fine=(0, 4))
        return _latency(folder / f"ours-{seed}-{batch.size}.json")

    return measure


def their_latency(model: Path, batch: Batch, folder: Path) -> Side:
    def measure(seed: int) -> Numbers:
        file = folder / f"theirs-{seed}.json"
        said = [str(BIN / "vllm"), "bench", "latency", "--model", str(model), *batch.lengths]
        said += ["--batch-size", str(batch.size), "--num-iters", str(batch.iters), "--num-iters-warmup", "3"]
        for name, value in batch.engine.items():
            said += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        called([*said, "--output-json", str(file)])
        return _latency(file)

    return measure


def _latency(file: Path) -> Numbers:
    found = json.loads(file.read_text())
    return {"avg_latency": found["avg_latency"], "p50": found["percentiles"]["50"]}


def latency(model: Path, batch: Batch, repeats: int, folder: Path) -> list[Beside]:
    folder.mkdir(parents=True, exist_ok=True)
    return beside(our_latency(model, batch, folder), their_latency(model, batch, folder), repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["open", "closed", "latency"])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--url", default="http://127.0.0.1:8101")
    parser.add_argument("--rate", type=float, default=RATE, help="of the open loop")
    parser.add_argument("--slots", type=int, default=SLOTS, help="of the closed loop")
    parser.add_argument("--lengths", type=int, nargs=2, help="tokens of prompt and answer")
    parser.add_argument("--spread", type=float, default=SPREAD, help="of the lengths, as a share of them")
    parser.add_argument("--prompts", type=int, help="of a turn")
    parser.add_argument("--repeats", type=int, default=25, help="turns of each side")
    parser.add_argument("--batch", type=int, default=4, help="prompts at once, without a server")
    parser.add_argument("--engine", type=json.loads, default=ENGINE, help="vLLM's arguments there, as JSON")
    parser.add_argument("--folder", type=Path, default=Path("beside"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.what == "latency":
        batch = Batch(given.batch, *(given.lengths or (64, 32)), engine=given.engine)  # type: ignore[misc]
        rows = latency(given.model, batch, given.repeats, given.folder)
    else:
        load = Load(given.what, given.rate, given.slots, *(given.lengths or LENGTHS), given.prompts, given.spread)  # type: ignore[call-arg]
        rows = serving(given.url, given.model, load, given.repeats, given.folder)
    print("\n".join([HEADING, *(each.row() for each in rows)]))


if __name__ == "__main__":
    main()
