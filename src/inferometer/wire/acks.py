"""When TCP's acknowledgements may wait for each other.

The kernel acknowledges every small segment that is read at once, which costs the client as much as reading it. Asked to
wait, it acknowledges every second one. That must not change what is measured: a server that holds small segments back
until the last one is acknowledged (Nagle's algorithm: where TCP_NODELAY is not set) would stand still for 40 ms. So a
few streams are tried, one after the other, and only a server that was seen to send on without waiting is treated so.
"""

NEVER, ONCE, ALWAYS = 0, 1, 2  # as in _reader.c

MANY = 32  # streams at once: with fewer there is nothing to save
TRIES = 3


class Acknowledging:
    """What is known of one origin."""

    def __init__(self) -> None:
        self._apart = False  # the server sends without waiting
        self._tries = TRIES
        self._trying = False

    def delay(self, streams: int) -> int:
        """How to acknowledge a stream that begins while so many are under way."""
        if self._apart:
            return ALWAYS
        if self._trying or not self._tries or streams < MANY:
            return NEVER
        self._trying = True
        self._tries -= 1
        return ONCE

    def learn(self, delay: int, apart: bool) -> None:
        """A stream is over that was acknowledged so; `apart` says whether the server was seen to send on."""
        if delay == ONCE:
            self._trying = False
            self._apart = self._apart or apart
