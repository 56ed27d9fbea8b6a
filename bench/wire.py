"""The whole client with the metronome: CPU time per million events, and its timestamps compared with the truth.

python bench/wire.py [--streams 32 128 512 1024] [--quick] [--json]
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from _common import Finished, compiled_floor, counted, inferometer, parser, print_rows
from inferometer.conduct.instrument import ALLOWANCE_NS, curve_of, keep_curve
from inferometer.record.columns import Records
from inferometer.simulator.metronome_process import (
    ReadErrors,
    RunningMetronome,
    Truth,
    compare,
    quantile_s,
    running_metronome,
)
from inferometer.store.folder import load_run

INTERVAL_S = 0.0054  # 512 streams make 95,000 events/s, 1024 make 190,000
FIRST_S = 0.05
TOKENS = 200
ROUND_S = FIRST_S + TOKENS * INTERVAL_S
MOST_EVENTS = 2_048_000  # so that start and summary, about 1 s, have the same share as in a real run
MOST_S = 40.0
NOT_VALID = 4  # exit code of a run with an invalid verdict, which is measured anyway


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of the client, and the metronome's truth about it."""

    client: Finished
    records: Records
    truth: Truth


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--streams", type=int, nargs="+", default=[32, 128, 512, 1024])
    options.add_argument("--quick", action="store_true", help="a fifth of the events")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        floor = compiled_floor(Path(folder))
        rows = [row(streams, requests_for(streams, chosen.quick), floor, Path(folder)) for streams in chosen.streams]
    print_rows(rows, chosen.json)


def requests_for(streams: int, quick: bool) -> int:
    """Whole rounds of all streams, up to two million events or a number of seconds."""
    rounds = min(MOST_EVENTS // (streams * TOKENS), int(MOST_S / ROUND_S))
    return streams * max(rounds // 5 if quick else rounds, 1)


def row(streams: int, requests: int, floor: Path | None, folder: Path) -> dict[str, Any]:
    with running_metronome(FIRST_S, INTERVAL_S) as metronome:
        warm_up(metronome, folder)
        least = None if floor is None else floor_cpu_s(floor, metronome, streams, requests)
        metronome.forget()
        made = measured(metronome, streams, requests, folder)
    return numbers(streams, requests * TOKENS, least, made)


def warm_up(metronome: RunningMetronome, folder: Path) -> None:
    """Fill the page cache and the metronome's caches; not counted."""
    measured(metronome, 4, 8, folder)


def measured(metronome: RunningMetronome, streams: int, requests: int, folder: Path) -> Measured:
    """`inferometer run` from its start to its summary. Its first-run calibration is not what we measure."""
    store = Path(tempfile.mkdtemp(dir=folder))
    keep_curve(curve_of([]), store)
    flags = {"--url": metronome.url, "--concurrency": streams, "--requests": requests, "--output-tokens": TOKENS}
    flags |= {"--input-tokens": 16, "--store": store}
    words = [str(word) for flag in flags.items() for word in flag]
    client = counted(inferometer("run", *words, "--json"), fine=(0, NOT_VALID))
    (run,) = (store / "runs").iterdir()
    records = load_run(run).records
    assert records is not None
    return Measured(client, records, metronome.truth())


def numbers(streams: int, events: int, floor_cpu: float | None, made: Measured) -> dict[str, Any]:
    """One line of the table; times in milliseconds, errors as absolute values."""
    compared, million = compare(made.records, made.truth), events / 1e6
    return {
        "streams": streams,
        "events": events,
        "events/s": made.truth.events_per_s(),
        "cpu s/M": made.client.cpu_s / million,
        "floor s/M": None if floor_cpu is None else floor_cpu / million,
        "x floor": None if floor_cpu is None else made.client.cpu_s / floor_cpu,
        **errors(compared),
        **spans(made.records),
        "server late p99": ms(quantile_s(made.truth.lateness(), 0.99)),
        "stolen": made.client.stolen,
        "failed": len(made.records) - int(made.records.outcome.mask("ok").sum()) + compared.unmatched,
    }


def errors(compared: ReadErrors) -> dict[str, Any]:
    reads, inside = np.abs(compared.read_error), compared.inside(ALLOWANCE_NS)
    return {
        "ttft p99": ms(quantile_s(compared.request_ttft, 0.99)),
        "true p99": ms(quantile_s(compared.request_true_ttft, 0.99)),
        "ttft err p99": ms(quantile_s(np.abs(compared.request_error), 0.99)),
        "read err p50": ms(quantile_s(reads, 0.5)),
        "p99": ms(quantile_s(reads, 0.99)),
        "max": ms(quantile_s(reads, 1.0)),
        "inside": float(inside.mean()) if len(inside) else None,
        "exact": float((compared.slack == 0).mean()) if len(inside) else None,
    }


def spans(records: Records) -> dict[str, Any]:
    """The uncertainty of inexact reads, and of the first reads among them."""
    first = records.read_slack[records.read_offsets[:-1][records.read_counts() > 0]]
    uncertain, first = (slack[slack > 0] for slack in (records.read_slack, first))
    return {
        "slack p50": ms(quantile_s(uncertain, 0.5)),
        "slack p99": ms(quantile_s(uncertain, 0.99)),
        "first slack p99": ms(quantile_s(first, 0.99)),
    }


def ms(value_s: float | None) -> float | None:
    return None if value_s is None else value_s * 1e3


def floor_cpu_s(program: Path, metronome: RunningMetronome, streams: int, requests: int) -> float:
    said = counted([str(program), *map(str, (metronome.port, streams, requests, TOKENS))])
    return float(json.loads(said.output)["cpu_s"])


if __name__ == "__main__":
    main()
