"""Requests to a server besides the load (metrics, token counts) end in bounded time and memory, whatever it sends."""

import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from endpoints import endpoint, say
from hostile import ENDLESS, NOT_HTTP, hostile

from inferometer.documents.document import Document
from inferometer.errors import TargetError
from inferometer.observe import watch
from inferometer.observe.observer import MetricsPlace, ObserverJob
from inferometer.observe.prometheus import MetricsEndpoint, Unreadable
from inferometer.observe.watch import MetricsReader
from inferometer.wire.origin import origin_of
from inferometer.workload import tokenizers, writer
from inferometer.workload.session import WorkloadContext
from inferometer.workload.tokenizers import ServerTokenizer
from inferometer.workload.writer import writer_of

HEAD = b"HTTP/1.1 200 OK\r\n"
PATIENCE_S = 60.0  # of a test; the time limits are far shorter, on a busy machine too


def drip(first: bytes, more: bytes) -> Callable[[Any, int], None]:
    """As slow as no read's own time limit ends it."""

    def behave(connection: Any, _number: int) -> None:
        connection.sendall(first)
        while True:
            time.sleep(0.02)
            connection.sendall(more)

    return behave


SLOW = {
    "a status line": drip(b"HTTP/1.1 200 O", b"K"),
    "a header": drip(HEAD, b"x"),
    "headers": drip(HEAD, b"a: b\r\n"),
    "a body": drip(HEAD + b"\r\n", b"x"),
    "interim answers": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}
HOSTILE = {f"endless: {name}": behave for name, behave in (ENDLESS | NOT_HTTP).items()} | {
    f"slow: {name}": behave for name, behave in SLOW.items()
}


def ended(ask: Callable[[], Any]) -> BaseException:
    """What asking raises, in time and without filling the memory."""
    raised: list[BaseException] = []

    def asking() -> None:
        try:
            ask()
        except BaseException as error:
            raised.append(error)

    tracemalloc.start()
    try:
        thread = threading.Thread(target=asking, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "it still waits"
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    return raised[0]


@pytest.mark.parametrize("how", HOSTILE)
def test_metrics(how: str) -> None:
    with hostile(HOSTILE[how]) as port:
        asked = MetricsEndpoint(origin_of(f"http://127.0.0.1:{port}"), "/metrics", {}, 0.5)
        assert isinstance(ended(asked.text), Unreadable)


@pytest.mark.parametrize("how", HOSTILE)
def test_counted_tokens(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "ANSWER_S", 0.5)
    with hostile(HOSTILE[how]) as port:
        server = ServerTokenizer(WorkloadContext(url=f"http://127.0.0.1:{port}", model="m"))
        assert isinstance(ended(lambda: server.count("x")), TargetError)


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize(
    "answer",
    [
        *('{"count": 0}', '{"count": 7}', '{"count": -5}', '{"count": true}', '{"count": 1e3}', '{"count": [1]}'),
        *('{"count": 1000000000000000}', f'{{"count": 1{"0" * 400}}}', "[" * 100_000, '{"tokens": {}}', "[1]", "null"),
    ],
)
def test_counts_that_cannot_be_are_a_mistake_of_the_server(api: str, answer: str) -> None:
    with endpoint(lambda handler, _number: say(handler, answer)) as url, pytest.raises(TargetError, match="/tokenize"):
        writer_of("text", 0, "server", WorkloadContext(url=url, model="m", api=api))


def test_words_are_counted_for_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of counts that are answered in time each."""
    monkeypatch.setattr(writer, "WORDS_S", 1.0)

    def slow(handler: Any, number: int) -> None:
        time.sleep(0.05)
        say(handler, f'{{"count": {number % 50}}}')

    with endpoint(slow) as url:
        context = WorkloadContext(url=url, model="m")
        error = ended(lambda: writer_of("text", 0, "server", context))
    assert isinstance(error, TargetError) and "in time" in error.message


def reader_of(url: str, **more: Any) -> MetricsReader:
    return MetricsReader(MetricsPlace(url, "here", True), ObserverJob(log="", interval_s=30.0, **more))


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_running{{engine="{}"}} 1',
        'vllm:time_to_first_token_seconds_bucket{{le="{}"}} 1',
        'DCGM_FI_DEV_GPU_UTIL{{gpu="{}",Hostname="a"}} 1',
    ],
)
def test_series_without_end_are_left_out(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_SERIES", 50)

    def answer(handler: Any, number: int) -> None:
        say(handler, "\n".join(line.format(20 * number + series) for series in range(20)) + "\n")

    with endpoint(answer) as url:
        reader = reader_of(f"{url}/metrics", gpu=True, gpu_wanted=True, gpus=None)
        sizes = [len(reader.read()) for _ in range(5)]
        reader.close()
    assert sizes == [20, 20, 10, 0, 0]
    assert reader.problems == ["has 50 series or more: those that came later are left out"]


def test_labels_are_kept_as_they_may_be_shown() -> None:
    text = 'vllm:num_requests_running{engine="\x1b[31m%s"} 1\nvllm:cache_config_info{block_size="\x1b]0;x\x07"} 1\n'
    with endpoint(lambda handler, _number: say(handler, text % ("e" * 5000))) as url:
        reader = reader_of(f"{url}/metrics")
        [sample] = reader.read()
        reader.close()
    assert sample.labels["engine"].isprintable() and len(sample.labels["engine"]) <= 200
    assert (Document(reader.facts).section("config").text("block_size") or "\n").isprintable()


def test_a_config_that_cannot_be_read_hides_no_value() -> None:
    text = 'vllm:num_requests_running 3\nvllm:cache_config_info{block_size="16} 1\n'
    with endpoint(lambda handler, _number: say(handler, text)) as url:
        reader = reader_of(f"{url}/metrics")
        assert [sample.value for sample in reader.read()] == [3.0]
        reader.close()
