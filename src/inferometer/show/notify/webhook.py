"""An event as JSON to any address, with a token where the receiver wants one."""

from collections.abc import Mapping

from inferometer.show.notify.event import Event
from inferometer.show.notify.posting import post


def send(event: Event, variables: Mapping[str, str], timeout_s: float) -> None:
    """The event's id lets a receiver drop what it got twice, after an attempt that it answered too late. A token
    goes encrypted or not at all."""
    token = variables.get("INFEROMETER_WEBHOOK_TOKEN", "").strip()
    headers = {"Idempotency-Key": event.id} | ({"Authorization": f"Bearer {token}"} if token else {})
    post(variables["INFEROMETER_WEBHOOK_URL"], event.document(), timeout_s, headers=headers, plain=not token)
