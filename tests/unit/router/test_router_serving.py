"""A router that is started before its replicas."""

import socket
from typing import Any

import pytest

from inferometer.errors import TargetError
from inferometer.router import serving
from inferometer.router.settings import router_settings

SETTINGS = router_settings({"upstreams": [{"name": "a", "url": "http://late.example:8000"}]})


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of a name that is known the third time."""
    asked: list[str] = []
    known = socket.getaddrinfo

    def look_up(host: str, *rest: Any, **more: Any) -> Any:
        if host != "late.example":
            return known(host, *rest, **more)
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(serving, "RESOLVE_RETRY_S", 0.0)
    return asked


def test_a_name_that_is_not_known_yet_is_awaited(lookups: list[str]) -> None:
    notes: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(TargetError, match="already in use"):
        serving.run_router(SETTINGS, port=taken.getsockname()[1], ready_s=60.0, notify=notes.append)
    assert len(lookups) >= 3
    assert len(notes) == 1 and "unknown host name 'late.example'" in notes[0]


def test_without_time_for_it_an_unknown_name_is_a_mistake(lookups: list[str]) -> None:
    with pytest.raises(TargetError, match="unknown host name"):
        serving.run_router(SETTINGS)
    assert len(lookups) == 1
