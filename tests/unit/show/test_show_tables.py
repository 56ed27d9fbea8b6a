"""The smaller tables: stored runs, a calibration, short texts of plans."""

import io
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from rich.table import Table

from inferometer.plan.reading import plan_from
from inferometer.plan.wording import load_text, traffic_text, warmup_text, workload_text
from inferometer.record.environment import CalibrationPoint, Curve
from inferometer.show.console import console, emit
from inferometer.show.instrument import ceiling_text, curve_table
from inferometer.show.runs import grid_lines, runs_grid, runs_table, short_names, when_text
from inferometer.store.entry import Entry


def shown(table: Table, width: int = 80) -> str:
    file = io.StringIO()
    emit(table, console(file, width))
    return file.getvalue()


def entry(**fields: Any) -> Entry:
    usual: dict[str, Any] = {
        "id": "20261115-031207-plum-otter",
        "started_at": "2026-11-15T03:12:07.000+00:00",
        "state": "complete",
        "verdict": "valid",
        "name": None,
        "model": "llama-8b",
        "target": "http://x",
        "requests": 400,
        "values": {"ttft.p50": 0.05, "ttft_scheduled.p50": 0.06, "ttft_scheduled.p99": 0.09, "output_rate": 1234.0},
        "folder": Path("runs"),
    }
    return Entry(**usual | fields)


def test_a_run_is_one_line_with_its_whole_id() -> None:
    text = shown(runs_table([entry(), entry(verdict=None, state="partial", values={}, requests=None)], 80))
    good, killed = text.splitlines()[1:]
    assert good.split() == ["20261115-031207-plum-otter", "llama-8b", "60", "ms", "90", "ms", "1,234", "valid"]
    assert killed.split() == ["20261115-031207-plum-otter", "llama-8b", "-", "-", "-", "partial"]


def test_a_long_name_never_takes_room_from_the_numbers() -> None:
    text = shown(runs_table([entry(name="a name [red]that[/red] goes on " * 5)], 80))
    assert "20261115-031207-plum-otter" in text and "1,234 valid" in text
    assert "[red]" in text
    assert max(map(len, text.splitlines())) <= 80


def test_results_of_one_name_in_several_folders_can_be_told_apart() -> None:
    names = [
        f"demo/{variant}/results/stage_{stage}_lifecycle_metrics.json stage {stage}"
        for variant in ("vllm", "vllm+eagle", "vllm+chunking_and_prefix_caching")
        for stage in range(7)
    ]
    entries = [entry(name=name, source="inference-perf") for name in names]
    assert short_names(entries)[names[8]] == "vllm+eagle/stage 1"
    column = [str(row[1]) for row in runs_grid(entries, 100).rows]
    assert len({*column}) == len(names) and max(map(len, column)) <= 33
    same = [entry(name=f"{folder}/r.json", source="vllm") for folder in ("a", "b")]
    assert list(short_names(same).values()) == ["a/r", "b/r"]
    assert short_names([entry(name="x.json", source="vllm"), entry(name="x.csv", source="vllm")]) == {}


def of_kind(kind: str, **values: float) -> Entry:
    kept = {name.replace("__", "."): value for name, value in values.items()}
    return entry(kind=kind, requests=None, values=kept)


def heading(entries: list[Entry], width: int = 80) -> str:
    return shown(runs_table(entries, width), width).splitlines()[0]


def test_runs_without_a_ttft_show_the_numbers_that_they_have() -> None:
    startup = of_kind("startup", time_to_ready=0.4)
    assert heading([startup]).split("what")[1].split() == ["ready", "after", "verdict"]
    batches = of_kind("latency", latency_bs1__mean=0.6, latency_bs8__mean=0.7, latency_bs16__mean=0.8)
    assert heading([batches]).split("what")[1].split() == ["latency", "bs1", "bs8", "bs16", "verdict"]
    assert "600 ms" in shown(runs_table([batches], 80))
    whole = of_kind("throughput", request_rate=37.7, output_rate=4831.0, elapsed=1.3)
    assert heading([whole]).split("what")[1].split() == ["req/s", "tok/s", "took", "verdict"]
    assert heading([batches], 120).split() == ["run", "when", "what", "latency", "bs1", "bs8", "bs16", "verdict"]


def test_among_others_they_stand_under_the_usual_numbers() -> None:
    startup = of_kind("startup", time_to_ready=0.4)
    assert heading([startup, entry()]) == heading([entry()])
    assert heading([entry(state="partial", values={})]).split() == heading([entry()]).split()


