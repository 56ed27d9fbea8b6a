"""Ours and `vllm bench` beside each other: the same command line, in turns (ABBA), with vLLM's definitions.

As a program it prints the comparison as a table: `python tests/engines/beside.py open|closed|latency ...`.
"""

import argparse
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

from inferometer.workload.words import words

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
LENGTHS = (384, 32)  # tokens of prompt and answer: the first one takes long beside what a client adds to it
RATE = 0.6  # requests/s of the open loop: the server holds it on one core
SLOTS = 4  # of the closed loop
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
BATCH = ["--input-len", "64", "--output-len", "32"]
ENGINE = {"dtype": "float32", "max_model_len": 512, "max_num_seqs": 16, "enforce_eager": True}

Numbers = dict[str, float]
Side = Callable[[int], Numbers]  # the seed of a repeat -> what it measured


@dataclass(frozen=True)
class Beside:
    """Repeats of one measure, ours and theirs."""

    name: str
    ours: list[float]
    theirs: list[float]

    @property
    def difference(self) -> float:
        """Of the medians, as a share of theirs."""
        return median(self.ours) / median(self.theirs) - 1

    @property
    def noise(self) -> float:
        """How far chance alone moves it, in 95 of 100 cases: repeats are drawn again from what was measured."""
        rng = Random(0)
        drawn = sorted(
            median(rng.choices(self.ours, k=len(self.ours))) / median(rng.choices(self.theirs, k=len(self.theirs)))
            for _ in range(2000)
        )
        return (drawn[1950] - drawn[50]) / 2

    def row(self) -> str:
        cells = [f"{median(side):10.4g} ({min(side):.4g}-{max(side):.4g})" for side in (self.ours, self.theirs)]
        return f"{self.name:24} {cells[0]:30} {cells[1]:30} {self.difference:+7.1%}  ±{self.noise:.1%}"


def turns(repeats: int) -> Iterator[str]:
    """ABBA ABBA ...: what drifts, drifts for both."""
    for pair in range(repeats):
        yield from ("AB", "BA")[pair % 2]


def beside(ours: Side, theirs: Side, repeats: int) -> list[Beside]:
    sides, made = {"A": ours, "B": theirs}, {"A": [], "B": []}
    for number, side in enumerate(turns(repeats)):
        made[side].append(sides[side](number))
        print(side, json.dumps(made[side][-1]), file=sys.stderr, flush=True)
    names = made["A"][0]
    return [Beside(name, *([each[name] for each in made[side]] for side in "AB")) for name in names]


def called(words: list[str], *, fine: tuple[int, ...] = (0,)) -> str:
    """What a command printed; its errors where it failed."""
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **QUIET}, check=False)
    assert done.returncode in fine, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


