"""Load time of pages over a large store: each response of the server alone, and each page in Chromium until its content
(and its first chart, if it has charts) is visible, and until every chart in the window is drawn. The runs are simulated
in virtual time and stored repeatedly with numbers that vary by a few percent: 60 lines of history, one sweep of 24
cases.

python bench/dashboard.py [--runs 2000 10000] [--json]
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import urlopen

from msgspec import structs

import inferometer
from _common import HERE, parser, print_rows
from inferometer.documents.document import JsonObject
from inferometer.record.encoding import environment_from
from inferometer.record.run import Run
from inferometer.record.summary import MeasureSummary, Rate, Summary
from inferometer.store.experiments import SweepDefinition, SweepResult, new_experiment
from inferometer.store.save import keep
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import Store, open_store

sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "tests" / "browser")]

MODELS = ("Llama-3.1-8B", "Llama-3.3-70B", "Qwen3-32B", "Mistral-7B", "gemma-3-27b")
WORKLOADS = ((256, 64), (512, 128), (1000, 200), (2000, 200))
RATES = (2, 5, 10)
CASES = 24
DRAWN = "document.querySelector('figure.chart[data-drawn]')"
ALL_DRAWN = """Array.from(document.querySelectorAll('figure.chart')).every(figure => figure.dataset.drawn
  || figure.getBoundingClientRect().top > innerHeight || figure.getBoundingClientRect().bottom < 0)"""
TIMES = 5


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, nargs="+", default=[2000, 10_000])
    chosen = options.parse_args()
    rows: list[dict[str, Any]] = []
    for number in chosen.runs:
        with tempfile.TemporaryDirectory() as place:
            store = filled(Path(place) / "store", number)
            for row in measured(store):
                rows.append({"runs": number} | row)
                print(f"{number:,} runs, {row['page']}: {row['page s']:.2f} s", file=sys.stderr, flush=True)
    print_rows(rows, chosen.json)


# -- the store -------------------------------------------------------------------------------------------------------


def filled(home: Path, number: int) -> Store:
    store, draw = open_store(home), Random(22)
    lines = [
        (model, _simulated(inputs, outputs, rate))
        for inputs, outputs in WORKLOADS
        for rate in RATES
        for model in MODELS
    ]
    start = datetime.now(UTC) - timedelta(hours=number)
    with store.batch():
        for at in range(number - CASES):
            model, run = lines[at % len(lines)]
            _keep(store, run, model, draw, start + timedelta(hours=at))
        folder = new_experiment(store.home, "sweep", "rate and input length", SweepDefinition())
        for at in range(CASES):
            model, run = lines[len(MODELS) * (at % (len(lines) // len(MODELS)))]
            kept = _keep(store, run, model, draw, start + timedelta(hours=number, seconds=at))
            plan = run.plan
            settings = {
                "load.rate": plan.section("load")["rate"],
                "workload.input_tokens": plan.section("workload")["input_tokens"],
            }
            store.set_case(kept.id, folder.id, f"case {at}")
            folder.add(ExperimentCase(name=f"case {at}", parameters=settings, run=kept.id))
        folder.finish(SweepResult(cases={"complete": CASES}))
    model, run = lines[0]
    _keep(store, run, model, draw, start + timedelta(hours=number, minutes=5), records=run.records)
    return store


def _simulated(inputs: int, outputs: int, rate: float, _made: dict[tuple[int, int, float], Run] = {}) -> Run:  # noqa: B006
    key = (inputs, outputs, rate)
    if key not in _made:
        lengths = {"input_tokens": inputs, "output_tokens": outputs}
        _made[key] = inferometer.simulate(rate=rate, duration="60s", seed=22, **lengths)  # type: ignore[arg-type]
    return _made[key]


def _keep(store: Store, run: Run, model: str, draw: Random, started: datetime, records: Any = None) -> Run:
    about: JsonObject = {
        "model": model,
        "target": {"server": "vLLM", "version": "0.24.0", "model": model, "urls": ["http://10.0.0.7:8000"]},
        "gpus": [{"name": "NVIDIA H200"}],
        "git": {"commit": f"{started:%Y%m%d%H}".ljust(40, "0")},
    }
    assert run.verdict is not None
    return keep(
        store,
        kind="serving",
        plan=run.plan,
        environment=environment_from(about),
        summary=_varied(run.summary, draw.gauss(1, 0.02)),
        verdict=run.verdict,
        started=started,
        source=None if records is not None else "bench",  # runs of other tools are not synced to disk
        records=records,
    )


def _varied(summary: Summary, factor: float) -> Summary:
    return structs.replace(
        summary,
        measures={name: _scaled(measure, factor) for name, measure in summary.measures.items()},
        rates={name: _rate(rate, factor) for name, rate in summary.rates.items()},
    )


def _scaled(measure: MeasureSummary, factor: float) -> MeasureSummary:
    varied = {name: None if value is None else value * factor for name, value in measure.statistics.items()}
    return structs.replace(measure, statistics=varied)


def _rate(rate: Rate, factor: float) -> Rate:
    return structs.replace(rate, value=None if rate.value is None else rate.value / factor)


# -- measuring -------------------------------------------------------------------------------------------------------


def measured(store: Store) -> Iterator[dict[str, Any]]:
    import chrome

    from dashboards import dashboard

    with dashboard(store.home) as address, chrome.chromium() as browser:
        for name, page, api, there in pages_of(store):
            answers = [_answer_s(f"{address}api/{api}") for _ in range(TIMES + 1)]
            shown, whole = [], []
            for _ in range(TIMES):
                with browser.tab() as tab:
                    tab.size(1280)
                    began = time.perf_counter()
                    _show(tab, address + page, there)
                    shown.append(time.perf_counter() - began)
                    tab.wait(ALL_DRAWN)
                    whole.append(time.perf_counter() - began)
            yield {
                "page": name,
                "first answer s": answers[0],
                "answer s": statistics.median(answers[1:]),
                "page s": statistics.median(shown),
                "slowest page s": max(shown),
                "all charts in the window s": statistics.median(whole) if there == DRAWN else None,
                "load of the machine": os.getloadavg()[0],
            }


def pages_of(store: Store) -> list[tuple[str, str, str, str]]:
    """Name, address of the page and of its data, and the selector that appears when it is readable."""
    from inferometer.conduct.report import answers_of

    answers = answers_of(store.home)
    family = max(answers.families(), key=lambda family: family.runs).id
    newest = [entry.id for entry in store.runs(limit=40) if entry.experiment is None]
    sweep = answers.experiments().experiments[0].id
    one, two = newest[0], newest[1]
    last = sum(1 for entry in store.runs() if entry.experiment is None) // 50 * 50 - 50
    rows = "document.querySelector('main table tbody tr')"
    where = "where=ttft.p99%20%3C%20500ms&sort=-output_rate"
    return [
        ("overview", "", "overview", rows),
        ("runs", "runs.html", "runs?limit=50", rows),
        ("runs, filtered and sorted", f"runs.html?{where}", f"runs?limit=50&{where}", rows),
        ("runs, the last page", f"runs.html?offset={last}", f"runs?limit=50&offset={last}", rows),
        ("run", f"run.html?id={one}", f"runs/{one}", DRAWN),
        ("histories", "history.html", "histories", "document.querySelector('main ul.list a')"),
        ("history", f"history.html?family={family}", f"histories/{family}", DRAWN),
        ("explore", "explore.html", "explore", DRAWN),
        ("compare", f"compare.html?before={two}&after={one}", f"compare?before={two}&after={one}", DRAWN),
        ("experiments", "experiments.html", "experiments", "document.querySelector('main ul.list a')"),
        ("sweep of 24 cases", f"experiment.html?id={sweep}", f"experiments/{sweep}", DRAWN),
    ]


def _answer_s(address: str) -> float:
    began = time.perf_counter()
    with urlopen(address) as answer:
        answer.read()
    return time.perf_counter() - began


def _show(tab: Any, address: str, there: str) -> None:
    tab.open(address)
    if there == DRAWN:  # also below the visible window
        tab.wait("document.querySelector('figure.chart')")
        tab.run("document.querySelector('figure.chart').scrollIntoView()")
    tab.wait(there)


if __name__ == "__main__":
    main()
