"""Startup logs: wrapped, torn, coloured, cut off, of several generations and several starts."""

import gzip
import io
import os
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pytest

from inferometer.conduct.startup import verdict_of
from inferometer.errors import DataError
from inferometer.record.summary import Sleep
from inferometer.record.verdict import Verdict
from inferometer.target.startup import log as physical
from inferometer.target.startup import read_startup, startup_of
from inferometer.target.startup.log import WORDINGS, LogClock, messages, reading

GIB = 2**30
SERVER = Path(__file__).parents[2] / "data/vllm-0.24-h200/startup/server.log"
BATCH = SERVER.with_name("bench_latency_bs8.log")

OLD = """\
DEBUG 08-21 10:00:00.100 [__init__.py:28] No plugins for group vllm.platform_plugins found.
INFO 08-21 10:00:02.600 [__init__.py:241] Automatically detected platform cuda.
INFO 08-21 10:00:10.600 [__init__.py:31] Available plugins for group vllm.general_plugins:
INFO 08-21 10:00:10.700 [__init__.py:35] All plugins in this group will be loaded. Set `VLLM_PLUGINS`
(APIServer pid=1) INFO 08-21 10:00:11.700 [api_server.py:1787] vLLM API server version 0.10.0
(APIServer pid=1) INFO 08-21 10:00:11.800 [utils.py:326] non-default args: {'model': 'm', 'load_format': 'tensorizer',\
 'enable_sleep_mode': True, 'api_key': ['sk-abcdefgh12345678'], 'kv': <Kv object at 0x7f>}
(APIServer pid=1) INFO 08-21 10:00:21.800 [config.py:1604] Using max model len 4096
(EngineCore_0 pid=272) INFO 08-21 10:00:30.000 [core.py:572] Waiting for init message from front-end.
(EngineCore_0 pid=272) INFO 08-21 10:00:30.500 [core.py:71] Initializing a V1 LLM engine (v0.10.0) with config:\
 model='m', load_format=LoadFormat.TENSORIZER, tensor_parallel_size=2, enforce_eager=False
(EngineCore_0 pid=272) (VllmWorker rank=0 pid=300) INFO 08-21 10:00:34.000 [gpu_model_runner.py:1843] Starting to load\
 model m...
(VllmWorker rank=1 pid=301) INFO 08-21 10:00:34.000 [gpu_model_runner.py:1843] Starting to load model m...
(VllmWorker rank=0 pid=300) INFO 08-21 10:00:38.000 [default_loader.py:262] Loading weights took 3.50 seconds
(VllmWorker rank=0 pid=300) INFO 08-21 10:00:38.500 [gpu_model_runner.py:1892] Model loading took 7.5 GiB and 4.000000\
 seconds
(VllmWorker rank=1 pid=301) INFO 08-21 10:00:39.500 [gpu_model_runner.py:1892] Model loading took 7.5 GiB and 5.000000\
 seconds
(VllmWorker rank=0 pid=300) DEBUG 08-21 10:00:39.600 [decorators.py:203] Start compiling function <code object forward>
(VllmWorker rank=0 pid=300) INFO 08-21 10:00:45.600 [backends.py:541] Dynamo bytecode transform time: 6.00 s
(VllmWorker rank=0 pid=300) INFO 08-21 10:00:55.600 [backends.py:215] Compiling a graph for dynamic shape takes 9.50 s
(VllmWorker rank=0 pid=300) INFO 08-21 10:00:57.600 [monitor.py:34] torch.compile takes 17.50 s in total
(VllmWorker rank=0 pid=300) INFO 08-21 10:01:00.000 [gpu_worker.py:276] Available KV cache memory: 55.25 GiB
(VllmWorker rank=1 pid=301) INFO 08-21 10:01:00.000 [gpu_worker.py:276] Available KV cache memory: 55.25 GiB
(EngineCore_0 pid=272) INFO 08-21 10:01:00.100 [kv_cache_utils.py:829] GPU KV cache size: 904,960 tokens
(VllmWorker rank=0 pid=300) INFO 08-21 10:01:20.000 [gpu_model_runner.py:2485] Graph capturing finished in 19 secs,\
 took 0.62 GiB
(EngineCore_0 pid=272) INFO 08-21 10:01:20.500 [core.py:193] init engine (profile, create kv cache, warmup model) took\
 40.00 seconds
(EngineCore_0 pid=272) DEBUG 08-21 10:01:21.000 [core.py:690] EngineCore waiting for work.
(APIServer pid=1) INFO 08-21 10:01:21.100 [api_server.py:1818] Starting vLLM API server 0 on http://0.0.0.0:8000
(APIServer pid=1) INFO 08-21 10:01:21.200 [launcher.py:29] Available routes are:
(APIServer pid=1) INFO:     Application startup complete.
(VllmWorker rank=0 pid=300) INFO 08-21 10:05:00.000 [gpu_worker.py:98] Sleep mode freed 60.5 GiB memory, 1.25 GiB\
 memory is still in use.
(VllmWorker rank=1 pid=301) INFO 08-21 10:05:00.000 [gpu_worker.py:98] Sleep mode freed 60.5 GiB memory, 1.25 GiB\
 memory is still in use.
(EngineCore_0 pid=272) INFO 08-21 10:05:00.100 [executor_base.py:211] It took 2.500000 seconds to fall asleep.
(EngineCore_0 pid=272) INFO 08-21 10:06:00.100 [executor_base.py:227] It took 0.750000 seconds to wake up tags\
 ['weights', 'kv_cache'].
"""


