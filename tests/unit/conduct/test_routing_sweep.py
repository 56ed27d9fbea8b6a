"""The ready experiment of routing strategies: in turns, on the same tapes, compared repeat by repeat; its files and
charts, which are those of Ray's sweep."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import altair
import pytest
from click.testing import CliRunner
from msgspec import structs
from rich.console import Console

from inferometer.cli.group import group
from inferometer.conduct.prepare import begin, prepare
from inferometer.conduct.sweep import Swept, changes_of, doubt_of_tape, sweep
from inferometer.documents.document import JsonObject
from inferometer.errors import PlanError
from inferometer.record.record import Sample, Samples
from inferometer.record.run import Run
from inferometer.show.charts.chart import Cannot, Chart, ChartedRun
from inferometer.show.charts.experiments import Varied, cases_of
from inferometer.show.charts.registry import CHARTS, FLEET, SCHEMA, draw, gallery
from inferometer.show.experiment import print_strategy_changes
from inferometer.show.report.content import experiment_report
from inferometer.store.experiments import SweepResult
from inferometer.store.store import Store, open_store

LEGS = ("there", "work", "back")
SMALL = ("repeats=3", "stop.requests=60", "workload.groups=20")
CLIENT_COLUMNS = """gpu_type,model_name,num_servers,enable_prefix_caching,enable_chunked_prefill,benchmark_label,
scheduler_strategy,min_output_len,max_output_len,max_concurrency,request_rate,with_warmup,disable_ignore_eos,
disable_stream,max_conversations,num_prompts,duration,completed,request_throughput,input_throughput,output_throughput,
mean_ttft_ms,median_ttft_ms,std_ttft_ms,p99_ttft_ms,mean_tpot_ms,median_tpot_ms,std_tpot_ms,p99_tpot_ms,mean_itl_ms,
median_itl_ms,std_itl_ms,p99_itl_ms,mean_e2e_latency_ms,median_e2e_latency_ms""".replace("\n", "").split(",")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("routing")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield path


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    return open_store(folder / "store")


@pytest.fixture(scope="module")
def swept(store: Store) -> Swept:
    prepared = prepare("routing", SMALL)
    return sweep(prepared, begin(prepared, store), store=store)


@pytest.fixture(scope="module")
def routed(swept: Swept, store: Store) -> Run:
    row = next(row for row in swept.rows if row.label == "prefix_aware")
    return store.load(str(row.run))


def test_every_strategy_has_the_same_tapes_in_turns(swept: Swept, store: Store) -> None:
    assert [row.state for row in swept.rows] == ["complete"] * 15
    done = [case.name for case in swept.kept.cases]
    assert done[:5] == [name.replace("#2", "#1") for name in done[5:10][::-1]], "there and back: drift cancels"
    lengths = {row.name: row.values["input_tokens.mean"].value for row in swept.rows}
    for repeat in (1, 2, 3):
        assert len({value for name, value in lengths.items() if name.endswith(f"#{repeat}")}) == 1
    assert len(set(lengths.values())) == 3, "every repeat has a seed of its own"
    run = store.load(str(swept.rows[0].run))
    assert run.environment.time == "virtual"


def test_strategies_are_compared_with_the_baseline_repeat_by_repeat(swept: Swept) -> None:
    prepared = prepare("routing", SMALL)
    changes = {(entry.case, entry.measure): entry for entry in changes_of(prepared, swept.rows)}
    assert {case for case, _ in changes} == {row.label for row in swept.rows} - {"power_of_two"}
    best = changes["prefix_aware without eviction", "ttft.mean"]
    assert best.seeds == 3 and best.change < -0.3
    assert isinstance(swept.kept.result, SweepResult)
    texts = [entry.text for entry in swept.kept.result.changes if entry.measure == "run_time"]
    assert len(texts) == 4


def test_where_it_is_narrow_the_name_of_a_case_is_broken_and_no_number_is_cut(swept: Swept) -> None:
    assert isinstance(swept.kept.result, SweepResult)
    changes = [structs.replace(entry, settings={"load.rate": 100}) for entry in swept.kept.result.changes]
    narrow = io.StringIO()
    print_strategy_changes(changes, Console(width=80, file=narrow))
    text = narrow.getvalue()
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    assert all(entry.text in text for entry in changes if entry.measure == "run_time")


def test_a_dry_run_of_virtual_time_does_not_promise_hours() -> None:
    virtual, real = (
        CliRunner().invoke(group, ["sweep", "routing", "--dry-run", *more]).output
        for more in ((), ("--set", "time=real"))
    )
    assert "50 cases: about 16m 40s; in virtual time, which takes a fraction of that\n" in virtual
    assert "50 cases, 50 starts of a server: about 16m 40s plus server starts\n" in real


def test_the_two_csv_files_of_the_sweep_have_its_columns(swept: Swept, folder: Path) -> None:
    with (folder / "routing-results/serve_conversation_pieces_sweep_results.csv").open() as file:
        reader = csv.DictReader(file)
        rows = list(reader)
        assert reader.fieldnames == CLIENT_COLUMNS
    assert len(rows) == len(swept.rows)
    first = next(row for row in rows if row["benchmark_label"] == "prefix_aware")
    assert first["scheduler_strategy"] == "prefix_aware"
    assert (first["gpu_type"], first["num_servers"], first["num_prompts"]) == ("L4 (simulated)", "4", "60")
    assert first["completed"] == "60", "the warm-up is not counted"
    with (folder / "routing-results/vllm_conversation_pieces_sweep_results.csv").open() as file:
        engines = next(csv.DictReader(file))
    assert float(engines["ray_vllm:request_success_total"]) == 120, "engines count both passes, as in the original"
    parts = [float(engines[f"ray_vllm:request_{name}_time_seconds"]) for name in ("queue", "prefill", "decode")]
    whole = float(engines["ray_vllm:e2e_request_latency_seconds"])
    assert sum(parts) == pytest.approx(whole - 0.008, abs=1e-6), "all but the 8 ms in front of the engine"


def test_the_files_that_the_scheduler_keeps_of_itself(swept: Swept, folder: Path) -> None:
    there = folder / "routing-results/per-second"
    load = json.loads((there / "prefix_aware_seed0_load_distribution.json").read_text())
    assert set(next(iter(load.values()))) == {f"replica-{number}" for number in range(1, 5)}
    assert max(sum(replicas.values()) for replicas in load.values()) <= 40
    chars = json.loads((there / "prefix_aware_seed0_char_count_over_time.json").read_text())
    assert sum(list(chars.values())[-1].values()) > 10_000
    with (there / "prefix_aware_seed0_prefix_match_rate.csv").open() as file:
        rates = list(csv.DictReader(file))
    assert list(rates[0]) == ["time", "replica_id", "match_rate"] and len(rates) == 120
    with (there / "prefix_aware_seed0_scheduling_mismatches.csv").open() as file:
        decisions = list(csv.DictReader(file))
    assert {row["scheduling_decision"] for row in decisions} >= {"prefix_match", "smallest_tree"}
    assert all(row["original_request_id"] == row["matched_replica_request_id"] for row in decisions)
    with (there / "prefix_aware_seed0_queue_overhead.csv").open() as file:
        assert all(float(row["search_duration"]) > 0 for row in csv.DictReader(file))
    assert (there / "prefix_aware_seed0_eviction_times.json").exists()
    metrics = json.loads((there / "prefix_aware_seed0_metrics.json").read_text())
    assert "queue_time_sum" in next(iter(metrics.values()))["replica-1"]


def valid(chart: Chart) -> Chart:
    altair.Chart.from_dict({"$schema": SCHEMA, **chart.spec})
    return chart


def test_a_routed_run_has_every_chart_of_a_fleet(routed: Run) -> None:
    made = {chart.name: valid(chart) for chart in gallery("run", ChartedRun(routed))[0]}
    assert {name for name, definition in CHARTS.items() if definition.needs == FLEET} <= set(made)
    counted = made["routing_decisions"].spec["data"]["values"]
    assert sum(row["count"] for row in counted) == 120


def test_calls_to_a_tree_in_another_process_are_phases_of_their_own(routed: Run) -> None:
    """As Ray Serve has them: the ways and the work, and what is left of the router's time."""
    whole = {row["phase"]: row["value"] for row in draw("routing_phases", routed).spec["data"]["values"]}
    assert list(whole) == ["choose a replica", "remember the prompt", "evict (per request)", "total"]
    samples = routed.samples
    assert samples is not None
    at, steps = int(samples.at.min()), [f"{step}_{leg}_s" for step in ("match", "insert") for leg in LEGS]
    kept = [samples.sample(i) for i in range(len(samples))]
    more = Samples.of([*kept, *(Sample("router", step, at, 1e-9) for step in steps)])
    split = replace(routed, read_samples=lambda: more)
    rows = {row["phase"]: row["value"] for row in draw("routing_phases", split).spec["data"]["values"]}
    assert list(rows)[:3] == [f"find the prefix: {leg}" for leg in ("way to the tree", "in the tree", "way back")]
    assert rows["find the prefix: in the tree"] == pytest.approx(1e-3 / 120), "of all requests, in microseconds"
    assert rows["total"] == pytest.approx(whole["total"])


