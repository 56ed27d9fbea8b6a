"""Every API over real HTTP: what the answers of the simulator, or of a server of one's own, become."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferometer.load.facts import facts_of
from inferometer.load.shard import ShardJob, run_shard
from inferometer.measure.summary import summarize
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.plan.target import Target
from inferometer.record.columns import Records
from inferometer.record.log import read_log
from inferometer.record.record import Record
from inferometer.target.probe import probe
from inferometer.wire.api import APIS

GENERATING = ("completions", "chat", "responses", "anthropic", "tgi")
INPUT, OUTPUT, REQUESTS = 12, 9, 6
FULL = {"ignore_eos": True}
# tokens that a chat template adds to a prompt, as the simulator has it
FRAME = {"chat": 5, "responses": 5, "anthropic": 5}


def run(folder: Path, url: str, api: str, **more: Any) -> tuple[Plan, list[Record]]:
    """A few requests of one shard; the plan that was sent, and its records."""
    target = {"url": url, "api": api} | more.pop("target", {})
    asked: dict[str, Any] = {
        "target": target,
        "workload": {"input_tokens": INPUT, "output_tokens": OUTPUT},
        "load": {"concurrency": 3},
        "stop": {"requests": REQUESTS},
        "sampling": FULL,
    }
    plan = plan_from(asked | more)
    log = folder / f"{api}.log"
    run_shard(ShardJob(plan.model_dump(mode="json"), str(log), "nonce", probe(plan.target).model))
    return plan, list(read_log(log).records)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", GENERATING)
def test_an_api_that_generates(simulator: str, tmp_path: Path, api: str, stream: bool) -> None:
    _, records = run(tmp_path, simulator, api, target={"stream": stream})
    assert len(records) == REQUESTS
    for record in records:
        assert (record.outcome, record.error, record.status) == ("ok", None, 200)
        assert record.input_tokens == INPUT + FRAME.get(api, 0)
        reads = np.frombuffer(record.read_at, np.int64)
        tokens = np.frombuffer(record.read_tokens, np.int64)
        assert tokens.sum() == record.output_tokens == record.counted_tokens
        assert record.request_id is not None or api == "tgi"
        assert stream or len(reads) == 1
        assert record.visible_at == reads[0]
    if api != "tgi":  # nothing makes TGI say more than it wants to
        assert {record.output_tokens for record in records} == {OUTPUT}
        assert {record.finish_reason for record in records} == {"length"}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("api", "extra"),
    [
        ("responses", {"reasoning": {"effort": "low"}}),
        ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 4}}),
    ],
)
def test_thoughts_are_tokens_that_no_reader_sees(
    simulator: str, tmp_path: Path, api: str, extra: dict[str, Any], stream: bool
) -> None:
    more = {"sampling": FULL | {"extra": extra}, "save": {"answers": True}, "target": {"stream": stream}}
    _, records = run(tmp_path, simulator, api, **more)
    for record in records:
        reads = np.frombuffer(record.read_at, np.int64)
        assert (record.outcome, record.output_tokens, record.visible_at in reads) == ("ok", OUTPUT, True)
        assert len((record.answer or "").split()) == OUTPUT - 4
        assert record.reasoning_tokens == (4 if api == "responses" else None)
        if stream:
            so_far = np.cumsum(np.frombuffer(record.read_tokens, np.int64))
            assert record.visible_at == reads[np.searchsorted(so_far, 5)]  # tokens may share a read


@pytest.mark.parametrize("api", ["embeddings", "rerank"])
def test_an_api_without_tokens_has_a_latency_and_input_tokens(simulator: str, tmp_path: Path, api: str) -> None:
    plan, records = run(tmp_path, simulator, api, workload={"input_tokens": 18})
    for record in records:
        assert (record.outcome, record.output_tokens, record.tokens_by) == ("ok", None, None)
        assert record.input_tokens == (18 if api == "embeddings" else 18 + 7 * 2)  # the query goes with each document
        assert np.frombuffer(record.read_at, np.int64).tolist() == [record.ended_at]
    columns = Records.of(records)
    measures = summarize(columns, plan, facts_of(plan, columns, [])).measures
    assert measures["e2e"].count == measures["ttft"].count > 0
    assert (measures["output_tokens"].count, measures["tpot"].count) == (0, 0)


def test_embeddings_of_token_ids(simulator: str, tmp_path: Path) -> None:
    _, records = run(tmp_path, simulator, "embeddings", workload={"input_tokens": 5, "prompt_as": "token_ids"})
    assert {record.input_tokens for record in records} == {5}


def test_a_prefix_that_was_cached_is_reported_by_every_api(simulator: str, tmp_path: Path) -> None:
    for api in ("completions", "chat", "responses", "anthropic"):
        workload = {"input_tokens": 64, "output_tokens": 2, "nonce_tokens": 0}
        for folder in ("cold", "warm"):
            (tmp_path / api / folder).mkdir(parents=True)
            _, records = run(tmp_path / api / folder, simulator, api, workload=workload, seed=91)
        assert {record.cached_tokens for record in records} <= {48, 64}, api


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("cut=3", "cut"),
        ("tokens-per-chunk=4", "ok"),
        ("split-utf8", "ok"),
        ("split-line", "ok"),
        ("status=503", "status"),
    ],
)
def test_faults_are_what_they_are_in_every_api(
    simulator: str, tmp_path: Path, api: str, fault: str, outcome: str
) -> None:
    _, records = run(tmp_path, simulator, api, target={"headers": {"x-simulate-fault": fault}})
    assert {record.outcome for record in records} == {outcome}
    if outcome == "ok":
        sums = {int(np.frombuffer(record.read_tokens, np.int64).sum()) for record in records}
        assert sums == {OUTPUT}


@pytest.mark.parametrize("api", sorted(set(APIS) - {"template"}))
def test_a_request_that_is_refused_tells_why(simulator: str, tmp_path: Path, api: str) -> None:
    extra = {"prompt": 5, "messages": 5, "input": 5, "inputs": 5, "documents": 5, "file": None}
    sound: dict[str, Any] = {"workload": {"audio": {}}} if api in ("transcriptions", "translations") else {}
    _, records = run(tmp_path, simulator, api, sampling={"extra": extra}, **sound)
    assert {(record.outcome, record.status) for record in records} == {("status", 400)}
    assert all(record.error for record in records)


# -- a server of one's own -------------------------------------------------------------------------------------

Write = Callable[[bytes], None]


@contextmanager
def own_server(kind: str, answer: Callable[[dict[str, Any], Write], None]) -> Iterator[str]:
    """Answers every POST in chunks; there is no list of models."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            answer(asked, lambda data: self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data)) and None)  # type: ignore[arg-type]
            self.wfile.write(b"0\r\n\r\n")

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_template_with_lines_of_json(tmp_path: Path) -> None:
    def answer(asked: dict[str, Any], write: Write) -> None:
        for word in asked["input"].split()[:3]:
            write(json.dumps({"response": word, "done": False}).encode() + b"\n")
        write(json.dumps({"response": "", "done": True, "prompt_eval_count": 12, "eval_count": 3}).encode() + b"\n")

    body = '{"input": "{prompt}", "max_new_tokens": 128}'
    with own_server("application/x-ndjson", answer) as url:
        _, records = run(tmp_path, url, "template", target={"body": body}, save={"answers": True, "prompts": True})
    for record in records:
        assert (record.outcome, record.output_tokens, record.input_tokens, record.tokens_by) == ("ok", 3, 12, "usage")
        assert record.answer == "".join((record.prompt or "").split()[:3])


