"""The simulator behind its real server, over loopback: bytes, faults, metrics and the log of the truth."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

SETTINGS = {
    "frontend": "1ms",
    "step_time": {"base": "2ms", "prefill_token": "1us"},
    "model": "sim",
    "blocks": 4096,
}
ASK = {"prompt": "one two three", "max_tokens": 6, "ignore_eos": True, "stream": True}
USAGE = {"stream_options": {"include_usage": True}}


class Simulator:
    """A server in a process of its own, which ends with its stdin."""

    def __init__(self, settings: dict[str, Any], *options: str) -> None:
        command = [sys.executable, "-m", "inferometer.simulator", "--settings", json.dumps(settings), *options]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline())
        self.port: int = self.ready["port"]

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)

    def call(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = self.connection()
        try:
            return call_on(connection, path, body, headers)
        finally:
            connection.close()

    def truth(self, request_id: str) -> dict[str, Any]:
        requests = json.loads(self.call("/truth")[1])["requests"]
        return next(each for each in requests if each["id"] == request_id)

    def metrics(self) -> dict[str, float]:
        text = self.call("/metrics")[1].decode()
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return {f"{sample.name}|{sample.labels.get('finished_reason', '')}": sample.value for sample in samples}

    def end(self) -> int:
        self.process.communicate(timeout=10)
        return self.process.returncode


def call_on(
    connection: http.client.HTTPConnection, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes, http.client.HTTPMessage]:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("GET" if data is None else "POST", path, data, headers or {})
    response = connection.getresponse()
    return response.status, response.read(), response.msg


def fault(text: str) -> dict[str, str]:
    return {"x-simulate-fault": text}


def events(data: bytes) -> list[Any]:
    """Payloads of a stream's events; [DONE] as it is."""
    payloads = [part.removeprefix(b"data: ") for part in data.split(b"\n\n") if part]
    return [payload.decode() if payload == b"[DONE]" else json.loads(payload) for payload in payloads]


def text_of(data: bytes) -> str:
    choices = (event["choices"] for event in events(data) if event != "[DONE]")
    return "".join(
        choice[0].get("text") or choice[0].get("delta", {}).get("content", "") for choice in choices if choice
    )


def by_choice(data: bytes) -> dict[int, list[str]]:
    """The tokens of each answer, in order; those of several come as the engine makes them."""
    said: dict[int, list[str]] = {}
    for event in events(data):
        for choice in [] if event == "[DONE]" else event["choices"]:
            said.setdefault(choice["index"], []).append(choice["text"])
    return said


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    simulator = Simulator(SETTINGS, "--until-stdin-closes")
    yield simulator
    assert simulator.end() == 0


def test_a_stream_of_completions(server: Simulator) -> None:
    status, data, headers = server.call("/v1/completions", ASK | USAGE)
    *tokens, usage, done = events(data)
    assert (status, headers["content-type"], done) == (200, "text/event-stream; charset=utf-8", "[DONE]")
    assert [token["choices"][0]["finish_reason"] for token in tokens] == [None] * 5 + ["length"]
    assert usage["usage"] | {"prompt_tokens_details": None} == {
        "prompt_tokens": 3,
        "total_tokens": 9,
        "completion_tokens": 6,
        "prompt_tokens_details": None,
    }
    assert len(text_of(data).split()) == 6
    assert "usage" not in tokens[0]


