"""`inferometer ab` over loopback: two live simulators, and two that are started."""

import json
from pathlib import Path

import pytest

from inferometer.cli import execute
from inferometer.conduct.ab import Design, ab
from inferometer.errors import TargetError
from inferometer.plan.reading import plan_from
from inferometer.store.experiments import AbResult, experiments_of
from inferometer.store.store import open_store
from measured import assert_ran

STEPS = {"base": 0.04, "prefill_token": 0, "decode_sequence": 0}  # slow, so that a busy machine's lateness is small


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """One for all, so that the instrument is calibrated once."""
    return tmp_path_factory.mktemp("store")


def plan(url, **said):
    asked = {"load": {"concurrency": 4}, "workload": {"input_tokens": 16, "output_tokens": 4}}
    return plan_from({**asked, "target": {"url": url}, "observe": {"gpu": "off"}, **said})


def server(speed):
    return f"server:{json.dumps({'type': 'simulator', 'args': {'frontend': 0, 'step_time': STEPS, 'speed': speed}})}"


def test_a_server_of_a_quarter_of_the_steps_is_better(store: Path, capsys):
    """Both started by the command, and running side by side. Steps of 160 and 40 ms: three pairs of blocks show that
    even where a busy machine makes single blocks half as slow again."""
    words = ["ab", "--a", server(0.25), "--b", server(1), "--blocks", "3", "--block", "800ms", "--concurrency", "4"]
    words += ["--output-tokens", "4", "--measure", "tpot.mean,e2e.p50", "--json", "--set", "observe.gpu=off"]
    code = execute([*words, "--store", str(store)])
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert_ran(code, said.err)
    assert document["status"] == "better", document
    changes = {each["key"]: each for each in document["changes"]}
    assert changes["tpot.mean"]["status"] == "better" and changes["tpot.mean"]["change"] < -0.2
    assert "pair 3 of 3  b  TTFT" in said.err
    _is_kept(store, document)


def _is_kept(store, document):
    kept = experiments_of(store)[0]
    assert isinstance(kept.result, AbResult)
    assert (kept.kind, kept.id) == ("ab", document["id"]) and kept.result.status == "better"
    assert "".join(str(case.parameters["side"]) for case in kept.cases) == "abbaab"
    runs = [open_store(store).load(case.run) for case in kept.cases]
    assert [run.plan.get("seed", 0) for run in runs] == [0, 0, 1, 1, 2, 2]
    assert runs[0].environment.nonce == runs[1].environment.nonce != runs[2].environment.nonce


def test_equal_servers_are_not_called_different(start_simulator, store: Path):
    """At a level of 0.1%, so that luck does not fail it once in twenty."""
    with start_simulator(frontend=0, step_time=STEPS) as a, start_simulator(frontend=0, step_time=STEPS) as b:
        design = Design(3, 0.8, measures=("tpot.mean", "e2e.p50"), alpha=0.001)
        found = ab(plan(a), plan(b), design, store=store)
    assert found.comparison.status in ("same", "unclear") and found.comparison.design == "paired tapes"


def test_a_second_server_that_does_not_fit_is_said(store: Path) -> None:
    a = plan_from({"server": {"type": "simulator"}})
    b = plan_from({"server": {"type": "command", "command": ["false", "{port}"]}})
    with pytest.raises(TargetError, match=r"starting b while a runs: .*exit status 1") as error:
        ab(a, b, Design(3, 1.0), store=store)
    assert "both servers run at the same time" in error.value.hint


def test_wrong_use(store: Path, capsys):
    code = execute(["ab", "--a", "http://127.0.0.1:1", "--b", "http://127.0.0.1:2", "--duration", "5s"])
    assert code == 2 and "--block" in capsys.readouterr().err
    code = execute(["ab", "--a", "http://127.0.0.1:1", "--b", "http://127.0.0.1:2", "--block", "soon"])
    assert code == 2 and "not a duration" in capsys.readouterr().err
