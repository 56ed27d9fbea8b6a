"""`inferometer run` compared with vLLM's Rust client, alternating with one metronome: CPU time from command to summary.

python bench/peer.py --binary vllm-rs [--streams 128 512 1024] [--rounds 10] [--turns 5] [--json]

The binary is in vLLM's wheel (`vllm/vllm-rs` of vllm 0.32.0 on PyPI). Without it only our own time is measured.
"""

import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from _common import counted, inferometer, parser, print_rows
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.simulator.metronome_process import MODEL, RunningMetronome, running_metronome

INTERVAL_S = 0.0054
FIRST_S = 0.05
TOKENS = 128  # in and out
NOT_VALID = 4  # exit code of a run with an invalid verdict, which is measured anyway
SHORT = 10  # requests of a run that is only start and summary
LEAST = 300_000  # events of the other runs
WORDS = 1000  # of the tokenizer, which the Rust client requires even if it sends token ids


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--binary", default=shutil.which("vllm-rs"), help="vllm-rs; else the one on the path")
    options.add_argument("--streams", type=int, nargs="+", default=[128, 512, 1024])
    options.add_argument(
        "--rounds", type=int, default=10, help="answers on each stream; 1024 x 10 are 1.3 million events"
    )
    options.add_argument("--turns", type=int, default=5)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_metronome(FIRST_S, INTERVAL_S) as metronome:
        place = Path(folder)
        keep_curve(curve_of([]), place / "store")  # otherwise the first run might calibrate
        write_tokenizer(place / "tokenizer")
        loads = [(2, SHORT), *((streams, requests_for(streams, chosen.rounds)) for streams in chosen.streams)]
        rows = [row(metronome, place, chosen.binary, *load, turns=chosen.turns) for load in loads]
    print_rows(rows, chosen.json)


def requests_for(streams: int, rounds: int) -> int:
    """The same number of answers per stream, and more if that makes fewer events than `LEAST`."""
    return streams * max(rounds, -(-LEAST // (streams * TOKENS)))


def row(
    metronome: RunningMetronome, place: Path, binary: str | None, streams: int, requests: int, turns: int
) -> dict[str, Any]:
    """Medians; the ratio is the median over turns, so that other work on the machine affects both alike."""
    ours_of = our_command(metronome.url, place, streams, requests)
    theirs_of = None if binary is None else their_command(metronome.url, place, binary, streams, requests)
    counted(ours_of, fine=(0, NOT_VALID))  # fills the page cache and the metronome's cache of events
    ours, theirs = [], []
    for _ in range(turns):
        if theirs_of is not None:
            theirs.append(counted(theirs_of))
        ours.append(counted(ours_of, fine=(0, NOT_VALID)))
        metronome.forget()
    ratios = [our.cpu_s / their.cpu_s for our, their in zip(ours, theirs, strict=False)]
    return {
        "streams": streams,
        "events": requests * TOKENS,
        "wall s": statistics.median(run.wall_s for run in ours),
        "cpu s": statistics.median(run.cpu_s for run in ours),
        "rust cpu s": statistics.median(run.cpu_s for run in theirs) if theirs else None,
        "ratio": statistics.median(ratios) if ratios else None,
        "least": min(ratios, default=None),
        "most": max(ratios, default=None),
    }


def our_command(url: str, place: Path, streams: int, requests: int) -> list[str]:
    flags = {"--url": url, "--concurrency": streams, "--requests": requests, "--store": place / "store"}
    flags |= {"--input-tokens": TOKENS, "--output-tokens": TOKENS}
    return inferometer("run", *(str(part) for flag in flags.items() for part in flag))


def their_command(url: str, place: Path, binary: str, streams: int, requests: int) -> list[str]:
    flags = {"--base-url": url, "--model": MODEL, "--tokenizer": place / "tokenizer", "--dataset-name": "random"}
    flags |= {"--random-input-len": TOKENS, "--random-output-len": TOKENS}
    flags |= {"--max-concurrency": streams, "--num-prompts": requests}
    parts = [str(part) for flag in flags.items() for part in flag]
    return [binary, "bench", "serve", *parts, "--prompt-token-ids", "--ignore-eos", "--disable-tqdm"]


def write_tokenizer(folder: Path) -> None:
    """Write a minimal tokenizer that the client accepts."""
    folder.mkdir()
    model = {"type": "WordLevel", "vocab": {f"w{number}": number for number in range(WORDS)}, "unk_token": "w0"}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    document = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(document | parts))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))


if __name__ == "__main__":
    main()
