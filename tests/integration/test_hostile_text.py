"""Servers and files that put our key, or commands for a terminal, into every text they can: nothing that we keep, print
or write has any of it."""

import base64
import gzip
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from parrots import headers_of, parrot

from dashboards import dashboard
from inferometer.cli import execute
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.exchange.exporting import FORMATS
from inferometer.record.parquet import read_parquet

KEY = "Zq7Wx9Lm2Kp4Vt6Rb8Nc"  # no prefix that tells what it is
TOKEN = 'tok"en+with/signs&9x7'  # which JSON, HTML and URLs write in another way
PASSWORD = "J4hG7fD2sA9qW3eR"
SECRETS = (KEY, TOKEN, PASSWORD)
PIECE = 8
CONTROLS = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x7f\x00\u202eevil\u2066\u2028\u200f\x85=cmd|' /C calc'!A0"
RAW = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
STATUSES = {0, 1, 3, 4}  # what a run with failures may end with; never a mistake of ours


def pieces() -> list[str]:
    """Every piece of every secret, and of its base64."""
    encoded = [base64.b64encode(each.encode()).decode().rstrip("=") for each in SECRETS]
    return [each[at : at + PIECE] for each in (*SECRETS, *encoded) for at in range(len(each) - PIECE + 1)]


def leaks_in(seen: list[tuple[str, bytes]]) -> set[tuple[str, bytes]]:
    """Where a piece of a secret is, with what stands around it."""
    forbidden = [each.encode() for each in pieces()]
    return {
        (name, content[max(0, content.find(piece) - 60) : content.find(piece) + 40])
        for name, content in seen
        for piece in forbidden
        if piece in content
    }


