"""A server that runs elsewhere: nothing is started or ended, but it is awaited and checked like one of ours."""

from inferometer.plan.model import Server
from inferometer.target.command import ANY_RESET
from inferometer.target.launch import OTHER_READY_S, Launch, Place
from inferometer.target.probe import base_url


def launch(server: Server, place: Place) -> Launch:
    return Launch(
        "the external server",
        base_url(server.url or place.url),
        names=[server.model] if server.model else [],
        lenient=True,
        ready_s=OTHER_READY_S,
        resets=ANY_RESET,
        version=("/version", "version"),
    )
