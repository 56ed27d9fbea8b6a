"""The store with servers: a real PostgreSQL and an S3 server over HTTP, both started here."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from sqlalchemy import text

from inferometer.cli.group import group
from inferometer.conduct.instrument import CalibrationLoad, calibrate
from inferometer.errors import StoreError
from inferometer.record.columns import Records
from inferometer.record.encoding import environment_from
from inferometer.record.record import Record
from inferometer.record.run import Run
from inferometer.record.summary import MeasureSummary, Rate, Summary
from inferometer.record.verdict import Verdict
from inferometer.store import tables as migrations
from inferometer.store.databases import PostgresIndex
from inferometer.store.folder import new_run
from inferometer.store.save import keep
from inferometer.store.store import Store, open_store
from measured import assert_ran

SUMMARY = Summary(
    measures={"ttft": MeasureSummary(statistics={"p50": 0.1, "p99": 0.4}, count=9)},
    rates={"output_rate": Rate(value=120.5)},
    outcomes={"ok": 9},
)


def kept(store: Store, second: int = 0, *, records: bool = False, **plan: Any) -> Run:
    return keep(
        store,
        kind="serving",
        started=datetime(2026, 11, 15, 3, 12, second, tzinfo=UTC),
        plan={"name": "n", "target": {"url": ["http://a"], "model": "llama-8b"}, "load": {"rate": second}, **plan},
        environment=environment_from({"target": {"server": "vllm", "version": "0.24.0"}}),
        summary=SUMMARY,
        verdict=Verdict(status="valid"),
        records=Records.of([Record(session=7, scheduled_at=1)]) if records else None,
    )


S3_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def postgres(database: str) -> str:
    """An empty database."""
    name = f"runs_{os.urandom(6).hex()}"
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(f"create database {name}")
    return database.replace("/postgres?", f"/{name}?")


@contextmanager
def s3_server(**environment: str) -> Iterator[str]:
    command = [sys.executable, "-c", S3_SERVER]
    env = os.environ | environment
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def strict_s3() -> Iterator[str]:
    """One that knows nobody's keys."""
    with s3_server(INITIAL_NO_AUTH_ACTION_COUNT="0") as url:
        yield url


@pytest.fixture
def team(postgres: str, tmp_path: Path) -> Store:
    return open_store(postgres, tmp_path / "records")


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of its own, and credentials for it in the environment."""
    import boto3

    for name, value in {"AWS_ENDPOINT_URL": s3, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    name = f"runs-{os.urandom(6).hex()}"
    boto3.client("s3").create_bucket(Bucket=name)
    return name


# -- PostgreSQL -------------------------------------------------------------------------------------------------


def test_a_team_lists_filters_and_finds_in_postgresql(team: Store) -> None:
    runs = [kept(team, second) for second in range(3)]
    assert [entry.id for entry in team.runs()] == [run.id for run in runs[::-1]]
    assert [entry.id for entry in team.runs(where=["load.rate<2", "model=~LLAMA"], sort="load.rate")] == [
        runs[0].id,
        runs[1].id,
    ]
    assert team.runs(where=["ttft p99 < 300ms"]) == []
    assert team.load("latest").summary == SUMMARY
    assert team.find(runs[0].id) == runs[0].folder


def test_two_clients_of_a_team_do_not_forget_each_others_runs(postgres: str, tmp_path: Path) -> None:
    mine, theirs = open_store(postgres, tmp_path / "mine"), open_store(postgres, tmp_path / "theirs")
    a, b = kept(mine, 1), kept(theirs, 2)
    assert [entry.id for entry in mine.runs()] == [b.id, a.id]
    mine.reindex()
    assert [entry.id for entry in theirs.runs()] == [b.id, a.id]
    theirs.tag(a.id, ["nightly"])
    assert mine.entry("nightly").id == a.id


def test_a_run_of_another_machine_says_where_it_is(team: Store, tmp_path: Path) -> None:
    run = kept(team)
    with team.database.writing() as db:
        db.execute(text("update runs set location = 'file://elsewhere/data/runs/x'"))
    with pytest.raises(StoreError, match="its folder is on elsewhere, at /data/runs/x"):
        team.load(run.id)


def test_tags_and_baselines_survive_a_lost_database(postgres: str, team: Store) -> None:
    run = kept(team)
    team.tag(run.id, ["nightly", "v1"])
    team.set_baseline("main", run.id)
    with team.database.writing() as db:
        for table in ("tags", "baselines", "runs"):
            db.execute(text(f"delete from {table}"))
    team.reindex()
    assert team.entry(run.id).tags == ("nightly", "v1")
    assert team.baseline("main").id == run.id


def test_writers_at_once_in_postgresql(postgres: str, tmp_path: Path) -> None:
    code = """
