"""A short form of the corpora (`python -m tests.corpora` is the whole): the verdict does not doubt most sound runs, and
sees most spoilt ones. The bounds are loose, so that it fails for a rule that broke and not by luck."""

import pytest

from corpora.sound import FAMILIES, virtual_cases
from corpora.spoilt import LIGHT, SPOILERS, Pair
from corpora.table import all_sound, all_spoilt, failures, sound_results, spoilt_results, wilson
from corpora.truth import shifts
from corpora.virtual import virtual_run

MOST_DOUBTED = 0.15
LEAST_SEEN = 0.80
SEED = 7
EVERY = 4  # sound cases
SLOW = ("lasting", "in lockstep", "128", "256", "512")
SPOILT = [
    *(("late client", "even"), ("starved cores", "even"), ("wrong process", "light"), ("drifting server", "few")),
    *(("short outputs", "even"), ("lost tokens", "few"), ("merged reads", "even"), ("failing requests", "even")),
]


def test_few_sound_runs_are_doubted() -> None:
    cases = [case for case in virtual_cases(1) if not any(text in f"{case.family} {case.name}" for text in SLOW)]
    found = [result for case in cases[::EVERY] for result in sound_results(case)]
    doubted = sum(result.doubted for result in found)
    assert len(found) >= 15
    assert doubted <= MOST_DOUBTED * len(found), "\n".join(failures(found))


def test_most_spoilt_runs_are_seen_by_their_cause() -> None:
    found = [result for cause, base in SPOILT for result in spoilt_results(Pair(cause, base, SEED))]
    moved = [result for result in found if result.moved]
    assert len(moved) >= 20
    assert sum(result.right for result in moved) >= LEAST_SEEN * len(moved), "\n".join(failures(found))


def test_a_run_without_a_cause_is_its_own_twin() -> None:
    first, second = (virtual_run(LIGHT, SEED) for _ in range(2))
    assert {shift.share for shift in shifts(first.summary, second.summary)} == {0.0}


def test_the_corpora_are_as_large_as_they_are_said_to_be() -> None:
    spoilt = sum(len(SPOILERS[pair.cause].strengths) for pair in all_spoilt())
    assert len(virtual_cases()) >= 500 and spoilt >= 500
    assert {case.family for case in all_sound()} >= set(FAMILIES)
    for half in ("tune", "test"):
        assert {pair.cause for pair in all_spoilt(half)} == set(SPOILERS)


def test_wilson_bounds() -> None:
    assert wilson(5, 100) == pytest.approx((0.0215, 0.1118), abs=1e-4)  # Wilson 1927, as tabulated
    assert wilson(0, 0) == (0.0, 1.0)