def log_of(folder, text, name="server.log", changed=None):
    file = folder / name
    file.write_text(text)
    if changed is not None:
        os.utime(file, (changed, changed))
    return file


def values_of(log):
    return {name: value.value for name, value in read_startup(log).report.values.items()}


def test_the_old_wording_with_two_workers(tmp_path: Path) -> None:
    read = read_startup(log_of(tmp_path, OLD))
    startup, values = read.report.startup, {name: each.value for name, each in read.report.values.items()}
    assert values["time_to_ready"] == pytest.approx(81.1)  # the API says no time: that of the line before it
    assert values["platform_time"] == pytest.approx(2.5) and values["imports_time"] == pytest.approx(8.0)
    assert values["config_time"] == pytest.approx(10.0)
    assert values["worker_init_time"] == pytest.approx(4.0)
    assert values["weights_time"] == 5.0  # of the slower worker
    assert values["weights_size"] == 15.0 * GIB and values["weights_rate"] == pytest.approx(15 * GIB / 5)
    assert values["weights_read_rate"] == pytest.approx(15 * GIB / 3.5)
    assert (values["compile_time"], values["dynamo_time"], values["inductor_time"]) == (17.5, 6.0, 9.5)
    assert values["kv_cache_size"] == 110.5 * GIB and values["kv_cache_tokens"] == 904_960
    assert (values["graph_capture_time"], values["engine_init_time"]) == (19.0, 40.0)
    assert (values["sleep_time"], values["wake_time"]) == (2.5, 0.75)
    assert (values["sleep_freed"], values["sleep_in_use"]) == (121 * GIB, 2.5 * GIB)
    assert startup.sleeps == [Sleep(seconds=2.5, freed_bytes=121 * GIB, in_use_bytes=2.5 * GIB, wake_seconds=0.75)]
    assert [each.name for each in startup.unmatched] == ["profiling"]  # it is not in this log
    assert "Memory profiling takes {seconds:s} seconds (0.6-)" in startup.unmatched[0].looked_for
    assert "profiling_time" not in values
    assert (startup.version, startup.load_format) == ("0.10.0", "tensorizer")
    assert startup.parallel == {"tensor": 2} and startup.resolution_s == pytest.approx(1e-3)
    workers = [phase.process for phase in startup.phases if phase.name == "weights"]
    assert workers == ["VllmWorker rank=0", "VllmWorker rank=1"]
    assert startup.arguments["enable_sleep_mode"] is True and startup.arguments["api_key"] == "***"
    assert "sk-abcdefgh" not in read.matched


