"""Conducts comparisons and checks: finds the requested runs and their history, and calls `judge`.

Only this module decides which runs count as repeats, as history or as accepted.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from inferometer.errors import StoreError
from inferometer.judge.changes import MAGNITUDE, MAX_P
from inferometer.judge.check import check, check_against, confirm
from inferometer.judge.check_result import CheckResult
from inferometer.judge.compare import Comparison, compare
from inferometer.judge.effect import ALPHA, ENOUGH_DOF, MARGIN
from inferometer.judge.evidence import RunSpread, learned_spread
from inferometer.judge.identity import identity
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.run import Run
from inferometer.store.entry import Entry, utc_text
from inferometer.store.query import Condition
from inferometer.store.store import Place, Store, open_store

ACCEPTED = "accepted"  # tag of a run from which on the level is as it should be
MOST_HISTORY = 200  # runs; the baseline uses the last 50
MOST_LEARNED = 500  # runs of other histories, from which the spread between runs is learned
LEARNED = ("ttft.p50", "ttft.p99", "tpot.mean", "e2e.p50", "output_rate", "request_rate")

MeasurePlan = Callable[[Plan], Run]  # makes a confirming run


def runs_named(names: str, store: Place = None) -> list[Run]:
    """`a1,a2,a3`: each a run, a tag (all runs with it), or `baseline:NAME`."""
    place = open_store(store)
    parts = [part.strip() for part in names.split(",") if part.strip()]
    if not parts:
        raise StoreError(f"no run in {names!r}", "name an id, a tag, or a comma-separated list")
    runs = {run.id: run for part in parts for run in _named(part, place)}
    return list(runs.values())


def _named(name: str, store: Store) -> list[Run]:
    if name == "baseline" or name.startswith("baseline:"):
        return [_baseline(name.partition(":")[2], store)]
    group = [] if "/" in name else store.runs(tag=name)
    if not group:
        return [store.load(name)]
    return [store.load(entry.id) for entry in reversed(group)]


def _baseline(name: str, store: Store) -> Run:
    """The baseline with this name; without a name, the only one."""
    known = store.baselines()
    if not name and len(known) == 1:
        name = next(iter(known))
    elif not name and known and "main" not in known:
        raise StoreError(f"there are {len(known)} baselines: {', '.join(sorted(known))}", "name one: baseline:NAME")
    return store.load(store.baseline(name or "main").id)


def history_of(run: Run, store: Place = None, *, most: int = MOST_HISTORY) -> list[Run]:
    """Earlier valid runs of the same identity, oldest first, without those that cannot be read."""
    place = open_store(store)
    until = [Condition("started", "<=", run.started_at)] if run.started_at else []
    entries = place.runs(most + 1, where=until, sort="-started", identity=identity(run))
    fine = [entry for entry in entries if entry.id != run.id and entry.state in ("complete", "interrupted")]
    return _readable([entry for entry in reversed(fine) if entry.verdict != "invalid"], place)[-most:]


def _readable(entries: Sequence[Entry], store: Store) -> list[Run]:
    runs = []
    for entry in entries:
        with suppress(StoreError):  # on another machine, or just deleted
            runs.append(store.load(entry.id))
    return [run for run in runs if run.verdict is not None]


def repeats_of(run: Run, store: Place = None) -> list[Run]:
    """The run and all other valid runs of its identity, versions and commit."""
    place, axes = open_store(store), identity(run).axes
    entries = [
        other for other in place.history(identity(run)) if other.state == "complete" and other.verdict != "invalid"
    ]
    same = {other.id: other for other in _readable(entries, place) if identity(other).axes == axes}
    return list((same | {run.id: run}).values())


def compare_runs(
    before: str,
    after: str,
    store: Place = None,
    *,
    measures: Sequence[str] = (),
    every: bool = False,
    repeats: bool = False,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    assume_spread: float | None = None,
) -> Comparison:
    """What `inferometer compare` does: the sides by name, with the spread of earlier runs."""
    place = open_store(store)
    sides = [runs_named(side, place) for side in (before, after)]
    if repeats:
        sides = [list({one.id: one for run in side for one in repeats_of(run, place)}.values()) for side in sides]
    return compare_sides(
        sides[0],
        sides[1],
        place,
        measures=measures,
        every=every,
        alpha=alpha,
        margin=margin,
        assume_spread=assume_spread,
    )


def compare_sides(
    before: Sequence[Run],
    after: Sequence[Run],
    store: Place = None,
    *,
    measures: Sequence[str] = (),
    every: bool = False,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    assume_spread: float | None = None,
) -> Comparison:
    """The comparison of stored runs used in terminal, pages and reports. If the sides have too few runs to show the
    spread between runs, it comes from earlier runs, or is assumed."""
    few = len(before) + len(after) - 2 < ENOUGH_DOF
    past = history_of(_newest(before), store) if few else []
    return compare(
        before,
        after,
        history=past,
        measures=measures,
        every=every,
        alpha=alpha,
        margin=margin,
        spread=assumed_spread(before[0], open_store(store), assume_spread) if few else None,
    )


def assumed_spread(run: Run, store: Store, wanted: float | None = None) -> RunSpread:
    """The spread between runs to assume if these do not show it: as given, else from the other histories in this store,
    else by a rule of thumb. Tails differ twice as much."""
    if wanted is not None:
        return RunSpread(wanted, 2 * wanted)
    own, lines = identity(run).key, defaultdict[str, list[Mapping[str, float]]](list)
    for entry in store.runs(MOST_LEARNED, sort="-started", numbers=LEARNED):
        if entry.state == "complete" and entry.verdict != "invalid" and entry.identity not in (None, own):
            lines[str(entry.identity)].append(entry.values)
    return learned_spread(line[::-1] for line in lines.values())


def _newest(runs: Sequence[Run]) -> Run:
    return max(runs, key=lambda run: utc_text(run.started_at))


def check_run(
    wanted: str,
    store: Place = None,
    *,
    against: str = "history",
    measures: Sequence[str] = (),
    p_value: float | None = None,
    magnitude: float = MAGNITUDE,
    again: MeasurePlan | None = None,
    plan: Plan | None = None,
    assume_spread: float | None = None,
) -> CheckResult:
    """What `inferometer check` does. With `again` a run that looks worse is repeated, with `plan` or its own plan, and
    only counts as worse if both are. Default for `p_value`: 0.001 against history, 0.05 against named runs."""
    place = open_store(store)
    run = place.load(wanted)
    spread = assumed_spread(run, place, assume_spread)
    result = _checked(run, place, against, measures, p_value, magnitude, again is not None, spread)
    if again is None or result.status != "worse":
        return result
    second = again(plan or plan_from(run.plan, where=run.id))
    return confirm(result, _checked(second, place, against, measures, p_value, magnitude, True, spread, but=run))


def _checked(
    run: Run,
    store: Store,
    against: str,
    measures: Sequence[str],
    p_value: float | None,
    magnitude: float,
    twice: bool,
    spread: RunSpread,
    but: Run | None = None,
) -> CheckResult:
    """`but` is a run to exclude from the history: the one that this run confirms. If two runs have to agree (`twice`),
    a history is tested at a level at which both together meet the required level."""
    past = [old for old in history_of(run, store) if but is None or old.id != but.id]
    if against == "history":
        level = MAX_P if p_value is None else p_value
        look = level**0.5 if twice else level
        options = {"measures": measures, "p_value": level, "magnitude": magnitude, "first_look": look, "spread": spread}
        return check(past, run, accepted=accepted_runs(store), **options)  # type: ignore[arg-type]
    pinned = runs_named(against, store)
    level = ALPHA if p_value is None else p_value
    comparison = compare(pinned, [run], history=past, measures=measures, alpha=level, spread=spread)
    return check_against(comparison, run, against, magnitude)


def accepted_runs(store: Place = None) -> set[str]:
    """Runs that were accepted, and those marked as a baseline."""
    place = open_store(store)
    return {entry.id for entry in place.runs(tag=ACCEPTED)} | set(place.baselines().values())


def accept(wanted: str, store: Place = None) -> str:
    """Mark the level from this run on as accepted; returns its id."""
    return open_store(store).tag(wanted, [ACCEPTED]).id
