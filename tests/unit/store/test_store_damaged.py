"""A store with damaged members: each is reported with its cause and a remedy, everything else works."""

import contextlib
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from damaged_stores import INDEX_FILE, Damage, SmallStore, damages, small_store
from inferometer.cli import execute
from inferometer.cli.errors import UNEXPECTED, WRONG_USE
from inferometer.store.folder import load_run, read_run
from inferometer.store.shapes import Damaged
from inferometer.store.store import _opened, open_store
from lengths import LONG

FUZZED = int(os.environ.get("INFEROMETER_DAMAGES", "400" if LONG else "100"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    return small_store(tmp_path_factory.mktemp("small") / "store")


@pytest.fixture
def store(whole: SmallStore, tmp_path: Path) -> Iterator[SmallStore]:
    yield whole.copy(tmp_path / "store")
    _opened.cache_clear()


def command(store: SmallStore, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, as a person gets them; in this process, for there are thousands."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = execute([*arguments, "--store", str(store.folder)])
    return code, out.getvalue(), err.getvalue()


DAMAGES = {
    "plan.yaml": [b"foo", b"a: [", b"\xff\xfe", b"- " * 3000, b"a: &a [*a]", b"seed: " + b"9" * 5000, b"!!python/x y"],
    "run.json": [b'"x"', b"", b"null", b"[" * 5000, b'{"schema": "inferometer/run/1", "state": "fine"}'],
    "manifest.json": [b'{"schema": "inferometer/manifest/1", "files": {"plan.yaml": {}}}', b"[]", b"{}"],
    "summary.json": [
        b'{"schema": "inferometer/summary/1", "measures": {"ttf',
        b'{"schema": "inferometer/summary/1", "outcomes": {"ok": NaN}}',
        b'{"schema": "inferometer/summary/1", "outcomes": {"ok": 9223372036854775808}}',
        b'{"schema": "inferometer/summary/1", "rates": {"output_rate": {"window": 1e400}}}',
        b'{"schema": "inferometer/summary/1", "measures": {"ttft": {"p50": "fast"}}}',
    ],
    "verdict.json": [b"[]", b'{"schema": "inferometer/verdict/1", "reasons": [1]}'],
    "environment.json": [b"null", b'{"schema": "inferometer/environment/1", "target": "x"}'],
    "marks.json": [b"{", b'{"schema": "inferometer/marks/1", "tags": [1]}'],
}


@pytest.mark.parametrize(("name", "content"), [(name, each) for name, given in DAMAGES.items() for each in given])
def test_a_damaged_file_is_named_and_the_other_runs_work(store: SmallStore, name: str, content: bytes) -> None:
    victim, fine = store.victims[0], store.healthy
    folder = store.folder / "runs" / victim
    (folder / "manifest.json").unlink()  # its sizes would tell, but not every run has one
    (folder / name).write_bytes(content)
    code, out, err = command(store, "store", "reindex")
    assert code == 0 and f"{victim}: damaged: {name}" in err
    code, out, err = command(store, "list")
    assert code == 0 and all(id_ in out for id_ in (victim, *fine))
    assert f"{victim}: damaged: {name}" in err and "hint: " in err
    if name != "marks.json":  # the run itself can be read without
        code, out, err = command(store, "show", victim)
        assert code == WRONG_USE and f"damaged: {name}" in err and "hint: " in err
    for arguments in (("show", fine[0]), ("compare", fine[0], fine[1])):
        assert command(store, *arguments)[0] == 0


@pytest.mark.parametrize("content", [b"", b"PAR1", b"garbage" * 100])
def test_records_that_cannot_be_read_leave_the_numbers(store: SmallStore, content: bytes) -> None:
    folder = store.folder / "runs" / store.victims[0]
    (folder / "manifest.json").unlink()
    (folder / "records.parquet").write_bytes(content)
    assert command(store, "show", store.victims[0])[0] == 0
    code, _, err = command(store, "show", store.victims[0], "--slowest", "3")
    assert code == WRONG_USE and "damaged: records.parquet" in err


def test_a_run_that_was_damaged_after_it_was_listed_is_listed_as_that_once_somebody_looked(store: SmallStore) -> None:
    victim = store.victims[1]
    (store.folder / "runs" / victim / "run.json").write_bytes(b'"x"')
    assert command(store, "show", victim)[0] == WRONG_USE
    (entry,) = (each for each in open_store(store.folder).runs() if each.id == victim)
    assert entry.state == "damaged" and entry.damage is not None and "run.json" in entry.damage and entry.remedy


def test_what_was_changed_deep_inside_is_named(store: SmallStore) -> None:
    file = store.folder / "runs" / store.victims[0] / "summary.json"
    summary = json.loads(file.read_text())
    summary["delivery"] = {"lateness": [1, 2], "why": "x" * 1000}
    summary["tokens"] = {"output": 3}
    file.write_text(json.dumps(summary, indent=2) + " " * 40_000)
    code, _, err = command(store, "show", store.victims[0])
    assert code == WRONG_USE and "damaged: summary.json: tokens" in err


def test_a_folder_that_may_not_be_read_is_damaged_with_the_right_remedy(store: SmallStore) -> None:
    """As another user: root may read everything."""
    folder = store.folder / "runs" / store.victims[0]
    script = (
        "import os, sys; from pathlib import Path; from inferometer.store.folder import read_run\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "read = read_run(Path(sys.argv[1])); print(read.cause); print(read.remedy)"
    )
    for path in [store.folder, *store.folder.parents]:
        if path.stat().st_uid == os.getuid() and path.stat().st_mode & 0o055 != 0o055:
            path.chmod(path.stat().st_mode | 0o055)
    (folder / "summary.json").chmod(0)
    result = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
    assert result.stdout == f"summary.json: permission denied\nno permission to read it: chmod -R u+rX {folder}\n"


def test_reading_gives_a_run_or_its_damage(store: SmallStore) -> None:
    folder = store.folder / "runs" / store.victims[0]
    assert read_run(folder) == load_run(folder)
    (folder / "plan.yaml").write_bytes(b"foo")
    read = read_run(folder)
    assert isinstance(read, Damaged)
    assert read.cause.startswith("incomplete: plan.yaml") and read.remedy


def test_a_damaged_experiment_is_passed_over_and_named(store: SmallStore) -> None:
    file = store.folder / "experiments" / store.experiment / "cases.jsonl"
    file.write_bytes(b'{"name": 3}\n')
    assert command(store, "list")[0] == 0
    code, _, err = command(store, "report", store.experiment, "-o", str(store.folder / "r.html"))
    assert code == WRONG_USE and "cases.jsonl: line 1: not a case" in err


def test_a_site_leaves_out_a_damaged_run_that_is_a_case_of_an_experiment(store: SmallStore) -> None:
    victim = store.victims[2]
    (store.folder / "runs" / victim / "environment.json").unlink()
    code, _, err = command(store, "site", "-o", str(store.folder / "public"))
    assert code == 0 and f"1 run could not be read and are not shown: {victim}" in err


@pytest.mark.parametrize(
    "wrong",
    [
        "drop table runs",
        "alter table runs drop column headline",
        "update runs set headline = 'x'",
        "update runs set requests = 'many'",
        "update runs set started_as = x'ff'",
        "pragma user_version = 2",
        "pragma user_version = 0",
    ],
)
def test_an_index_that_is_not_as_written_is_made_anew(store: SmallStore, wrong: str) -> None:
    with sqlite3.connect(store.folder / INDEX_FILE) as db:
        db.execute(wrong)
    db.close()
    code, out, _ = command(store, "list", "--limit", "100")
    assert code == 0 and all(id_ in out for id_ in (*store.victims, *store.healthy))
    assert command(store, "show", "main")[0] == 0  # baselines come from the folders


HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("begin exclusive")
print("held", flush=True)
sys.stdin.readline()
db.execute("commit")
"""


def test_a_locked_index_is_waited_for_with_a_message(store: SmallStore) -> None:
    """The holder lets go once the waiting command has said that it waits."""
    index, pipe = store.folder / INDEX_FILE, subprocess.PIPE
    (store.folder / "runs" / store.victims[0] / "run.json").unlink()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(index)], stdin=pipe, stdout=pipe, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    tagging = [sys.executable, "-m", "inferometer", "store", "tag", store.healthy[0], "late", "--store"]
    with subprocess.Popen([*tagging, str(store.folder)], stdout=pipe, stderr=pipe, text=True) as command_:
        assert command_.stderr is not None and command_.stdout is not None
        assert command_.stderr.readline() == f"waiting for another process to release the index {index} ...\n"
        holder.communicate("\n", timeout=30)
        assert command_.stdout.read() == f"{store.healthy[0]}: late, nightly\n"
        rest = command_.stderr.read()
    assert command_.returncode == 0 and "delete" not in rest


def looked_at(store: SmallStore, done: list[str]) -> list[str]:
    """Everything that went wrong: nothing may end with a mistake of ours, and the healthy runs are there."""
    victims = [id_ for id_ in store.victims if any(id_ in what for what in done)] or [store.victims[0]]
    fine, wrong = store.healthy, []
    for arguments in (
        ("list", "--limit", "100"),
        *(("show", victim, "--slowest", "2") for victim in victims),
        ("show", victims[0], "--json"),
        ("compare", victims[-1], fine[0], "--force"),
        ("store", "reindex"),
        ("list", "--limit", "100"),
        ("show", fine[0]),
    ):
        code, out, err = command(store, *arguments)
        must_work = not set(victims) & set(arguments)
        if code == UNEXPECTED or (must_work and code != 0):
            wrong.append(f"{' '.join(arguments)}: {code}: {err}")
        if arguments[0] == "list" and not all(id_ in out for id_ in fine):
            wrong.append(f"healthy runs are missing: {out} {err}")
    return wrong


@pytest.mark.parametrize("part", range(4))
def test_damages_at_random(whole: SmallStore, tmp_path: Path, part: int) -> None:
    """`INFEROMETER_DAMAGES=5000` tries so many."""
    wrong, at_once = [], 5
    given = list(damages(FUZZED // 4, seed=15 + part))
    for number in range(0, len(given), at_once):
        store = whole.copy(tmp_path / str(number))
        done = [damage.apply(store) for damage in given[number : number + at_once]]
        wrong += [f"seed {given[number].seed} and on, {done}: {each}" for each in looked_at(store, done)]
        _opened.cache_clear()
    assert not wrong, "\n".join(wrong[:5])


def test_a_damage_is_the_same_for_the_same_seed(whole: SmallStore, tmp_path: Path) -> None:
    done = [Damage(7).apply(whole.copy(tmp_path / str(number))) for number in range(2)]
    assert done[0] == done[1]
