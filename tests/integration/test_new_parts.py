"""A measure, a chart and an importer are added as CONTRIBUTING says, and reach the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from added_parts import AddedParts, RegistryLine

NAME = RegistryLine(
    "vocabulary/__init__.py", '("tls", "TLS handshake", "s", "lower"),', '("reply", "Reply", "s", "lower"),'
)
MEASURE = RegistryLine(
    "measure/registry.py",
    '_scalar("goodput_share", "met / (met + missed) [share]", "Share of requests that met every limit.")',
    '_answered("reply", span("headers_at", "first_at"), "first_at - headers_at [s]", "Time from headers to token.")',
)
CHART = '''"""A toy: the number of answered requests as one bar."""

from inferometer.show.charts.chart import Cannot, ChartedRun, Spec, titled, view


def answered(subject: ChartedRun) -> Spec:
    count = int(subject.chosen.sum())
    if not count:
        raise Cannot("no request was answered")
    bar = {"mark": "bar", "encoding": {"x": {"field": "answered", "type": "quantitative"}}}
    return view(titled("Answered requests"), [{"answered": count}], [bar])
'''
CHART_LINE = RegistryLine(
    "show/charts/registry.py",
    '"ttft_by_input": _of_run("distributions:ttft_by_input", "TTFT by input length"),',
    '"answered": _of_run("toy:answered", "Answered requests"),',
)
IMPORTER = '''"""A toy's table: one request a line, with times in milliseconds."""

from inferometer.exchange.importing import fields
from inferometer.exchange.importing.fields import requests_in, started_at
from inferometer.exchange.importing.requests import ImportedRequest, records_of
from inferometer.exchange.importing.source import ImportFormat, ImportedRun, ParsedFile, ResultRow, Source
from inferometer.exchange.importing.units import number, whole


def _fits(source: Source) -> bool:
    return set(source.columns()) >= {"toy_sent_ms", "toy_first_ms", "toy_end_ms", "toy_tokens"}


def _read(source: Source) -> ParsedFile:
    requests, broken = requests_in(source, _request)
    run = ImportedRun(
        started=started_at(0.0),
        plan=fields.plan_of(),
        records=records_of(requests),
    )
    return ParsedFile([run], broken)


def _request(row: ResultRow) -> ImportedRequest:
    sent, first, end = ((number(row.fields[f"toy_{name}_ms"]) or 0.0) / 1000 for name in ("sent", "first", "end"))
    return ImportedRequest(sent, [first, end], end, output_tokens=whole(row.fields["toy_tokens"]), status=200)


TABLE = ImportFormat("toy", _fits, _read)
'''
IMPORTER_LINE = RegistryLine(
    "exchange/importing/recognise.py", "FORMATS: dict[str, str] = {", '    "toy": f"{_HERE}.toy:TABLE",'
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> AddedParts:
    files = {"show/charts/toy.py": CHART, "exchange/importing/toy.py": IMPORTER}
    return AddedParts(tmp_path_factory.mktemp("added"), files, NAME, MEASURE, CHART_LINE, IMPORTER_LINE)


@pytest.fixture(scope="module")
def simulated(parts: AddedParts) -> dict[str, Any]:
    """A run with the new measure in it, stored."""
    load = ["--requests", "20", "--concurrency", "4", "--output-tokens", "8"]
    done = parts.python("-m", "inferometer", "run", *load, "--limit", "reply p50 < 10s", "--json")
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_measure_is_summarised_and_judged(simulated: dict[str, Any]) -> None:
    summary = simulated["summary"]
    reply, limit = summary["measures"]["reply"], summary["limits"][0]
    assert reply["count"] > 0 and 0 <= reply["p50"] < 10
    assert (limit["limit"], limit["met"]) == ("reply p50 < 10s", True)


def test_a_measure_is_listed_by_its_value(parts: AddedParts, simulated: dict[str, Any]) -> None:
    done = parts.python("-m", "inferometer", "list", "--where", "reply.p50 < 10", "--json")
    assert [run["id"] for run in json.loads(done.stdout)["runs"]] == [simulated["run"]["id"]], done.stderr


def test_a_chart_is_drawn(parts: AddedParts, simulated: dict[str, Any], tmp_path: Path) -> None:
    done = parts.python("-m", "inferometer", "chart", "latest", "answered", "-o", str(tmp_path / "chart.vl.json"))
    assert done.returncode == 0, done.stderr
    assert '"answered"' in (tmp_path / "chart.vl.json").read_text()


def test_an_importer_is_recognised(parts: AddedParts, tmp_path: Path) -> None:
    rows = "".join(f"{at},{at + 50},{at + 150},11\n" for at in range(0, 500, 50))
    (tmp_path / "table.csv").write_text(f"toy_sent_ms,toy_first_ms,toy_end_ms,toy_tokens\n{rows}")
    done = parts.python("-m", "inferometer", "import", str(tmp_path / "table.csv"), "--json")
    assert '"toy"' in done.stdout, done.stderr
    shown = parts.python("-m", "inferometer", "show", "latest", "--json")
    measures = json.loads(shown.stdout)["summary"]["measures"]
    assert (measures["ttft"]["mean"], measures["e2e"]["mean"]) == (pytest.approx(0.05), pytest.approx(0.15))
    assert measures["tpot"]["mean"] == pytest.approx(0.01)
