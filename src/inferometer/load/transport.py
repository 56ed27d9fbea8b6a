"""Requests over HTTP: builds their bytes, passes them to the client, turns answers into records when there is time; and
the first request of a plan as a curl command."""

import os
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import orjson

from inferometer.load.answer import (
    StreamTokens,
    form_check,
    kernel_stamped,
    last_stamp,
    learn_early,
    new_record,
    reading_answer,
)
from inferometer.load.clock import Done, Ended, Ticket
from inferometer.plan.model import Plan, Target, Traffic
from inferometer.plan.secrets import key_of, redacted, redacted_fields, redacted_url, redactor_of, resolve_headers
from inferometer.record.record import Outcome, Record
from inferometer.record.sanitize import harmless
from inferometer.wire.api import Manner, api_of
from inferometer.wire.apis.template import template_body
from inferometer.wire.client import Client
from inferometer.wire.connection import READ_COST
from inferometer.wire.exchange import Exchange
from inferometer.wire.http1 import ROUTED_TO, Piecewise, whole
from inferometer.wire.origin import Origin, origin_of, tls_context
from inferometer.wire.reactor import Reactor
from inferometer.wire.sockets import ClockPair
from inferometer.workload.session import Prompt, Request, context_of, new_nonce, workload_of

# -- transport -------------------------------------------------------------------------------------------------------

BACKLOG_BYTES = 256 * 1024 * 1024  # maximum size of answers waiting to be read in idle moments
FULL_BACKLOG = 0.5  # the share above which every answer that ends also has waiting ones read,
FULL_READING_NS = 50_000_000  # for this long, idle or not: longer than one answer takes, so the backlog shrinks

MOST_LENGTHS = 4096  # distinct answer lengths, for each of which the constant part of a body is cached
_PROBE = "\u2042 a prompt"

LONGEST_ID = 200  # characters of an id or a finish reason; those of real servers have up to 50
MOST_REASONS = 100
MOST_ROUTED = 1000  # replicas that a router may report

EXCHANGE_BYTES = 4096  # memory of an exchange in addition to its request and its answer
LARGE_BYTES = 16 * 1024  # of an answer: a smaller one is read in milliseconds, whatever its content


Reading = Piecewise[tuple[Record, str]]  # an answer as a record and, if it is kept, its text


