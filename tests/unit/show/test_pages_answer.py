"""Texts on pages: names of series, states of histories, answers of experiments, headers and links."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs

from inferometer.conduct.report import answers_of
from inferometer.judge.identity import Objection
from inferometer.judge.search import Attained, SearchBounds, SearchStep
from inferometer.judge.search import result as search_result
from inferometer.measure.values import quantities
from inferometer.plan.stored import StoredPlan
from inferometer.record.run import Run
from inferometer.record.summary import LimitResult, Summary, Value
from inferometer.show.about import about_of, one_of_each, page_link, series_names
from inferometer.show.charts.comparisons import comparison
from inferometer.show.charts.experiments import cases_of, joined_cases
from inferometer.show.charts.trade_offs import PlottedRun, PointRow, throughput_by_user_speed
from inferometer.show.dashboard.answers import StoreAnswers
from inferometer.show.dashboard.documents import headline
from inferometer.show.dashboard.overview import history_lines
from inferometer.show.experiment_answer import answer_of, search_sentence
from inferometer.store.experiments import AbResult, SearchOutcome, experiments_of
from inferometer.store.store import Store, open_store
from plain_data import at
from shown_stores import START, ab_test, batches, keep_one, load_search, nightly, sweep, unsynced


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = open_store(tmp_path_factory.mktemp("answers") / "store")
    with unsynced():
        with store.batch():
            nightly(store, days=26)
        sweep(store)
        ab_test(store)
        load_search(store)
    return store


@pytest.fixture(scope="module")
def answers(store: Store) -> StoreAnswers:
    return answers_of(store)


def runs_of(answers: StoreAnswers, count: int) -> list[Run]:
    return [answers.load(entry) for entry in answers.store.runs(where=["state=complete"], limit=count)]


def test_a_series_is_named_by_what_differs_in_words(answers: StoreAnswers) -> None:
    (family,) = answers.families()
    assert [series.label for series in family.series] == ["300 in, 100 out", "2,000 in, 400 out"]
    assert family.title == "m · vLLM 0.25.0 · EPYC"


def test_names_of_plans_come_first_and_settings_last(answers: StoreAnswers) -> None:
    run = runs_of(answers, 1)[0]
    named = {name: replace(run, plan=StoredPlan(run.plan.settings() | {"name": name})) for name in ("canary", "stable")}
    assert series_names(named) == {"canary": "canary", "stable": "stable"}
    servers = {
        speed: replace(run, plan=run.plan.with_settings(server={"type": "simulator", "args": {"speed": speed}}))
        for speed in (1, 2)
    }
    assert series_names({str(speed): own for speed, own in servers.items()}) == {"1": "speed 1", "2": "speed 2"}


def test_the_overview_has_no_cases_of_experiments(answers: StoreAnswers) -> None:
    overview = answers.overview()
    assert overview.total > len(overview.lines) == 2
    assert {line.load for line in overview.lines} == {"8 in flight"}
    page = answers.page(where=[], search="", sort=None, columns=[], limit=50, offset=0, experiments=False)
    assert page.hidden == overview.total - page.total > 0 and all(row.experiment is None for row in page.runs)
    cases = answers.page(
        where=["experiment!="], search="", sort=None, columns=[], limit=50, offset=0, experiments=False
    )
    assert cases.hidden == 0


def test_a_line_says_since_when_it_is_worse_or_that_nothing_came(answers: StoreAnswers) -> None:
    last = START + timedelta(days=26)
    worse = history_lines(answers.families(), last)[0]
    assert worse.state == "worse" and worse.state_text.startswith("worse since aaaaaaaa (2026-09-21): TTFT p50 +3")
    assert worse.since is not None and answers.store.entry(worse.since).started_at.startswith("2026-09-21")
    later = history_lines(answers.families(), last + timedelta(days=30))[0]
    assert later.state == "worse" and later.state_text.endswith("no data for 31 days")


def test_a_line_that_does_not_change_is_steady_and_a_short_one_is_not_judged(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    with unsynced(), store.batch():
        for day in range(8):
            keep_one(store, day, 0.1 + 0.001 * (day % 2), 0.01)
        keep_one(store, 7, 0.1, 0.01, inputs=900)
    lines = history_lines(answers_of(store).families(), START + timedelta(days=8))
    assert {line.workload: line.state for line in lines} == {"300 in, 100 out": "steady", "900 in, 100 out": "few"}
    quiet = history_lines(answers_of(store).families(), datetime(2027, 1, 1, tzinfo=UTC))
    assert {line.state for line in quiet} == {"quiet", "few"}


def test_a_sweep_answers_within_its_limits(answers: StoreAnswers) -> None:
    kept = next(kept for kept in experiments_of(answers.store.home) if kept.kind == "sweep")
    runs = answers.case_runs(kept)

    def headline(met: Callable[[float], bool | None]) -> str:
        cases = [
            (settings, _limited(run, met(float(str(settings["load.concurrency"])))))
            for settings, run in cases_of(kept, runs.get)
        ]
        return answer_of(kept, cases).headline

    best, counted = "highest output token throughput", "(8 cases, 1 without a run)"
    assert headline(lambda load: load > 1) == f"{best} within ttft p99 < 1s: 727 tok/s at 4 in flight, 300 in {counted}"
    assert headline(lambda load: None).startswith(f"no case was shown to meet ttft p99 < 1s; {best}: 780 tok/s")


def _limited(run: Run, met: bool | None) -> Run:
    limit = LimitResult(limit="ttft p99 < 1s", value=0.5, met=met, text="")
    return replace(run, summary=structs.replace(run.summary, limits=[limit]))


def test_a_list_of_experiments_reads_few_runs_at_a_time(store: Store) -> None:
    fresh = answers_of(store)
    known = [row.answer for _ in range(2) for row in fresh.experiments(most_read=0).experiments if row.kind == "sweep"]
    assert set(known) == {"8 of 9 cases have a run"}
    assert {row.answer.partition(":")[0] for row in fresh.experiments().experiments if row.kind == "sweep"} == {
        "highest output token throughput"
    }
    assert fresh.experiments(most_read=0) == fresh.experiments(), "read once"


def test_points_of_many_nights_are_joined_once_and_workloads_named() -> None:
    def night(workload: str, load: float, speed: float, gpus: int | None = 1) -> PlottedRun:
        about: PointRow = {
            "run": f"{workload}{load}{speed}",
            "stack": "m",
            "model": "m",
            "engine": "-",
            "hardware": "-",
        }
        about |= {"workload": workload, "name": "-", "load": f"{load:g} req/s", "process": "req/s", "order": load}
        return PlottedRun(about, {"tokens_per_s_user": speed, "total_rate": 100 * load}, gpus)

    nights = [night("300 in", 2, 50 + at) for at in range(3)]
    other = night("2,000 in", 3, 20)
    spec = throughput_by_user_speed(
        [*nights, night("300 in", 8, 30), replace(other, about=other.about | {"stack": "n"})]
    )
    lines, points, labels = spec["layer"]
    assert [(row["order"], row["speed"]) for row in lines["data"]["values"]] == [(2, 51), (8, 30), (3, 20)]
    assert len(spec["data"]["values"]) == 5 and points["name"] == "points"
    assert {"300 in: 8 req/s", "2,000 in: 3 req/s"} <= {row["label"] for row in labels["data"]["values"]}
    mixed = throughput_by_user_speed([*nights, night("300 in", 8, 30, None)])
    assert "not per GPU: 1 of 4 runs have no number of GPUs" in mixed["title"]["subtitle"]


def test_what_all_series_share_is_no_part_of_their_names_and_one_load_labels_nothing() -> None:
    def policy(name: str, speed: float, load: str = "40 in flight") -> PlottedRun:
        about: PointRow = {"run": name, "stack": f"{name} · m · fleet", "model": "m", "engine": "-", "hardware": "-"}
        about |= {"workload": "300 in", "name": "-", "load": load, "process": "in flight", "order": 40}
        return PlottedRun(about, {"tokens_per_s_user": speed, "total_rate": 100 * speed}, None)

    spec = throughput_by_user_speed([policy("random", 10), policy("round_robin", 20)])
    assert {row["stack"] for row in spec["data"]["values"]} == {"random", "round_robin"}
    assert [layer["name"] for layer in spec["layer"]] == ["lines", "points"]
    assert spec["title"]["subtitle"].endswith("; all m")
    one = throughput_by_user_speed([policy("random", 10), policy("random", 20, "8 in flight")])
    assert {row["stack"] for row in one["data"]["values"]} == {"random · m · fleet"}, "of one stack its whole name"
    assert one["layer"][-1]["name"] == "labels"


def test_tiles_of_another_kind_have_one_number_of_each_measure(tmp_path: Path) -> None:
    """Eight statistics of one batch size say nothing of the others; a phase of 0 s is one that its log cannot tell."""
    store = open_store(tmp_path)
    with unsynced():
        run = store.load(batches(store, days=1)[0])
    numbers = quantities(run.summary)
    assert one_of_each(numbers) == headline(numbers, run.summary)
    assert [key.partition(".")[0] for key in one_of_each(numbers)] == [f"latency_bs{n}" for n in (1, 2, 4, 16)]
    only = {key: number for key, number in numbers.items() if number.name == "latency_bs1"}
    assert len(one_of_each(only)) == 3
    phases = {"time_to_ready": 40.0, "detect_platform": 0.0, "imports": 22.0}
    values = {name: Value(value=took, unit="s", direction="lower", title=name) for name, took in phases.items()}
    assert one_of_each(quantities(Summary(values=values))) == ["time_to_ready", "imports"]


def test_a_named_case_is_called_by_its_name(answers: StoreAnswers) -> None:
    kept = next(kept for kept in experiments_of(answers.store.home) if kept.kind == "sweep")
    runs = runs_of(answers, 3)
    settings = [{"policy": "a", "defaults": None}, {"policy": "b", "defaults": "x"}, {"policy": "b", "defaults": "y"}]
    cases = [({"case": f"c{n}", **own}, run) for n, (own, run) in enumerate(zip(settings, runs, strict=True))]
    assert answer_of(kept, cases).headline.partition(" tok/s at ")[2].startswith("c")
    assert ", policy" not in answer_of(kept, cases).headline
    crossed = [({**own, "load.rate": rate}, run) for own, run in cases for rate in (2, 4)]
    assert " at c" in (text := answer_of(kept, crossed).headline) and " req/s (" in text


def test_a_search_whose_least_load_is_unclear_does_not_say_that_it_is_missed() -> None:
    unclear = SearchStep(33.0, (Attained("l", 0.85, 0.74, 0.99, 0.9, False),), 10.0)
    missed = SearchStep(40.0, (Attained("l", 0.1, 0.02, 0.2, 0.9, False),), 10.0)
    found = search_result([missed, unclear], SearchBounds(start=40.0, least=1.0, most=100.0, steps=2))
    assert found.outcome == "unresolved" and found.text.startswith("it is unclear whether the limits are met at 33")
    outcome = SearchOutcome(outcome=found.outcome, high=33.0, limits=("ttft p90 < 1s",))
    start = "no load was shown to meet ttft p90 < 1s; the lowest load tried is 33 req/s"
    assert search_sentence(outcome) == start
    assert search_sentence(structs.replace(outcome, outcome="none meets")).startswith("no load meets ttft p90 < 1s")


def test_who_a_run_is_about_is_spelled_as_engines_spell_themselves(answers: StoreAnswers) -> None:
    entry = replace(answers.store.runs(limit=1)[0], engine="vllm", engine_version="0.9.1", hardware="2x H100, 1x L4")
    row = answers.row(entry)
    assert (row.what, row.hardware) == ("m · vLLM 0.9.1", "2 x H100, 1 x L4")
    remote = replace(entry, hardware="a.example, b.example", target="http://a.example:8000, http://b.example:8000")
    assert answers.row(remote).hardware is None, "an address is no hardware"
    assert answers.row(replace(entry, engine=None, engine_version=None, model=None, name="nightly")).what == "nightly"


def test_answers_of_experiments(answers: StoreAnswers) -> None:
    rows = {row.kind: row for row in answers.experiments().experiments}
    assert rows["ab"].answer.startswith("B is better: ") and rows["ab"].tone == "good"
    assert "unclear: TTFT" in rows["ab"].answer and rows["ab"].title == "A/B test: speed 4 vs 5"
    assert rows["sweep"].answer == answers.experiment(rows["sweep"].id).answer.headline
    assert rows["search"].answer.startswith("sustains 30 req/s (30 to 40) within tpot p90 < 15ms; first broken by")
    found = answers.experiment(rows["sweep"].id)
    assert found.answer.headline.startswith("highest output token throughput")
    assert [table.title.partition(":")[0] for table in found.answer.tables] == [
        "Best case for each measure",
        "Pareto front",
    ]
    assert {"pareto", "experiment_grid-ttft-p50"} <= {chart.name for chart in found.charts}
    searched = answers.experiment(rows["search"].id)
    assert searched.charts[0].name == "search_curve-tpot-p90"


def test_an_ab_test_that_is_refused_colours_no_winner_and_gives_its_reason_once(store: Store) -> None:
    kept = next(kept for kept in experiments_of(store.home) if kept.kind == "ab")
    assert isinstance(kept.result, AbResult) and "good" in answer_of(kept, []).tables[0].tones
    refusal = Objection("refuse", "verdict", "a run is invalid")
    result = structs.replace(kept.result, objections=(refusal,))
    refused = answer_of(replace(kept, result=result), [])
    assert refused.headline == "Not decided, because A and B cannot be compared: a run is invalid"
    assert refused.notes == []
    assert set(refused.tables[0].tones) == {""} and {row[-1] for row in refused.tables[0].rows} == {"not decided"}
    drawn = comparison(result)
    assert drawn["title"]["text"].startswith("Not decided") and "better" not in json.dumps(drawn)


def test_settings_that_vary_together_are_one_axis(answers: StoreAnswers) -> None:
    run = runs_of(answers, 1)[0]
    cases = [({"load.concurrency": n, "stop.requests": 10 * n, "model": "m"}, run) for n in (1, 2, 4)]
    assert [settings for settings, _ in joined_cases(cases)] == [{"load.concurrency": n} for n in (1, 2, 4)]
    crossed = [({"a": a, "b": b}, run) for a in (1, 2) for b in (1, 2)]
    assert [settings for settings, _ in joined_cases(crossed)] == [settings for settings, _ in crossed]


def test_one_header_for_a_run(answers: StoreAnswers) -> None:
    about = about_of(runs_of(answers, 1)[0])
    assert about.stack == "m · vLLM 0.24.0 · EPYC" and about.traffic == "300 in, 100 out · 30 req/s Poisson"


def test_links_lead_to_the_pages_that_somebody_named() -> None:
    assert page_link("20260901-030000-a-b", {}) is None
    assert page_link("x", {"INFEROMETER_PAGES_URL": "javascript:alert(1)"}) is None
    link = page_link("20260901-030000-a-b", {"INFEROMETER_PAGES_URL": "https://bench.example/"})
    assert link == "https://bench.example/run.html?id=20260901-030000-a-b"


def test_explored_runs_are_those_of_the_index(answers: StoreAnswers) -> None:
    found = answers.explore(["ttft.p50 < 200ms"])
    assert found.total == found.shown == len(found.rows) > 10
    assert {chart.name for chart in found.charts} >= {"throughput_by_user_speed", "pareto"}
    choices = at(found.charts[0].spec, "usermeta", "choices")
    assert "workload" in choices
    run = answers.load(answers.store.entry(found.rows[0].about.id))
    assert found.rows[0].about == about_of(run)
    drawn = {row["run"]: (row["speed"], row["throughput"]) for row in at(found.charts[0].spec, "data", "values")}
    for row in found.rows:  # tables have the numbers of the charts, which are written with five digits
        assert (row.speed, row.throughput) == pytest.approx(drawn.get(row.about.id, (None, None)), rel=1e-4)
