"""Commands in a folder full of modules named like those we import: none of them may be executed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import inferometer
from inferometer.conduct.instrument import curve_of, keep_curve

PACKAGE = Path(inferometer.__file__).parent
QUICK = {"frontend": 0, "step_time": {"base": 0.001, "prefill_token": 0, "decode_sequence": 0}}
SHORT = ("--set", "workload.input_tokens=16", "--set", "workload.output_tokens=2")
SIMULATOR = ("--server", "simulator", "--set", f"server.args={json.dumps(QUICK)}")
OFFLINE = ("--engine", "simulator", "--batch-sizes", "1", "--iters", "2", "--warmup", "0")
EXPERIMENT = {
    "plan": {
        "server": {"type": "simulator", "args": QUICK},
        "workload": {"input_tokens": 16, "output_tokens": 2},
        "stop": {"requests": 4},
    },
    "axes": {"load.concurrency": [1, 2]},
}
COMMANDS = {
    "run with a goal": (
        "run",
        *SIMULATOR,
        *SHORT,
        "--workers",
        "2",
        "--set",
        "stop.precision=ttft p50 within 20%",
        "--set",
        "stop.at_most=1s",
    ),
    "simulate": ("simulate", *SHORT, "--requests", "10"),
    "offline": ("offline", "latency", *OFFLINE, "--input-len", "8", "--output-len", "2"),
    "sweep": ("sweep", "experiment.yaml", "-q"),
    "calibrate": ("calibrate", "--quick"),
    "benchmark": ("benchmark", "--python", "own_bench:measure", "-q"),
    "doctor": ("doctor",),
    "list": ("list",),
}
SERVERS = {"serve": ("serve", "simulator"), "dashboard": ("dashboard", "--port", "0")}


def imported_names() -> set[str]:
    """The first names of all that our modules import, and of the whole standard library."""
    found = set(sys.stdlib_module_names) | {"sitecustomize", "usercustomize"}
    for file in PACKAGE.rglob("*.py"):
        found |= {*re.findall(r"^ *(?:from|import) +(\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)}
    return found - {"__future__"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name in imported_names():
        (folder / f"{name}.py").write_text(
            f"open({str(folder / 'ran')!r} + '-{name}', 'w').close()\nraise SystemExit(99)\n"
        )
    (folder / "own_bench.py").write_text(
        "import json, own_part\n"
        "def measure():\n"
        "    return {'name': own_part.NAME, 'value': 1.0, 'unit': 's', 'direction': 'lower'}\n"
    )
    (folder / "own_part.py").write_text("NAME = 'decode'\n")
    (folder / "experiment.yaml").write_text(json.dumps(EXPERIMENT))
    keep_curve(curve_of([]), folder / "store")
    make_checkout(folder)
    return folder


def make_checkout(folder: Path) -> None:
    """With settings that let `git status` start programs, as a checkout that was unpacked may have."""
    identity = ("-c", "user.name=t", "-c", "user.email=t@t.test", "-c", "commit.gpgsign=false")
    for words in (
        ("init", "--quiet"),
        (*identity, "commit", "--quiet", "--allow-empty", "-m", "one"),
        ("config", "core.fsmonitor", f"touch {folder}/ran-git; false"),
    ):
        subprocess.run(["git", "-C", str(folder), *words], check=True)


def environment(folder: Path) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    path = os.pathsep.join(filter(None, (str(PACKAGE.parent), found.get("PYTHONPATH"))))
    return found | {"PYTHONPATH": path, "INFEROMETER_STORE": str(folder / "store"), "NO_COLOR": "1"}


def ran(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("ran-*"))


def script() -> list[str]:
    """The installed command; `python -P` where it is not beside this Python."""
    installed = Path(sys.executable).with_name("inferometer")
    return [str(installed)] if installed.exists() else [sys.executable, "-P", "-m", "inferometer"]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_module_of_the_working_folder_is_run(hostile: Path, name: str) -> None:
    command = [*script(), *COMMANDS[name]]
    done = subprocess.run(
        command, cwd=hostile, env=environment(hostile), capture_output=True, text=True, timeout=120, check=False
    )
    assert ran(hostile) == []
    assert done.returncode in (0, 1, 4), done.stderr
    assert "Traceback" not in done.stderr


def test_python_m_runs_none_either(hostile: Path, tmp_path: Path) -> None:
    """But for what `python -m` itself imports before anything of ours: `inferometer`, and what it finds that with."""
    folder = tmp_path / "checkout"
    loaded = "import runpy, sys; print(*sys.modules)"
    before = subprocess.run([sys.executable, "-P", "-c", loaded], capture_output=True, text=True, check=True).stdout
    left_out = [f"{name}.py" for name in ("inferometer", *before.split())]
    shutil.copytree(hostile, folder, ignore=shutil.ignore_patterns(*left_out, "store"))
    command = [sys.executable, "-m", "inferometer", "run", *SIMULATOR, *SHORT, "--requests", "4", "--workers", "2"]
    for file in folder.glob("*.py"):
        file.write_text(file.read_text().replace(str(hostile), str(folder)))
    keep_curve(curve_of([]), folder / "store")
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120, check=False
    )
    assert ran(folder) == []
    assert done.returncode in (0, 4), done.stderr


@pytest.mark.parametrize("name", SERVERS)
def test_servers_run_none_either(hostile: Path, name: str) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([*script(), *SERVERS[name]], cwd=hostile, env=environment(hostile), **pipes) as process:  # type: ignore[call-overload]
        ready = any(b"http://" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert ready
    assert ran(hostile) == []


def test_the_markers_work(hostile: Path, tmp_path: Path) -> None:
    """A child as it was started before does run them: else the tests above would pass whatever we do."""
    child = "from secrets import token_hex"
    folder = tmp_path / "checkout"
    shutil.copytree(hostile, folder)
    (folder / "secrets.py").write_text((folder / "secrets.py").read_text().replace(str(hostile), str(folder)))
    subprocess.run([sys.executable, "-c", child], cwd=folder, env=environment(folder), check=False)
    assert ran(folder) == ["ran-secrets"]
