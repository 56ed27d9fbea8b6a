"""Runs both corpora in several processes and counts: how many sound runs are doubted, how many spoilt ones are seen
and called by their name."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

from . import sound, spoilt
from .truth import shifts

Half = Literal["tune", "test"]
Z = 1.959964  # of 95% confidence
ROW = "{:<22} {:>6} {:>8} {:>8} {:>14} {:>11}"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one run."""

    cause: str  # or the family of a sound run
    name: str
    seed: int
    status: str
    codes: tuple[str, ...]
    texts: tuple[str, ...]
    moved: str | None = None  # of a spoilt run: which number by how much, if any counts
    right: bool = False  # one of the codes names the cause

    @property
    def doubted(self) -> bool:
        return self.status != "valid"


def in_half(seed: int, half: Half | None) -> bool:
    return half is None or (seed % 2 == 0) == (half == "tune")


# -- runs ------------------------------------------------------------------------------------------------------------


def sound_results(case: sound.Sound) -> list[Result]:
    return [
        Result(
            case.family,
            case.name,
            case.seed,
            verdict.status,
            tuple(verdict.codes),
            tuple(doubt.text for doubt in verdict.doubts),
        )
        for verdict in sound.verdicts(case)
    ]


def spoilt_results(pair: spoilt.Pair) -> list[Result]:
    results = []
    for strength, run, twin in spoilt.strengths(pair):
        first, codes = shifts(run.summary, twin.summary)[0], tuple(run.verdict.codes)
        results.append(
            Result(
                pair.cause,
                f"{pair.base}, {strength}",
                pair.seed,
                run.verdict.status,
                codes,
                tuple(doubt.text for doubt in run.verdict.doubts),
                f"{first.number} {first.share:+.0%}" if first.counts else None,
                bool(spoilt.SPOILERS[pair.cause].codes & set(codes)),
            )
        )
    return results


def all_sound(half: Half | None = None, only: str | None = None, fresh: Iterable[int] = (0,)) -> list[sound.Sound]:
    """With `fresh`, simulated runs of seeds that no earlier table had; the real runs are what they are."""
    simulated = [replace(case, seed=case.seed + FRESH * n) for n in fresh for case in sound.virtual_cases()]
    cases = simulated + sound.real_cases()
    return [case for case in cases if in_half(case.seed, half) and only in (None, case.family, "sound")]


SEEDS = range(6)
FRESH = 100_000  # a multiple of four: whether a seed is of the tuning half, and is watched, stays the same


def all_spoilt(half: Half | None = None, only: str | None = None, fresh: int = 0) -> list[spoilt.Pair]:
    pairs = spoilt.pairs([seed + FRESH * fresh for seed in SEEDS])
    return [pair for pair in pairs if in_half(pair.seed, half) and only in (None, pair.cause, "spoilt")]


def results(work: Callable[[Any], list[Result]], items: Sequence[Any], processes: int = 2) -> list[Result]:
    """In the order of the items, whoever was done first."""
    if processes == 1 or not items:
        return [result for item in items for result in work(item)]
    with ProcessPoolExecutor(processes) as pool:
        return [result for part in pool.map(work, items, chunksize=4) for result in part]


# -- table -----------------------------------------------------------------------------------------------------------


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The bounds of a share at 95% confidence."""
    if not of:
        return 0.0, 1.0
    share = hits / of
    middle = share + Z * Z / (2 * of)
    half = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of))
    whole = 1 + Z * Z / of
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def _row(name: str, runs: int, of: int, hits: int, right: int | None) -> str:
    low, high = wilson(hits, of)
    share = f"{hits / of:.1%}" if of else "-"
    bounds = f"{low:.1%}-{high:.1%}" if of else "-"
    named = "-" if right is None or not of else f"{right / of:.1%}"
    return ROW.format(name, runs, f"{hits}/{of}", share, bounds, named)


def sound_table(found: Iterable[Result]) -> str:
    every = list(found)
    lines = [ROW.format("sound", "runs", "doubted", "share", "Wilson 95%", "")]
    for family in dict.fromkeys(result.cause for result in every):
        of = [result for result in every if result.cause == family]
        lines.append(_row(family, len(of), len(of), sum(result.doubted for result in of), None))
    lines.append(_row("all", len(every), len(every), sum(result.doubted for result in every), None))
    return "\n".join(lines)


def spoilt_table(found: Iterable[Result]) -> str:
    """Of the runs in which the cause moved a number: how many were doubted, and doubted for it."""
    every = list(found)
    lines = [ROW.format("spoilt", "runs", "seen", "share", "Wilson 95%", "right code")]
    for cause in [*dict.fromkeys(result.cause for result in every), None]:
        runs = [result for result in every if cause in (None, result.cause)]
        of = [result for result in runs if result.moved]
        seen = sum(result.doubted for result in of)
        lines.append(_row(cause or "all", len(runs), len(of), seen, sum(result.right for result in of)))
    return "\n".join(lines)


def failures(found: Iterable[Result]) -> list[str]:
    """False alarms of sound runs, and spoilt ones that were missed or called by another name."""
    lines = []
    for result in found:
        spoiled = result.cause in spoilt.SPOILERS
        if (not spoiled and result.doubted) or (spoiled and result.moved and not result.right):
            what = f"{result.cause}: {result.name}, seed {result.seed}: {result.status} {', '.join(result.codes)}"
            lines.append(f"{what} [{result.moved}]" if result.moved else what)
            lines += [f"    {code}: {text}" for code, text in zip(result.codes, result.texts, strict=True)]
    return lines
