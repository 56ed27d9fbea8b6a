"""The application: an ingress with an HTTP interface, and replicas that run the simulator. Between them is Ray's handle
with its request router, which is what is measured."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from ray import serve
from ray.util import metrics as ray_metrics
from starlette.responses import Response, StreamingResponse

from inferometer.router.feed import PATH as JOURNAL
from inferometer.router.journal import write_events
from inferometer.simulator.server import SimulatorServer
from inferometer.simulator.settings import settings_from
from inferometer.target.ray_serve.notes import NOTES
from inferometer.target.ray_serve.settings import POLICIES, RayServeSettings, vllm_config
from inferometer.wire.http1 import ROUTED_TO
from inferometer.wire.reactor import Reactor, now

RECORDED = "/router/recorded"
GENERATIONS = ("/v1/completions", "/v1/chat/completions")
READ_SIZE = 1 << 16
START_S = 30.0


@dataclass(frozen=True)
class ReplicaCall:
    """A request for tokens sent to a replica. Ray's prefix-aware router reads `prompt` or `messages`."""

    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Completion(ReplicaCall):
    prompt: Any = None


@dataclass(frozen=True)
class ReplicaConversation(ReplicaCall):
    messages: Any = None


@dataclass(frozen=True)
class ReplicaHead:
    """The first part of a response."""

    status: int
    content_type: str
    replica: str


class _Prompts(msgspec.Struct):
    prompt: Any = None
    messages: Any = None


_prompts = msgspec.json.Decoder(_Prompts)


def call_of(path: str, body: bytes, headers: dict[str, str]) -> tuple[ReplicaCall, bool]:
    """The call, and whether it has a text to route by: Ray's router divides by its length."""
    try:
        read = _prompts.decode(body)
    except (msgspec.DecodeError, RecursionError):  # the replica refuses it
        return ReplicaCall(path, body, headers), False
    if isinstance(read.messages, list) and read.messages:
        return ReplicaConversation(path, body, headers, read.messages), any(
            isinstance(message, dict) and message.get("content") for message in read.messages
        )
    return Completion(path, body, headers, read.prompt), isinstance(read.prompt, str) and bool(read.prompt)


class Ingress:
    """The HTTP interface for clients. Requests other than to its own paths are answered by a replica."""

    def __init__(self, engine: Any, recorded: bool) -> None:
        self._engine = engine.options(stream=True)
        self._recorded = recorded

    async def __call__(self, request: Any) -> Any:
        path = request.url.path
        if path == "/health":
            return Response()
        if self._recorded and path in (JOURNAL, RECORDED):
            return self._notes(path, request.query_params.get("since", "0"))
        kept = {name: request.headers[name] for name in ("x-request-id", "x-prefix-id") if name in request.headers}
        call, has_text = call_of(path, await request.body(), kept)
        routed = has_text and request.method == "POST" and path in GENERATIONS
        answers = self._engine.generate.remote(*([call] if routed else []), **({} if routed else {"call": call}))
        head: ReplicaHead = await anext(aiter(answers))
        named = {ROUTED_TO: head.replica}
        return StreamingResponse(answers, head.status, named, head.content_type)

    def _notes(self, path: str, since: str) -> Any:
        if path == RECORDED:
            return Response(write_events(NOTES.events), media_type="application/x-ndjson")
        page = NOTES.feed.page(int(since) if since.isdigit() else 0, time.monotonic_ns())
        return Response(msgspec.json.encode(page), media_type="application/json")


