"""A new harness is one file and one line: a small load generator is added as a contributor would, and run in our
place."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from added_parts import AddedParts, RegistryLine

HARNESS = '''"""A small load generator that writes vLLM's format."""

from inferometer.exchange.harness import HarnessEndpoint, Harness, Places, Rendered, counted, read_command
from inferometer.plan.model import Plan


def render(plan: Plan, endpoint: HarnessEndpoint, places: Places) -> Rendered:
    requests, notes = counted(plan, "toy")
    argv = ["toy", endpoint.url, endpoint.model, str(requests), f"{places.results}/toy.json"]
    return Rendered(argv, {"toy.txt": "a profile"}, {"TOY": "1"}, {"load": "the toy sends one by one"})


HARNESS = Harness("toy", "a toy", render, None, ("toy.json",), "vllm-bench-serve", program="toy", requirements=("toy",))
'''
LINE = RegistryLine(
    "exchange/harness/__init__.py",
    "HARNESSES: dict[str, str] = {",
    '"toy": f"{_HERE}.toy:HARNESS",',
)
TOY = f'''#!{sys.executable}
"""Sends completions one by one, streamed, and writes what it measured; or fails, or never ends."""

import json
import os
import sys
import time
import urllib.request

url, model, requests, result = sys.argv[1:]
print("toy begins", os.environ["TOY"], open("toy.txt").read(), flush=True)
if os.environ.get("TOY_DOES") == "fail":
    sys.exit("toy: the server looks at me strangely")
if os.environ.get("TOY_DOES") == "hang":
    time.sleep(600)
ttfts, itls, began = [], [], time.perf_counter()
for number in range(int(requests)):
    body = {{"model": model, "prompt": "hello", "max_tokens": 4, "ignore_eos": True, "stream": True}}
    sent = time.perf_counter()
    head = {{"content-type": "application/json"}}
    asked = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), head)
    with urllib.request.urlopen(asked) as got:
        at = [time.perf_counter() for line in got if line.startswith(b"data: {{")]
    ttfts.append(at[0] - sent)
    itls.append([after - before for before, after in zip(at, at[1:])])
