"""Every chart: a valid Vega-Lite specification, few points, and the numbers of the summary."""

from dataclasses import replace
from typing import Any

import altair
import numpy as np
import pytest
from msgspec import structs

from charted_runs import charted_run, samples_of
from inferometer.errors import PlanError
from inferometer.judge.compare import compare
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.record.summary import BatchCase, MeasureSummary, Phase, Startup, Summary, Value
from inferometer.show.charts import CHARTS, Cannot, Chart, charts_of, charts_of_runs, draw, gallery
from inferometer.show.charts.chart import MOST, SERIES, ChartedRun, legend_columns
from inferometer.show.charts.distributions import MARKED, Mark, with_room
from inferometer.show.charts.experiments import Varied, cases_of, keys_of
from inferometer.show.charts.history import MOST_SERIES, History, HistoryPoint, history_of
from inferometer.show.charts.registry import FLEET, SCHEMA
from inferometer.store.experiments import KeptExperiment, SweepDefinition
from inferometer.store.shapes import ExperimentCase
from lined_runs import line_of

_OF_FLEETS = {name for name, definition in CHARTS.items() if definition.needs == FLEET}  # drawn in test_routing_sweep
STARTUP = Summary(
    startup=Startup(
        phases=[
            Phase(name="weights", title="load weights", process="core", began_s=1.0, seconds=4.0),
            Phase(name="read", title="read", inside="weights", process="core", began_s=1.5, seconds=2.0),
            Phase(name="weights", title="load weights", process="w", began_s=1.0, seconds=5.0),
        ]
    ),
    values={
        "time_to_ready": Value(value=9.0, unit="s", direction="lower", title="time to ready"),
        "weights_time": Value(value=5.0, unit="s", direction="lower", title="load weights"),
    },
)


def rows_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """All data anywhere in a specification."""
    found = list(spec.get("data", {}).get("values", []))
    for part in (*spec.get("layer", []), *spec.get("vconcat", [])):
        found += rows_of(part)
    return found


def without_data(part: Any) -> Any:
    """The schema takes seconds to look at thousands of rows, of which it says nothing."""
    if isinstance(part, dict):
        return {
            name: [] if name == "values" and "select" not in part else without_data(each) for name, each in part.items()
        }
    return [without_data(each) for each in part] if isinstance(part, list) else part


def checked(chart: Chart) -> Chart:
    altair.Chart.from_dict({"$schema": SCHEMA, **without_data(chart.spec)})
    assert len(rows_of(chart.spec)) <= MOST + 100
    assert chart.title and chart.spec["title"]["text"] == chart.title
    return chart


def bare(run: Run, **more: Any) -> Run:
    return replace(run, read_records=None, read_samples=None, **more)


@pytest.fixture(scope="module")
def run() -> Run:
    return charted_run(1000, samples=samples_of(), failed=0.02)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [charted_run(200, rate=rate, id_=f"20261101-1200{rate:02.0f}-a-b") for rate in (10.0, 20.0, 40.0)]


def test_a_run_with_everything_gives_every_chart_of_a_serving_run(run: Run) -> None:
    made, absent = gallery("run", ChartedRun(run))
    wanted = [name for name, each in CHARTS.items() if each.of == "run"]
    assert {checked(chart).name for chart in made} == {*wanted} - {
        "startup_phases",
        "batch_latency",
        "e2e_by_output",
    } - _OF_FLEETS
    assert {each.name: each.why for each in absent}[
        "e2e_by_output"
    ] == "every request has the same output length, 8 tokens"


def test_a_run_without_records_says_why_it_has_no_charts(run: Run) -> None:
    made, absent = gallery("run", ChartedRun(bare(run)))
    assert made == []
    reasons = {each.name: each.why for each in absent}
    assert reasons["ttft_cdf"] == "this run has no records of its requests"
    assert reasons["under_one_clock"] == "nothing was sampled during the load"


