"""Calibration end to end on small loads: the curve has the right shape, is stored, and is found again."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from inferometer.conduct import curves
from inferometer.conduct import instrument as module
from inferometer.conduct.curves import calibration_path, keep_curve, keep_for_machine, load_curve, machine_folder
from inferometer.conduct.instrument import CalibrationLoad, calibrate, curve_of
from inferometer.conduct.run import _calibrate_once
from inferometer.errors import StoreError, TargetError
from inferometer.measure.accuracy import with_error
from inferometer.record.environment import CalibratedMachine, CalibrationPoint, Curve
from inferometer.record.summary import Instrument
from inferometer.simulator.metronome_process import running_metronome

SMALL = [
    CalibrationLoad(streams=2, interval_s=0.01, tokens=20, rounds=1),
    CalibrationLoad(streams=32, interval_s=0.005, tokens=40, rounds=1),
]


@pytest.fixture(autouse=True)
def no_curve_yet(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_CALIBRATION", str(tmp_path_factory.mktemp("machine")))


def load(streams: int, events_per_s: float) -> Instrument:
    return Instrument(stamps=None, calibrated=False, workers=1, streams=streams, events_per_s=events_per_s)


def test_a_curve_is_measured_kept_and_looked_up(tmp_path: Path) -> None:
    said: list[str] = []
    curve = calibrate(SMALL, progress=said.append, store=tmp_path)

    assert len(said) == len(SMALL)
    assert load_curve(tmp_path) == curve
    assert [point.streams for point in curve.points] == [2, 32]
    for point in curve.points:
        assert point.unmatched == 0
        assert 0 <= point.read_error_p50 <= point.read_error_p99 < 0.5
        assert 0 <= point.ttft_error_p50 <= point.ttft_error_p99 < 0.5
        assert point.events_per_s > 0 and point.cpu_s_per_million > 0
        assert point.stamps in {"kernel", "read"}
    found = with_error(load(8, curve.points[0].events_per_s), curve)
    assert found.calibrated and found.ttft_error_p99 is not None


def test_no_curve_is_none_and_a_damaged_one_too(tmp_path: Path) -> None:
    assert load_curve(tmp_path) is None
    keep_curve(curve_of([]), tmp_path)
    assert load_curve(tmp_path) is not None
    calibration_path(tmp_path).write_text('{"schema": "inferometer/calibration/1", "poi')
    assert load_curve(tmp_path) is None
    calibration_path(tmp_path).write_text('{"schema": "something else"}')
    assert load_curve(tmp_path) is None


def test_another_machine_has_another_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_curve(curve_of([]), tmp_path)
    monkeypatch.setattr(curves, "machine", lambda: CalibratedMachine(cpu="another one"))
    assert load_curve(tmp_path) is None


def test_a_curve_is_of_the_machine_and_serves_every_store(tmp_path: Path) -> None:
    curve = curve_of([])
    assert keep_for_machine(curve, tmp_path / "one") == calibration_path(machine_folder())
    assert load_curve(tmp_path / "one") == load_curve(tmp_path / "another") == curve
    assert not (tmp_path / "one").exists()


def test_the_curve_of_an_older_store_is_read_until_there_is_a_newer_one(tmp_path: Path) -> None:
    older, newer = (structs.replace(curve_of([]), made=f"2026-01-0{day}T00:00:00+00:00") for day in (1, 2))
    keep_curve(older, tmp_path)
    assert load_curve(tmp_path) == older
    keep_for_machine(newer, tmp_path)
    assert load_curve(tmp_path) == newer


def test_without_a_home_to_write_in_the_store_keeps_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("INFEROMETER_CALIBRATION", str(tmp_path / "file" / "below"))
    assert keep_for_machine(curve_of([]), tmp_path) == calibration_path(tmp_path)
    assert load_curve(tmp_path) is not None


def test_a_store_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "calibration").write_text("a file in the way")
    with pytest.raises(StoreError, match="calibration"):
        keep_curve(curve_of([]), tmp_path)


def test_the_ceiling_is_the_most_that_was_kept_up_with() -> None:
    def point(rate: float, error: float | None) -> CalibrationPoint:
        return CalibrationPoint(events_per_s=rate, read_error_p99=error, interval=0.005)

    points = [point(1000, 0.0001), point(90_000, 0.004), point(150_000, 0.02), point(10, None)]
    assert curve_of(points).ceiling_events_per_s == 90_000
    assert curve_of([]).ceiling_events_per_s is None


def test_a_late_metronome_is_no_limit_of_the_client() -> None:
    def point(rate: float, error: float, late: float) -> CalibrationPoint:
        return CalibrationPoint(events_per_s=rate, read_error_p99=error, interval=0.005, metronome_late_p99=late)

    bounded = curve_of([point(90_000, 0.004, 0.0), point(150_000, 0.02, 0.001)])
    assert (bounded.ceiling_events_per_s, bounded.ceiling_is_at_least) == (90_000, False)
    unbounded = curve_of([point(90_000, 0.004, 0.0), point(150_000, 0.02, 0.03)])
    assert (unbounded.ceiling_events_per_s, unbounded.ceiling_is_at_least) == (90_000, True)
    assert [each.metronome_late for each in unbounded.points] == [False, True]


def test_the_quick_curve_covers_ordinary_runs() -> None:
    """A handful of streams of a model that takes 4 ms a token, and a hundred of one that takes 5.4."""
    points = [
        CalibrationPoint(streams=point.streams, events_per_s=point.streams / point.interval_s, ttft_error_p99=1e-4)
        for point in module.QUICK
    ]
    for streams, interval_s in ((1, 0.004), (8, 0.0048), (32, 0.0054), (128, 0.0054), (512, 0.0054)):
        found = with_error(load(streams, streams / interval_s), Curve(points=points))
        assert found.calibrated and not found.extrapolated, streams


def test_points_fill_their_time() -> None:
    point = CalibrationLoad.lasting(8, 0.005, 2.0, rounds=2)
    assert point.rounds * (module.FIRST_S + point.tokens * point.interval_s) == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("how", ["stdin", "signal"])
def test_the_metronome_ends_when_told(how: str) -> None:
    command = [sys.executable, "-m", "inferometer.simulator.metronome"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin and child.stdout
        assert child.stdout.readline().startswith(b'{"port": ')
        if how == "signal":
            os.kill(child.pid, signal.SIGTERM)
        else:
            child.stdin.close()
        assert child.wait(20) == 0


def test_a_metronome_that_is_gone_is_named() -> None:
    with running_metronome() as metronome:
        pass
    with pytest.raises(TargetError, match=f"the metronome on port {metronome.own_ports[0]} no longer answers"):
        metronome.truth()


def test_a_run_goes_on_where_the_calibration_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_point: CalibrationLoad) -> dict[str, Any]:
        raise TargetError("the metronome on port 1 no longer answers")

    monkeypatch.setattr("inferometer.conduct.instrument.measure_point", gone)
    notes: list[str] = []
    _calibrate_once(tmp_path, notes.append)
    assert notes[1:] == ["the calibration failed, this run has none: the metronome on port 1 no longer answers"]
    assert load_curve(tmp_path) is None, "so that the next run tries again"
