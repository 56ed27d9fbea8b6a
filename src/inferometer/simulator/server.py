"""The simulated engine behind a real streaming HTTP server that speaks vLLM's dialect of OpenAI's API."""

import gc
import os
import secrets
import signal
import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from inferometer.errors import InferometerError, PlanError
from inferometer.simulator import dialects
from inferometer.simulator import requests as asks
from inferometer.simulator.answers import (
    AnswerChoice,
    FaultyAnswer,
    FaultyPart,
    SimulatedAnswer,
    StepWriter,
    TruthLog,
    TruthOfRequest,
)
from inferometer.simulator.dialects import Answering, Dialect
from inferometer.simulator.engine import Batch, Sequence
from inferometer.simulator.loop import EngineLoop
from inferometer.simulator.metrics import CONTENT_TYPE, Metrics
from inferometer.simulator.requests import Question, RefusalError, bad, read_json, read_question, sequence_for
from inferometer.simulator.settings import HEADER, Faults, SimulatorSettings, parse_faults
from inferometer.simulator.tokens import tape, tokens_of
from inferometer.wire.reactor import Reactor, now
from inferometer.wire.server import HttpRequest, HttpServer, Reply

Route = Callable[[HttpRequest, Reply], int | None]  # returns the status if it is not 200
ReadRequest = Callable[[bytes, SimulatorSettings], Question]
_DIALECTS: dict[str, tuple[ReadRequest, type[Answering]]] = {
    "/v1/completions": (lambda body, settings: read_question(body, False, settings), Answering),
    "/v1/chat/completions": (lambda body, settings: read_question(body, True, settings), Answering),
    "/v1/responses": (asks.read_responses, dialects.ResponsesAnswering),
    "/v1/messages": (asks.read_anthropic, dialects.AnthropicAnswering),
    "/generate": (lambda body, settings: asks.read_tgi(body, settings, stream=False), dialects.TgiAnswering),
    "/generate_stream": (lambda body, settings: asks.read_tgi(body, settings, stream=True), dialects.TgiAnswering),
    "/v1/audio/transcriptions": (asks.read_transcription, dialects.TranscriptAnswering),
    "/v1/audio/translations": (asks.read_transcription, dialects.TranscriptAnswering),
    "/v1/embeddings": (asks.read_embeddings, dialects.EmbeddingsAnswering),
    "/v1/rerank": (asks.read_rerank, dialects.RerankAnswering),
    "/rerank": (asks.read_rerank, dialects.RerankAnswering),
}
_JSON = {"content-type": "application/json"}
_VERSION = dialects.dumps({"version": dialects.VERSION})
LINGER_NS = 2_000_000_000  # load processes that lost their parent need half a second to cancel their requests
POLL_NS = 20_000_000


