"""Every kind of run fits on a screen, however much data it has; the rest is shown by `--more`."""

import io
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from imported_files import VLLM, VLLM_DETAILED
from imported_results import AIPERF, GENAI_BENCH, LIFECYCLE, LLMPERF
from msgspec import structs

import inferometer
from inferometer.cli import execute
from inferometer.record.run import Run
from inferometer.record.summary import ErrorCount
from inferometer.show.console import console
from inferometer.show.summary import print_view

SCREEN, WIDTH = 24, 80
STARTUP_LOG = Path(__file__).parents[2] / "data" / "vllm-0.32-cpu-startup.log"
MANY_MEASURES = [{"name": f"kernel {number}", "value": number + 0.5, "unit": "ms"} for number in range(40)]
CLASSES = [
    {"name": f"class {number}", "workload": {"input_tokens": 100, "output_tokens": 8}, "load": {"rate": 2}}
    for number in range(6)
]


def lines_of(run: Run, more: bool = False) -> list[str]:
    file = io.StringIO()
    print_view(run, console(file, WIDTH), more=more)
    return file.getvalue().splitlines()


def checked(run: Run) -> None:
    glance, everything = lines_of(run), lines_of(run, more=True)
    text = "\n".join(glance)
    assert len(glance) <= SCREEN, text
    assert max(map(len, glance)) <= WIDTH, text
    assert glance[0].split()[0] in ("VALID", "DOUBTFUL", "INVALID"), text
    assert f"inferometer show {run.id} --more" in text
    assert any(str(run.folder) in line for line in everything)


@pytest.mark.parametrize(
    "command",
    [
        "offline latency --engine simulator --batch-sizes 1-30 --input-len 16 --output-len 2 --iters 3 --warmup 1",
        "offline latency --engine simulator --batch-sizes 1-8 --input-len 16,64 --output-len 2,4 --iters 3 --warmup 1",
        "offline throughput --engine simulator --input-len 100-500 --output-len 16 --num-prompts 20 --repeats 2",
        f"startup {STARTUP_LOG}",
        f"benchmark -- {sys.executable} -c {shlex.quote(f'print({json.dumps(json.dumps(MANY_MEASURES))})')}",
    ],
    ids=lambda command: " ".join(command.split()[:2]),
)
def test_a_run_without_requests(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_STORE", str(tmp_path))
    assert execute(shlex.split(command)) == 0
    checked(inferometer.load_run("latest", store=tmp_path))


@pytest.mark.parametrize(
    "content", [VLLM, VLLM_DETAILED, LIFECYCLE, AIPERF, GENAI_BENCH, LLMPERF], ids=lambda content: str([*content][:1])
)
def test_an_imported_run(content: Any, tmp_path: Path) -> None:
    file = tmp_path / ("a-name-of-a-file-that-says-a-lot-" * 3 + "stage_1_lifecycle_metrics.json")
    file.write_text(json.dumps(content))
    assert execute(["import", str(file), "--store", str(tmp_path / "store"), "-q"]) == 0
    run = inferometer.load_run("latest", store=tmp_path / "store")
    checked(run)
    errors = [ErrorCount(message=20 * "a long message of the server ", count=5) for _ in range(5)]
    checked(replace(run, summary=structs.replace(run.summary, errors=errors)))


def test_what_is_behind_more_can_be_seen_of_a_run_that_is_not_stored(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "--rate", "10", "--requests", "40"]
    assert execute(command) == 0
    assert "with --more" in capsys.readouterr().out
    assert execute([*command, "--more"]) == 0
    shown = capsys.readouterr().out
    assert "note  " in shown and "with --more" not in shown and "delivery" in shown


@pytest.mark.parametrize(
    "plan",
    [
        {"traffic": CLASSES, "stop": 10},
        {"load": {"stages": [{"rate": rate, "duration": 3} for rate in range(1, 10)]}},
        {"server": {"type": "fleet", "replicas": 4, "router": "prefix_aware"}, "load": {"rate": 10}, "stop": 10},
        {
            "server": {"type": "simulator", "args": {"adapters": ["summaries", "code", "legal", "sql"]}},
            "workload": {"models": {"simulated-8b": 3, "summaries": 1, "code": 1, "legal": 1, "sql": 1}},
            "load": {"rate": 20},
            "limits": ["ttft p99 < 1ms", "e2e p90 < 1s", "tpot p50 < 1ms"],
            "stop": 10,
        },
    ],
    ids=["classes", "stages", "fleet", "models"],
)
def test_a_run_with_many_parts(plan: dict[str, Any], tmp_path: Path) -> None:
    run = inferometer.simulate(plan)
    checked(replace(run, folder=tmp_path / run.id))