def test_a_stream_of_chat_with_running_usage(server: Simulator) -> None:
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    body = {"messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 4, "ignore_eos": True}
    _, data, _ = server.call("/v1/chat/completions", body | {"stream": True} | options)
    role, *tokens, usage, _ = events(data)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [each["usage"]["completion_tokens"] for each in [role, *tokens, usage]] == [0, 1, 2, 3, 4, 4]
    assert "stop_reason" in tokens[-1]["choices"][0]


def test_answers_in_one_piece_are_the_same_as_streamed(server: Simulator) -> None:
    _, streamed, _ = server.call("/v1/completions", ASK)
    status, data, _ = server.call("/v1/completions", ASK | {"stream": False})
    whole = json.loads(data)
    assert (status, whole["choices"][0]["text"]) == (200, text_of(streamed))
    assert whole["usage"]["completion_tokens"] == 6
    assert server.truth(whole["id"])["written_tokens"] == [6]


def test_several_prompts_make_several_choices(server: Simulator) -> None:
    body = {"prompt": ["a b", [1, 2, 3]], "max_tokens": 2, "ignore_eos": True}
    whole = json.loads(server.call("/v1/completions", body)[1])
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert whole["usage"]["prompt_tokens"] == 5
    _, data, _ = server.call("/v1/completions", body | {"stream": True})
    *tokens, done = events(data)
    assert sorted(token["choices"][0]["index"] for token in tokens) == [0, 0, 1, 1]
    assert done == "[DONE]"


def test_errors_have_the_shape_of_vllm(server: Simulator) -> None:
    status, data, _ = server.call("/v1/completions", ASK | {"max_tokens": 100000})
    assert (status, json.loads(data)) == (
        400,
        {
            "error": {
                "message": "max_tokens=100000 cannot be greater than max_model_len=max_total_tokens=8192. Please "
                "request fewer output tokens. (parameter=max_tokens, value=100000)",
                "type": "BadRequestError",
                "param": "max_tokens",
                "code": 400,
            }
        },
    )
    status, data, _ = server.call("/v1/completions", ASK | {"model": "nope"})
    assert (status, data) == (
        404,
        b'{"error":{"message":"The model `nope` does not exist.","type":"NotFoundError","param":"model","code":404}}',
    )
    assert server.call("/v1/completions", b"not json")[0] == 400
    assert server.call("/nowhere")[0] == 404
    assert server.call("/v1/completions")[0] == 405
    assert server.call("/v1/completions", ASK, fault("explode"))[0] == 400


def test_the_smaller_endpoints(server: Simulator) -> None:
    assert server.call("/health")[0] == 200
    assert json.loads(server.call("/version")[1]) == {"version": "0.24.0"}
    card = json.loads(server.call("/v1/models")[1])["data"][0]
    assert (card["id"], card["max_model_len"]) == ("sim", 8192)
    assert json.loads(server.call("/tokenize", {"prompt": "a b c"})[1])["count"] == 3


def test_the_prefix_cache_is_seen_and_can_be_emptied(server: Simulator) -> None:
    body = ASK | USAGE | {"prompt": " ".join(f"shared{number}" for number in range(100))}

    def cached() -> int:
        usage = events(server.call("/v1/completions", body)[1])[-2]["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert (cached(), cached()) == (0, 96)
    assert server.call("/reset_prefix_cache", b"")[0] == 200
    assert cached() == 0


def test_metrics_add_up(server: Simulator) -> None:
    before = server.metrics()
    for _ in range(3):
        server.call("/v1/completions", ASK)
    after = server.metrics()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown("vllm:generation_tokens_total|") == 18
    assert grown("vllm:prompt_tokens_total|") == 9
    assert grown("vllm:request_success_total|length") == 3
    assert grown("vllm:time_to_first_token_seconds_count|") == 3
    assert grown("vllm:inter_token_latency_seconds_count|") == 15
    assert 3 * 5 * 0.002 < grown("vllm:inter_token_latency_seconds_sum|") < 3 * 5 * 0.01
    assert after["vllm:num_requests_running|"] == 0


def test_the_truth_is_between_the_steps_and_the_client(server: Simulator) -> None:
    began_at = time.monotonic_ns()
    _, data, _ = server.call("/v1/completions", ASK)
    ended_at = time.monotonic_ns()
    truth = server.truth(events(data)[0]["id"])
    instants = [began_at, truth["received_at"], truth["headers_at"], *truth["written_at"], ended_at]
    assert instants == sorted(instants)
    assert truth["written_tokens"] == [1] * 6
    assert truth["ending"] == "ok"
    lateness = json.loads(server.call("/truth")[1])["lateness"]
    assert 0 <= lateness["first_write_s"]["p50"] < 0.1


def test_many_streams_at_once_all_end(server: Simulator) -> None:
    def one(number: int) -> int:
        _, data, _ = server.call("/v1/completions", ASK | {"prompt": f"number {number}", "max_tokens": 20})
        return len(text_of(data).split())

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(64))) == [20] * 64


