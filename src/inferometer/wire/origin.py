"""Where requests are sent: the parts of a URL, its TLS settings and its proxy; and TLS over memory buffers, so that our
code reads the socket itself and keeps the timestamps."""

import base64
import http.client
import io
import socket
import ssl
import time
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from inferometer.documents.files import check_plain
from inferometer.errors import TargetError

# -- origin ----------------------------------------------------------------------------------------------------------

Address = tuple[int, tuple[str, int]]  # family and socket address
Trust = tuple[bool, str | None, str | None, str | None]  # verify, ca, cert, key: the TLS settings of a plan


class UnknownHostError(TargetError):
    """The host name cannot be resolved; for a host that is being set up this may change a moment later."""


@dataclass(frozen=True)
class Origin:
    """Scheme, host and port of a server, and the base path of its API."""

    url: str
    host: str
    port: int
    path: str  # without a trailing slash
    tls: ssl.SSLContext | None = None
    proxy: "Origin | None" = None
    proxy_key: str | None = field(default=None, repr=False)  # value of Proxy-Authorization

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def tunnelled(self) -> bool:
        """Whether the proxy must open a tunnel first."""
        return self.proxy is not None and self.tls is not None

    def request_target(self, path: str) -> str:
        """The target in the request line: a plain proxy needs the whole URL."""
        if self.proxy is not None and self.tls is None:
            return f"http://{self.authority}{path}"
        return path

    @property
    def proxy_headers(self) -> dict[str, str]:
        """Headers that a plain proxy needs with every request; a tunnelling proxy gets them once."""
        return {} if self.tunnelled or self.proxy_key is None else {"Proxy-Authorization": self.proxy_key}

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """A blocking connection, not yet open, for the few requests before and during the load; to be bounded by
        `within`."""
        peer = self.proxy or self
        if self.tls is None:
            return http.client.HTTPConnection(peer.host, peer.port, timeout=timeout_s)
        secured = http.client.HTTPSConnection(peer.host, peer.port, timeout=timeout_s, context=self.tls)
        if self.tunnelled:
            key = {"Proxy-Authorization": self.proxy_key} if self.proxy_key else {}
            secured.set_tunnel(self.host, self.port, headers=key)
        return secured

    def addresses(self) -> list[Address]:
        """The socket addresses to try, in order; those of the proxy if there is one."""
        peer = self.proxy or self
        try:
            resolved = socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise UnknownHostError(
                f"{peer.url}: unknown host name {peer.host!r} ({error})",
                "check the spelling, or the name server of this machine",
            ) from None
        return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in resolved]


