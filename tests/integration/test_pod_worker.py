"""A launcher pod's work without a cluster: a plan is measured into a results folder, once, and printed."""

import json
from pathlib import Path

import pytest

from inferometer.cli import execute
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.worker import plan_key, print_results, read_work, work
from inferometer.errors import PlanError, StoreError, TargetError
from inferometer.scale.kubernetes.carrying import Cursor, Unpacking
from inferometer.store.folder import load_run

PLAN = "server: simulator\nload: {concurrency: 2}\nstop: {requests: 6}\nworkload: {input_tokens: 9, output_tokens: 3}\n"


@pytest.fixture(autouse=True)
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_CALIBRATION", str(tmp_path / "calibration"))
    keep_curve(curve_of([]), tmp_path / "calibration")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    return file


def test_the_second_pod_of_two_measures_once_and_its_folder_is_printed(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, environ = tmp_path / "claim" / "sanity_1_stack", {"JOB_COMPLETION_INDEX": "1", "INFEROMETER_LAUNCH": "a"}
    done, made = work(plan, results, 2, environ=environ)
    folder = tmp_path / "claim" / "sanity_1_stack_2"
    assert made is not None and (done.state, done.run, done.index) == ("complete", made.id, 1)
    assert made.plan["seed"] == 1  # not the same requests as the first pod
    assert read_work(folder) == done
    notes: list[str] = []
    assert work(plan, results, 2, environ=environ, notes=notes.append) == (done, None)
    assert notes == [f"the results already exist: run {made.id}"]

    (tmp_path / "claim" / "sanity_1_stack_other").mkdir()
    assert print_results(results, Cursor()) == 1
    unpacking = Unpacking(tmp_path / "here")
    unpacking.take(capsys.readouterr().out.splitlines())
    assert unpacking.cursor is None
    unpacking.finish()
    assert load_run(tmp_path / "here" / folder.name / "store" / "runs" / made.id).summary == made.summary


def test_what_a_pod_before_failed_at_is_repeated_only_by_another_job(plan: Path, tmp_path: Path) -> None:
    results = tmp_path / "claim" / "x"
    results.mkdir(parents=True)
    done, _ = work(plan, results, environ={"INFEROMETER_LAUNCH": "a"})
    unfinished = {"key": done.key, "launch": "a", "state": "running"}
    (results / "worker.json").write_text(json.dumps(unfinished))
    before, made = work(plan, results, environ={"INFEROMETER_LAUNCH": "a"})
    assert made is None and before.state == "running"
    again, made = work(plan, results, environ={"INFEROMETER_LAUNCH": "b"})
    assert made is not None and again.launch == "b"


def test_results_of_another_plan_and_numbers_that_cannot_be(plan: Path, tmp_path: Path) -> None:
    results = tmp_path / "x"
    results.mkdir()
    (results / "worker.json").write_text(json.dumps({"key": "other"}))
    with pytest.raises(StoreError, match="contains results of another plan"):
        work(plan, results, environ={})
    with pytest.raises(PlanError, match="must be below 2, got 2"):
        work(plan, results, 2, environ={"INFEROMETER_INDEX": "2"})
    with pytest.raises(PlanError, match="must be a whole number"):
        work(plan, results, 2, environ={"INFEROMETER_INDEX": "two"})


def test_why_nothing_was_measured_is_kept(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("target: {url: 'http://127.0.0.1:1'}\nstop: {requests: 1}\n")
    with pytest.raises(TargetError):
        work(plan, tmp_path / "x", environ={})
    kept = read_work(tmp_path / "x")
    assert kept is not None and (kept.state, kept.exit_code) == ("error", 3)


def test_the_command(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["worker", "--plan", str(plan), "--results", str(tmp_path / "x")]) == 0
    capsys.readouterr()
    assert execute(["worker", "--results", str(tmp_path / "x"), "--print", "0:0"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("@inferometer end")
    assert execute(["worker", "--results", str(tmp_path / "x")]) == 2
    assert execute(["worker", "--results", str(tmp_path / "x"), "--print", "here"]) == 2


def test_a_stack_whose_pods_have_other_addresses_is_measured_by_the_same_plan() -> None:
    before = plan_key("load: {rate: 1}\nobserve: {metrics: ['http://10.0.0.1:8000/metrics']}\n")
    assert plan_key("load: {rate: 1}\nobserve: {metrics: ['http://10.0.0.9:8000/metrics']}\n") == before
    assert plan_key("load: {rate: 1}\n") == before
    assert plan_key("load: {rate: 2}\n") != before
    assert plan_key("load: {rate: 1}\nobserve: {gpu: off}\n") != before
