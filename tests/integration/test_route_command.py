"""`inferometer route` as a process over simulators: replicas that die and come back, the drain, and its errors."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

QUICK = {"frontend": 0, "step_time": {"base": "1ms", "prefill_token": 0, "decode_sequence": 0}}
ROUTE = [sys.executable, "-m", "inferometer", "route"]


@contextmanager
def simulator(port: int = 0, **settings: Any) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "inferometer.simulator", "--port", str(port), "--until-stdin-closes"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, "--settings", json.dumps(QUICK | settings)], stdin=pipe, stdout=pipe, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["port"]
        finally:
            process.kill()


@contextmanager
def route(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*ROUTE, *arguments], stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline()
            yield process, int(url.strip().rpartition(":")[2])
        finally:
            process.kill()


def ask(port: int, tokens: int, stream: bool = True) -> tuple[int, bytes, str]:
    """Status, body and replica; a status of 0 where the response broke off after its headers."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = {"prompt": "one two three", "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    status, replica = -1, ""
    try:
        client.request("POST", "/v1/completions", json.dumps(body))
        response = client.getresponse()
        status, replica = 0, response.headers["x-inferometer-replica"] or ""
        return response.status, response.read(), replica
    except (http.client.HTTPException, ConnectionError):
        return status, b"", replica
    finally:
        client.close()


def metric(port: int, start: str) -> float:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    client.request("GET", "/metrics")
    lines = client.getresponse().read().decode().splitlines()
    client.close()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


def test_a_replica_that_is_killed_and_comes_back_loses_no_request_that_could_be_served() -> None:
    results: list[tuple[int, bytes, str]] = []
    stop = threading.Event()

    def client(port: int) -> None:
        while not stop.is_set():
            results.append(ask(port, 10))

    def wait_for(more: int, replica: str = "") -> None:
        goal = len(results) + more
        while len(results) < goal or (replica and results[-1][2] != replica):
            assert all(thread.is_alive() for thread in threads)

    with simulator() as (_, steady), simulator() as (mortal, port):
        upstreams = ["--upstream", f"steady=http://127.0.0.1:{steady}", f"mortal=http://127.0.0.1:{port}"]
        with route("--policy", "round_robin", "--health-interval", "100ms", *upstreams) as (_, front):
            threads = [threading.Thread(target=client, args=(front,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            try:
                wait_for(40)
                os.kill(mortal.pid, signal.SIGKILL)
                wait_for(60)
                killed_by = len(results)
                with simulator(port):
                    wait_for(20, replica="mortal")
                    stop.set()
                    for thread in threads:
                        thread.join()
            finally:
                stop.set()
            cut = metric(front, 'inferometer_router_requests_total{outcome="cut"')
    statuses = Counter(status for status, _, _ in results)
    assert set(statuses) <= {200, 0}
    assert statuses[0] <= 4  # at most those whose response had begun there, one for each client
    assert statuses[0] == cut
    assert {replica for status, _, replica in results if status == 0} <= {"mortal"}
    assert "mortal" in {replica for _, _, replica in results[killed_by:]}
    assert all(body.endswith(b"data: [DONE]\n\n") for status, body, _ in results if status == 200)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_is_in_flight(number: int) -> None:
    steps = {"base": "10ms", "prefill_token": 0, "decode_sequence": 0}
    with simulator(step_time=steps) as (_, port), route("--upstream", f"http://127.0.0.1:{port}") as (process, front):
        client = http.client.HTTPConnection("127.0.0.1", front, timeout=30)
        body = {"prompt": "x", "max_tokens": 60, "ignore_eos": True, "stream": True}
        client.request("POST", "/v1/completions", json.dumps(body))
        response = client.getresponse()
        assert response.readline().startswith(b"data: ")
        process.send_signal(number)
        assert process.stderr is not None
        while "finishing 1 request; interrupt again to stop now" not in process.stderr.readline():
            assert process.poll() is None
        with pytest.raises(ConnectionError):  # no more clients
            socket.create_connection(("127.0.0.1", front))
        assert response.read().endswith(b"data: [DONE]\n\n")
        assert process.wait(30) == (143 if number == signal.SIGTERM else 0)
        client.close()


def failing(*arguments: str) -> tuple[int, str]:
    ended = subprocess.run([*ROUTE, *arguments], capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stderr


def test_errors_say_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert failing("--port", str(port), f"http://127.0.0.1:{port}") == (
            3,
            f"error: port {port} of 127.0.0.1: address already in use\n"
            "hint: stop the process that uses it, or choose another port with --port\n",
        )
    code, text = failing("--upstream", f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/other")
    assert code == 3
    assert f"no replica is ready (http://127.0.0.1:{port}: connection refused; http://127.0.0.1:{port}/other: " in text
    code, text = failing("--policy", "prefix", "http://localhost:1")
    assert (code, "policy must be one of random, round_robin" in text) == (2, True)
    assert failing()[0] == 2
    code, text = failing("--ca", __file__, "https://localhost:1")
    assert (code, f"error: tls_ca {__file__}: not a file with certificates" in text) == (2, True)
    assert failing("--policy", "prefix_aware", "--set", "defaults=oldest", "http://localhost:1")[0] == 2
    code, text = failing("--host", "no-such-host.invalid", "http://localhost:1")
    assert (code, text.startswith("error: --host no-such-host.invalid: ")) == (3, True)
    assert "port" not in text
    code, text = failing("http://localhost:port")
    assert (code, text) == (
        2,
        "error: upstream must be a URL such as http://localhost:8000, got http://localhost:port\n",
    )
