"""GPU numbers over a window: energy with certain bounds, throttling reasons, missing values as missing."""

import pytest

from inferometer.measure.hardware import gpu_summary, gpu_values
from inferometer.measure.telemetry import throttle_reasons
from inferometer.record.record import Sample, Samples
from inferometer.record.summary import Energy

S = 1_000_000_000


def series(name, values, source="gpu:0", step=S):
    return [Sample(source, name, number * step, float(value)) for number, value in enumerate(values)]


def test_energy_by_the_counter_is_read_at_the_edges_of_the_window() -> None:
    samples = Samples.of(series("energy_j", [1000, 1100, 1300, 1600, 2000]) + series("power_w", [1] * 5))
    found = gpu_summary(samples, int(0.5 * S), int(3.5 * S))
    assert found.energy.by == "energy counter"
    assert found.energy.j == pytest.approx(1800 - 1050)
    assert found.energy.interval == pytest.approx((1600 - 1100, 2000 - 1000))
    exact = gpu_summary(samples, 1 * S, 3 * S).energy
    assert exact.j == 500 and exact.interval == (500, 500)


def test_energy_without_a_counter_is_the_area_under_the_power() -> None:
    found = gpu_summary(Samples.of(series("power_w", [100, 200, 200, 100])), int(0.5 * S), 3 * S).energy
    assert found.by == "power"
    assert found.j == pytest.approx(0.5 * 175 + 200 + 150)
    assert found.interval == pytest.approx((0.5 * 150 + 200 + 100, 0.5 * 200 + 200 + 200))


def test_a_counter_that_falls_is_not_believed() -> None:
    samples = Samples.of(series("energy_j", [1000, 5, 10]) + series("power_w", [100, 100, 100]))
    assert gpu_summary(samples, 0, 2 * S).energy == Energy(j=200.0, interval=(200.0, 200.0), by="power")


def test_what_was_not_sampled_is_not_known() -> None:
    gap = Samples.of(series("power_w", [100, 100], step=4 * S))
    assert gpu_summary(gap, 0, 4 * S).energy == Energy(j=None, why="power was not sampled for 4 s")
    late = gpu_summary(Samples.of(series("power_w", [100, 100])), 0, 2 * S)
    assert late.energy.j is None and "energy_per_output_token" not in gpu_values(late, 100, 10)
    assert gpu_summary(Samples.of([Sample("host", "power_w", 0, 1.0)]), 0, S) is None


def test_throttling_is_the_share_of_time_with_each_reason() -> None:
    masks = [0x1, 0x4, 0x4 | 0x20, 0x0]
    found = gpu_summary(Samples.of(series("throttle_reasons", masks)), 0, 3 * S).gpus[0].throttled
    assert found == {"power cap": 0.5, "thermal slowdown": 0.25}
    assert throttle_reasons(0x4 | 0x8 | 0x8000) == ["power cap", "hardware slowdown", "0x8000"]


def test_several_gpus_are_added_up_and_their_use_averaged() -> None:
    names = {"power_w": [300, 300], "utilization_share": [1, 1], "memory_used_bytes": [2, 4], "energy_j": [0, 300]}
    both = [each for name, values in names.items() for gpu in (0, 1) for each in series(name, values, f"gpu:{gpu}")]
    both += series("utilization_share", [0, 0], "gpu:1", S)
    found = gpu_summary(Samples.of(both), 0, S)
    assert [gpu.index for gpu in found.gpus] == [0, 1]
    values = gpu_values(found, 600, 3)
    assert values["energy_per_output_token"].value == 1.0
    assert values["energy_per_output_token"].interval == (1.0, 1.0)
    assert values["energy_per_request"].value == 200.0
    assert values["gpu_power"].value == 600 and values["gpu_memory_max"].value == 8
    assert values["gpu_utilization"].value == 0.75
