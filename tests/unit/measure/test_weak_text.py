"""A percentile of too few samples is marked wherever a number is shown."""

from made_runs import made_run

from inferometer.measure.values import quantities
from inferometer.show.report.content import tiles_of


def test_a_weak_percentile_has_its_mark_and_its_bound() -> None:
    numbers = quantities(made_run(requests=40).summary)
    weak, firm = numbers["ttft.p99"], numbers["ttft.mean"]
    assert weak.needed and weak.text.startswith("~") and weak.spread.startswith("≥")
    assert not firm.needed and firm.text[0].isdigit() and firm.spread.startswith(("±", "+"))


def test_tiles_of_a_report_are_marked() -> None:
    numbers = quantities(made_run(requests=40).summary)
    tiles = {tile.name: tile for tile in tiles_of(numbers)}
    weak = {f"{number.title} {number.statistic}" for number in numbers.values() if number.needed} & set(tiles)
    assert weak and all(tiles[name].value.startswith("~") for name in weak)
