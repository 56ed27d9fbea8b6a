"""The static site: only changed files are written, and nothing private."""

import json
import re
import shutil
from pathlib import Path

import pytest

from inferometer.conduct.report import site
from inferometer.errors import StoreError
from inferometer.record.environment import Environment
from inferometer.record.summary import MeasureSummary, Summary
from inferometer.record.verdict import Verdict
from inferometer.show.site import file_of, neighbours
from inferometer.store.save import keep
from inferometer.store.store import Store, open_store
from shown_stores import keep_one, shown_store, unsynced


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return shown_store(tmp_path_factory.mktemp("shown") / "store")


@pytest.fixture(scope="module")
def public(store: Store, tmp_path_factory) -> Path:
    """The site of that store: to be read."""
    folder = tmp_path_factory.mktemp("shown") / "public"
    assert site(folder, store).written
    return folder


@pytest.fixture
def copied(store: Store, public: Path, tmp_path: Path) -> Store:
    """The same store and site to write to: `store` and `public` in the test's own folder."""
    shutil.copytree(public, tmp_path / "public")
    shutil.copytree(store.home, tmp_path / "store")
    return open_store(tmp_path / "store")


def data(path, name):
    text = (path / "data" / f"{name}.js").read_text()
    return json.loads(re.fullmatch(r'inferometer\.put\("[\w./-]+",(.*)\);\n', text, re.DOTALL)[1])


def test_a_second_time_nothing_is_written(store: Store, public: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in public.rglob("*") if file.is_file()}
    again = site(public, store)
    assert again.written == [] and again.removed == []
    assert before == {file: file.stat().st_mtime_ns for file in public.rglob("*") if file.is_file()}


def test_a_new_run_rewrites_its_history_and_one_list(copied: Store, tmp_path: Path) -> None:
    whole = [file for file in (tmp_path / "public").rglob("*") if file.is_file()]
    with unsynced():
        new = keep_one(copied, 60, 0.12, 0.011)
    more = site(tmp_path / "public", copied)
    assert f"data/runs/{new}.js" in more.written and f"data/charts/{new}.js" in more.written
    own = ("data/history/", f"data/runs/{new}", f"data/charts/{new}", f"data/compare/{new}")
    others = [name for name in more.written if not name.startswith(own)]
    assert sorted(name.partition("-")[0] for name in others) == [
        "data/explore.js",
        "data/histories.js",
        "data/list/202610",
        "data/names.js",
        "data/overview.js",
    ]
    assert len(more.written) < 30 < len(whole)
    families = {name.split("/")[2] for name in more.written if name.startswith("data/history/")}
    assert len(families) == 1


def test_a_deleted_run_is_removed_and_foreign_files_stay(copied: Store, tmp_path: Path) -> None:
    (tmp_path / "public" / "CNAME").write_text("bench.example")
    gone = copied.entry("latest")
    copied.remove(gone)
    after = site(tmp_path / "public", copied)
    assert f"data/runs/{gone.id}.js" in after.removed
    assert (tmp_path / "public" / "CNAME").exists() and not (tmp_path / "public" / f"data/runs/{gone.id}.js").exists()


def test_lists_have_every_run_once_and_say_the_last_update(store: Store, public: Path) -> None:
    names = data(public, "names")
    listed = [data(public, each["name"]) for each in names["lists"]]
    ids = [row[chunk["plain"].index("id")] for chunk in listed for row in chunk["rows"]]
    assert len(ids) == len(set(ids)) == len(store.runs()) == names["total"]
    assert names["updated"] == max(entry.started_at for entry in store.runs())


def test_places_and_commands_are_not_published(store: Store, public: Path) -> None:
    text = "".join(file.read_text() for file in (public / "data").rglob("*.js"))
    assert "127.0.0.1" not in text and str(store.home) not in text


def test_some_of_the_runs(store: Store, tmp_path: Path) -> None:
    assert site(tmp_path, store, where=["tag=nightly"]).runs == 1
    assert len(list((tmp_path / "data" / "runs").iterdir())) == 1


