"""The hostile servers, each a short function: what it sends in place of a right answer.

An attack says which outcomes are right for a request that it hits: `OK` where the answer is odd but right by the
standards (RFC 9112, the HTML standard's event streams), `FAILED` where it can be no success, `ANY` where both are fair.
"""

import gzip
import json
import time
from collections.abc import Callable
from typing import Any

from inferometer.record.record import CENSORED, OUTCOMES

from .dialects import Content, event_bytes
from .hostile import EVENTS, Attack, Caller, Place, chunk

OK = frozenset({"ok"})
FAILED = frozenset(OUTCOMES) - OK - CENSORED
ANY: frozenset[str] = frozenset()
AT_ONCE = OK | FAILED - {"timeout"}  # nothing is missing, so there is nothing to wait for
STATUS = frozenset({"status"})

ATTACKS: list[Attack] = []
Act = Callable[[Caller], None]


def attack(name: str, expected: frozenset[str] = FAILED, **more: Any) -> Callable[[Act], Act]:
    def enter(act: Act) -> Act:
        ATTACKS.append(Attack(name, act, expected, **more))
        return act

    return enter


def nothing(caller: Caller) -> None:
    """For servers that are hostile in how they listen."""
    caller.close()


def says(name: str, data: bytes, expected: frozenset[str] = FAILED, *, then: Act = Caller.hold, **more: Any) -> None:
    """An attack that is a few bytes."""

    def act(caller: Caller) -> None:
        caller.send(data)
        then(caller)

    attack(name, expected, **more)(act)


def answers(name: str, content: Content, expected: frozenset[str] = ANY, **more: Any) -> None:
    """An attack that is one odd field of an answer that is right otherwise."""
    attack(name, expected, **more)(lambda caller: caller.send(caller.good(content)))


# -- connections -----------------------------------------------------------------------------------------------

ATTACKS.append(Attack("refuses connections", nothing, at="models", listens=False))
ATTACKS.append(Attack("accepts late", lambda caller: caller.send(caller.good()), OK, accepts_after_s=0.5))
attack("closes at once")(Caller.close)
attack("resets at once")(Caller.reset)
attack("is silent")(Caller.hold)


@attack("resets in the middle")
def _(caller: Caller) -> None:
    caller.send(caller.good()[:-40])
    caller.stop.wait(0.1)  # a reset overtakes what the client has not read yet
    caller.reset()


@attack("closes in the middle")
def _(caller: Caller) -> None:
    caller.send(caller.good()[:-40])
    caller.close()


@attack("half closes after the answer", OK)
def _(caller: Caller) -> None:
    caller.send(caller.good())
    caller.half_close()
    caller.hold()


@attack("half closes instead of an answer")
def _(caller: Caller) -> None:
    caller.half_close()
    caller.hold()


@attack("urgent bytes in between", OK)
def _(caller: Caller) -> None:
    caller.send(caller.head())
    caller.send_urgently(b"!")
    caller.send(caller.chunked(caller.body()))


@attack("dies half way", hits=lambda number: number > 10, requests=30)
def _(caller: Caller) -> None:
    caller.server.die()
    caller.reset()


# -- status line and headers -----------------------------------------------------------------------------------