def written(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All files below a folder, and what is inside of compressed ones."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        yield path.name, content
        if path.suffix == ".xlsx":
            with zipfile.ZipFile(BytesIO(content)) as book:
                yield from ((f"{path.name}/{name}", book.read(name)) for name in book.namelist())
        if path.suffix == ".gz":
            yield path.name, gzip.decompress(content)
        if path.name == "records.parquet":
            records = read_parquet(path)
            kept = [records.record(number) for number in range(len(records))]
            texts = [(each.error, each.finish_reason, each.request_id, each.answer, each.replica) for each in kept]
            yield f"{path.name} as text", repr(texts).encode("utf-8", "replace")


def is_text(name: str) -> bool:
    return name.endswith((".json", ".yaml", ".md", ".csv", ".html", ".xml", ".om", ".svg", ".jsonl", ".txt")) or (
        name in ("stdout", "stderr") or name.startswith("/api")
    )


def plan_for(url: str, folder: Path, name: str = "parrot") -> Path:
    """Secrets at every place that a plan has for one, and again where nobody would look for one."""
    plan = {
        "name": name,
        "about": f"{name} {TOKEN}",
        "target": {"url": url, "model": "parrot", "headers": {"x-token": TOKEN}},
        "workload": {"input_tokens": 8, "output_tokens": 4},
        "load": {"concurrency": 4},
        "stop": {"requests": 36},
        "sampling": {"extra": {"deep": {"password": PASSWORD}, "note": PASSWORD}},
        "save": {"answers": True},
    }
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    return path


def environment(store: Path) -> dict[str, str]:
    return {**os.environ, "INFEROMETER_STORE": str(store), "NO_COLOR": "1", "OPENAI_API_KEY": KEY, "COLUMNS": "200"}


def run(store: Path, *arguments: str) -> list[tuple[str, bytes]]:
    done = subprocess.run(
        [sys.executable, "-m", "inferometer", *arguments], env=environment(store), capture_output=True, timeout=60
    )
    assert done.returncode in STATUSES, (arguments, done.stderr)
    return [("stdout", done.stdout), ("stderr", done.stderr)]


def commands(out: Path) -> Iterator[list[str]]:
    """Every command that shows or writes what is kept."""
    yield from (["list"], ["list", "--json"], ["list", "--csv"], ["list", "--columns", "id,engine,engine_version"])
    yield from (["show"], ["show", "--json", "--slowest", "9"], ["show", "--measures", "--slowest", "9"])
    yield ["compare", "latest", "latest~1", "--force"]
    yield ["check", "latest", "--json"]
    yield ["store", "verify"]
    yield ["ci", "latest", "--summary", str(out / "summary.md"), "--junit", str(out / "junit.xml")]
    yield ["site", "-o", str(out / "site"), "--charts", "1"]
    for suffix in ("html", "csv", "xlsx"):
        yield ["report", "latest", "-o", str(out / f"report.{suffix}")]
    for name in FORMATS:
        (out / f"export-{name}").mkdir()
        yield ["export", "latest", "--as", name, "-o", str(out / f"export-{name}")]
    yield ["export", "latest", "--as", "csv", "-o", "-"]
    yield ["export", "latest", "--as", "json", "-o", "-"]
    yield ["list", "--where", "model=no such"]
    yield ["show", "no such run"]


def foreign_result(folder: Path) -> Path:
    """A result of another tool, with names that somebody chose."""
    shape = {"num_prompts": 4, "completed": 4, "duration": 2.0, "total_input_tokens": 8, "total_output_tokens": 8}
    rates = {"request_throughput": 2.0, "output_throughput": 4.0, "mean_ttft_ms": 5.0, "p99_ttft_ms": 9.0}
    names = {"model_id": CONTROLS, "tokenizer_id": CONTROLS, "backend": "vllm", "endpoint_type": CONTROLS}
    path = folder / "result.json"
    path.write_text(json.dumps({"date": "20260101-000000", **names, **shape, **rates, "extra": CONTROLS}))
    return path


def on_terminal(store: Path, *arguments: str) -> bytes:
    """What a terminal gets; it has colours of ours."""
    ours, theirs = pty.openpty()
    env = {name: value for name, value in environment(store).items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"}
    command = [sys.executable, "-m", "inferometer", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the other end is closed
            while data := os.read(ours, 65536):
                shown += data
        assert process.wait(30) == 0, shown
    os.close(ours)
    return shown


class Walk:
    """A store with runs of a hostile server, and everything that was printed and written of it."""

    def __init__(self, store: Path, out: Path) -> None:
        self.store, self.out = store, out
        self.seen: list[tuple[str, bytes]] = []

    def show_all(self, capture: pytest.CaptureFixture[bytes]) -> None:
        for command in commands(self.out):
            code = execute(command)
            printed = capture.readouterr()
            assert code in {0, 1, 4} or command[-1].startswith(("model=", "no such")), (command, printed.err)
            self.seen += [("stdout", printed.out), ("stderr", printed.err)]
        with dashboard(self.store) as address:
            runs = json.loads(urlopen(f"{address}api/runs").read())["runs"]
            for path in ("api/runs", f"api/runs/{runs[0]['id']}", f"api/runs/{runs[0]['id']}/charts"):
                self.seen.append((f"/{path}", urlopen(f"{address}{path}").read()))
        self.seen += [*written(self.out), *written(self.store)]


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    for name in ("store", "out"):
        (tmp_path / name).mkdir()
    keep_curve(curve_of([]), tmp_path / "store")
    for name, value in environment(tmp_path / "store").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return Walk(tmp_path / "store", tmp_path / "out")


def test_an_echoed_secret_is_nowhere(walk: Walk, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with parrot(headers_of) as url:
        plan = plan_for(url, tmp_path)
        walk.seen += run(walk.store, "run", str(plan)) + run(walk.store, "run", str(plan), "--json", "--slowest", "9")
        assert execute(["run", str(plan), "--dry-run"]) == 0
        assert execute(["simulate", str(plan), "--json"]) in STATUSES
        walk.seen.append(("stdout", capfdbinary.readouterr().out))
    walk.show_all(capfdbinary)
    assert not leaks_in(walk.seen)
    assert any(b"***" in content for _name, content in walk.seen)  # and the server did echo


def test_commands_for_a_terminal_reach_no_output(
    walk: Walk, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with parrot(lambda _handler, _body: CONTROLS) as url:
        plan = plan_for(url, tmp_path, CONTROLS)
        walk.seen += run(walk.store, "run", str(plan)) + run(walk.store, "run", str(plan), "--json", "--slowest", "9")
    for command in (["import", str(foreign_result(tmp_path))], ["show", "latest~2"]):
        assert execute(command) == 0
    walk.seen.append(("terminal", on_terminal(walk.store, "show", "latest")))
    walk.show_all(capfdbinary)
    raw = {
        (name, repr(match[0]), repr(text[max(0, match.start() - 60) : match.end() + 30]))
        for name, content in walk.seen
        if is_text(name)
        for text in [content.decode("utf-8").replace("\r\n", "\n")]
        if "vega" not in text
        for match in RAW.finditer(text)
    }
    assert not raw
    cells = [line for name, content in walk.seen if name.endswith(".csv") for line in content.splitlines()]
    assert not [
        name for name, content in walk.seen if re.search(rb"\x1b\]0;|\x1b\[2J|\xc2\x9b", content) and name == "terminal"
    ]
    assert cells and not [line for line in cells if re.search(rb'(^|,)"?=cmd', line)]
    assert b"owned" in b"".join(content for _name, content in walk.seen)  # what may be shown of it, is


SERVER = """
import os, sys, time
print("started as", sys.argv, "with", os.environ["MY_SECRET"], flush=True)
for part in (os.environ["OPENAI_API_KEY"][:9], os.environ["OPENAI_API_KEY"][9:]):
    sys.stdout.write(part)
    sys.stdout.flush()
    time.sleep(0.05)
sys.exit(chr(10) + "cannot serve: " + " ".join(sys.argv))
"""


@pytest.mark.parametrize("form", ["words", "line"])
def test_a_server_that_prints_its_keys(walk: Walk, tmp_path: Path, form: str) -> None:
    """Its log is kept in the run's folder, and the end of it is shown."""
    (tmp_path / "server.py").write_text(SERVER)
    words = [sys.executable, str(tmp_path / "server.py"), "--port", "{port}", "--api-key", PASSWORD]
    command = words if form == "words" else ["bash", "-c", shlex.join(words)]
    plan = {"server": {"type": "command", "command": command, "env": {"MY_SECRET": TOKEN}}, "target": {"model": "m"}}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    walk.seen += run(walk.store, "run", str(tmp_path / "plan.yaml"))
    walk.seen += written(walk.store)
    assert any(name == "server.log" and b"cannot serve" in content for name, content in walk.seen)
    assert not leaks_in(walk.seen)
    done = execute(["run", str(tmp_path / "plan.yaml"), "--set", "server.command=[x, --api-key, y]"])
    assert done == 2