def test_quantiles_of_the_cdf_are_those_of_the_summary(run: Run) -> None:
    """At p50 and p90 the line crosses where the summary says."""
    for name, unit in (("ttft", 1e3), ("e2e", 1e3), ("itl", 1e3)):
        rows = draw(f"{name}_cdf", run).spec["data"]["values"]
        shares, values = (np.array([row[field] for row in rows]) for field in ("share", "value"))
        for share in (0.5, 0.9):
            said = quantities(run.summary)[f"{name}.p{share * 100:.0f}"].value * unit
            assert np.interp(share, shares, values) == pytest.approx(said, rel=0.02)


def test_a_histogram_counts_every_answer_or_says_how_many_it_does_not_show(run: Run) -> None:
    spec = draw("ttft_histogram", run).spec
    assert sum(row["count"] for row in spec["data"]["values"]) == run.summary.measures["ttft"].count
    late = run.read_records()
    far = late.read_at.copy()
    far[late.read_offsets[5] : late.read_offsets[6]] += 60 * 10**9
    spec = draw("ttft_histogram", replace(run, read_records=lambda: replace(late, read_at=far))).spec
    assert "1 beyond" in spec["title"]["subtitle"]


def test_requests_of_a_long_run_are_a_few_neighbours(run: Run) -> None:
    chart = draw("requests", run)
    assert len({row["lane"] for row in rows_of(chart.spec)}) == 160
    assert "160 of 1,000" in chart.subtitle
    assert {"failed", "until the first token"} <= {row["part"] for row in rows_of(chart.spec)}


@pytest.mark.parametrize(
    ("begins", "ends", "labels"),
    [
        (0.1, 0.9, {("window begins", False), ("window ends", True)}),
        (0.2, 0.4, {("measured window", False)}),
        (0.7, 0.8, {("measured window", True)}),
        (0.0, 0.1, {("window ends", False)}),
        (0.9, 1.0, {("window begins", True)}),
    ],
)
def test_labels_of_a_short_window_do_not_cover_each_other(
    run: Run, begins: float, ends: float, labels: set[tuple[str, bool]]
) -> None:
    whole = ChartedRun(run)
    length = (whole.end_at - whole.start_at) / 1e9
    window = structs.replace(run.summary.window, start_s=begins * length, end_s=ends * length)
    spec = draw("in_flight", replace(run, summary=structs.replace(run.summary, window=window))).spec
    texts = [layer for layer in spec["layer"] if layer["mark"]["type"] == "text"]
    rows = [(row["label"], layer["mark"]["align"] == "right") for layer in texts for row in layer["data"]["values"]]
    assert {row for row in rows if row[0]} == labels


def test_tokens_over_time_are_all_tokens(run: Run) -> None:
    rows = [row for row in draw("tokens_over_time", run).spec["data"]["values"] if row["series"] == "output"]
    step = rows[1]["at"] - rows[0]["at"]
    assert sum(row["value"] for row in rows) * step == pytest.approx(
        int(run.read_records().read_tokens.sum()), rel=1e-6
    )


def test_many_gpus_and_a_million_samples_stay_a_few_points(run: Run) -> None:
    many = replace(run, read_samples=lambda: samples_of(30_000, gpus=12))
    chart = checked(draw("under_one_clock", many))
    titles = [view["title"]["text"] for view in chart.spec["vconcat"]]
    assert "GPU: power (the first 8 of 12) (W)" in titles
    assert titles[0] == "Requests", "its unit is its name"


def test_runs_as_points(runs: list[Run]) -> None:
    names = {checked(chart).name for chart in charts_of_runs(runs)}
    assert names == {"latency_by_rate", "throughput_by_user_speed", "pareto", "ttft_cdfs", "e2e_cdfs"}
    by_rate = draw("latency_by_rate", runs).spec["data"]["values"]
    assert sorted({round(row["rate"], 6) for row in by_rate}) == sorted(
        round(quantities(each.summary)["offered_rate"].value, 6) for each in runs
    )


