"""Routing strategies on a fleet in virtual time: the published comparisons, when their results change, and a map of the
best policy by load and share of the common prefix. Every strategy gets the same tape; differences are computed per
seed.

python bench/routing.py [published] [turns] [map] [llm-d] [sglang] [control] [--seeds 10] [--processes 1]
                        [--only REGEX] [--out routing.jsonl] [--map map.png] [--json]

Finished jobs are lines of the file given by --out; a second call with the same file does only what is missing.
"""

import json
import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from _common import parser
from _routing_scenarios import SCENARIOS, Cell
from inferometer.judge.compare import paired_change, winner
from inferometer.measure.inputs import Answers
from inferometer.measure.registry import request_values
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.columns import Records
from inferometer.router.virtual import rehearse_fleet
from inferometer.show.charts.comparisons import map_row, map_view
from inferometer.show.charts.registry import render_png, render_svg

SERVED_S = 30.0
Job = dict[str, Any]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("scenarios", nargs="*", choices=[[], *SCENARIOS], help="default: all of them")
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--only", default="", help="of all jobs those whose cell and strategy match this expression")
    options.add_argument("--map", type=Path, help="draw the map into this file: .png, .svg (extra charts) or .json")
    options.add_argument("--out", type=Path, default=Path("routing.jsonl"), help="where finished jobs are kept")
    chosen = options.parse_args()
    names = chosen.scenarios or list(SCENARIOS)
    done = _read(chosen.out)
    wanted = [job for name in names for job in _jobs(name, chosen.seeds) if re.search(chosen.only, _key(job))]
    jobs = [job for job in wanted if _key(job) not in done]
    with chosen.out.open("a") as kept:
        for result in _results(jobs, chosen.processes):
            kept.write(json.dumps(result) + "\n")
            kept.flush()
            done[_key(result)] = result
    tables = {name: list(_rows(name, done, chosen.seeds)) for name in names}
    if chosen.json:
        print(json.dumps(tables, indent=1))
    else:
        print("\n\n".join(f"## {name}\n\n{markdown(rows)}" for name, rows in tables.items()))
    if chosen.map is not None:
        write_map(done, chosen.seeds, chosen.map)


