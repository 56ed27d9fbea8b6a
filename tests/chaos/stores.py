"""Kind 3: damaged stores. One member of a small store is damaged; every command must still work for the others."""

import json
import shutil
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Any

from .batch import Batch
from .commands import Ended, Ground
from .generators import generator, missing_generator
from .trial import DOCUMENTED, Attempt, Trial

DAMAGES = 4  # of one attempt
SITE_EVERY = 4  # the site takes as long as all other commands together


def attempts(ground: Ground, seed: int) -> Iterator[Attempt]:
    """Without the generator there is one attempt, which fails and says so."""
    try:
        stores = generator("damaged_stores")
        whole = stores.small_store(ground.folder("whole") / "store")
    except Exception as error:
        yield partial(missing_generator, "tests/damaged_stores.py", error)
        return
    first = 0
    while True:
        yield partial(attempt, ground, whole, stores, seed, first)
        first += DAMAGES


def attempt(ground: Ground, whole: Any, stores: Any, seed: int, first: int) -> Trial:
    trial = Trial(f"damages {first} to {first + DAMAGES - 1}", tried=DAMAGES)
    with Batch(ground) as batch:
        for number, damage in enumerate(list(stores.damages(first + DAMAGES, seed))[first:]):
            folder = ground.folder("damaged")
            store = whole.copy(folder / "store")
            text = damage.apply(store)
            part = Trial(text)
            judge_store(part, batch, store, text, folder, with_site=number % SITE_EVERY == 0)
            trial.add(part)
            shutil.rmtree(folder, ignore_errors=True)
    return trial


def judge_store(trial: Trial, batch: Batch, store: Any, damage: str, out: Path, with_site: bool) -> None:
    """Reading commands: what concerns the healthy runs works; what concerns the damaged one says what is wrong."""
    # a broken index may be refused with a remedy, a broken run may not
    fine = {0, 2} if damage.startswith("index") else {0}
    first, second, *_ = store.healthy
    commands: list[tuple[list[str], AbstractSet[int]]] = [
        (["list", "--json"], fine),
        *((["show", run, "--json"], fine) for run in store.healthy),
        *((["show", run, "--json"], DOCUMENTED) for run in store.victims),
        (["compare", first, second], DOCUMENTED - {2} | fine),
        (["report", first, second, "-o", str(out / "report.html")], DOCUMENTED - {2} | fine),
        (["store", "reindex"], DOCUMENTED),
        (["list", "--json"], fine),
    ]
    if with_site:
        commands.append((["site", "-o", str(out / "site"), "--charts", "0"], DOCUMENTED))
    for words, allowed in commands:
        ended = batch.run(*words, "--store", str(store.folder))
        trial.judge(ended, allowed)
        if ended.hung:
            return  # the others would hang too, for as long
        if words[0] == "list" and ended.code == 0:
            missing = set(store.healthy) - _ids(trial, ended)
            trial.miss(len(missing), f"list does not show {', '.join(sorted(missing))}")
        elif words[0] == "show" and words[1] in store.healthy:
            trial.miss(ended.code not in fine, f"{words[1]} cannot be shown")


def _ids(trial: Trial, listed: Ended) -> set[str]:
    try:
        return {run["id"] for run in json.loads(listed.out)["runs"]}
    except (ValueError, KeyError, TypeError) as error:
        trial.faults.append(f"list --json printed something else: {error}")
        return set()
