"""A whole shard with the simulator: the content of its log, however the shard ends."""

import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from loops import Loop

from inferometer.load.clock import Ticket
from inferometer.load.drive import HOPELESS
from inferometer.load.facts import facts_of
from inferometer.load.shard import ShardJob, ShardReport, run_shard
from inferometer.load.transport import HttpTransport
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.log import read_log
from inferometer.record.record import Record
from inferometer.wire import api as wire_api
from inferometer.wire import http1
from inferometer.wire.reactor import Reactor, now
from inferometer.wire.server import HttpServer
from inferometer.wire.sockets import ClockPair, kernel_stamps
from inferometer.workload.session import Request

CHILD = """
import sys, msgspec
from inferometer.errors import InferometerError
from inferometer.load.shard import ShardJob, run_shard
job = msgspec.json.decode(sys.stdin.readline(), type=ShardJob)
tell = lambda progress: print(progress.phase, progress.done, progress.in_flight, flush=True)
try:
    report = run_shard(job, tell)
except InferometerError as error:
    sys.exit(f"{type(error).__name__}: {error.message}")
print(msgspec.json.encode(report).decode(), flush=True)
"""


def job_of(folder, url, shard=0, shards=1, **settings):
    target = {"url": url} | settings.pop("target", {})
    plan = {"workload": {"input_tokens": 4, "output_tokens": 4}} | settings
    document = Plan(target=target, **plan).model_dump(mode="json")
    return ShardJob(document, str(folder / f"{shard}.log"), "nonce", "simulated-8b", shard=shard, shards=shards)


def log_of(folder, shard=0):
    return read_log(folder / f"{shard}.log")


@contextmanager
def child(job, **options):
    """The shard in a process of its own, so that it can be interrupted and killed."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
    ) as process:
        process.stdin.write(msgspec.json.encode(job).decode() + "\n")
        process.stdin.flush()
        try:
            yield process
        finally:
            process.kill()


def await_done(process, count):
    """Reads its progress until so many requests are done."""
    for line in process.stdout:
        phase, done, _ = line.split()
        if phase == "load" and int(done) >= count:
            return
    pytest.fail("the shard ended early")


def report_of(process):
    rest = process.stdout.read().splitlines()
    assert process.wait(20) == 0
    return msgspec.json.decode(rest[-1], type=ShardReport)


@contextmanager
def pages(body):
    """A web server on a thread that knows one page."""

    def serve() -> None:
        with closing(Reactor()) as reactor:
            page = {"content-type": "text/html"}
            with closing(HttpServer(reactor, lambda _request, reply: reply.respond(200, body, page))) as server:
                inbox, outbox = socket.socketpair()
                with inbox, outbox:
                    reactor.watch(inbox.fileno(), lambda _events: reactor.stop())
                    started.put((server.port, outbox))
                    reactor.run()
                    reactor.unwatch(inbox.fileno())

    started = queue.Queue()  # type: ignore[var-annotated]
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    port, outbox = started.get(timeout=10)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        outbox.send(b"!")
        thread.join(10)


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_all_records_and_a_word_of_the_end(simulator: str, tmp_path: Path) -> None:
    seen: list[Any] = []
    job = job_of(tmp_path, simulator, load={"type": "poisson", "rate": 300}, stop={"requests": 90})
    report = run_shard(job, seen.append)
    log = log_of(tmp_path)
    assert sorted(record.session for record in log.records) == list(range(90))
    assert {record.outcome for record in log.records} == {"ok"}
    assert {record.output_tokens for record in log.records} == {4}
    assert [note.what for note in log.notes] == ["start", "ended"]
    assert log.notes[0].at == report.start_at
    assert log.notes[0].facts["nonce"] == "nonce"
    for record in log.records:
        assert record.scheduled_at <= record.ready_at <= record.sent_at < record.headers_at <= record.ended_at
        assert record.replica == simulator
    assert [progress.phase for progress in seen if progress.phase != "drain"][-1] == "done"
    assert seen[-1].done == 90
    facts = facts_of(Plan.model_validate(job.plan), Records.of(log.records), log.notes)
    assert (facts.start_at, facts.interrupted, facts.planned) == (report.start_at, False, {"default": 90})


def test_the_handler_of_interrupts_is_given_back(simulator: str, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    run_shard(job_of(tmp_path, simulator, load={"concurrency": 1}, stop={"requests": 1}))
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("stream", [True, False])
def test_apis(simulator: str, tmp_path: Path, api: str, stream: bool) -> None:
    target = {"api": api, "stream": stream}
    run_shard(job_of(tmp_path, simulator, target=target, load={"concurrency": 2}, stop={"requests": 4}))
    log = log_of(tmp_path)
    assert {(record.outcome, record.output_tokens, record.finish_reason) for record in log.records} == {
        ("ok", 4, "length")
    }
    assert {record.tokens_by for record in log.records} == {"running usage" if stream else "usage"}


def test_several_urls_take_turns(simulator: str, tmp_path: Path) -> None:
    urls = [simulator, simulator + "/"]
    run_shard(job_of(tmp_path, urls, load={"concurrency": 2}, stop={"requests": 10}))
    replicas = [record.replica for record in sorted(log_of(tmp_path).records, key=lambda record: record.session)]
    assert replicas == urls * 5


def test_a_shard_with_nothing_to_send_ends(simulator: str, tmp_path: Path) -> None:
    job = job_of(tmp_path, simulator, 3, 4, load={"type": "constant", "rate": 50}, stop={"requests": 2})
    report = run_shard(job)
    assert log_of(tmp_path, 3).records == []
    assert not report.interrupted
    assert [note.what for note in log_of(tmp_path, 3).notes] == ["start", "ended"]


def test_secrets_stay_out_of_the_log(simulator: str, tmp_path: Path, monkeypatch):
    """A server that repeats the key in its complaint, and a password in the address."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    url = simulator.replace("//", "//user:hunter22@")
    target = {"headers": {"x-simulate-fault": "sk-very-secret\tboo"}}
    run_shard(job_of(tmp_path, url, target=target, load={"concurrency": 1}, stop={"requests": 2}))
    data = (tmp_path / "0.log").read_bytes()
    assert b"very-secret" not in data
    assert b"hunter22" not in data
    for record in log_of(tmp_path).records:
        assert record.outcome == "status"
        assert "***" in record.error
        assert "\n" not in record.error


