"""Whether a Ray cluster answers at an address, before Ray connects to it."""

import os
import socket

from inferometer.errors import PlanError, TargetError
from inferometer.record.environment import is_loopback

ANSWER_S = 5.0  # for a cluster's address to accept a connection, and to answer
_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # an empty frame of HTTP/2: length (3 bytes), type 4, flags, stream


def check_address(address: str, own_ip: str) -> None:
    """An error where no Ray cluster answers; Ray itself would try for many minutes. Where a loopback address is given,
    it uses this node's own instead."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise PlanError(
            f"the address of a Ray cluster must be host:port, got {address}",
            "ray status prints the address of a cluster",
        )
    hint = "ray status shows whether a cluster runs"
    reached = own_ip if is_loopback(host.strip("[]")) else host.strip("[]")
    try:
        with socket.create_connection((reached, int(port)), ANSWER_S) as connection:
            if not os.environ.get("RAY_USE_TLS") and not _speaks_http2(connection):
                raise TargetError(f"Ray at {address} does not answer: what listens there is no Ray cluster", hint)
    except OSError as error:
        raise TargetError(f"Ray at {address} does not answer: {error.strerror or error}", hint) from error


def _speaks_http2(connection: socket.socket) -> bool:
    """Whether the other side answers as every gRPC server does, which the head of a cluster is: with a frame of
    settings, as soon as it has ours (RFC 9113, 3.4)."""
    connection.settimeout(ANSWER_S)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS)
    answer = b""
    while len(answer) < len(_SETTINGS):
        data = connection.recv(1 << 10)
        if not data:
            return False
        answer += data
    return answer[3] == _SETTINGS[3]
