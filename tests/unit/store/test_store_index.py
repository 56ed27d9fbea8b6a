"""The index: it follows the folders, resolves names, and suggests similar ones."""

import os
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from inferometer.documents.document import JsonValue
from inferometer.errors import StoreError
from inferometer.record.summary import MeasureSummary, Rate, Summary
from inferometer.record.verdict import Verdict
from inferometer.show.runs import chosen_grid, entry_document, runs_grid
from inferometer.store.databases import INDEX
from inferometer.store.folder import RunFolder, new_run
from inferometer.store.store import open_store

SUMMARY = Summary(
    measures={
        "ttft": MeasureSummary(statistics={"p50": 0.1, "p99": 0.4}, count=9, weak={"p99": 368}),
        "tpot": MeasureSummary(statistics={"p50": None}),
    },
    rates={"output_rate": Rate(unit="tok/s", value=120.5, window=120.5, span=99.0), "request_rate": Rate()},
    outcomes={"ok": 7, "timeout": 2},
)


def kept(store: Path, second: int = 0, **plan: JsonValue) -> RunFolder:
    folder = new_run(store, datetime(2026, 11, 15, 3, 12, second, tzinfo=UTC))
    folder.write_plan({"name": "n", "target": {"url": ["http://a", "http://b"], "model": "m"}, **plan})
    folder.write_summary(SUMMARY)
    folder.write_verdict(Verdict(status="valid"))
    folder.write_state("complete")
    open_store(store).add(folder.load())
    return folder