TWO_NODES = """\
INFO 04-08 03:47:50 [__init__.py:239] Automatically detected platform cuda.
INFO 04-08 03:47:57 [core.py:61] Initializing a V1 LLM engine (v0.8.3) with config: model='m', tensor_parallel_size=2,\
 pipeline_parallel_size=2, data_parallel_size=1, enforce_eager=False
(RayWorkerWrapper pid=344) INFO 04-08 03:48:34 [gpu_model_runner.py:1258] Starting to load model m...
(RayWorkerWrapper pid=344, ip=10.0.0.2) INFO 04-08 03:48:34 [gpu_model_runner.py:1258] Starting to load model m...
(RayWorkerWrapper pid=345) INFO 04-08 03:48:34 [gpu_model_runner.py:1258] Starting to load model m...
(RayWorkerWrapper pid=345, ip=10.0.0.2) INFO 04-08 03:48:34 [gpu_model_runner.py:1258] Starting to load model m...
(RayWorkerWrapper pid=344) INFO 04-08 04:08:30 [loader.py:447] Loading weights took 1190.0 seconds
(RayWorkerWrapper pid=344, ip=10.0.0.2) INFO 04-08 04:08:35 [loader.py:447] Loading weights took 1200.0 seconds
(RayWorkerWrapper pid=344) INFO 04-08 04:08:36 [gpu_model_runner.py:1273] Model loading took 51.0 GiB and 1195.0 seconds
(RayWorkerWrapper pid=345) INFO 04-08 04:08:36 [gpu_model_runner.py:1273] Model loading took 51.0 GiB and 1196.0 seconds
(RayWorkerWrapper pid=344, ip=10.0.0.2) INFO 04-08 04:08:36 [gpu_model_runner.py:1273] Model loading took 49.0 GiB and\
 1201.0 seconds
(RayWorkerWrapper pid=345, ip=10.0.0.2) INFO 04-08 04:08:36 [gpu_model_runner.py:1273] Model loading took 49.0 GiB and\
 1202.0 seconds
INFO 04-08 04:09:00 [core.py:138] init engine (profile, create kv cache, warmup model) took 20.00 seconds
INFO 04-08 04:09:01 [api_server.py:1081] Starting vLLM API server on http://0.0.0.0:8000
INFO 04-08 04:09:02 [launcher.py:26] Available routes are:
INFO:     Application startup complete.
"""


def test_two_nodes_with_equal_pids_are_four_workers(tmp_path: Path) -> None:
    report = read_startup(log_of(tmp_path, TWO_NODES)).report
    assert report.values["weights_size"].value == 200 * GIB and not report.startup.missing_ranks
    assert report.values["weights_read_time"].value == 1200.0  # of the slower node, not 2,390 s of both
    assert report.values["weights_time"].value == 1202.0
    hosts = {(process.pid, process.host) for process in report.startup.processes if process.pid}
    assert hosts == {(344, None), (345, None), (344, "10.0.0.2"), (345, "10.0.0.2")}
    assert verdict_of(report.startup) == Verdict(status="valid")


def test_lines_that_ray_hides_make_a_start_doubtful(tmp_path: Path) -> None:
    lines = TWO_NODES.replace(
        " 1196.0 seconds", " 1196.0 seconds [repeated 3x across cluster] (Ray deduplicates logs by"
    )
    kept = [line for line in lines.splitlines() if not ("ip=10.0.0.2" in line and "Model loading" in line)]
    text = "\n".join(line for line in kept if not line.startswith(" 120")) + "\n"
    report = read_startup(log_of(tmp_path, text)).report
    (missing,) = report.startup.missing_ranks
    assert (missing.name, missing.reporting, missing.expected, missing.hidden) == ("weights_size", 2, 4, 2)
    assert "weights_size" not in report.values and "weights_rate" not in report.values
    verdict = verdict_of(report.startup)
    assert verdict.status == "doubtful" and "2 of 4 workers" in verdict.doubts[0].text


def test_a_rank_that_speaks_for_its_node_leaves_the_size_unknown(tmp_path: Path) -> None:
    kept = [line for line in TWO_NODES.splitlines() if "pid=345" not in line]
    report = read_startup(log_of(tmp_path, "\n".join(line for line in kept if line != " 1202.0 seconds") + "\n")).report
    assert "weights_size" not in report.values and report.values["weights_time"].value == 1201.0
    verdict = verdict_of(report.startup)
    assert verdict.status == "valid" and [note.code for note in verdict.notes] == ["ranks_missing"]


