"""How often `check` raises an alarm: checks every run of generated histories in order. Prints the table of
docs/concepts/comparing.md: python bench/checks.py"""

from datetime import UTC, datetime, timedelta

import numpy as np

from inferometer.judge.check import check
from inferometer.plan.stored import StoredPlan
from inferometer.record.encoding import summary_from
from inferometer.record.environment import Environment
from inferometer.record.run import Run
from inferometer.record.verdict import Verdict

SERIES, RUNS, FIRST, AT, CV = 20, 100, 20, 60, 0.01
START = datetime(2026, 1, 1, tzinfo=UTC)


def levels() -> dict[str, np.ndarray]:
    time = np.arange(RUNS)
    return {
        "nothing": np.ones(RUNS),
        "5% worse": 1 + 0.05 * (time >= AT),
        "2% worse": 1 + 0.02 * (time >= AT),
        "5% better": 1 - 0.05 * (time >= AT),
        "one run 10% worse": 1 + 0.1 * (time == AT),
        "drift of 0.05% a run": 1 + 0.0005 * time,
    }


def history(tpot_s: list[float]) -> list[Run]:
    return [
        Run(
            id=str(number),
            started_at=(START + timedelta(days=number)).isoformat(),
            plan=StoredPlan({}),
            environment=Environment(),
            summary=summary_from({"loop": "closed", "measures": {"tpot": {"mean": value}}}),
            verdict=Verdict(status="valid"),
        )
        for number, value in enumerate(tpot_s)
    ]


def alarms(level: np.ndarray, draw: np.random.Generator) -> list[bool]:
    line = history((0.02 * level * draw.normal(1, CV, RUNS)).tolist())
    return [check(line[:at], line[at]).status == "worse" for at in range(FIRST, RUNS)]


def main() -> None:
    draw = np.random.default_rng(20261115)
    print("| what happens at run 60 | alarms before it | alarms from then on | first one after, median |")
    print("|---|---|---|---|")
    for name, level in levels().items():
        raised = np.array([alarms(level, draw) for _ in range(SERIES)])
        before, after = raised[:, : AT - FIRST], raised[:, AT - FIRST :]
        first = [int(row.argmax()) for row in after if row.any()]
        delay = f"{np.median(first):.0f} runs, in {len(first)} of {SERIES} series" if first else "-"
        print(f"| {name} | {before.sum()} of {before.size} | {after.sum()} of {after.size} | {delay} |", flush=True)


if __name__ == "__main__":
    main()
