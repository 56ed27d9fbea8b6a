"""TLS over memory buffers, so that the socket itself is read by us and its stamps are kept."""

import ssl

from inferometer.wire.origin import Origin

READ_SIZE = 16 * 1024  # a streamed event has some 300 bytes; a larger buffer costs more to allocate than to refill


class Tls:
    """One session: sealed bytes in and out, plain bytes in and out."""

    def __init__(self, origin: Origin) -> None:
        assert origin.tls is not None
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.session = origin.tls.wrap_bio(self.incoming, self.outgoing, server_hostname=origin.host)
        self.started = False
        self.ended = False  # the server said that nothing more comes

    def handshake(self) -> bool:
        """One more step; true when it is done."""
        self.started = True
        try:
            self.session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def seal(self, plain: bytes) -> bytes:
        """The bytes to send for these; OpenSSL takes one record of 16 KiB at a time."""
        rest = memoryview(plain)
        while rest:
            rest = rest[self.session.write(rest) :]
        return self.outgoing.read()

    def open(self, sealed: bytes) -> bytes:
        """The plain bytes that these sealed ones complete."""
        self.incoming.write(sealed)
        plain = []
        try:
            while data := self.session.read(READ_SIZE):
                plain.append(data)
            self.ended = bool(sealed)
        except ssl.SSLWantReadError:
            pass
        return b"".join(plain)