def test_cost_and_throughput_are_those_that_the_runs_tell(runs: list[Run]) -> None:
    told = {
        "throughput_per_gpu": Value(value=50.0, unit="tokens/s", direction="higher", title="t"),
        "tokens_per_s_user": Value(value=9.0, unit="tokens/s", direction="higher", title="u"),
        "cost_per_million_tokens": Value(value=2.5, unit="$", direction="lower", title="c"),
    }
    priced = [replace(each, summary=structs.replace(each.summary, values=told)) for each in runs]
    row = checked(draw("cost_by_user_speed", priced)).spec["data"]["values"][0]
    assert (row["cost"], row["speed"], row["throughput"]) == (2.5, 9.0, 50.0)
    assert draw("throughput_by_user_speed", priced).title.startswith("Tokens per second and GPU")


def test_a_comparison_has_a_dot_for_every_measure(runs: list[Run]) -> None:
    found = compare([runs[0]], [runs[1]])
    chart = checked(draw("comparison", found))
    assert len(chart.spec["data"]["values"]) == len(found.changes)


def test_quantiles_that_are_close_share_one_label() -> None:
    def labels(*places: float) -> list[str]:
        rows = [Mark(at=place, label=label) for place, label in zip(places, MARKED, strict=True)]
        return [row["label"] for row in with_room(rows, 20.0)]

    assert labels(5, 9, 12) == ["p50", "p90", "p99"]
    assert labels(5, 5.5, 12) == ["p50, p90", "", "p99"]
    assert labels(5, 5.5, 8) == ["p50, p90, p99", "", ""], "a long label needs more room"


def test_a_history_marks_where_its_level_changed() -> None:
    rng = np.random.default_rng(3)
    line = line_of([10 + each for each in rng.normal(0, 0.1, 20)] + [13 + each for each in rng.normal(0, 0.1, 20)])
    chart = checked(draw("history", history_of(line, "tpot.mean")))
    steps = chart.spec["layer"][1]["data"]["values"]
    assert [step["at"] for step in steps] == [line[20].started_at]
    assert steps[0]["label"][:2] in ("+2", "+3")
    assert chart.subtitle == "40 runs, 1 change point"


def test_words_of_steps_at_one_instant_stand_in_rows_of_their_own() -> None:
    levels = [10.0 + at % 2 / 10 for at in range(20)] + [13.0 + at % 2 / 10 for at in range(20)]
    points = [
        HistoryPoint(f"r{at}", run.started_at, level)
        for at, (run, level) in enumerate(zip(line_of(levels), levels, strict=True))
    ]
    chart = checked(draw("history", History("TTFT p50", "s", {f"line {at}": points for at in range(14)})))
    words = [layer for layer in chart.spec["layer"] if layer["mark"]["type"] == "text"]
    assert [len(layer["data"]["values"]) for layer in words] == [1] * MOST_SERIES
    assert len({layer["encoding"]["y"]["value"] for layer in words}) == MOST_SERIES
    assert chart.subtitle == "40 runs, 12 change points, the first 12 of 14 series"
    assert len(set(SERIES["light"])) >= MOST_SERIES <= len(set(SERIES["dark"])), "a colour for each"


def test_a_legend_has_as_many_columns_as_fit() -> None:
    assert legend_columns(["p50", "p90", "p99"]) >= 3
    assert legend_columns(["in 2000, out 400, c 64"] * 12) == 3 and legend_columns(["x" * 500]) == 1


def test_several_keys_are_several_lines_and_no_key_is_none() -> None:
    lines = history_of(line_of([10.0, 11.0]), "tpot.mean", "ttft.p50").lines
    assert list(lines) == ["TPOT mean", "TTFT p50"]
    with pytest.raises(Cannot, match="has this measure"):
        draw("history", history_of(line_of([10.0]), "nothing"))