class HttpTransport:
    """Carries requests to a target's URLs in turn. Answers are read in idle moments: `read_one` is the reactor's idle
    work."""

    def __init__(self, reactor: Reactor, plan: Plan, model: str | None, clocks: ClockPair) -> None:
        target = plan.target
        self._reactor = reactor
        secure = any(url.startswith("https:") for url in target.url)
        tls = tls_context(*target.tls.trust) if secure else None
        self.clients = [_client(reactor, target, origin_of(url, tls, target.proxy)) for url in target.url]
        self._clocks = clocks
        self._api = api_of(target.api)
        self._session_header = target.session_header
        self._encoders = {traffic.name: Encoder(plan, traffic, model) for traffic in plan.classes}
        self._checks = {traffic.name: form_check(traffic.sampling.structure) for traffic in plan.classes}
        self._keep_prompts, self._keep_answers = plan.save.prompts, plan.save.answers
        self._replicas = {url: redacted_url(url) for url in target.url}
        self._routed: dict[str, str] = {}  # names of replicas behind a router, as it reports them
        self._redactor = redactor_of(plan)
        self._reasons: dict[str, str] = {}  # finish reasons seen so far: there are a handful
        self._most_held = target.bounds.memory
        self._most_backlog = min(BACKLOG_BYTES, self._most_held)
        reactor.on_full = self._end_largest
        self._backlog: deque[tuple[int, Exchange, Request, Ticket, Done]] = deque()  # each with its memory size
        self._backlog_bytes = 0
        self._reading: tuple[Reading, Done] | None = None  # a large answer that is read with pauses
        self._live: dict[Reading, Callable[[Record, str], None]] = {}  # large ones that a next turn waits for
        self.stamps = "kernel"  # until an exchange had no kernel timestamp

    def connect(self, count: int, on_ready: Callable[[], None]) -> None:
        """Open this many connections in advance, spread over the URLs; `on_ready` is called when all are open or have
        failed."""
        pending = count
        if not count:
            on_ready()

        def one_more() -> None:
            nonlocal pending
            pending -= 1
            if pending == 0:
                on_ready()

        for number in range(count):
            self.clients[number % len(self.clients)].open(1, one_more)

    def send(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        client = self.clients[(ticket.session + ticket.turn) % len(self.clients)]
        data = request.wire or self._encoded(request, ticket.traffic, ticket.session, client.origin)
        request.wire = None  # the exchange has them now

        def on_end(exchange: Exchange) -> None:
            stamp = last_stamp(exchange, self._clocks.offset_ns) if exchange.outcome in {"ok", "status"} else None
            ended_at = stamp or exchange.ended_at or 0
            if ticket.live:
                large = _memory_of(exchange) >= LARGE_BYTES
                self._read_now(self._read(exchange, request, ticket), large, done, lambda: ended(ended_at))
                return
            ended(ended_at)
            answer = _memory_of(exchange)
            if answer >= LARGE_BYTES and self._has_no_room(exchange, answer):
                self._refuse(exchange)
                answer = _memory_of(exchange)
            if exchange.outcome != "ok" and answer < LARGE_BYTES:  # if everything fails, an idle moment may never come
                done(*whole(self._read(exchange, request, ticket)))
            else:
                self._read_later(answer, exchange, request, ticket, done)
                if client.teaches(exchange):
                    learn_early(exchange, self._api)
                    client.learn_shape(exchange)

        recognise = not self._wants_text(ticket)
        return client.fetch(data, on_end, recognise=recognise, on_read=self._counter(ticket)).end

    def _wants_text(self, ticket: Ticket) -> bool:
        return self._keep_answers or ticket.live or self._checks.get(ticket.traffic) is not None

    def _counter(self, ticket: Ticket) -> Callable[[Exchange], None] | None:
        """Returns the callback that ends a request after the number of tokens that the plan allows."""
        if ticket.most_tokens is None or ticket.on_most is None:
            return None
        counting, most, on_most = StreamTokens(self._api), ticket.most_tokens, ticket.on_most

        def look(exchange: Exchange) -> None:
            if counting.reaches(exchange, most):
                on_most()

        return look

    def _read_now(self, reading: Reading, large: bool, done: Done, then: Callable[[], None]) -> None:
        """Read an answer that the next turn waits for; a large one in pieces, between other due work."""

        def finish(record: Record, text: str) -> None:
            done(record, text)
            then()

        if not large:
            finish(*whole(reading))
            return
        self._live[reading] = finish
        if len(self._live) == 1:
            self._reactor.call_at(self._reactor.now(), self._read_live)

    def _read_live(self) -> None:
        """A piece of the first one: if a hundred of them end at once, time limits are checked in between."""
        if not self._live:
            return  # they were read to their end when everything was over
        reading = next(iter(self._live))
        try:
            next(reading)
        except StopIteration as end:
            self._live.pop(reading)(*end.value)
        if self._live:
            self._reactor.call_at(self._reactor.now(), self._read_live)

    def _read_later(self, answer: int, exchange: Exchange, request: Request, ticket: Ticket, done: Done) -> None:
        """Queue an answer of this many bytes for reading later."""
        weight = EXCHANGE_BYTES + len(exchange.request) + answer
        self._backlog.append((weight, exchange, request, ticket, done))
        self._backlog_bytes += weight
        until = self._reactor.now() + FULL_READING_NS
        while self._is_full and self._reactor.now() < until:
            self.read_one()

    @property
    def _is_full(self) -> bool:
        return self._backlog_bytes > FULL_BACKLOG * self._most_backlog

    def _has_no_room(self, exchange: Exchange, answer: int) -> bool:
        """The tokens of a failed answer are not needed, so it does not wait in the queue."""
        return self._backlog_bytes + answer > self._most_backlog or (self._is_full and exchange.outcome != "ok")

    def _refuse(self, exchange: Exchange) -> None:
        """Handles large answers that arrive faster than they can be read, which only hostile servers achieve: reading
        them now would delay the time limits of the others, and keeping them would fill the memory."""
        if exchange.outcome == "ok":
            exchange.outcome = "oversized"
            exchange.error = f"unread answers are larger in total than {self._most_backlog:,} bytes"
        exchange.keep_beginning()

    def _encoded(self, request: Request, traffic: str, session: int, origin: Origin) -> bytes:
        if self._session_header is not None:
            request.headers = {**request.headers, self._session_header: f"session-{session}"}
        return self._encoders[traffic].encode(request, origin)

    def _end_largest(self) -> None:
        """The answers in progress fill their memory limit: end the largest one."""
        under_way = [exchange for client in self.clients if (exchange := client.largest()) is not None]
        if under_way:
            largest = max(under_way, key=lambda exchange: exchange.size)
            most = f"{self._most_held:,} bytes"
            largest.end("oversized", f"answers in flight larger in total than {most}; this one is the largest")

    def prepare(self, request: Request, traffic: str, session: int) -> int:
        origin = self.clients[session % len(self.clients)].origin
        request.wire = self._encoded(request, traffic, session, origin)
        return 2 * len(request.wire)  # the prompt is kept as well

    def read_one(self) -> bool:
        """Read the oldest waiting answer, or a few thousand more events of a large one; returns whether there was
        anything to do."""
        if self._reading is None:
            if not self._backlog:
                return False
            weight, exchange, request, ticket, done = self._backlog.popleft()
            self._backlog_bytes -= weight
            self._reading = self._read(exchange, request, ticket), done
        reading, done = self._reading
        try:
            next(reading)
        except StopIteration as end:
            self._reading = None
            done(*end.value)
        return True

    def read_some(self, most: int) -> None:
        """Read up to this many waiting answers, but only a piece of a large one, and no more than there is time for: a
        document of a megabyte takes up to 0.4 s."""
        until = self._reactor.now() + FULL_READING_NS
        for _ in range(most):
            if not self.read_one() or self._reading is not None or self._reactor.now() > until:
                break

    def leave_unread(self) -> None:
        """Record the answers still waiting without their tokens, as cancelled."""
        for _weight, exchange, *_ in self._backlog:
            if exchange.outcome == "ok":
                exchange.outcome, exchange.error = "cancelled", "the answer came and was not read"
            exchange.keep_beginning()

    def close(self) -> None:
        self._read_all()
        for client in self.clients:
            client.close()
        self._read_all()

    def _read_all(self) -> None:
        while self._live:
            reading, finish = self._live.popitem()
            finish(*whole(reading))
        while self.read_one():
            pass

    def _replica(self, exchange: Exchange) -> str:
        """Which URL of the target was used; behind our router, the replica that the router names."""
        behind = exchange.head.headers.get(ROUTED_TO) if exchange.head is not None else None
        if behind is not None and behind not in self._routed and len(self._routed) < MOST_ROUTED:
            self._routed[behind] = harmless(self._redactor.hide(behind))[:LONGEST_ID]
        return self._routed.get(behind or "") or self._replicas[exchange.client.origin.url]

    def _read(self, exchange: Exchange, request: Request, ticket: Ticket) -> Reading:
        record = new_record(ticket)
        record.replica, record.model = self._replica(exchange), request.model
        record.requested_input = request.input_tokens if self._api.prompt_once else None
        record.requested_output = request.output_tokens if self._api.generates else None
        keep_text = self._wants_text(ticket)
        text = yield from reading_answer(record, exchange, self._api, self._clocks.offset_ns, keep_text)
        check = self._checks.get(ticket.traffic)
        if check is not None and record.outcome == "ok":
            record.structure = check(text)
        if exchange.learned is not None:
            exchange.client.learn_shape(exchange)
        self._clean(record)
        if not kernel_stamped(exchange):
            self.stamps = "read"
        if self._keep_prompts:
            record.prompt = request.prompt if isinstance(request.prompt, str) else orjson.dumps(request.prompt).decode()
        if self._keep_answers:
            record.answer = self._redactor.hide(text)
        return record, text

    def _clean(self, record: Record) -> None:
        """Store text from a server without our secrets, which servers may echo, and without characters that control a
        terminal; secrets are removed before the text is cut."""
        if record.error is not None:
            record.error = harmless(self._redactor.message(record.error))
        name = record.request_id
        if name is not None and (self._redactor.may_hold(name) or len(name) > LONGEST_ID or not name.isprintable()):
            record.request_id = harmless(self._redactor.message(name, LONGEST_ID))
        reason = record.finish_reason
        if reason is not None:
            if reason not in self._reasons:
                if len(self._reasons) >= MOST_REASONS:
                    self._reasons.clear()
                self._reasons[reason] = harmless(self._redactor.message(reason, LONGEST_ID))
            record.finish_reason = self._reasons[reason]


def _memory_of(exchange: Exchange) -> int:
    """Bytes of memory that an answer uses."""
    collected = len(exchange.bulk[0]) + len(exchange.bulk[1]) if exchange.bulk else 0
    if not exchange.reads:
        return collected
    return sum(map(len, exchange.reads)) + len(exchange.reads) * READ_COST + collected


class Encoder:
    """Encodes the requests of one traffic class: all constant parts are built once."""

    def __init__(
        self, plan: Plan, traffic: Traffic, model: str | None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._target = plan.target
        self._traffic = traffic
        self._model = model
        self._api = api_of(plan.target.api)
        self._headers = request_headers(plan.target, traffic, environ)
        self._fields = {
            with_length: self._api.fields(manner_of(plan.target, traffic, with_length)) for with_length in (False, True)
        }
        self._heads: dict[str, bytes] = {}
        self._around = lru_cache(MOST_LENGTHS)(self._around_prompt)

    def encode(self, request: Request, origin: Origin) -> bytes:
        """Request line, headers and body."""
        body = self.body(request)
        head = self._heads.get(origin.url) or self._head(origin)
        if not request.headers:
            return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
        own = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items()).encode()
        return b"%bContent-Length: %d\r\n%b\r\n%b" % (head, len(body), own, body)

    def body(self, request: Request) -> bytes:
        if self._target.body is not None:
            prompt = request.prompt if isinstance(request.prompt, str) else str(request.prompt)
            return template_body(self._target.body, prompt)
        own = request.body
        if not own and isinstance(request.prompt, str) and (around := self._around(request.output_tokens)):
            return orjson.dumps(request.prompt).join(around)
        if self._api.tools is not None and "tools" in own:
            own = self._api.tools(own)
        return self._api.encode(self._body_fields(request.prompt, request.output_tokens) | own)

    def _body_fields(self, prompt: Prompt, output_tokens: int | None) -> dict[str, Any]:
        fields = self._api.body(self._model, prompt) | self._fields[output_tokens is not None]
        self._api.ask_length(fields, output_tokens)
        return fields

    def _around_prompt(self, output_tokens: int | None) -> list[bytes]:
        """The parts before and after the prompt, if everything else in a body is the same for every text prompt; empty
        otherwise."""
        if not self._api.prompt_as_is:
            return []
        around = self._api.encode(self._body_fields(_PROBE, output_tokens)).split(orjson.dumps(_PROBE))
        return around if len(around) == 2 else []

    def _head(self, origin: Origin) -> bytes:
        path = request_path(origin, self._target)
        lines = [f"POST {origin.request_target(path)} HTTP/1.1", f"Host: {origin.authority}"]
        lines += [f"{name}: {value}" for name, value in (origin.proxy_headers | self._headers).items()]
        head = ("\r\n".join(lines) + "\r\n").encode("latin-1")
        self._heads[origin.url] = head
        return head


def request_path(origin: Origin, target: Target) -> str:
    """The path of the API below the URL, whether or not the URL already ends with /v1."""
    api = api_of(target.api)
    if api.templated and target.path is None:
        return origin.path or "/"
    path = target.path or (api.path if target.stream else api.whole_path or api.path)
    if origin.path.endswith("/v1") and path.startswith("/v1/"):
        path = path.removeprefix("/v1")
    return origin.path + path


def request_headers(target: Target, traffic: Traffic, environ: Mapping[str, str]) -> dict[str, str]:
    """The headers of every request of a class, including the key."""
    api = api_of(target.api)
    headers = {"Content-Type": "application/json", "Accept": _accepted(target)} | api.headers
    if key := key_of(target, environ):
        headers |= api.credentials(key)
    own = resolve_headers(target.headers | traffic.headers, environ)
    names = {name.lower() for name in own}
    return {name: value for name, value in headers.items() if name.lower() not in names} | own


def _accepted(target: Target) -> str:
    api = api_of(target.api)
    if not target.stream or not api.generates:
        return "*/*"
    return "text/event-stream, */*" if api.in_pieces else "text/event-stream"


def manner_of(target: Target, traffic: Traffic, with_length: bool) -> Manner:
    """The request settings of a class, in the terms of `wire`."""
    sampling = traffic.sampling
    names = ("min_tokens", "temperature", "top_p", "stop")
    structured = {} if sampling.structured is None else sampling.structured.fields(target.api)
    given = {name: value for name in names if (value := getattr(sampling, name)) is not None}
    return Manner(
        stream=target.stream,
        continuous_usage=target.continuous_usage,
        with_length=with_length,
        ignore_eos=sampling.ignore_eos if sampling.whole_answers else False,
        sampling=given,
        extra=structured | sampling.extra,
    )


def _client(reactor: Reactor, target: Target, origin: Origin) -> Client:
    return Client(
        reactor,
        origin,
        connect_timeout_s=target.timeout.connect,
        request_timeout_s=target.timeout.request,
        idle_timeout_s=target.timeout.idle,
        most_answer=target.bounds.answer,
    )


# -- curl ------------------------------------------------------------------------------------------------------------

SOME_URL = "http://127.0.0.1:PORT"  # of a server that is not started yet
_POINTER = re.compile(r"(\$\{[A-Za-z_][A-Za-z0-9_]*\})")


def first_request_as_curl(plan: Plan, environ: Mapping[str, str], model: str | None = None) -> str:
    """As the first traffic class would send it; `model` is the requested model name."""
    traffic = plan.classes[0]
    context = context_of(plan.target, model)
    request = workload_of(traffic.workload, plan.seed, traffic.draw, new_nonce(), context)(0).turns[0]
    safe = redacted(plan, environ)
    bare = safe.model_copy(update={"target": safe.target.model_copy(update={"headers": {}})})
    encoder = Encoder(bare, bare.classes[0].model_copy(update={"headers": {}}), model, {})
    headers = request_headers(plan.target, traffic, _Pointers(environ)) | request.headers
    lines = [
        f"curl {'-N ' if plan.target.stream else ''}{shlex.quote(_address(plan))}",
        *_settings(plan),
        *(f"-H {_double_quoted(f'{name}: {value}')}" for name, value in redacted_fields(headers).items()),
        f"-d {shlex.quote(redactor_of(plan, environ=environ).hide(encoder.body(request).decode(errors='replace')))}",
    ]
    return " \\\n  ".join(lines)


def _address(plan: Plan) -> str:
    url = plan.target.url[0] if plan.target.url else SOME_URL.replace("PORT", "1")
    address = redacted_url(url.rstrip("/"))
    origin = origin_of(url)
    full = address.removesuffix(origin.path) + request_path(origin, plan.target)
    return full if plan.target.url else full.replace(":1/", ":PORT/", 1)


def _settings(plan: Plan) -> Iterator[str]:
    """The connection settings as options of curl."""
    target = plan.target
    if not target.tls.verify:
        yield "--insecure"
    for flag, value in (("--cacert", target.tls.ca), ("--cert", target.tls.cert), ("--key", target.tls.key)):
        if value is not None:
            yield f"{flag} {shlex.quote(value)}"
    if target.proxy is not None:
        yield f"--proxy {shlex.quote(redacted_url(target.proxy))}"


class _Pointers(Mapping[str, str]):
    """An environment that returns `${NAME}` for each name, for the shell to substitute."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __getitem__(self, name: str) -> str:
        self._environ[name]
        return f"${{{name}}}"

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)


def _double_quoted(text: str) -> str:
    """In double quotes, where only references to the environment have a meaning for the shell."""
    parts = _POINTER.split(text)
    plain = (re.sub(r'([\\"`$])', r"\\\1", part) if number % 2 == 0 else part for number, part in enumerate(parts))
    return f'"{"".join(plain)}"'