def test_errors_end_the_run(simulator: str, tmp_path: Path) -> None:
    target = {"headers": {"x-simulate-fault": "status=500"}}
    stop = {"errors": 5, "duration": 60}
    report = run_shard(job_of(tmp_path, simulator, target=target, load={"concurrency": 1}, stop=stop))
    log = log_of(tmp_path)
    assert report.gave_up.endswith("stop.errors is 5")
    assert sum(record.outcome == "status" for record in log.records) == 5
    assert [note.what for note in log.notes] == ["start", "gave up", "ended"]


def test_a_server_that_is_gone_is_given_up(tmp_path: Path) -> None:
    load = {"concurrency": 4}
    report = run_shard(job_of(tmp_path, f"http://127.0.0.1:{unused_port()}", load=load, stop={"duration": 60}))
    log = log_of(tmp_path)
    assert report.gave_up.startswith("all of the first")
    assert len(log.records) >= HOPELESS
    assert {record.outcome for record in log.records} <= {"connect", "cancelled"}
    assert log.records[0].error == "Connection refused"


@pytest.mark.parametrize(("status", "outcome"), [(None, "connect"), (500, "status"), (200, "bad")])
def test_answers_wait_for_a_quiet_moment_and_failures_do_not(loop: Loop, status: int | None, outcome: str) -> None:
    """Where everything fails there is none, and a run that is hopeless must be seen to be."""
    server = loop.serve(lambda _request, reply: reply.respond(status, b"{}"))
    plan = Plan(target={"url": f"http://127.0.0.1:{server.port if status else unused_port()}"})
    transport = HttpTransport(loop.reactor, plan, "m", ClockPair())
    ended, done = [], []  # type: ignore[var-annotated]
    ticket = Ticket(0, 0, 1, "default", 0, 0, now(), now())
    transport.send(Request("x"), ticket, ended.append, lambda record, _text: done.append(record.outcome))
    loop.until(lambda: ended)
    assert done == ([] if status == 200 else [outcome])
    transport.close()
    assert done == [outcome]


def test_a_server_of_something_else_is_given_up(tmp_path: Path) -> None:
    """It answers quicker than sessions are made; its answers are read all the same."""
    with pages(b"<html>hello</html>") as url:
        report = run_shard(job_of(tmp_path, url, load={"concurrency": 2}, stop={"duration": 60}))
    assert report.gave_up.startswith("all of the first")
    assert {record.outcome for record in log_of(tmp_path).records} <= {"bad", "cancelled"}


