"""`inferometer startup`: logs from the command line, and a program called vllm that logs and answers like vLLM."""

import json
import stat
import sys
from pathlib import Path

import pytest

from inferometer.cli import execute

LOGS = Path(__file__).parents[1] / "data/vllm-0.24-h200/startup"
VLLM = '''#!{python}
"""Prints a log of vLLM, then answers at the port it was given as vLLM would."""
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

words = sys.argv[1:]
port, model = int(words[words.index("--port") + 1]), words[1]
asleep = False


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/is_sleeping"):
            return self.answer({{"is_sleeping": asleep}})
        if self.path.startswith("/version"):
            return self.answer({{"version": "0.24.0"}})
        return self.answer({{"object": "list", "data": [{{"id": model, "owned_by": "vllm", "max_model_len": 8192}}]}})

    def do_POST(self):
        global asleep
        if "--enable-sleep-mode" not in words or os.environ.get("VLLM_SERVER_DEV_MODE") != "1":
            return self.answer({{}}, 404)
        asleep = self.path.startswith("/sleep")
        if asleep:
            print("(EngineCore pid=780) INFO 11-15 01:17:00 [gpu_worker.py:1] Sleep mode freed 60.5 GiB memory, "
                  "1.25 GiB memory is still in use.", flush=True)
            print("(EngineCore pid=780) INFO 11-15 01:17:00 [x.py:1] It took 2.5 seconds to fall asleep.", flush=True)
        else:
            print("(EngineCore pid=780) INFO 11-15 01:17:09 [x.py:1] It took 0.5 seconds to wake up.", flush=True)
        return self.answer({{}})

    def answer(self, said, status=200):
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words):
        pass


if "nosuch" in words:
    sys.exit("ValueError: Unknown load format: nosuch")
if os.environ.get("VLLM_LOGGING_LEVEL") == "DEBUG":
    sys.stdout.write(open({log!r}).read())
    sys.stdout.flush()
HTTPServer(("127.0.0.1", port), Answers).serve_forever()
'''


@pytest.fixture
def command(tmp_path: Path, monkeypatch, capfd):
    """The command line, with a store and locks of its own."""
    monkeypatch.setenv("INFEROMETER_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INFEROMETER_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words, code=0):
        capfd.readouterr()
        ended = execute([str(word) for word in words])
        said = capfd.readouterr()
        assert ended == code, said.err + said.out
        return said

    return run


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "vllm"
    program.write_text(VLLM.format(python=sys.executable, log=str(LOGS / "server.log")))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin")


def test_a_log_is_shown_and_kept(command):
    shown = command("startup", "--log", LOGS / "server.log").out
    assert "118 s" in shown and "Inductor" in shown and "EngineCore" in shown and "Dynamo" not in shown
    assert len(shown.splitlines()) <= 24, "the longest phases alone"
    assert "Dynamo transform" in command("show", "--more").out
    assert all(len(line) <= 100 for line in shown.split("stored in")[0].splitlines())
    again = command("show").out
    assert again.split("stored in")[0] == shown.split("stored in")[0]
    kept = json.loads(command("show", "--json").out)
    assert kept["run"]["kind"] == "startup" and kept["run"]["state"] == "complete"
    assert kept["summary"]["values"]["compile_time"]["value"] == 24.11
    assert "Model loading took" in (Path(kept["run"]["folder"]) / "matched.log").read_text()
    assert "server" in command("list").out


def test_several_logs_are_compared(command):
    done = command("startup", "--log", LOGS / "server.log", LOGS / "bench_latency_bs8.log")
    row = next(line for line in done.out.splitlines() if line.startswith("compile  "))
    assert row.split()[1:] == ["24.1", "s", "5.85", "s"]
    cached = next(line for line in done.out.splitlines() if "from the cache" in line)
    assert cached.split()[-3:] == ["-", "1.94", "s"]
    both = json.loads(command("startup", "--json", LOGS / "server.log", LOGS / "bench_latency_bs8.log").out)
    assert [run["summary"]["values"]["time_to_ready"]["value"] for run in both["runs"]] == [118.0, 76.0]


def test_a_log_that_is_none_is_said_and_the_others_shown(command, tmp_path: Path):
    other = tmp_path / "other.log"
    other.write_text("llama_model_loader: loaded meta data\n")
    done = command("startup", "--log", other, LOGS / "server.log", tmp_path / "nowhere.log", code=2)
    assert "it looks like a log of llama.cpp" in done.err and "nowhere.log: no such file" in done.err
    assert "118 s" in done.out


def test_a_log_that_ends_early(command, tmp_path: Path):
    cut = tmp_path / "cut.log"
    cut.write_bytes((LOGS / "server.log").read_bytes()[:30_000])
    done = command("startup", cut)
    assert "DOUBTFUL" in done.out and "unmatched" in done.out
    kept = json.loads(command("show", "--json").out)
    assert kept["run"]["state"] == "partial" and "time_to_ready" not in kept["summary"]["values"]


def test_wrong_use(command):
    assert "name logs to read" in command("startup", code=2).err
    assert "name logs to read" in command("startup", "--server", "vllm", "--log", "x", code=2).err
    assert "server.model" in command("startup", "--server", "vllm", code=2).err


def test_a_server_is_started_measured_and_ended(command, vllm):
    done = command("startup", "--server", "vllm", "--model", "tiny", "--sleep", "--json")
    run = json.loads(done.out)
    values, startup = run["summary"]["values"], run["summary"]["startup"]
    assert 0 < values["time_to_ready"]["value"] < 60  # ours, not that of the log
    assert startup["ready_in_log_s"] == 118.0 and values["compile_time"]["value"] == 24.11
    assert (values["sleep_time"]["value"], values["wake_time"]["value"]) == (2.5, 0.5)
    assert 0 < startup["requested_sleep"]["sleep_s"] < 60
    assert run["environment"]["target"]["model"] == "tiny" and run["environment"]["server"]["version"] == "0.24.0"
    assert (Path(run["run"]["folder"]) / "server.log").stat().st_size > 10_000
    shown = command("show").out
    assert "fall asleep" in shown and "2.50 s" in shown


def test_load_formats_one_after_the_other(command, vllm):
    formats = ["--load-format", "safetensors", "--load-format", "nosuch", "--load-format", "runai_streamer"]
    done = command("startup", "--server", "vllm", "--model", "tiny", *formats, code=3)
    assert "Unknown load format: nosuch" in done.err
    assert "startup safetensors" in done.out and "startup runai_streamer" in done.out


def test_a_server_whose_log_says_nothing(command):
    done = command("startup", "--server", "simulator", "--json")
    run = json.loads(done.out)
    assert run["summary"]["values"].keys() == {"time_to_ready"}
    assert {"weights", "compile"} <= {each["name"] for each in run["summary"]["startup"]["unmatched"]}
    shown = " ".join(command("show").out.split())
    assert "ready after" in shown and "phases unmatched: not a log of a vLLM start" in shown


def test_a_server_that_cannot_sleep_says_so(command, vllm):
    said = command(
        "startup", "--server", "vllm", "--model", "tiny", "--sleep", "--args", "enable_sleep_mode=false", code=3
    )
    assert "POST /sleep?level=1 with status 404" in said.err and "--enable-sleep-mode" in said.err