class SimulatorServer:
    """Listens at once; runs when its reactor does."""

    def __init__(self, reactor: Reactor, settings: SimulatorSettings, host: str = "127.0.0.1", port: int = 0) -> None:
        if settings.pipeline is not None:
            raise PlanError(
                "server.args.pipeline: steps that are launched ahead are for virtual time",
                "inferometer simulate and inferometer predict use them",
            )
        self.reactor = reactor
        self.settings = settings
        self.truth = TruthLog(settings.truth_events)
        self._writer = StepWriter()
        self.loop = EngineLoop(
            reactor,
            settings.build_engine(),
            settings.build_step_time(),
            self._sequence_done,
            self._step_done,
            self._batch_done,
            self._writer.prepare,
        )
        self.metrics = Metrics(settings, self.loop.engine)
        reactor.idle = self.metrics.work_off
        self._draw_faults = settings.faults.drawer()
        tape()  # computed once, before the first request
        self._process = secrets.token_hex(4)
        self._number = 0
        self._started = int(time.time())
        self.answering = 0  # generation requests in progress
        self._doomed: set[object] = set()  # connections that will be closed at their next request
        self._routes = self._all_routes()
        self.http = HttpServer(reactor, self._handle, host, port, stamps=True)
        self.port = self.http.port

    def close(self) -> None:
        self.http.close()

    def _all_routes(self) -> dict[tuple[str, str], Route]:
        return {
            **{("POST", path): partial(self._generate, read, kind) for path, (read, kind) in _DIALECTS.items()},
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): lambda _request, reply: reply.respond(200, b""),
            ("GET", "/ping"): lambda _request, reply: reply.respond(200, b""),
            ("GET", "/version"): lambda _request, reply: reply.respond(200, _VERSION),
            ("GET", "/metrics"): self._metrics,
            ("GET", "/truth"): self._truth,
            ("POST", "/start_profile"): lambda _request, reply: reply.respond(200, b""),
            ("POST", "/stop_profile"): lambda _request, reply: reply.respond(200, b""),
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/reset_prefix_cache"): self._reset_prefix_cache,
        }

    def _handle(self, request: HttpRequest, reply: Reply) -> None:
        """Route a request; rejections become error bodies."""
        if self._doomed and reply._connection in self._doomed:  # only the connection identifies a client
            self._doomed.discard(reply._connection)
            reply.close()
            return
        route = self._routes.get((request.method, request.path))
        try:
            if route is None:
                self._not_found(request, reply)
            else:
                status = route(request, reply) or 200
                self.metrics.answered(request.method, request.path, status)
        except RefusalError as refusal:
            body = dialects.error(refusal.status, refusal.message, refusal.kind, refusal.param)
            reply.respond(refusal.status, body)
            self.metrics.answered(request.method, request.path, refusal.status)

    def _not_found(self, request: HttpRequest, reply: Reply) -> None:
        known = any(path == request.path for _, path in self._routes)
        status, text = (405, "Method Not Allowed") if known else (404, "Not Found")
        reply.respond(status, dialects.dumps({"detail": text}))
        self.metrics.answered(request.method, request.path if known else "none", status)

    def _models(self, _request: HttpRequest, reply: Reply) -> None:
        served = self.settings
        reply.respond(200, dialects.models(served.model, served.max_model_len, self._started, served.adapters))

    def _metrics(self, _request: HttpRequest, reply: Reply) -> None:
        reply.respond(200, self.metrics.exposition(), {"content-type": CONTENT_TYPE})

    def _truth(self, request: HttpRequest, reply: Reply) -> None:
        if "format=npz" in request.query:
            reply.respond(200, self.truth.to_npz(), {"content-type": "application/octet-stream"})
        else:
            reply.respond(200, self.truth.to_json())

    def _tokenize(self, request: HttpRequest, reply: Reply) -> None:
        fields = read_json(request.body)
        prompt = fields.get("messages") or fields.get("prompt")
        if not isinstance(prompt, str | list):
            raise bad("a prompt or messages are needed", "prompt")
        tokens = [zlib.crc32(str(token).encode()) % 128_000 for token in tokens_of(prompt)]
        count = {"count": len(tokens), "max_model_len": self.settings.max_model_len}
        reply.respond(200, dialects.dumps(count | {"tokens": tokens, "token_strs": None}))

    def _reset_prefix_cache(self, _request: HttpRequest, reply: Reply) -> None:
        self.loop.engine.pool.forget_idle()
        reply.respond(200, b"")

    def _generate(self, read: ReadRequest, kind: type[Answering], request: HttpRequest, reply: Reply) -> int | None:
        """Start a generation request; returns the status if it was answered with an error."""
        faults = self._faults_of(request)
        if faults.close_before:
            reply.close()
            return None
        if faults.status is not None:
            return self._fail(reply, faults)
        question = read(request.body, self.settings)
        answer = self._answer(kind, question, faults, request, reply)
        for index, generation in enumerate(question.generations):
            sequence, reason = sequence_for(generation, self.settings)
            part = FaultyPart if isinstance(answer, FaultyAnswer) else AnswerChoice
            sequence.waiter = part(answer, index, sequence, reason)  # type: ignore[arg-type]
        reply.on_close = lambda: answer.over("left")
        delay = self.settings.frontend_ns + round(faults.slow_headers_s * 1e9)
        self.reactor.call_at(request.received_at + delay, lambda: self._join(answer))
        return None

    def _faults_of(self, request: HttpRequest) -> Faults:
        drawn = self._draw_faults()
        header = request.headers.get(HEADER)
        if header is None:
            return drawn
        try:
            return parse_faults(header)
        except ValueError as error:
            raise bad(str(error), HEADER) from None

    def _fail(self, reply: Reply, faults: Faults) -> int:
        status = faults.status or 500
        headers = {} if faults.retry_after_s is None else {"retry-after": f"{faults.retry_after_s:g}"}
        kind = {429: "RateLimitError", 503: "ServiceUnavailableError"}.get(status, "InternalServerError")
        reply.respond(status, dialects.error(status, "simulated fault", kind), _JSON | headers)
        return status

    def _answer(
        self, kind: type[Answering], question: Question, faults: Faults, request: HttpRequest, reply: Reply
    ) -> SimulatedAnswer:
        self._number += 1
        name = request.headers.get("x-request-id") or f"{self._process}{self._number:08x}"
        answering = kind(
            chat=question.chat,
            id=("chatcmpl-" if question.chat else "cmpl-") + name,
            model=self.settings.model,
            prompt_tokens=question.prompt_tokens,
            include_usage=question.include_usage,
            continuous_usage=question.continuous_usage and not faults.no_usage,
            usage_details=self.settings.prompt_tokens_details,
        )
        if isinstance(answering, Dialect):
            answering.id, answering.reasoning = name, question.reasoning
        truth = TruthOfRequest(answering.id, request.received_at)
        self.truth.add(truth)
        self.answering += 1
        if faults == Faults():
            return SimulatedAnswer(question, answering, reply, truth, self._answer_over)
        return FaultyAnswer(question, answering, reply, truth, self._answer_over, faults, self.reactor)

    def _join(self, answer: SimulatedAnswer) -> None:
        """The frontend has processed it: send the headers, and add it to the engine."""
        if answer.truth.ending:  # its client disconnected meanwhile
            return
        answer.joined_at = now()
        answer.start()
        for part in answer.parts:
            if not answer.truth.ending:
                self.loop.add(part.sequence)

    def _step_done(self, batch: Batch, index: int, deadline: int) -> None:
        first_at = self._writer.write(batch, index)
        self.truth.stepped(first_at - deadline, now() - deadline)
        self.metrics.step_late(first_at - deadline)

    def _batch_done(self, batch: Batch, steps: int) -> None:
        self.metrics.batch_done(batch, steps)

    def _sequence_done(self, sequence: Sequence) -> None:
        part: AnswerChoice = sequence.waiter
        answer = part.answer
        reason = "abort" if sequence.aborted else part.reason
        instants = self.loop.instants(sequence)
        self.metrics.request_done(sequence, reason, answer.truth.received_at, answer.joined_at, instants)
        sequence.waiter = None

    def _answer_over(self, answer: SimulatedAnswer, ending: str) -> None:
        """After the last byte or a disconnect: log it, and abort sequences that are still computed."""
        if answer.truth.ending:
            return
        self.truth.ended(answer.truth, ending)
        self.answering -= 1
        if ending != "ok":
            self._writer.forget()
            for part in answer.parts:
                self.loop.abort(part.sequence)
        elif isinstance(answer, FaultyAnswer):
            self._close_by_fault(answer)

    def _close_by_fault(self, answer: FaultyAnswer) -> None:
        if answer.faults.close_after:
            answer.reply.close()
        elif answer.faults.close_next:
            self._doomed.add(answer.reply._connection)