def test_a_template_with_bare_text_is_estimated_and_marked(tmp_path: Path) -> None:
    def answer(_asked: dict[str, Any], write: Write) -> None:
        for piece in ("Once upon ", "a time, ", "schöne Grüße"):
            write(piece.encode())

    with own_server("text/plain", answer) as url:
        plan, records = run(tmp_path, url, "template", target={"body": '"{prompt}"'}, save={"answers": True})
    for record in records:
        assert (record.outcome, record.output_tokens, record.tokens_by) == ("ok", None, "length")
        assert record.answer == "Once upon a time, schöne Grüße"
        assert 6 <= np.frombuffer(record.read_tokens, np.int64).sum() <= 9
    columns = Records.of(records)
    summary = summarize(columns, plan, facts_of(plan, columns, []))
    assert summary.tokens.output.estimated > 0


def test_a_template_with_events_of_another_api(simulator: str, tmp_path: Path) -> None:
    body = '{"inputs": "{prompt}", "parameters": {"max_new_tokens": 5}}'
    _, records = run(tmp_path, simulator, "template", target={"body": body, "path": "/generate_stream"})
    assert all(record.outcome == "ok" and (record.output_tokens or 0) <= 5 for record in records)
    assert {record.input_tokens for record in records} == {INPUT}


def test_a_server_without_models_is_enough_for_apis_that_need_none(tmp_path: Path) -> None:
    def answer(_asked: dict[str, Any], write: Write) -> None:
        write(b'{"generated_text":"a b","details":{"finish_reason":"length","generated_tokens":2}}')

    with own_server("application/json", answer) as url:
        assert probe(Target(url=url, api="tgi")).model is None
        _, records = run(tmp_path, url, "tgi", target={"stream": False})
    assert {(record.outcome, record.output_tokens) for record in records} == {("ok", 2)}