# -- a server under load -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """What is asked of the server: an open loop with even gaps, or a closed one with so many at once; the same prompts
    for both sides of a pair, word for word, of words that are a token each."""

    loop: str
    rate: float = RATE
    slots: int = SLOTS
    input: int = LENGTHS[0]
    output: int = LENGTHS[1]
    prompts: int = 40

    def command(self, url: str, model: Path, number: int, folder: Path) -> list[str]:
        """A command line that both read."""
        flags = {"--backend": "vllm", "--base-url": url, "--model": "tiny", "--tokenizer": model}
        flags |= {"--dataset-name": "custom", "--dataset-path": self._file(number // 2, folder)}
        flags |= {"--custom-output-len": self.output, "--num-prompts": self.prompts, "--seed": number}
        open_loop = {"--request-rate": self.rate, "--burstiness": "inf"}
        flags |= open_loop if self.loop == "open" else {"--max-concurrency": self.slots}
        said = [str(word) for flag in flags.items() for word in flag]
        return ["vllm", "bench", "serve", *said, "--skip-chat-template", "--disable-shuffle", "--ignore-eos"]

    def _file(self, pair: int, folder: Path) -> Path:
        file, rng = folder / f"prompts-{pair}.jsonl", Random(pair)
        texts = (" ".join(rng.choices(words(), k=self.input)) for _ in range(self.prompts))
        file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
        return file


def our_serving(url: str, model: Path, load: Load, folder: Path) -> Side:
    store = folder / "store"

    def measure(seed: int) -> Numbers:
        command = load.command(url, model, seed, folder)
        run = [*INFEROMETER, "run", "-q", "--json", "--store", str(store), "--", *command]
        kept = json.loads(called(run, fine=(0, 4)))  # 4: a busy machine, which is true of both, and is said
        run_id = kept["run"]["id"]
        print("our verdict:", kept["verdict"]["word"], file=sys.stderr)
        found = json.loads(called([*INFEROMETER, "export", run_id, "--as", "vllm", "-o", "-", "--store", str(store)]))
        assert found["failed"] == 0
        return {name: found[name] for name in MEASURES}

    return measure


def their_serving(url: str, model: Path, load: Load, folder: Path) -> Side:
    def measure(seed: int) -> Numbers:
        file = folder / f"theirs-{seed}.json"
        command = load.command(url, model, seed, folder)
        command[0] = str(BIN / "vllm")
        called([*command, "--disable-tqdm", "--save-result", "--save-detailed", "--result-filename", str(file)])
        found = json.loads(file.read_text())
        assert found["failed"] == 0
        return {name: found[name] for name in MEASURES}

    return measure


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
    ours, theirs = our_serving(url, model, load, folder), their_serving(url, model, load, folder)
    return beside(beside_server(url, ours), beside_server(url, theirs), repeats)


# -- an engine without a server ------------------------------------------------------------------------------------


def our_latency(model: Path, batch: int, iters: int, folder: Path) -> Side:
    def measure(seed: int) -> Numbers:
        stem = folder / f"ours-{seed}-"
        words = [*INFEROMETER, "offline", "latency", "--engine", "vllm", "--model", str(model), "-q"]
        words += ["--batch-sizes", str(batch), "--iters", str(iters), "--warmup", "3", *BATCH, "--seed", str(seed)]
        words += [word for name, value in ENGINE.items() for word in ("--args", f"{name}={json.dumps(value)}")]
        called([*words, "--output-json", str(stem), "--store", str(folder / "store")], fine=(0, 4))
        return _latency(folder / f"ours-{seed}-{batch}.json")

    return measure


def their_latency(model: Path, batch: int, iters: int, folder: Path) -> Side:
    def measure(seed: int) -> Numbers:
        file = folder / f"theirs-{seed}.json"
        words = [str(BIN / "vllm"), "bench", "latency", "--model", str(model), "--batch-size", str(batch), *BATCH]
        words += ["--num-iters", str(iters), "--num-iters-warmup", "3", "--output-json", str(file)]
        for name, value in ENGINE.items():
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        called(words)
        return _latency(file)

    return measure


def _latency(file: Path) -> Numbers:
    found = json.loads(file.read_text())
    return {"avg_latency": found["avg_latency"], "p50": found["percentiles"]["50"]}


def latency(model: Path, batch: int, iters: int, repeats: int, folder: Path) -> list[Beside]:
    folder.mkdir(parents=True, exist_ok=True)
    return beside(our_latency(model, batch, iters, folder), their_latency(model, batch, iters, folder), repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["open", "closed", "latency"])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--url", default="http://127.0.0.1:8101")
    parser.add_argument("--rate", type=float, default=RATE, help="of the open loop")
    parser.add_argument("--slots", type=int, default=SLOTS, help="of the closed loop")
    parser.add_argument("--lengths", type=int, nargs=2, default=LENGTHS, help="tokens of prompt and answer")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path("beside"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.what == "latency":
        rows = latency(given.model, given.batch, 30, given.repeats, given.folder)
    else:
        load = Load(given.what, given.rate, given.slots, *given.lengths, given.prompts)
        rows = serving(given.url, given.model, load, given.repeats, given.folder)
    print(f"{'':24} {'ours':>10} {'':19} {'vllm bench':>10} {'':21} differs  noise")
    print("\n".join(each.row() for each in rows))


if __name__ == "__main__":
    main()