def test_numbers_take_no_room_from_the_id() -> None:
    width = 80
    shaped = {f"latency_bs{size}_in100_out200__mean": 0.6 for size in (1, 128, 256)}
    for line in shown(runs_table([of_kind("latency", **shaped)], width), width).splitlines():
        assert len(line) <= width and "…" not in line


def test_thousands_of_lines_look_like_a_few() -> None:
    entries = [entry(), entry(verdict=None, state="partial", values={}, requests=None, name="a much longer name")]
    for width in (80, 100):
        assert "\n".join(grid_lines(runs_grid(entries, width))) + "\n" == shown(runs_table(entries, width), width)


def test_when_is_missing_rather_than_wrong() -> None:
    assert when_text("") == "-"
    assert when_text("2026-11-15T12:12:07.000+00:00").startswith("Nov 15")


def test_a_calibration_as_a_table() -> None:
    point = CalibrationPoint(
        streams=128,
        events_per_s=22_759.0,
        ttft_error_p50=2.8e-6,
        read_error_p50=1.7e-6,
        read_error_p99=8e-6,
        cpu_s_per_million=15.8,
        stamps="kernel",
    )
    curve = Curve(points=[point], ceiling_events_per_s=58_079.0)
    last = shown(curve_table(curve)).splitlines()[-1]
    assert last.split() == ["128", "22,759", "2.80", "µs", "-", "1.70", "µs", "8", "µs", "15.8", "kernel"]
    assert "58,079 events/s" in ceiling_text(curve)
    assert "at least 58,079" in ceiling_text(structs.replace(curve, ceiling_is_at_least=True))
    assert "none of these loads" in ceiling_text(structs.replace(curve, ceiling_events_per_s=None))


@pytest.mark.parametrize(
    ("load", "stop", "text"),
    [
        ({"rate": 10}, "60s", "10 req/s Poisson for 60 s"),
        ({"type": "constant", "rate": 0.5}, 20, "0.5 req/s constant for 20 requests"),
        ({"type": "gamma", "rate": 2, "cv": 3}, 20, "2 req/s gamma (cv 3) for 20 requests"),
        ({"rate": 1, "to": 9}, "1min", "1 to 9 req/s ramp for 60 s"),
        ({"rate": 10, "max_concurrency": 4}, 20, "10 req/s Poisson, at most 4 in flight for 20 requests"),
        ({"concurrency": 32}, 1000, "32 in flight for 1,000 requests"),
        ({"stages": [{"duration": 5, "rate": n} for n in range(1, 7)]}, {}, "stages 1 > 2 > .. > 6 req/s"),
        ({"stages": [{"duration": 5, "concurrency": 2}]}, {}, "stages 2 in flight"),
    ],
)
def test_loads_in_a_few_words(load: dict[str, Any], stop: Any, text: str) -> None:
    plan = plan_from({"load": load, "stop": stop})
    assert load_text(plan.load, plan.stop) == text


def test_workload_warmup_and_classes_in_a_few_words() -> None:
    plan = plan_from(
        {
            "warmup": {"requests": 20, "duration": "5s"},
            "traffic": [
                {"name": "chat", "workload": {"output_tokens": None}, "load": {"rate": 1}},
                {"name": "batch", "load": {"concurrency": 2}},
            ],
        }
    )
    assert warmup_text(plan.warmup) == "20 requests and 5 s"
    assert workload_text(plan.traffic[0].workload) == "synthetic, 256 input tokens, output length set by the server"
    assert traffic_text(plan.traffic[1]).startswith("batch: synthetic, 256 input + 64 output tokens; 2 in flight")


def test_a_workload_says_what_is_shared_and_no_output_where_there_is_none() -> None:
    def text(generates=True, **workload):
        return workload_text(plan_from({"workload": workload}).workload, generates)

    assert (
        text(prefix={"hit_rate": 0.6, "groups": 8}) == "synthetic, 256 input + 64 output tokens, 60% shared in 8 groups"
    )
    assert text(prefix={"tokens": 100, "groups": 8}).endswith(", 100 shared of 8 groups")
    assert text(generates=False, input_tokens=20) == "synthetic, 20 input tokens"
    assert text(generates=False, type="table", path="a.csv", output_tokens=20) == "table from a.csv"