class SimulatorReplica:
    """The simulator on a thread of the replica's process; calls reach it over loopback, like those of external clients.
    Its metrics are also exported by Ray, under the names that vLLM has on Ray."""

    def __init__(self, settings: dict[str, Any], metrics_interval_ms: int, stream_interval_ms: float) -> None:
        self._name = str(serve.get_replica_context().replica_id.unique_id)
        self._settings, self._metrics_s = settings, metrics_interval_ms / 1e3
        self._pause_s = stream_interval_ms / 1e3
        self._port = 0
        started = threading.Event()
        threading.Thread(target=self._simulate, args=(started,), name="simulator", daemon=True).start()
        if not started.wait(START_S):
            raise RuntimeError(f"the simulator did not start within {START_S:g} s")

    def _simulate(self, started: threading.Event) -> None:
        reactor, published = Reactor(), RayMetrics(self._name)
        server = SimulatorServer(reactor, settings_from(self._settings))
        self._port = server.port

        def publish() -> None:
            published.publish(server)
            reactor.call_at(now() + round(self._metrics_s * 1e9), publish)

        publish()
        started.set()
        reactor.run()

    async def generate(self, call: ReplicaCall) -> AsyncIterator[ReplicaHead | bytes]:
        """The response head, then the body; data that arrives within an interval is sent together."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(_request(call))
            status, headers = await _head(reader)
            yield ReplicaHead(status, headers.get("content-type", "application/json"), self._name)
            if headers.get("transfer-encoding") != "chunked":
                yield await reader.readexactly(int(headers.get("content-length", "0")))
                return
            async for piece in _together(reader, self._pause_s):
                yield piece
        finally:  # also if the client disconnected: the simulator then ends the answer
            writer.close()


def _request(call: ReplicaCall) -> bytes:
    method = "POST" if call.body else "GET"
    fields = {"host": "127.0.0.1", "connection": "close", "content-length": str(len(call.body)), **call.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {call.path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + call.body


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(first.split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """The next chunk of a chunked body; empty at its end."""
    size = int(await reader.readline(), 16)
    return (await reader.readexactly(size + 2))[:-2]


async def _together(reader: asyncio.StreamReader, pause_s: float) -> AsyncIterator[bytes]:
    """The first chunk immediately, then the data of each interval: every piece costs Ray a message."""
    due = 0.0
    pieces: list[bytes] = []
    pending: asyncio.Task[bytes] | None = None
    loop = asyncio.get_running_loop()
    while True:
        pending = pending or loop.create_task(_chunk(reader))
        left = max(0.0, due - loop.time()) if pieces else None
        done, _ = await asyncio.wait({pending}, timeout=left)
        if done:
            piece, pending = pending.result(), None
            if not piece:
                break
            pieces.append(piece)
        if pieces and loop.time() >= due:
            yield b"".join(pieces)
            pieces, due = [], loop.time() + pause_s
    if pieces:
        yield b"".join(pieces)


class RayMetrics:
    """The simulator's metrics at Ray's export port, updated at an interval. All except counters are gauges: Ray stores
    how many values fell into each bucket of a histogram and computes its sum from the middles of the buckets, so that a
    mean of 30 ms in a first bucket of 300 ms would be reported as 150 ms."""

    def __init__(self, replica: str) -> None:
        self._tags = {"ReplicaId": replica}
        self._metrics: dict[str, Any] = {}
        self._before: dict[tuple[str, tuple[str, ...]], float] = {}

    def publish(self, server: SimulatorServer) -> None:
        while server.metrics.work_off():
            pass
        for family in server.metrics.collect():
            if family.name.startswith("vllm:"):
                for sample in family.samples:
                    if not sample.name.endswith("_created"):
                        name = family.name if family.type == "counter" else sample.name
                        self._take(name, family.type == "counter", sample.labels, sample.value)

    def _take(self, name: str, counts: bool, labels: dict[str, str], value: float) -> None:
        tags = {**labels, **self._tags}
        key = (name, tuple(tags.values()))
        before = self._before.get(key)
        if value == before:
            return
        made = self._metrics.get(name)
        if made is None:
            maker = ray_metrics.Counter if counts else ray_metrics.Gauge
            made = self._metrics[name] = maker(_exported(name), tag_keys=tuple(tags))
        if not counts:
            made.set(value, tags=tags)
        elif value > (before or 0.0):
            made.inc(value - (before or 0.0), tags=tags)
        self._before[key] = value


def _exported(name: str) -> str:
    """Ray adds the prefix `ray_` and no longer accepts colons."""
    return name.replace(":", "_")


# -- deployments -----------------------------------------------------------------------------------------------------


def router_config(settings: RayServeSettings) -> Any:
    """Which of Ray's routers, with its settings."""
    from ray.serve.config import RequestRouterConfig

    policy, recorded = POLICIES[settings.policy], settings.args.record
    more = {"with_text": settings.args.record_text} if recorded else {}
    return RequestRouterConfig(
        request_router_class=policy.recorded if recorded else policy.as_it_is,
        request_router_kwargs={**settings.router_kwargs, **more},
    )


def simulator_app(settings: RayServeSettings) -> Any:
    args = settings.args
    replica = serve.deployment(SimulatorReplica).options(
        name="engine",
        num_replicas=settings.replicas,
        max_ongoing_requests=settings.max_in_flight,
        ray_actor_options={"num_cpus": args.cpus_per_replica},
        request_router_config=router_config(settings),
    )
    ingress = serve.deployment(Ingress).options(
        name="ingress", max_ongoing_requests=1_000_000, ray_actor_options={"num_cpus": 0}
    )
    engine = replica.bind(settings.engine_args, args.metrics_interval_ms, args.stream_interval_ms)
    return ingress.bind(engine, args.record)


def vllm_app(settings: RayServeSettings) -> Any:
    """Ray's own LLM application, with its own ingress: no code of ours is in it."""
    from ray.serve.llm import LLMConfig, build_openai_app

    return build_openai_app({"llm_configs": [LLMConfig(**vllm_config(settings))]})
