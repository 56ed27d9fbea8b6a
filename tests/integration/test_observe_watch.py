"""The observer's process against real endpoints that are well, slow, huge, lying or gone; against a library that
answers as NVML does; and killed half way."""

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from endpoints import endpoint, say

from inferometer.measure.hardware import gpu_summary
from inferometer.measure.server import server_summary
from inferometer.observe import prometheus, watch
from inferometer.observe.observer import MetricsPlace, ObserverJob, observing
from inferometer.observe.prometheus import MetricsEndpoint, Unreadable, await_counted
from inferometer.observe.watch import WatchedSource, Watcher
from inferometer.record.encoding import document_of
from inferometer.record.log import read_log
from inferometer.record.record import Sample, Samples
from inferometer.wire.origin import origin_of

HEALTHY = "vllm:num_requests_running 1\nvllm:prompt_tokens_total {}\nvllm:generation_tokens_total {}\n"


class Asked:
    """Counts the requests an endpoint got, so that nothing has to be waited for by the clock."""

    def __init__(self, answer):
        self._answer, self._seen = answer, threading.Condition()
        self._count = 0

    def __call__(self, handler, number):
        with self._seen:
            self._count += 1
            self._seen.notify_all()
        self._answer(handler, number)

    def wait(self, count):
        with self._seen:
            assert self._seen.wait_for(lambda: self._count >= count, 20)


def observe(tmp_path: Path, *urls, until=lambda: None, wanted=True, said=None, **job):
    """The log of an observer that watched these URLs until the condition held."""
    log = tmp_path / "log-observer.bin"
    places = [MetricsPlace(url, url, not wanted) for url in urls]
    made = ObserverJob(log=str(log), interval_s=0.1, **({"host": False, "metrics": places} | job))  # type: ignore[arg-type]
    with observing(made, (said if said is not None else []).append):
        until()
    return read_log(log)


def problems(log):
    return {problem["text"] for note in log.notes if note.what == "observed" for problem in note.facts["problems"]}


def summary(log):
    return server_summary(Samples.of(log.samples), log.notes, 0, 1 << 62)


def test_the_simulators_metrics_before_during_and_after(start_simulator, tmp_path: Path):
    with start_simulator() as url:
        said: list[Any] = []
        log = observe(tmp_path, f"{url}/metrics", said=said)
    assert said == [] and not log.truncated
    assert {"running", "kv_usage", "requests_ok", "ttft_count", "ttft_bucket"} <= {each.name for each in log.samples}
    found = summary(log)
    assert found.sources[0].engine == "vLLM" and found.sources[0].scrapes >= 2
    assert found.counters["prompt_tokens"].grown == 0
    assert found.sources[0].config["block_size"] == "16"
    assert problems(log) == set()


class Large:
    """Readings of a hundred samples."""

    def __init__(self) -> None:
        self.began, self._seen = [], threading.Condition()  # type: ignore[var-annotated]

    def read(self) -> list[Sample]:
        with self._seen:
            self.began.append(time.monotonic())
            self._seen.notify_all()
        return [Sample("here", "running", 0, 1.0, {"engine": str(number)}) for number in range(100)]

    def wait(self, count: int) -> None:
        with self._seen:
            assert self._seen.wait_for(lambda: len(self.began) >= count, 60)

    def close(self) -> None:
        pass


def test_a_large_reading_is_not_repeated_as_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_PER_S", 400)
    source = Large()
    watcher = Watcher(WatchedSource("here", lambda: source), 0.01, queue.SimpleQueue())
    source.wait(5)  # the first is before the load
    watcher.stop()
    watcher.join(60)
    assert source.began[4] - source.began[1] >= 3 * 0.25 - 0.05


def test_a_slow_one_is_given_up_before_it_is_asked_again(tmp_path: Path) -> None:
    forever = threading.Event()
    slow = Asked(lambda handler, number: forever.wait(20))
    well = Asked(lambda handler, number: say(handler, HEALTHY.format(min(number, 4), min(number, 4))))
    with endpoint(slow) as bad, endpoint(well) as good:
        log = observe(tmp_path, bad, good, until=lambda: (slow.wait(3), well.wait(5)))
        forever.set()
    assert problems(log) == {"did not answer within 80.0 ms"}
    assert {each.source for each in log.samples} == {good}


