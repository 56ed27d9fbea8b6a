"""`import inferometer`: its functions, plans from keywords, and the attributes of a run."""

import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inferometer
from inferometer.errors import InferometerError, PlanError, StoreError
from inferometer.measure.inputs import Answers
from inferometer.measure.registry import request_values
from inferometer.record.columns import Records
from inferometer.record.record import Record
from inferometer.record.run import Run
from inferometer.show.console import console
from inferometer.show.summary import WIDTH, print_view

SHORT: dict[str, Any] = {"rate": 20, "duration": "20s", "input_tokens": 64, "output_tokens": 16}


@pytest.fixture(scope="module")
def simulated() -> Run:
    return inferometer.simulate(**SHORT, limit="ttft p50 < 1s")


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", inferometer.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(inferometer, name) is not None
    assert name in dir(inferometer)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'rnu'"):
        inferometer.rnu  # noqa: B018


def test_importing_it_imports_nothing_else() -> None:
    told = "import inferometer, sys; print(sorted({'numpy', 'pyarrow', 'pydantic', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_of_keywords() -> None:
    plan = inferometer.make_plan(rate=5, duration="30s", limit="ttft p99 < 1s", header="X-Tenant: blue")
    assert (plan.load.rate, plan.stop.duration) == (5.0, 30.0)
    assert [str(limit) for limit in plan.limits] == ["ttft p99 < 1s"]
    assert plan.target.headers == {"X-Tenant": "blue"}
    assert plan.server is not None and plan.server.type == "simulator"


def test_a_url_takes_the_place_of_the_simulator() -> None:
    plan = inferometer.make_plan(url="http://localhost:8000", concurrency=4, requests=10)
    assert plan.server is None
    assert plan.target.url == ["http://localhost:8000"]
    assert plan.load.concurrency == 4


def test_a_plan_of_a_mapping_changed_by_keywords_and_settings() -> None:
    mapping = {"load": {"rate": 2}, "stop": {"requests": 5}}
    plan = inferometer.make_plan(mapping, rate=3, settings=["seed=7"])
    assert (plan.load.rate, plan.stop.requests, plan.seed) == (3.0, 5, 7)
    assert mapping == {"load": {"rate": 2}, "stop": {"requests": 5}}
    assert inferometer.make_plan(plan, rate=4).seed == 7


def test_a_plan_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("load: {rate: 2}\nstop: {requests: 5}\n", encoding="utf-8")
    assert inferometer.make_plan(file).load.rate == 2.0
    assert inferometer.make_plan(str(file), rate=9).load.rate == 9.0


def test_a_plan_of_a_profile() -> None:
    assert inferometer.make_plan("chat", rate=4).load.rate == 4.0
    with pytest.raises(PlanError, match="no such file or profile"):
        inferometer.make_plan("chta")


def test_keywords_that_are_none_are_as_if_not_given() -> None:
    assert inferometer.make_plan(url=None, rate=None, concurrency=2, requests=3).load.concurrency == 2


def test_a_wrong_keyword_is_named() -> None:
    with pytest.raises(PlanError, match=r"no keyword 'rtae'; did you mean 'rate'\?") as told:
        inferometer.run(rtae=5, qqq=1)
    assert told.value.mistakes[1] == "no keyword 'qqq'"
    assert told.value.hint is not None and "concurrency" in told.value.hint


def test_a_wrong_value_is_named() -> None:
    with pytest.raises(PlanError, match=r"load\.rate must be a number"):
        inferometer.simulate(rate="fast")


# -- runs ------------------------------------------------------------------------------------------------------------


def test_a_simulated_run(simulated: Run) -> None:
    assert simulated.status == "valid"
    ttft = simulated.summary.measures["ttft"]
    low, high = ttft.interval("p50")
    assert ttft.p50 is not None and low is not None and high is not None
    assert low <= ttft.p50 <= high
    assert [limit.met for limit in simulated.summary.limits] == [True]