def test_the_drain_deadline(simulator: str, tmp_path: Path) -> None:
    target = {"headers": {"x-simulate-fault": "slow-headers=60s"}}
    stop = {"requests": 2, "drain": 0.05}
    report = run_shard(job_of(tmp_path, simulator, target=target, load={"concurrency": 2}, stop=stop))
    assert [record.outcome for record in log_of(tmp_path).records] == ["unfinished"] * 2
    assert report.ended_at - report.start_at < 20 * 10**9, "it begins when the last was sent"


def test_the_drain_deadline_with_requests_that_still_wait(simulator: str, tmp_path: Path) -> None:
    """What never got a slot is recorded too: scheduled, not sent."""
    target = {"headers": {"x-simulate-fault": "slow-headers=60s"}}
    load = {"type": "constant", "rate": 1000, "max_concurrency": 2}
    run_shard(job_of(tmp_path, simulator, target=target, load=load, stop={"requests": 6, "drain": 0.05}))
    records = log_of(tmp_path).records
    assert {record.outcome for record in records} == {"unfinished"}
    assert sorted(record.session for record in records) == list(range(6))
    assert sum(record.sent_at is None for record in records) == 4


def test_an_interrupt_drains_and_leaves_a_valid_log(simulator: str, tmp_path: Path) -> None:
    job = job_of(tmp_path, simulator, load={"concurrency": 4}, stop={"duration": 60})
    with child(job) as process:
        await_done(process, 20)
        process.send_signal(signal.SIGINT)
        report = report_of(process)
    log = log_of(tmp_path)
    assert report.interrupted
    assert {record.outcome for record in log.records} == {"ok"}, "what was under way finished"
    assert sorted(record.session for record in log.records) == list(range(len(log.records)))
    assert [note.what for note in log.notes] == ["start", "interrupted", "ended"]
    assert facts_of(Plan.model_validate(job.plan), Records.of(log.records), log.notes).interrupted


def test_two_interrupts_cancel_what_is_under_way(simulator: str, tmp_path: Path) -> None:
    target = {"headers": {"x-simulate-fault": "stall=60s"}}
    job = job_of(tmp_path, simulator, target=target, load={"concurrency": 4}, stop={"duration": 60})
    with child(job) as process:
        for line in process.stdout:
            if line.startswith("load 0 4"):
                break
        process.send_signal(signal.SIGINT)
        for line in process.stdout:
            if line.startswith("drain"):
                break
        process.send_signal(signal.SIGINT)
        report_of(process)
    log = log_of(tmp_path)
    assert [record.outcome for record in log.records] == ["cancelled"] * 4
    assert log.notes[-1].what == "ended"


