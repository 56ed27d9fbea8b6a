"""The metronome sends the bytes of vLLM, each once, in its slot."""

import json
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.record.columns import Records
from inferometer.record.record import Record
from inferometer.simulator import metronome as module
from inferometer.simulator.metronome import Beat, Metronome
from inferometer.simulator.metronome_process import StreamRequest, Truth, chunk, compare, quantile_s, score
from inferometer.wire.server import HttpRequest


def unchunked(data: bytes) -> bytes:
    """The body of a chunked stream, checking the framing on the way."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        body += data[: int(size, 16)]
        assert data[int(size, 16) :].startswith(b"\r\n")
        data = data[int(size, 16) + 2 :]
    return body


def events(body: bytes) -> list[dict]:
    """The JSON events of a stream that ends with [DONE]."""
    *parts, done, rest = body.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(part.removeprefix(b"data: ")) for part in parts]


asked_of = st.builds(
    StreamRequest,
    api=st.sampled_from(["completions", "chat"]),
    tokens=st.integers(1, 120),
    prompt_tokens=st.integers(0, 20_000),
    usage=st.booleans(),
    running_usage=st.booleans(),
)


@given(asked_of, st.integers(0, 2**40))
def test_an_answer_is_one_event_per_token_and_ends_properly(asked: StreamRequest, number: int) -> None:
    answer = score(asked, number)
    sends = list(answer.payloads)
    assert len(sends) == asked.tokens
    body = unchunked(b"".join(sends))
    parsed = events(body)
    with_text = [event for event in parsed if event["choices"] and text_of(event)]
    assert len(with_text) == asked.tokens
    assert {event["id"] for event in parsed} == {answer.id}
    assert with_text[-1]["choices"][0]["finish_reason"] == "length"
    assert all(event["choices"][0]["finish_reason"] is None for event in with_text[:-1])
    if asked.usage:
        assert parsed[-1]["usage"]["completion_tokens"] == asked.tokens
    if asked.running_usage:
        assert [event["usage"]["completion_tokens"] for event in with_text] == list(range(1, asked.tokens + 1))


def text_of(event: dict) -> str:
    choice = event["choices"][0]
    return choice.get("text") or choice.get("delta", {}).get("content") or ""


def test_events_have_the_size_of_vllms() -> None:
    sends = list(score(StreamRequest("completions", 200, 256, True, True), 7).payloads)
    assert all(200 <= len(data) <= 350 for data in sends[:-1])
    assert len({len(data) for data in sends[:-1]}) == 1


def test_answers_have_ids_of_their_own() -> None:
    asked = StreamRequest("chat", 3, 1, False, False)
    assert len({score(asked, number).id for number in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"{", "not JSON"),
        (b"[]", "only streams"),
        (b'{"prompt":"a"}', "only streams"),
        (b'{"stream":true,"max_tokens":-1}', "max_tokens"),
        (b'{"stream":true,"max_tokens":"many"}', "max_tokens"),
    ],
)
def test_what_it_cannot_do_is_refused(body: bytes, complaint: str) -> None:
    asked = StreamRequest.of("/v1/completions", body)
    assert isinstance(asked, str)
    assert complaint in asked


@pytest.mark.parametrize(
    ("path", "prompt", "count"),
    [
        ("/v1/completions", {"prompt": "three short words"}, 3),
        ("/v1/completions", {"prompt": [5, 6, 7, 8]}, 4),
        ("/v1/completions", {}, 0),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "two words"}]}, 2),
    ],
)
def test_prompt_tokens_are_ids_or_words(path: str, prompt: dict, count: int) -> None:
    asked = StreamRequest.of(path, json.dumps({"stream": True, **prompt}).encode())
    assert isinstance(asked, StreamRequest)
    assert (asked.prompt_tokens, asked.tokens) == (count, 16)


# -- the wheel, on a clock that we turn ---------------------------------------------------------------------------


class Clock:
    """Time that jumps to the next timer."""

    def __init__(self) -> None:
        self.at = 10**12
        self.timers: list[tuple[int, Callable[[], None]]] = []

    def now(self) -> int:
        self.at += 1
        return self.at

    def call_at(self, at: int, action: Callable[[], None]) -> None:
        self.timers.append((at, action))

    def run(self) -> None:
        while self.timers:
            self.timers.sort(key=lambda timer: timer[0])
            at, action = self.timers.pop(0)
            self.at = max(self.at, at)
            action()


class Client:
    """The reply's end of a connection: takes what it is given, or only a part of it."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.got = b""
        self.room = room
        self.ended = False
        self.on_close: Callable[[], None] | None = None

    def send_now(self, data: bytes) -> int:
        if not self.room:
            raise BlockingIOError
        taken = min(len(data), self.room)
        self.room -= taken
        self.got += data[:taken]
        return taken

    def fileno(self) -> int:
        return -1

    def raw(self, data: bytes) -> None:
        self.got += data

    def end(self) -> None:
        self.ended = True

    def body(self) -> bytes:
        return unchunked(self.got.partition(b"\r\n\r\n")[2])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "now", made.now)
    return made


