"""Some hundred mutated plans, results, command lines and workloads: each is read, or refused with a message. Larger
numbers: `python tests/mutated_inputs.py 10000`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from lengths import LONG
from mutated_inputs import Kind, Outcome, inputs, seeds, tried


@pytest.mark.parametrize(
    ("kind", "count"), [("plan", 60), ("result", 60), ("command", 40), ("workload", 20), ("own", 60)]
)
def test_no_mutated_input_is_a_mistake_of_ours(kind: Kind, count: int) -> None:
    if not any(seed.kind == kind for seed in seeds()):
        pytest.skip("the data of other tools is not at hand (INFEROMETER_DATA)")
    tally = tried(seed=7, count=count * (5 if LONG else 1), kinds=(kind,))
    assert sum(tally.counts.values()) >= count
    assert not [_told(outcome) for outcome in tally.wrong]


def test_the_same_seed_makes_the_same_inputs() -> None:
    assert list(inputs(3, 40, ("plan",))) == list(inputs(3, 40, ("plan",)))
    assert len({made.content for made in inputs(3, 40, ("plan",))}) > 30


def _told(outcome: Outcome) -> str:
    made = outcome.made
    return f"{outcome.argument} {made.name} ({made.how}): {', '.join(outcome.complaints)}: {outcome.text[-300:]}"
