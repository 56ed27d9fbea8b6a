"""Facts about a run in its logs, in addition to records."""

from measure_rows import many, open_plan, row

from inferometer.load.facts import facts_of
from inferometer.measure.inputs import CoreUse
from inferometer.record.log import Note
from inferometer.record.record import Sample, Samples

SECOND = 1_000_000_000
STARTED, ENDED = Note("start", SECOND), Note("ended", 9 * SECOND, {"stamps": "kernel"})
GAVE_UP = Note("gave up", 5 * SECOND, {"why": "3 requests failed, stop.errors is 3"})


def busy(share: float, at_s: float, shard: int = 0) -> Sample:
    return Sample("client", "cpu_share", round(at_s * SECOND), share, {"shard": str(shard)})


def test_each_sample_covers_the_time_since_the_one_before() -> None:
    samples = [busy(0.5, 2.0), busy(0.9, 2.5), busy(0.1, 4.0, shard=1), Sample("client", "memory_bytes", SECOND, 1.0)]
    facts = facts_of(open_plan(), many([row(0)]), [STARTED, ENDED], Samples.of(samples))
    assert facts.core_use == (CoreUse(0.5, 1.0), CoreUse(0.9, 0.5), CoreUse(0.1, 3.0, "1"))


def test_a_run_that_gave_up_was_not_interrupted() -> None:
    facts = facts_of(open_plan(), many([row(0)]), [STARTED, GAVE_UP, ENDED])
    assert not facts.interrupted and facts.cut_short
    assert facts.gave_up == "3 requests failed, stop.errors is 3"


def test_a_log_without_an_end_is_of_an_interrupted_run() -> None:
    facts = facts_of(open_plan(), many([row(0)]), [STARTED])
    assert facts.interrupted and facts.gave_up is None