says("half a status line", b"HTTP/1.1 20")
says("half a status line, then closes", b"HTTP/1.1 20", then=Caller.close)
says("status of letters", b"HTTP/1.1 abc OK\r\ncontent-length: 2\r\n\r\n{}")
says("status of 40 digits", b"HTTP/1.1 " + b"2" * 40 + b" OK\r\ncontent-length: 2\r\n\r\n{}")
says("status 99", b"HTTP/1.1 99 Low\r\ncontent-length: 2\r\n\r\n{}")
says("HTTP/2 frames", b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80")
says("TLS on a plain port", b"\x15\x03\x03\0\x02\x02\x28", then=Caller.close)
says("NULs", b"\0" * 5000)
says("headers that never end in a blank line", b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n")
says("switches protocols", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: chaos\r\n\r\n")
says("204 without content", b"HTTP/1.1 204 No Content\r\n\r\n", then=lambda _caller: None)
says("304", b"HTTP/1.1 304 Not Modified\r\n\r\n", then=lambda _caller: None)
says(
    "redirects to itself", b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", then=lambda _caller: None
)
says(
    "429",
    b"HTTP/1.1 429 Too Many\r\nretry-after: 99999999999\r\ncontent-length: 0\r\n\r\n",
    STATUS,
    then=lambda _c: None,
)
says(
    "429 with an odd retry-after",
    b"HTTP/1.1 429 N\r\nretry-after: nan\r\ncontent-length: 0\r\n\r\n",
    STATUS,
    then=lambda _c: None,
)
says(
    "503 to 95%",
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy",
    STATUS,
    then=lambda _caller: None,
    hits=lambda number: number % 20 != 0,
    requests=40,
)
attack("endless headers")(lambda caller: caller.flood(b"HTTP/1.1 200 OK\r\n", b"x-more: and more\r\n"))
attack("endless status line")(lambda caller: caller.flood(b"HTTP/1.1 200 ", b"OK and fine "))
attack("100 Continue without end")(lambda caller: caller.flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"))
attack("1,000 times 100 Continue", ANY)(
    lambda caller: caller.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, caller.good())
)
attack("status line 200OK", ANY)(lambda caller: caller.send(caller.good().replace(b"200 OK", b"200OK", 1)))
attack("lines that end in LF", ANY)(lambda caller: caller.send(caller.good().replace(b"\r\n", b"\n")))
attack("HTTP/1.0", OK)(lambda caller: caller.send(caller.good().replace(b"HTTP/1.1", b"HTTP/1.0", 1)))
attack("hints before the answer", OK)(
    lambda caller: caller.send(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 3, caller.good())
)
attack("folded framing", OK)(lambda caller: caller.send(caller.good().replace(b"encoding: ", b"encoding:\r\n ", 1)))
attack("folded header", ANY)(lambda caller: caller.send(caller.good().replace(b"\r\n", b"\r\nx-a: b\r\n c\r\n", 1)))
attack("header without a colon", ANY)(lambda caller: caller.send(caller.good().replace(b"\r\n", b"\r\nodd\r\n", 1)))
attack("10,000 headers", ANY)(
    lambda caller: caller.send(caller.good().replace(b"\r\n", b"\r\n" + b"x-a: b\r\n" * 10_000, 1))
)
attack("drips one byte at a time")(lambda caller: caller.drip(caller.good() * 3))


@attack("Text/Event-Stream in capitals", OK, only="streams")
def _(caller: Caller) -> None:
    caller.send(caller.good().replace(b"text/event-stream", b"Text/Event-Stream; Charset=UTF-8"))


# -- lengths and chunks ----------------------------------------------------------------------------------------


def body_of(length: Callable[[int], str], expected: frozenset[str], name: str, then: Act, **more: Any) -> None:
    """An attack by what is said of the body's length."""

    def act(caller: Caller) -> None:
        body = b"".join(caller.body())
        caller.send(caller.head(*length(len(body)).split("|")), body)
        then(caller)

    attack(name, expected, **more)(act)


body_of(
    lambda size: f"content-length: {size // 2}",
    AT_ONCE - OK,
    "content-length too small",
    lambda _caller: None,
    is_text=True,  # and streams of the template have no end that could be missing
)
body_of(lambda size: f"content-length: {size + 30}", AT_ONCE, "content-length too large, then closes", Caller.close)
body_of(lambda size: f"content-length: {size + 30}", ANY, "content-length too large, then silence", Caller.hold)
body_of(lambda _size: "content-length: -5", ANY, "content-length below 0", Caller.close)
body_of(lambda _size: "content-length: many", ANY, "content-length of letters", Caller.close)
body_of(lambda _size: f"content-length: {'9' * 30}", ANY, "content-length of 30 digits", Caller.close)
body_of(lambda size: f"content-length: {size}|content-length: 7", ANY, "two content-lengths", Caller.close)
body_of(lambda size: f"content-length: {size}|content-encoding: gzip", ANY, "gzip said, not done", lambda _caller: None)


@attack("gzip done though nobody asked", ANY)
def _(caller: Caller) -> None:
    body = gzip.compress(b"".join(caller.body()))
    caller.send(caller.head(f"content-length: {len(body)}", "content-encoding: gzip"), body)


def chunks(name: str, data: bytes, expected: frozenset[str] = FAILED, then: Act = Caller.hold) -> None:
    """An attack in place of the second chunk."""

    def act(caller: Caller) -> None:
        first, *_ = caller.body()
        caller.send(caller.head(), chunk(first[: len(first) // 2]), data)
        then(caller)

    attack(name, expected)(act)


chunks("chunk size of letters", b"zz\r\nabc\r\n")
chunks("chunk size of 16 digits", b"ffffffffffffffff\r\nabc\r\n")
chunks("chunk size of 40 digits", b"f" * 40 + b"\r\nabc\r\n")
chunks("chunk size below 0", b"-5\r\nabcde\r\n")
chunks("chunk size of nothing", b"\r\nabc\r\n")
chunks("chunk size with an underscore", b"1_0\r\n" + b"a" * 16 + b"\r\n")
chunks("chunk without its line end", b"3\r\nabcXX3\r\nabc\r\n")
chunks("chunk cut, then closes", b"64\r\nabc", then=Caller.close)
attack("chunk extensions and trailers", OK)(
    lambda caller: caller.send(
        caller.head(),
        *(b'%x;a="b;c"\r\n%b\r\n' % (len(piece), piece) for piece in caller.body()),
        b"0;last\r\nx-more: and more\r\ncontent-length: 7\r\n\r\n",
    )
)
attack("chunk extension without end")(lambda caller: caller.flood(caller.head() + b"5;", b"name=value;"))
attack("trailers without end", ANY)(
    lambda caller: caller.flood(caller.good()[:-2], b"x-more: and more\r\n"),
)
attack("chunks of one byte", OK)(
    lambda caller: caller.send(caller.head(), caller.chunked(bytes([byte]) for byte in b"".join(caller.body())))
)
attack("bytes after the last chunk", AT_ONCE)(lambda caller: caller.send(caller.good(), b"and something more"))
attack("unsolicited second answer", AT_ONCE)(lambda caller: caller.send(caller.good(), caller.good(STRAY)))  # type: ignore[has-type]
STRAY = Content(id="stray", tokens=3, output_tokens=3, input_tokens=999)


@attack("end of the body inside a chunk", OK, only="streams", tokens=5)
def _(caller: Caller) -> None:
    first, *rest = caller.body()
    caller.send(caller.head(), chunk(first + b"\n\r\n0\r\n\r\n"))
    caller.stop.wait(0.1)
    caller.send(caller.chunked(rest))


# -- bodies that are too much ----------------------------------------------------------------------------------


@attack("endless events", only="streams")
def _(caller: Caller) -> None:
    caller.flood(caller.head(), chunk(caller.body()[1]))


@attack("endless events with running usage", only="streams")
def _(caller: Caller) -> None:
    events = caller.body(Content(tokens=2000, running=lambda number: number))
    caller.flood(caller.head(), b"".join(map(chunk, events[:-2])))


attack("one event without end", only="streams")(
    lambda caller: caller.flood(caller.head() + b"7\r\ndata: {\r\n", chunk(b"a" * 8192))
)
attack("endless blank lines", only="streams")(lambda caller: caller.flood(caller.head(), chunk(b"\n" * 8192)))
attack("endless comments", only="streams")(lambda caller: caller.flood(caller.head(), chunk(b": on and on\n\n" * 600)))
attack("endless document", only="whole")(lambda caller: caller.flood(caller.head(), chunk(b'{"a": ' * 1000)))
attack("body as long as 10^18")(
    lambda caller: caller.flood(caller.head("content-length: 1000000000000000000"), b"a" * 8192)
)
attack("body until close, without end")(lambda caller: caller.flood(caller.head("connection: close"), b"data: {}\n\n"))
attack("100,000 events in one go", ANY, only="streams")(
    lambda caller: caller.send(caller.head(), caller.chunked([b"".join(caller.body(Content(tokens=100_000)))]))
)


@attack("an error event of 30 MB that is no JSON", only="streams")
def _(caller: Caller) -> None:
    caller.send(caller.head(), caller.chunked([b"event: error\ndata: " + b"\x1b" * 30_000_000 + b"\n\n"]))


@attack("a document of 750,000 keys", is_text=True)
def _(caller: Caller) -> None:
    keys = b",".join(b'"%d":1' % number for number in range(750_000))
    caller.send(caller.head(kind="application/json"), caller.chunked([b'{"choices":[],' + keys + b"}"]))


answers("an id of 5 MB", Content(id="i" * 5_000_000))
answers("a text of 5 MB", Content(text="t" * 1_000_000))


@attack("an error of 5 MB", STATUS)
def _(caller: Caller) -> None:
    body = json.dumps({"error": {"message": "no " * 1_600_000}}).encode()
    caller.send(caller.head(f"content-length: {len(body)}", status="500 Oops", kind="application/json"), body)


# -- what the answer says --------------------------------------------------------------------------------------

answers("usage of 10^30", Content(input_tokens=10**30, output_tokens=10**30))
answers("usage of 2^63", Content(input_tokens=2**63, output_tokens=2**63))
answers("usage below 0", Content(input_tokens=-5, output_tokens=-5))
answers("usage of infinity", Content(input_tokens=1e999, output_tokens=1e999))
answers("usage that is true", Content(input_tokens=True, output_tokens=True))
answers("usage that is null", Content(input_tokens=None, output_tokens=None))
answers("usage that is text", Content(input_tokens="many", output_tokens={"a": []}))
answers("running usage of 2^62", Content(running=lambda number: number << 62), only="streams")
answers("running usage that falls", Content(running=lambda number: 10 - number), only="streams")
answers("finish reason that is a list", Content(reason=["stop", {"a": 1}]))
answers("finish reason that is a number", Content(reason=10**400))
answers("text that is a number", Content(text=5))
answers("text that is a list", Content(text=[{"a": 1}]))
answers("id that is a mapping", Content(id={"a": [1]}))
answers("control characters", Content(id="\x1b[31mred\x07\0", text="\x1b]0;title\x07\0\u202e", reason="\x1b[2Jstop"))
answers("lone surrogates", Content(id="\ud800", text="\udfff", reason="\ud800"))


def events(name: str, *data: bytes, expected: frozenset[str] = FAILED) -> None:
    """An attack that is a few events after a right first one, and then a right end of the body."""

    def act(caller: Caller) -> None:
        caller.send(caller.head(), caller.chunked([*caller.body()[:2], *data]))

    attack(name, expected, only="streams")(act)


@attack("line separators of Unicode", OK, only="streams")
def _(caller: Caller) -> None:
    odd = [event.replace(b"x ", "\u2028\u2029\u0085 ".encode()) for event in caller.body()]
    caller.send(caller.head(), caller.chunked(odd))


@attack("fields that no API uses", OK, only="streams")
def _(caller: Caller) -> None:
    caller.send(caller.head(), caller.chunked(b"id: \0\nretry: 9\nodd\n: why\n" + event for event in caller.body()))


ERROR = event_bytes('{"error": {"message": "out of memory \\u001b[31m", "type": "ServerError", "code": 500}}')
DONE = event_bytes("[DONE]")
NAMED_ERROR = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}\n\n'
events("error event in a stream", ERROR)
events("error event, then [DONE]", ERROR, DONE)
events("named error event, then [DONE]", NAMED_ERROR, DONE)
events("event that is no JSON", b"data: {not json\n\n", DONE, expected=ANY)
events("event of invalid UTF-8", b'data: {"choices": [{"text": "\xff\xfe"}]}\n\n', DONE, expected=ANY)
events("event with NULs", b'data: {"choices": [{"text": "\0"}]}\n\n', DONE, expected=ANY)
for _value in (b"null", b"5", b"[]", b'"x"', b"{}", b'{"choices": null}', b'{"choices": {}}', b'{"choices": [null]}'):
    events(f"event {_value.decode()}", b"data: " + _value + b"\n\n", DONE, expected=ANY)
for _depth in (300, 100_000):
    events(f"event nested {_depth:,} deep", b"data: " + b"[" * _depth + b"]" * _depth + b"\n\n", DONE, expected=ANY)
    events(
        f"event with usage nested {_depth:,} deep",
        b'data: {"choices": [], "usage": ' + b'{"a":' * _depth + b"1" + b"}" * _depth + b"}\n\n",
        DONE,
        expected=ANY,
    )
says(
    "stream of nothing but [DONE]",
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 14\r\n\r\n" + DONE,
    FAILED,
    then=lambda _c: None,
    only="streams",
)


def documents(
    name: str, body: bytes, expected: frozenset[str] = FAILED, status: str = "200 OK", kind: str = "", **more: Any
) -> None:
    """An attack that is one body, whatever was asked for."""

    def act(caller: Caller) -> None:
        head = caller.head(f"content-length: {len(body)}", status=status, kind=kind or "application/json")
        caller.send(head, body)

    attack(name, expected, **more)(act)


documents("empty body", b"")
documents("page of HTML", b"<html><h1>It works!</h1></html>", kind="text/html", is_text=True)
documents("document null", b"null", is_text=True)
documents("document []", b"[]", is_text=True)
documents("document {}", b"{}", is_text=True)
documents("document of an error", b'{"error": {"message": "no", "code": 500}}')
documents("document nested 100,000 deep", b"[" * 100_000 + b"]" * 100_000, is_text=True)
documents("error nested 300 deep", b'{"error": ' + b"[" * 300 + b"]" * 300 + b"}", STATUS, "500 Oops")
documents("error nested 100,000 deep", b'{"error": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, STATUS, "500 Oops")
documents("error that is a number of 400 digits", b'{"error": ' + b"9" * 400 + b"}", STATUS, "500 Oops")
documents("error of invalid UTF-8", b'{"error": "\xff\x1b[31m\0"}', STATUS, "418 \x1b[31m Teapot")


@attack("byte order mark", OK)
def _(caller: Caller) -> None:
    first, *rest = caller.body()
    caller.send(caller.head(), caller.chunked([b"\xef\xbb\xbf" + first, *rest]))


@attack("a stream though a document was asked for", ANY, only="whole")
def _(caller: Caller) -> None:
    caller.send(caller.head(kind=EVENTS), caller.chunked([ERROR, DONE]))


# -- before the load, and beside it ----------------------------------------------------------------------------


def elsewhere(name: str, act: Act) -> None:
    """The same to whoever asks for the models or for counted tokens before the load, or for the metrics beside it: no
    request is attacked."""
    places: tuple[Place, ...] = ("models", "metrics", "tokenize")
    ATTACKS.extend(Attack(f"{place}: {name}", act, at=place) for place in places)


def _gpu_line(number: int) -> bytes:
    line = b'DCGM_FI_DEV_GPU_UTIL{gpu="%d",Hostname="\x1b[31m%d"} 1\nvllm:num_requests_running{engine="%d\x1b"} 1\n'
    return line % (number, time.monotonic_ns(), time.monotonic_ns())


def page(caller: Caller, body: bytes, kind: str = "application/json") -> None:
    caller.send(caller.head(f"content-length: {len(body)}", kind=kind), body)


elsewhere("closes at once", Caller.close)
elsewhere("is silent", Caller.hold)
elsewhere("drips", lambda caller: caller.drip(caller.head("content-length: 5000"), 0.2))
elsewhere("endless headers", lambda caller: caller.flood(b"HTTP/1.1 200 OK\r\n", b"x-more: and more\r\n"))
elsewhere("endless body", lambda caller: caller.flood(caller.head(), chunk(b'a_metric{b="c"} 1\n' * 100)))
elsewhere("drips without end", lambda caller: caller.drip(caller.head() + b"x" * 100_000, 0.1))
elsewhere("100 Continue without end", lambda caller: caller.flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"))
elsewhere(
    "chunk of 60 bits", lambda caller: caller.flood(caller.head() + b"fffffffffffffff\r\n", b'a_metric{b="c"} 1\n')
)
elsewhere("status line 200OK", lambda caller: caller.send(b"HTTP/1.1 200OK\r\n\r\n"))
elsewhere("chunk size of letters", lambda caller: caller.send(caller.head(), b"zz\r\n\r\n"))
elsewhere(
    "redirects to itself", lambda caller: caller.send(b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n")
)
elsewhere("nested 100,000 deep", lambda caller: page(caller, b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"))
elsewhere(
    "odd entries",
    lambda caller: page(caller, b'{"data": [null, 5, {"id": null}, {"id": ["a"], "max_model_len": 1e999}]}'),
)
elsewhere(
    "control characters",
    lambda caller: page(caller, b'{"data": [{"id": "\\u001b[31mred\\u0000", "owned_by": "\\u001b[2J"}]}'),
)
elsewhere(
    "NaN and infinity",
    lambda caller: page(caller, b'vllm:num_requests_running NaN\nx +Inf\ny 1e999\nz{a="\n', "text/plain"),
)
elsewhere("counts nothing", lambda caller: page(caller, b'{"count": 0, "tokens": []}'))
elsewhere("counts 10^400", lambda caller: page(caller, b'{"count": 1' + b"0" * 400 + b"}"))
elsewhere("counts below 0", lambda caller: page(caller, b'{"count": -7}'))
elsewhere(
    "a new GPU in every line",
    lambda caller: page(caller, b"".join(map(_gpu_line, range(20_000))), "text/plain"),
)
elsewhere("invalid UTF-8", lambda caller: page(caller, b'\xff\xfe{"data": \x1b[31m', "text/plain"))

assert len({entry.name for entry in ATTACKS}) == len(ATTACKS), "two attacks have one name"