def test_print_shows_what_the_terminal_shows(simulated: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    print_view(simulated, console(out, WIDTH))
    assert str(simulated) == out.getvalue().rstrip()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert str(simulated) == out.getvalue().rstrip()


def test_print_in_a_notebook_is_text(simulated: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = str(simulated)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert str(simulated) == before


def test_names_are_shown_as_they_are() -> None:
    """No markup, no emoji codes, no commands to the terminal."""
    server = {"type": "simulator", "args": {"model": "a[b] :smile: \x1b[31m"}}
    run = inferometer.simulate({"server": server}, requests=3)
    assert "a[b] :smile:" in str(run)
    assert "\x1b" not in str(run)


def test_charts_by_either_name(simulated: Run) -> None:
    assert simulated.chart("ttft-cdf").name == simulated.chart("ttft_cdf").name == "ttft_cdf"
    with pytest.raises(PlanError, match="no chart"):
        simulated.chart("ttft")


# -- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ttft", "tpot", "e2e"])
def test_columns_agree_with_the_measures(simulated: Run, name: str) -> None:
    assert simulated.records is not None
    values = simulated.records.to_arrow().column(name).drop_null().to_numpy()
    measure = simulated.summary.measures[name]
    assert measure.count == len(values)
    assert measure.mean == pytest.approx(values.mean())
    assert measure.max == pytest.approx(values.max())


def records() -> Records:
    """In the order in which they ended, which is not that of their schedule; the second failed."""

    def record(session: int, first_ms: int, **more: object) -> Record:
        at = session * 1_000_000_000
        reads = np.array([at + first_ms * 1_000_000, at + 2 * first_ms * 1_000_000], "<i8").tobytes()
        ones = np.ones(2, "<i8").tobytes()
        instants = {"scheduled_at": at, "ready_at": at, "sent_at": at + 1_000_000, "ended_at": at + 900_000_000}
        return Record(session=session, **instants, read_at=reads, read_tokens=ones, **more)  # type: ignore[arg-type]

    return Records.of([record(3, 30), record(2, 20, outcome="cut"), record(1, 10)])


def test_measures_stand_beside_their_own_request() -> None:
    table = records().to_arrow().to_pydict()
    assert table["session"] == [1, 2, 3]
    assert table["ttft"] == pytest.approx([0.009, None, 0.029])
    for session, reads, ttft, sent in zip(
        table["session"], table["read_at"], table["ttft"], table["sent_at"], strict=True
    ):
        assert ttft is None or ttft == pytest.approx((reads[0] - sent) / 1e9), session


def test_what_was_sent_has_its_delay_also_where_it_failed() -> None:
    table = records().to_arrow()
    expected = request_values("send_delay", Answers.of(records()))
    assert table.column("send_delay").to_pylist() == pytest.approx(expected.tolist())


def test_other_libraries_are_asked_for_kindly(simulated: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert simulated.records is not None
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(InferometerError, match=f"need {library}") as told:
            getattr(simulated.records, f"to_{library}")()
        assert told.value.hint == f"pip install {library}"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_the_table_in_other_libraries(simulated: Run, library: str) -> None:
    pytest.importorskip(library)
    assert simulated.records is not None
    frame = getattr(simulated.records, f"to_{library}")()
    assert len(frame) == len(simulated.records)
    assert frame["ttft"].mean() == pytest.approx(simulated.summary.measures["ttft"].mean)


# -- several runs ----------------------------------------------------------------------------------------------------


def test_runs_that_are_not_kept_can_be_compared(simulated: Run) -> None:
    other = inferometer.simulate(**SHORT)
    assert inferometer.compare(simulated, other).status in ("same", "unclear")


def test_runs_that_are_not_kept_can_be_neither_checked_nor_reported(simulated: Run, tmp_path: Path) -> None:
    for ask in (inferometer.check, inferometer.report):
        with pytest.raises(StoreError, match="is not stored"):
            ask(simulated, store=tmp_path)
