"""Live answers are put into later turns: in the drive loop, in virtual time."""

import json
from itertools import count
from pathlib import Path

import pytest

from inferometer.load.answer import new_record
from inferometer.load.arrivals import Pace
from inferometer.load.clock import VirtualClock
from inferometer.load.drive import Drive
from inferometer.plan.reading import plan_from
from inferometer.workload.session import WorkloadContext, workload_of


class Echo:
    """A transport that answers every request at once with the number of the turn, and keeps what was sent."""

    def __init__(self, clock):
        self.sent = []
        self._clock = clock

    def prepare(self, request, traffic, session):
        return 0

    def send(self, request, ticket, ended, done):
        self.sent.append((ticket.session, ticket.turn, json.loads(json.dumps(request.prompt))))

        def over() -> None:
            record = new_record(ticket)
            record.outcome = "ok"
            done(record, f"live {ticket.turn}")
            ended(self._clock.now())

        self._clock.call_at(self._clock.now() + 1000, over)
        return lambda _outcome: None


def sent_by(tmp_path: Path, monkeypatch, rows, **settings):
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    spec = plan_from({"workload": {"path": str(path), "shuffle": False, **settings}}).workload
    workload = workload_of(spec, 0, 0, "", WorkloadContext(api="chat"))
    clock = VirtualClock()
    echo = Echo(clock)
    pace = Pace(arrivals=None, indices=count(), slots=((0, 1, 0),), sessions=len(rows))
    drive = Drive("default", workload, pace, clock, echo, lambda _record: None)
    drive.start(0)
    clock.run()
    assert drive.over
    return echo.sent


def texts(prompt):
    return [message["content"] for message in prompt]


CHAT = {"conversations": [{"from": ("human", "gpt")[at % 2], "value": text} for at, text in enumerate("abcdef")]}


@pytest.mark.parametrize(("answers", "said"), [("recorded", ["b", "d"]), ("live", ["live 0", "live 1"])])
def test_later_turns_hold_all_answers_of_the_asked_kind(tmp_path: Path, monkeypatch, answers: str, said):
    sent = sent_by(tmp_path, monkeypatch, [CHAT, CHAT], type="sharegpt", turns="conversation", answers=answers)
    assert [(session, turn) for session, turn, _ in sent] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    for first, second, third in (sent[:3], sent[3:]):
        assert first[2] == "a"
        assert texts(second[2]) == ["a", said[0], "c"]
        assert texts(third[2]) == ["a", said[0], "c", said[1], "e"]


def test_mt_bench_asks_its_second_question_after_the_live_answer(tmp_path: Path, monkeypatch):
    sent = sent_by(tmp_path, monkeypatch, [{"question_id": 1, "turns": ["a", "b"]}], type="mt_bench")
    assert texts(sent[1][2]) == ["a", "live 0", "b"]


def test_a_recorded_tool_call_stays_for_its_observation(tmp_path: Path, monkeypatch):
    call = {"from": "function_call", "value": '{"name": "now", "arguments": {}}'}
    said = [("human", "a"), None, ("observation", "ten"), ("gpt", "it is ten"), ("human", "b")]
    row = {"conversations": [call if each is None else {"from": each[0], "value": each[1]} for each in said]}
    sent = sent_by(tmp_path, monkeypatch, [row], type="sharegpt", turns="conversation", answers="live")
    assert texts(sent[1][2]) == ["a", None, "ten"] and sent[1][2][1]["tool_calls"][0]["function"]["name"] == "now"
    assert texts(sent[2][2]) == ["a", None, "ten", "live 1", "b"]
