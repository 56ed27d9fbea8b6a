"""Whether runs may be compared: what forbids it, and what a reader of the comparison has to know."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from inferometer.judge.identity import Identity, differences, identity
from inferometer.measure.values import quantities
from inferometer.record.run import KINDS, Run

MOST_TOLD = 4


@dataclass(frozen=True, slots=True)
class Objection:
    """`refuse`: comparing would be wrong; `warn`: it may mislead."""

    word: Literal["refuse", "warn"]
    code: str
    text: str


def objections(before: Sequence[Run], after: Sequence[Run]) -> list[Objection]:
    """The worst first."""
    found = [*_kinds(before, after), *_empty([*before, *after]), *_units(before, after)]
    found += [*_verdicts([*before, *after]), *_same_runs(before, after)]
    found += [*_identities(before, after), *_definitions(before, after), *_calibrations([*before, *after])]
    return sorted(found, key=lambda each: each.word != "refuse")


def _kinds(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Objection]:
    kinds = {run.kind for run in (*before, *after)}
    if len(kinds) > 1:
        said = "; ".join(f"{kind}: {KINDS[kind]}" for kind in sorted(kinds))
        yield Objection("refuse", "kind", f"The runs are of different kinds ({said}).")


def _empty(runs: Sequence[Run]) -> Iterator[Objection]:
    for run in runs:
        if not quantities(run.summary):
            yield Objection("refuse", "no_numbers", f"{run.id} has no numbers: it is {run.state}.")


def _units(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Objection]:
    """Not even forced: a ratio of seconds and milliseconds means nothing."""
    seen: dict[str, tuple[str, str]] = {}
    told: set[str] = set()
    for run in (*before, *after):
        for key, each in quantities(run.summary).items():
            unit, first = seen.setdefault(each.name, (each.unit, run.id))
            if unit != each.unit and each.name not in told:
                told.add(each.name)
                text = f"{key} is in {each.unit or 'no unit'} in {run.id} and in {unit or 'no unit'} in {first}."
                yield Objection("refuse", "units", text)


def _verdicts(runs: Sequence[Run]) -> Iterator[Objection]:
    severity: dict[str, Literal["refuse", "warn"]] = {"invalid": "refuse", "doubtful": "warn"}
    for word, refused in severity.items():
        if found := [run for run in runs if run.verdict.get("word") == word]:
            more = f" and {len(found) - 1} more are" if len(found) > 1 else " is"
            first = next((reason.get("text", "") for reason in found[0].verdict.get("reasons", [])), "")
            yield Objection(refused, word, f"{found[0].id}{more} {word}: {first}")
    for run in runs:
        if run.state in ("interrupted", "failed"):
            yield Objection("warn", run.state, f"{run.id} was {run.state}: it is shorter than planned.")


def _same_runs(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Objection]:
    both = sorted({run.id for run in before} & {run.id for run in after})
    if both:
        yield Objection("refuse", "same_run", f"{', '.join(both)} is on both sides.")


_TOLD = {
    "workload": "They were asked different things",
    "stack": "The stacks differ, which may be what is compared",
    "hardware": "The hardware differs",
}


def _identities(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Objection]:
    """Between the sides, and among the runs of a side."""
    first, other = identity(before[0]), identity(after[0])
    for part, texts in differences(first, other).items():
        yield Objection("warn", part, f"{_TOLD[part]}: {_listed(texts)}.")
    for side, of in ((before, first), (after, other)):
        for run in side[1:]:
            found = differences(of, identity(run))
            if found:
                told = _listed([text for texts in found.values() for text in texts])
                yield Objection("warn", "mixed_group", f"{run.id} is no repeat of {side[0].id}: {told}.")


def _definitions(before: Sequence[Run], after: Sequence[Run]) -> Iterator[Objection]:
    sources = {run.source or "measured by us" for run in (*before, *after)}
    if len(sources) > 1:
        yield Objection("warn", "source", f"Other tools define measures differently: {', '.join(sorted(sources))}.")
    limits = [run.summary.get("goodput") and run.plan.get("limits") for run in (before[0], after[0])]
    if limits[0] != limits[1] and all(run.summary.get("goodput") for run in (before[0], after[0])):
        yield Objection("warn", "limits", "Their limits differ, and goodput counts what keeps them.")


def _calibrations(runs: Sequence[Run]) -> Iterator[Objection]:
    instruments = [run.summary["instrument"] for run in runs if run.summary.get("instrument")]
    calibrated = {bool(each.get("calibrated")) for each in instruments}
    if len(calibrated) > 1:
        yield Objection("warn", "calibration", "The instrument's own error is known for some of the runs only.")
    stamps = {str(each.get("stamps")) for each in instruments}
    if len(stamps) > 1:
        yield Objection("warn", "stamps", f"Instants were stamped differently: {', '.join(sorted(stamps))}.")


def _listed(texts: Sequence[str]) -> str:
    rest = len(texts) - MOST_TOLD
    return "; ".join(texts[:MOST_TOLD]) + (f" and {rest} more" if rest > 0 else "")


def axes_text(before: Identity, after: Identity) -> str | None:
    """`engine 0.24.0 to 0.25.0, commit 1a2b3c4 to 5d6e7f8`; None where nothing is known to differ."""
    names = {"engine_version": "engine", "commit": "commit", "inferometer": "Inferometer"}
    parts = [
        f"{names[name]} {_short(name, before.axes[name])} to {_short(name, after.axes[name])}"
        for name in names
        if before.axes[name] != after.axes[name]
    ]
    return ", ".join(parts) or None


def _short(name: str, value: str | None) -> str:
    return "unknown" if value is None else value[:9] if name == "commit" else value
