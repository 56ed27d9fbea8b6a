"""Sessions of agents from OpenTelemetry traces, and their graphs run in virtual time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inferometer.errors import DataError
from inferometer.load.answer import new_record
from inferometer.load.arrivals import pace_of
from inferometer.load.clock import Ticket, VirtualClock
from inferometer.load.drive import Drive
from inferometer.plan.reading import plan_from
from inferometer.record.record import Outcome, Record
from inferometer.workload.session import Request, workload_of


def span(name: str, start: float, end: float, messages: list[dict[str, str]], answer: str) -> dict[str, Any]:
    return {
        "name": f"chat {name}",
        "start_time": f"2026-02-25T10:00:{start:09.6f}",
        "end_time": f"2026-02-25T10:00:{end:09.6f}",
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.output.text": answer,
            "gen_ai.usage.output_tokens": 7,
        },
        "status": {"code": 1},
    }


def asked(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


SPANS = [
    span("plan", 0, 1, [asked("plan")], "a plan"),
    span("left", 1.5, 3, [asked("left")], "left done"),
    span("right", 1.5, 4, [asked("right")], "right done"),
    span("join", 5, 6, [asked("join"), said("left done"), said("right done")], "joined"),
]


def traced(folder: Path) -> dict[str, Any]:
    (folder / "trace.json").write_text(json.dumps({"trace_id": "t", "spans": SPANS}))
    return {"type": "otel", "path": str(folder)}


def test_calls_wait_for_those_whose_answers_they_hold(tmp_path: Path) -> None:
    spec = plan_from({"workload": traced(tmp_path), "target": {"api": "chat"}}).workload
    session = workload_of(spec, 0, 0, "n")(0)
    assert [turn.after for turn in session.turns] == [(), (0,), (0,), (1, 2)]
    assert [turn.think_s for turn in session.turns] == [0.0, 0.5, 0.5, 1.0]
    assert [turn.output_tokens for turn in session.turns] == [7, 7, 7, 7]


def test_only_calls_whose_recorded_answer_calls_a_tool_must_call_it_again(tmp_path: Path) -> None:
    tools: list[dict[str, Any]] = [{"type": "function", "name": name, "parameters": {}} for name in ("search", "write")]
    spans = [span(str(at), at, at + 0.5, [asked("find")], "") for at in range(3)]
    for one, names in zip(spans, (["search"], ["search", "write"], []), strict=True):
        parts = [{"type": "tool_call", "id": "1", "name": name, "arguments": {}} for name in names]
        answer = [{"role": "assistant", "parts": parts or [{"type": "text", "content": "found"}]}]
        one["attributes"]["gen_ai.tool.definitions"] = json.dumps(tools)
        one["attributes"]["gen_ai.output.messages"] = json.dumps(answer)
    (tmp_path / "trace.json").write_text(json.dumps({"trace_id": "t", "spans": spans}))
    turns = workload_of(plan_from({"workload": {"type": "otel", "path": str(tmp_path)}}).workload, 0, 0, "n")(0).turns
    assert [turn.output_tokens for turn in turns] == [4096, 4096, 7]
    one = {"type": "function", "function": {"name": "search"}}
    assert [(turn.body.get("tool_choice"), turn.body.get("ignore_eos")) for turn in turns] == [
        (one, False),
        ("required", False),
        (None, None),
    ]


def test_what_is_no_trace_is_refused_or_skipped(tmp_path: Path) -> None:
    spec = traced(tmp_path)
    (tmp_path / "other.json").write_text("{}")
    assert len(workload_of(plan_from({"workload": spec}).workload, 0, 0, "n")) == 1  # type: ignore[arg-type]
    with pytest.raises(DataError, match="is not a trace of GenAI spans"):
        workload_of(plan_from({"workload": {**spec, "unusable": "refuse"}}).workload, 0, 0, "n")


class Answering:
    """Every request takes a second and is answered with its number."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.sent: list[tuple[float, list[Any]]] = []

    def prepare(self, _request: Request, _traffic: str, _session: int) -> int:
        return 0

    def send(
        self, request: Request, ticket: Ticket, ended: Callable[[int], None], done: Callable[[Record, str], None]
    ) -> Callable[[Outcome], None]:
        self.sent.append((self.clock.now() / 1e9, [dict(message) for message in request.prompt]))  # type: ignore[arg-type]
        number = len(self.sent)

        def over() -> None:
            record = new_record(ticket)
            record.outcome = "ok"
            done(record, f"live {number}")
            ended(self.clock.now())

        self.clock.call_at(self.clock.now() + 1_000_000_000, over)
        return lambda _outcome: None


def test_branches_run_at_once_and_their_answers_go_where_they_belong(tmp_path: Path) -> None:
    load = {"type": "concurrency", "concurrency": 1, "sessions_at_once": 1}
    plan = plan_from({"workload": traced(tmp_path), "target": {"api": "chat"}, "load": load})
    clock = VirtualClock()
    transport = Answering(clock)
    workload = workload_of(plan.workload, 0, 0, "n")
    kept: list[Record] = []
    drive = Drive("default", workload, pace_of(plan, 0, workload=workload), clock, transport, kept.append)
    drive.start(0)
    clock.run()
    assert drive.over and len(kept) == 4
    assert [at for at, _ in transport.sent] == [0.0, 1.5, 1.5, 3.5]
    assert [message["content"] for message in transport.sent[3][1]] == ["join", "live 2", "live 3"]
