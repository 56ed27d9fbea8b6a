"""How the simulator is launched as a server of its own process."""

import orjson

from inferometer.plan.model import Server
from inferometer.simulator.settings import settings_from
from inferometer.target.server import Launch, python_module


def launch(server: Server) -> Launch:
    """Its settings are checked here: a mistake in them is one of the plan, not of the server."""
    settings_from(server.args)  # found wrong here, not in a child's log
    arguments = ["--port", "0", "--until-stdin-closes", "--settings", orjson.dumps(server.args).decode()]
    return Launch("the simulator", python_module("inferometer.simulator", *arguments), ready)


def ready(line: bytes) -> str | None:
    """One line of JSON says that it listens, and where."""
    try:
        said = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("port"), int):
        return None
    return str(said.get("url") or f"http://127.0.0.1:{said['port']}")
