"""Kind 3: damaged stores. One member of a small store is damaged; every command must still work for the others."""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from inferometer.cli.mistakes import EXIT_CODES

from .batch import Batch
from .commands import Ended, Ground
from .generators import generator
from .trial import Attempt, Trial

DAMAGES = 8  # of one attempt
DOCUMENTED = set(EXIT_CODES) - {70}


def attempts(ground: Ground, seed: int) -> Iterator[Attempt]:
    """Without the generator there is one attempt, which fails and says so."""
    try:
        stores = generator("damaged_stores")
        whole = stores.small_store(ground.folder("whole") / "store")
    except Exception as error:
        message = f"tests/damaged_stores.py: {type(error).__name__}: {error}"
        yield lambda: Trial("the generator of damaged stores", [message])
        return
    first = 0
    while True:
        yield partial(attempt, ground, whole, stores, seed, first)
        first += DAMAGES


def attempt(ground: Ground, whole: Any, stores: Any, seed: int, first: int) -> Trial:
    trial = Trial(f"damages {first} to {first + DAMAGES - 1}", tried=0)
    with Batch(ground) as batch:
        for damage in list(stores.damages(first + DAMAGES, seed))[first:]:
            folder = ground.folder("damaged")
            store = whole.copy(folder / "store")
            text = damage.apply(store)
            part = Trial(text)
            judge_store(part, batch, store, text, folder)
            _add(trial, part)
            shutil.rmtree(folder, ignore_errors=True)
    return trial


def judge_store(trial: Trial, batch: Batch, store: Any, damage: str, out: Path) -> None:
    """Reading commands: what concerns the healthy runs works; what concerns the damaged one says what is wrong."""
    place = ["--store", str(store.folder)]
    index_damaged = damage.startswith("index")
    fine = {0, 2} if index_damaged else {0}  # a broken index may be refused with a remedy, a broken run may not
    listed = batch.run("list", "--json", *place)
    trial.judge(listed, fine)
    if listed.code == 0:
        missing = set(store.healthy) - _ids(trial, listed)
        trial.miss(len(missing), f"list does not show {', '.join(sorted(missing))}")
    for run in store.healthy:
        shown = batch.run("show", run, "--json", *place)
        trial.judge(shown, fine)
        trial.miss(shown.code not in fine, f"{run} cannot be shown")
    for run in store.victims:
        trial.judge(batch.run("show", run, "--json", *place), DOCUMENTED)
    first, second, *_ = store.healthy
    trial.judge(batch.run("compare", first, second, *place), DOCUMENTED - {2} | fine)
    trial.judge(batch.run("report", first, second, "-o", str(out / "report.html"), *place), DOCUMENTED - {2} | fine)
    trial.judge(batch.run("site", "-o", str(out / "site"), "--charts", "0", *place), DOCUMENTED)
    trial.judge(batch.run("store", "reindex", *place), DOCUMENTED)
    again = batch.run("list", "--json", *place)
    trial.judge(again, fine)
    if again.code == 0:
        missing = set(store.healthy) - _ids(trial, again)
        trial.miss(len(missing), f"after reindex list does not show {', '.join(sorted(missing))}")


def _ids(trial: Trial, listed: Ended) -> set[str]:
    try:
        return {run["id"] for run in json.loads(listed.out)["runs"]}
    except (ValueError, KeyError, TypeError) as error:
        trial.faults.append(f"list --json printed something else: {error}")
        return set()


def _add(trial: Trial, part: Trial) -> None:
    trial.tried += part.tried
    for name in ("exit_70", "hung", "lost", "left_running"):
        setattr(trial, name, getattr(trial, name) + getattr(part, name))
    trial.peak_rss_mb = max(trial.peak_rss_mb, part.peak_rss_mb)
    trial.faults += [f"{part.name}: {fault}" for fault in part.faults]