def test_charts_of_the_strategies(swept: Swept, store: Store) -> None:
    cases = cases_of(swept.kept, store.load)
    varied = Varied("ttft.mean", cases)
    assert len(valid(draw("strategy_bars", varied)).spec["vconcat"]) == 4
    ratios = valid(draw("ratio_to_baseline", varied)).spec["data"]["values"]
    assert {row["mean"] for row in ratios if row["strategy"] == "power_of_two"} == {1.0}
    stacked = valid(draw("request_lifecycle", [run for _, run in cases])).spec["data"]["values"]
    assert {row["phase"] for row in stacked} == {"queue", "prefill", "decode"}
    with pytest.raises(Cannot, match="two numeric settings"):
        draw("routing_map", varied)
    titles = [section.title for section in experiment_report(swept.kept, cases).sections]
    assert "Results" in titles


def test_the_map_names_the_winner_and_whom_it_is_not_shown_to_beat(store: Store) -> None:
    plan: JsonObject = {
        "server": {"type": "fleet", "replicas": 2},
        "workload": {"prefix": {"tokens": 400, "suffix_tokens": 40, "groups": 6}, "output_tokens": 10},
        "stop": {"requests": 40},
    }
    axes: JsonObject = {"load.rate": [5, 50], "workload.prefix.groups": [2, 30]}
    cases: list[JsonObject] = [
        {"name": name, "set": {"server.router.policy": name}} for name in ("random", "prefix_aware")
    ]
    experiment: JsonObject = {
        "time": "virtual",
        "plan": plan,
        "axes": axes,
        "cases": cases,
        "repeats": 3,
        "vary_seed": True,
    }
    prepared = prepare(experiment)
    swept = sweep(prepared, begin(prepared, store), store=store)
    varied = Varied("ttft.mean", cases_of(swept.kept, store.load))
    bars = valid(draw("strategy_bars", varied)).spec["vconcat"][0]["data"]["values"]
    assert len(bars) == 8 and {row["runs"] for row in bars} == {3}, "a group of bars for each place on the map"
    assert [row["label"] for row in bars[::2]] == [f"rate {r}, groups {g}" for r in (5, 50) for g in (2, 30)]
    rows = valid(draw("routing_map", varied)).spec["data"]["values"]
    assert {(row["across"], row["up"]) for row in rows} == {("5", "2"), ("5", "30"), ("50", "2"), ("50", "30")}
    assert {row["winner"] for row in rows} <= {"random", "prefix_aware"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"baseline": "nobody"}, "baseline must be the name of a case, got nobody; there are a"),
        ({"time": "fast"}, "time"),
        ({"plan": {"server": {"type": "fleet", "replicas": 2, "router": "x"}}}, "policy must be one of"),
    ],
)
def test_mistakes_of_an_experiment(change: JsonObject, message: str, store: Store) -> None:
    wrong: JsonObject = {"time": "virtual", "plan": {"stop": 2}, "cases": [{"name": "a"}], **change}
    if "plan" not in change:
        with pytest.raises(PlanError, match=message):
            prepare(wrong)
        return
    prepared = prepare(wrong)
    (row,) = sweep(prepared, begin(prepared, store), store=store).rows
    assert row.state == "failed" and message in str(row.error)


def test_a_tape_of_one_prompt_is_told_to_decide_nothing() -> None:
    assert doubt_of_tape(prepare("routing", SMALL)) is None
    doubt = doubt_of_tape(prepare("routing", ("stop.requests=1",)))
    assert doubt is not None and "the tape has one prompt" in doubt


def test_an_unknown_name_lists_the_ready_experiments() -> None:
    with pytest.raises(PlanError) as caught:
        prepare("routin")
    assert "routing" in str(caught.value.hint)