def test_one_that_drips_is_given_up_too(tmp_path: Path) -> None:
    def drip(handler, number):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        for _ in range(200):
            handler.wfile.write(b"#")
            handler.wfile.flush()
            threading.Event().wait(0.01)

    with endpoint(drip) as url:
        log = observe(tmp_path, url)
    assert problems(log) == {"did not answer within 80.0 ms"}


def test_one_of_100_megabytes_is_not_read_to_its_end() -> None:
    def flood(handler, number):
        handler.send_response(200)
        handler.send_header("Content-Length", str(100 << 20))
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x" * (1 << 20))

    with endpoint(flood) as url:
        asked = MetricsEndpoint(origin_of(url), "/metrics", {}, 20.0)
        with pytest.raises(Unreadable, match="larger than 16 MiB"):
            asked.text()
    assert prometheus.LARGEST == 16 << 20


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        ("no such page", 404, "answered 404 Not Found"),
        ("<html>", 200, "is not Prometheus text, it begins with '<html>'"),
        ("up 1\n", 200, "has no metric of a known inference server"),
        ("vllm:num_requests_running NaN\nvllm:prompt_tokens_total -5\n", 200, "impossible value: vllm:"),
    ],
)
def test_what_lies_is_a_note(tmp_path: Path, text: str, status: int, why: str) -> None:
    with endpoint(lambda handler, number: say(handler, text, status)) as url:
        log = observe(tmp_path, url)
    assert log.samples == []
    assert any(problem.startswith(why) for problem in problems(log))