import sys
from datetime import UTC, datetime
from inferometer.store.store import open_store
store = open_store(sys.argv[1], sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(8):
    folder = store.new_run(datetime(2026, 11, 15, tzinfo=UTC))
    folder.write_state("complete")
    store.add(folder.load())
    store.runs(3)
"""
    command = [sys.executable, "-c", code, postgres, str(tmp_path)]
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("go\n", timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert len(open_store(postgres, tmp_path).runs()) == 16


def test_an_index_of_a_newer_version_is_refused_and_left_alone(postgres: str, tmp_path: Path) -> None:
    store = open_store(postgres, tmp_path)
    kept(store)
    with store.database.writing() as db:
        db.execute(text("update inferometer.version set number = 99"))
    with pytest.raises(StoreError, match="has version 99, this Inferometer knows"), PostgresIndex(postgres).reading():
        pass
    with store.database.reading() as db:
        assert db.execute(text("select count(*) from runs")).scalar_one() == 1


def test_an_older_index_takes_the_steps_it_lacks(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(open_store(postgres, tmp_path))
    step = lambda db: db.execute(text("alter table runs add column more integer"))  # noqa: E731
    monkeypatch.setattr(migrations, "STEPS", [*migrations.STEPS, step])
    with PostgresIndex(postgres).reading() as db:
        assert db.execute(text("select count(*), count(more) from runs")).one() == (1, 0)
        assert migrations.version_of(db) == migrations.newest()


def test_a_database_that_cannot_be_reached_is_named_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://somebody:very-secret@127.0.0.1:1/runs"
    result = CliRunner().invoke(group, ["list", "--store", url, "--records", str(tmp_path)])
    assert isinstance(result.exception, StoreError)
    said = f"{result.exception.message} {result.exception.hint} {result.output}"
    assert "127.0.0.1" in said and "refused" in said
    assert "very-secret" not in said


def test_a_wrong_database_says_what_to_do(postgres: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='database "none" does not exist') as raised:
        open_store(re.sub(r"/runs_\w+", "/none", postgres), tmp_path).runs()
    assert raised.value.hint is not None and "createdb" in raised.value.hint


def test_without_records_the_command_warns(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    result = CliRunner().invoke(group, ["list", "--store", postgres])
    assert result.exit_code == 0
    assert "run folders stay on this machine" in result.stderr


# -- an object store --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["sqlite", "postgresql"])
def test_runs_go_to_s3_and_come_back_lazily(
    index: str, bucket: str, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a"))
    where = postgres if index == "postgresql" else str(tmp_path / "store")
    store = open_store(where, f"s3://{bucket}/team")
    run = kept(store, records=True)
    assert store.entry(run.id).location == f"s3://{bucket}/team/runs/{run.id}"
    assert not (store.home / "runs" / run.id).exists()
    for file in (store.home / "cache" / run.id).iterdir():  # another machine has nothing yet
        file.unlink()
    again = store.load(run.id)
    assert again.summary == SUMMARY
    assert not (store.home / "cache" / run.id / "records.parquet").exists()
    records = again.records
    assert records is not None and records.session.tolist() == [7]
    assert (store.find(run.id) / "records.parquet").exists()


def test_an_index_is_made_anew_from_s3(bucket: str, tmp_path: Path) -> None:
    store = open_store(tmp_path / "a", f"s3://{bucket}/x")
    run = kept(store, records=True)
    store.tag(run.id, ["nightly"])
    store.set_baseline("main", run.id)
    other = open_store(tmp_path / "b", f"s3://{bucket}/x")
    (tmp_path / "b" / "runs").mkdir(parents=True)
    assert other.reindex()[:2] == (1, 0)
    assert other.entry("nightly").id == run.id
    assert other.baseline("main").id == run.id


def test_a_half_uploaded_run_is_named_and_uploaded_from_where_it_is(bucket: str, tmp_path: Path) -> None:
    import boto3

    store = open_store(tmp_path / "a", f"s3://{bucket}/x")
    run = kept(store)
    boto3.client("s3").delete_object(Bucket=bucket, Key=f"x/runs/{run.id}/manifest.json")
    with pytest.raises(StoreError, match="incomplete upload: no manifest"):
        store.load(run.id)
    other = open_store(tmp_path / "b", f"s3://{bucket}/x")
    (tmp_path / "b" / "runs").mkdir(parents=True)
    assert other.reindex().half_uploaded == [run.id]
    (store.home / "cache" / run.id).rename(store.home / "runs" / run.id)
    assert store.reindex().uploaded == 1
    assert store.load(run.id).summary == SUMMARY


def test_a_changed_object_is_refused(bucket: str, tmp_path: Path) -> None:
    import boto3

    store = open_store(tmp_path / "a", f"s3://{bucket}/x")
    run = kept(store, records=True)
    boto3.client("s3").put_object(Bucket=bucket, Key=f"x/runs/{run.id}/records.parquet", Body=b"PAR1 something else")
    (store.home / "cache" / run.id / "records.parquet").unlink()
    with pytest.raises(StoreError, match=r"records.parquet: does not match its manifest"):
        _ = store.load(run.id).records
    assert store.load(run.id).summary == SUMMARY


def test_a_killed_upload_leaves_the_run_where_it_is(bucket: str, tmp_path: Path) -> None:
    """The process dies after the first object."""
    code = """
import os, signal, sys
from inferometer.store.store import open_store
store = open_store(sys.argv[1], sys.argv[2])
folder = store.new_run()
folder.write_plan({"name": "killed"}); folder.write_state("complete")
put, done = store.objects._fs.put_file, []
def once(*args):
    put(*args)
    os.kill(os.getpid(), signal.SIGKILL)
store.objects._fs.put_file = once
store.add(folder.load())
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), f"s3://{bucket}/x"], timeout=60)
    assert done.returncode == -signal.SIGKILL
    store = open_store(tmp_path, f"s3://{bucket}/x")
    (entry,) = store.runs()
    assert (entry.state, store.objects.runs() if store.objects else None) == ("complete", ([], [entry.id]))
    assert store.reindex().uploaded == 1
    assert store.load(entry.id).plan == {"name": "killed"}


