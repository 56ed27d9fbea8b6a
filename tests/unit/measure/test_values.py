"""Every number of a summary under one name."""

from inferometer.measure.values import canonical, quantities, quantity
from inferometer.record.encoding import summary_from
from inferometer.record.summary import Summary

COUNTS = {"met": 2, "missed": 2, "undefined": 0, "censored": 0}
SUMMARY = summary_from(
    {
        "measures": {
            "ttft": {"unit": "s", "count": 9, "p50": 0.1, "p99": None, "intervals": {"p50": [0.09, None]}},
            "tokens_wasted": {"unit": "tokens", "direction": "lower", "title": "Wasted", "mean": 3, "std": 1.0},
        },
        "rates": {"output_rate": {"unit": "tokens/s", "window": 100.0, "run": 90.0}},
        "concurrency": {"mean": 4.0},
        "goodput": {"unit": "1/s", "window": 2.0, "share": 0.5, **COUNTS, "limits": []},
        "failures": {"failure_rate": 0.0},
        "values": {"energy": {"value": 0.5, "unit": "J/token", "direction": "lower", "interval": [0.4, 0.6]}},
    }
)


def test_every_number_has_a_key_and_what_is_unknown_has_none() -> None:
    found = quantities(SUMMARY)
    assert list(found) == [
        *("ttft.p50", "tokens_wasted.mean", "tokens_wasted.std", "output_rate", "concurrency"),
        *("goodput", "goodput_share", "failure_rate", "energy"),
    ]
    assert all(key == each.key for key, each in found.items())


def test_a_known_measure_is_named_by_the_vocabulary_and_another_by_itself() -> None:
    found = quantities(SUMMARY)
    assert (found["ttft.p50"].title, found["ttft.p50"].direction, found["ttft.p50"].interval) == (
        *("TTFT", "lower"),
        (0.09, None),
    )
    assert (found["tokens_wasted.mean"].title, found["tokens_wasted.mean"].unit) == ("Wasted", "tokens")
    assert found["tokens_wasted.std"].direction is None  # a spread is neither better nor worse
    assert (found["energy"].interval, found["output_rate"].value) == ((0.4, 0.6), 100.0)


def test_people_write_keys_in_many_ways() -> None:
    assert {canonical(text) for text in ("ttft p99", "TTFT.p99", " ttft  p99 ")} == {"ttft.p99"}
    assert canonical("itl p99.9") == "itl.p99.9"
    assert quantity(SUMMARY, "ttft p50") == quantities(SUMMARY)["ttft.p50"]
    assert quantity(SUMMARY, "ttft p99") is None
    assert quantities(Summary()) == {}