def test_one_that_is_gone_and_no_gpu_are_notes(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    log = observe(tmp_path, "http://127.0.0.1:1/metrics", host=True, gpu=True, gpu_wanted=True)
    found = problems(log)
    assert "refused the connection" in found
    assert any("NVML" in text or "extra 'gpu'" in text for text in found) or {s.source for s in log.samples} > {"host"}
    assert any(each.source == "host" for each in log.samples)


def test_a_restart_is_seen_and_counted_over(tmp_path: Path) -> None:
    counts = [100, 150, 20, 40]
    answer = Asked(lambda handler, number: say(handler, HEALTHY.format(*[counts[min(number, 3)]] * 2)))
    with endpoint(answer) as url:
        log = observe(tmp_path, url, until=lambda: answer.wait(4))
    found = summary(log)
    assert found.restarted and found.sources[0].restarts == 1
    assert found.counters["prompt_tokens"].grown == 50 + 20 + 20


def test_replicas_are_pooled(tmp_path: Path) -> None:
    first = Asked(lambda handler, number: say(handler, HEALTHY.format(min(number, 4) * 10, 1)))
    second = Asked(lambda handler, number: say(handler, HEALTHY.format(5, 5)))
    with endpoint(first) as one, endpoint(second) as other:
        log = observe(tmp_path, one, other, until=lambda: first.wait(3))
    found = summary(log)
    by_source = found.counters["prompt_tokens"].by_source
    assert by_source[one] >= 20 and by_source[other] == 0
    assert found.gauges["running"].max == 2


def test_a_killed_observer_leaves_what_it_sampled(tmp_path: Path) -> None:
    log = tmp_path / "log-observer.bin"
    answer = Asked(lambda handler, number: say(handler, HEALTHY.format(min(number, 4), min(number, 4))))
    with endpoint(answer) as url:
        job = ObserverJob(log=str(log), interval_s=0.1, metrics=[MetricsPlace(url, url)])
        child = started(job)
        assert child.stdout.readline() == b"ready\n"
        answer.wait(10)
        child.send_signal(signal.SIGKILL)
        child.wait()
        close(child)
    names = {each.name for each in read_log(log).samples}
    assert {"prompt_tokens", "load_1min"} <= names


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    log = tmp_path / "log-observer.bin"
    child = started(ObserverJob(log=str(log), interval_s=0.1))
    assert child.stdout.readline() == b"ready\n"
    child.stdin.close()
    assert child.wait(20) == 0
    child.stdout.close()
    assert [note.what for note in read_log(log).notes][-1] == "observer"


def test_a_run_goes_on_without_its_observer(tmp_path: Path) -> None:
    said: list[Any] = []
    with observing(ObserverJob(log=str(tmp_path / "no" / "folder" / "log")), said.append):
        pass
    assert len(said) == 1 and said[0].startswith("the observer ended early: ")


def started(job, **environment):
    child = subprocess.Popen(
        [sys.executable, "-m", "inferometer.observe.watch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
    )
    child.stdin.write(msgspec.json.encode(job) + b"\n")
    child.stdin.flush()
    return child


def close(child):
    child.stdin.close()
    child.stdout.close()


@pytest.fixture(scope="session")
def nvml(tmp_path_factory) -> Path:
    """A folder with a library that speaks as NVML does."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for NVML with")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parents[1] / "data" / "nvml_stand_in.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder


def test_every_gpu_through_nvml(tmp_path: Path, nvml: Path, monkeypatch):
    pytest.importorskip("pynvml")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml))
    answer = Asked(lambda handler, number: say(handler, HEALTHY.format(min(number, 4), min(number, 4))))
    with endpoint(answer) as url:
        log = observe(tmp_path, url, until=lambda: answer.wait(8), gpu=True)
    samples = Samples.of(log.samples)
    at, _ = samples.series("power_w", "gpu:0")
    found = gpu_summary(samples, int(at[1]), int(at[-2]))
    first, second = found.gpus
    assert first.utilization_share.mean == 0.9 and first.temperature_c.max == 60
    assert first.memory_used_bytes.max == 10 << 30 and first.memory_total_bytes == 80 << 30
    assert first.sm_clock_hz.mean == 1.98e9 and first.throttled == {}
    assert second.throttled == {"power cap": 1.0}
    span_s = found.window_s
    assert first.energy.by == "energy counter" and second.energy.by == "power"
    assert first.energy.j == pytest.approx(300 * span_s, rel=0.02)
    assert second.energy.j == pytest.approx(700 * span_s, rel=1e-6)


def test_only_the_gpus_asked_for(tmp_path: Path, nvml: Path, monkeypatch):
    pytest.importorskip("pynvml")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml))
    assert {each.source for each in observe(tmp_path, gpu=True, gpus=[1]).samples} == {"gpu:1"}
    (tmp_path / "log-observer.bin").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    log = observe(tmp_path, gpu=True, gpus=[7], gpu_wanted=True)
    assert log.samples == [] and any("no GPU has index [7]" in text for text in problems(log))


NVIDIA_SMI = """#!/bin/sh
# Prints as nvidia-smi does: a line per GPU and interval, until it is ended.
case "$1" in
  --query-gpu=index,name,*) echo "0, NVIDIA L4, GPU-1, 23034, 72.00, 2040, 550.54"; exit 0;;
  --query-gpu=index,memory.used,*) ;;
  *) exit 2;;
esac
case "$3" in --loop-ms=100) ;; *) exit 2;; esac
while :; do
  echo "0, 512, 23034, 37, 12, 61.25, 1980, 6251, 55, 0x0000000000000004"
  echo "1, 0, 23034, [N/A], 0, [Not Supported], 210, 405, 40, 0x0000000000000001"
  sleep 0.1
