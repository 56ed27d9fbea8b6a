"""The conductor of comparisons and checks: finds the runs that are meant and their history, and asks `judge`.

Which runs count as repeats, as history or as accepted is decided here and nowhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from inferometer.errors import StoreError
from inferometer.judge.changes import MAGNITUDE, MAX_P
from inferometer.judge.check import check, check_against, confirm
from inferometer.judge.checked import CheckResult
from inferometer.judge.compare import Comparison, compare
from inferometer.judge.identity import identity
from inferometer.judge.judgement import ALPHA, MARGIN
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.run import Run
from inferometer.store.opening import Place, open_store
from inferometer.store.store import Store

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
    """Runs of the same identity that were kept before this one, the oldest first; those that cannot be read are not
    among them."""
    place = open_store(store)
    found = []
    for entry in place.history(identity(run), limit=most + 1):
        if entry.id == run.id or entry.started_at > run.started_at or entry.state not in ("complete", "interrupted"):
            continue
        try:
            found.append(place.load(entry.id))
        except StoreError:
            continue  # on another machine, or deleted just now
    return [old for old in found if old.summary][-most:]


def repeats_of(run: Run, store: Place = None) -> list[Run]:
    """The run with all others of its identity, versions and commit."""
    place, axes = open_store(store), identity(run).axes
    others = [place.load(entry.id) for entry in place.history(identity(run)) if entry.state == "complete"]
    same = {each.id: each for each in others if identity(each).axes == axes and each.summary}
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
    return max(runs, key=lambda run: run.started_at)


def check_run(
    wanted: str,
    store: Place = None,
    *,
    against: str = "history",
    measures: Sequence[str] = (),
    p_value: float = MAX_P,
    magnitude: float = MAGNITUDE,
    again: Measure | None = None,
    plan: Plan | None = None,
) -> CheckResult:
    """What `inferometer check` does. With `again` a run that looks worse is made once more, by `plan` or by its own,
    and is worse only if both are."""
    place = open_store(store)
    run = place.load(wanted)
    first_look = p_value**0.5 if again is not None else p_value
    found = _checked(run, place, against, measures, p_value, magnitude, first_look)
    if again is None or found.word != "worse":
        return found
    second = again(plan or plan_from(run.plan, where=run.id))
    return confirm(found, _checked(second, place, against, measures, p_value, magnitude, first_look, but=run))


def _checked(
    run: Run,
    store: Store,
    against: str,
    measures: Sequence[str],
    p_value: float,
    magnitude: float,
    first_look: float,
    but: Run | None = None,
) -> CheckResult:
    """`but` is a run that is not among those before this one: the one that it confirms."""
    past = [old for old in history_of(run, store) if but is None or old.id != but.id]
    if against == "history":
        accepted = accepted_runs(store)
        options = {"measures": measures, "p_value": p_value, "magnitude": magnitude}
        return check(past, run, accepted=accepted, first_look=first_look, **options)  # type: ignore[arg-type]
    pinned = runs_named(against, store)
    found = compare(pinned, [run], history=past, measures=measures, alpha=max(first_look, ALPHA))
    result = check_against(found, run, against)
    return replace(result, p_value=found.alpha)


def accepted_runs(store: Place = None) -> set[str]:
    """Runs that were accepted, and those that somebody made a baseline."""
    place = open_store(store)
    return {entry.id for entry in place.runs(tag=ACCEPTED)} | set(place.baselines().values())


def accept(wanted: str, store: Place = None) -> str:
    """From this run on things are as they should be; its id."""
    return open_store(store).tag(wanted, [ACCEPTED]).id