def test_an_interrupt_while_connections_are_opened(tmp_path: Path) -> None:
    """A server that does not accept: the run ends at once, with a log."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        target = {"timeout": {"connect": "60s"}}
        job = job_of(tmp_path, url, target=target, load={"concurrency": 4}, stop={"requests": 4})
        with child(job) as process:
            assert process.stdout.readline().startswith("connect")
            process.send_signal(signal.SIGINT)
            report = report_of(process)
    assert report.interrupted
    assert log_of(tmp_path).records == []
    assert [note.what for note in log_of(tmp_path).notes] == ["interrupted", "ended"]


def test_killed_halfway_the_log_is_valid_as_far_as_it_goes(simulator: str, tmp_path: Path) -> None:
    job = job_of(tmp_path, simulator, load={"concurrency": 4}, stop={"duration": 60})
    with child(job) as process:
        await_done(process, 200)
        await_done(process, 400)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    log = log_of(tmp_path)
    assert log.records
    assert {record.outcome for record in log.records} == {"ok"}
    assert log.notes[0].what == "start"
    facts = facts_of(Plan.model_validate(job.plan), Records.of(log.records), log.notes)
    assert facts.interrupted


def test_a_full_disk_ends_the_run_and_keeps_what_is_written(simulator: str, tmp_path: Path) -> None:
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    job = job_of(tmp_path, simulator, load={"concurrency": 4}, stop={"duration": 60})
    with child(job, preexec_fn=little_room, stderr=subprocess.PIPE) as process:
        said = process.stderr.read()
        assert process.wait(20) == 1
    assert said.startswith("StoreError: ")
    assert "file too large" in said.lower()
    assert log_of(tmp_path).records


# -- answers in progress when the first one ends -----------------------------------------------------------------------


def test_the_events_of_the_first_answers_are_recognised(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """All began before a shape was known; only the first one is read event by event."""
    streams: list[Any] = []
    read_by_events: list[int] = []
    reading = wire_api.reading_events
    monkeypatch.setattr(
        "inferometer.load.answer.reading_events",
        lambda api, events, keep: read_by_events.append(len(events)) or reading(api, events, keep),
    )
    server = loop.serve(lambda _request, reply: streams.append(reply))
    transport = HttpTransport(loop.reactor, Plan(target={"url": f"http://127.0.0.1:{server.port}"}), "m", ClockPair())
    ended: list[int] = []
    records: list[Record] = []
    for _ in range(3):
        transport.send(Request("x"), ticket_of(), ended.append, lambda record, _text: records.append(record))
    loop.until(lambda: len(streams) == 3)
    for number, reply in enumerate(streams):
        reply.start()
        for _ in range(20):
            reply.write(b'data: {"id":"%d","choices":[{"text":"x","finish_reason":null}]}\n\n' % number)
        reply.write(b"data: [DONE]\n\n")
    streams[0].end()
    loop.until(lambda: ended)
    by_the_compiled_reader = transport.clients[0].shape >= 0
    for reply in streams[1:]:
        reply.end()
    loop.until(lambda: len(ended) == 3)
    transport.close()
    assert [(record.outcome, record.counted_tokens, record.events) for record in records] == [("ok", 20, 21)] * 3
    assert {record.request_id for record in records} == {"0", "1", "2"}
    assert len(read_by_events) == (1 if by_the_compiled_reader else 3)
    assert by_the_compiled_reader == (loop.reactor.attach is not None and kernel_stamps())


# -- answers that take long to read ------------------------------------------------------------------------------------

EVENT = b'data: {"choices":[{"text":"x"}]}\n\n'


@pytest.fixture(params=["of known length", "in chunks"])
def long_answers(loop: Loop, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> HttpTransport:
    """A transport to a server whose answers have 2,000 events, which are read two at a time."""
    monkeypatch.setattr(http1, "AT_ONCE", 2)

    def in_chunks(_request: Any, reply: Any) -> None:
        reply.start()
        for _ in range(2000):
            reply.write(EVENT)
        reply.end()

    def of_known_length(_request: Any, reply: Any) -> None:
        reply.respond(200, EVENT * 2000, {"content-type": "text/event-stream"})

    server = loop.serve(in_chunks if request.param == "in chunks" else of_known_length)
    return HttpTransport(loop.reactor, Plan(target={"url": f"http://127.0.0.1:{server.port}"}), "m", ClockPair())


def ticket_of(live: bool = False) -> Ticket:
    return Ticket(0, 0, 1, "default", 0, 0, now(), now(), live)


def test_what_is_due_is_done_while_a_next_turn_waits_for_a_long_answer(loop: Loop, long_answers: HttpTransport) -> None:
    ended: list[int] = []
    texts: list[str] = []
    due_before_the_end = 0

    def due() -> None:
        nonlocal due_before_the_end
        due_before_the_end += bool(long_answers._live)
        if not ended:
            loop.reactor.call_at(now(), due)

    long_answers.send(Request("x"), ticket_of(live=True), ended.append, lambda _record, text: texts.append(text))
    due()
    loop.until(lambda: ended)
    assert texts == ["x" * 2000]
    assert due_before_the_end > 100, "between the pieces, of which there are a thousand"
    long_answers.close()


def test_of_long_answers_that_next_turns_wait_for_one_piece_is_read_at_a_time(
    loop: Loop, long_answers: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a hundred of them ended at once each was begun before anything else had its turn."""
    ended: list[int] = []
    pieces = due = 0
    read = long_answers._read

    def counted(*arguments: Any) -> Any:
        nonlocal pieces
        reading = read(*arguments)
        while True:
            try:
                next(reading)
            except StopIteration as end:
                return end.value
            pieces += 1
            yield

    def is_due() -> None:
        nonlocal due
        due += bool(long_answers._live)
        loop.reactor.call_at(now(), is_due)

    monkeypatch.setattr(long_answers, "_read", counted)
    for _ in range(4):
        long_answers.send(Request("x"), ticket_of(live=True), ended.append, lambda _record, _text: None)
    is_due()
    loop.until(lambda: len(ended) == 4)
    assert 3000 < pieces < due + 100
    long_answers.close()


