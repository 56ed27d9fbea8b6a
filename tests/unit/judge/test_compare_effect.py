"""The status of a measure, and that its error rate is the nominal one."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from scipy import stats

from inferometer.judge.effect import Change, Sides, changes, effect, holm
from inferometer.measure.quantiles import Floats

PAIRS, RUNS, REQUESTS = 1000, 5, 500
RUN_CV, REQUEST_CV = 0.01, 0.20
HEADLINE = ("ttft.p50", "ttft.p99", "tpot.mean", "e2e.p50", "output_rate")


def sides(before: Iterable[float], after: Iterable[float], **more: object) -> Sides:
    return Sides("tpot.mean", "TPOT mean", "s", "lower", tuple(before), tuple(after), **more)  # type: ignore[arg-type]


def one(before: Iterable[float], after: Iterable[float], **more: object) -> Change:
    (found,) = changes([sides(before, after, **more)])
    return found


def groups(draw: np.random.Generator, tpot_times: float = 1.0) -> dict[str, Floats]:
    """Groups of five runs, each run with an effect of its own on each of its measures; (pairs, runs) per measure."""

    def run_effect() -> Floats:
        return np.exp(draw.normal(0, RUN_CV, (PAIRS, RUNS, 1)))

    sigma = math.sqrt(math.log1p(REQUEST_CV**2))
    tpot = 0.02 * tpot_times * run_effect() * np.exp(draw.normal(0, sigma, (PAIRS, RUNS, REQUESTS)))
    ttft = 0.1 * run_effect() * draw.gamma(4, 0.25, (PAIRS, RUNS, REQUESTS))
    e2e = np.sort(ttft + 100 * tpot, axis=2)
    ttft.sort(axis=2)
    p50, p99 = math.ceil(0.5 * REQUESTS) - 1, math.ceil(0.99 * REQUESTS) - 1
    values = (ttft[..., p50], ttft[..., p99], tpot.mean(axis=2), e2e[..., p50], 8 * 100 / e2e.mean(axis=2))
    return dict(zip(HEADLINE, values, strict=True))


def shares_told(before: dict[str, Floats], after: dict[str, Floats], keys: Sequence[str]) -> dict[str, float]:
    """How often each measure is called better or worse when these are compared at once."""
    told = dict.fromkeys(keys, 0)
    for pair in range(PAIRS):
        asked = [
            Sides(key, key, "s", "lower", tuple(before[key][pair].tolist()), tuple(after[key][pair].tolist()))
            for key in keys
        ]
        for change in changes(asked):
            told[change.key] += change.status in ("better", "worse")
    return {key: n / PAIRS for key, n in told.items()}


def wilson_upper(share: float, n: int) -> float:
    z = stats.norm.ppf(0.975)
    centre = share + z * z / (2 * n)
    return float((centre + z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))) / (1 + z * z / n))


def test_of_a_thousand_pairs_of_equal_groups_few_are_told_apart() -> None:
    draw = np.random.default_rng(20261115)
    before, after = groups(draw), groups(draw)
    together = shares_told(before, after, HEADLINE)
    alone = {key: shares_told(before, after, [key])[key] for key in HEADLINE}
    assert all(wilson_upper(share, PAIRS) <= 0.07 for share in together.values()), together
    assert all(wilson_upper(share, PAIRS) <= 0.07 for share in alone.values()), alone
    assert all(share >= 0.02 for share in alone.values()), alone  # not by never saying anything


def test_a_shift_of_five_percent_in_tpot_is_found() -> None:
    draw = np.random.default_rng(5)
    before, after = groups(draw), groups(draw, tpot_times=1.05)
    found = shares_told(before, after, HEADLINE)
    assert found["tpot.mean"] >= 0.90, found
    assert max(found["ttft.p50"], found["ttft.p99"]) <= 0.07, found


def test_the_test_is_welchs() -> None:
    before, after = [1.0, 1.02, 0.98, 1.01], [1.05, 1.09, 1.02]
    wanted = stats.ttest_ind(np.log(after), np.log(before), equal_var=False)
    found = effect(sides(before, after))
    assert found.p == pytest.approx(wanted.pvalue, rel=0.05)  # degrees of freedom are rounded down to a tenth
    assert found.basis == "repeats"


def test_pairs_of_runs_on_one_tape_each_are_compared_as_pairs() -> None:
    before, after = [1.0, 2.0, 4.0], [1.05, 2.11, 4.19]
    wanted = stats.ttest_rel(np.log(after), np.log(before))
    assert effect(sides(before, after, pairs=True)).p == pytest.approx(wanted.pvalue, rel=1e-6)
    assert one(before, after).status == "unclear"
    assert one(before, after, pairs=True).status == "worse"


def test_two_single_runs_are_unclear_however_far_apart() -> None:
    found = one([1.0], [2.0], noise=1e-6)
    assert (found.status, found.basis, found.p, found.smallest) == ("unclear", "none", None, None)
    assert found.within_only and found.interval is not None
    assert found.interval[0] < 1.0 < found.interval[1]
    assert one([1.0], [2.0]).interval is None


def test_history_tells_how_much_runs_differ() -> None:
    quiet, restless = (1.0, 1.01, 0.99, 1.0, 1.005, 0.995), (1.0, 1.5, 0.7, 1.2, 0.8, 1.1)
    assert one([1.0], [1.1], history=(quiet,)).status == "worse"
    assert one([1.0], [0.9], history=(quiet,)).status == "better"
    assert one([1.0], [1.1], history=(restless,)).status == "unclear"
    assert one([1.0], [1.005], history=(quiet,), noise=None).status == "same"
    moved = (quiet, tuple(2 * value for value in quiet))  # a change in the past is not noise
    assert one([1.0], [1.1], history=moved).status == "worse"


def test_the_spread_is_never_less_than_the_noise_of_the_requests() -> None:
    before, after = [1.0, 1.0, 1.0], [1.01, 1.01, 1.01]  # rounded: they do not differ at all
    assert one(before, after).status == "worse"
    assert one(before, after, noise=2 * 0.05**2).status != "worse"


def test_higher_is_better_where_it_is_and_neither_where_neither() -> None:
    before, after = (10.0, 10.1, 9.9), (12.0, 12.1, 11.9)
    (rate,) = changes([Sides("output_rate", "", "tokens/s", "higher", before, after)])
    (tokens,) = changes([Sides("output_tokens.mean", "", "tokens", None, before, after)])
    assert (rate.status, tokens.status) == ("better", "changed")


def test_shares_are_compared_in_points_and_what_never_varies_takes_no_part() -> None:
    none = Sides("failure_rate", "", "share", "lower", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    some = Sides("failure_rate", "", "share", "lower", (0.0, 0.0, 0.001), (0.05, 0.06, 0.055))
    same, worse = changes([none])[0], changes([some])[0]
    assert (same.status, same.relative, worse.status) == ("same", False, "worse")
    assert worse.change == pytest.approx(0.055 - 0.001 / 3)
    speed = sides((1.0, 1.01, 0.99), (1.05, 1.06, 1.04))
    assert changes([speed])[0].confidence == changes([speed, none])[0].confidence == 0.95


def test_of_what_was_0_only_what_did_not_move_is_the_same() -> None:
    """A margin of 5% is none of 0: it is not 0.05 seconds."""
    zero, moved = (0.0, 0.0, 0.0), (0.0, 0.004, 0.0)
    assert [one(zero, after).status for after in (zero, moved)] == ["same", "unclear"]


def test_the_interval_leaves_out_zero_exactly_where_there_is_a_word() -> None:
    draw = np.random.default_rng(3)
    for _ in range(200):
        asked = [sides(draw.normal(1, 0.02, 4), draw.normal(1 + shift, 0.02, 4)) for shift in (0, 0.03, 0.05, 0.2)]
        for change in changes(asked):
            assert change.interval is not None
            inside = change.interval[0] <= 0 <= change.interval[1]
            assert inside == (change.status not in ("better", "worse"))


def test_what_could_have_been_seen_is_seen_four_times_in_five() -> None:
    draw = np.random.default_rng(11)
    true_smallest = effect_size(0.02, 5)
    seen = [one(draw.normal(1, 0.02, 5), draw.normal(1 + true_smallest, 0.02, 5)).status == "worse" for _ in range(400)]
    assert 0.72 <= float(np.mean(seen)) <= 0.88
    told = [one(draw.normal(1, 0.02, 5), draw.normal(1, 0.02, 5)).smallest or 0.0 for _ in range(200)]
    assert float(np.median(told)) == pytest.approx(true_smallest, rel=0.2)


def effect_size(cv: float, runs: int) -> float:
    dof = 2 * runs - 2
    return float((stats.t.ppf(0.975, dof) + stats.t.ppf(0.8, dof)) * cv * math.sqrt(2 / runs))


def test_holm_steps_down() -> None:
    found = holm([0.01, 0.04, 0.03, 0.005], 0.05)
    assert [each.rejected for each in found] == [True, False, False, True]
    assert [each.p for each in found] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [corrected.level for corrected in found] == pytest.approx([0.05 / 3, 0.025, 0.025, 0.0125])
    assert holm([], 0.05) == []
