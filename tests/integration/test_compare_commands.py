"""compare and check as a user and a CI job call them, over a store with runs."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from inferometer.cli import main
from inferometer.conduct.compare import accept, check_run, compare_runs, history_of
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.run import run
from inferometer.plan.reading import plan_from
from inferometer.record.run import Run
from inferometer.record.verdict import Status, Verdict
from inferometer.store.save import keep
from inferometer.store.store import open_store
from lined_runs import PLAN, environment_of, summary_of

START = datetime(2026, 10, 1, 3, 0, tzinfo=UTC)
WIGGLE = (1.0, 1.004, 0.996, 1.007, 0.993, 1.002, 0.999, 1.005)


def kept(store: Path, number: int, tpot: float, *, version: str = "0.24.0", verdict: Status = "valid") -> Run:
    return keep(
        store,
        kind="serving",
        plan=PLAN,
        environment=environment_of(version),
        summary=summary_of(tpot * WIGGLE[number % len(WIGGLE)], ttft=100 * WIGGLE[number * 3 % len(WIGGLE)]),
        verdict=Verdict(status=verdict),
        started=START + timedelta(days=number),
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for number in range(12):
        kept(tmp_path, number, 20.0)
    return tmp_path


def called(*words: str) -> int:
    try:
        return main([*words]) or 0
    except SystemExit as end:
        return int(end.code or 0)


def test_compare_by_tags_says_what_is_worse(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = [kept(store, 20 + at, 22.0, version="0.25.0").id for at in range(3)]
    place = open_store(store)
    for id_ in slow:
        place.tag(id_, ["after"])
    for entry in place.runs(limit=6)[3:]:
        place.tag(entry.id, ["before"])
    assert called("compare", "before", "after", "--store", str(store)) == 0
    told = capsys.readouterr().out
    assert told.startswith("WORSE  2 worse, 1 ") and "(3 measures)" in told
    assert "changed     engine 0.24.0 to 0.25.0" in told
    assert called("compare", "before", "after", "--fail-on-worse", "--store", str(store)) == 1
    capsys.readouterr()
    assert called("compare", ",".join(slow), "before", "--json", "--store", str(store)) == 0
    found = json.loads(capsys.readouterr().out)
    assert {change["key"]: change["status"] for change in found["changes"]}["tpot.mean"] == "better"


def test_two_single_runs_without_a_past_are_decided_by_an_assumed_spread(tmp_path: Path) -> None:
    one, other = kept(tmp_path, 0, 20.0), kept(tmp_path, 1, 30.0)
    assert compare_runs(one.id, other.id, tmp_path).status == "worse"
    assert compare_runs(one.id, other.id, tmp_path, assume_spread=0.5).status == "unclear"
    assert compare_runs("latest~1", "latest", tmp_path).history == 0


def test_the_past_tells_how_much_single_runs_differ(store: Path) -> None:
    kept(store, 12, 22.0)
    assert compare_runs("latest~1", "latest", store).status == "worse"


def test_refused_runs_need_force(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = kept(store, 12, 20.0, verdict="invalid").id
    assert called("compare", "latest~1", broken, "--store", str(store)) == 2
    said = capsys.readouterr()
    assert "is invalid" in said.err and "--force" in said.err and said.out == ""
    assert called("compare", "latest~1", broken, "--force", "--store", str(store)) == 0
    assert capsys.readouterr().out.startswith("NOT COMPARABLE")


def test_check_fails_on_worse_until_it_is_accepted(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = kept(store, 12, 22.0, version="0.25.0")
    assert called("check", "--store", str(store)) == 1
    told = capsys.readouterr().out
    assert "TPOT mean is" in told and "changed at the same time: engine 0.24.0 to 0.25.0" in told
    assert called("check", slow.id, "--accept", "--store", str(store)) == 0
    after = kept(store, 13, 22.0, version="0.25.0")
    capsys.readouterr()
    assert called("check", after.id, "--json", "--store", str(store)) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["run"]) == ("same", after.id)


def test_check_against_a_baseline_by_its_name(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = open_store(store)
    place.set_baseline("main", place.runs(limit=1)[0].id)
    kept(store, 12, 23.0)
    assert called("check", "--against", "baseline:main", "--store", str(store)) == 1
    assert "than in baseline:main" in capsys.readouterr().out
    assert called("check", "--against", "baseline:other", "--store", str(store)) == 2
    assert "no baseline 'other'" in capsys.readouterr().err


def test_a_baseline_is_checked_at_the_level_and_magnitude_that_were_asked(store: Path) -> None:
    place = open_store(store)
    place.set_baseline("main", place.runs(limit=1)[0].id)
    kept(store, 12, 21.0)
    asked = ("check", "--against", "baseline:main", "--store", str(store))
    assert called(*asked) == 1
    assert called(*asked, "--magnitude", "50") == 0
    assert called(*asked, "--p-value", "1e-9") == 0


def test_a_check_that_would_mean_nothing_is_refused(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latest = open_store(store).runs(limit=1)[0].id
    assert called("check", latest, "--against", latest, "--store", str(store)) == 2
    assert f"{latest} appears on both sides" in capsys.readouterr().err
    bad = kept(store, 12, 20.0, verdict="invalid")
    assert called("check", latest, "--against", bad.id, "--store", str(store)) == 2
    assert "is invalid" in capsys.readouterr().err


def test_an_invalid_run_ends_with_4_and_a_lonely_one_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path, 0, 20.0)
    assert called("check", "--store", str(tmp_path)) == 0
    assert "no earlier runs" in capsys.readouterr().err
    assert called("check", "--strict", "--store", str(tmp_path)) == 4
    kept(tmp_path, 1, 20.0, verdict="invalid")
    assert called("check", "--store", str(tmp_path)) == 4


def test_a_confirming_run_is_made_and_believed(store: Path) -> None:
    looks_worse = kept(store, 12, 21.0)
    made: list[Any] = []

    def again(tpot: float) -> Any:
        def measure(plan: Any) -> Run:
            made.append(plan)
            return kept(store, 13 + len(made), tpot)

        return measure

    calm = check_run(looks_worse.id, store, again=again(20.0))
    assert (calm.status, calm.confirmed, calm.exit_code()) == ("same", False, 0)
    sure = check_run(looks_worse.id, store, again=again(21.1))
    assert (sure.status, sure.confirmed, sure.exit_code()) == ("worse", True, 1)
    assert made[0] == plan_from(PLAN)


def test_a_plan_that_is_given_makes_the_confirming_run(
    store: Path, tmp_path: Path, simulator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--confirm-with`: a real run, kept like any other. Of other work it can tell nothing, and that is said."""
    looks_worse = kept(store, 12, 21.0)
    told = ("check", looks_worse.id, "--json", "--store", str(store), "--confirm-with")
    assert called(*told, str(tmp_path / "none.yaml")) == 2
    assert "none.yaml" in capsys.readouterr().err
    plan = tmp_path / "again.yaml"
    plan.write_text(f"target: {{url: '{simulator}'}}\nstop: {{requests: 8}}\n", encoding="utf-8")
    assert called(*told, str(plan)) == 1
    found = json.loads(capsys.readouterr().out)
    second = open_store(store).runs(limit=1)[0]
    assert second.id != looks_worse.id and open_store(store).load(second.id).plan.section("stop")["requests"] == 8
    assert (found["status"], found["confirmed"]) == ("worse", None)
    assert f"{second.id}, cannot decide it" in found["warnings"][-1]