def test_answers_are_left_unread_where_everything_is_cancelled(loop: Loop, long_answers: HttpTransport) -> None:
    ended: list[int] = []
    records: list[Record] = []
    for _ in range(3):
        long_answers.send(Request("x"), ticket_of(), ended.append, lambda record, _text: records.append(record))
    loop.until(lambda: len(ended) == 3)
    assert not records
    long_answers.leave_unread()
    long_answers.close()
    assert {(record.outcome, record.error, record.status) for record in records} == {
        ("cancelled", "the answer came and was not read", 200)
    }
    assert all(record.bytes_received > 2000 * len(EVENT) for record in records)


def test_signals_are_heard_while_answers_are_read_at_the_end(loop: Loop, long_answers: HttpTransport) -> None:
    ended: list[int] = []
    heard: list[int] = []
    done: list[Record] = []
    undo = loop.reactor.on_signal(signal.SIGUSR2, lambda: heard.append(len(done)))
    long_answers.send(Request("x"), ticket_of(), ended.append, lambda record, _text: done.append(record))
    loop.until(lambda: ended)
    loop.reactor.idle = long_answers.read_one
    os.kill(os.getpid(), signal.SIGUSR2)
    pieces = 0
    while loop.reactor.work_on():
        pieces += 1
    undo()
    assert (heard, len(done)) == ([0], 1)
    assert pieces > 500
    long_answers.close()


def test_the_end_reads_what_a_next_turn_waited_for(loop: Loop, long_answers: HttpTransport) -> None:
    ended: list[int] = []
    outcomes: list[str | None] = []
    done = lambda record, _text: outcomes.append(record.outcome)  # noqa: E731
    long_answers.send(Request("x"), ticket_of(live=True), ended.append, done)
    loop.until(lambda: long_answers._live)
    long_answers.close()
    assert (len(ended), outcomes) == (1, ["ok"])


def test_of_a_long_answer_one_piece_is_read_where_many_answers_may_be(loop: Loop, long_answers: HttpTransport) -> None:
    ended: list[int] = []
    outcomes: list[str | None] = []
    for _ in range(2):
        long_answers.send(
            Request("x"), ticket_of(), ended.append, lambda record, _text: outcomes.append(record.outcome)
        )
    loop.until(lambda: len(ended) == 2)
    long_answers.read_some(25)
    assert not outcomes
    long_answers.close()
    assert outcomes == ["ok", "ok"]


def test_many_answers_are_read_while_there_is_time(
    loop: Loop, long_answers: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may be a document that takes 0.4 s."""
    monkeypatch.setattr(http1, "AT_ONCE", 1 << 20)  # an answer is one piece
    monkeypatch.setattr("inferometer.load.transport.FULL_READING_NS", -1)
    ended: list[int] = []
    outcomes: list[str | None] = []
    for _ in range(3):
        long_answers.send(
            Request("x"), ticket_of(), ended.append, lambda record, _text: outcomes.append(record.outcome)
        )
    loop.until(lambda: len(ended) == 3)
    long_answers.read_some(25)
    assert outcomes == ["ok"]
    long_answers.close()


def test_long_answers_that_nobody_has_time_to_read_are_refused(
    loop: Loop, long_answers: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of being read at once, while time limits pass."""
    monkeypatch.setattr("inferometer.load.transport.FULL_READING_NS", 0)
    long_answers._most_backlog = 3 * len(EVENT) * 2000
    long_answers.clients[0]._lessons = 0  # recognised events take no memory: all eight would fit
    ended: list[int] = []
    records: list[Record] = []
    for _ in range(8):
        long_answers.send(Request("x"), ticket_of(), ended.append, lambda record, _text: records.append(record))
    loop.until(lambda: len(ended) == 8)
    long_answers.close()
    read = [record for record in records if record.outcome == "ok"]
    refused = [record for record in records if record.outcome == "oversized"]
    assert (len(read), len(refused)) == (2, 6)
    assert {record.counted_tokens for record in read} == {2000}
    assert {record.error for record in refused} == {
        f"unread answers are larger in total than {long_answers._most_backlog:,} bytes"
    }
    assert {record.bytes_received for record in refused} == {record.bytes_received for record in read}
