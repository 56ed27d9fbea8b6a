"""A port for a server that is about to start, which nobody else takes before it listens."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from inferometer.errors import TargetError
from inferometer.target.launch import check_port, port_is_free
from inferometer.target.lock import Claim, held

_TRIES = 200
_LOWEST = 10_000


@contextmanager
def reserved_port(host: str, asked: int | None, holder: str) -> Iterator[int]:
    """The port that was asked for, or a free one; no other server of ours is given it meanwhile."""
    if asked is not None:
        check_port(host, asked)
        yield asked
        return
    with ExitStack() as stack:
        yield _free_port(host, holder, stack)


def _free_port(host: str, holder: str, stack: ExitStack) -> int:
    """Below the range that connections take theirs from: an engine listens minutes after it was given the port, and
    one of our own tries whether it is ready could otherwise take the very port, even connect to itself."""
    lowest, highest = _LOWEST, _first_ephemeral() - 1
    for _ in range(_TRIES):
        port = random.SystemRandom().randint(lowest, highest)
        if not port_is_free(host, port):
            continue
        try:
            stack.enter_context(held([Claim(f"port-{port}", f"port {port}")], holder))
        except TargetError:
            continue
        return port
    raise TargetError(f"no free port between {lowest} and {highest}", "name one: server.port")


def _first_ephemeral() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768  # as on Linux; others begin higher
    return first if first > _LOWEST + 1000 else 32_768
