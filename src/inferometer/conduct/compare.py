"""The conductor of comparisons and checks: finds the runs that are meant and their history, and asks `judge`.

Which runs count as repeats, as history or as accepted is decided here and nowhere else.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from inferometer.errors import StoreError
from inferometer.judge.changes import MAGNITUDE, MAX_P
from inferometer.judge.check import check, check_against, confirm
from inferometer.judge.check_result import CheckResult
from inferometer.judge.compare import Comparison, compare
from inferometer.judge.effect import ALPHA, MARGIN
from inferometer.judge.identity import identity
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.run import Run
from inferometer.store.entry import Entry, utc_text
from inferometer.store.query import Condition
from inferometer.store.store import Place, Store, open_store

ACCEPTED = "accepted"  # the tag of a run from which on things are as they should be
MOST_HISTORY = 200  # runs; the baseline is made of the last 50

Measure = Callable[[Plan], Run]  # how a confirming run is made


def runs_named(said: str, store: Place = None) -> list[Run]:
    """`a1,a2,a3`: each a run, a tag (all runs that have it), or `baseline:NAME`."""
    place = open_store(store)
    parts = [part.strip() for part in said.split(",") if part.strip()]
    if not parts:
        raise StoreError(f"no run in {said!r}", "write an id, a tag, or several with commas between them")
    found = {run.id: run for part in parts for run in _named(part, place)}
    return list(found.values())


def _named(said: str, store: Store) -> list[Run]:
    if said == "baseline" or said.startswith("baseline:"):
        return [_baseline(said.partition(":")[2], store)]
    group = [] if "/" in said else store.runs(tag=said)
    if not group:
        return [store.load(said)]
    return [store.load(entry.id) for entry in reversed(group)]


def _baseline(name: str, store: Store) -> Run:
    """By its name; without one, the only one there is."""
    known = store.baselines()
    if not name and len(known) == 1:
        name = next(iter(known))
    elif not name and known and "main" not in known:
        raise StoreError(f"there are {len(known)} baselines: {', '.join(sorted(known))}", "say which: baseline:NAME")
    return store.load(store.baseline(name or "main").id)


def history_of(run: Run, store: Place = None, *, most: int = MOST_HISTORY) -> list[Run]:
    """Measurements of the same identity that were made before this one, the oldest first; those that are not valid or
    cannot be read are not among them."""
    place = open_store(store)
    until = [Condition("started", "<=", run.started_at)] if run.started_at else []
    entries = place.runs(most + 1, where=until, sort="-started", identity=identity(run))
    fine = [each for each in entries if each.id != run.id and each.state in ("complete", "interrupted")]
    return _readable([each for each in reversed(fine) if each.verdict != "invalid"], place)[-most:]


def _readable(entries: Sequence[Entry], store: Store) -> list[Run]:
    found = []
    for entry in entries:
        with suppress(StoreError):  # on another machine, or deleted just now
            found.append(store.load(entry.id))
    return [run for run in found if run.verdict is not None]


def repeats_of(run: Run, store: Place = None) -> list[Run]:
    """The run with all others of its identity, versions and commit that are valid."""
    place, axes = open_store(store), identity(run).axes
    entries = [each for each in place.history(identity(run)) if each.state == "complete" and each.verdict != "invalid"]
    same = {each.id: each for each in _readable(entries, place) if identity(each).axes == axes}
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
) -> Comparison:
    """What `inferometer compare` does: the sides by name, with what earlier runs tell of how much runs differ."""
    place = open_store(store)
    sides = [runs_named(said, place) for said in (before, after)]
    if repeats:
        sides = [list({one.id: one for run in side for one in repeats_of(run, place)}.values()) for side in sides]
    few = sum(map(len, sides)) - 2 < 8
    past = history_of(_newest(sides[0]), place) if few else []
    options = {"measures": measures, "every": every, "alpha": alpha, "margin": margin}
    return compare(sides[0], sides[1], history=past, **options)  # type: ignore[arg-type]


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
    again: Measure | None = None,
    plan: Plan | None = None,
) -> CheckResult:
    """What `inferometer check` does. With `again` a run that looks worse is made once more, by `plan` or by its own,
    and is worse only if both are. Without a `p_value`: 0.001 against history, 0.05 against runs that are named."""
    place = open_store(store)
    run = place.load(wanted)
    found = _checked(run, place, against, measures, p_value, magnitude, again is not None)
    if again is None or found.word != "worse":
        return found
    second = again(plan or plan_from(run.plan, where=run.id))
    return confirm(found, _checked(second, place, against, measures, p_value, magnitude, True, but=run))


def _checked(
    run: Run,
    store: Store,
    against: str,
    measures: Sequence[str],
    p_value: float | None,
    magnitude: float,
    twice: bool,
    but: Run | None = None,
) -> CheckResult:
    """`but` is a run that is not among those before this one: the one that it confirms. Where two runs have to agree
    (`twice`), a history is asked at a level at which both together keep to the one that is wanted."""
    past = [old for old in history_of(run, store) if but is None or old.id != but.id]
    if against == "history":
        level = MAX_P if p_value is None else p_value
        look = level**0.5 if twice else level
        options = {"measures": measures, "p_value": level, "magnitude": magnitude, "first_look": look}
        return check(past, run, accepted=accepted_runs(store), **options)  # type: ignore[arg-type]
    pinned = runs_named(against, store)
    found = compare(pinned, [run], history=past, measures=measures, alpha=ALPHA if p_value is None else p_value)
    return check_against(found, run, against, magnitude)


def accepted_runs(store: Place = None) -> set[str]:
    """Runs that were accepted, and those that somebody made a baseline."""
    place = open_store(store)
    return {entry.id for entry in place.runs(tag=ACCEPTED)} | set(place.baselines().values())


def accept(wanted: str, store: Place = None) -> str:
    """From this run on things are as they should be; its id."""
    return open_store(store).tag(wanted, [ACCEPTED]).id
