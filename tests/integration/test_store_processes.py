"""The store under stress: several processes at once, kill -9, a full disk."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inferometer.record.gather import read_logs
from inferometer.store.folder import load_partial, load_run
from inferometer.store.store import open_store

KEEP_RUNS = """
import sys
from pathlib import Path
from datetime import UTC, datetime
from inferometer.store.folder import new_run
from inferometer.store.store import open_store

store = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(15):
    folder = new_run(store, datetime(2026, 11, 15, tzinfo=UTC))
    folder.write_state("complete")
    open_store(store).add(folder.load())
    open_store(store).runs(3)
"""

RUN_UNTIL_KILLED = """
import sys
from pathlib import Path
from inferometer.record.log import LogWriter
from inferometer.record.record import Record
from inferometer.store.folder import new_run

folder = new_run(Path(sys.argv[1]))
folder.write_plan({"name": "killed"})
log = LogWriter(folder.log_path(0))
for session in range(500):
    log.append(Record(session=session, scheduled_at=session))
log.flush()
log.append(Record(session=500, scheduled_at=500))
print(folder.path, flush=True)
sys.stdin.readline()
"""

GATHER_WITH_LITTLE_ROOM = """
import resource, sys
from pathlib import Path
from inferometer.errors import StoreError
from inferometer.store.folder import RunFolder

resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    RunFolder(Path(sys.argv[1]), "").gather()
except StoreError as error:
    print(error.message)
"""

LIST_WITH_NO_ROOM = """
import resource, sys
from pathlib import Path
from inferometer.store.store import open_store

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print([entry.state for entry in open_store(Path(sys.argv[1])).runs()])
"""


KILLED_WHILE_ENTERING = """
import os, signal, sys
from pathlib import Path
from inferometer.record.environment import Environment
from inferometer.record.summary import Rate, Summary
from inferometer.record.verdict import Verdict
from inferometer.store import index
from inferometer.store.save import keep
from inferometer.store.store import open_store

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

summary = Summary(rates={"output_rate": Rate(value=1)})
valid = Verdict(status="valid")
made = dict(kind="benchmark", plan={"a": 1}, environment=Environment(), summary=summary, verdict=valid)
keep(Path(sys.argv[1]), **made)
open_store(sys.argv[1]).runs()  # the next question enters a run
index._enter_details = die  # the row of the run is written, its numbers are not, and nothing is committed
keep(Path(sys.argv[1]), **made)
open_store(sys.argv[1]).runs()
"""


def started(code: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def killed_run(store: Path) -> Path:
    process = started(RUN_UNTIL_KILLED, store)
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    return folder


def test_writers_at_once_lose_nothing_and_share_nothing(tmp_path: Path) -> None:
    writers = [started(KEEP_RUNS, tmp_path) for _ in range(3)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    entries = open_store(tmp_path).runs()
    assert len(entries) == 45
    assert {entry.state for entry in entries} == {"complete"}


def test_a_killed_run_is_reported_up_to_its_last_flush(tmp_path: Path) -> None:
    folder = killed_run(tmp_path)
    assert load_partial(folder).session.tolist() == [*range(500)]
    run = load_run(folder)
    assert (run.state, dict(run.plan)) == ("partial", {"name": "killed"})
    assert [(entry.id, entry.state) for entry in open_store(tmp_path).runs()] == [(folder.name, "partial")]


def test_a_writer_killed_in_the_middle_of_entering_a_run_loses_nothing(tmp_path: Path) -> None:
    process = started(KILLED_WHILE_ENTERING, tmp_path)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    entries = open_store(tmp_path).runs(where=["output_rate=1"])
    assert [entry.state for entry in entries] == ["complete", "complete"]
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_columns_that_do_not_fit_on_the_disk_leave_the_logs(tmp_path: Path) -> None:
    folder = killed_run(tmp_path)
    process = started(GATHER_WITH_LITTLE_ROOM, folder)
    out, _ = process.communicate(timeout=30)
    assert out == f"{folder / 'records.parquet'}: file too large\n"
    assert sorted(path.name for path in folder.iterdir()) == ["log-0.bin", "plan.yaml", "run.json"]
    assert len(read_logs([folder / "log-0.bin"])[0]) == 500


@pytest.mark.parametrize("indexed", [True, False])
def test_a_store_on_a_full_disk_can_be_read(tmp_path: Path, indexed: bool) -> None:
    killed_run(tmp_path)
    if indexed:
        open_store(tmp_path).runs()
    out, _ = started(LIST_WITH_NO_ROOM, tmp_path).communicate(timeout=30)
    assert out == "['partial']\n"


def test_a_read_only_store_can_be_read(tmp_path: Path) -> None:
    killed_run(tmp_path)
    tmp_path.chmod(0o555)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("this user may write everywhere")
        assert len(open_store(tmp_path).runs()) == 1
        assert not [*tmp_path.glob("index*")]
    finally:
        tmp_path.chmod(0o755)