lasted = time.perf_counter() - began
json.dump({{
    "date": time.strftime("%Y%m%d-%H%M%S"), "backend": "openai", "model_id": model, "num_prompts": int(requests),
    "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 1, "duration": lasted, "completed": int(requests),
    "failed": 0, "total_input_tokens": int(requests), "total_output_tokens": 4 * int(requests),
    "request_throughput": int(requests) / lasted, "output_throughput": 4 * int(requests) / lasted,
    "total_token_throughput": 5 * int(requests) / lasted, "mean_ttft_ms": 1000 * sum(ttfts) / len(ttfts),
}}, open(result, "w"))
'''


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> AddedParts:
    return AddedParts(tmp_path_factory.mktemp("added"), {"exchange/harness/toy.py": HARNESS}, LINE)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "harnesses/toy/bin/toy"
    program.parent.mkdir(parents=True)
    program.write_text(TOY)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("INFEROMETER_HARNESSES", str(tmp_path / "harnesses"))
    return program


def _run(added: AddedParts, *args: str) -> tuple[int, dict[str, Any], str]:
    done = added.python("-m", "inferometer", "run", "--requests", "6", "--json", *args)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_it_sends_the_load_and_we_watch_the_server(added: AddedParts, environment: Path, simulator: str) -> None:
    """Its numbers are the run's, marked with its definitions; beside them what the server counted."""
    code, found, stderr = _run(
        added, "--harness", "toy", "--url", simulator, "--tag", "toy", "--set", "observe.interval=0.1s"
    )
    assert code == 0 and found["run"]["state"] == "complete" and found["run"]["source"] == "vllm-bench-serve"
    summary, harness = found["summary"], found["environment"]["harness"]
    assert summary["measures"]["ttft"]["mean"] > 0 and summary["definitions"]["ttft"]
    (source,) = summary["server"]["sources"]
    if source["scrapes"] > 1:  # a machine that is busy elsewhere may not let the observer begin in its time
        assert summary["server"]["counters"]["requests_ok"]["grown"] == 6, stderr
    assert harness["name"] == "toy" and harness["differences"] == ["load: the toy sends one by one"]
    folder = Path(found["run"]["folder"])
    assert "toy begins 1 a profile" in (folder / "harness.log").read_text()
    assert {"toy.txt", "source.json", "samples.parquet"} <= {file.name for file in folder.iterdir()}
    assert not (folder / "harness").exists()
    assert found["plan"]["stop"] == {"requests": 6}


def test_one_that_fails_is_a_failed_run_with_the_end_of_its_log(
    added: AddedParts, environment: Path, simulator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_DOES", "fail")
    code, found, _ = _run(added, "--harness", "toy", "--url", simulator)
    (reason,) = found["verdict"]["doubts"]
    assert code == 4 and found["run"]["state"] == "failed" and reason["code"] == "harness_failed"
    assert "toy ended with exit status 1" in reason["text"] and "looks at me strangely" in reason["text"]


def test_one_that_hangs_is_stopped(
    added: AddedParts, environment: Path, simulator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_DOES", "hang")
    code, found, _ = _run(added, "--harness", "toy", "--url", simulator, "--harness-timeout", "1s")
    assert code == 4 and "took longer than 1 s and was stopped" in found["verdict"]["doubts"][0]["text"]


def test_several_make_a_table_of_the_same_server(added: AddedParts, environment: Path) -> None:
    """The simulator that the plan starts is started once."""
    args = ("--harness", "inferometer", "--harness", "toy", "--concurrency", "1", "--output-tokens", "4")
    done = added.python("-m", "inferometer", "run", "--requests", "6", *args)
    assert done.returncode in (0, 4), done.stderr
    lines = {line.split("  ")[0].strip(): line for line in done.stdout.splitlines()}
    assert "inferometer" in done.stdout and "toy" in done.stdout
    assert lines["requests answered"].split()[-2:] == ["6", "6"]
    assert lines["requests, by the server"].split()[-2:] == ["6", "6"]


def test_one_that_is_not_installed_says_how_to_get_it(
    added: AddedParts, simulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFEROMETER_HARNESSES", str(tmp_path))
    done = added.python("-m", "inferometer", "run", "--harness", "toy", "--url", simulator)
    assert done.returncode == 3 and "a toy is not installed here" in done.stderr
    assert "inferometer harnesses install toy" in done.stderr


def test_dry_run_prints_what_it_would_be_given(added: AddedParts) -> None:
    done = added.python("-m", "inferometer", "run", "--harness", "toy", "--url", "http://127.0.0.1:9", "--dry-run")
    assert done.returncode == 0 and "toy http://127.0.0.1:9 MODEL 400 results/toy.json" in done.stdout
    assert "# toy.txt\na profile" in done.stdout


def test_a_folder_that_it_left_elsewhere_becomes_a_run(added: AddedParts, tmp_path: Path) -> None:
    """As a pod leaves it."""
    result = {"date": "20250904-232830", "backend": "vllm", "model_id": "tiny", "num_prompts": 2, "completed": 2}
    result |= {"duration": 2.0, "request_throughput": 1.0, "output_throughput": 8.0, "total_token_throughput": 9.0}
    result |= {"total_input_tokens": 2, "total_output_tokens": 16, "mean_ttft_ms": 12.0, "request_rate": "inf"}
    (tmp_path / "toy.json").write_text(json.dumps(result))
    (tmp_path / "harness.log").write_text("done")
    code = f"""
from pathlib import Path
from inferometer.exchange.harness import harness_named
from inferometer.conduct.harness import import_folder
run = import_folder(harness_named("toy"), Path({str(tmp_path)!r}), Path({str(tmp_path / "store")!r}), tags=["pod"])
print(run.summary.measures["ttft"].mean, run.environment.harness.name, (run.folder / "harness.log").read_text())
"""
    done = added.python("-c", code)
    assert done.stdout.split() == ["0.012", "toy", "done"], done.stderr