def origin_of(url: str, tls: ssl.SSLContext | None = None, proxy: str | None = None) -> Origin:
    """The origin of a URL; `tls` is used for https."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise TargetError(f"{url}: not an http:// or https:// address", "write http://host:port")
    secure = parts.scheme == "https"
    context = (tls or ssl.create_default_context()) if secure else None
    port = parts.port or (443 if secure else 80)
    via = origin_of(proxy) if proxy else None
    if via is not None and via.tls is not None:
        raise TargetError(
            f"target.proxy: must be an http:// address, got {via.host} over https", "write http://host:port"
        )
    return Origin(url, parts.hostname, port, parts.path.rstrip("/"), context, via, _proxy_key(proxy))


def trusted_origin(url: str, trust: Trust, proxy: str | None = None) -> Origin:
    """The origin of a URL with the TLS settings of a plan; certificate files are read only for https."""
    return origin_of(url, tls_context(*trust) if url.startswith("https:") else None, proxy)


def _proxy_key(proxy: str | None) -> str | None:
    parts = urlsplit(proxy or "")
    if not parts.username:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def tls_context(verify: bool, ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    """The TLS settings of a plan as an SSL context."""
    try:
        for file in filter(None, (ca, cert, key)):
            check_plain(file)
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise TargetError(f"target.tls: cannot read the certificate files ({error})") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


# -- bounds ----------------------------------------------------------------------------------------------------------


PIECE = 1 << 20  # bytes


class TooLarge(Exception):
    """The answer to a request before or during the load exceeds its size limit."""


def within(connection: http.client.HTTPConnection, until: float, most: int) -> None:
    """Bound the next answer of a blocking connection: by an instant of the monotonic clock, then `TimeoutError`, and by
    a number of bytes including its headers, then `TooLarge`. A socket's own timeout applies to each read, so a server
    that sends byte by byte, or interim answers without end, never reaches it."""

    class Reply(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, debuglevel: int = 0, method: str | None = None) -> None:
            super().__init__(sock, debuglevel, method)
            self.fp = io.BufferedReader(_BoundedReads(self.fp.detach(), sock, until, most))

    connection.response_class = Reply  # also for a proxy's answer
    connection.timeout = time_left(until)
    if connection.sock is not None:
        connection.sock.settimeout(connection.timeout)


def body_within(response: http.client.HTTPResponse) -> bytes:
    """The body of a bounded answer, read piece by piece, because its stated length may exceed the memory."""
    with response:
        body = b"".join(iter(lambda: response.read1(PIECE), b""))
        if response.length:  # bytes not yet received
            raise http.client.IncompleteRead(body, response.length)
    return body


def time_left(until: float) -> float:
    """Seconds until an instant of the monotonic clock; `TimeoutError` if it has passed."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _BoundedReads(io.RawIOBase):
    """The raw reads of one answer, within its bounds."""

    def __init__(self, reads: io.RawIOBase, source: socket.socket, until: float, left: int) -> None:
        self._reads, self._source, self._until, self._left = reads, source, until, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int | None:  # type: ignore[override]
        self._source.settimeout(time_left(self._until))
        size = self._reads.readinto(buffer)
        self._left -= size or 0
        if self._left < 0:
            raise TooLarge
        return size

    def close(self) -> None:
        self._reads.close()
        super().close()


# -- tls -------------------------------------------------------------------------------------------------------------

READ_SIZE = 16 * 1024  # a streamed event has some 300 bytes; a larger buffer costs more to allocate than to refill


RECORD_HEADER = 5  # bytes: kind, version, and in the last two the size of the record's content


class TlsSession:
    """One TLS session: encrypted bytes in and out, plain bytes in and out."""

    def __init__(self, origin: Origin) -> None:
        assert origin.tls is not None
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.session = origin.tls.wrap_bio(self.incoming, self.outgoing, server_hostname=origin.host)
        self.started = False
        self.whole = True  # no record is incomplete
        self._header, self._left = b"", 0  # of the current record: its header so far, and the bytes still missing
        self.ended = False  # the server sent its last TLS record

    def handshake(self) -> bool:
        """Run one more step; true when the handshake is done."""
        self.started = True
        try:
            self.session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def seal(self, plain: bytes) -> bytes:
        """The encrypted bytes to send for these; OpenSSL takes one record of 16 KiB at a time."""
        rest = memoryview(plain)
        while rest:
            rest = rest[self.session.write(rest) :]
        return self.outgoing.read()

    def open(self, sealed: bytes) -> bytes:
        """The plain bytes that these encrypted ones complete."""
        self.feed(sealed)
        plain = []
        try:
            while data := self.session.read(READ_SIZE):
                plain.append(data)
            self.ended = bool(sealed)
        except ssl.SSLWantReadError:
            pass
        return b"".join(plain)

    def feed(self, sealed: bytes) -> None:
        """Add received bytes. We track records ourselves, because OpenSSL takes a part of a record without reporting
        it."""
        self.incoming.write(sealed)
        at, size = self._left, len(sealed)
        while at < size:
            header = self._header + sealed[at : at + RECORD_HEADER - len(self._header)]
            at += len(header) - len(self._header)
            if len(header) < RECORD_HEADER:
                self._header = header
                break
            self._header = b""
            at += int.from_bytes(header[-2:])
        self._left = at - size
        self.whole = not self._left and not self._header