def markdown(rows: list[dict[str, Any]]) -> str:
    """One line per cell and strategy; --json has the numbers of single seeds."""
    shown = [{name: value for name, value in row.items() if name != "values"} for row in rows]
    heads = list(dict.fromkeys(name for row in shown for name in row))
    lines = [heads, ["---"] * len(heads), *([str(row.get(name, "")) for name in heads] for row in shown)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_map(done: dict[str, Job], seeds: int, file: Path) -> None:
    """The map as a picture (.png, .svg) or as a Vega-Lite specification (.json)."""
    cells = list(SCENARIOS["map"]())
    rows = []
    for cell in cells:
        numbers = {label: _numbers("map", cell, label, done, seeds) for label, _, _ in cell.strategies}
        ttft = {label: values["ttft_scheduled_mean_ms"] for label, values in numbers.items() if values}
        if len(ttft) > 1:
            rows.append(map_row((cell.cell["rate"], cell.cell["share"]), ttft))
    spec = map_view(
        rows, ("requests/s, four replicas", "share of a prompt that its group has in common"), "lowest mean TTFT"
    )
    if file.suffix == ".json":
        file.write_text(json.dumps(spec, indent=1))
    else:
        file.write_bytes(render_png(spec) if file.suffix == ".png" else render_svg(spec).encode())


def _jobs(scenario: str, seeds: int) -> Iterator[Job]:
    """The jobs: all strategies with one seed, then with the next."""
    for cell in SCENARIOS[scenario]():
        for seed in range(seeds):
            for label, policy, settings in cell.strategies:
                yield {"scenario": scenario, "cell": cell.cell, "strategy": label, "seed": seed} | {
                    "plan": plan_of(cell, policy, settings, seed)
                }


def plan_of(cell: Cell, policy: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    server = {**cell.plan["server"], "router": {"policy": policy, "settings": settings}}
    return {**cell.plan, "server": server, "seed": seed}


def _key(job: Job) -> str:
    return json.dumps([job[name] for name in ("scenario", "cell", "strategy", "seed")], sort_keys=True)


def _read(file: Path) -> dict[str, Job]:
    lines = file.read_text().splitlines() if file.exists() else []
    return {_key(result): result for result in map(json.loads, lines)}


def _results(jobs: list[Job], processes: int) -> Iterator[Job]:
    if processes == 1:
        yield from map(measured, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(measured, jobs, chunksize=1)


def measured(job: Job) -> Job:
    """The numbers of one run in virtual time."""
    began = time.process_time()
    plan = plan_from(job["plan"])
    done = rehearse_fleet(plan)
    totals = done.journal.totals(plan.warmup.requests)
    numbers = numbers_of(done.records, plan) | {
        "match_rate": totals.match_rate,
        "regret_tokens": totals.regret_tokens,
        "of_best_cache": totals.best_share,
    }
    kinds = {"kinds": totals.kinds, "cpu_s": time.process_time() - began, "requests": sum(totals.kinds.values())}
    return {name: job[name] for name in ("scenario", "cell", "strategy", "seed")} | {"numbers": numbers} | kinds


def numbers_of(records: Records, plan: Plan) -> dict[str, float]:
    """The numbers of the requests after the warm-up, in virtual or real time."""
    kept = (records.session >= plan.warmup.requests) & (records.sent_at > 0)
    answers = Answers.of(records)
    series = {
        name: request_values(name, answers)[kept] for name in ("ttft", "ttft_scheduled", "tpot", "e2e", "e2e_scheduled")
    }
    times = {
        f"{name}_{stat}_ms": _statistic(values, stat)
        for name, values in series.items()
        for stat in ("mean", "p50", "p90", "p99")
    }
    duration_s = float(records.ended_at[kept].max() - records.sent_at[kept].min()) / 1e9
    output = records.output_tokens[kept]
    requests = Counter(records.replica[int(at)] for at in np.flatnonzero(kept))
    replicas = plan.server.replicas if plan.server is not None and plan.server.replicas else 1
    return {
        **times,
        "duration_s": duration_s,
        "request_rate": len(output) / duration_s,
        "output_rate": float(output[output > 0].sum()) / duration_s,
        "hit_rate": float(records.cached_tokens[kept].sum() / records.input_tokens[kept].sum()),
        "served": float(np.mean(series["e2e_scheduled"] <= SERVED_S)),
        "busiest": max(requests.values()) * replicas / sum(requests.values()),  # requests of it by the mean
    }


def _statistic(values: Any, name: str) -> float:
    known = values[np.isfinite(values)]
    value = known.mean() if name == "mean" else np.quantile(known, int(name[1:]) / 100)
    return float(value) * 1e3


SHOWN = ("ttft_mean_ms", "tpot_mean_ms", "e2e_mean_ms", "duration_s", "hit_rate", "regret_tokens", "busiest")
CHANGES = ("ttft_mean_ms", "e2e_mean_ms", "duration_s")
MORE = {
    "llm-d": ("ttft_p90_ms", "output_rate"),
    "sglang": ("output_rate",),
    "control": ("served", "ttft_p90_ms"),
}


def _rows(scenario: str, done: dict[str, Job], seeds: int) -> Iterator[dict[str, Any]]:
    """Means over the seeds, and changes relative to the first strategy of the cell with intervals; strategies with a
    missing seed are skipped."""
    for cell in SCENARIOS[scenario]():
        every = {label: _numbers(scenario, cell, label, done, seeds) for label, _, _ in cell.strategies}
        numbers = {label: values for label, values in every.items() if values}
        if not numbers:
            continue
        first = next(iter(numbers.values()))
        best = str(winner({label: values["ttft_mean_ms"] for label, values in numbers.items()}))
        for label, values in numbers.items():
            row: dict[str, Any] = {"scenario": scenario, **cell.cell, "strategy": label}
            row |= {name: round(float(np.mean(values[name])), 3) for name in (*SHOWN, *MORE.get(scenario, ()))}
            if values is not first:
                row |= {f"{name} change": str(paired_change(first[name], values[name])) for name in CHANGES}
            yield row | {"lowest TTFT": best if values is first else "", "values": values}


def _numbers(scenario: str, cell: Cell, label: str, done: dict[str, Job], seeds: int) -> dict[str, list[float]]:
    keys = [_key({"scenario": scenario, "cell": cell.cell, "strategy": label, "seed": seed}) for seed in range(seeds)]
    if any(key not in done for key in keys):
        return {}
    results = [done[key]["numbers"] for key in keys]
    return {name: [numbers[name] for numbers in results] for name in results[0]}


if __name__ == "__main__":
    main()
