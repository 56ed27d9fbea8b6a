"""Summaries and verdicts to JSON and back: nothing is lost, old names are read, wrong types are reported."""

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from imported_files import VLLM_DETAILED
from measure_rows import closed_plan, failure, many, open_plan, row, steady_load

from inferometer.conduct.front import simulate
from inferometer.conduct.startup import startup_from_log
from inferometer.documents.document import JsonObject, JsonValue
from inferometer.errors import StoreError
from inferometer.exchange.importing.importer import import_file
from inferometer.measure.custom import measures_in, summary_of
from inferometer.measure.inputs import Facts
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.plan.model import Plan
from inferometer.record.encoding import result_from, summary_document, summary_from, verdict_document, verdict_from
from inferometer.record.run import Run
from inferometer.record.summary import (
    Failures,
    Goal,
    MeasuredSleep,
    MeasureSummary,
    PrecisionResult,
    Startup,
    Summary,
    Value,
)
from inferometer.record.verdict import Reason, Verdict
from plain_data import at

LOG = Path(__file__).parents[2] / "data/vllm-0.24-h200/startup/server.log"
FORMER = {  # names of version 1, as far as real runs have them
    "word": "status",
    "reasons": "doubts",
    "asked": "requested",
    "asked_against_reported": "requested_against_reported",
    "unknown": "weak",
    "run": "span",
}


