"""Every fault of the simulator has its outcome, and the run continues."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from inferometer.errors import PlanError
from inferometer.load.shard import ShardJob, ShardReport, run_shard
from inferometer.plan.model import Plan
from inferometer.record.log import read_log
from inferometer.record.record import Record
from inferometer.simulator.settings import HEADER, NAMES, ON_THE_WIRE
from inferometer.simulator.virtual import rehearse, simulated_run

TOKENS = 8


@dataclass
class Outcome:
    faulty: list[Record]
    fine: list[Record]
    report: ShardReport


@pytest.fixture
def faulty(simulator: str, tmp_path: Path):
    """Three requests with a fault one after the other, and some without beside them."""

    def run(fault: str, **target):
        plan = Plan(
            target={"url": simulator} | target,
            traffic=[
                {"name": "faulty", "headers": {HEADER: fault}, "stop": {"requests": 3}},
                {"name": "fine", "stop": {"requests": 8}},
            ],
            load={"concurrency": 1},
            workload={"input_tokens": 4, "output_tokens": TOKENS},
            save={"answers": True},
        )
        log = tmp_path / "log"
        report = run_shard(ShardJob(plan.model_dump(mode="json"), str(log), "nonce", "simulated-8b"))
        found = read_log(log)
        assert not found.truncated
        assert found.notes[-1].what == "ended"
        records = {name: [each for each in found.records if each.traffic == name] for name in ("faulty", "fine")}
        assert {name: len(each) for name, each in records.items()} == {"faulty": 3, "fine": 8}
        assert {each.outcome for each in records["fine"]} == {"ok"}
        assert {each.output_tokens for each in records["fine"]} == {TOKENS}
        return Outcome(records["faulty"], records["fine"], report)

    return run


def tokens(record):
    return np.frombuffer(record.read_tokens, np.int64).tolist()


def instants(record):
    return np.frombuffer(record.read_at, np.int64)


def test_every_fault_is_tried_here() -> None:
    source = open(__file__, encoding="utf-8").read()  # noqa: SIM115, PTH123
    assert all(f'"{name}' in source for name in NAMES)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_status(faulty, status: int):
    for record in faulty(f"status={status}").faulty:
        assert (record.outcome, record.status, record.error) == ("status", status, "simulated fault")
        assert record.headers_at is not None
        assert tokens(record) == []


def test_retry_after_is_noted_and_not_obeyed(faulty):
    outcome = faulty("status=429, " + "retry-after=30s")
    assert [record.retry_after_s for record in outcome.faulty] == [30] * 3
    assert outcome.report.ended_at - outcome.report.start_at < 20 * 10**9


def test_slow_headers(faulty):
    for record in faulty("slow-headers=60ms").faulty:
        assert record.outcome == "ok"
        assert record.headers_at - record.sent_at >= 60_000_000


def test_slow_headers_beyond_the_time_limit(faulty):
    for record in faulty("slow-headers=5s", timeout={"request": "0.3s"}).faulty:
        assert (record.outcome, record.error) == ("timeout", "no complete answer within 0.3 s")
        assert record.headers_at is None


def test_a_stall(faulty):
    for record in faulty("stall=60ms").faulty:
        assert record.outcome == "ok"
        assert sum(tokens(record)) == TOKENS
        assert np.diff(instants(record)).max() >= 55_000_000


def test_a_stall_beyond_the_limit_of_silence(faulty):
    for record in faulty("stall=5s", timeout={"idle": "0.3s"}).faulty:
        assert (record.outcome, record.error) == ("timeout", "silent for 0.3 s")
        assert 0 < sum(tokens(record)) < TOKENS


@pytest.mark.parametrize("after", [0, 3])
def test_a_cut_stream(faulty, after: int):
    for record in faulty(f"cut={after}").faulty:
        assert (record.outcome, record.error) == ("cut", "the server closed the connection")
        assert sum(tokens(record)) == after
        assert record.output_tokens in (None, after)
        assert record.status == 200


def test_a_cut_answer_in_one_piece(faulty):
    for record in faulty("cut=3", stream=False).faulty:
        assert record.outcome == "connect", "closed before the response began"


def test_several_tokens_per_chunk(faulty):
    for record in faulty("tokens-per-chunk=3").faulty:
        assert (record.outcome, sum(tokens(record))) == ("ok", TOKENS)
        assert max(tokens(record)) >= 3
        assert record.tokens_by == "running usage"


@pytest.mark.parametrize("fault", ["split-utf8", "split-line"])
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_chunks_in_two_reads(faulty, fault: str, api: str):
    outcome = faulty(fault, api=api)
    for record in outcome.faulty:
        assert (record.outcome, sum(tokens(record)), record.output_tokens) == ("ok", TOKENS, TOKENS)
        assert "\ufffd" not in record.answer
        assert len(record.answer) > TOKENS


def test_no_usage(faulty):
    for record in faulty("no-usage").faulty:
        assert (record.outcome, record.output_tokens, record.tokens_by) == ("ok", None, "events")
        assert (record.counted_tokens, sum(tokens(record))) == (TOKENS, TOKENS)


@pytest.mark.parametrize("fault", ["no-done", "role-only"])
def test_harmless_ones(faulty, fault: str):
    for record in faulty(fault).faulty:
        assert (record.outcome, sum(tokens(record)), record.finish_reason) == ("ok", TOKENS, "length")


def test_a_role_is_no_token(faulty):
    for record in faulty("role-only, slow-headers=1ms", api="chat").faulty:
        assert record.events >= TOKENS + 2
        assert len(tokens(record)) <= TOKENS
        assert record.visible_at == instants(record)[0]


def test_closed_after_a_complete_answer(faulty):
    outcome = faulty("close-after")
    assert {record.outcome for record in outcome.faulty} == {"ok"}
    assert outcome.report.connections >= 3


def test_closed_instead_of_answering(faulty):
    """Whether the connection was new or kept alive: then it was tried twice, and that is kept."""
    for record in faulty("close-before").faulty:
        assert (record.outcome, record.error) == ("connect", "the server closed the connection")
        assert record.status is None


def test_closed_at_the_next_request(faulty):
    """Whoever comes next on the connection is sent once more, and nobody fails."""
    outcome = faulty("close-next")
    assert {record.outcome for record in outcome.faulty} == {"ok"}
    again = [record for record in outcome.faulty + outcome.fine if record.retry_ns]
    assert len(again) >= 2
    for record in again:
        assert record.ready_at + record.retry_ns <= record.sent_at
        assert record.connect_ns > 0


# -- the same faults in virtual time -------------------------------------------------------------------------------

VIRTUAL = {name: name for name in NAMES if name not in ON_THE_WIRE} | {
    "retry-after": "status=429, retry-after=2s",
    "cut": "cut=3",
    "cut at once": "cut=0",
    "cut behind the end": "cut=99",
    "cut in chunks": "cut=3, tokens-per-chunk=2",
    "stall": "stall=40ms",
    "slow-headers": "slow-headers=40ms",
    "chunks without usage": "tokens-per-chunk=3, no-usage",
    "a stall of the last chunk": "stall=40ms, tokens-per-chunk=8",
}
COMPARED = (
    "outcome",
    "status",
    "error",
    "retry_after_s",
    "finish_reason",
    "input_tokens",
    "output_tokens",
    "tokens_by",
)


def seen(record: Record) -> dict[str, object]:
    """What a fault changes, without instants."""
    found: dict[str, object] = {name: getattr(record, name) for name in COMPARED}
    return found | {"tokens": sum(tokens(record))}


@pytest.mark.parametrize("name", VIRTUAL)
def test_virtual_time_has_the_same_faults(faulty, name):
    fault = VIRTUAL[name]
    real = faulty(fault).faulty[0]
    plan = Plan(
        target={"headers": {HEADER: fault}},
        server={"type": "simulator", "args": {"frontend": 0, "step_time": {"base": 0.001}}},
        load={"concurrency": 1},
        stop={"requests": 3},
        workload={"input_tokens": 4, "output_tokens": TOKENS},
    )
    records, _ = rehearse(plan)
    virtual = records.record(0)
    assert seen(virtual) == seen(real)
    for begin, end in (("sent_at", "headers_at"), ("sent_at", "ended_at")):
        took = {at: getattr(record, end) - getattr(record, begin) for at, record in (("r", real), ("v", virtual))}
        assert took["v"] < 40e6 or took["r"] >= 40e6, (begin, end, took)  # a busy machine may be later still
    gaps = [np.diff(instants(record)).max(initial=0) >= 39e6 for record in (real, virtual)]
    assert gaps[0] or not gaps[1]


@pytest.mark.parametrize("name", ON_THE_WIRE)
def test_what_virtual_time_cannot_have_is_refused_by_name(name):
    for plan in (
        Plan(server={"type": "simulator", "args": {"faults": {"shares": {f"stall=1s, {name}": 0.1}}}}, stop=3),
        Plan(target={"headers": {HEADER: name}}, stop=3),
    ):
        with pytest.raises(
            PlanError, match=f"{name} is a fault of {ON_THE_WIRE[name]}, which does not exist in virtual time"
        ):
            simulated_run(plan)


def test_shares_of_faults_happen_in_virtual_time() -> None:
    shares = {"status=503": 0.2, "cut=2": 0.1, "slow-headers=50ms": 0.1}
    args = {"frontend": 0, "faults": {"shares": shares, "seed": 3}}
    made = simulated_run(Plan(server={"type": "simulator", "args": args}, load={"rate": 50}, stop={"requests": 1000}))
    counts = made.summary.outcomes
    assert counts["ok"] + counts["status_503"] + counts["cut"] == 1000
    assert 150 < counts["status_503"] < 250 and 60 < counts["cut"] < 140
    records = made.records
    slow = (records.headers_at - records.sent_at)[records.outcome.mask("ok")] >= 50e6
    assert 60 < int(slow.sum()) < 140


def test_a_time_limit_ends_what_a_fault_delays() -> None:
    args = {"faults": {"shares": {"stall=5s": 1.0}}}
    target = {"timeout": {"request": 2}}
    plan = Plan(
        server={"type": "simulator", "args": args}, target=target, load={"concurrency": 2}, stop={"requests": 4}
    )
    records, _ = rehearse(plan)
    assert records.outcome.counts() == {"timeout": 4}
    assert {int(each) for each in records.ended_at - records.sent_at} == {2_000_000_000}


def test_a_hopeless_plan_is_given_up_in_virtual_time() -> None:
    args = {"faults": {"shares": {"status=503": 1.0}}}
    made = simulated_run(Plan(server={"type": "simulator", "args": args}, load={"rate": 50}, stop={"requests": 1000}))
    assert made.state == "failed"
    assert made.summary.outcomes["status_503"] == 100
    stopped = simulated_run(Plan(server={"type": "simulator", "args": args}, stop={"requests": 1000, "errors": 7}))
    assert (stopped.state, stopped.summary.outcomes["status_503"]) == ("failed", 7)