done
"""


def observed_by(nvidia_smi, tmp_path: Path, monkeypatch):
    """What is logged on a machine with this nvidia-smi, and an NVML that cannot be loaded."""
    (tmp_path / "nvidia-smi").write_text(nvidia_smi)
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    answer = Asked(lambda handler, number: say(handler, HEALTHY.format(min(number, 4), min(number, 4))))
    with endpoint(answer) as url:
        return observe(tmp_path, url, until=lambda: answer.wait(6), gpu=True)


def test_nvidia_smi_where_nvml_cannot_be_called(tmp_path: Path, monkeypatch):
    log = observed_by(NVIDIA_SMI, tmp_path, monkeypatch)
    samples = Samples.of(log.samples)
    at, watts = samples.series("power_w", "gpu:0")
    assert len(at) > 2 and set(watts) == {61.25}
    assert samples.series("memory_used_bytes", "gpu:0")[1][0] == 512 * 2**20
    assert samples.series("throttle_reasons", "gpu:0")[1][0] == 4
    assert not len(samples.series("power_w", "gpu:1")[0])
    assert gpu_summary(samples, int(at[0]), int(at[-1])).gpus[0].energy.by == "power"
    from inferometer.observe.gpu import nvidia_smi_facts as gpu_facts

    assert document_of(gpu_facts().gpus[0]) == {
        "index": 0,
        "name": "NVIDIA L4",
        "uuid": "GPU-1",
        "memory_bytes": 23034 * 2**20,
        "power_limit_w": 72.0,
        "max_sm_clock_hz": 2.04e9,
    }


def test_an_nvidia_smi_that_ends_is_told(tmp_path: Path, monkeypatch):
    """Samples that stop in the middle of a run would otherwise look like a GPU that was not asked."""
    once = NVIDIA_SMI.replace("while :; do", "for once in 1; do").replace("sleep 0.1", "exit 15")
    log = observed_by(once, tmp_path, monkeypatch)
    assert any("nvidia-smi ended with exit status 15" in text for text in problems(log))


AMD_METRIC = """[
  {"gpu": 0, "usage": {"gfx_activity": {"value": 73, "unit": "%"}, "umc_activity": {"value": 12, "unit": "%"}},
   "power": {"socket_power": {"value": 542, "unit": "W"}, "throttle_status": "N/A"},
   "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}}, "mem_0": {"clk": {"value": 1300, "unit": "MHz"}}},
   "temperature": {"edge": "N/A", "hotspot": {"value": 71, "unit": "C"}},
   "energy": {"total_energy_consumption": {"value": 12345.5, "unit": "J"}},
   "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 49148, "unit": "MB"}}},
  {"gpu": 1, "usage": "N/A", "power": {"socket_power": "N/A", "average_socket_power": {"value": 90, "unit": "W"}},
   "temperature": {"edge": {"value": 40, "unit": "C"}, "hotspot": "N/A"}}
]"""
AMD_STATIC = """[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X"}, "uuid": "7eff74a0",
  "driver": {"name": "amdgpu", "version": "6.8.5"}, "vram": {"size": {"value": 196592, "unit": "MB"}}}]"""


def with_amd_smi(folder: Path, monkeypatch, metric: str) -> None:
    """A machine with this amd-smi and nothing of NVIDIA."""
    (folder / "metric").write_text(f"WARNING: not in the render group\n{metric}")
    (folder / "static").write_text(AMD_STATIC)
    (folder / "amd-smi").write_text(f'#!/bin/sh\n[ "$2" = --json ] && [ -f "{folder}/$1" ] && /bin/cat "{folder}/$1"\n')
    (folder / "amd-smi").chmod(0o755)
    (folder / "libnvidia-ml.so.1").write_text("not a library")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


@pytest.mark.parametrize("metric", [AMD_METRIC, f'{{"gpu_data": {AMD_METRIC}}}'], ids=["ROCm 6", "ROCm 7"])
def test_gpus_of_amd_through_amd_smi(tmp_path: Path, monkeypatch, metric: str) -> None:
    with_amd_smi(tmp_path, monkeypatch, metric)
    log = observe(tmp_path, gpu=True)
    assert problems(log) == set()
    first = {each.name: each.value for each in log.samples if each.source == "gpu:0"}
    second = {each.name: each.value for each in log.samples if each.source == "gpu:1"}
    assert first == pytest.approx(
        {
            "energy_j": 12345.5,
            "power_w": 542,
            "memory_used_bytes": 49148 * 2**20,
            "memory_total_bytes": 196592 * 2**20,
            "utilization_share": 0.73,
            "memory_utilization_share": 0.12,
            "sm_clock_hz": 2.1e9,
            "memory_clock_hz": 1.3e9,
            "temperature_c": 71,
        }
    )
    assert second == {"power_w": 90, "temperature_c": 40}
    from inferometer.observe.gpu import amd_smi_facts

    facts = amd_smi_facts()
    assert facts is not None and (facts.driver, facts.by) == ("6.8.5", "amd-smi")
    assert (facts.gpus[0].name, facts.gpus[0].memory_bytes) == ("AMD Instinct MI300X", 196592 << 20)


@pytest.mark.parametrize(
    ("metric", "chosen", "why"),
    [
        ("[]", None, "amd-smi shows no GPU"),
        ("not at all", None, "printed no JSON"),
        (AMD_METRIC, [7], "no GPU has index [7]"),
    ],
)
def test_an_amd_smi_without_gpus_is_a_note(tmp_path: Path, monkeypatch, metric: str, chosen, why: str) -> None:
    with_amd_smi(tmp_path, monkeypatch, metric)
    log = observe(tmp_path, gpu=True, gpus=chosen, gpu_wanted=True)
    assert log.samples == [] and any(why in text for text in problems(log))


EXPORTED = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100",Hostname="HOST"} 85
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100",Hostname="HOST"} 305.5
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b",device="nvidia1",modelName="NVIDIA H100",Hostname="HOST"} 100
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100",Hostname="HOST"} 40000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a",Hostname="HOST"} 9000000000
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",Hostname="HOST"} 9223372036854775794
DCGM_FI_DEV_POWER_USAGE{gpu="1",GPU_I_ID="3",GPU_I_PROFILE="1g.10gb",Hostname="HOST"} 7
"""


