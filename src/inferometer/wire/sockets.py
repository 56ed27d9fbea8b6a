"""Socket options: kernel timestamps of arriving bytes, sending without delay, and delayed acknowledgements."""

import functools
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

# -- stamps ----------------------------------------------------------------------------------------------------------

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; `socket` does not name it
STAMP = struct.Struct("=qq")  # struct timespec on 64-bit Linux
MARK = struct.Struct(
    "=qqqq"
)  # of a read by the compiled reader: bytes so far, timestamp, whether that is our own, since when
PATIENCE_S = 0.2  # for the first timestamp; the kernel needs some milliseconds for it

# The earliest time at which the bytes of a read may have arrived, if no poll proves that the stream was empty (as in
# _reader.c):
UNPROVEN = 0  # since the previous read
LEFT = -1  # the previous read filled its buffer and may have left them: as early as that read's own bytes
ANCILLARY_SIZE = socket.CMSG_SPACE(STAMP.size) if hasattr(socket, "CMSG_SPACE") else 0


def ask_for_stamps(connection: socket.socket) -> bool:
    """Enable kernel timestamps for data arriving on the socket; false if the platform does not support them."""
    if not kernel_stamps():
        return False
    try:
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


@functools.cache
def kernel_stamps() -> bool:
    """Whether this machine timestamps TCP reads, tested over loopback."""
    if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        return False
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return _stamped_exchange(listener)
    except OSError:
        return False


def _stamped_exchange(listener: socket.socket) -> bool:
    """The kernel enables timestamps a moment after the first socket requests them: one read without proves little."""
    _keep_stamping()
    with socket.create_connection(listener.getsockname()) as client:
        client.settimeout(1)
        client.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        server, _ = listener.accept()
        with server:
            gives_up_at = time.monotonic() + PATIENCE_S
            while not (stamped := _one_stamped(server, client)) and time.monotonic() < gives_up_at:
                time.sleep(0.001)
            return stamped


def _one_stamped(server: socket.socket, client: socket.socket) -> bool:
    server.send(b"?")
    before = time.time_ns()
    _data, ancillary, _flags, _address = client.recvmsg(16, ANCILLARY_SIZE)
    if not ancillary or len(ancillary[0][2]) != STAMP.size:
        return False
    return abs(stamp_ns(ancillary[0][2]) - before) < 10**9


@functools.cache
def _keep_stamping() -> socket.socket:
    """Kept open as long as the process lives: when the last socket with timestamps closes, the kernel disables them."""
    keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    keeper.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return keeper


def stamp_ns(raw: bytes) -> int:
    """A kernel timestamp as nanoseconds of the real-time clock."""
    whole, fraction = STAMP.unpack(raw)
    return int(whole) * 1_000_000_000 + int(fraction)


# -- acks ------------------------------------------------------------------------------------------------------------

NEVER, ONCE, ALWAYS = 0, 1, 2  # as in _reader.c

MANY = 32  # streams at once: with fewer, delaying saves nothing
TRIES = 3


class Acknowledging:
    """Knowledge about one origin's acknowledgements."""

    def __init__(self) -> None:
        self._apart = False  # the server sends without waiting
        self._tries = TRIES
        self._trying = False

    def delay(self, streams: int) -> int:
        """How to acknowledge a stream that starts while this many are in progress."""
        if self._apart:
            return ALWAYS
        if self._trying or not self._tries or streams < MANY:
            return NEVER
        self._trying = True
        self._tries -= 1
        return ONCE

    def learn(self, delay: int, apart: bool) -> None:
        """Record the end of a stream acknowledged in this way; `apart`: the server was observed to send without
        waiting."""
        if delay == ONCE:
            self._trying = False
            self._apart = self._apart or apart


# -- sending ---------------------------------------------------------------------------------------------------------

UNPACED = (b"cubic", b"reno")  # the system restricts the choice of a process; Reno is always available


def send_at_once(made: socket.socket) -> None:
    """Disables Nagle's algorithm; and if the system's congestion control is BBR, selects another one: BBR sends by its
    own timers, and paces a connection with one small request a second as a slow one. At 512 streams one request in ten
    left 4 ms or more after it was handed to the socket; with Cubic or Reno within 0.02 ms."""
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not _is_paced(made):
        return
    for name in UNPACED:
        with suppress(OSError):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
            return


def _is_paced(made: socket.socket) -> bool:
    with suppress(AttributeError, OSError):  # not Linux, or not TCP
        return made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"bbr")
    return False


CLOCK_TRIES = 9  # smaller changes are drift between separate clocks; larger ones mean that the clock was set
STEP_NS = 100_000  # smaller changes are drift of platforms whose two clocks run apart; larger ones were set

ClockSource = Callable[[], int]


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The real-time clock was set: detected at this instant, forward by this much."""

    at: int
    by_ns: int


@dataclass(frozen=True, slots=True)
class Offset:
    """Real time minus monotonic time, read at `at`; the true value is within `error_ns` of `ns`."""

    at: int
    ns: int
    error_ns: int


class ClockPair:
    """The last offset between the two clocks, and every step detected. Refresh it about once a second."""

    def __init__(self, monotonic: ClockSource = time.monotonic_ns, real: ClockSource = time.time_ns) -> None:
        self._monotonic, self._real = monotonic, real
        self.steps: list[ClockStep] = []
        self.last = read_offset(monotonic, real)
        self.offset_ns = self.last.ns

    def refresh(self) -> ClockStep | None:
        """Read the offset again; returns the step if there was one since the last time."""
        before, self.last = self.last, read_offset(self._monotonic, self._real)
        self.offset_ns = self.last.ns
        change = self.last.ns - before.ns
        if abs(change) <= STEP_NS + self.last.error_ns + before.error_ns:
            return None
        step = ClockStep(self.last.at, change)
        self.steps.append(step)
        return step

    def monotonic(self, real_at: int) -> int:
        """Converts an instant of the real-time clock to the monotonic one."""
        return real_at - self.offset_ns


def read_offset(monotonic: ClockSource = time.monotonic_ns, real: ClockSource = time.time_ns) -> Offset:
    """The best of several readings: the closer the two monotonic times, the smaller the possible error."""
    return min((_reading(monotonic, real) for _ in range(CLOCK_TRIES)), key=lambda offset: offset.error_ns)


def _reading(monotonic: ClockSource, real: ClockSource) -> Offset:
    before, between, after = monotonic(), real(), monotonic()
    middle = (before + after) // 2
    return Offset(middle, between - middle, (after - before + 1) // 2)
