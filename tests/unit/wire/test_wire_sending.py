"""Bytes are sent at once."""

import socket
import sys

import pytest

from inferometer.wire.sockets import send_at_once

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets a socket choose")


def congestion_of(made: socket.socket) -> bytes:
    return made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


def test_a_paced_socket_is_paced_no_more_and_another_is_left_as_it_is() -> None:
    with socket.socket() as usual, socket.socket() as made:
        before = congestion_of(usual)
        send_at_once(made)
        after = congestion_of(made)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert after != b"bbr"
    assert after == before or before == b"bbr"


def test_what_a_listener_accepts_inherits_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        send_at_once(listener)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert congestion_of(accepted) != b"bbr"
