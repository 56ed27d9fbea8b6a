"""Runs without their requests: the numbers stay, and the folder still verifies."""

import re
from pathlib import Path

import pytest

from inferometer.cli import main
from inferometer.errors import StoreError
from inferometer.record.columns import Records
from inferometer.record.environment import Environment
from inferometer.record.record import Record
from inferometer.record.run import Run
from inferometer.record.summary import MeasureSummary, Summary
from inferometer.record.verdict import Verdict
from inferometer.store.folder import RECORDS
from inferometer.store.manifest import measured
from inferometer.store.save import keep
from inferometer.store.store import open_store
from inferometer.store.upkeep import slim, verify

SUMMARY = Summary(measures={"ttft": MeasureSummary(statistics={"p50": 0.1}, count=9)}, outcomes={"ok": 9})
VALID = Verdict(status="valid")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    records = Records.of([Record(session=7, scheduled_at=1)])
    return keep(
        tmp_path,
        kind="serving",
        plan={"name": "n"},
        environment=Environment(),
        summary=SUMMARY,
        verdict=VALID,
        records=records,
    )


def test_the_numbers_stay_and_the_folder_is_whole(tmp_path: Path, run: Run) -> None:
    store = open_store(tmp_path)
    before, size = measured(run.folder), (run.folder / RECORDS).stat().st_size
    assert list(slim(store)) == [(run.id, size)] and not (run.folder / RECORDS).exists()
    kept = open_store(tmp_path).load(run.id)
    assert kept.summary.measures == SUMMARY.measures and kept.records is None
    assert [entry.state for entry in store.runs()] == ["complete"] and list(verify(store)) == [(run.id, [])]
    assert measured(run.folder) == before  # pages that were made from it are still of this run
    assert list(slim(store)) == []


def test_a_file_that_is_missing_otherwise_is_missed(tmp_path: Path, run: Run) -> None:
    list(slim(open_store(tmp_path)))
    (run.folder / "summary.json").unlink()
    with pytest.raises(StoreError, match=r"summary.json is missing"):
        open_store(tmp_path).load(run.id)


def test_by_hand(tmp_path: Path, run: Run, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["store", "slim", "--all", "--store", str(tmp_path)])
    assert re.fullmatch(r"1 run slimmed, [0-9.]+ KiB freed\n", capsys.readouterr().out)
    with pytest.raises(SystemExit, match="2"):
        main(["store", "slim", "--store", str(tmp_path)])
