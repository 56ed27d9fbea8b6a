"""The short form of `make chaos`: a seeded sample of every kind of attack on the real command line."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("chaos watches processes through /proc", allow_module_level=True)

from chaos import runner
from chaos.__main__ import main
from chaos.commands import Ground
from chaos.dialects import DIALECTS
from chaos.hostile import Attack
from chaos.runner import KINDS, run_kind
from chaos.servers import attempt, longest_piece_s, watched
from chaos.trial import Tally, Trial, table

SEED = 15
MOST = {"servers": 3, "kills": 1, "stores": 1, "answers": 1, "inputs": 1}  # `make chaos` tries more


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path)
    yield ground
    ground.stop.set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_attacks_breaks_no_promise(kind: str, ground: Ground) -> None:
    tally = run_kind(kind, ground, 120, SEED, most=MOST[kind])
    assert [f"{trial.name}: {fault}" for trial in tally.broken for fault in trial.faults] == []
    assert tally.sum("tried") >= MOST[kind]


def test_the_judge_sees_an_outcome_that_should_not_be_and_nothing_else(ground: Ground) -> None:
    wrong = Attack("a right answer", lambda caller: caller.send(caller.good()), frozenset({"bad"}), tokens=5)
    [fault] = attempt(ground, wrong, DIALECTS["completions"], True, "compiled").faults
    assert "ended as 3 ok, expected bad" in fault


def test_the_table_counts_what_was_tried_and_lost() -> None:
    tally = Tally("kills", [Trial("one", peak_rss_mb=90), Trial("two", ["gone"], tried=5, lost=3, peak_rss_mb=120)])
    assert table([tally]).splitlines()[-1] == "| kills | 6 | 0 | 0 | 3 | 0 | 120 MB | – | – | 1 |"
    tally.trials += [Trial("three", overrun_s=0.04), Trial("four", overrun_s=0.31, piece_s=0.2)]
    assert "| 120 MB | 0.31 s | 0.20 s | 1 |" in table([tally])


def test_work_without_a_look_at_time_limits_is_seen(tmp_path: Path) -> None:
    """In the process that does it, by its own processor time."""
    script = (
        "import time; from inferometer.wire.reactor import Reactor, now; reactor = Reactor()\n"
        "def work():\n"
        "    until = time.thread_time() + 0.05\n"
        "    while time.thread_time() < until: pass\n"
        "reactor.call_at(now(), work); reactor.call_at(now() + 1, reactor.stop); reactor.run(); reactor.work_on()"
    )
    subprocess.run([sys.executable, "-c", script], env=os.environ | watched(tmp_path / "pieces"), check=True)
    piece_s = longest_piece_s(tmp_path / "pieces")
    assert 0.05 <= piece_s < 10
    trial = Trial("long")
    trial.judge_piece(piece_s)
    assert not trial.faults
    trial.judge_piece(1.5)
    assert trial.faults


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_kind_has_its_first_attempts_when_the_time_is_up(ground: Ground, monkeypatch, at_once: int) -> None:
    made = iter([partial(Trial, f"attempt {number}") for number in range(9)])
    monkeypatch.setattr(runner, "attempts_of", lambda kind: lambda ground, seed: made)
    assert len(run_kind("stores", ground, 0, SEED, at_once=at_once).trials) == at_once


def test_an_unknown_kind_is_wrong_use() -> None:
    assert main(["--only", "weather"]) == 2