RAY_V0 = """\
INFO 08-07 10:26:02 api_server.py:219] vLLM API server version 0.5.4
INFO 08-07 10:26:04 llm_engine.py:176] Initializing an LLM engine (v0.5.4) with config: model='m',\
 tensor_parallel_size=4, pipeline_parallel_size=1
INFO 08-07 10:27:40 model_runner.py:680] Starting to load model m...
(RayWorkerWrapper pid=66, ip=10.5.1.70) INFO 08-07 10:36:23 model_runner.py:692] Loading model weights took 24.4 GB
(RayWorkerWrapper pid=66, ip=10.5.1.70) INFO 08-07 10:27:40 model_runner.py:680] Starting to load model m...\
 [repeated 3x across cluster]
(RayWorkerWrapper pid=67, ip=10.5.1.70) INFO 08-07 10:36:31 model_runner.py:692] Loading model weights took 24.4 GB
INFO 08-07 10:46:00 model_runner.py:692] Loading model weights took 24.4 GB
(RayWorkerWrapper pid=66, ip=10.5.1.70) INFO 08-07 10:46:55 model_runner.py:1170] Graph capturing finished in 20 secs.
INFO 08-07 10:46:56 model_runner.py:1170] Graph capturing finished in 21 secs.
INFO:     Application startup complete.
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_main_process_without_a_name_is_no_worker(tmp_path: Path, encoding: str) -> None:
    log = tmp_path / "server.log"
    log.write_text(RAY_V0, encoding=encoding)
    startup = read_startup(log).report.startup
    loads = {phase.process: phase.seconds for phase in startup.phases if phase.name == "weights"}
    assert loads == {"main": 1100}
    assert {process.name for process in startup.processes} == {"main", "RayWorkerWrapper"}
    assert [(missing.name, missing.reporting, missing.expected) for missing in startup.missing_ranks] == [
        ("weights_size", 3, 4)
    ]
    assert [phase.seconds for phase in startup.phases if phase.name == "graph_capture"] == [21, 20]


def test_a_phase_longer_than_the_start_is_doubted(tmp_path: Path) -> None:
    merged = TWO_NODES.replace(", ip=10.0.0.2", "")  # as if nobody had written the address
    verdict = verdict_of(read_startup(log_of(tmp_path, merged)).report.startup)
    assert [doubt.code for doubt in verdict.doubts] == ["phases_exceed_start"]


def test_a_log_that_was_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    cut = OLD[: OLD.index("Compiling a graph") + 40]
    read = read_startup(log_of(tmp_path, cut))
    startup, values = read.report.startup, read.report.values
    assert startup.state == "partial" and startup.ready_at is None
    assert "time_to_ready" not in values and "compile_time" not in values and "inductor_time" not in values
    assert values["dynamo_time"].value == 6.0
    missing = [each.name for each in startup.unmatched]
    assert missing == ["engine_init", "profiling", "compile", "graph_capture", "api_start"]


@pytest.mark.parametrize("width", [60, 72, 80, 100, 132])
@pytest.mark.parametrize("wrap", ["letters", "words"])
@pytest.mark.parametrize("log", [SERVER, BATCH])
def test_hard_wrapped_lines_say_the_same(tmp_path: Path, log, width: int, wrap: str):
    lines = []
    for line in log.read_bytes().decode().split("\n"):
        if "\r" in line or wrap == "letters":
            wide = width if "\r" not in line else len(line) or 1
            lines += [line[at : at + wide] for at in range(0, len(line), wide)] or [""]
        else:
            lines += textwrap.wrap(line, width, break_on_hyphens=False, drop_whitespace=True) or [""]
    wrapped = log_of(tmp_path, "\n".join(lines))
    assert values_of(wrapped) == values_of(log)


def test_colours_and_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    coloured = OLD.replace("(EngineCore_0", "\x1b[1;36m(EngineCore_0").replace("pid=272)", "pid=272)\x1b[0;0m")
    assert values_of(log_of(tmp_path, coloured)) == values_of(log_of(tmp_path, OLD, "plain.log"))
    assert values_of(log_of(tmp_path, OLD.replace("\n", "\r\n"))) == values_of(log_of(tmp_path, OLD, "plain.log"))


def test_a_compressed_log(tmp_path: Path) -> None:
    file = tmp_path / "server.log.gz"
    file.write_bytes(gzip.compress(OLD.encode()))
    assert values_of(file) == values_of(log_of(tmp_path, OLD))


def test_stamps_of_docker_are_used_where_there_are_any(tmp_path: Path) -> None:
    lines = OLD.splitlines()
    stamped = [
        f"2026-08-21T10:{number // 60:02d}:{number % 60:02d}.250000000Z {each}" for number, each in enumerate(lines)
    ]
    values = values_of(log_of(tmp_path, "\n".join(stamped)))
    ready = next(number for number, line in enumerate(lines) if "startup complete" in line)
    assert values["time_to_ready"] == ready


@pytest.mark.parametrize("end", ["\r", "\n"])
def test_progress_bars_tell_of_graphs_where_nothing_else_does(tmp_path: Path, end: str) -> None:
    text = SERVER.read_bytes().decode().replace("\r", end)
    without = "\n".join(line for line in text.split("\n") if "Graph capturing finished" not in line)
    startup = read_startup(log_of(tmp_path, without)).report.startup
    (capture,) = [phase for phase in startup.phases if phase.name == "graph_capture"]
    assert (capture.seconds, capture.by, capture.process) == (6.0, "stamps", "EngineCore")


def test_midnight_and_new_year(tmp_path: Path) -> None:
    night = OLD.replace("08-21 10:00:", "12-31 23:59:").replace("08-21 10:01:", "01-01 00:00:")
    night = night.replace("08-21 10:05:", "01-01 00:05:").replace("08-21 10:06:", "01-01 00:06:")
    changed = datetime(2027, 1, 1, 0, 7, tzinfo=UTC).timestamp()
    read = read_startup(log_of(tmp_path, night, changed=changed))
    assert read.report.values["time_to_ready"].value == pytest.approx(81.1)
    assert read.report.startup.started_at.startswith("2026-12-31T23:59:00")
    assert read.report.startup.ready_at.startswith("2027-01-01T00:00:21")


def test_the_year_of_a_clock() -> None:
    clock = LogClock(datetime(2027, 3, 1, tzinfo=UTC).timestamp())
    leap = clock.at(None, "02", "29", "10:00:00", None)
    assert datetime.fromtimestamp(leap, UTC).year == 2024
    clock = LogClock(datetime(2027, 1, 5, tzinfo=UTC).timestamp())
    assert datetime.fromtimestamp(clock.at(None, "12", "31", "10:00:00", None), UTC).year == 2026
    assert clock.at(None, "13", "31", "10:00:00", None) is None
    before = clock.at(None, "01", "01", "00:00:00", None)
    late = clock.at(None, "12", "31", "23:59:59", None)  # of a process that writes a second later
    assert before - late == 1.0
    assert clock.at(None, "01", "01", "00:00:01", "500") - late == 2.5


def test_the_last_of_several_starts_counts(tmp_path: Path) -> None:
    again = (
        OLD.replace("08-21 10:", "08-21 11:")
        .replace("pid=1)", "pid=9)")
        .replace("Model loading took 7.5", "Model loading took 8.5")
    )
    read = read_startup(log_of(tmp_path, OLD + again))
    assert read.starts == 2
    assert read.report.values["weights_size"].value == 17 * GIB
    assert read.report.values["time_to_ready"].value == pytest.approx(81.1)
    assert [each.pid for each in read.report.startup.processes] == [9, 272, 300, 301]


def test_a_start_after_a_crash_is_another(tmp_path: Path) -> None:
    crashed = OLD[: OLD.index("(EngineCore_0 pid=272) INFO 08-21 10:00:30.500")]
    again = OLD.replace("08-21 10:", "08-21 11:").replace("pid=1)", "pid=9)")
    read = read_startup(log_of(tmp_path, crashed + again))
    assert read.starts == 2
    assert read.report.values["time_to_ready"].value == pytest.approx(81.1)
    assert read.report.values["imports_time"].value == pytest.approx(8.0)


def test_what_was_before_the_serialization_is_left_out(tmp_path: Path) -> None:
    before = SERVER.read_text() + "\nEnd model m serialization\n"
    assert values_of(log_of(tmp_path, before + OLD)) == values_of(log_of(tmp_path, OLD, "plain.log"))


def test_eager_engines_neither_compile_nor_capture(tmp_path: Path) -> None:
    eager = "\n".join(
        line for line in OLD.splitlines() if "ompil" not in line and "raph cap" not in line and "Dynamo" not in line
    )
    startup = read_startup(log_of(tmp_path, eager.replace("enforce_eager=False", "enforce_eager=True"))).report.startup
    assert startup.not_run == ["compile", "dynamo", "graph_capture"]
    assert [each.name for each in startup.unmatched] == ["profiling"]


def test_quoted_words_are_not_taken_for_the_real_ones(tmp_path: Path) -> None:
    prompt = "prompt: 'Model loading took 99 GiB and 1.0 seconds'"
    quoting = f"{OLD}(APIServer pid=1) INFO 08-21 10:07:00.000 [x.py:1] Received request: {prompt}\n"
    assert values_of(log_of(tmp_path, quoting)) == values_of(log_of(tmp_path, OLD, "plain.log"))


def test_a_large_log_is_skimmed_and_still_found_in(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(physical, "SKIM_FROM", 0)
    monkeypatch.setattr(physical, "BLOCK", 1000)
    noise = (
        "(APIServer pid=1) INFO 08-21 10:02:00.000 [loggers.py:1] Engine 000: Avg prompt throughput: 1.9 tokens/s\n"
        * 500
    )
    at = OLD.index("(VllmWorker rank=0 pid=300) INFO 08-21 10:05")
    log = log_of(tmp_path, OLD[:at] + noise + OLD[at:] + noise + SERVER.read_text())
    read = read_startup(log)
    assert read.starts == 2 and read.report.values["compile_time"].value == 24.11
    (weights,) = [phase for phase in read.report.startup.phases if phase.name == "weights"]
    assert "Model loading took 13.5" in log.read_bytes().decode().split("\n")[weights.lines[0] - 1]
    first = log_of(tmp_path, OLD[:at] + noise + OLD[at:], "one.log")
    assert values_of(first) == values_of(log_of(tmp_path, OLD, "plain.log"))


def test_of_endless_lines_only_telling_ones_are_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(physical, "MOST_LINES", 100)
    monkeypatch.setattr(physical, "MOST_SKIMMED", 5000)
    monkeypatch.setattr(physical, "BLOCK", 1000)
    blank = io.BytesIO(b"\n" * 50_000 + b"vLLM API server version 0.10.0\nand more\n" + b"\n" * 50_000)
    assert [number for number, line in physical.PhysicalLines(blank) if line] == [50_001, 50_002]
    telling = io.BytesIO(b"asleep\n" * 50_000)
    assert len([*physical.PhysicalLines(telling)]) < 6000


def test_endless_lines_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "odd.log"
    file.write_bytes(b"\xff\xfe" * 10 + b"\n" + b"x" * 500_000 + b"\n" + OLD.encode() + b"y" * 300_000)
    assert values_of(file) == values_of(log_of(tmp_path, OLD))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the log is empty"),
        ("[2025-05-01 12:00:00] server_args=ServerArgs(model_path='m')\n", "it looks like a log of SGLang"),
        ("llama_model_loader: loaded meta data\n", "it looks like a log of llama.cpp"),
        ("2025-05-01T12:00:00Z  INFO text_generation_launcher: Args\n", "it looks like a log of TGI"),
        ("hello\nworld\n", "no line matches vLLM's startup messages"),
        ("\0\0\0\0", "not a text file"),
    ],
)
def test_a_foreign_log_is_told(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_startup(log_of(tmp_path, text))


def test_the_startup_of_a_server_of_ours_never_fails(tmp_path: Path) -> None:
    made = startup_of(log_of(tmp_path, '{"url": "http://x"}\n'), 1.5)
    assert made.values["time_to_ready"].value == 1.5
    assert made.startup.state == "complete" and len(made.startup.unmatched) > 8
    assert startup_of(tmp_path / "none.log", None).values == {}
    measured = startup_of(log_of(tmp_path, OLD, "ours.log"), 90.0)
    assert measured.values["time_to_ready"].value == 90.0
    assert measured.startup.ready_in_log_s == pytest.approx(81.1)


@pytest.mark.parametrize(
    ("message", "mark", "values"),
    [
        ("torch.compile took 24.11 s in total", "compile_ends", {"seconds": 24.11}),
        ("torch.compile takes 3.5 s in total", "compile_ends", {"seconds": 3.5}),
        ("Compiling a graph for compile range (1, 8192) takes 10.91 s", "inductor", {"seconds": 10.91}),
        ("Compiling a graph for general shape takes 20.1 s", "inductor", {"seconds": 20.1}),
        ("Compiling a graph for shape 8 takes 2.5 s", "inductor", {"seconds": 2.5}),
        (
            "Directly load the compiled graph(s) for compile range (1, 16384) from the cache, took 1.940 s",
            "cache_read",
            {"seconds": 1.94},
        ),
        (
            "Directly load the compiled graph(s) for shape None from the cache, took 4.2 s",
            "cache_read",
            {"seconds": 4.2},
        ),
        (
            "Model loading took 13.5 GiB memory and 1.855644 seconds",
            "weights_end",
            {"size": 13.5 * GIB, "seconds": 1.855644},
        ),
        ("Loading model weights took 14.5 GB", "weights_end", {"size": 14.5 * GIB}),
        ("Time spent downloading weights for org/m: 12.5 seconds", "downloaded", {"model": "org/m", "seconds": 12.5}),
        (
            "[RunAI Streamer] Overall time to stream 34.5 GiB of all files to cpu: 28.5s, 1.2 GiB/s",
            "streamed",
            {"size": 34.5 * GIB, "seconds": 28.5},
        ),
        ("Deserialized 15 GB in 3.00s, 5 GB/s", "weights_read", {"size": 15e9, "seconds": 3.0}),
        (
            "init engine (profile, create kv cache, warmup model) took 51.59 s (compilation: 24.11 s)",
            "engine_ends",
            {"seconds": 51.59},
        ),
        (
            "GPU KV cache size: 910,656 tokens, Maximum concurrency for 8,192 tokens per request: 111.16x",
            "cache_tokens",
            {"tokens": 910656},
        ),
        ("# cuda blocks: 27,756, # CPU blocks: 2048", "cache_blocks", {"blocks": 27756}),
        ("Starting vLLM server on http://0.0.0.0:8000", "api_begins", {"address": "http://0.0.0.0:8000"}),
        ("It took 1.5 seconds to wake up.", "awake", {"seconds": 1.5}),
    ],
)
def test_wordings(message: str, mark: str, values):
    wording, found = reading(message)
    assert (wording.mark, found) == (mark, values)
    glued, same = reading("".join(message.rsplit(" ", 1)))  # as a wrapped line may be joined
    assert glued.mark == mark and same == found


def test_no_wording_is_hidden_by_another() -> None:
    for number, wording in enumerate(WORDINGS):
        assert not any(wording.text == other.text for other in WORDINGS[:number]), wording.text


def test_a_torn_line_is_two_messages() -> None:
    text = "(A pid=1) INFO 01-01 00:00:00 [a.py:1] one(B pid=2) INFO 01-01 00:00:01 [b.py:1] two\n"
    lines = physical.PhysicalLines(io.BytesIO(text.encode()))
    found = [(each.process, each.text) for each in messages(lines, LogClock(0.0))]
    assert found == [("A pid=1", "one"), ("B pid=2", "two")]


def test_what_is_no_log_and_would_not_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="/dev/zero: is a device, not a log"):
        read_startup(Path("/dev/zero"))
    packed = gzip.compress(b"INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.10\n" * 50)
    for number, content in enumerate((packed[:-9], packed[:20] + b"x" * 20, b"\x1f\x8b\x08\x00broken")):
        log = tmp_path / f"{number}.log.gz"
        log.write_bytes(content)
        with pytest.raises(DataError, match="is damaged gzip"):
            read_startup(log)
