"""Sends a vLLM server to sleep and wakes it up, and says how long each took by our own clock."""

import http.client
import time
from urllib.parse import urlsplit

from inferometer.errors import TargetError
from inferometer.plan.target import Target
from inferometer.record.summary import MeasuredSleep
from inferometer.target.ask import Asker, request_headers

PATIENCE_S = 15 * 60.0
LOOK_S = 0.1
_HINT = (
    "sleep needs --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1: inferometer startup --server vllm --sleep sets both"
)


def sleep_and_wake(target: Target, url: str, level: int = 1, patience_s: float = PATIENCE_S) -> MeasuredSleep:
    """As whoever asked for it sees it; the log of the server says how long it took itself. A `TargetError` where the
    server cannot, or does not come back."""
    asker = Asker(target, url)
    began = time.monotonic()
    _asked(target, url, f"/sleep?level={level}", patience_s)
    _await(asker, True, began + patience_s)
    asleep = time.monotonic()
    _asked(target, url, "/wake_up", patience_s)
    _await(asker, False, asleep + patience_s)
    return MeasuredSleep(level=level, sleep_s=asleep - began, wake_s=time.monotonic() - asleep)


def _asked(target: Target, url: str, path: str, patience_s: float) -> None:
    """The answer comes when it is done, which for a large model is later than an `Asker` waits."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=patience_s)
    try:
        connection.request("POST", where.path.rstrip("/") + path, headers=request_headers(target))
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise TargetError(f"{url} did not answer POST {path}: {error}", "look at the server's log") from None
    finally:
        connection.close()
    if status >= 400:
        raise TargetError(f"{url} answered POST {path} with status {status}", _HINT)


def _await(asker: Asker, sleeping: bool, until: float) -> None:
    while (said := _is_sleeping(asker)) is not sleeping:
        if time.monotonic() > until:
            what = "asleep" if sleeping else "awake"
            raise TargetError(
                f"{asker.where} is not {what} yet, it says is_sleeping={said}", "look at the server's log"
            )
        time.sleep(LOOK_S)


def _is_sleeping(asker: Asker) -> bool | None:
    reply = asker.get("/is_sleeping")
    if reply.status >= 400:
        raise TargetError(f"{asker.where} answered GET /is_sleeping with status {reply.status}", _HINT)
    document = reply.json()
    said = document.get("is_sleeping") if isinstance(document, dict) else None
    return said if isinstance(said, bool) else None