def run_server(
    settings: SimulatorSettings,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    on_ready: Callable[[SimulatorServer], None] = lambda server: None,
    truth_path: Path | None = None,
    until_stdin_closes: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT; then write the truth log, if requested."""
    reactor = Reactor()
    server = SimulatorServer(reactor, settings, host, port)
    undo = [reactor.on_signal(number, reactor.stop) for number in (signal.SIGTERM, signal.SIGINT)]
    if until_stdin_closes:
        _stop_with_stdin(reactor, server)
    gc.freeze()  # a full collection must not stop every stream to traverse imported objects
    try:
        on_ready(server)
        reactor.run()
    finally:
        for restore in undo:
            restore()
        if truth_path is not None:
            server.truth.write(truth_path)
        server.close()
        reactor.close()


def _stop_with_stdin(reactor: Reactor, server: SimulatorServer) -> None:
    """End when our parent dies and stdin closes, but only after clients have disconnected, because they would record
    cut answers otherwise."""
    fd = sys.stdin.fileno()

    def readable(_events: int) -> None:
        if not os.read(fd, 4096):
            reactor.unwatch(fd)
            stop_when_quiet(now() + LINGER_NS)

    def stop_when_quiet(latest_at: int) -> None:
        if server.answering and now() < latest_at:
            reactor.call_at(now() + POLL_NS, lambda: stop_when_quiet(latest_at))
        else:
            reactor.stop()

    try:
        reactor.watch(fd, readable)
    except PermissionError:
        raise InferometerError("stdin: must be a pipe for --until-stdin-closes, got a file") from None