def test_wrong_credentials_are_named_before_the_run(strict_s3: str, tmp_path: Path) -> None:
    code = """
import sys
from inferometer.errors import StoreError
from inferometer.store.store import open_store
try:
    open_store(sys.argv[1], sys.argv[2]).new_run()
except StoreError as error:
    print(error.message, "|", error.hint)
"""
    env = {**os.environ, "AWS_ENDPOINT_URL": strict_s3, "AWS_ACCESS_KEY_ID": "wrong", "AWS_SECRET_ACCESS_KEY": "xyz"}
    command = [sys.executable, "-c", code, str(tmp_path), "s3://locked/x"]
    said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60).stdout
    assert said.startswith("s3://locked/x: ") and "check the credentials" in said
    assert not [*tmp_path.glob("runs/*")]


def test_a_missing_bucket_and_a_server_that_is_not_there(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="s3://no-such-bucket-here/x") as raised:
        open_store(tmp_path / "a", "s3://no-such-bucket-here/x").new_run()
    assert raised.value.hint == "create the bucket first, and check its name"


def test_pruning_deletes_objects_and_spares_baselines(bucket: str, tmp_path: Path) -> None:
    store = open_store(tmp_path, f"s3://{bucket}/x")
    runs = [kept(store, second) for second in range(3)]
    store.set_baseline("main", runs[0].id)
    command = ["store", "prune", "--keep-last", "1", "--store", str(tmp_path), "--records", f"s3://{bucket}/x"]
    result = CliRunner().invoke(group, command)
    assert result.stdout.splitlines() == [runs[1].id], result.output
    assert f"kept: {runs[0].id} is a baseline" in result.stderr
    assert store.objects is not None and store.objects.runs()[0] == sorted([runs[0].id, runs[2].id])


def test_a_plan_is_run_and_kept_in_postgresql_and_s3(
    bucket: str, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: `inferometer run` at the simulator."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    args = ["--store", postgres, "--records", f"s3://{bucket}/team"]
    calibrate([CalibrationLoad.lasting(2, 0.01, 0.2, 1)], store=open_store(postgres, f"s3://{bucket}/team").home)
    result = CliRunner().invoke(group, ["run", *args, "--requests", "8", "--quiet", "--json"], standalone_mode=False)
    assert result.exception is None, result.output
    assert_ran(result.return_value, result.stderr)
    made = json.loads(result.stdout)["run"]["id"]
    shown = CliRunner().invoke(group, ["list", *args, "--json"], standalone_mode=False)
    (entry,) = json.loads(shown.stdout)["runs"]
    assert (entry["id"], entry["location"]) == (made, f"s3://{bucket}/team/runs/{made}")


def test_checksums_are_of_the_files(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    folder.write_state("complete")
    said = json.loads((folder.path / "manifest.json").read_text())["files"]["run.json"]
    assert said["sha256"] == hashlib.sha256((folder.path / "run.json").read_bytes()).hexdigest()