def test_charts_of_the_newest_only(store: Store, tmp_path: Path) -> None:
    site(tmp_path, store, charts=3)
    assert len(list((tmp_path / "data" / "charts").iterdir())) == 3


def test_a_run_is_judged_against_the_one_before_it(copied: Store, tmp_path: Path) -> None:
    store = copied
    with unsynced():
        slower = keep_one(store, 60, 0.5, 0.011)
    site(tmp_path / "public", store)
    said = data(tmp_path / "public", f"runs/{slower}")
    found = data(tmp_path / "public", f"compare/{slower}")
    assert found["view"]["status"] == "worse" and [run["id"] for run in found["runs"]["before"]] == [said["before"]]
    before = store.load(said["before"])
    assert before.plan["workload"] == store.load(slower).plan["workload"]
    judged = {file.stem for file in (tmp_path / "public" / "data" / "compare").iterdir()}
    with unsynced():
        newer = keep_one(store, 61, 0.5, 0.011)
    again = site(tmp_path / "public", store)
    assert data(tmp_path / "public", f"runs/{newer}")["before"] == slower
    assert {file.stem for file in (tmp_path / "public" / "data" / "compare").iterdir()} == judged | {newer}
    assert [name for name in again.written if name.startswith("data/compare/")] == [f"data/compare/{newer}.js"]


def test_no_run_is_judged_against_an_invalid_one(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    with unsynced():
        ids = [keep_one(store, day, 0.1, 0.01, status="invalid" if day == 1 else "valid") for day in range(3)]
    before = neighbours(store.runs())
    assert {id_: entry.id for id_, entry in before.items()} == {ids[1]: ids[0], ids[2]: ids[0]}


def test_a_run_that_cannot_be_read_is_not_listed(copied: Store, tmp_path: Path) -> None:
    torn = copied.entry("latest")
    (torn.folder / "summary.json").write_text("{")
    built = site(tmp_path / "new", copied, charts=0)
    names = data(tmp_path / "new", "names")
    assert built.unreadable == [torn.id] and names["total"] == built.runs
    assert torn.id not in "".join(file.read_text() for file in (tmp_path / "new" / "data" / "list").iterdir())


def test_another_pages_folder_is_left_alone(store: Store, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("somebody's")
    with pytest.raises(StoreError, match="did not write"):
        site(tmp_path, store)


def test_a_site_that_was_interrupted_is_gone_on_with(store: Store, tmp_path: Path, monkeypatch):
    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("inferometer.show.site._put_experiments", interrupted)
        patch.setattr("inferometer.show.site.families", interrupted)
        with pytest.raises(KeyboardInterrupt):
            site(tmp_path, store, charts=0)
    assert (tmp_path / "index.html").exists()
    built = site(tmp_path, store, charts=0)
    assert data(tmp_path, "names")["total"] == built.runs


def test_an_edited_memory_removes_nothing_outside(copied: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("stays")
    memory = tmp_path / "public" / "site.json"
    said = json.loads(memory.read_text())
    said["files"] |= {"../outside.txt": "x", str(outside): "x"}
    memory.write_text(json.dumps(said))
    site(tmp_path / "public", copied)
    assert outside.exists()


def test_offline_runs_of_different_batch_sizes_are_one_history(tmp_path: Path) -> None:
    """One has a p90 that the other, of fewer passes, has not: that is no column of it."""
    store = open_store(tmp_path / "store")
    for size, statistics in ((1, {"mean": 0.6, "p90": 0.7}), (2, {"mean": 0.9})):
        measure = MeasureSummary(unit="s", direction="lower", statistics=statistics)
        keep(
            store,
            kind="latency",
            plan={"model": "m", "batch_sizes": [size]},
            environment=Environment(),
            summary=Summary(measures={f"latency_bs{size}": measure}),
            verdict=Verdict(status="valid"),
        )
    built = site(tmp_path / "public", store)
    assert (built.runs, built.unreadable) == (2, [])
    (family,) = data(tmp_path / "public", "histories")["histories"]
    shown = data(tmp_path / "public", f"history/{family['id']}/{file_of('latency.p90')}")
    assert list(shown["series"]) == ["batch 1"]
