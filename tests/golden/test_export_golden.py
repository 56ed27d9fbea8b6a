"""Our exports validated with the schemas and examples of the formats' own projects."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
import yaml

from inferometer.documents.document import JsonObject
from inferometer.exchange.exporting import ExportRequest, pieces
from inferometer.exchange.exporting.llmd import report
from inferometer.exchange.exporting.vllm import latency_document
from inferometer.measure.inputs import Facts
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.plan.reading import plan_from
from inferometer.plan.stored import StoredPlan
from inferometer.record.columns import Records
from inferometer.record.encoding import environment_from
from inferometer.record.environment import Environment
from inferometer.record.record import Record
from inferometer.record.run import Run
from inferometer.record.summary import Summary, Value

pytestmark = pytest.mark.golden


def made(turns=1, **plan) -> Run:
    """A run of 200 requests, 20 of them failed; sessions of several turns where asked."""
    said = {"target": {"url": "http://localhost:8000", "model": "m"}, "load": {"rate": 10}, "stop": {"requests": 200}}
    asked = plan_from(said | plan)
    records = Records.of([_record(number, turns) for number in range(200)])
    facts = Facts()
    summary = summarize(records, asked, facts)
    return Run(
        id="20261115-031207-plum-otter",
        started_at="2026-11-15T03:12:07+00:00",
        plan=StoredPlan(asked.model_dump(mode="json")),
        environment=Environment(),
        summary=summary,
        verdict=verdict(summary, facts, asked),
        read_records=lambda: records,
    )


def _record(number: int, turns: int) -> Record:
    at = 10**9 + number * 10**8
    common: dict[str, Any] = {
        "session": number // turns,
        "turn": number % turns,
        "turns": turns,
        "scheduled_at": at,
        "sent_at": at,
    }
    if number % 10 == 3:
        return Record(**common, ready_at=at, ended_at=at + 10**6, outcome="timeout")
    reads = b"".join((at + 5 * 10**7 + 10**7 * n).to_bytes(8, "little") for n in range(4))
    return Record(
        **common,
        ready_at=at,
        read_at=reads,
        read_tokens=(1).to_bytes(8, "little") * 4,
        ended_at=at + 10**8,
        input_tokens=256,
        output_tokens=4,
        status=200,
    )


def schema(data, version):
    return json.loads((data / f"results/llmd_benchmark_report/br_v{version}_json_schema.json").read_text())


def _plain(run):
    return orjson.loads(orjson.dumps(report(run), option=orjson.OPT_SERIALIZE_NUMPY))


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"name": "chat", "about": "why"},
        {"load": {"type": "concurrency", "concurrency": 8}},
        {"workload": {"input_tokens": "100-300", "output_tokens": {"mean": 100, "std": 10}}},
        {"workload": {"input_tokens": [32, 64], "output_tokens": None}},
    ],
)
def test_the_report_is_valid_by_its_schema(data: Path, plan):
    jsonschema.validate(_plain(made(**plan)), schema(data, "0_2_1"), format_checker=jsonschema.FormatChecker())


def test_a_report_with_accelerators_is_an_engine(data: Path) -> None:
    environment: JsonObject = {"gpus": [{"name": "NVIDIA H200"}] * 2, "target": {"server": "vLLM", "version": "0.24.0"}}
    said = _plain(replace(made(), environment=environment_from(environment)))
    jsonschema.validate(said, schema(data, "0_2_1"))
    (engine,) = said["scenario"]["stack"]
    assert engine["standardized"]["kind"] == "inference_engine"
    assert engine["standardized"]["accelerator"]["count"] == 2


def test_sessions_are_told_where_there_are_any(data: Path) -> None:
    said = _plain(made(turns=4, workload={"turns": 4}))
    jsonschema.validate(said, schema(data, "0_2_1"))
    assert said["results"]["session_performance"]["sessions"]["total"] == 50
    assert "session_performance" not in _plain(made())["results"]


@pytest.mark.parametrize("kind", ["latency", "throughput", "startup", "benchmark"])
def test_other_kinds_of_runs_are_valid_reports_too(data: Path, kind: str) -> None:
    time = Value(value=3.0, unit="s", direction="lower", title="Time")
    run = Run(
        "id",
        "2026-11-15T03:12:07+00:00",
        StoredPlan({"model": "m"}),
        Environment(),
        Summary(values={"time": time}),
        kind=kind,  # type: ignore[arg-type]
    )
    jsonschema.validate(_plain(run), schema(data, "0_2_1"))


def test_every_statistic_is_one_that_the_schema_reads(data: Path) -> None:
    """It takes any key, so that a wrong spelling is lost without a word."""
    known = set(schema(data, "0_2_1")["$defs"]["Statistics"]["properties"])
    aggregate = _plain(made())["results"]["request_performance"]["aggregate"]
    found = [*aggregate["latency"].values(), *aggregate["throughput"].values(), aggregate["requests"]["input_length"]]
    assert all(set(each) <= known for each in found)


def test_what_is_written_is_what_was_checked(data: Path) -> None:
    (piece,) = pieces("llm-d", ExportRequest([made()]))
    jsonschema.validate(yaml.safe_load(piece.content), schema(data, "0_2_1"))


@pytest.mark.parametrize("size", [1, 8])
def test_latencies_are_written_as_vllm_writes_them(data: Path, size: int) -> None:
    said = json.loads((data / f"vllm-0.24-h200/vllm_bench_latency_bs{size}.json").read_text())
    again = latency_document(said["latencies"])
    assert list(again) == list(said)
    assert again["avg_latency"] == pytest.approx(said["avg_latency"], rel=1e-12)
    assert again["percentiles"] == pytest.approx(said["percentiles"], rel=1e-12)


@pytest.mark.parametrize("name", ["300_100_5", "1000_200_8", "2000_400_inf"])
def test_a_serving_result_has_every_field_that_vllm_writes(data: Path, name: str) -> None:
    said = json.loads((data / f"vllm-0.24-h200/vllm_bench_serve_{name}.json").read_text())
    (piece,) = pieces("vllm", ExportRequest([made()], detailed=True))
    ours = orjson.loads(piece.content)
    assert said.keys() <= ours.keys()
    for field, value in said.items():
        if isinstance(value, float) and field != "rtfx":
            assert isinstance(ours[field], int | float), field