def test_a_client_that_leaves_frees_its_sequence(server: Simulator) -> None:
    before = server.metrics()["vllm:request_success_total|abort"]
    connection = server.connection()
    connection.request("POST", "/v1/completions", json.dumps(ASK | {"max_tokens": 5000}))
    connection.getresponse().read(10)
    connection.sock.close() if connection.sock else None
    connection.close()
    deadline = time.monotonic() + 5
    while server.metrics()["vllm:request_success_total|abort"] == before:
        assert time.monotonic() < deadline
    assert server.metrics()["vllm:num_requests_running|"] == 0


@pytest.mark.parametrize("prompt", ["one two three", ["one two", "three four"]], ids=["one answer", "two answers"])
@pytest.mark.parametrize("reader", ["compiled", "python"])
def test_a_client_that_does_not_read_loses_nothing_and_holds_up_nobody(
    reader: str, prompt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket is full long before the answer is over; another answer comes meanwhile, and then all of its own."""
    monkeypatch.setenv("INFEROMETER_READER", reader)
    simulator = Simulator(SETTINGS | {"step_time": {"base": "20us"}, "frontend": 0}, "--until-stdin-closes")
    long = ASK | {"prompt": prompt, "max_tokens": 8000 if isinstance(prompt, str) else 4000}
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", simulator.port))
        body = json.dumps(long).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: it\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        lazy.sendall(head.encode() + body)
        _, other, _ = simulator.call("/v1/completions", long)
        response = http.client.HTTPResponse(lazy)
        response.begin()
        assert by_choice(response.read()) == by_choice(other)
    assert len(text_of(other).split()) == 8000
    assert simulator.end() == 0


def test_clients_that_leave_in_the_middle_do_not_disturb_the_others(server: Simulator) -> None:
    expected = text_of(server.call("/v1/completions", ASK | {"max_tokens": 150})[1])
    with ThreadPoolExecutor(8) as pool:
        staying = [pool.submit(server.call, "/v1/completions", ASK | {"max_tokens": 150}) for _ in range(8)]
        for _ in range(10):
            leaving = server.connection()
            leaving.request("POST", "/v1/completions", json.dumps(ASK | {"max_tokens": 500}))
            leaving.getresponse().read(300)
            leaving.close()
        assert [text_of(each.result()[1]) for each in staying] == [expected] * 8


def test_status_faults(server: Simulator) -> None:
    status, data, headers = server.call("/v1/completions", ASK, fault("status=429, retry-after=2s"))
    assert (status, headers["retry-after"]) == (429, "2")
    assert json.loads(data)["error"]["code"] == 429
    assert server.call("/v1/completions", ASK, fault("status=503"))[0] == 503


def test_slow_headers_and_stalls_take_their_time(server: Simulator) -> None:
    _, data, _ = server.call("/v1/completions", ASK, fault("slow-headers=80ms"))
    truth = server.truth(events(data)[0]["id"])
    assert truth["headers_at"] - truth["received_at"] >= 80_000_000
    _, data, _ = server.call("/v1/completions", ASK, fault("stall=80ms"))
    truth = server.truth(events(data)[0]["id"])
    assert max(np.diff(truth["written_at"])) >= 75_000_000
    assert len(text_of(data).split()) == 6


@pytest.mark.parametrize("stream", [True, False])
def test_cut_answers_end_in_the_middle(server: Simulator, stream: bool) -> None:
    with pytest.raises((http.client.IncompleteRead, http.client.RemoteDisconnected)) as broken:
        server.call("/v1/completions", ASK | {"stream": stream}, fault("cut=2"))
    if stream:
        assert len(text_of(broken.value.partial).split()) == 2  # type: ignore[attr-defined]
    with pytest.raises((http.client.IncompleteRead, http.client.RemoteDisconnected)):
        server.call("/v1/completions", ASK | {"stream": stream}, fault("cut=0"))


@pytest.mark.parametrize("name", ["split-utf8", "split-line"])
def test_split_chunks_carry_the_same_text(server: Simulator, name: str) -> None:
    body = ASK | {"max_tokens": 40}
    plain = text_of(server.call("/v1/completions", body)[1])
    assert not plain.isascii()
    assert text_of(server.call("/v1/completions", body, fault(name))[1]) == plain


def test_a_split_is_seen_by_a_reader_of_the_socket(server: Simulator) -> None:
    body = json.dumps(ASK | {"max_tokens": 40}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nx-simulate-fault: split-utf8\r\ncontent-length: {len(body)}\r\n\r\n"
    parts: list[Any] = []
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(head.encode() + body)
        while not parts or not parts[-1].endswith(b"0\r\n\r\n"):
            parts.append(client.recv(65536))
    assert any(part[-1] >= 0xC0 for part in parts)


def test_several_tokens_in_a_chunk(server: Simulator) -> None:
    body = ASK | USAGE | {"max_tokens": 10}
    _, data, _ = server.call("/v1/completions", body, fault("tokens-per-chunk=4"))
    *tokens, usage, _ = events(data)
    assert [len(token["choices"][0]["text"].split()) for token in tokens] == [4, 4, 2]
    assert usage["usage"]["completion_tokens"] == 10
    assert server.truth(usage["id"])["written_tokens"] == [4, 4, 2]


def test_missing_usage_missing_done_and_a_role_alone(server: Simulator) -> None:
    *tokens, done = events(server.call("/v1/completions", ASK | USAGE, fault("no-usage"))[1])
    assert done == "[DONE]"
    assert not any("usage" in token for token in tokens)
    assert events(server.call("/v1/completions", ASK | USAGE, fault("no-done"))[1])[-1]["usage"]
    role, first, *_ = events(server.call("/v1/completions", ASK, fault("role-only"))[1])
    assert role["choices"][0]["delta"]["content"] == ""
    assert first["choices"][0]["text"]


def test_connections_closed_without_notice(server: Simulator) -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        server.call("/v1/completions", ASK, fault("close-before"))
    for name in ("close-after", "close-next"):
        connection = server.connection()
        status, data, headers = call_on(connection, "/v1/completions", ASK, fault(name))
        assert (status, len(text_of(data).split()), headers["connection"]) == (200, 6, None)
        connection.auto_open = 0
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError, BrokenPipeError)):
            call_on(connection, "/v1/completions", ASK)
        connection.close()


def test_keep_alive_serves_one_after_the_other(server: Simulator) -> None:
    connection = server.connection()
    assert [call_on(connection, "/v1/completions", ASK)[0] for _ in range(3)] == [200] * 3
    connection.close()


def test_shares_of_faults_come_from_the_settings_and_sigterm_writes_the_truth(tmp_path: Path) -> None:
    settings = SETTINGS | {"faults": {"shares": {"status=500": 0.5}, "seed": 1}}
    simulator = Simulator(settings, "--truth", str(tmp_path / "truth.npz"))
    statuses = [simulator.call("/v1/completions", ASK)[0] for _ in range(20)]
    os.kill(simulator.ready["pid"], signal.SIGTERM)
    assert simulator.process.wait(10) == 0
    simulator.end()
    assert {200, 500} == set(statuses)
    truth = np.load(tmp_path / "truth.npz")
    assert len(truth["id"]) == statuses.count(200)
    assert truth["written_tokens"].sum() == 6 * statuses.count(200)


def test_wrong_settings_are_said_at_once() -> None:
    command = [sys.executable, "-m", "inferometer.simulator", "--settings", '{"sped": 2, "speed": -1}']
    result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert result.returncode == 2
    assert "settings.sped" in result.stderr
    assert "settings.speed" in result.stderr
