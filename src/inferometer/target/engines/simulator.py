"""How the simulator is launched as a server of its own process."""

import orjson

from inferometer.plan.model import Server
from inferometer.simulator.settings import settings_from
from inferometer.target.launch import Engine, Launch, LaunchPlace
from inferometer.wire.child import python_command

READY_S = 60.0


def launch(server: Server, place: LaunchPlace) -> Launch:
    """Its settings are checked here, so that a mistake in them is reported as an error of the plan, not of the
    server."""
    args = server.args | ({"model": server.model} if server.model else {})
    settings = settings_from(args)
    where = ["--host", place.host, "--port", str(place.port), "--until-stdin-closes"]
    return Launch(
        "the simulator",
        place.url,
        python_command("inferometer.simulator", *where, "--settings", orjson.dumps(args).decode()),
        names=[settings.model],
        ready_s=READY_S,
        resets=("/reset_prefix_cache",),
        version=("/version", "version"),
        held_by_stdin=True,
    )


ENGINE = Engine(launch=launch, title="the simulator")