def test_an_entry_has_what_a_list_shows(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    (entry,) = open_store(tmp_path).runs()
    assert (entry.id, entry.folder, entry.started_at) == (folder.id, folder.path, folder.started_at)
    assert (entry.name, entry.model, entry.target) == ("n", "m", "http://a, http://b")
    assert (entry.state, entry.verdict, entry.requests) == ("complete", "valid", 9)
    assert entry.values == {"ttft.p50": 0.1, "ttft.p99": 0.4, "output_rate": 120.5}


def test_percentiles_of_too_few_samples_are_marked(tmp_path: Path) -> None:
    kept(tmp_path)
    (entry,) = open_store(tmp_path).runs()
    assert entry.weak_keys == {"ttft.p99"}
    assert {"100 ms", "~400 ms"} < set(map(str, runs_grid([entry], 200).rows[0]))
    assert chosen_grid([entry], ["ttft.p50", "ttft.p99"]).rows == [["100 ms", "~400 ms"]]
    assert entry_document(entry)["weak"] == ["ttft.p99"]


def test_an_index_that_knew_no_weak_percentiles_still_lists_its_runs(tmp_path: Path) -> None:
    kept(tmp_path)
    open_store(tmp_path).runs()  # which makes the index
    with sqlite3.connect(tmp_path / INDEX) as db:
        db.execute("alter table runs drop column weak")
        db.execute("pragma user_version = 3")
    (entry,) = open_store(tmp_path).runs()
    assert entry.values["ttft.p99"] == 0.4 and not entry.weak_keys
    open_store(tmp_path).reindex()
    assert open_store(tmp_path).runs()[0].weak_keys == {"ttft.p99"}


@pytest.mark.parametrize("name", ["ttft", "ttft_scheduled"])
def test_a_list_shows_the_ttft_that_the_run_headlines(tmp_path: Path, name: str) -> None:
    """An open loop headlines the scheduled one; the run itself prints the same number."""
    measures = {
        key: MeasureSummary(statistics={"p50": at}, count=9) for key, at in (("ttft", 1.0), ("ttft_scheduled", 2.0))
    }
    folder = new_run(tmp_path, datetime(2026, 11, 15, tzinfo=UTC))
    folder.write_plan({"name": "n"})
    folder.write_summary(Summary(measures=measures, headline=[name, "ttft"]))
    folder.write_verdict(Verdict(status="valid"))
    folder.write_state("complete")
    shown = "2 s" if name == "ttft_scheduled" else "1 s"
    assert shown in runs_grid(open_store(tmp_path).runs(), 200).rows[0]


def test_newest_first_and_no_more_than_asked(tmp_path: Path) -> None:
    ids = [kept(tmp_path, second).id for second in range(4)]
    assert [entry.id for entry in open_store(tmp_path).runs()] == ids[::-1]
    assert [entry.id for entry in open_store(tmp_path).runs(2)] == ids[:1:-1]
    assert open_store(tmp_path).runs(0) == []


def test_a_server_that_we_start_is_the_target(tmp_path: Path) -> None:
    kept(tmp_path, target={"url": []}, server={"type": "simulator"})
    assert open_store(tmp_path).runs()[0].target == "simulator"


def test_a_deleted_index_comes_back_by_itself(tmp_path: Path) -> None:
    kept(tmp_path)
    before = open_store(tmp_path).runs()
    for file in tmp_path.glob(f"{INDEX}*"):
        file.unlink()
    assert open_store(tmp_path).runs() == before


def test_a_broken_index_is_set_aside_and_made_anew(tmp_path: Path) -> None:
    kept(tmp_path)
    before = open_store(tmp_path).runs()
    open_store(tmp_path).close()
    (tmp_path / INDEX).write_bytes(b"this is no database, and it is long enough to be seen as none" * 20)
    assert open_store(tmp_path).runs() == before
    assert (tmp_path / f"{INDEX}.broken").exists()


def test_reindex_counts_the_folders(tmp_path: Path) -> None:
    kept(tmp_path, 0)
    kept(tmp_path, 1)
    assert open_store(tmp_path).reindex().runs == 2


def test_it_follows_folders_that_come_change_and_go(tmp_path: Path) -> None:
    gone = kept(tmp_path, 1)
    running = new_run(tmp_path, datetime(2026, 11, 15, 3, 12, 2, tzinfo=UTC))
    assert [entry.state for entry in open_store(tmp_path).runs()] == ["partial", "complete"]
    running.write_state("interrupted")
    shutil.rmtree(gone.path)
    assert [(entry.id, entry.state) for entry in open_store(tmp_path).runs()] == [(running.id, "interrupted")]


def test_folders_are_followed_also_when_nothing_happened_for_a_while(tmp_path: Path) -> None:
    kept(tmp_path, 1)
    running = new_run(tmp_path, datetime(2026, 11, 15, 3, 12, 2, tzinfo=UTC))
    os.utime(tmp_path / "runs", (1_000_000_000, 1_000_000_000))
    for _ in range(2):
        assert [entry.state for entry in open_store(tmp_path).runs()] == ["partial", "complete"]
    running.write_state("complete")
    assert [entry.state for entry in open_store(tmp_path).runs()] == ["complete", "complete"]
    shutil.rmtree(running.path)
    assert len(open_store(tmp_path).runs()) == 1
    os.utime(tmp_path / "runs", (1_000_000_000, 1_000_000_000))
    assert len(open_store(tmp_path).runs()) == 1


def test_an_unreadable_run_is_listed_as_such(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    (folder.path / "run.json").write_text("{half")
    assert [(entry.id, entry.state) for entry in open_store(tmp_path).runs()] == [(folder.id, "damaged")]
    (tmp_path / "runs" / "just-made").mkdir()
    assert len(open_store(tmp_path).runs()) == 1


def test_a_moved_store_finds_its_runs(tmp_path: Path) -> None:
    folder = kept(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    assert open_store(tmp_path / "new").find("latest") == tmp_path / "new" / "runs" / folder.id


def test_finds_by_id_start_name_latest_and_path(tmp_path: Path) -> None:
    older, newer = kept(tmp_path, 1), kept(tmp_path, 2)
    find = open_store(tmp_path).find
    assert find(older.id) == older.path
    assert find("20261115-031202") == newer.path
    assert find("latest") == newer.path
    assert find("latest~0") == newer.path
    assert find("latest~1") == older.path
    assert find(str(older.path)) == older.path
    by_name = "-".join(newer.id.split("-")[2:])
    if not older.id.endswith(by_name):
        assert find(by_name) == newer.path


def test_a_whole_id_is_not_ambiguous_with_a_longer_one(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    shutil.copytree(folder.path, folder.path.with_name(f"{folder.id}-copy"))
    assert open_store(tmp_path).find(folder.id) == folder.path


def test_what_fits_several_names_them(tmp_path: Path) -> None:
    folders = [kept(tmp_path, second) for second in range(7)]
    with pytest.raises(StoreError, match=r"fits 7 runs: .* and 2 more") as raised:
        open_store(tmp_path).find("2026")
    assert folders[-1].id in raised.value.message


def test_the_latest_of_several_runs_in_a_second_is_the_last_one(tmp_path: Path) -> None:
    for _ in range(20):
        folder = kept(tmp_path)
        assert open_store(tmp_path).find("latest") == folder.path


def test_what_fits_none_names_the_nearest(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    name = "-".join(folder.id.split("-")[2:])
    with pytest.raises(StoreError, match=f"did you mean {name}"):
        open_store(tmp_path).find(f"{name}s")
    with pytest.raises(StoreError, match=r"the store has 1 run$"):
        open_store(tmp_path).find("latest~1")


def test_an_empty_store_has_its_own_words_and_stays_empty(tmp_path: Path) -> None:
    store = tmp_path / "none"
    assert open_store(store).runs() == []
    with pytest.raises(StoreError, match="no runs in it yet") as raised:
        open_store(store).find("latest")
    assert raised.value.hint == "create one: inferometer run"
    assert not store.exists()


def test_an_index_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    kept(tmp_path)
    with sqlite3.connect(tmp_path / INDEX) as db:
        db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="version 99"):
        open_store(tmp_path).runs()


def test_an_index_of_an_older_version_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with sqlite3.connect(tmp_path / INDEX) as db:
        db.execute("create table runs (id text, some_old_column text)")
    db.close()
    kept(tmp_path)
    assert len(open_store(tmp_path).runs()) == 1


def test_the_latest_is_no_damaged_one_where_there_is_another(tmp_path: Path) -> None:
    """Nor a folder of something else, which comes after all runs by its name."""
    older, newer, damaged = (kept(tmp_path, second=second).path for second in (1, 2, 3))
    (damaged / "run.json").write_text("x")
    (tmp_path / "runs" / "up").symlink_to("../..")
    assert open_store(tmp_path).find("latest") == newer
    assert open_store(tmp_path).find("latest~1") == older
    with pytest.raises(StoreError, match="latest~2: the store has 2 runs"):
        open_store(tmp_path).find("latest~2")
    for path in (older, newer):
        (path / "run.json").write_text("x")
    (tmp_path / "runs" / "up").unlink()
    open_store(tmp_path).reindex()
    assert open_store(tmp_path).find("latest") == damaged  # what is wrong with it is said


@pytest.mark.parametrize("name", ["store", "store/runs"])
def test_a_file_is_no_empty_store(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("x")
    with pytest.raises(StoreError, match=f"{name}: not a folder"):
        open_store(tmp_path / "store")


def test_the_latest_is_one_that_can_be_shown(tmp_path: Path) -> None:
    """A server that did not start leaves its log and no numbers."""
    good = kept(tmp_path, second=1)
    broken = new_run(tmp_path, datetime(2026, 11, 15, 3, 12, 2, tzinfo=UTC))
    broken.write_state("failed")
    assert open_store(tmp_path).find("latest") == good.path
    assert open_store(tmp_path).find(broken.id) == broken.path
    killed = new_run(tmp_path, datetime(2026, 11, 15, 3, 12, 3, tzinfo=UTC))
    assert open_store(tmp_path).find("latest") == killed.path  # show --partial is for it