def ask(metronome: Metronome, client: Client, clock: Clock, tokens: int) -> None:
    body = json.dumps({"stream": True, "max_tokens": tokens}).encode()
    metronome.answer(HttpRequest("POST", "/v1/completions", "", {}, body, clock.now()), client)  # type: ignore[arg-type]


def test_tokens_come_at_the_beat(clock: Clock) -> None:
    metronome, client = Metronome(clock, Beat(50_000_000, 5_400_000)), Client()  # type: ignore[arg-type]
    ask(metronome, client, clock, 20)
    clock.run()
    truth = Truth.read(metronome.truth())
    assert client.ended
    assert len(events(client.body())) == 20
    first = truth.sent_at[0] - truth.received_at[0]
    assert 50_000_000 <= first < 50_000_000 + 2 * module.SLOT_NS
    gaps = np.diff(truth.sent_at)
    assert abs(gaps - 5_400_000).max() < 1000
    assert truth.lateness().max() < 1000


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 9_000_000), st.integers(1, 12)), min_size=1, max_size=25))
def test_every_stream_gets_all_its_tokens(requests: list[tuple[int, int]]) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "now", clock.now)
        metronome, clients = Metronome(clock, Beat(2_000_000, 1_000_000)), []  # type: ignore[arg-type]
        for wait, tokens in requests:
            client = Client()
            clients.append(client)
            at = clock.at + wait
            clock.call_at(at, lambda client=client, tokens=tokens: ask(metronome, client, clock, tokens))  # type: ignore[misc]
        clock.run()
        truth = Truth.read(metronome.truth())
    assert all(client.ended for client in clients)
    assert sorted(np.diff(truth.offsets)) == sorted(tokens for _, tokens in requests)
    assert sorted(len(events(client.body())) for client in clients) == sorted(tokens for _, tokens in requests)


@pytest.mark.parametrize("room", [0, 1, 100, 400, 1000])
def test_a_client_that_does_not_read_gets_its_bytes_in_order(clock: Clock, room: int) -> None:
    metronome, client = Metronome(clock, Beat(0, 1_000_000)), Client(room)  # type: ignore[arg-type]
    ask(metronome, client, clock, 10)
    clock.run()
    assert len(events(client.body())) == 10


def test_a_client_that_leaves_is_dropped_and_the_others_go_on(clock: Clock) -> None:
    metronome, gone, stays = Metronome(clock, Beat(0, 1_000_000)), Client(), Client()  # type: ignore[arg-type]
    ask(metronome, gone, clock, 1000)
    ask(metronome, stays, clock, 10)
    clock.call_at(clock.at + 3_500_000, lambda: gone.on_close and gone.on_close())
    clock.run()
    assert stays.ended and not gone.ended
    assert clock.at < 10**12 + 20_000_000  # not the 1000 ms of the one that left


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_a_client_that_leaves_during_its_last_event_ends_nothing_else(clock: Clock, tokens: int) -> None:
    """Its socket takes nothing any more, and what would wait for it finds the connection closed."""

    class Leaving(Client):
        def raw(self, data: bytes) -> None:
            super().raw(data)
            if b"DONE" in data and self.on_close:
                self.on_close()

    metronome, gone, stays = Metronome(clock, Beat(0, 1_000_000)), Leaving(0), Client()  # type: ignore[arg-type]
    ask(metronome, gone, clock, tokens)
    ask(metronome, stays, clock, 10)
    clock.run()
    assert stays.ended and len(events(stays.body())) == 10


def test_one_server_takes_requests_in_turn(clock: Clock) -> None:
    """M/D/1: three at once are done after one, two and three service times."""
    metronome = Metronome(clock, Beat(0, 1_000_000, service_ns=10_000_000))  # type: ignore[arg-type]
    for _ in range(3):
        ask(metronome, Client(), clock, 1)
    clock.run()
    truth = Truth.read(metronome.truth())
    done = (truth.sent_at - truth.received_at[0]) / 1e6
    assert [round(value) for value in done] == [10, 20, 30]


def test_a_held_up_send_is_logged_with_its_span(clock: Clock) -> None:
    class Sleepy(Client):
        def send_now(self, data: bytes) -> int:
            clock.at += 700_000
            return super().send_now(data)

    metronome = Metronome(clock, Beat(0, 5_000_000))  # type: ignore[arg-type]
    ask(metronome, Sleepy(), clock, 3)
    clock.run()
    truth = Truth.read(metronome.truth())
    assert (truth.took_ns >= 700_000).all()
    inside = truth.sent_at + 300_000
    assert (truth.since_sent(np.arange(3), inside) == 0).all()
    assert (truth.since_sent(np.arange(3), truth.sent_at - 5) == -5).all()