def test_gpus_of_two_hosts_through_dcgm(tmp_path: Path) -> None:
    one, two = (
        Asked(lambda handler, number, host=host: say(handler, EXPORTED.replace("HOST", host))) for host in ("n1", "n2")
    )
    with endpoint(one) as first, endpoint(two) as second:
        log = observe(tmp_path, first, second, until=lambda: (one.wait(4), two.wait(4)))
    assert problems(log) == set()
    samples = Samples.of(log.samples)
    assert server_summary(samples, log.notes, 0, 1 << 62) is None  # an exporter is no server
    found = gpu_summary(samples, 0, 1 << 62)
    assert [(gpu.index, gpu.host) for gpu in found.gpus] == [(0, "n1"), (1, "n1"), (0, "n2"), (1, "n2")]
    gpu = found.gpus[0]
    assert gpu.power_w.mean == 305.5 and gpu.utilization_share.mean == 0.85
    assert gpu.memory_used_bytes.max == 40000 * 2**20 and gpu.sm_clock_hz is None
    assert samples.series("energy_j", "gpu:0@n1")[1][0] == 9e6
    assert found.gpus[1].power_w.mean == 100


@pytest.mark.parametrize(("gpu", "gpus", "left"), [(True, [1], {"gpu:1@n1"}), (False, None, set())])
def test_only_those_of_dcgm_that_the_plan_asks_for(tmp_path: Path, monkeypatch, gpu: bool, gpus, left) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with endpoint(lambda handler, number: say(handler, EXPORTED.replace("HOST", "n1"))) as url:
        log = observe(tmp_path, url, gpu=gpu, gpus=gpus, gpu_wanted=True)
    assert {each.source for each in log.samples if "@" in each.source} == left


@pytest.mark.parametrize("behind", [3, 10**9])
def test_an_export_that_is_behind_is_waited_for(behind: int) -> None:
    """Nothing at first, then the request without its tokens, then both; or never."""
    pages = ["", 'ray_vllm_request_success_total{finished_reason="length"} 1\n']
    pages.append(pages[1] + "ray_vllm_generation_tokens_total 1\n")
    asked: list[int] = []

    def answer(handler, number):
        asked.append(number)
        say(handler, pages[min(number, 1) if number < behind else 2])

    with endpoint(answer) as url:
        counted = await_counted(MetricsEndpoint(origin_of(url), "/metrics", {}, 5.0), 20.0 if behind == 3 else 0.3)
    assert counted == (behind == 3)
    assert not counted or asked == [0, 1, 2, 3]
