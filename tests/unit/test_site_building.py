"""The static site: only what changed is written, and nothing that is not for everybody."""

import json
import re

import pytest

from inferometer.errors import StoreError
from inferometer.site import site
from shown_stores import keep_one, shown_store, unsynced


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return shown_store(tmp_path_factory.mktemp("shown") / "store")


def data(path, name):
    text = (path / "data" / f"{name}.js").read_text()
    return json.loads(re.fullmatch(r'inferometer\.put\("[\w./-]+",(.*)\);\n', text, re.DOTALL)[1])


def test_a_second_time_nothing_is_written(store, tmp_path):
    first = site(tmp_path / "public", store)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "public").rglob("*") if file.is_file()}
    again = site(tmp_path / "public", store)
    assert first.written and again.written == [] and again.removed == []
    assert before == {file: file.stat().st_mtime_ns for file in (tmp_path / "public").rglob("*") if file.is_file()}


def test_a_new_run_rewrites_its_history_and_one_list(tmp_path):
    store = shown_store(tmp_path / "store")
    whole = site(tmp_path / "public", store)
    with unsynced():
        new = keep_one(store, 60, 0.12, 0.011)
    more = site(tmp_path / "public", store)
    assert f"data/runs/{new}.js" in more.written and f"data/charts/{new}.js" in more.written
    others = [
        name
        for name in more.written
        if not name.startswith(("data/history/", f"data/runs/{new}", f"data/charts/{new}"))
    ]
    assert sorted(name.partition("-")[0] for name in others) == [
        "data/histories.js",
        "data/list/202610",
        "data/names.js",
    ]
    assert len(more.written) < 30 < len(whole.written)
    families = {name.split("/")[2] for name in more.written if name.startswith("data/history/")}
    assert len(families) == 1


def test_a_deleted_run_is_removed_and_foreign_files_stay(tmp_path):
    store = shown_store(tmp_path / "store")
    site(tmp_path / "public", store)
    (tmp_path / "public" / "CNAME").write_text("bench.example")
    gone = store.entry("latest")
    store.remove(gone)
    after = site(tmp_path / "public", store)
    assert f"data/runs/{gone.id}.js" in after.removed
    assert (tmp_path / "public" / "CNAME").exists() and not (tmp_path / "public" / f"data/runs/{gone.id}.js").exists()


def test_lists_have_every_run_once_and_say_the_last_update(store, tmp_path):
    built = site(tmp_path, store)
    names = data(tmp_path, "names")
    listed = [data(tmp_path, each["name"]) for each in names["lists"]]
    ids = [row[chunk["plain"].index("id")] for chunk in listed for row in chunk["rows"]]
    assert len(ids) == len(set(ids)) == built.runs == names["total"]
    assert names["updated"] == max(entry.started_at for entry in store.runs())


def test_places_and_commands_are_not_published(store, tmp_path):
    site(tmp_path, store)
    text = "".join(file.read_text() for file in (tmp_path / "data").rglob("*.js"))
    assert "127.0.0.1" not in text and str(store.home) not in text


def test_some_of_the_runs(store, tmp_path):
    assert site(tmp_path, store, where=["tag=nightly"]).runs == 1
    assert len(list((tmp_path / "data" / "runs").iterdir())) == 1


def test_charts_of_the_newest_only(store, tmp_path):
    site(tmp_path, store, charts=3)
    assert len(list((tmp_path / "data" / "charts").iterdir())) == 3


def test_another_pages_folder_is_left_alone(store, tmp_path):
    (tmp_path / "index.html").write_text("somebody's")
    with pytest.raises(StoreError, match="not ours"):
        site(tmp_path, store)


def test_an_edited_memory_removes_nothing_outside(store, tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("stays")
    site(tmp_path / "public", store)
    memory = tmp_path / "public" / "site.json"
    said = json.loads(memory.read_text())
    said["files"] |= {"../outside.txt": "x", str(outside): "x"}
    memory.write_text(json.dumps(said))
    site(tmp_path / "public", store)
    assert outside.exists()