def test_an_experiment_as_curves_and_as_a_grid() -> None:
    line = line_of([10.0, 11.0, 12.0, 14.0])
    settings = [{"rate": 1, "batch": 8}, {"rate": 2, "batch": 8}, {"rate": 1, "batch": 16}, {"rate": 2, "batch": 16}]
    cases = [ExperimentCase(name="c", parameters=each, run=run.id) for each, run in zip(settings, line, strict=True)]
    kept = KeptExperiment(
        "e", "sweep", None, "", SweepDefinition(), [*cases, ExperimentCase(name="lost", parameters={})]
    )
    found = cases_of(kept, {run.id: run for run in line}.get)
    assert len(found) == 4 and keys_of(found) == ["ttft.p50", "output_rate"]
    curves = checked(draw("experiment_curves", Varied("tpot.mean", found)))
    assert {row["series"] for row in curves.spec["data"]["values"]} == {"batch 8", "batch 16"}
    grid = checked(draw("experiment_grid", Varied("tpot.mean", found)))
    assert {(r["across"], r["up"]): r["value"] for r in grid.spec["data"]["values"]}["2", "16"] == pytest.approx(14.0)
    zipped = [{"case": name, "policy": name[:1], "rate": rate} for name in ("a1", "b1") for rate in (1, 2)]
    crossed = draw("experiment_grid", Varied("tpot.mean", list(zip(zipped, line, strict=True))))
    assert {(row["across"], row["up"]) for row in crossed.spec["data"]["values"]} == {
        (name, rate) for name in ("a1", "b1") for rate in ("1", "2")
    }, "case and policy change together, so case and rate are the axes"
    with pytest.raises(Cannot, match="no two settings were varied against each other"):
        draw("experiment_grid", Varied("tpot.mean", [(zipped[0], line[0]), (zipped[3], line[1])]))
    policies = [{"policy": "random"}, {"policy": "prefix", "defaults": "old"}, {"policy": "prefix", "defaults": "new"}]
    with pytest.raises(Cannot, match="no two settings were varied against each other"):  # of random there are none
        draw("experiment_grid", Varied("tpot.mean", list(zip(policies, line[:3], strict=True))))
    with pytest.raises(Cannot, match="no numeric setting"):
        draw("experiment_curves", Varied("tpot.mean", [({"engine": "a"}, line[0]), ({"engine": "b"}, line[1])]))


def test_levels_of_an_experiment_are_a_curve_without_its_ends() -> None:
    line = line_of([10.0, 11.0, 12.0, 14.0])
    settings: list[dict[str, Any]] = [
        {"level": "low"},
        {"level": "high"},
        *({"level": f"{n} of 2", "load.rate": n * 1.5} for n in (1, 2)),
    ]
    cases = [ExperimentCase(name="c", parameters=each, run=run.id) for each, run in zip(settings, line, strict=True)]
    found = cases_of(
        KeptExperiment("e", "sweep", None, "", SweepDefinition(), cases), {run.id: run for run in line}.get
    )
    curve = checked(draw("experiment_curves", Varied("tpot.mean", found)))
    assert [(row["at"], row["series"]) for row in curve.spec["data"]["values"]] == [(1.5, "all"), (3.0, "all")]
    ends = cases_of(
        KeptExperiment("e", "sweep", None, "", SweepDefinition(), cases[:2]), {run.id: run for run in line}.get
    )
    assert [settings for settings, _ in ends] == [{"level": "low"}, {"level": "high"}]


def test_phases_of_a_start(run: Run) -> None:
    started = bare(run, kind="startup", summary=STARTUP)
    (chart,) = map(checked, charts_of(started))
    phases = [row["phase"] for row in chart.spec["data"]["values"]]
    assert len(set(phases)) == 3  # the same phase of two processes stays two
    assert chart.subtitle == "ready after 9 s"
    assert {checked(each).name for each in charts_of_runs([started, replace(started, id="b")])} == {"startups"}


def test_latency_of_batches(run: Run) -> None:
    cases = [BatchCase(name=f"bs{n}", batch_size=n, input_len=32, output_len=128, iters=1) for n in (1, 8)]
    measures = {f"bs{n}": MeasureSummary(unit="s", statistics={"mean": 1.0 * n, "p99": 1.1 * n}) for n in (1, 8)}
    offline = bare(run, kind="latency", summary=Summary(cases=cases, measures=measures))
    (chart,) = map(checked, charts_of(offline))
    assert chart.subtitle == "32 input, 128 output tokens" and len(chart.spec["data"]["values"]) == 4


def test_an_unknown_chart_is_refused_with_those_there_are() -> None:
    with pytest.raises(PlanError) as refused:
        draw("pie", None)
    assert "ttft_cdf" in str(refused.value.hint)
