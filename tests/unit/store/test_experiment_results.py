import json
from pathlib import Path

import pytest

from inferometer.judge.compare import Comparison
from inferometer.judge.effect import Change
from inferometer.judge.search import Attained, Probe, ProbeLevel, SearchStep
from inferometer.store.experiments import (
    AbDefinition,
    AbResult,
    ClassEffect,
    DoneBlock,
    ExperimentDefinition,
    ExperimentKind,
    ExperimentResult,
    LeftOutPair,
    Pairs,
    PlannedCase,
    SearchDefinition,
    SearchOutcome,
    StrategyChange,
    SweepDefinition,
    SweepResult,
    load_experiment,
    new_experiment,
)
from inferometer.store.shapes import DamagedError

CHANGE = Change(
    key="ttft.p50", title="TTFT p50", unit="s", direction="lower", status="worse", before=0.1, after=0.2,
    change=1.0, relative=True, basis="pairs", interval=(0.9, 1.1), runs=(3, 3),
)  # fmt: skip
COMPARISON = Comparison(before=("a",), after=("b",), changes=(CHANGE,))
STEP = SearchStep(8.0, (Attained("l", 0.99, 0.98, 1.0, 0.9, True),), 10.0, "r", values={"tpot.p50": 0.01})
KINDS: dict[ExperimentKind, tuple[ExperimentDefinition, ExperimentResult]] = {
    "sweep": (
        SweepDefinition(file="x.yaml", experiment={"axes": {"load.rate": [1]}}, cases=[PlannedCase(name="a", key="k")]),
        SweepResult(
            cases={"complete": 2},
            effects=[ClassEffect(off="chat", of="batch", comparison=COMPARISON)],
            changes=[
                StrategyChange(
                    case="a", baseline="b", settings={"x": 1}, measure="m", change=0.1, low=0.0, high=0.2, seeds=3
                )
            ],
        ),
    ),
    "search": (
        SearchDefinition(axis="concurrency", bounds={"start": None, "whole": True}, plan={"limits": ["ttft < 1s"]}),
        SearchOutcome(
            outcome="found", low=8.0, high=9.0, likely=(7.9, 8.8), steps=(STEP,), limits=("ttft < 1s",),
            probe=Probe((ProbeLevel(4, 10, 0.5, 0.0, True),), 8.0),
        ),
    ),
    "ab": (
        AbDefinition(blocks=3, a={"seed": 1}, b={"seed": 1}),
        AbResult(
            before=("a",), after=("b",), changes=(CHANGE,), id="e", pairs=Pairs(3, 1),
            left_out=(LeftOutPair(2, "doubtful"),), blocks=(DoneBlock(1, "a", "r"),),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_an_experiment_is_read_as_it_was_written(kind: ExperimentKind, tmp_path: Path) -> None:
    definition, result = KINDS[kind]
    folder = new_experiment(tmp_path, kind, "n", definition)
    folder.finish(result)
    kept = folder.load()
    assert (kept.definition, kept.result, kept.kind) == (definition, result, kind)


def test_properties_that_programs_read_are_in_the_file(tmp_path: Path) -> None:
    for kind, (definition, result) in KINDS.items():
        folder = new_experiment(tmp_path / kind, kind, None, definition)
        folder.finish(result)
        written = json.loads((folder.path / "result.json").read_text())
        if kind == "search":
            assert (written["steps"][0]["status"], written["steps"][0]["meets"]) == ("meets", True)
        if kind == "ab":
            assert (written["status"], written["changes"][0]["confidence"]) == ("worse", 0.95)
    folder = new_experiment(tmp_path / "bare", "sweep", None, SweepDefinition())
    folder.finish(SweepResult(cases={"complete": 1}))
    assert {*json.loads((folder.path / "result.json").read_text())} == {"schema", "cases"}


def test_a_result_of_a_wrong_type_is_damage_with_its_place(tmp_path: Path) -> None:
    folder = new_experiment(tmp_path, "search", None, SearchDefinition())
    folder.finish(SearchOutcome(steps=(STEP,)))
    file = folder.path / "result.json"
    file.write_text(file.read_text().replace('"load": 8.0', '"load": "many"'))
    with pytest.raises(DamagedError, match=r"result\.json: steps\[0\]\.load: expected `?float"):
        load_experiment(folder.path)
