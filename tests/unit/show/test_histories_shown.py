"""Histories on pages: for every kind of run, a line per batch size, and invalid runs cause no change point."""

import json

import pytest

from inferometer.conduct.report import answers_of
from inferometer.show.about import series_names
from inferometer.show.charts.history import History, HistoryPoint, history
from inferometer.show.dashboard.families import points_of
from inferometer.store.store import open_store
from shown_stores import batches, keep_one, starts, unsynced


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    store = open_store(tmp_path_factory.mktemp("kinds") / "store")
    with unsynced(), store.batch():
        batches(store)
        starts(store)
        for day in range(12):
            keep_one(store, day, 0.1, 0.01)
        keep_one(store, 12, 9.0, 0.01, status="invalid")
    return answers_of(store)


def family(answers, kind):
    (found,) = [each for each in answers.families() if each.kind == kind]
    return found


def test_every_kind_of_run_has_a_history(answers):
    assert {each.kind for each in answers.histories().histories} == {"latency", "startup", "serving"}
    (line,) = answers.history(family(answers, "startup").id, ["time_to_ready"]).lines
    assert line.series == {"all runs": 3}


def test_batch_sizes_are_lines_of_one_measure(answers):
    found = answers.history(family(answers, "latency").id, ["latency.p50", "latency.p99"])
    assert [each.label for each in found.history.series] == ["batch 1", "batch 2", "batch 4", "batch 16"]
    assert [each.key for each in found.history.measures] == ["latency.mean", "latency.p50", "latency.p99"]
    assert found.history.runs == 24
    first = found.lines[0]
    assert set(first.series.values()) == {24}
    assert {label: round(steps[0].change, 2) for label, steps in first.changes.items()} == dict.fromkeys(
        ["batch 1", "batch 2", "batch 4", "batch 16"], 0.25
    )
    assert json.dumps(first.chart.spec).count('"label"') >= 4


def test_a_series_has_only_its_own_numbers(answers):
    whole = family(answers, "serving").series[0]
    assert whole.stored("ttft.p50") == "ttft.p50"
    batch = family(answers, "latency").series[0]
    assert batch.stored("latency.p50") == "latency_bs1.p50" and batch.stored("ttft.p50") is None
    assert points_of(batch, "ttft.p50") == []


def test_an_invalid_run_is_shown_and_changes_nothing(answers):
    (line,) = answers.history(family(answers, "serving").id, ["ttft.p50"]).lines
    assert line.changes == {} and line.series == {"all runs": 13}
    spec = line.chart.spec
    assert [row["value"] for row in spec["data"]["values"] if row.get("invalid")] == [9.0]
    assert "1 invalid" in spec["title"]["subtitle"] and "no change" in spec["title"]["subtitle"]


def test_a_line_keeps_its_colour_where_others_are_missing() -> None:
    points = [HistoryPoint(f"r{day}", f"2026-09-{day + 1:02}T00:00:00+00:00", 1.0) for day in range(5)]
    spec = history(History("TTFT", "s", {"b": points}, names=("a", "b")))
    colour = spec["layer"][0]["encoding"]["color"]
    assert colour["scale"]["domain"] == ["a", "b"] and colour["legend"] is None


def test_changes_are_found_in_all_runs_and_told_where_they_are_in_sight() -> None:
    lines = {
        name: [
            HistoryPoint(
                f"{name}{day}", f"{2020 + day // 336}-{day // 28 % 12 + 1:02}-{day % 28 + 1:02}T00:00:00+00:00", value
            )
            for day, value in enumerate(
                [1.0 + 0.001 * (day % 5) for day in range(500)] + [2.0 + 0.001 * (day % 5) for day in range(1000)]
            )
        ]
        for name in ("a", "b")
    }
    spec = history(History("TTFT", "s", lines))
    assert "the last 2,000 of 3,000 runs, no change point" in spec["title"]["subtitle"]


def test_series_that_differ_in_nothing_that_is_said_are_told_apart(answers):
    run = answers.load(family(answers, "serving").series[0].entries[0])
    assert sorted(series_names({"one": run, "other": run}).values()) == ["all runs", "all runs (2)"]