def test_history_is_of_one_identity_and_of_before(store: Path) -> None:
    other = keep(
        store,
        kind="serving",
        plan=PLAN | {"load": {"concurrency": 99}},
        environment=environment_of(),
        summary=summary_of(50.0),
        verdict=Verdict(status="valid"),
        started=START,
    )
    runs = open_store(store).runs()
    latest = open_store(store).load(runs[0].id)
    past = history_of(latest, store)
    assert len(past) == 11 and other.id not in [old.id for old in past]
    assert [old.started_at for old in past] == sorted(old.started_at for old in past)
    assert history_of(past[4], store) == past[:4]
    assert accept(latest.id, store) == latest.id


def test_history_is_of_before_whatever_the_zone_and_without_invalid_runs(tmp_path: Path) -> None:
    kept(tmp_path, 0, 20.0, verdict="invalid")
    first, last = kept(tmp_path, 1, 20.0), kept(tmp_path, 2, 20.0)
    here = keep(
        tmp_path,
        kind="serving",
        plan=PLAN,
        environment=environment_of(),
        summary=summary_of(20.0),
        verdict=Verdict(status="valid"),
        started=(START + timedelta(days=2, hours=-1)).astimezone(timezone(timedelta(hours=9))),
    )
    assert [old.id for old in history_of(last, tmp_path)] == [first.id, here.id]
    assert [old.id for old in history_of(here, tmp_path)] == [first.id]
    assert [old.id for old in history_of(last, tmp_path, most=1)] == [here.id]


def test_the_same_plan_run_twice_is_paired(tmp_path: Path, simulator: str) -> None:
    """Over real requests: the records are there, and they are of one tape."""
    keep_curve(curve_of([]), tmp_path)  # how well we measure is another test's matter
    asked = {"load": {"concurrency": 4}, "stop": {"requests": 24}, "workload": {"output_tokens": 8}}
    plan = plan_from({"target": {"url": simulator}, **asked})
    one, other = (run(plan, store=tmp_path) for _ in range(2))
    found = compare_runs(one.id, other.id, tmp_path)
    assert (found.design, found.records) == ("one tape", True)  # the status is that of two real runs: it may be any
    assert all(change.interval is not None for change in found.changes)
