"""`inferometer doctor` as a person calls it, against this machine and a server on loopback."""

import json
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from inferometer.cli import execute


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.setenv("INFEROMETER_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("INFEROMETER_CALIBRATION", str(tmp_path / "machine"))  # which no run has calibrated yet
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        capfd.readouterr()
        code = execute(["doctor", *map(str, words)])
        said = capfd.readouterr()
        return Done(code, said.out, said.err)

    return run


def checks_of(done):
    document = json.loads(done.stdout)
    return {check["name"]: check for check in document["checks"]}


def test_this_machine(doctor):
    done = doctor()
    assert all(name in done.stdout for name in ("machine", "clock source", "open files", "store", "calibration"))
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    checks = checks_of(doctor("--json"))
    assert checks["store"]["status"] == "ok" and checks["calibration"]["status"] == "warning"
    assert checks["endpoint"]["status"] == "not applicable"
    assert {check["status"] for check in checks.values()} <= {"ok", "warning", "error", "not applicable"}


def test_an_endpoint_and_its_model(doctor, simulator: str):
    checks = checks_of(doctor("--url", simulator, "--json"))
    assert checks["endpoint"]["status"] == "ok" and "serves" in checks["endpoint"]["finding"]
    done = doctor("--url", simulator, "--model", "nosuch", "--json")
    assert done.returncode == 1 and checks_of(done)["endpoint"]["status"] == "error"
    assert "--model" in checks_of(done)["endpoint"]["remedy"]


def test_what_cannot_be_had_is_an_error(doctor, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        nowhere = ["--tokenizer", tmp_path / "none", "--concurrency", 10**9, "--port", port]
        done = doctor("--json", *nowhere)
    checks = checks_of(done)
    assert done.returncode == 1 and json.loads(done.stdout)["status"] == "error"
    for name in ("tokenizer", "open files", "ports to listen at"):
        assert checks[name]["status"] == "error" and checks[name]["remedy"]


def test_a_store_that_cannot_be_written(doctor, tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = doctor("--store", tmp_path / "file/store", "--json")
    assert done.returncode == 1 and checks_of(done)["store"]["status"] == "error"


def test_wrong_use(doctor):
    done = doctor("--server", "nosuch")
    assert done.returncode == 2 and "nosuch" in done.stderr