def through_json(document: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    return read


def assert_kept(run: Run) -> None:
    assert summary_from(through_json(summary_document(run.summary))) == run.summary
    assert run.verdict is not None
    assert verdict_from(through_json(verdict_document(run.verdict))) == run.verdict


# -- the runs of this version ----------------------------------------------------------------------------------------


def test_a_simulated_run() -> None:
    assert_kept(simulate(rate=20, requests=200, input_tokens=64, output_tokens=8, seed=1))


def test_an_offline_run(latency: Run, throughput: Run) -> None:
    assert_kept(latency)
    assert_kept(throughput)


def test_a_startup(tmp_path: Path) -> None:
    run = startup_from_log(LOG, store=tmp_path)
    assert run.summary.startup is not None and run.summary.startup.phases
    assert_kept(run)


def test_an_imported_run(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(VLLM_DETAILED))
    (run,) = import_file(file, tmp_path / "store").runs
    assert run.summary.definitions
    assert_kept(run)


def test_a_benchmark_of_somebodys_own() -> None:
    said = [
        {"name": "word", "value": 3.0, "unit": "", "direction": "lower"},  # a name of ours once, and not of this
        {"name": "asked.p99", "value": 4.0, "unit": "s"},
        {"name": "asked.p75", "value": 2.0, "unit": "s"},
        {"name": "warm starts", "values": [1.0, 2.0, 4.0], "unit": "s", "direction": "lower"},
        {"name": "batch.count", "value": 7, "unit": ""},
        {"name": "batch.unit", "value": 8, "unit": ""},
    ]
    summary = summary_of(measures_in(said))
    assert summary_from(through_json(summary_document(summary))) == summary
    assert summary.values["batch.unit"].value == 8.0 and summary.values["word"].value == 3.0
    assert summary.measures["asked"].statistics == {"p99": 4.0, "p75": 2.0}


def made() -> Iterator[tuple[Summary, Plan]]:
    several = Plan.model_validate(
        {
            "traffic": [
                {"name": "asked", "load": {"type": "poisson", "rate": 10}, "limits": ["ttft p75 < 1s"]},
                {"name": "word", "load": {"type": "concurrency", "concurrency": 1}},
            ]
        }
    )
    stages = [{"duration": 1, "rate": 10}, {"duration": 1, "rate": 20}]
    staged = Plan.model_validate({"load": {"type": "stages", "stages": stages}})
    turns = [row(0, reads=[100], turns=2), row(600, reads=[800], turn=1, turns=2)]
    mixed = [row(i * 100, traffic=name) for i in range(20) for name in ("asked", "word")]
    failed = [failure(i * 100) if i % 3 else row(i * 100) for i in range(90)]
    for rows, plan in (
        ([], open_plan()),
        (steady_load(n=100), open_plan(limits=["ttft p99 < 1s"])),
        (failed, closed_plan(4)),
        (turns, open_plan()),
        (mixed, several),
        ([row(i * 50, stage=i // 20) for i in range(40)], staged),
    ):
        yield summarize(many(rows), plan, Facts(start_at=0)), plan


def test_every_kind_of_summary_comes_back() -> None:
    for summary, plan in made():
        judged = verdict(summary, Facts(start_at=0, interrupted=True, interrupted_by="SIGINT"), plan)
        assert summary_from(through_json(summary_document(summary))) == summary
        assert verdict_from(through_json(verdict_document(judged))) == judged
        assert any(doubt.signal == "SIGINT" for doubt in judged.doubts)


# -- the form --------------------------------------------------------------------------------------------------------


def test_every_section_is_there_and_null_where_a_run_has_none() -> None:
    document = summary_document(Summary())
    assert document.pop("schema") == "inferometer/summary/2"
    assert document.keys() == set(Summary.__struct_fields__)
    assert [document[name] for name in ("window", "concurrency", "failures", "goodput", "server")] == [None] * 5
    assert (document["measures"], document["stages"]) == ({}, [])
    assert summary_from(document) == summary_from({}) == Summary()


def test_statistics_are_fields_of_their_measure() -> None:
    measure = MeasureSummary(unit="s", count=9, statistics={"p50": 0.1, "p99": None}, weak={"p99": 368})
    document = at(summary_document(Summary(measures={"ttft": measure})), "measures", "ttft")
    assert document == {
        "unit": "s", "count": 9, "undefined": None, "p50": 0.1, "p99": None, "intervals": {}, "weak": {"p99": 368},
    }  # fmt: skip


# -- version 1 -------------------------------------------------------------------------------------------------------


def renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {FORMER.get(name, name): renamed(part) for name, part in value.items() if name != "schema"}
    return [renamed(part) for part in value] if isinstance(value, list) else value


def missing(old: Any, new: Any, where: str = "") -> list[str]:
    """What an old document has and a new one has not, or otherwise."""
    if isinstance(old, dict) and isinstance(new, dict):
        gone = [f"{where}.{name}" for name in old if name not in new]
        return gone + [text for name in old.keys() & new for text in missing(old[name], new[name], f"{where}.{name}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [text for a, b in zip(old, new, strict=True) for text in missing(a, b, where)]
    return [] if old == new else [f"{where}: {old!r} is {new!r}"]


@pytest.mark.parametrize("kind", ["summary", "verdict"])
def test_real_documents_of_version_1_lose_nothing(kind: str) -> None:
    folder = os.environ.get("INFEROMETER_DATA")
    if not folder:
        pytest.skip("INFEROMETER_DATA is not set")
    files = sorted((Path(folder) / "vllm-0.24-h200-sweep").rglob(f"{kind}.json"))
    assert len(files) == 14
    for file in files:
        old = json.loads(file.read_text())
        before = copy.deepcopy(old)
        assert old["schema"] == f"inferometer/{kind}/1"
        if kind == "summary":
            summary = summary_from(old)
            new = through_json(summary_document(summary))
            assert summary_from(new) == summary
        else:
            judged = verdict_from(old)
            new = through_json(verdict_document(judged))
            assert verdict_from(new) == judged
        assert missing(renamed(old), new) == [] and old == before


def test_the_names_of_version_1() -> None:
    compared = {"requests": 1, "differ": 0, "fewer": 0, "difference": 0.0}
    output: dict[str, JsonValue] = {"asked": 8, "reported": 8, "counted": 8, "asked_against_reported": compared}
    output |= {"reported_against_counted": compared, "counted_by": {}, "estimated": 0}
    old: JsonObject = {
        "window": {"steady": {"word": "steady", "test": "t", "of": {"in_flight": {"word": "unknown"}}}},
        "concurrency": {"asked": 4, "mean": 3.5},
        "tokens": {
            "input": {"asked": None, "reported": 8, "asked_against_reported": compared},
            "output": output,
            "cached": {"reported": None, "share": None},
            "finish_reasons": {"asked": 1},
        },
        "precision": {"asked": "p", "measure": "ttft", "stat": "p50", "value": 1, "interval": [1, 2], "within": 0.1,
                      "met": True},
        "goal": {"traffic": "default", "why": "known", "word": "precise", "at": 3},
        "startup": {"engine": "vllm", "asked_sleep": {"level": 1, "sleep_s": 2.0}},
        "outcomes": {"word": 2},
        "traffic": {"asked": {"concurrency": {"asked": 2}}},
    }  # fmt: skip
    summary = summary_from(old)
    assert summary.window.steady is not None and summary.window.steady.status == "steady"
    assert summary.window.steady.of["in_flight"].status == "unknown"
    assert summary.concurrency.requested == 4 and summary.traffic["asked"].concurrency.requested == 2
    assert summary.tokens is not None and summary.tokens.output.requested == 8
    assert summary.tokens.input.requested_against_reported.requests == 1
    assert summary.tokens.finish_reasons == {"asked": 1} and summary.outcomes == {"word": 2}  # not ours to rename
    assert summary.precision == PrecisionResult(
        requested="p", measure="ttft", stat="p50", value=1.0, interval=(1.0, 2.0), within=0.1, met=True
    )
    assert summary.goal == Goal(traffic="default", why="known", status="precise", at=3)
    assert summary.startup == Startup(engine="vllm", requested_sleep=MeasuredSleep(level=1, sleep_s=2.0))
    reason = {"word": "doubtful", "code": "late_sends", "text": "Requests were sent late."}
    assert verdict_from({"word": "doubtful", "reasons": [reason]}) == Verdict(
        status="doubtful", doubts=[Reason(status="doubtful", code="late_sends", text="Requests were sent late.")]
    )


def test_results_of_version_1_have_their_present_names() -> None:
    step = {"key": "ttft.p50", "word": "worse"}
    old: JsonObject = {
        "word": "worse",
        "axes": {"word": "not ours to rename"},
        "changes": [{"key": "ttft.p50", "word": "worse"}],
        "measures": [{"key": "ttft.p50", "word": "worse", "since": step}, {"key": "e2e.p50", "since": None}],
        "steps": [step],
        "objections": [{"word": "warn", "code": "hardware"}],
    }
    present = {"key": "ttft.p50", "status": "worse"}
    assert result_from(old) == {
        "status": "worse",
        "axes": {"word": "not ours to rename"},
        "changes": [present],
        "measures": [{**present, "since": present}, {"key": "e2e.p50", "since": None}],
        "steps": [present],
        "objections": [{"severity": "warn", "code": "hardware"}],
    }
    assert result_from(result_from(old)) == result_from(old) and result_from(None) is None


# -- other versions and mistakes -------------------------------------------------------------------------------------


def test_fields_of_a_newer_version_are_passed_over() -> None:
    document: JsonObject = {
        "forecast": {"p99": 1.0},
        "window": {"rule": "all", "weather": "fine"},
        "measures": {"ttft": {"unit": "s", "p50": 0.1, "histogram": {"0.1": 3}, "shape": "gamma"}},
        "values": {"energy": {"value": 1, "unit": "J", "source": ["nvml"]}},
        "failures": None,
    }
    summary = summary_from(document)
    assert summary.measures == {"ttft": MeasureSummary(unit="s", statistics={"p50": 0.1})}
    assert summary.values == {"energy": Value(value=1.0, unit="J")} and summary.failures == Failures()
    judged = verdict_from({"status": "valid", "doubts": [], "score": 0.9})
    assert judged == Verdict(status="valid")


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({"measures": {"ttft": {"unit": "s", "p99": "fast"}}}, "measures.ttft.p99: Expected `float | null`, got `str`"),
        ({"measures": {"ttft": 3}}, "measures.ttft: Expected `object`, got `int`"),
        ({"measures": {"ttft": {"count": 1.5}}}, "measures.ttft.count"),
        ({"measures": {"ttft": {"intervals": {"p50": [1]}}}}, "measures.ttft.intervals.p50: Expected `array` of len"),
        ({"window": {"length_s": "long"}}, "window.length_s"),
        ({"window": {"steady": {"word": "wobbly", "test": "t"}}}, "window.steady.status: Invalid enum value 'wobbly'"),
        ({"rates": []}, "rates: Expected `object`, got `array`"),
        ({"stages": [{"stage": 0}, {"stage": "two"}]}, "stages.1.stage: Expected `int`, got `str`"),
        ({"traffic": {"chat": {"goodput": {"met": 1}}}}, "traffic.chat.goodput: Object missing required field `unit`"),
        ({"sessions": {"count": 1, "complete": 1, "session_time": {"mean": True}}}, "sessions.session_time.mean"),
        ({"server": "vllm"}, "server: Expected `object | null`, got `str`"),
    ],
)
def test_a_wrong_type_is_refused_by_name(document: dict[str, Any], where: str) -> None:
    with pytest.raises(StoreError) as refused:
        summary_from(document)
    assert refused.value.message.startswith("its summary cannot be read: ") and where in refused.value.message


def test_a_wrong_verdict_is_refused_by_name() -> None:
    wrong: list[tuple[JsonObject, str]] = [
        ({}, "it: Object missing required field `status`"),
        ({"word": "splendid", "reasons": []}, "status: Invalid enum value 'splendid'"),
        ({"status": "doubtful", "doubts": [{"status": "doubtful", "code": 7, "text": ""}]}, "doubts.0.code: Expected"),
    ]
    for document, where in wrong:
        with pytest.raises(StoreError) as refused:
            verdict_from(document)
        assert f"its verdict cannot be read: {where}" in refused.value.message


def test_whole_numbers_may_be_written_as_floats() -> None:
    """Other tools do that with counts, and their summaries were kept as they were."""
    document: JsonObject = {"measures": {"ttft": {"count": 8.0, "p50": 1}}, "requests": 3.0}
    summary = summary_from(document)
    assert (summary.measures["ttft"].count, summary.requests) == (8, 3)
    assert isinstance(summary.requests, int)
