"""The lookup of the instrument's own error."""

from typing import Any

import msgspec
import pytest

from inferometer.measure.accuracy import with_error
from inferometer.record.environment import Curve
from inferometer.record.summary import Instrument


def error_at(curve: dict[str, Any], streams: int, events: float, stamps: str | None = None) -> Instrument:
    load = Instrument(stamps=stamps, calibrated=False, workers=1, streams=streams, events_per_s=events)
    return with_error(load, msgspec.convert(curve, Curve))


def point(streams: int, events: float, error: float, stamps: str = "kernel") -> dict:
    return {"streams": streams, "events_per_s": events, "ttft_error_p99": error, "stamps": stamps}


CURVE = {
    "points": [point(32, 1000, 1e-4), point(32, 10_000, 1e-3), point(512, 10_000, 1e-2), point(512, 100_000, 1e-1)],
    "ceiling_events_per_s": 200_000,
}


@pytest.mark.parametrize(
    ("streams", "events", "error", "extrapolated"),
    [
        (32, 1000, 1e-4, False),
        (512, 100_000, 1e-1, False),
        (32, 10**3.5, 10**-3.5, False),  # half way in the logarithm
        (128, 10_000, 10**-2.5, False),  # half way between 32 and 512
        (1, 10, 1e-4, False),  # idler than the curve: no better than its end
        (512, 200_000, 0.2, True),  # beyond: in proportion
        (1024, 100_000, 0.2, True),
        (32, 20_000, 2e-3, True),
    ],
)
def test_lookup(streams: int, events: float, error: float, extrapolated: bool) -> None:
    found = error_at(CURVE, streams, events)
    assert found.ttft_error_p99 == pytest.approx(error)
    assert found.extrapolated is extrapolated
    assert found.ceiling_share == events / 200_000


def test_fewer_streams_than_one_that_bore_the_rate_are_not_beyond_the_curve() -> None:
    quick = {"points": [point(8, 1600, 1e-5), point(128, 23_700, 1e-4)]}
    assert not error_at(quick, 32, 6400).extrapolated
    assert error_at(quick, 32, 30_000).extrapolated


def test_a_ceiling_that_is_only_a_lower_bound_has_no_share() -> None:
    assert error_at(CURVE | {"ceiling_is_at_least": True}, 32, 1000).ceiling_share is None


def test_points_of_the_same_stamps_are_preferred() -> None:
    curve = {"points": [point(8, 100, 1e-5), point(8, 100, 1e-2, "read")]}
    assert error_at(curve, 8, 100, "read").ttft_error_p99 == 1e-2
    assert error_at(curve, 8, 100, "kernel").ttft_error_p99 == 1e-5
    assert error_at({"points": [point(8, 100, 1e-5)]}, 8, 100, "read").ttft_error_p99 == 1e-5


def test_no_points_no_error() -> None:
    assert not error_at({"points": []}, 8, 100).calibrated
    found = error_at(CURVE, 32, 1000)
    assert found.calibrated and found.read_error_p99 is None


def test_an_error_of_zero_has_a_logarithm() -> None:
    curve = {"points": [point(8, 100, 0.0), point(8, 10_000, 1e-3)]}
    assert 0 < error_at(curve, 8, 1000).ttft_error_p99 < 1e-3
