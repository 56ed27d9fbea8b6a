"""Real results of `vllm bench serve --save-detailed`: its records under its own definitions give its printed numbers
back, and what we export of them is what vLLM wrote."""

import json
import re
from pathlib import Path

import pytest

from inferometer.documents.document import settings_of
from inferometer.exchange.exporting.vllm import serve_document
from inferometer.exchange.importing.importer import summary_of, verdict_of
from inferometer.exchange.importing.source import ImportedRun
from inferometer.exchange.importing.vllm import imported
from inferometer.measure.rosetta import SeenRequests, fields, tool_named
from inferometer.plan.stored import StoredPlan
from inferometer.record.run import Run
from inferometer.show.imported import rosetta

pytestmark = pytest.mark.golden
NAMES = ("300_100_5", "1000_200_8", "2000_400_inf")
TIMES = ("ttft", "tpot", "itl", "e2el")
WORDS = ("mean", "median", "p90", "p95", "p99")
# Arrays hold no latency: it is TTFT plus all gaps, and vLLM takes the instant of the first token twice, 0.2 to 0.7 us
# apart. That is 6e-7 of a mean, and a little more of the small differences that a deviation is made of.
CLOSE, CLOSE_STD = 1e-6, 1e-5


def document(data, name):
    return json.loads((data / f"vllm-0.24-h200/vllm_bench_serve_{name}.json").read_text())


def run_of(said, name="result.json") -> Run:
    """As `inferometer import` keeps it."""
    found: ImportedRun = imported(said, name)
    summary = summary_of(found)
    return Run(
        id="imported",
        started_at="2026-11-15T01:16:37+00:00",
        plan=StoredPlan(settings_of(found.plan)),
        environment=found.environment,
        summary=summary,
        verdict=verdict_of(found, summary, "vllm bench serve"),
        source="vllm-serve",
        read_records=None if found.records is None else lambda: found.records,
    )


@pytest.mark.parametrize("name", NAMES)
def test_vllm_gives_back_its_own_means_and_percentiles(data: Path, name: str) -> None:
    said = document(data, name)
    found = fields(tool_named("vllm"), SeenRequests.of(imported(said, name).records))
    for time in TIMES:
        for word in WORDS:
            field = f"{word}_{time}_ms"
            assert found[field] == pytest.approx(said[field], rel=CLOSE), field
        assert found[f"std_{time}_ms"] == pytest.approx(said[f"std_{time}_ms"], rel=CLOSE_STD)


@pytest.mark.parametrize("name", NAMES)
def test_what_show_prints_is_what_the_table_of_vllm_says(data: Path, name: str) -> None:
    printed = (data / f"vllm-0.24-h200/bench_serve_{name}.log").read_text()
    table = dict(re.findall(r"^(\S.*?\(.*?\)):\s+([\d.]+)\s*$", printed, re.MULTILINE))
    shown = rosetta(run_of(document(data, name)), "vllm")
    for each in shown.measures:
        for word, title in (("mean", "Mean"), ("median", "Median"), ("p99", "P99")):
            assert f"{each.theirs[word] * 1000:.2f}" == table[f"{title} {each.name} (ms)"]
    rates = {each.field: each.theirs for each in shown.values}
    assert f"{rates['request_throughput']:.2f}" == table["Request throughput (req/s)"]
    assert f"{rates['output_throughput']:.2f}" == table["Output token throughput (tok/s)"]
    assert f"{rates['total_token_throughput']:.2f}" == table["Total token throughput (tok/s)"]


@pytest.mark.parametrize("name", NAMES)
def test_exported_again_it_is_what_vllm_wrote(data: Path, name: str) -> None:
    said = document(data, name)
    again = serve_document(run_of(said), detailed=True)
    for field, value in said.items():
        if isinstance(value, float) and field not in ("burstiness", "rtfx"):
            close = CLOSE_STD if field.startswith("std") else CLOSE
            assert again[field] == pytest.approx(value, rel=close), field
    counts = ("completed", "failed", "total_input_tokens", "total_output_tokens", "num_prompts", "request_rate")
    assert {field: again[field] for field in counts} == {field: said[field] for field in counts}
    assert again["max_concurrent_requests"] == said["max_concurrent_requests"]
    for array in ("input_lens", "output_lens"):
        assert again[array] == said[array]
    for array in ("ttfts", "itls"):
        flat = [sum(each) if isinstance(each, list) else each for each in again[array]]
        assert flat == pytest.approx([sum(each) if isinstance(each, list) else each for each in said[array]], rel=CLOSE)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_exported_is_imported_as_the_same(data: Path, name: str) -> None:
    first = run_of(document(data, name))
    again = run_of(json.loads(json.dumps(serve_document(first, detailed=True))))
    for tool in ("vllm", "guidellm", "mlperf"):
        before, after = rosetta(first, tool).measures, rosetta(again, tool).measures
        for one, other in zip(before, after, strict=True):
            assert other.theirs == pytest.approx(one.theirs, rel=1e-6, abs=2e-9)


@pytest.mark.parametrize("name", NAMES)
def test_without_records_its_own_numbers_come_back(data: Path, name: str) -> None:
    said = {field: value for field, value in document(data, name).items() if not isinstance(value, list)}
    again = serve_document(run_of(said))
    for field, value in said.items():
        if isinstance(value, float) and field.endswith(("_ms", "throughput", "duration")):
            assert again[field] == pytest.approx(value, rel=1e-12), field
    assert again["total_output_tokens"] == said["total_output_tokens"]


def test_imported_and_shown_by_the_commands(data: Path, tmp_path: Path) -> None:
    """The way a person goes: import the file, ask for it as vLLM counts."""
    from click.testing import CliRunner

    from inferometer.cli.group import group

    path = data / "vllm-0.24-h200/vllm_bench_serve_300_100_5.json"
    said = json.loads(path.read_text())
    for words in (("import", str(path)), ("show", "--as", "vllm", "--json")):
        arguments = [*words, "--store", str(tmp_path)]
        done = CliRunner().invoke(group, arguments, catch_exceptions=False, standalone_mode=False)
    shown = {each["field"]: each["theirs"] for each in json.loads(done.stdout)["measures"]}
    for field, theirs in shown.items():
        for word in WORDS:
            assert theirs[word] * 1000 == pytest.approx(said[field.format(word)], rel=CLOSE)