def test_truth_can_be_forgotten(clock: Clock) -> None:
    metronome = Metronome(clock, Beat(0, 1_000_000))  # type: ignore[arg-type]
    ask(metronome, Client(), clock, 2)
    clock.run()
    metronome.answer(HttpRequest("DELETE", "/truth", "", {}, b"", 0), Respondent())  # type: ignore[arg-type]
    assert Truth.read(metronome.truth()).ids == []


class Respondent(Client):
    def respond(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.status = status


def test_unknown_paths_are_said_to_be() -> None:
    reply = Respondent()
    Metronome(Clock(), Beat(0, 1)).answer(HttpRequest("GET", "/nowhere", "", {}, b"", 0), reply)  # type: ignore[arg-type]
    assert reply.status == 404


# -- comparing ----------------------------------------------------------------------------------------------------


def truth_of(sent: dict[str, list[int]]) -> Truth:
    counts = np.array([len(instants) for instants in sent.values()])
    flat = np.array([at for instants in sent.values() for at in instants], np.int64)
    first = np.array([instants[0] for instants in sent.values()], np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Truth(list(sent), first - 50, first, offsets, flat, np.zeros(len(flat), np.int64), 10)


def record(answer_id: str, at: list[int], tokens: list[int], slack: list[int]) -> Record:
    def pack(values: list[int]) -> bytes:
        return np.array(values, "<i8").tobytes()

    return Record(
        session=0, scheduled_at=0, sent_at=40, request_id=answer_id, read_at=pack(at), read_tokens=pack(tokens),
        read_slack=pack(slack),
    )  # fmt: skip


def test_reads_are_held_against_the_sends_of_their_tokens() -> None:
    truth = truth_of({"a": [100, 110, 120, 130], "b": [105, 115]})
    records = Records.of([record("b", [107, 118], [1, 1], [0, 0]), record("a", [101, 123, 131], [1, 2, 1], [0, 15, 0])])
    compared = compare(records, truth)
    assert compared.read_error.tolist() == [2, 3, 1, 3, 1]
    assert compared.oldest.tolist() == [2, 3, 1, 13, 1]
    assert compared.request_ttft.tolist() == [67, 61]
    assert compared.request_true_ttft.tolist() == [50, 50]
    assert compared.inside(2).tolist() == [True, False, True, True, True]
    assert compared.inside(3).all()
    assert compared.unmatched == 0


def test_a_merged_read_needs_slack_back_to_its_oldest_token() -> None:
    truth = truth_of({"a": [100, 110, 120]})
    merged = [record("a", [121], [3], [slack]) for slack in (0, 20, 21)]
    assert compare(Records.of(merged), truth).inside(0).tolist() == [False, False, True]


def test_a_read_before_its_send_is_not_inside() -> None:
    truth = truth_of({"a": [100]})
    assert not compare(Records.of([record("a", [90], [1], [1000])]), truth).inside(5).any()


def test_what_the_truth_does_not_know_is_counted_apart() -> None:
    truth = truth_of({"a": [100, 110]})
    strangers = [record("z", [101], [1], [0]), record("a", [101, 111, 121], [1, 1, 1], [0, 0, 0])]
    compared = compare(Records.of([*strangers, record("a", [101], [1], [0])]), truth)
    assert compared.unmatched == 2
    assert compared.read_error.tolist() == [1]


def test_lateness_is_against_the_deadlines() -> None:
    assert truth_of({"a": [100, 110, 121], "b": [105, 119]}).lateness().tolist() == [0, 0, 1, 0, 4]


def test_quantiles_are_order_statistics() -> None:
    values = np.arange(1, 101) * 1_000_000
    assert quantile_s(values, 0.5) == pytest.approx(0.050)
    assert quantile_s(values, 0.99) == pytest.approx(0.099)
    assert quantile_s(values[:0], 0.5) is None


def test_chunks_are_framed() -> None:
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
    assert all(a < b for a, b in pairwise([chunk(b""), chunk(b"a")]))


def test_a_metronome_that_is_late_leaves_no_event_out(clock: Clock) -> None:
    """Requests that were stamped before one another are read in another order, and all of them late."""
    metronome = Metronome(clock, Beat(1_000_000, 1_000_000))  # type: ignore[arg-type]
    clients = [Client() for _ in range(5)]
    body = json.dumps({"stream": True, "max_tokens": 3}).encode()
    stamps = [clock.at + offset for offset in (3_000_000, 0, 2_000_000, 0, 1_000_000)]
    for client, received_at in zip(clients, stamps, strict=True):
        metronome.answer(HttpRequest("POST", "/v1/completions", "", {}, body, received_at), client)  # type: ignore[arg-type]
    clock.at += 7_500_000
    clock.run()
    assert [len(events(client.body())) for client in clients] == [3] * 5
    assert all(client.ended for client in clients)
